"""What a dataset card tells of one split: read from the manifest, the footers and a few columns of its rows."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline_assets.corpus.formats.parquet import open_parquet
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
