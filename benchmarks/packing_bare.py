"""Bare flow that packing.py measures: Document shards in, a packed set out.

    python packing_bare.py FOLDER WORKERS

It writes the files of a packed set in FOLDER/bare with zstandard, msgspec, gigatoken, NumPy and pyarrow: documents in
random order, one after the other, cut where a row ends. All ids are in memory, and nothing is hashed, planned in
advance, synced or compared with tiktoken. Prints the number of tokens.
"""

import itertools
import multiprocessing
import shutil
import sys
from pathlib import Path

from flows import bare_shard, encode_bare, gigatoken_once, shards

SEQ_LEN = 2048


def pack(folder: Path, workers: int) -> None:
    import msgspec
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq
    import zstandard

    from pipeline_assets.corpus.formats.arrow_columns import string_column, to_arrow  # `pa.array` imports pandas

    paths, target = shards(folder), folder / "bare"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    gigatoken_once()
    parts = [path.with_suffix(".bare") for path in paths]
    if workers == 0:
        encoded = []
        for path, part in zip(paths, parts, strict=True):
            with open(part, "wb", buffering=0) as output:
                encoded.append(encode_bare(path, output))
    else:
        with multiprocessing.get_context("fork").Pool(workers) as pool:
            encoded = pool.map(bare_shard, paths, chunksize=1)
    runs = [np.fromfile(part, np.int32) for part in parts]
    doc_ids = [doc_id for shard in encoded for doc_id in shard.doc_ids]
    lengths = np.concatenate([shard.lengths for shard in encoded])
    texts = [
        ids for run, shard in zip(runs, encoded, strict=True) for ids in np.split(run, shard.lengths.cumsum()[:-1])
    ]
    order = np.random.default_rng(1).permutation(len(texts))
    rows = int(lengths.sum()) // SEQ_LEN
    tokens = np.concatenate([texts[document] for document in order.tolist()])[: rows * SEQ_LEN]
    tokens.tofile(target / "input_ids.mmap")
    for part in parts:
        part.unlink()

    # A segment begins where a document or a row does; the last document may be cut by the last row.
    ends = np.minimum(lengths[order].cumsum(), len(tokens))
    begins = ends - lengths[order]
    begins[1:] = ends[:-1]
    starts = np.union1d(begins[begins < len(tokens)], np.arange(rows) * SEQ_LEN)
    stops = np.append(starts[1:], len(tokens))
    ranks = np.searchsorted(begins, starts, side="right") - 1
    row_starts = np.searchsorted(starts, np.arange(rows + 1) * SEQ_LEN)
    np.save(target / "boundaries.npy", np.stack([starts % SEQ_LEN, stops - starts], axis=1).astype(np.int32))
    np.save(target / "boundary_offsets.npy", row_starts)
    segments = [
        {"doc_id": doc_ids[document], "source": "text", "start": start, "length": length}
        for document, start, length in zip(
            order[ranks].tolist(), (starts - begins[ranks]).tolist(), (stops - starts).tolist(), strict=True
        )
    ]
    lines = [segments[start:stop] for start, stop in itertools.pairwise(row_starts.tolist())]
    compressed = zstandard.ZstdCompressor(level=3).compress(msgspec.json.Encoder().encode_lines(lines))
    (target / "index.jsonl.zst").write_bytes(compressed)

    packed, first_rows = np.empty(len(order), np.int64), np.empty(len(order), np.int64)
    packed[order], first_rows[order] = ends - begins, begins // SEQ_LEN
    columns = {
        "doc_id": string_column(doc_ids),
        "source": string_column(["text"] * len(doc_ids)),
        "shard": string_column([path.name for path, shard in zip(paths, encoded, strict=True) for _ in shard.doc_ids]),
        "row": to_arrow(np.concatenate([np.arange(len(shard.doc_ids)) for shard in encoded])),
        "tokens": to_arrow(lengths),
        "packed_tokens": to_arrow(packed),
        "first_row": to_arrow(first_rows),
        "is_whole": to_arrow((packed == lengths).astype(np.int8)),
    }
    pq.write_table(pa.table(columns), target / "documents.parquet", compression="zstd")
    print(int(lengths.sum()), rows)


if __name__ == "__main__":
    pack(Path(sys.argv[1]), int(sys.argv[2]))
