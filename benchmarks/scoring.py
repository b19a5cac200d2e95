"""Benchmark of scoring completions on a CPU against plain transformers.

    python benchmarks/scoring.py --rows 1000 --shrink 32 --width 64 --layers 4 --workers 2

The model is a Llama of seeded weights with the vocabulary of o200k Harmony (201,088 tokens). Rows have the lengths of
real Nemotron rows, divided by `--shrink`: at full length the plain loop's logits do not fit into memory. Before speeds
are compared, all scores are proven to equal the plain loop's, within 1e-4.

Flows take turns, and a ratio is the median of the ratios within a round. Memory is the sum over all processes.
"""

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

from measure import Measured, machine_line, measure
from scoring_flows import save_model, write_rows

_FLOWS = Path(__file__).with_name("scoring_flows.py")
_COMPARED = ("plain", "corpusmill")
_FIGURES = ("wall_s", "cpu_s", "peak_mb")


def check(measured: dict[str, Measured]) -> int:
    """Return the number of rows; exit if the scores of the two flows differ."""
    plain, ours = (json.loads(measured[flow].printed) for flow in _COMPARED)
    if any(abs(score - expected) > 1e-4 * abs(expected) for score, expected in zip(ours, plain, strict=True)):
        sys.exit("corpusmill's scores differ from those of the plain loop")
    return len(plain)


def main() -> None:
    parser = argparse.ArgumentParser(description="Rows of a pool → the NLL of their completions")
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--shrink", type=int, default=32, help="how many times shorter than real rows")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--workers", type=int, default=2, help="workers of corpusmill, threads of the plain loop")
    parser.add_argument("--runs", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_rows(folder / "pool.parquet", options.rows, options.shrink)
        save_model(folder / "model", options.width, options.layers)
        rounds: list[dict[str, Measured]] = []
        for _ in range(options.runs):
            rounds.append({})
            for flow in _COMPARED:
                rounds[-1][flow] = measure(_FLOWS, [flow, str(folder), str(options.workers)], 1)
                print(f"{flow}: {rounds[-1][flow].wall_s:.1f} s", file=sys.stderr)
    rows = check(rounds[0])
    print(machine_line())
    print(f"{rows:,} rows, a Llama {options.width} wide with {options.layers} layers and 201,088 tokens\n")
    print("| flow | wall s | CPU s | peak MB | times as fast |")
    print("|---|---|---|---|---|")
    for flow in _COMPARED:
        ratio = statistics.median(figures["plain"].wall_s / figures[flow].wall_s for figures in rounds)
        wall, cpu, peak = (statistics.median(getattr(figures[flow], name) for figures in rounds) for name in _FIGURES)
        print(f"| {flow} | {wall:.1f} | {cpu:.1f} | {peak:,.0f} | {ratio:.2f} |")


if __name__ == "__main__":
    main()
