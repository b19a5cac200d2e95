"""Rows of a pool → the NLL of their completions, on a CPU: beside a plain loop over transformers.

    python benchmarks/scoring.py --rows 1000 --shrink 32 --width 64 --layers 4 --workers 2

The model is a Llama of seeded weights with the vocabulary of o200k Harmony (201,088 words). Rows have the lengths of
real rows of Nemotron, `--shrink` times as short: at full length the plain loop's logits don't fit into memory. Before
speeds are compared, all scores are proven to be those of the plain loop, within 1e-4.

Flows take turns, and a ratio is the median of those of a round. Memory is that of all processes together.
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
_ASKED = ("plain", "corpusmill")
_FIGURES = ("wall_s", "cpu_s", "peak_mb")


def check(measured: dict[str, Measured]) -> int:
    """How many rows have a score.

    Raises:
        SystemExit: the flows differ.
    """
    asked, found = (json.loads(measured[flow].printed) for flow in _ASKED)
    if any(abs(one - other) > 1e-4 * abs(other) for one, other in zip(found, asked, strict=True)):
        sys.exit("corpusmill has other scores than the plain loop")
    return len(asked)


def main() -> None:
    parser = argparse.ArgumentParser(description="Rows of a pool → the NLL of their completions")
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--shrink", type=int, default=32, help="how many times shorter than real rows")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--workers", type=int, default=2, help="of ours; as many threads has the plain loop")
    parser.add_argument("--runs", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_rows(folder / "pool.parquet", options.rows, options.shrink)
        save_model(folder / "model", options.width, options.layers)
        rounds: list[dict[str, Measured]] = []
        for _ in range(options.runs):
            rounds.append({})
            for flow in _ASKED:
                rounds[-1][flow] = measure(_FLOWS, [flow, str(folder), str(options.workers)], 1)
                print(f"{flow}: {rounds[-1][flow].wall_s:.1f} s", file=sys.stderr)
    rows = check(rounds[0])
    print(machine_line())
    print(f"{rows:,} rows, a Llama {options.width} wide with {options.layers} layers and 201,088 words\n")
    print("| flow | wall s | CPU s | peak MB | times as fast |")
    print("|---|---|---|---|---|")
    for flow in _ASKED:
        ratio = statistics.median(one["plain"].wall_s / one[flow].wall_s for one in rounds)
        wall, cpu, peak = (statistics.median(getattr(one[flow], name) for one in rounds) for name in _FIGURES)
        print(f"| {flow} | {wall:.1f} | {cpu:.1f} | {peak:,.0f} | {ratio:.2f} |")


if __name__ == "__main__":
    main()
