"""Page of evidence: the figures of all matrices, docs/evidence.md.

    make evidence                     # moves new results from build/evidence into benchmarks/evidence

A matrix is a program that strikes corpusmill many times, and counts what broke. It calls `write_result`, which writes
build/evidence/NAME.json. The page shows the files in benchmarks/evidence, which are kept in the repository, so that a
new result replaces only the figures of its own matrix. A matrix without a file was not run.
"""

import argparse
import datetime
import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measure import PROJECT, machine_line

RESULTS = PROJECT / "build" / "evidence"
KEPT_RESULTS = PROJECT / "benchmarks" / "evidence"
PAGE = PROJECT / "docs" / "evidence.md"
KEYS = ("matrix", "command", "commit", "date", "machine", "seconds", "cases", "failures", "rows")
_INTRODUCTION = """# Evidence

Each matrix strikes corpusmill many times and counts the failures. `make evidence` writes this page from the results
in `benchmarks/evidence`, so every figure has its machine and commit. The tests run seeded samples of the same cases.
[Benchmarks](../benchmarks/README.md#robustness) explains the programs.
"""


@dataclass(frozen=True)
class Matrix:
    """Description of a matrix: its strikes, its failures and its command."""

    title: str
    strikes: str
    failure: str
    command: str


MATRICES = {
    "crashes": Matrix(
        "Crash points",
        "`kill -9` before each operation on the disk",
        "a damaged artifact, other bytes after the next run, or a leftover",
        "python benchmarks/crashes.py",
    ),
    "power_losses": Matrix(
        "Power losses",
        "each state of a disk that loses unsynced data",
        "the same as for crash points",
        "python benchmarks/crashes.py",
    ),
    "flips": Matrix(
        "Flipped bits",
        "a bit in the input of a build, or in the leftovers of a killed one",
        "another digest without a message",
        "python benchmarks/flips.py --flips 1000",
    ),
    "forged": Matrix(
        "Forged manifests",
        "a changed value in the identity of a manifest, with digests that fit again",
        "`verify --upstream` calls the artifacts that were built from it intact",
        "python benchmarks/forged.py",
    ),
    "faults": Matrix(
        "Hub faults",
        "each fault of a hub or a network, wherever bytes are read",
        "neither the same bytes nor one line, or no recovery; no hub has the hash of a row group: unnoticed",
        "python benchmarks/faults.py",
    ),
    "swarm": Matrix(
        "Swarm",
        "seeded workloads of all systems, with one to three faults of disk, clock, process or hub in one command",
        "neither the bytes of a fault-free run nor one line, or no repair by the next run",
        "make soak",
    ),
    "rebuilds": Matrix(
        "Rebuilds",
        "artifacts of every kind, built again with other run settings",
        "other bytes",
        "python benchmarks/rebuilds.py",
    ),
    "fuzz": Matrix(
        "Fuzzed files",
        "damaged or generated texts and files, one parser at a time",
        "a traceback, an error of several lines, a hang, or too much memory",
        "make fuzz",
    ),
    "fuzz_root": Matrix(
        "Fuzzed data roots",
        "damaged small files of a data root, and commands over it",
        "neither a clean end nor one line",
        "python benchmarks/fuzz.py --root DATA",
    ),
    "compared": Matrix(
        "Faults on corpusmill and two libraries",
        "killed processes, resumed passes and cut files; [the table](compared.md)",
        "corpusmill loses or repeats a row without a message",
        "python benchmarks/compared.py",
    ),
    "mutants": Matrix(
        "Mutants",
        "small seeded changes of the sources",
        "none of the nearest tests notices the change; some changes are equivalent to the original",
        "make mutants",
    ),
}


def write_result(
    matrix: str,
    *,
    cases: int,
    failures: int,
    rows: Sequence[Mapping[str, str | int]],
    seconds: float,
    command: str | None = None,
) -> Path:
    """Write the result of a matrix, which `make evidence` reads.

    Args:
        matrix: A key of `MATRICES`.
        cases: Strikes that were made.
        failures: Strikes after which the promise was broken.
        rows: Rows of the table in the page; all have the same keys, which are its columns.
        seconds: Wall-clock time of the run.
        command: Command as typed; by default the command line of this process, without the folders of absolute paths.
    """
    name = Path(sys.argv[0]).name
    arguments = [Path(word).name if Path(word).is_absolute() else word for word in sys.argv[1:]]
    result = {
        "matrix": matrix,
        "command": command or shlex.join(["python", f"benchmarks/{name}", *arguments]),
        "commit": current_commit(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": machine_line(),
        "seconds": round(seconds),
        "cases": cases,
        "failures": failures,
        "rows": [dict(row) for row in rows],
    }
    assert matrix in MATRICES, matrix
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{matrix}.json"
    path.write_text(json.dumps(result, indent=1) + "\n")
    return path


def current_commit() -> str:
    """Return the short commit of the checkout, noting changed sources."""
    git = ["git", "-C", str(PROJECT)]
    commit = subprocess.run([*git, "rev-parse", "--short=10", "HEAD"], capture_output=True, text=True).stdout.strip()
    sources = ["pipeline_assets", "resources", "modal_jobs", "benchmarks", "tests"]
    changed = subprocess.run([*git, "status", "--porcelain", "--", *sources], capture_output=True, text=True).stdout
    return f"{commit or 'no commit'}{' with changes' if changed else ''}"


def read_results(folder: Path) -> dict[str, dict[str, Any]]:
    """Read the results by matrix; exit with one line if a file is not a result."""
    results = {}
    for path in sorted(folder.glob("*.json")):
        try:
            result = json.loads(path.read_bytes())
        except ValueError as error:
            sys.exit(f"{path}: not JSON ({error}); delete the file and run its program again")
        missing = [key for key in KEYS if not isinstance(result, dict) or key not in result]
        if missing or result["matrix"] != path.stem or path.stem not in MATRICES:
            sys.exit(f"{path}: not a result of a matrix; delete the file and run its program again")
        results[path.stem] = result
    return results


def page(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Format the page: a row per matrix, then the table of each that was run."""
    lines = [_INTRODUCTION, "| matrix | strikes | a failure is | cases | failures | commit |", "|---" * 6 + "|"]
    for name, matrix in MATRICES.items():
        result = results.get(name)
        figures = f"{result['cases']:,} | {result['failures']:,} | {result['commit']}" if result else "not run | – | –"
        title = f"[{matrix.title}](#{matrix.title.lower().replace(' ', '-')})" if result else matrix.title
        lines.append(f"| {title} | {matrix.strikes} | {matrix.failure} | {figures} |")
    for name, matrix in MATRICES.items():
        if name in results:
            lines += ["", *section(matrix, results[name])]
    return "\n".join(lines) + "\n"


def section(matrix: Matrix, result: Mapping[str, Any]) -> list[str]:
    """Format the rows of a matrix, with the command, machine and commit of its run."""
    minutes = max(1, round(result["seconds"] / 60))
    lines = [
        f"## {matrix.title}",
        "",
        f"`{result['command']}` at {result['commit']}, {result['date']}, {minutes} min, on {result['machine']}.",
    ]
    return [*lines, "", *table(result["rows"])] if result["rows"] else lines


def table(rows: Sequence[Mapping[str, str | int]]) -> list[str]:
    """Format rows as lines of Markdown, with the keys of the first row as columns."""
    lines = [f"| {' | '.join(rows[0])} |", "|---" * len(rows[0]) + "|"]
    for row in rows:
        cells = [f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row.values()]
        lines.append("| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description="Write docs/evidence.md from the results of all matrices")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of new results")
    parser.add_argument("--kept", type=Path, default=KEPT_RESULTS, help="folder that new results are moved into")
    parser.add_argument("--page", type=Path, default=PAGE)
    options = parser.parse_args()
    new = read_results(options.results)
    results = read_results(options.kept) | new
    if not results:
        programs = dict.fromkeys(matrix.command for matrix in MATRICES.values())
        sys.exit(f"{options.results}: no results; run one of: {', '.join(programs)}")
    options.kept.mkdir(exist_ok=True)
    for name in new:
        shutil.move(options.results / f"{name}.json", options.kept / f"{name}.json")
    options.page.write_text(page(results), encoding="utf-8")
    missing = [name for name in MATRICES if name not in results]
    print(f"wrote {options.page}: {len(results)} matrices; not run: {', '.join(missing) or 'none'}")


if __name__ == "__main__":
    main()
