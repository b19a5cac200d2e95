"""Benchmark of Document shards → token files against a bare flow and peers.

    python benchmarks/build.py --mb 400 --runs 3
    python benchmarks/build.py --shards FOLDER          # .jsonl.zst files of rows with doc_id and text

The input is installed programs and documentation, or shards of your own. Each flow has two workers (`naive` is one
process), and all ids are proven equal first. The bare flow is the ceiling: zstandard, msgspec, gigatoken and numpy,
without hashes, receipts, fsync or a table of documents.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

from corpus import link_shards, write_shards
from measure import machine_line, measure, ratios, table

from pipeline_assets.corpus.formats.jsonl_zst import read_line_blocks

FLOWS = ("bare", "corpusmill")
PEERS = ("tiktoken", "naive", "datatrove", "preprocess_data")


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
        rows = {path.name: sum(block.count(b"\n") for block in read_line_blocks(path)) for path in paths}
        (folder / "rows.json").write_text(json.dumps(rows))  # the row counts that a manifest records
        print(f"{machine_line()}; {options.workers} workers, median of {options.runs}")
        print(f"{lines_bytes / 1e6:.0f} MB of lines in {len(paths)} shards, sha256 {digest}")
        flows, peers = (Path(__file__).with_name(name) for name in ("flows.py", "peers.py"))
        arguments = [str(folder), str(options.workers)]
        measured = {name: measure(flows, [name, *arguments], options.runs) for name in FLOWS}
        measure(peers, ["tokenizer", *arguments], 1)
        measured |= {name: measure(peers, [name, *arguments], options.peer_runs) for name in options.peers}
    printed = {name: result.printed for name, result in measured.items()}
    if len(set(printed.values())) != 1:
        sys.exit(f"the flows' ids differ: {printed}")
    print(f"ids equal: {printed['bare']}\n\n{table(measured, 'bare', lines_bytes / 1e6)}")
    result = {"benchmark": "build", "mb": round(lines_bytes / 1e6), "workers": options.workers}
    print(json.dumps(result | {"cpu_to_ceiling": ratios(measured, "bare")}))


if __name__ == "__main__":
    main()
