"""Fuzzer of commands over a data root whose small files are damaged.

    corpusmill demo --data /tmp/fuzzed
    python benchmarks/fuzz.py --root /tmp/fuzzed --minutes 5     # in one process; the root itself is not changed

Damages one file at a time at random and runs commands, which must end cleanly or with one line. The tests define the
files and the kinds of damage: tests/harness/fuzz_cases.py. A failure names the seed that reproduces it.
"""

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from evidence import write_result
from measure import machine_line

sys.path.extend(str(Path(__file__).parents[1] / "tests" / folder) for folder in ("builders", "harness"))

from demo_variants import copy_demo
from fuzz_cases import commands, damaged, leave_unfinished_work, run_command, small_files

_COMPARED_CHARACTERS = 300  # failures with equal last characters have the same cause


def main() -> None:
    parser = argparse.ArgumentParser(description="Damage small files of a data root and run commands over it")
    parser.add_argument("--root", type=Path, required=True, help="data root that `corpusmill demo` built")
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--seed", type=int, default=0, help="seed of the first damage; each damage increments it")
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    causes: set[str] = set()
    with tempfile.TemporaryDirectory() as folder:
        root, cache = copy_demo(options.root, Path(folder, "data")), Path(folder, "cache")
        leave_unfinished_work(root)
        files = small_files(root)
        deadline = time.monotonic() + 60 * options.minutes
        while time.monotonic() < deadline:
            seed = options.seed + counts["damages"]
            draw = random.Random(seed)
            path = draw.choice(files)
            command_lines = list(commands(root, path, draw))
            counts["damages"] += 1
            with damaged(path, draw) as how:
                for words in command_lines:
                    outcome = run_command(words, cache)
                    counts["commands"] += 1
                    counts["refusals"] += outcome.status != 0
                    counts["failures"] += not outcome.is_clean
                    cause = (outcome.failure or outcome.stderr).strip()
                    if not outcome.is_clean and cause[-_COMPARED_CHARACTERS:] not in causes:
                        causes.add(cause[-_COMPARED_CHARACTERS:])
                        place = path.relative_to(root)
                        print(
                            f"seed {seed}: {how} of {place}: {' '.join(words)}\n{cause}\n", file=sys.stderr, flush=True
                        )
    print(f"{machine_line()}\n{len(files)} files; {', '.join(f'{count:,} {name}' for name, count in counts.items())}")
    rows = [{"files": len(files), **counts, "causes": len(causes)}]
    write_result(
        "fuzz_root", cases=counts["commands"], failures=counts["failures"], rows=rows, seconds=60 * options.minutes
    )
    print(json.dumps({"benchmark": "fuzz", "files": len(files), **counts, "causes": len(causes)}))
    sys.exit(1 if causes else 0)


if __name__ == "__main__":
    main()
