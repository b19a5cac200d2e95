"""Page of evidence: the figures of all matrices, docs/evidence.md.

    make evidence                     # moves new results from build/evidence into benchmarks/evidence

A matrix is a program that exposes corpusmill to many faults, and counts the failures. It calls `write_result`, which
writes build/evidence/NAME.json. The page shows the files in benchmarks/evidence. These are kept in the repository, so
that a new result replaces only the figures of its own matrix. A matrix without a file was not run.
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

Each matrix is a program that exposes corpusmill to many faults and counts the failures. `make evidence` writes this
page from the results in `benchmarks/evidence`, with the machine and commit of each. The tests run seeded samples of the
same cases. [Benchmarks](../benchmarks/README.md#robustness) explains the programs. Below, "an error" is one line that
names the problem and the fix.
"""


@dataclass(frozen=True)
class Matrix:
    """Description of a matrix: its faults, its failures, its command and its columns."""

    title: str
    fault: str
    failure: str
    command: str
    columns: str = ""  # explains the columns of its table; empty if they need no words


MATRICES = {
    "crashes": Matrix(
        "Crash points",
        "`kill -9` before each operation on the disk",
        "a damaged artifact, other bytes after the next run, or a leftover",
        "python benchmarks/crashes.py",
        "`points` are the disk operations of a build without a kill; fewer `kills` than `points` are a seeded sample.",
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
        "a wrong digest without an error",
        "python benchmarks/flips.py --flips 1000",
    ),
    "forged": Matrix(
        "Forged manifests",
        "a changed value in the identity of a manifest, with digests that fit again",
        "`verify --upstream` finds no fault in an artifact that was built from it",
        "python benchmarks/forged.py",
        "A user is an artifact that was built from the forged one.",
    ),
    "faults": Matrix(
        "Hub faults",
        "each fault of a hub or a network, wherever bytes are read",
        "neither the same bytes nor an error, or an error after the fault has passed; `unnoticed` cases do not count",
        "python benchmarks/faults.py",
        "`unnoticed` are wrong bytes of the right length in a part of a file. Hubs have hashes of whole files only.",
    ),
    "swarm": Matrix(
        "Swarm",
        "seeded workloads of all systems, with one to three faults of disk, clock, process or hub in one command",
        "neither the bytes of a run without faults nor an error, or no repair by the next run",
        "make soak",
        "`armed` are workloads with the fault; in `fired` of them it met an operation. A workload is `equal` if all\n"
        "commands succeed with the bytes of a run without faults, and `refused` if one ends with an error.",
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
        "neither a clean exit nor an error",
        "python benchmarks/fuzz.py --root DATA",
        "`refusals` are commands with another exit status than 0, `causes` are different failures.",
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
        "none of the nearest tests fails; some changes have no effect that a test could notice",
        "make mutants",
        "A mutant is `killed` by the first test that fails, and `undecided` if its tests exceed the limit of time.",
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
        cases: Number of cases, each with one fault or more.
        failures: Number of cases that count as a failure.
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
    lines = [_INTRODUCTION, "| matrix | faults | counts as a failure | cases | failures | commit |", "|---" * 6 + "|"]
    for name, matrix in MATRICES.items():
        result = results.get(name)
        figures = f"{result['cases']:,} | {result['failures']:,} | {result['commit']}" if result else "not run | – | –"
        title = f"[{matrix.title}](#{matrix.title.lower().replace(' ', '-')})" if result else matrix.title
        lines.append(f"| {title} | {matrix.fault} | {matrix.failure} | {figures} |")
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
        *filter(None, [matrix.columns]),
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
