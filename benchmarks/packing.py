"""Document shards → a packed set with its index, against a bare flow that only encodes.

    python benchmarks/packing.py --shards FOLDER --mb 230 --runs 3
    python benchmarks/packing.py --plan 100000000            # the plan alone, of so many made lengths

Two workers each. The bare flow is that of build.py: zstandard, msgspec, gigatoken, numpy. corpusmill encodes as much,
plans, writes every row to its place, an index, boundaries and a table of documents, with hashes, receipts and fsync.
Starting is measured on a few documents and taken off from both. Flows run in rounds, each beginning with another one,
since these machines are not equally fast all the time: a ratio is the median over rounds. Before speeds are compared,
rows are proven: the documents that the index names are encoded by tiktoken, and are the tokens of these rows.

Memory is looked at for a quarter of the input too: it should not grow with it.
"""

import argparse
import itertools
import json
import random
import statistics
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


def to_bare(rounds: list[dict[str, Measured]], name: str, starts: dict[str, float] | None = None) -> float:
    """CPU of a flow to that of the bare one beside it, median over rounds.

    Args:
        starts: CPU seconds that are taken off first.
    """
    off = starts or dict.fromkeys(rounds[0], 0.0)
    return statistics.median((one[name].cpu_s - off[name]) / (one["bare"].cpu_s - off["bare"]) for one in rounds)


def table(rounds: list[dict[str, Measured]], starts: dict[str, Measured], mb: float) -> str:
    lines = [
        "| flow | CPU s | to the ceiling | start, CPU s | beyond it, to it | MB per CPU s | wall s | peak MiB |",
        "|---" * 8 + "|",
    ]
    start_s = {name: start.cpu_s for name, start in starts.items()}
    for name in rounds[0]:
        cpu_s, wall_s = (statistics.median(getattr(one[name], what) for one in rounds) for what in ("cpu_s", "wall_s"))
        lines.append(
            f"| {name} | {cpu_s:.2f} | {to_bare(rounds, name):.2f} | {start_s[name]:.2f} "
            f"| {to_bare(rounds, name, start_s):.2f} | {mb / cpu_s:.0f} | {wall_s:.2f} "
            f"| {max(one[name].peak_mb for one in rounds):.0f} |"
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
        flow_of = {"bare": (flows, "bare"), **{name: (packing, name) for name in STRATEGIES}}
        tokens = int(measure(flows, ["bare", str(folder), workers], 1).printed.split()[0])
        more = {"bare": [], **{name: [str(tokens // SEQ_LEN)] for name in STRATEGIES}}
        starts = {
            name: measure(script, [flow, str(few), workers, *(["4"] if more[name] else [])], options.runs)
            for name, (script, flow) in flow_of.items()
        }
        rounds = []
        for number in range(options.runs):  # whatever runs first after the bare flow pays for what that left
            order = [*flow_of][number % len(flow_of) :] + [*flow_of][: number % len(flow_of)]
            found = {
                name: measure(flow_of[name][0], [flow_of[name][1], str(folder), workers, *more[name]], 1)
                for name in order
            }
            rounds.append({name: found[name] for name in flow_of})
        proven, peaks = prove(folder), {}
        for strategy in STRATEGIES:
            a_quarter = str(tokens // SEQ_LEN // 5)  # of a quarter of the text, whatever its documents are like
            peaks[strategy] = measure(packing, [strategy, str(quarter), workers, a_quarter], 1).peak_mb
    print(f"{machine_line()}; {options.workers} workers, {options.runs} rounds; {tokens:,} tokens")
    print(f"{proven:,} segments proven by tiktoken; peak MiB of a quarter of the text: {peaks}\n")
    print(table(rounds, starts, options.mb))
    ratios = {name: round(to_bare(rounds, name), 3) for name in rounds[0]}
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
    parser.add_argument("--mb", type=int, default=130, help="megabytes of lines")
    parser.add_argument("--shards", type=Path, help="a folder of Document shards instead")
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
