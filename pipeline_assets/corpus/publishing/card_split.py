"""What a dataset card tells of one split, read from the manifest, the footers and a few columns of its rows; splits and
licences as a hub names them.

The hub has identifiers of licences of its own (hub documentation, "Licenses"). Most are our tags; what has none is
`other`, with a name beside it.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline_assets.corpus.formats.parquet import open_parquet
from pipeline_assets.corpus.licences import UNKNOWN, licence_table
from pipeline_assets.corpus.nemotron.schema import SCHEMA
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.errors import InputError

_DATA_FILE = re.compile(r"data/(.+)-\d{5}-of-\d{5}\.parquet")
_LICENCE = "meta_license"
_LISTS = [field.name for field in SCHEMA if pa.types.is_list(field.type)]


@dataclass(frozen=True)
class CardSplit:
    """One split of normalised rows.

    Attributes:
        name: as its files have it.
        digest: of its artifact.
        files: Parquet files.
        bytes: of these, as stored.
        uncompressed_bytes: of their pages before compression, as the footers say.
        rejected: source rows by why they gave none.
        licences: rows by licence, as rows say it; None of those that say none.
        filled: rows by column that isn't null in them, in the schema's order.
    """

    name: str
    digest: str
    files: int
    bytes: int
    uncompressed_bytes: int
    rows: int
    rejected: Mapping[str, int]
    tokens: int
    completion_tokens: int
    tool_calls: int
    licences: Mapping[str | None, int]
    filled: Mapping[str, int]


def card_split(artifact: Artifact) -> CardSplit:
    """The split that `normalise_split` made. Licences and lists are read in batches: memory is that of one.

    Raises:
        InputError: it holds no normalised rows.
    """
    manifest = artifact.manifest
    paths = {file.path: found[1] for file in manifest.storage if (found := _DATA_FILE.fullmatch(file.path))}
    if len(set(paths.values())) != 1:
        what = f"it holds normalised rows of {len(set(paths.values()))} splits"
        raise InputError(what, artifact.folder, "give the folder of one normalised split")
    filled: Counter[str] = Counter(dict.fromkeys(SCHEMA.names, 0))
    licences: Counter[str | None] = Counter()
    uncompressed_bytes = 0
    for path in paths:
        with open_parquet(artifact.path(path)) as file:
            uncompressed_bytes += _add_footer(file.metadata, filled)
            for batch in file.iter_batches(columns=[_LICENCE, *_LISTS]):
                for found in batch.column(_LICENCE).value_counts().to_pylist():
                    licences[found["values"]] += found["counts"]
                for name in _LISTS:
                    filled[name] += batch.num_rows - batch.column(name).null_count
    counts = manifest.identity.counts
    return CardSplit(
        name=next(iter(paths.values())),
        digest=manifest.digest,
        files=len(paths),
        bytes=sum(file.bytes for file in manifest.storage if file.path in paths),
        uncompressed_bytes=uncompressed_bytes,
        rows=counts["ledger"]["out"],
        rejected=counts["ledger"]["rejected"],
        tokens=counts["tokens"],
        completion_tokens=counts["completion_tokens"],
        tool_calls=counts["tool_calls"],
        licences=licences,
        filled=filled,
    )


def _add_footer(footer: pq.FileMetaData, filled: Counter[str]) -> int:
    """Counts what isn't null in columns that are no lists, whose footers count values instead; bytes uncompressed."""
    uncompressed_bytes = 0
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        uncompressed_bytes += group.total_byte_size
        for place in range(group.num_columns):
            column = group.column(place)
            if column.path_in_schema in filled:
                filled[column.path_in_schema] += group.num_rows - column.statistics.null_count
    return uncompressed_bytes


_UNFIT = re.compile(r"\W+")
_NUMBER = "[0-9]" * 5
_ALL = "all"  # in any case: builder.py of `datasets` refuses a whole dataset that has a split of this name


def hub_split_names(splits: Sequence[str]) -> dict[str, str]:
    r"""The hub's name of each split: its own where that is allowed, else with `_` for what isn't.

    `datasets` allows `\w+(\.\w+)*` (its naming.py), and keeps `all`, which becomes `all_`, for all of them together.
    Where two names would become one, later ones get `_2`, `_3`, …; names that are allowed keep theirs.
    """
    names = {split: split for split in splits if re.fullmatch(r"\w+(\.\w+)*", split) and split.lower() != _ALL}
    for split in splits:
        if split in names:
            continue
        allowed = f"{split}_" if split.lower() == _ALL else _UNFIT.sub("_", split)
        taken, times = set(names.values()), 1
        while (name := allowed if times == 1 else f"{allowed}_{times}") in taken:
            times += 1
        names[split] = name
    return {split: names[split] for split in splits}


def files_pattern(split: str, files: int) -> str:
    """A pattern of the Parquet files of one split. Not `<split>-*`: that is also `<split>-more-00000-of-00001`."""
    return f"data/{split}-{_NUMBER}-of-{files:05d}.parquet"


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
_UNFIT_IN_NAME = re.compile(r"[^a-z0-9.]+")
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
        metadata["license_name"] = _UNFIT_IN_NAME.sub("-", unnamed[0].lower())[:_NAME_CHARACTERS].strip("-.") or OTHER
        tag = licence_table().tag_of(unnamed[0])
        if tag is not None and (url := licence_table()[tag].url) is not None:
            metadata["license_link"] = url
    elif unnamed:
        metadata["license_name"] = "several-see-the-table"
    return metadata
