"""The stage `encode`: a Document shard → the token runs of one split, ready to be merged in manifest order."""

import functools

import numpy as np
import pyarrow as pa

from pipeline_assets.corpus.formats.arrow import column_of, repeated, strings
from pipeline_assets.corpus.formats.jsonl_zst import SUFFIX, write_rows
from pipeline_assets.corpus.formats.parquet import write_table
from pipeline_assets.corpus.sampling.split import Split, split_rule
from pipeline_assets.corpus.spine.building import BuildFolder, OutputFile, Receipt
from pipeline_assets.corpus.spine.durable import DurableFile
from pipeline_assets.corpus.spine.sealing import WORK
from pipeline_assets.corpus.spine.stage import Window
from pipeline_assets.corpus.tokens.encoded_blocks import EncodedBlock, EncodeShard, ShardEncoding
from pipeline_assets.corpus.tokens.o200k_harmony import Driver, Encoder, load_encoder

ENCODED = f"{WORK}/encoded"
DOCUMENTS_SCHEMA = pa.schema(
    [
        pa.field("doc_id", pa.string(), nullable=False),
        pa.field("source_shard", pa.string(), nullable=False),
        pa.field("row", pa.int64(), nullable=False),
        pa.field("tokens", pa.int32(), nullable=False),
    ]
)


def encode_shard(
    shard: EncodeShard,
    window: Window,
    folder: BuildFolder,
    tokenizer_sha256: str,
    driver: Driver,
    split: Split,
    valid_fraction: str,
    zstd_level: int,
) -> Receipt:
    """Ids of the shard's documents of `split`, each closed by the end of text, and a table of the documents.

    Files, in this order: raw int32 ids; Parquet of DOCUMENTS_SCHEMA; rejects. Counts: see `ShardEncoding`, and
    `rejected/<reason>`.

    Raises:
        InputError: a line that is no Document.
        OracleDisagrees: see there.
    """
    encoder = kept_encoder(tokenizer_sha256, driver)
    split_of = split_rule(valid_fraction)
    encoding = ShardEncoding(shard, window, encoder)
    tables: list[pa.Table] = []
    stem = f"{ENCODED}/{driver}/{shard.name}"
    tokens_name, documents_name, rejects_name = f"{stem}.bin", f"{stem}.parquet", f"{stem}{SUFFIX}"
    with DurableFile(folder.path(tokens_name)) as output:
        for block in encoding.blocks(lambda doc_id: split_of(doc_id) == split):
            output.write(block.runs.ids.data)
            tables.append(_table(block, shard.path))
    counts = encoding.all_counts()
    tokens = OutputFile.plain(tokens_name, counts["tokens"], output)
    listed = write_table(folder.path(documents_name), documents_name, tables, DOCUMENTS_SCHEMA)
    rejects = [reject.to_json() for reject in encoding.rejects]
    rejected = write_rows(folder.path(rejects_name), rejects_name, rejects, zstd_level)
    return Receipt([tokens, listed, rejected], counts, {"driver": encoder.driver})


def load_tokenizers(tokenizer_sha256: str, driver: Driver) -> None:
    """Loads what a process keeps for its life: the encoder, its tables, and the oracle."""
    encoder = kept_encoder(tokenizer_sha256, driver)
    encoder.encode(["the first text builds the tables"])
    encoder.oracle.encode_ordinary("")


@functools.lru_cache(maxsize=1)
def kept_encoder(tokenizer_sha256: str, driver: Driver) -> Encoder:
    """The encoder, loaded once in a process."""
    return load_encoder(tokenizer_sha256, driver=driver)


def _table(block: EncodedBlock, path: str) -> pa.Table:
    columns = [
        strings(block.doc_ids),
        repeated(path, len(block.rows)),
        column_of(np.array(block.rows, np.int64)),
        column_of(block.runs.lengths),
    ]
    return pa.Table.from_arrays(columns, schema=DOCUMENTS_SCHEMA)
