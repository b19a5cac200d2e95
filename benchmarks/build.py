"""Benchmark of Document shards → token files against a bare flow and peers.

    python benchmarks/build.py --mb 400 --runs 3
    python benchmarks/build.py --shards FOLDER          # .jsonl.zst files of rows with doc_id and text

The input is installed programs and documentation, or shards of your own. Each flow has two workers (`naive` is one
process); `--workers 0` builds in one process. The bare flow is the ceiling: zstandard, msgspec, gigatoken, numpy and
pyarrow write the same token file, index and table of documents, without hashes, receipts, fsync, rejects or a
comparison with tiktoken. The files are proven equal first. The start of both flows is measured on one document.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

import pyarrow.parquet as pq
from corpus import link_shards, write_shards
from measure import machine_line, measure, measure_in_turn, ratios, table

from pipeline_assets.corpus.formats.jsonl_zst import JsonlZstWriter, read_line_blocks
from pipeline_assets.spine.files import file_sha256

FLOWS = ("bare", "corpusmill")
PEERS = ("tiktoken", "naive", "datatrove", "preprocess_data")


def prove(folder: Path, tokens: str) -> str:
    """Return the number of tokens and their sha256; exit if the flows' files differ."""
    bare, built = folder / "bare", folder / "corpusmill" / "split"
    for name in ("tokens.bin", "tokens.idx"):
        if file_sha256(bare / name) != file_sha256(built / name):
            sys.exit(f"{name} differs")
    tables = [pq.read_table(folder / "documents.parquet").to_pydict() for folder in (bare, built)]
    if tables[0] != tables[1]:
        sys.exit("documents.parquet differs")
    return f"{tokens} {file_sha256(bare / 'tokens.bin')}"


def count_rows(folder: Path, paths: list[Path]) -> None:
    """Write the row counts that a manifest records."""
    rows = {path.name: sum(block.count(b"\n") for block in read_line_blocks(path)) for path in paths}
    (folder / "rows.json").write_text(json.dumps(rows))


def write_start(folder: Path, source: Path) -> Path:
    """Write one document of `source`, on which the start of a flow is measured."""
    folder.mkdir()
    with JsonlZstWriter(folder / source.name, 3) as writer:
        writer.write_lines(next(read_line_blocks(source)).split(b"\n", 1)[0] + b"\n", 1)
    count_rows(folder, [folder / source.name])
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description="Document shards → token files, against a bare flow")
    parser.add_argument("--mb", type=int, default=130, help="megabytes of lines")
    parser.add_argument("--shards", type=Path, help="folder of .jsonl.zst files to read instead")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--peers", nargs="*", default=PEERS, choices=PEERS)
    parser.add_argument("--peer-runs", type=int, default=1, help="runs of each peer; peers are slow")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if options.shards:
            paths, lines_bytes, digest = link_shards(options.shards, folder)
        else:
            paths, lines_bytes, digest = write_shards(folder, options.mb)
        count_rows(folder, paths)
        print(f"{machine_line()}; {options.workers} workers, median of {options.runs}")
        print(f"{lines_bytes / 1e6:.0f} MB of lines in {len(paths)} shards, sha256 {digest}")
        flows, peers = (Path(__file__).with_name(name) for name in ("flows.py", "peers.py"))
        arguments = [str(folder), str(options.workers)]
        start = write_start(folder / "start", paths[0])
        starts = {name: measure(flows, [name, str(start), str(options.workers)], options.runs).cpu_s for name in FLOWS}
        measured = measure_in_turn(flows, FLOWS, arguments, options.runs)
        proven = prove(folder, measured["bare"].printed)
        measure(peers, ["tokenizer", *arguments], 1)
        peer_results = {name: measure(peers, [name, *arguments], options.peer_runs) for name in options.peers}
    printed = {name: result.printed for name, result in peer_results.items()}
    if set(printed.values()) - {proven}:
        sys.exit(f"the flows' ids differ: {printed}, expected {proven}")
    measured |= peer_results
    print(f"files equal: {proven}; start: " + ", ".join(f"{name} {cpu_s:.2f} CPU s" for name, cpu_s in starts.items()))
    print(f"\n{table(measured, 'bare', lines_bytes / 1e6)}")
    result = {"benchmark": "build", "mb": round(lines_bytes / 1e6), "workers": options.workers}
    print(json.dumps(result | {"cpu_to_ceiling": ratios(measured, "bare")}))


if __name__ == "__main__":
    main()
