"""Document shards → a packed set with its index, against a bare flow that only encodes.

    python benchmarks/packing.py --shards FOLDER --mb 230 --runs 3
    python benchmarks/packing.py --plan 100000000            # the plan alone, of so many made lengths

Two workers each. The bare flow is that of build.py: zstandard, msgspec, gigatoken, numpy. corpusmill encodes as much,
plans, writes every row to its place, an index, boundaries and a table of documents, with hashes, receipts and fsync.
Starting is measured on a few documents and taken off from both. Before speeds are compared, rows are proven: the
documents that the index names are encoded by tiktoken, and are the tokens of these rows.

Memory is looked at for a quarter of the input too: it should not grow with it.
"""

import argparse
import itertools
import json
import random
import sys
import tempfile
from pathlib import Path

import msgspec
from corpus import link_shards, write_shards
from measure import Measured, machine_line, measure
from packing_flows import SEQ_LEN

from pipeline_assets.corpus.document import DocumentText
from pipeline_assets.corpus.formats.jsonl_zst import JsonlZstWriter, read_line_blocks
from pipeline_assets.corpus.formats.memmap import open_packed
from pipeline_assets.corpus.tokens.o200k_harmony import END_OF_TEXT, VOCABULARY_SHA256, load_encoder

STRATEGIES = ("sequential", "best_fit")
_SHARD_BYTES = 32 << 20
_PROVEN_ROWS = 200
FEW_LINES = 40


def write_sample(sources: list[Path], target: Path, mb: float, max_lines: int = 10**9) -> None:
    """The first lines of shards, as shards of about 32 MiB, and how many each has."""
    target.mkdir()
    rows: dict[str, int] = {}
    blocks = (block for source in sources for block in read_line_blocks(source, _SHARD_BYTES))
    left = int(mb * 1e6)
    for number, block in enumerate(blocks):
        lines = block[: block.rfind(b"\n", 0, left) + 1].splitlines(keepends=True)[:max_lines]
        with JsonlZstWriter(target / f"{number:05d}.jsonl.zst", 3) as writer:
            writer.write_lines(b"".join(lines), len(lines))
        rows[f"{number:05d}.jsonl.zst"] = len(lines)
        left -= len(block)
        if left <= 0 or len(lines) == max_lines:
            break
    (target / "rows.json").write_text(json.dumps(rows))


def prove(folder: Path) -> int:
    """How many segments of some rows are the tokens that tiktoken gives for their documents.

    Raises:
        SystemExit: one is not.
    """
    packed, oracle = open_packed(folder / "built" / "packed"), load_encoder(VOCABULARY_SHA256).oracle
    rows = random.Random(1).sample(range(len(packed)), min(_PROVEN_ROWS, len(packed)))
    segments = {row: packed.segments(row) for row in sorted(rows)}
    wanted = {one.doc_id for of_row in segments.values() for one in of_row}
    decoder, ids = msgspec.json.Decoder(DocumentText), dict[str, list[list[int]]]()
    for path in sorted(folder.glob("*.jsonl.zst")):
        for block in read_line_blocks(path):
            for one in decoder.decode_lines(block):
                if one.doc_id in wanted:  # in the demo corpus a few documents have the same
                    ids.setdefault(one.doc_id, []).append([*oracle.encode_ordinary(one.text), END_OF_TEXT])
    for row, of_row in segments.items():
        stops = itertools.accumulate(one.length for one in of_row)
        for one, stop in zip(of_row, stops, strict=True):
            tokens = packed[row][stop - one.length : stop].tolist()
            if tokens not in [of_one[one.start : one.start + one.length] for of_one in ids[one.doc_id]]:
                sys.exit(f"row {row} doesn't hold the tokens of its documents")
    return sum(map(len, segments.values()))


def table(measured: dict[str, Measured], starts: dict[str, Measured], mb: float) -> str:
    lines = [
        "| flow | CPU s | to the ceiling | start, CPU s | beyond it, to it | MB per CPU s | wall s | peak MiB |",
        "|---" * 8 + "|",
    ]
    bare = measured["bare"].cpu_s
    beyond = {name: result.cpu_s - starts[name.split(",")[0]].cpu_s for name, result in measured.items()}
    for name, result in measured.items():
        lines.append(
            f"| {name} | {result.cpu_s:.2f} | {result.cpu_s / bare:.2f} | {result.cpu_s - beyond[name]:.2f} "
            f"| {beyond[name] / beyond['bare']:.2f} | {mb / result.cpu_s:.0f} | {result.wall_s:.2f} "
            f"| {result.peak_mb:.0f} |"
        )
    return "\n".join(lines)


def pack(options: argparse.Namespace) -> None:
    flows, packing = (Path(__file__).with_name(name) for name in ("flows.py", "packing_flows.py"))
    workers = str(options.workers)
    with tempfile.TemporaryDirectory() as temporary:
        folder, quarter, few, source = (Path(temporary, name) for name in ("all", "quarter", "few", "source"))
        source.mkdir()
        paths, _, _ = link_shards(options.shards, source) if options.shards else write_shards(source, options.mb)
        write_sample(paths, folder, options.mb)
        write_sample(paths, quarter, options.mb / 4)
        write_sample(paths, few, 10, FEW_LINES)
        starts = {"bare": measure(flows, ["bare", str(few), workers], options.runs)}
        measured = {"bare": measure(flows, ["bare", str(folder), workers], options.runs)}
        tokens = int(measured["bare"].printed.split()[0])
        proven, peaks = 0, {}
        for strategy in STRATEGIES:
            starts[strategy] = measure(packing, [strategy, str(few), workers, "4"], options.runs)
            rows = str(tokens // SEQ_LEN)
            measured[strategy] = measure(packing, [strategy, str(folder), workers, rows], options.runs)
            proven += prove(folder)
            a_quarter = str(tokens // SEQ_LEN // 5)  # of a quarter of the text, whatever its documents are like
            peaks[strategy] = measure(packing, [strategy, str(quarter), workers, a_quarter], 1).peak_mb
    print(f"{machine_line()}; {options.workers} workers, median of {options.runs}; {tokens:,} tokens")
    print(f"{proven:,} segments proven by tiktoken; peak MiB of a quarter of the text: {peaks}\n")
    print(table(measured, starts, options.mb))
    ratios = {name: round(result.cpu_s / measured["bare"].cpu_s, 3) for name, result in measured.items()}
    print(json.dumps({"benchmark": "packing", "mb": options.mb, "cpu_to_ceiling": ratios}))


def plan(documents: int) -> None:
    script = Path(__file__).with_name("plan_flow.py")
    print(f"{machine_line()}\n\n| plan of {documents:,} documents | CPU s | peak MiB |\n|---|---|---|")
    for strategy in STRATEGIES:
        with tempfile.TemporaryDirectory() as folder:
            result = measure(script, [strategy, folder, str(documents)], 1)
        cpu_s, peak_mib = json.loads(result.printed)
        print(f"| {strategy} | {cpu_s:.0f} | {peak_mib:.0f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description="Document shards → a packed set, against a bare flow")
    parser.add_argument("--mb", type=int, default=230, help="megabytes of lines")
    parser.add_argument("--shards", type=Path, help="a folder of Document shards instead of the demo corpus")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--plan", type=int, help="the plan alone, of so many documents")
    options = parser.parse_args()
    if options.plan:
        plan(options.plan)
    else:
        pack(options)


if __name__ == "__main__":
    main()
