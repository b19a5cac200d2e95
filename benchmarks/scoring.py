"""Rows of a pool → the NLL of their completions, on a CPU: beside a plain loop over transformers.

    python benchmarks/scoring.py --rows 1000 --shrink 16 --width 64 --layers 4 --runs 3

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
_ASKED = {"plain, 1 thread": 1, "corpusmill, 1 worker": 1, "plain, 2 threads": 2, "corpusmill, 2 workers": 2}


def run(flow: str, folder: Path) -> Measured:
    return measure(_FLOWS, [flow.partition(",")[0], str(folder), str(_ASKED[flow])], 1)


def check(rounds: list[dict[str, Measured]]) -> int:
    """How many rows have a score.

    Raises:
        SystemExit: two flows differ.
    """
    asked: list[float] = json.loads(rounds[0]["plain, 1 thread"].printed)
    for flow, measured in rounds[0].items():
        found = json.loads(measured.printed)
        if any(abs(one - other) > 1e-4 * abs(other) for one, other in zip(found, asked, strict=True)):
            sys.exit(f"{flow} has other scores than the plain loop")
    return len(asked)


def main() -> None:
    parser = argparse.ArgumentParser(description="Rows of a pool → the NLL of their completions")
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--shrink", type=int, default=16, help="how many times shorter than real rows")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_rows(folder / "pool.parquet", options.rows, options.shrink)
        save_model(folder / "model", options.width, options.layers)
        rounds: list[dict[str, Measured]] = []
        for _ in range(options.runs):
            rounds.append({})
            for flow in _ASKED:
                rounds[-1][flow] = run(flow, folder)
                print(f"{flow}: {rounds[-1][flow].wall_s:.1f} s", file=sys.stderr)
    rows = check(rounds)
    print(machine_line())
    print(f"{rows:,} rows scored, a Llama {options.width} wide with {options.layers} layers and 201,088 words\n")
    print("| flow | wall s | CPU s | peak MB | times as fast as plain |")
    print("|---|---|---|---|---|")
    for flow in _ASKED:
        peer = "plain, 1 thread" if _ASKED[flow] == 1 else "plain, 2 threads"
        ratio = statistics.median(one[peer].wall_s / one[flow].wall_s for one in rounds)
        wall, cpu, peak = (
            statistics.median(getattr(one[flow], name) for one in rounds) for name in ("wall_s", "cpu_s", "peak_mb")
        )
        print(f"| {flow} | {wall:.1f} | {cpu:.1f} | {peak:,.0f} | {ratio:.2f} |")


if __name__ == "__main__":
    main()
