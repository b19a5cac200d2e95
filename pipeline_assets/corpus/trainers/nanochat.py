"""Text files for nanochat, named `shard_NNNNN.parquet`.

The files have the column `text`, which nanochat reads, and `doc_id`. A row group has 1,000 texts, because nanochat
distributes row groups over GPUs. The last file, on which nanochat validates, has every hundredth document. The other
files have up to 100,000 documents each.
"""

import itertools
from collections.abc import Iterator, Sequence

import msgspec
import pyarrow as pa

from pipeline_assets.corpus.document_shards import DocumentShard, read_documents
from pipeline_assets.corpus.formats.parquet_tables import regroup_rows, write_table
from pipeline_assets.corpus.formats.python_columns import rows_to_table
from pipeline_assets.corpus.partial_documents import DocumentText
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.spine.ledger import Ledger
from pipeline_assets.spine.stage import WHOLE_SHARD
from pipeline_assets.spine.staging import StagingDir

_SCHEMA = pa.schema([("text", pa.large_string()), ("doc_id", pa.string())])
_ROW_GROUP_ROWS, _FILE_ROW_GROUPS, _VALIDATION_STEP = 1000, 100, 100
_decoder = msgspec.json.Decoder(DocumentText)


def write_nanochat(staging: StagingDir, shards: Sequence[DocumentShard]) -> BuildResult:
    """Write all documents in shard order; UsageError for fewer than 2 documents."""
    rows = sum(shard.rows for shard in shards)
    valid = -(-rows // _VALIDATION_STEP)
    if rows == valid:
        raise UsageError(f"nanochat needs at least 2 documents, got {rows}", staging.target, "export a larger corpus")
    count = -(-(rows - valid) // (_ROW_GROUP_ROWS * _FILE_ROW_GROUPS))
    train, last = (
        regroup_rows(_read_tables(shards, is_validation), _SCHEMA, _ROW_GROUP_ROWS) for is_validation in (False, True)
    )
    parts = [*(itertools.islice(train, _FILE_ROW_GROUPS) for _ in range(count)), last]
    named = ((f"shard_{number:05d}.parquet", groups) for number, groups in enumerate(parts))
    files = [write_table(staging.path(name), name, groups, _SCHEMA) for name, groups in named]
    documents = {"train": rows - valid, "valid": valid}
    return BuildResult(files, {"ledger": Ledger(rows, rows).to_json(), "documents": documents}, {})


def _read_tables(shards: Sequence[DocumentShard], is_validation: bool) -> Iterator[pa.Table]:
    first = 0
    for shard in shards:
        for documents, _ in read_documents(shard, WHOLE_SHARD, _decoder):
            numbered = ((first + row, document) for row, document in documents)
            chosen = [document for row, document in numbered if (row % _VALIDATION_STEP == 0) == is_validation]
            yield rows_to_table([msgspec.structs.asdict(document) for document in chosen], _SCHEMA)
        first += shard.rows
