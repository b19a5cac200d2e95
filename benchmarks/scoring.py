"""Benchmark of scoring completions on a CPU against transformers and lm_eval.

    python benchmarks/scoring.py --rows 100 --shrink 32 --width 64 --layers 4 --workers 2

The model is a Llama of seeded weights with the vocabulary of o200k Harmony (201,088 tokens). Rows have the lengths of
real Nemotron rows, divided by `--shrink`: at full length the plain loop's logits do not fit into memory. Before speeds
are compared, all scores are proven to equal the plain loop's, within 1e-4. lm-evaluation-harness takes part if it is
installed; it pads batches of as many rows as the plain loop, sorted by length.

Flows take turns, and a ratio of CPU seconds is the median of the ratios within a round; the start of a flow (imports,
the model) is measured on one row and subtracted. Memory is the sum over all processes.
"""

import argparse
import importlib.util
import json
import statistics
import sys
import tempfile
from pathlib import Path

from measure import Measured, machine_line, measure
from scoring_flows import save_model, write_rows

_FLOWS = Path(__file__).with_name("scoring_flows.py")
_PEERS = ("plain", "lm_eval") if importlib.util.find_spec("lm_eval") else ("plain",)
_COMPARED = (*_PEERS, "corpusmill")


def check(measured: dict[str, Measured]) -> int:
    """Return the number of rows; exit if the scores of two flows differ."""
    plain, *compared = (json.loads(measured[flow].printed) for flow in _COMPARED)
    for flow, scores in zip(_COMPARED[1:], compared, strict=True):
        if any(abs(score - expected) > 1e-4 * abs(expected) for score, expected in zip(scores, plain, strict=True)):
            sys.exit(f"{flow}'s scores differ from those of the plain loop")
    return len(plain)


def main() -> None:
    parser = argparse.ArgumentParser(description="Rows of a pool → the NLL of their completions")
    parser.add_argument("--rows", type=int, default=100)
    parser.add_argument("--shrink", type=int, default=32, help="how many times shorter than real rows")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--workers", type=int, default=2, help="workers of corpusmill, threads of the plain loop")
    parser.add_argument("--runs", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder, start = Path(temporary, "rows"), Path(temporary, "start")
        for pool, rows in ((folder, options.rows), (start, 1)):
            pool.mkdir()
            write_rows(pool / "pool.parquet", rows, options.shrink)
            save_model(pool / "model", options.width, options.layers)
        rounds: list[dict[str, Measured]] = []
        beyond: list[dict[str, float]] = []  # CPU seconds without the start
        for _ in range(options.runs):
            rounds.append({})
            beyond.append({})
            for flow in _COMPARED:
                rounds[-1][flow], started = (
                    measure(_FLOWS, [flow, str(pool), str(options.workers)], 1) for pool in (folder, start)
                )
                beyond[-1][flow] = rounds[-1][flow].cpu_s - started.cpu_s
                print(f"{flow}: {beyond[-1][flow]:.1f} CPU s", file=sys.stderr)
    rows = check(rounds[0])
    print(machine_line())
    print(f"{rows:,} rows, a Llama {options.width} wide with {options.layers} layers and 201,088 tokens\n")
    print("| flow | CPU s beyond the start | to corpusmill | peak MiB |\n|---|---|---|---|")
    to_ours = {}
    for flow in _COMPARED:
        ratio = statistics.median(seconds[flow] / seconds["corpusmill"] for seconds in beyond)
        cpu_s, peak = (
            statistics.median(values)
            for values in ([seconds[flow] for seconds in beyond], [figures[flow].peak_mb for figures in rounds])
        )
        print(f"| {flow} | {cpu_s:.1f} | {ratio:.2f} | {peak:,.0f} |")
        to_ours[flow] = round(ratio, 2)
    print(json.dumps({"benchmark": "scoring", "rows": rows, "cpu_to_corpusmill": to_ours}))


if __name__ == "__main__":
    main()
