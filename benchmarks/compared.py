"""Comparison of corpusmill, datatrove and datasets under three faults.

    python benchmarks/compared.py                     # about five minutes, offline, in a temporary folder
    python benchmarks/compared.py --only corpusmill

1. A process is killed while it writes, and the same command runs again.
2. A pass over the rows is stopped three times, and resumed by a new process each time.
3. A file that is half written, or cut, is read by the next program.

Rows are counted by the ids in their texts, in the files that the last program wrote; the reader shares no code with the
three. The extra `peers` installs datatrove and torch; cases whose package is missing are named and left out.
Linux only: /proc shows which process has a half-written file open.
"""

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from compared_faults import count_ids, cut, kill_writer, run
from evidence import write_result
from measure import PROJECT, machine_line

COLUMNS = ("fault", "with", "expected", "found", "repeated", "lost", "shown")
WORKER = "a worker is killed, the command runs again"
WHOLE = "all processes are killed, the command runs again"
RESUMED = "a pass is stopped and resumed three times"
HALF = "the writer is killed, the next program reads"
CUT = "a finished file is cut, the next program reads"
SOURCE = "a source file ends within a row"
SOURCE_LINES = "a source file ends early, after a row"
FILES, ROWS, WORDS = 4, 2_500, 400  # 28 MB: with less, corpusmill starts no workers
TOTAL, SEQ_LEN = FILES * ROWS, 2_048
FILTERED = Path("data/stage_a/compared/filtered/made")
PACKED = Path("data/stage_a/compared/packed/compared")

_SLOW_STEP = "import time\n\n\ndef keep(document):\n    time.sleep(0.0005)\n    return document\n"
_RECIPE = """system: stage_a
name: compared
shard_text_bytes: 7_000_000
sources:
  - kind: local
    source: made
    path: {folder}/in
    files: ["*.jsonl"]
    columns: {{text: text}}
    domain: words
    license_tag: cc0-1.0
"""


@dataclass(frozen=True)
class Outcome:
    """Counts of rows in the last program's files, and the message that it showed."""

    shown: str
    counts: Counter[str]
    expected: int = TOTAL

    def cells(self) -> list[str]:
        """Format the columns of the table; a loss or repetition without a message is bold."""
        found = len(self.counts)
        if not found:
            return [f"{self.expected:,}", "none", "–", "–", self.shown or "**nothing**"]
        repeated, lost = self.counts.total() - found, self.expected - found
        shown = self.shown or ("**nothing**" if repeated or lost else "nothing")
        return [*(f"{figure:,}" for figure in (self.expected, found, repeated, lost)), shown]


@dataclass(frozen=True)
class Case:
    """Fault, system, way of working, and the function that strikes in a folder."""

    fault: str
    system: str
    way: str
    strike: Callable[[Path], Outcome] | None


def write_input(folder: Path) -> None:
    """Write rows of seeded words; the first word of a text is the id of its row."""
    drawn = random.Random(1)
    words = ["".join(drawn.choices("abcdefghijklmnopqrstuvwxyz", k=3 + at % 7)) for at in range(20_000)]
    folder.mkdir()
    for file in range(FILES):
        with (folder / f"{file}.jsonl").open("w") as output:
            for row in range(ROWS):
                name = f"row-{file}-{row:05d}"
                output.write(
                    json.dumps({"id": name, "text": f"{name} {' '.join(drawn.choices(words, k=WORDS))}"}) + "\n"
                )


def flow(name: str, folder: Path) -> list[str]:
    return [sys.executable, str(PROJECT / "benchmarks/compared_flows.py"), name, str(folder / "in"), str(folder)]


def corpusmill(folder: Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "pipeline_assets", *words, "--data", str(folder / "data")]


def build(folder: Path) -> list[str]:
    return corpusmill(folder, "run", "compared", "--workers", "2")


def export(folder: Path) -> list[str]:
    return corpusmill(folder, "export", str(folder / FILTERED), "--to", "jsonl", "--out", str(folder / "next"))


def write_recipe(folder: Path, is_slow: bool = False, is_packed: bool = False) -> None:
    recipes = folder / "data" / "recipes"
    recipes.mkdir(parents=True)
    recipe = _RECIPE.format(folder=folder)
    if is_slow:
        (recipes / "slow.py").write_text(_SLOW_STEP)
        recipe += "    filters: {python: {file: slow.py, function: keep}}\n"
    recipe += f"pack: {{seq_len: {SEQ_LEN}}}\n" if is_packed else "outputs: {up_to: filtered}\n"
    (recipes / "compared.yaml").write_text(recipe)


def kill_and_rerun(command: Callable[[Path], list[str]], watched: str, out: str, whole: bool, folder: Path) -> Outcome:
    """Kill a worker or all processes in the middle of a file, then run again."""
    write_recipe(folder, is_slow=True)
    first = kill_writer(command(folder), folder, folder / watched, whole)
    second = run(command(folder), folder)
    return Outcome("; then ".join(filter(None, (first, second))), count_ids(folder / out))


def read_half_written(write: str, read: str, whole_run: bool, folder: Path) -> Outcome:
    """Kill all processes of a writer; let the next program read the folder."""
    kill_writer(flow(write, folder), folder, folder / "out", True, is_worker=whole_run)
    return Outcome(run(flow(read, folder), folder), count_ids(folder / "next"))


def export_half_written(folder: Path) -> Outcome:
    write_recipe(folder, is_slow=True)
    kill_writer(build(folder), folder, folder / FILTERED.parent, True)
    return Outcome(run(export(folder), folder), count_ids(folder / "next", "*.jsonl*"))


def cut_output(write: str, read: str, pattern: str, is_text: bool, folder: Path) -> Outcome:
    """Cut the last file of a finished output; let the next program read the folder."""
    if failed := run(flow(write, folder), folder):
        sys.exit(f"{write}: {failed}")
    cut(max((folder / "out").rglob(pattern)), is_text)
    return Outcome(run(flow(read, folder), folder), count_ids(folder / "next"))


def cut_artifact(folder: Path) -> Outcome:
    write_recipe(folder)
    run(build(folder), folder)
    shard = max((folder / FILTERED / "shards").iterdir())
    shard.chmod(0o644)
    cut(shard)
    return Outcome(run(export(folder), folder), count_ids(folder / "next", "*.jsonl*"))


def cut_source(command: Callable[[Path], list[str]], out: str, is_text: bool, folder: Path) -> Outcome:
    """Cut the last source file before the first run; expect its complete rows."""
    write_recipe(folder)
    source = folder / "in" / f"{FILES - 1}.jsonl"
    cut(source, is_text)
    expected = TOTAL - ROWS + source.read_bytes().count(b"\n")
    return Outcome(run(command(folder), folder), count_ids(folder / out), expected)


def resume_flow(name: str, folder: Path) -> Outcome:
    """Run a flow four times, which stops three times and resumes from its state."""
    shown = [run(flow(name, folder), folder) for _ in range(4)]
    return Outcome(next(filter(None, shown), ""), count_ids(folder / "next", "used.jsonl"))


def resume_loader(folder: Path) -> Outcome:
    """Resume the loader of a packed set; numpy identifies rows by their tokens."""
    import numpy as np

    write_recipe(folder, is_packed=True)
    run(build(folder), folder)
    shown = [run(flow("corpusmill_loader", folder), folder) for _ in range(4)]
    rows = np.fromfile(folder / PACKED / "input_ids.mmap", "<i4").reshape(-1, SEQ_LEN)
    used = [json.loads(line)["text"] for line in (folder / "next" / "used.jsonl").read_text().splitlines()]
    return Outcome(next(filter(None, shown), ""), Counter(map(str, used)), len(np.unique(rows, axis=0)))


def peer_cases() -> list[Case]:
    trove, sets = partial(flow, "datatrove_write:jsonl"), partial(flow, "datasets_map")
    cases = []
    for fault, whole in ((WORKER, False), (WHOLE, True)):
        cases += [
            Case(
                fault,
                "datatrove",
                "LocalPipelineExecutor, 2 workers",
                partial(kill_and_rerun, trove, "out", "out", whole),
            ),
            Case(
                fault, "datasets", "map, 2 processes; to_parquet", partial(kill_and_rerun, sets, "cache", "out", whole)
            ),
        ]
    cases.append(Case(RESUMED, "datatrove", "does not claim to resume a pass", None))
    for way, name in (
        ("stream in its order, state_dict", "datasets_stream:plain"),
        ("stream, shuffle(buffer_size=1000), state_dict", "datasets_stream:shuffled"),
        ("on disk, shuffle, skip", "datasets_indexed"),
    ):
        cases.append(Case(RESUMED, "datasets", way, partial(resume_flow, name)))
    for way, form, read in (
        ("JsonlWriter (gzip); JsonlReader", "gz", "datatrove_read:gz"),
        ("JsonlWriter(compression=None); JsonlReader", "jsonl", "datatrove_read:jsonl"),
        ("ParquetWriter; ParquetReader", "parquet", "datatrove_read:parquet"),
        ("JsonlWriter(compression=None); depends=", "jsonl", "datatrove_depends"),
    ):
        cases.append(Case(HALF, "datatrove", way, partial(read_half_written, f"datatrove_write:{form}", read, True)))
    for way, form in (("to_json", "json"), ("to_parquet", "parquet"), ("save_to_disk", "arrow")):
        name = f"datasets_write:{form}"
        loaded = "load_from_disk" if form == "arrow" else "load_dataset"
        cases.append(
            Case(HALF, "datasets", f"{way}; {loaded}", partial(read_half_written, name, "datasets_read", False))
        )
    for way, form, is_text in (
        ("JsonlWriter (gzip); JsonlReader", "gz", False),
        ("JsonlWriter(compression=None); JsonlReader", "jsonl", True),
        ("ParquetWriter; ParquetReader", "parquet", False),
    ):
        strike = partial(cut_output, f"datatrove_write:{form}", f"datatrove_read:{form}", f"*.{form}", is_text)
        cases.append(Case(CUT, "datatrove", way, strike))
    for way, form, pattern in (
        ("to_json; load_dataset", "json", "*.jsonl"),
        ("to_parquet; load_dataset", "parquet", "*.parquet"),
        ("save_to_disk; load_from_disk", "arrow", "*.arrow"),
    ):
        strike = partial(cut_output, f"datasets_write:{form}", "datasets_read", pattern, form == "json")
        cases.append(Case(CUT, "datasets", way, strike))
    for fault, is_text in ((SOURCE, False), (SOURCE_LINES, True)):
        cases.append(Case(fault, "datatrove", "JsonlReader", partial(cut_source, trove, "out", is_text)))
        cases.append(Case(fault, "datasets", "load_dataset", partial(cut_source, sets, "out", is_text)))
    return cases


def own_cases() -> list[Case]:
    filtered, shards = str(FILTERED.parent), str(FILTERED / "shards")
    return [
        Case(WORKER, "corpusmill", "run, 2 workers", partial(kill_and_rerun, build, filtered, shards, False)),
        Case(WHOLE, "corpusmill", "run, 2 workers", partial(kill_and_rerun, build, filtered, shards, True)),
        Case(RESUMED, "corpusmill", "loader, shuffled, state_dict", resume_loader),
        Case(HALF, "corpusmill", "run; export", export_half_written),
        Case(CUT, "corpusmill", "run; export", cut_artifact),
        Case(SOURCE, "corpusmill", "run", partial(cut_source, build, shards, False)),
        Case(SOURCE_LINES, "corpusmill", "run", partial(cut_source, build, shards, True)),
    ]


def table(outcomes: Sequence[tuple[Case, Outcome | None]]) -> str:
    """Format a row per case, in the order of the faults."""
    rows = [f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
    faults = list(dict.fromkeys(case.fault for case in own_cases()))
    for case, outcome in sorted(outcomes, key=lambda pair: faults.index(pair[0].fault)):
        cells = outcome.cells() if outcome else ["–"] * 5
        rows.append("| " + " | ".join([case.fault, f"{case.system}: {case.way}", *cells]) + " |")
    return "\n".join(rows)


def installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def main() -> None:
    parser = argparse.ArgumentParser(description="three faults on corpusmill and two peers")
    parser.add_argument("--only", default="", help="run the cases whose system, way or fault contains this")
    options = parser.parse_args()
    started = time.monotonic()
    versions = {name: installed(name) for name in ("corpusmill", "datatrove", "datasets", "torch")}
    present = ", ".join(f"{name} {number}" for name, number in versions.items() if number and name != "torch")
    print(f"{machine_line()}\n{present}\n", flush=True)
    outcomes: list[tuple[Case, Outcome | None]] = []
    for case in own_cases() + peer_cases():
        if options.only not in f"{case.fault} {case.system}: {case.way}":
            continue
        package = "torch" if case.strike is resume_loader else case.system
        if versions[package] is None:
            print(f"left out: {case.system}, {case.way}; install {package} (the extra peers)", flush=True)
            continue
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as temporary:
            folder = Path(temporary).resolve()
            write_input(folder / "in")
            outcomes.append((case, case.strike(folder) if case.strike else None))
        print(f"{case.system}, {case.way}: {case.fault}", file=sys.stderr, flush=True)
    print(table(outcomes))
    figures = [
        {"fault": case.fault, "with": f"{case.system}: {case.way}", **_numbers(it)} for case, it in outcomes if it
    ]
    if not options.only:
        rows = [
            {"fault": case.fault, "way": case.way, **_numbers(it), "message": it.shown or "nothing"}
            for case, it in outcomes
            if it and case.system == "corpusmill"
        ]
        silent = [row for row in rows if row["message"] == "nothing" and _is_wrong(row)]
        write_result("compared", cases=len(rows), failures=len(silent), rows=rows, seconds=time.monotonic() - started)
    print(json.dumps({"benchmark": "compared", "versions": versions, "cases": figures}))


def _is_wrong(row: Mapping[str, str | int]) -> bool:
    return row["repeated"] != 0 or row["found"] != row["expected"]


def _numbers(outcome: Outcome) -> dict[str, int]:
    found = len(outcome.counts)
    return {"expected": outcome.expected, "found": found, "repeated": outcome.counts.total() - found}


if __name__ == "__main__":
    main()
