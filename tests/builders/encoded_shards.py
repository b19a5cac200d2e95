"""Encoded shards of explicit token ids."""

import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from pipeline_assets.corpus.formats.checked_table import write_checked_table
from pipeline_assets.corpus.packing.encoded_corpus import EncodedShard
from pipeline_assets.corpus.tokens.encode import TABLE_SCHEMA
from pipeline_assets.spine.staging import StagingView


def write_encoded(folder: Path, documents: Sequence[Sequence[int]]) -> EncodedShard:
    """Write the ids of documents as `encode_shard` does, in a folder."""
    folder.mkdir(exist_ok=True)
    ids = [np.array(document, np.int32) for document in documents]
    lengths = np.array([len(document) for document in documents], np.int32)
    folder.joinpath("0.tokens").write_bytes(b"".join(document.tobytes() for document in ids))
    columns = [
        [f"d{number}" for number in range(len(ids))],
        ["mit"] * len(ids),
        range(len(ids)),
        np.cumsum(lengths) - lengths,
        lengths,
        [zlib.crc32(document.tobytes()) for document in ids],
    ]
    write_checked_table(StagingView(folder), "0.arrow", pa.table(columns, schema=TABLE_SCHEMA))
    return EncodedShard("a", "shards/0", folder / "0.tokens", folder / "0.arrow", len(ids))
