"""Small files of a data root damaged at random, one at a time, and commands run over it: a clean end, or one line.

    corpusmill demo --data /tmp/fuzzed
    python benchmarks/fuzz.py --root /tmp/fuzzed --minutes 5     # in one process; the root is as before afterwards

What is damaged, and how, is that of the tests: tests/fuzz_cases.py. A failure names the seed that shows it again.
"""

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from measure import machine_line

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from demo_variants import copy_of
from fuzz_cases import commands, damaged, leave_unfinished_work, small_files, typed

_TELLING = 300  # last characters of a traceback, by which two are alike


def main() -> None:
    parser = argparse.ArgumentParser(description="Damage small files of a data root and run commands over it")
    parser.add_argument("--root", type=Path, required=True, help="as `corpusmill demo` leaves one")
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--seed", type=int, default=0, help="of the first damage; each that follows has the next")
    asked = parser.parse_args()
    counts: Counter[str] = Counter()
    causes: set[str] = set()
    with tempfile.TemporaryDirectory() as folder:
        root, cache = copy_of(asked.root, Path(folder, "data")), Path(folder, "cache")
        leave_unfinished_work(root)
        files = small_files(root)
        deadline = time.monotonic() + 60 * asked.minutes
        while time.monotonic() < deadline:
            seed = asked.seed + counts["damages"]
            draw = random.Random(seed)
            path = draw.choice(files)
            typed_words = list(commands(root, path, draw))
            counts["damages"] += 1
            with damaged(path, draw) as how:
                for words in typed_words:
                    told = typed(words, cache)
                    counts["commands"] += 1
                    counts["refusals"] += told.status != 0
                    counts["failures"] += not told.is_clean
                    cause = (told.failure or told.stderr).strip()
                    if not told.is_clean and cause[-_TELLING:] not in causes:
                        causes.add(cause[-_TELLING:])
                        place = path.relative_to(root)
                        print(
                            f"seed {seed}: {how} of {place}: {' '.join(words)}\n{cause}\n", file=sys.stderr, flush=True
                        )
    print(f"{machine_line()}\n{len(files)} files; {', '.join(f'{count:,} {name}' for name, count in counts.items())}")
    print(json.dumps({"benchmark": "fuzz", "files": len(files), **counts, "causes": len(causes)}))
    sys.exit(1 if causes else 0)


if __name__ == "__main__":
    main()
