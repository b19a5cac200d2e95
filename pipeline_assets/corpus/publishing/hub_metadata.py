"""Names that a hub and `datasets` use for splits, licences, columns and sizes."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from pipeline_assets.corpus.licences import UNKNOWN, licence_table

_INVALID_SPLIT_CHARACTERS = re.compile(r"\W+")
_RESERVED_SPLIT = "all"  # In any letter case: builder.py of `datasets` rejects a dataset with a split of this name.
DEFAULT_CONFIG = "default"  # The config of a dataset with a single config.
# `datasets`, size_categories.json: above 1,000, each category is ten times the previous one.
_SIZE_CATEGORIES = ["n<1K", "1K<n<10K", "10K<n<100K", "100K<n<1M", "1M<n<10M", "10M<n<100M", "100M<n<1B", "1B<n<10B"]


def hub_split_names(splits: Sequence[str]) -> dict[str, str]:
    r"""Map each split name to one that a hub allows, with `_` for forbidden characters.

    Names that match `\w+(\.\w+)*` (see naming.py of `datasets`) are kept; `all`, in any letter case, gets a final `_`.
    If a changed name is already used, `_2`, `_3`, … is appended.
    """
    names = {
        split: split for split in splits if re.fullmatch(r"\w+(\.\w+)*", split) and split.lower() != _RESERVED_SPLIT
    }
    for split in splits:
        if split in names:
            continue
        allowed = f"{split}_" if split.lower() == _RESERVED_SPLIT else _INVALID_SPLIT_CHARACTERS.sub("_", split)
        used, attempt = set(names.values()), 1
        while (name := allowed if attempt == 1 else f"{allowed}_{attempt}") in used:
            attempt += 1
        names[split] = name
    return {split: names[split] for split in splits}


OTHER_LICENCE = "other"
# Identifiers of licences in the hub documentation, "Licenses"; most equal our tags.
_LICENCE_IDENTIFIERS = """
    apache-2.0 mit openrail bigscience-openrail-m creativeml-openrail-m bigscience-bloom-rail-1.0 bigcode-openrail-m
    afl-3.0 artistic-2.0 bsl-1.0 bsd bsd-2-clause bsd-3-clause bsd-3-clause-clear c-uda cc cc0-1.0 cc-by-2.0 cc-by-2.5
    cc-by-3.0 cc-by-4.0 cc-by-sa-3.0 cc-by-sa-4.0 cc-by-nc-2.0 cc-by-nc-3.0 cc-by-nc-4.0 cc-by-nd-4.0 cc-by-nc-nd-3.0
    cc-by-nc-nd-4.0 cc-by-nc-sa-2.0 cc-by-nc-sa-3.0 cc-by-nc-sa-4.0 cdla-sharing-1.0 cdla-permissive-1.0
    cdla-permissive-2.0 wtfpl ecl-2.0 epl-1.0 epl-2.0 etalab-2.0 eupl-1.1 agpl-3.0 gfdl gpl gpl-2.0 gpl-3.0 lgpl
    lgpl-2.1 lgpl-3.0 isc lppl-1.3c ms-pl mpl-2.0 odc-by odbl openrail++ osl-3.0 postgresql ofl-1.1 ncsa unlicense zlib
    pddl lgpl-lr deepfloyd-if-license llama2 gemma unknown
"""
_LICENCE_FAMILIES = {"gfdl-1.2-or-later": "gfdl", "gfdl-1.3": "gfdl"}
_INVALID_LICENCE_CHARACTERS = re.compile(r"[^a-z0-9.]+")
_MAX_LICENCE_NAME_LENGTH = 60


def hub_licence(licence: str | None) -> str:
    """Return the hub's licence identifier: `other` if unlisted, `unknown` for None."""
    if licence is None:
        return UNKNOWN
    tag = licence_table().match_tag(licence) or licence.strip().lower()
    identifier = _LICENCE_FAMILIES.get(tag, tag)
    return identifier if identifier in _LICENCE_IDENTIFIERS.split() else OTHER_LICENCE


def licence_metadata(rows_by_licence: Mapping[str | None, int]) -> dict[str, str | list[str]]:
    """Return the licence keys of a card's YAML.

    `rows_by_licence` counts rows; the key None is for rows without a licence. `license` is one identifier, or a list of
    them by descending number of rows. If exactly one licence has no identifier on the hub, `license_name` has its name,
    and `license_link` its URL if known. If several have none, `license_name` refers to the table on the card.
    """
    rows: Counter[str] = Counter()
    for licence, count in rows_by_licence.items():
        rows[hub_licence(licence)] += count
    identifiers = sorted(rows, key=lambda identifier: (-rows[identifier], identifier)) or [UNKNOWN]
    metadata: dict[str, str | list[str]] = {"license": identifiers if len(identifiers) > 1 else identifiers[0]}
    stated = (licence for licence in rows_by_licence if licence is not None)
    unnamed = sorted(licence for licence in stated if hub_licence(licence) == OTHER_LICENCE)
    if len(unnamed) == 1:
        name = _INVALID_LICENCE_CHARACTERS.sub("-", unnamed[0].lower())[:_MAX_LICENCE_NAME_LENGTH].strip("-.")
        metadata["license_name"] = name or OTHER_LICENCE
        tag = licence_table().match_tag(unnamed[0])
        if tag is not None and (url := licence_table()[tag].url) is not None:
            metadata["license_link"] = url
    elif unnamed:
        metadata["license_name"] = "several-see-the-table"
    return metadata


def size_category(rows: int) -> str:
    """Return the hub's size category for a number of rows, such as `1K<n<10K`."""
    # Up to three digits are the first category; each further digit is the next one.
    return _SIZE_CATEGORIES[min(max(len(str(rows)) - 3, 0), len(_SIZE_CATEGORIES) - 1)]


def item_type_name(data_type: pa.DataType) -> str:
    """Return the `datasets` name of an Arrow type, or of a list type's item type."""
    if pa.types.is_list(data_type):
        return item_type_name(data_type.value_type)
    return "float64" if pa.types.is_float64(data_type) else str(data_type)


def arrow_features(fields: Iterable[pa.Field]) -> list[dict[str, Any]]:
    """Return the value of `features` in a card's YAML, which describes the columns."""
    return [{"name": field.name, **_feature(field.type)} for field in fields]


def _feature(data_type: pa.DataType) -> dict[str, Any]:
    if pa.types.is_struct(data_type):
        return {"struct": arrow_features(data_type)}
    if pa.types.is_list(data_type) and pa.types.is_nested(data_type.value_type):
        item = _feature(data_type.value_type)
        return {"list": item.get("struct", item)}
    return {"list" if pa.types.is_list(data_type) else "dtype": item_type_name(data_type)}
