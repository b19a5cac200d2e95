"""Benchmark of normalizing raw Nemotron rows: whole sealed builds.

    CORPUSMILL_TEST_SAMPLES=FOLDER python benchmarks/nemotron_split.py --rows 100000 --runs 3

A build reads JSON lines or Parquet and writes Parquet with ids, tools and rejects. Speed is measured in one process.
The ceiling decodes, encodes the words of each row and writes five columns; it renders nothing, checks nothing and
ignores metadata. It uses msgspec or orjson, whichever is faster on the first lines. The peer is `datasets.map` over a
plain openai-harmony loop. It processes a few hundred rows that are already messages, its start is excluded, and CPU
seconds per row are compared. Its texts and counts are proven equal to ours.

Memory is the sum over all processes, with and without workers, and for a split in which every twentieth row has 2 MB.
Input: published rows below CORPUSMILL_TEST_SAMPLES, each repeated in other words, see nemotron_input.py.
"""

import argparse
import hashlib
import itertools
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from measure import Measured, machine_line, measure
from nemotron_flows import DECODERS
from nemotron_input import FORMATS, SAMPLES, Split, real_splits, write_split

from pipeline_assets.corpus.harmony.parse import parse_harmony

_FLOWS = Path(__file__).with_name("nemotron_flows.py")
_LARGE_SPLIT, _LARGE_ROWS, _LARGE_EVERY = "MCQ", 4000, 20
_SAMPLE_ROWS = 600
_DECODED_LINES = 2000
_LIMIT_MIB, _LIMIT_MIB_PER_WORKER = 1024, 300
_WORKERS = (0, 2)


def write_splits(splits: list[Split], folder: Path, rows: int) -> None:
    """Write `rows` rows over all splits, unless an earlier run wrote them."""
    folder.mkdir(exist_ok=True)
    if not all(split.path(folder, kind).exists() for split in splits for kind in FORMATS):
        for split in splits:
            write_split(split, folder, rows // len(splits))


def faster_decoder(path: Path) -> str:
    """Return the decoder that decodes the first lines of a file in less time."""
    with open(path, "rb") as file:
        lines = [line for line, _ in zip(file, range(_DECODED_LINES), strict=False)]
    spent = {}
    for name, decode in [*DECODERS.items(), *DECODERS.items()]:  # the first round warms up
        started = time.process_time()
        for line in lines:
            decode(line)
        spent[name] = time.process_time() - started
    return min(spent, key=spent.__getitem__)


def run(flow: str, kind: str, folder: Path, argument: str, splits: list[Split]) -> Measured:
    return measure(_FLOWS, [flow, kind, str(folder), argument, *(split.name for split in splits)], 1)


def library_s_per_row(kind: str, folder: Path, splits: list[Split]) -> float:
    """Return the peer's CPU seconds per row; exit if its texts or counts are not ours."""
    rows_per_split = -(-_SAMPLE_ROWS // len(splits))
    sample: list[dict[str, object]] = []
    for split in splits:
        paths = sorted((folder / "built" / split.name / "data").iterdir())
        for path in paths:
            table = pq.ParquetFile(path).read(["text", "stats_tokens"])
            step = max(table.num_rows * len(paths) // rows_per_split, 1)
            sample += table.take(list(range(0, table.num_rows, step))).to_pylist()
    rows = [{"messages": [message._asdict() for message in parse_harmony(row["text"]).conversation]} for row in sample]
    if kind == "jsonl":
        (folder / "sample.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        pq.write_table(pa.Table.from_pylist(rows), folder / "sample.parquet")
    measured, cpu_s = json.loads(run("library", kind, folder, "", []).printed)
    rendered = pq.read_table(folder / "library.parquet", columns=["text", "tokens"]).to_pylist()
    for ours, theirs in zip(sample, rendered, strict=True):
        if (ours["text"], ours["stats_tokens"]) != (theirs["text"], theirs["tokens"]):
            sys.exit(f"the library renders differently: {theirs['text'][:200]}")
    return cpu_s / measured


def files_sha256(paths: list[Path]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        with open(path, "rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


def speeds(kind: str, folder: Path, decoder: str, splits: list[Split], runs: int) -> dict[str, float]:
    """Return CPU milliseconds per row by flow, and the ratio `to_ceiling`.

    All are medians over rounds; the ratio is taken within a round.
    """
    rounds = []
    for number in range(runs):
        order = [("bare", decoder), ("corpusmill", "0")][:: 1 - 2 * (number % 2)]
        results = {flow: run(flow, kind, folder, argument, splits) for flow, argument in order}
        rounds.append(results)
        print(
            f"{kind}: { ({flow: round(result.cpu_s, 1) for flow, result in results.items()}) } CPU s", file=sys.stderr
        )
    rows = int(rounds[0]["corpusmill"].printed.split()[0])
    if any(result.printed.split()[0] != str(rows) for results in rounds for result in results.values()):
        sys.exit(f"{kind}: rows are missing from an output")
    peer = library_s_per_row(kind, folder, splits)
    return {
        "rows": rows,
        "bare": 1e3 * statistics.median(results["bare"].cpu_s for results in rounds) / rows,
        "corpusmill": 1e3 * statistics.median(results["corpusmill"].cpu_s for results in rounds) / rows,
        "datasets.map, openai-harmony": 1e3 * peer,
        "to_ceiling": statistics.median(results["corpusmill"].cpu_s / results["bare"].cpu_s for results in rounds),
        "peak_mib": max(results["corpusmill"].peak_mb for results in rounds),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Files of raw Nemotron rows → sealed normalized rows")
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--input", type=Path, help="folder of the rows; they are written if missing, and kept")
    options = parser.parse_args()
    if SAMPLES not in os.environ:
        sys.exit(f"set {SAMPLES} to a folder of samples that has nemotron/rows/DATASET/SPLIT.jsonl")
    splits = real_splits()
    large = [split for split in splits if split.name == _LARGE_SPLIT]
    with tempfile.TemporaryDirectory() as temporary:
        folder, large_folder = options.input or Path(temporary, "rows"), Path(temporary, "large")
        large_folder.mkdir()
        write_splits(splits, folder, options.rows)
        write_split(large[0], large_folder, _LARGE_ROWS, _LARGE_EVERY)
        mb = [sum(split.path(folder, kind).stat().st_size for split in splits) / 1e6 for kind in FORMATS]
        content = files_sha256([split.path(folder, "jsonl") for split in splits])
        decoder = faster_decoder(splits[0].path(folder, "jsonl"))
        figures = {kind: speeds(kind, folder, decoder, splits, options.runs) for kind in FORMATS}
        peaks = {(kind, "all", 0): figures[kind]["peak_mib"] for kind in FORMATS}
        for kind, workers in itertools.product(FORMATS, _WORKERS):
            if workers:
                peaks[kind, "all", workers] = run("corpusmill", kind, folder, str(workers), splits).peak_mb
            peaks[kind, "large", workers] = run("corpusmill", kind, large_folder, str(workers), large).peak_mb
    rows = int(figures["jsonl"]["rows"])
    print(
        f"{machine_line()}; one process, {options.runs} rounds, {rows:,} rows, "
        f"{mb[0]:,.0f} MB of lines or {mb[1]:,.0f} MB of Parquet, {content[:12]}; the ceiling decodes with {decoder}\n"
    )
    print("| input, flow | CPU ms a row | CPU to the ceiling | to corpusmill |\n|---|---|---|---|")
    for kind, speed in figures.items():
        for flow in ("bare", "corpusmill", "datasets.map, openai-harmony"):
            to_ceiling = speed["to_ceiling"] if flow == "corpusmill" else speed[flow] / speed["bare"]
            ours = speed[flow] / speed["corpusmill"]
            print(f"| {kind}, {flow} | {speed[flow]:.3f} | {to_ceiling:.2f} | {ours:.2f} |")
    print(
        f"\n| peak MiB of all processes | {' | '.join(f'{workers} workers' for workers in _WORKERS)} |\n"
        f"|---|{'---|' * len(_WORKERS)}"
    )
    names = {"all": f"{rows:,} rows", "large": f"{_LARGE_ROWS // _LARGE_EVERY} rows of 2 MB among {_LARGE_ROWS:,}"}
    for kind in FORMATS:
        for name, description in names.items():
            cells = " | ".join(f"{peaks[kind, name, workers]:,.0f}" for workers in _WORKERS)
            print(f"| {kind}, {description} | {cells} |")
    limits = " | ".join(f"{_LIMIT_MIB + workers * _LIMIT_MIB_PER_WORKER:,}" for workers in _WORKERS)
    print(f"| limit | {limits} |\n")
    result = {
        "benchmark": "nemotron_split",
        "rows": rows,
        "input": content,
        "cpu_to_ceiling": {kind: round(speed["to_ceiling"], 2) for kind, speed in figures.items()},
        "faster_than_library": {
            kind: round(speed["datasets.map, openai-harmony"] / speed["corpusmill"], 1)
            for kind, speed in figures.items()
        },
        "peak_mib": {f"{kind} {name} {workers}": round(peak) for (kind, name, workers), peak in peaks.items()},
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
