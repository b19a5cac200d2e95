"""Benchmark of a new version of a corpus in which one file in a hundred is new.

    python benchmarks/weeks.py --mb 130 --runs 3

The recipe equals the one of `stage_a.py`, in shards of 1 MB of text and in one process. Its source has 100 files in the
first version, which keeps its work, and 101 in the next. The next version is built from scratch and from that work; the
digests of all its artifacts are equal.
"""

import json
import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import stage_a
from measure import machine_line, measure, table

FILES = 100
SHARD_TEXT_BYTES = 1_000_000
FIRST, NOTHING, WEEK = FLOWS = ("first version", "next version from nothing", "next version")


def prepare(root: Path, text_mb: float) -> int:
    """Write both versions of the corpus; return the bytes of text of the second."""
    _, size = stage_a.prepare(root, text_mb)
    lines = (root / "source" / "pages.jsonl").read_bytes().splitlines(keepends=True)
    per_file = -(-len(lines) // (FILES + 1))
    for name, files in (("first", FILES), ("next", FILES + 1)):
        (root / name).mkdir()
        for number in range(files):
            part = lines[number * per_file : (number + 1) * per_file]
            (root / name / f"part-{number:03d}.jsonl").write_bytes(b"".join(part))
        recipe = stage_a.recipe(root, name, {}) | {"shard_text_bytes": SHARD_TEXT_BYTES}
        text = json.dumps(recipe).replace(str(root / "source"), str(root / name))
        (root / "recipes" / f"{name}.yaml").write_text(text)
    return size


def build(root: Path, flow: str) -> None:
    """Build a version, print its digests, and write the CPU seconds of its stages."""
    from pipeline_assets.build.run import Run
    from pipeline_assets.systems.stage_a import StageARecipe

    first, following = (StageARecipe.read(root / "recipes" / f"{name}.yaml") for name in ("first", "next"))
    run = Run.from_settings(root, os.environ, workers=0)
    if flow != NOTHING:
        run = replace(run, keep_work=True, find_previous_folder=first.folder if flow == WEEK else None)
    seconds = stage_a.build(first if flow == FIRST else following, run)
    (root / f"{flow}.json").write_text(json.dumps(seconds))


def main() -> None:
    options = stage_a.parse_options(__doc__)
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        size = prepare(root, options.mb)
        measured = {flow: measure(Path(__file__), [flow, str(root)], options.runs) for flow in FLOWS}
        if measured[WEEK].printed != measured[NOTHING].printed:
            sys.exit("the next version has other digests than a build from nothing")
        print(f"{machine_line()}; {size / 1e6:.0f} MB of text, median of {options.runs}\n")
        print(table(measured, NOTHING, size / 1e6))
        steps = {flow: json.loads((root / f"{flow}.json").read_text()) for flow in (NOTHING, WEEK)}
        print("\n| step | from nothing, CPU s | CPU s |\n|---|---|---|")
        for step in steps[WEEK]:
            print(f"| {step} | {steps[NOTHING][step]:.2f} | {steps[WEEK][step]:.2f} |")
        kept = sum(path.stat().st_blocks * 512 for path in root.glob("stage_a/first/*/.*.kept/**/*"))
        print(f"\nkept work of the first version: {kept / size:.2f} bytes for each byte of text")
    share = measured[WEEK].cpu_s / measured[NOTHING].cpu_s
    print(json.dumps({"benchmark": "weeks", "mb": round(size / 1e6), "cpu_to_build_from_nothing": round(share, 3)}))


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] in FLOWS:
        build(Path(sys.argv[2]), sys.argv[1])
    else:
        main()
