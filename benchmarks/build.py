"""Document shards → token files: CPU seconds of corpusmill's build against a bare flow and against peers.

    python benchmarks/build.py --mb 400 --runs 3
    python benchmarks/build.py --shards FOLDER          # .jsonl.zst files of rows with doc_id and text

Fixed input (the demo corpus, repeated under new ids, which flatters the tokenizer's cache; or shards of your own), two
workers each (`naive` is one process), ids proven equal first. The bare flow is the ceiling: zstandard, msgspec,
gigatoken and numpy, with no hash, no receipt, no fsync, no table of documents.
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
    parser.add_argument("--shards", type=Path, help="a folder of .jsonl.zst files instead")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--peers", nargs="*", default=PEERS, choices=PEERS)
    parser.add_argument("--peer-runs", type=int, default=1, help="of each peer; they are slow")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if options.shards:
            paths, lines_bytes, digest = link_shards(options.shards, folder)
        else:
            paths, lines_bytes, digest = write_shards(folder, options.mb)
        rows = {path.name: sum(block.count(b"\n") for block in read_line_blocks(path)) for path in paths}
        (folder / "rows.json").write_text(json.dumps(rows))  # what a manifest says of its shards
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
