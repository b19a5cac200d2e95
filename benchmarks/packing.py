"""Benchmark of building a packed set against a bare flow with the same files.

    python benchmarks/packing.py --shards FOLDER --mb 230 --runs 3
    python benchmarks/packing.py --plan 100000000            # only the plan, for this many synthetic lengths

Each flow has two workers. The bare flow, `packing_bare.py`, holds all ids in memory. corpusmill encodes, plans from the
lengths, and writes every row to its position, with hashes, receipts, fsync and a comparison with tiktoken. The start is
measured on a few documents, and ratios are given with and without it. Each round begins with another flow, and ratios
are medians over rounds, because the speed of these machines varies. Before speeds are compared, tiktoken encodes the
documents that the index names, and the rows must contain those tokens.

Memory is also measured on a quarter of the input, since it should not grow with the input.
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

from pipeline_assets.corpus.formats.jsonl_zst import JsonlZstWriter, read_line_blocks
from pipeline_assets.corpus.formats.memmap import open_packed
from pipeline_assets.corpus.partial_documents import DocumentText
from pipeline_assets.corpus.tokens.o200k_harmony import VOCABULARY_SHA256, load_encoder
from pipeline_assets.corpus.tokens.o200k_vocabulary import END_OF_TEXT

STRATEGIES = ("sequential", "best_fit")
_SHARD_BYTES = 32 << 20
_PROVEN_ROWS = 200
FEW_LINES = 40


def write_sample(sources: list[Path], target: Path, mb: float, max_lines: int = 10**9) -> None:
    """Write the first lines as shards of about 32 MiB, and count them in `rows.json`."""
    target.mkdir()
    rows: dict[str, int] = {}
    blocks = (block for source in sources for block in read_line_blocks(source, _SHARD_BYTES))
    remaining = int(mb * 1e6)
    for number, block in enumerate(blocks):
        lines = block[: block.rfind(b"\n", 0, remaining) + 1].splitlines(keepends=True)[:max_lines]
        with JsonlZstWriter(target / f"{number:05d}.jsonl.zst", 3) as writer:
            writer.write_lines(b"".join(lines), len(lines))
        rows[f"{number:05d}.jsonl.zst"] = len(lines)
        remaining -= len(block)
        if remaining <= 0 or len(lines) == max_lines:
            break
    (target / "rows.json").write_text(json.dumps(rows))


def prove(folder: Path) -> int:
    """Count segments of some rows; exit if one has other ids than tiktoken's."""
    packed, oracle = open_packed(folder / "built" / "packed"), load_encoder(VOCABULARY_SHA256).oracle
    rows = random.Random(1).sample(range(len(packed)), min(_PROVEN_ROWS, len(packed)))
    segments = {row: packed.segments(row) for row in sorted(rows)}
    doc_ids = {segment.doc_id for row_segments in segments.values() for segment in row_segments}
    decoder, ids = msgspec.json.Decoder(DocumentText), dict[str, list[list[int]]]()
    for path in sorted(folder.glob("*.jsonl.zst")):
        for block in read_line_blocks(path):
            for document in decoder.decode_lines(block):
                if document.doc_id in doc_ids:  # the demo corpus repeats a few ids
                    ids.setdefault(document.doc_id, []).append([*oracle.encode_ordinary(document.text), END_OF_TEXT])
    for row, row_segments in segments.items():
        stops = itertools.accumulate(segment.length for segment in row_segments)
        for segment, stop in zip(row_segments, stops, strict=True):
            tokens = packed[row][stop - segment.length : stop].tolist()
            own = slice(segment.start, segment.start + segment.length)
            if tokens not in [document_ids[own] for document_ids in ids[segment.doc_id]]:
                sys.exit(f"row {row}: tokens differ from those of its documents")
    return sum(map(len, segments.values()))


def to_bare(rounds: list[dict[str, Measured]], name: str, starts: dict[str, float] | None = None) -> float:
    """Return a flow's CPU beyond its start relative to the bare flow's, as a median."""
    start_s = starts or dict.fromkeys(rounds[0], 0.0)
    return statistics.median(
        (flows[name].cpu_s - start_s[name]) / (flows["bare"].cpu_s - start_s["bare"]) for flows in rounds
    )


def table(rounds: list[dict[str, Measured]], starts: dict[str, Measured], mb: float) -> str:
    lines = [
        "| flow | CPU s | to the ceiling | start, CPU s | beyond it, to it | MB per CPU s | wall s | peak MiB |",
        "|---" * 8 + "|",
    ]
    start_s = {name: start.cpu_s for name, start in starts.items()}
    for name in rounds[0]:
        cpu_s, wall_s = (
            statistics.median(getattr(flows[name], figure) for flows in rounds) for figure in ("cpu_s", "wall_s")
        )
        lines.append(
            f"| {name} | {cpu_s:.2f} | {to_bare(rounds, name):.2f} | {start_s[name]:.2f} "
            f"| {to_bare(rounds, name, start_s):.2f} | {mb / cpu_s:.0f} | {wall_s:.2f} "
            f"| {max(flows[name].peak_mb for flows in rounds):.0f} |"
        )
    return "\n".join(lines)


def pack(options: argparse.Namespace) -> None:
    bare, packing = (Path(__file__).with_name(name) for name in ("packing_bare.py", "packing_flows.py"))
    workers = str(options.workers)
    with tempfile.TemporaryDirectory() as temporary:
        folder, quarter, few, source = (Path(temporary, name) for name in ("all", "quarter", "few", "source"))
        source.mkdir()
        paths, _, _ = link_shards(options.shards, source) if options.shards else write_shards(source, options.mb)
        write_sample(paths, folder, options.mb)
        write_sample(paths, quarter, options.mb / 4)
        write_sample(paths, few, 10, FEW_LINES)
        tokens, rows = map(int, measure(bare, [str(folder), workers], 1).printed.split())

        def run(name: str, documents: Path, rows: int, runs: int) -> Measured:
            arguments = [str(documents), workers]
            return (
                measure(bare, arguments, runs)
                if name == "bare"
                else measure(packing, [name, *arguments, str(rows)], runs)
            )

        names = ("bare", *STRATEGIES)
        starts = {name: run(name, few, 4, options.runs) for name in names}
        rounds = []
        for number in range(options.runs):  # the flow that follows the bare one is slowed down by it
            order = names[number % len(names) :] + names[: number % len(names)]
            results = {name: run(name, folder, rows, 1) for name in order}
            rounds.append({name: results[name] for name in names})
        proven, peaks = prove(folder), {}
        for strategy in STRATEGIES:
            peaks[strategy] = run(strategy, quarter, rows // 5, 1).peak_mb  # any quarter of the text fills these rows
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
    parser.add_argument("--shards", type=Path, help="folder of Document shards to read instead")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--plan", type=int, help="run only the plan, of so many documents")
    options = parser.parse_args()
    if options.plan:
        plan(options.plan)
    else:
        pack(options)


if __name__ == "__main__":
    main()
