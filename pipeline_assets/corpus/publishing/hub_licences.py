"""Licences as a hub's dataset card names them.

The hub has identifiers of its own (hub documentation, "Licenses"). Most are our tags; what has none is `other`, with a
name beside it.
"""

import re
from collections import Counter
from collections.abc import Mapping

from pipeline_assets.corpus.licences import UNKNOWN, licence_table

OTHER = "other"
_IDENTIFIERS = """
    apache-2.0 mit openrail bigscience-openrail-m creativeml-openrail-m bigscience-bloom-rail-1.0 bigcode-openrail-m
    afl-3.0 artistic-2.0 bsl-1.0 bsd bsd-2-clause bsd-3-clause bsd-3-clause-clear c-uda cc cc0-1.0 cc-by-2.0 cc-by-2.5
    cc-by-3.0 cc-by-4.0 cc-by-sa-3.0 cc-by-sa-4.0 cc-by-nc-2.0 cc-by-nc-3.0 cc-by-nc-4.0 cc-by-nd-4.0 cc-by-nc-nd-3.0
    cc-by-nc-nd-4.0 cc-by-nc-sa-2.0 cc-by-nc-sa-3.0 cc-by-nc-sa-4.0 cdla-sharing-1.0 cdla-permissive-1.0
    cdla-permissive-2.0 wtfpl ecl-2.0 epl-1.0 epl-2.0 etalab-2.0 eupl-1.1 agpl-3.0 gfdl gpl gpl-2.0 gpl-3.0 lgpl
    lgpl-2.1 lgpl-3.0 isc lppl-1.3c ms-pl mpl-2.0 odc-by odbl openrail++ osl-3.0 postgresql ofl-1.1 ncsa unlicense zlib
    pddl lgpl-lr deepfloyd-if-license llama2 gemma unknown
"""
_FAMILIES = {"gfdl-1.2-or-later": "gfdl", "gfdl-1.3": "gfdl"}
_UNFIT = re.compile(r"[^a-z0-9.]+")
_NAME_CHARACTERS = 60


def hub_licence(licence: str | None) -> str:
    """The hub's identifier of a licence as rows say it; `unknown` where they say none, `other` where it has none."""
    if licence is None:
        return UNKNOWN
    tag = licence_table().tag_of(licence) or licence.strip().lower()
    identifier = _FAMILIES.get(tag, tag)
    return identifier if identifier in _IDENTIFIERS.split() else OTHER


def licence_metadata(licences: Mapping[str | None, int]) -> dict[str, str | list[str]]:
    """What the YAML of a card says: `license`, one or a list of them, that of most rows first; for one that the hub
    doesn't know also `license_name`, and `license_link` where our table has one.

    Args:
        licences: rows by licence, as rows say it; None of those that say none.
    """
    rows: Counter[str] = Counter()
    for licence, count in licences.items():
        rows[hub_licence(licence)] += count
    identifiers = sorted(rows, key=lambda identifier: (-rows[identifier], identifier)) or [UNKNOWN]
    metadata: dict[str, str | list[str]] = {"license": identifiers if len(identifiers) > 1 else identifiers[0]}
    unnamed = sorted(licence for licence in licences if licence is not None and hub_licence(licence) == OTHER)
    if len(unnamed) == 1:
        metadata["license_name"] = _UNFIT.sub("-", unnamed[0].lower())[:_NAME_CHARACTERS].strip("-.") or OTHER
        tag = licence_table().tag_of(unnamed[0])
        if tag is not None and (url := licence_table()[tag].url) is not None:
            metadata["license_link"] = url
    elif unnamed:
        metadata["license_name"] = "several-see-the-table"
    return metadata
