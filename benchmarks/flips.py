"""Benchmark of flipped bits in the input of builds and in interrupted builds.

    python benchmarks/flips.py --flips 1000

Prints the number of survived flips. The tests define the cases and what counts as survived, in
tests/harness/flip_proof.py.
"""

import argparse
import json
import logging
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from evidence import table, write_result
from measure import machine_line

sys.path.extend(str(Path(__file__).parents[1] / "tests" / folder) for folder in ("builders", "harness"))

from crash_cases import open_sources, without_git
from flip_proof import FLIP_CASES, FlipProof


def main() -> None:
    parser = argparse.ArgumentParser(description="flipped bits in what builds read")
    parser.add_argument("--flips", type=int, default=1000)
    parser.add_argument("--seed", default="0")
    parser.add_argument("--only", default="", help="run the cases whose name contains this")
    options = parser.parse_args()
    started = time.monotonic()
    logging.disable(logging.WARNING)
    print(f"{machine_line()}\n", flush=True)
    cases = [case for case in FLIP_CASES if options.only in case.name]
    same: Counter[str] = Counter()
    reported: Counter[str] = Counter()
    wrong: list[str] = []
    with without_git(), open_sources() as sources, tempfile.TemporaryDirectory() as folder:
        for number, case in enumerate(cases):
            proof, dice = FlipProof(case, sources, Path(folder, str(number))), random.Random(f"{options.seed} {case}")
            for _ in range(-(-options.flips // len(cases))):
                outcome = proof.run(dice)
                (same if outcome.line is None else reported)[outcome.flip.role] += 1
                if outcome.wrong is not None:
                    wrong.append(f"{case}: {outcome.flip}: {outcome.wrong}")
                    print(wrong[-1], file=sys.stderr, flush=True)
            print(f"{case}: done, {len(wrong)} wrong so far", file=sys.stderr, flush=True)
    rows = [
        {
            "role of the file": role,
            "flips": same[role] + reported[role],
            "correct digest": same[role],
            "error that names the file": reported[role],
        }
        for role in sorted(same.keys() | reported.keys())
    ]
    print("\n".join(table(rows)))
    if not options.only:
        flips = same.total() + reported.total()
        write_result("flips", cases=flips, failures=len(wrong), rows=rows, seconds=time.monotonic() - started)
    result = {"benchmark": "flips", "flips": same.total() + reported.total(), "wrong": len(wrong)}
    print(f"\n{json.dumps(result)}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
