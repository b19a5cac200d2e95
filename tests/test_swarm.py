"""Swarm: workloads of all systems under faults, and their independent auditor.

`make soak` runs thousands of seeds; these tests run a few, and catch each of five planted bugs.
"""

import ast
import dataclasses
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import swarm
import swarm_auditor
from disk_faults import DiskFault
from swarm_auditor import Answer, Facts, differences, named_path, wrong_answer, wrong_artifacts
from swarm_run import FAULTS, Swarm
from swarm_workload import SYSTEMS, generate

SEEDS = int(os.environ.get("CORPUSMILL_TEST_SEEDS", "8"))


@dataclasses.dataclass(frozen=True)
class Planted:
    """Bug of `planted_bugs`, the faults that reveal it, and the first such seed."""

    bug: str
    faults: tuple[str, ...]
    first_seed: int


PLANTED = [
    Planted("no_sync_before_rename", ("power loss",), 180),
    Planted("no_read_back", ("torn write", "lost write"), 180),
    Planted("trust_receipts", ("kill and rot",), 153),
    Planted("collect_a_live_upstream", ("clock jump",), 1050),
    Planted("replace_without_exchange", ("kill",), 600),
]


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Swarm]:
    running = Swarm(tmp_path_factory.mktemp("swarm") / "work")
    yield running
    running.stop()


@pytest.mark.slow
@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.bug)
def test_a_planted_bug_is_caught_by_one_of_three_seeds(planted: Planted, runner: Swarm) -> None:
    seeds, runner.faults = range(planted.first_seed, planted.first_seed + 3), planted.faults
    runner.bug = f"planted_bugs:{planted.bug}"
    caught = next((seed for seed in seeds if runner.run(seed).wrong), None)
    runner.bug = None

    assert caught is not None
    assert runner.run(caught).wrong == []


@pytest.mark.slow
def test_seeds_end_in_equal_bytes_or_an_error(runner: Swarm) -> None:
    runner.faults, runner.bug = FAULTS, None

    results = [runner.run(seed) for seed in range(80, 80 + SEEDS)]

    assert {result.seed: result.wrong for result in results if result.wrong} == {}
    assert any(fault.fired for result in results for fault in result.faults)


# The auditor


def test_the_auditor_imports_nothing_of_the_project() -> None:
    tree = ast.parse(Path(swarm_auditor.__file__).read_text())

    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    imported |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}

    assert imported == {
        *("dataclasses", "hashlib", "json", "pathlib", "re", "typing"),
        *("numpy", "pyarrow.parquet", "zstandard"),
    }


@pytest.mark.parametrize(
    ("result", "wrong"),
    [
        (Answer(0, "built", ""), []),
        (Answer(1, "", "corpusmill: /a/b: the file is missing; run it again\n"), []),
        (Answer(None, "", ""), ["it hangs"]),
        (Answer(-9, "", ""), ["exit status -9"]),
        (Answer(1, "", "Traceback (most recent call last):\nKeyError: 1\n"), ["a traceback: KeyError: 1"]),
        (Answer(1, "", ""), ["exit status 1 with 0 lines: ''"]),
        (
            Answer(1, "", "corpusmill: it failed\n"),
            ["the line does not say where, what and fix: corpusmill: it failed"],
        ),
    ],
)
def test_a_result_is_a_success_or_one_line_with_where_what_and_fix(result: Answer, wrong: list[str]) -> None:
    assert wrong_answer(result, may_die=False, is_verdict=False) == wrong


def test_an_interrupted_run_leaves_the_earlier_or_the_new_artifact() -> None:
    before, after = ({"a": {"digest": name}, "kept": {"digest": "1"}} for name in ("old", "new"))

    def wrong(**artifacts: Mapping[str, str]) -> list[str]:
        return wrong_artifacts(Facts(dict(artifacts), {}), Facts(before, {}), Facts(after, {}))

    kept = {"digest": "1"}
    assert wrong(a={"digest": "old"}, kept=kept) == wrong(a={"digest": "new"}, kept=kept) == []
    assert wrong(a={"digest": "third"}, kept=kept) == ["a: the artifact is neither the earlier nor the new one"]
    assert wrong(kept=kept) == ["a: the artifact is lost"]
    assert wrong(a={"digest": "new"}, kept=kept, **{"data/rebuilds/x/a": {"digest": "old"}}) == []
    third = "data/rebuilds/x/a: the artifact is neither the earlier nor the new one"
    assert wrong(a={"digest": "new"}, kept=kept, **{"data/rebuilds/x/a": {"digest": "third"}}) == [third]


def test_only_an_equal_copy_of_an_earlier_rebuild_may_remain() -> None:
    sealed = Facts({"a": {"digest": "1"}}, {"a/manifest.json": "a manifest"})

    def differing(digest: str, existed: bool) -> list[str]:
        folder = "data/rebuilds/x/a"
        copy = Facts(sealed.artifacts | {folder: {"digest": digest}}, sealed.rest | {f"{folder}/f": "2"})
        return differences(copy, sealed, kept=copy if existed else sealed)

    errors = ["data/rebuilds/x/a: the artifact should not exist", "data/rebuilds/x/a/f: left over"]
    assert (differing("1", True), differing("1", False), differing("2", True)) == ([], errors, errors)


@pytest.mark.parametrize(
    ("line", "path"),
    [
        ("corpusmill: /r/a: sha256 differs; remove /r/a, and run its recipe again", "/r/a"),
        ("corpusmill: /r/a: not a valid plan; delete it, then run the same command", "/r/a"),
        ("corpusmill: /r/a: f: damaged: remove the folder, and run its recipe again; later ones wait", "/r/a"),
        ("corpusmill: /r/a: no space is left; free some space", None),
    ],
)
def test_a_fix_that_names_a_path_is_followed(line: str, path: str | None) -> None:
    assert named_path(line) == path


# The faults


_WORK = """
import sys
from pathlib import Path
from disk_faults import arm
from pipeline_assets.spine import durable
fault, at, folder, log = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4]
arm(fault, at, str(folder), [], log)
durable.write_durably(folder / "first", b"1" * 1000)
with durable.DurableFile(folder / "file") as file:
    durable.DurableFile._read_back = lambda file: None
    file.write(b"2" * 1000)
    file.write(b"3" * 1000)
durable.write_durably(folder / "first", b"4" * 1000)
one, two = (folder / "first").read_text(), (folder / "first").read_text()
print(one[0] + two[0], sum(a != b for a, b in zip(one, two)), end="")
"""


def run_under_fault(folder: Path, fault: DiskFault, at: int) -> tuple[int, str, bytes]:
    """Run a program under a fault; return its status, output and second file."""
    for name in ("data", "log"):
        (folder / name).mkdir(parents=True)
    arguments = [fault, str(at), folder / "data", folder / "log"]
    path = os.pathsep.join([str(Path(__file__).parents[1]), str(Path(__file__).parent / "harness")])
    result = subprocess.run(
        [sys.executable, "-c", _WORK, *arguments],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        start_new_session=True,
    )
    assert (folder / "log" / "fired").exists()
    file = folder / "data" / "file"
    return result.returncode, result.stdout or result.stderr[-600:], file.read_bytes() if file.exists() else b""


def test_silent_faults_of_writes_report_success(tmp_path: Path) -> None:
    torn, lost = (run_under_fault(tmp_path / fault, fault, 2) for fault in (DiskFault.TORN_WRITE, DiskFault.LOST_WRITE))

    assert torn == (0, "44 0", b"2" * 500 + b"\0" * 500 + b"3" * 1000)
    assert lost == (0, "44 0", b"\0" * 1000 + b"3" * 1000)


def test_faults_of_reads_change_one_read(tmp_path: Path) -> None:
    _, stale, _ = run_under_fault(tmp_path / "stale", DiskFault.STALE_READ, 2)
    _, rotten, _ = run_under_fault(tmp_path / "rotten", DiskFault.ROT_ON_READ, 2)

    assert stale == "14 1000"
    assert rotten == "44 1"


def test_disk_errors_are_raised_and_a_kill_kills(tmp_path: Path) -> None:
    assert "No space left on device" in run_under_fault(tmp_path / "full", DiskFault.ENOSPC, 3)[1]
    assert "Input/output error" in run_under_fault(tmp_path / "broken", DiskFault.EIO_ON_READ, 2)[1]
    assert run_under_fault(tmp_path / "killed", DiskFault.KILL, 9)[0] == -9


# The generator and the table


def test_workloads_depend_on_their_seed_and_cover_all_systems_and_commands() -> None:
    workloads = [generate(seed) for seed in range(400)]

    assert workloads == [generate(seed) for seed in range(400)]
    assert {workload.system for workload in workloads} == set(SYSTEMS)
    verbs = {"run", "replace", "gc", "push", "pull", "publish", "verify", "rebuild", "trace"}
    assert {workload.verb for workload in workloads} == verbs


def test_the_table_shows_the_share_of_seeds_that_a_fault_struck() -> None:
    def result(seed: int, fired: str, state: str) -> dict[str, object]:
        armed = [{"fault": "kill", "at": 1, "fired": fired}, {"fault": "EIO on read", "at": 1, "fired": ""}]
        return {"seed": seed, "state": state, "system": "healing", "verb": "run", "faults": armed, "seconds": 2.0}

    counted = swarm.summary([*[result(1, "x", "equal")] * 8, result(2, "x", "refused"), result(3, "", "FAILED")])

    assert "kill                   10      9    90%      8        1       1" in list(swarm.table(counted))
    assert swarm.idle_faults(counted) == ["EIO on read struck in 0% of its seeds"]
