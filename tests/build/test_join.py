"""Processes that share a recipe build each artifact once, at the same time."""

import contextlib
import functools
import json
import logging
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline_assets.build import join
from pipeline_assets.build.builders import Job, file_builder, input_builder
from pipeline_assets.build.checks import FILES_CHECK, context_check
from pipeline_assets.build.join import join_targets
from pipeline_assets.build.run import Run
from pipeline_assets.build.run_targets import run_targets
from pipeline_assets.build.target import Kind, Target
from pipeline_assets.spine.artifact import Artifact, Verdict, read_check_results
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.spine.errors import InputError, RetryableError
from pipeline_assets.spine.lock import locked
from pipeline_assets.spine.lock_owner import lock_owner
from pipeline_assets.spine.manifest import StageVersion
from pipeline_assets.spine.sealed_folder import require_manifest

SOURCES = [f"s{number}" for number in range(6)]
PATIENCE_S = 30.0
Action = Callable[["Parts", str], None]


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)


class Parts:
    """Recipe of a pin, five parts and their sum, whose builds and checks leave marks.

    A pin is described before its lock is acquired, which may hash many files; an outer lock lets one process do so.
    """

    def __init__(self, folder: Path, before_seal: Action = lambda parts, name: None, passes: bool = True) -> None:
        self.root, self._marks, self._before_seal = folder / "data", folder / "marks", before_seal
        self._marks.mkdir(exist_ok=True)

        def is_small(artifact: Artifact, target: Target, root: Path) -> Verdict:
            """Check that the part is small."""
            self._mark("checked", target.name)
            return Verdict(passes, "as expected")

        checks = (FILES_CHECK, context_check(is_small))
        pin, part, total = (
            Kind(f"parts/{name}", StageVersion(name, 1), builder, name, checks=checks)
            for name, builder in (
                ("pin", input_builder(self._describe)),
                ("part", file_builder(self._build)),
                ("total", file_builder(self._build)),
            )
        )
        kinds = [pin, *[part] * (len(SOURCES) - 1)]
        parts = [kind.target("parts", {}, partition=name) for kind, name in zip(kinds, SOURCES, strict=True)]
        self.targets = [*parts, total.target("parts", {}, parts)]

    def _describe(self, target: Target, run: Run) -> BuildResult:
        self._mark("built", target.name)
        self._before_seal(self, target.name)
        return BuildResult([], {}, {})

    def _build(self, job: Job) -> BuildResult:
        described = self._describe(job.target, job.run)
        return replace(described, files=[job.staging.write("text", job.target.name.encode())])

    def _mark(self, verb: str, name: str) -> None:
        (self._marks / f"{verb} {name.replace('/', ' ')} {os.getpid()}").touch()

    def marks(self, verb: str) -> list[tuple[str, int]]:
        """Name and process of every build, or of every check, sorted."""
        fields = [path.name.split(" ") for path in self._marks.iterdir()]
        return sorted((" ".join(name), int(pid)) for prefix, *name, pid in fields if prefix == verb)

    def join(self) -> list[str]:
        outcomes = join_targets(self.targets, Run(self.root, RunSettings(0)))
        return [outcome.target.name for outcome in outcomes if not outcome.was_current]


class Joiner:
    """A forked process that joins; `end` returns the built names or the error line."""

    def __init__(self, parts: Parts, out: Path) -> None:
        self._out, self.pid = out, os.fork()
        if self.pid == 0:
            try:
                out.write_text(json.dumps(parts.join()))
            except InputError as error:
                out.write_text(json.dumps(str(error)))
            finally:
                os._exit(0)

    def end(self) -> list[str] | str:
        wait_until(lambda: os.waitpid(self.pid, os.WNOHANG) != (0, 0))
        answer: list[str] | str = json.loads(self._out.read_text())
        return answer


@pytest.fixture
def joined(tmp_path: Path) -> Iterator[Callable[[Parts, int], list[Joiner]]]:
    started: list[Joiner] = []

    def start(parts: Parts, count: int) -> list[Joiner]:
        started.extend(Joiner(parts, tmp_path / f"out{len(started)}") for _ in range(count))
        return started[-count:]

    yield start
    for joiner in started:
        try:
            os.kill(joiner.pid, signal.SIGKILL)
            os.waitpid(joiner.pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass


Start = Callable[[Parts, int], Sequence[Joiner]]
NAMES = sorted([*(f"parts/{name}" for name in SOURCES), "parts"])


def meet(count: int) -> Action:
    """Wait within the first builds until `count` processes build at the same time."""
    return lambda parts, name: wait_until(lambda: len({pid for _, pid in parts.marks("built")}) >= count)


def test_each_artifact_is_built_and_checked_once_and_the_work_overlaps(tmp_path: Path, joined: Start) -> None:
    parts = Parts(tmp_path, meet(3))

    answers = [joiner.end() for joiner in joined(parts, 3)]

    assert sorted(name for answer in answers for name in answer) == NAMES
    built, checked = (parts.marks(verb) for verb in ("built", "checked"))
    assert [name for name, _ in built] == [name.replace("/", " ") for name in NAMES]
    assert checked == built  # by the process that sealed it
    assert {require_manifest(parts.root / target.folder).provenance["builder"] for target in parts.targets} == {1}


def test_more_processes_than_artifacts_all_succeed(tmp_path: Path, joined: Start) -> None:
    parts = Parts(tmp_path)

    answers = [joiner.end() for joiner in joined(parts, 9)]

    assert sorted(name for answer in answers for name in answer) == NAMES
    assert len(parts.marks("built")) == len(parts.marks("checked")) == len(NAMES)


def test_the_artifact_of_a_killed_process_is_built_by_another(tmp_path: Path, joined: Start) -> None:
    parts = Parts(tmp_path, lambda parts, name: signal.pause() if os.getpid() in victims(parts) else None)
    [victim] = joined(parts, 1)
    (tmp_path / f"victim {victim.pid}").touch()
    wait_until(lambda: bool(parts.marks("built")))
    survivors = joined(parts, 2)
    wait_until(lambda: len(parts.marks("built")) == len(SOURCES))
    os.kill(victim.pid, signal.SIGKILL)

    answers = [joiner.end() for joiner in survivors]

    [(lost, _)] = [mark for mark in parts.marks("built") if mark[1] == victim.pid]
    assert sorted(name for answer in answers for name in answer) == NAMES
    assert sum(name == lost for name, _ in parts.marks("built")) == 2


def victims(parts: Parts) -> list[int]:
    wait_until(lambda: any(parts.root.parent.glob("victim *")))
    return [int(path.name.split(" ")[1]) for path in parts.root.parent.glob("victim *")]


def test_failing_artifact_is_tried_once_by_each_process(tmp_path: Path, joined: Start) -> None:
    def fail(parts: Parts, name: str) -> None:
        if name == "parts/s3":
            raise InputError("no text", name, "add some")

    parts = Parts(tmp_path, fail)

    answers = [joiner.end() for joiner in joined(parts, 3)]

    assert answers == ["parts/s3: no text; add some"] * 3
    assert sum(name == "parts s3" for name, _ in parts.marks("built")) == 3


def test_a_failure_of_one_machine_stops_only_that_machine(tmp_path: Path, joined: Start) -> None:
    def fail_first(parts: Parts, name: str) -> None:
        if name == "parts/s3" and sum(built == "parts s3" for built, _ in parts.marks("built")) == 1:
            raise InputError("the scratch disk is full", name, "free some space")

    parts = Parts(tmp_path, fail_first)

    answers = [joiner.end() for joiner in joined(parts, 2)]

    assert sum(isinstance(answer, str) for answer in answers) == 1
    assert all(target.is_up_to_date(parts.root) for target in parts.targets)


def test_a_failed_check_of_another_process_ends_each_process(tmp_path: Path, joined: Start) -> None:
    parts = Parts(tmp_path, passes=False)

    answers = [joiner.end() for joiner in joined(parts, 2)]

    assert all("is_small failed: as expected; downstream artifacts are not built" in answer for answer in answers)
    assert not (parts.root / parts.targets[-1].folder).exists()


def test_the_checks_of_a_process_that_died_after_its_seal_are_run_by_the_next(tmp_path: Path) -> None:
    parts, run = Parts(tmp_path), Run(tmp_path / "data", RunSettings(0))
    first = parts.targets[1]
    sealed = first.kind.build(first, run)

    assert sorted(parts.join()) == sorted(set(NAMES) - {first.name})

    assert [name for name, _ in parts.marks("checked")].count("parts s1") == 1
    assert read_check_results(sealed.folder, sealed.manifest.digest) is not None


def test_a_target_that_a_plain_run_builds_is_skipped_until_its_lock_is_free(tmp_path: Path, joined: Start) -> None:
    parts = Parts(tmp_path)
    busy = parts.root / parts.targets[2].folder
    with locked(busy):
        [joiner] = joined(parts, 1)
        wait_until(lambda: len(parts.marks("checked")) == len(SOURCES) - 1)
        assert parts.marks("built") == parts.marks("checked")
        assert lock_owner(busy) is not None

    assert sorted(joiner.end()) == NAMES


@pytest.mark.parametrize(("count", "end"), [(1, ")"), (2, "), and 1 more"), (3, "), and 2 more")])
def test_waiting_process_names_one_artifact_and_counts_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, count: int, end: str
) -> None:
    parts = Parts(tmp_path)
    caplog.set_level(logging.INFO, "corpusmill")
    parts.join()
    waiting = parts.targets[1 : 1 + count]
    run = Run(parts.root, RunSettings(0, log_every_s=0.0))
    for target in waiting:
        shutil.rmtree(parts.root / target.folder)

    with contextlib.ExitStack() as locks:
        for target in waiting:
            locks.enter_context(locked(parts.root / target.folder))
        joining = threading.Thread(target=lambda: list(join_targets(parts.targets, run)), daemon=True)
        joining.start()
        wait_until(lambda: any(line.startswith("waiting: ") for line in caplog.messages))
    joining.join(PATIENCE_S)

    [first, *_] = [line for line in caplog.messages if line.startswith("waiting: ")]
    assert first.endswith(end)


def test_build_that_waited_for_another_process_built_nothing(
    tmp_path: Path, joined: Start, caplog: pytest.LogCaptureFixture
) -> None:
    parts = Parts(tmp_path, lambda parts, name: wait_until((tmp_path / "go").exists) if name != "parts/s0" else None)
    caplog.set_level(logging.INFO, "corpusmill")
    joined(parts, 1)
    wait_until(lambda: any(name != "parts s0" for name, _ in parts.marks("built")))
    [busy] = [name for name, _ in parts.marks("built") if name != "parts s0"]
    [target] = [target for target in parts.targets if target.name.replace("/", " ") == busy]

    def release() -> None:
        wait_until(lambda: any(line.startswith("waiting: ") for line in caplog.messages))
        (tmp_path / "go").touch()

    threading.Thread(target=release, daemon=True).start()
    [outcome] = run_targets([target], Run(parts.root, RunSettings(0), wait_s=PATIENCE_S))

    assert outcome.was_current
    assert [name for name, _ in parts.marks("built")].count(busy) == 1


def test_single_process_builds_everything_once(tmp_path: Path) -> None:
    parts = Parts(tmp_path)

    assert (sorted(parts.join()), parts.join()) == (NAMES, [])


def test_machine_local_locks_are_refused_before_any_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk, mounts, parts = tmp_path.stat().st_dev, tmp_path / "mountinfo", Parts(tmp_path)
    mounts.write_text(f"62 28 {os.major(disk)}:{os.minor(disk)} / / rw shared:33 - nfs filer:/export rw,nolock\n")
    monkeypatch.setattr(
        join, "raise_if_locks_are_local", functools.partial(join.raise_if_locks_are_local, mountinfo=mounts)
    )

    with pytest.raises(RetryableError, match="because of the mount option nolock"):
        parts.join()

    assert parts.marks("built") == []
