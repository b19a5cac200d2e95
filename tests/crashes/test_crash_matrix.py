"""Kills before every step on the disk, for all cases of `crash_cases`.

A resumed run must end with the same files; see `crash_proof`. A seeded point of each small case runs always, more
points of all cases under `slow`, all points under `proof`. benchmarks/crashes.py prints the same as a table.
"""

import os
import random
import sys
from pathlib import Path
from typing import get_args

import pytest
from crash_cases import CASES, INLINE, SMALL_NAMES, Case, Sources
from crash_points import count_steps, list_steps
from crash_proof import Proof

from pipeline_assets.spine import durable

ALONE = [case for case in CASES if case.engine is INLINE]
QUICK = [case for case in CASES if case.stride == 1 and case.name.startswith(SMALL_NAMES)]
QUICK = [case for case in QUICK if case.engine is INLINE or case.name == "words: build"]
# Steps of each operation that Python audits; an existing file may be opened to append to it.
STEPS = {
    "open": {"create", "append"},
    "os.rename": {"rename"},
    "os.link": {"link"},
    "os.mkdir": {"mkdir"},
    "os.remove": {"unlink"},
    "os.rmdir": {"rmdir"},
    "os.chmod": {"chmod"},
    "os.truncate": set(),
    "os.symlink": set(),
}


@pytest.mark.parametrize("case", QUICK, ids=str)
def test_runs_killed_at_seeded_points_resume_to_the_same_files(case: Case, sources: Sources, scratch: Path) -> None:
    proof, dice = Proof(case, sources, scratch / "case"), random.Random(str(case))

    outcome = proof.run(proof.some_point(dice))

    assert outcome.wrong == []


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=str)
def test_runs_killed_at_more_seeded_points_resume_equally(case: Case, sources: Sources, scratch: Path) -> None:
    proof, dice = Proof(case, sources, scratch / "case"), random.Random(f"more of {case}")

    outcomes = [proof.run(proof.some_point(dice)) for _ in range(4)]

    assert [outcome.wrong for outcome in outcomes] == [[]] * 4
    assert any(outcome.killed_before for outcome in outcomes)


@pytest.mark.proof
@pytest.mark.parametrize("case", CASES, ids=str)
def test_runs_killed_at_any_point_resume_to_the_same_files(case: Case, sources: Sources, scratch: Path) -> None:
    proof = Proof(case, sources, scratch / "case")

    outcomes = {point: proof.run(point) for point in proof.points()[:: case.stride]}

    assert {point: outcome for point, outcome in outcomes.items() if outcome.wrong} == {}
    killed = sum(outcome.killed_before is not None for outcome in outcomes.values())
    is_in_order = case.engine is INLINE and case.name != "fetch"  # its threads read ahead, or miss the point
    assert killed == len(outcomes) if is_in_order else killed > 0.9 * len(outcomes)


@pytest.mark.slow
@pytest.mark.parametrize("case", ALONE, ids=str)
def test_every_operation_on_the_disk_is_a_registered_step(case: Case, sources: Sources, scratch: Path) -> None:
    Proof(case, sources, scratch / "case")
    start = scratch / "case" / "start"

    def run_watched() -> None:
        unregistered = watch_unregistered_operations(start)
        case.work(sources, start, INLINE)
        assert unregistered == []

    assert count_steps(run_watched) > 0


def watch_unregistered_operations(folder: Path) -> list[str]:
    """Watch this process; return the list of changes in the folder that are not steps."""
    unregistered: list[str] = []
    last_step: tuple[str, str] = ("", "")
    previous = durable.failpoint

    def step(kind: durable.Operation, path: Path) -> None:
        nonlocal last_step
        last_step = kind, str(path)
        if previous is not None:
            previous(kind, path)

    def audit(event: str, arguments: tuple[object, ...]) -> None:
        if event not in STEPS or (event == "open" and not is_writing(arguments)):
            return
        path = str(arguments[1] if event in ("os.rename", "os.link") else arguments[0])
        if path.startswith(str(folder)) and not (last_step[0] in STEPS[event] and last_step[1] == path):
            unregistered.append(f"{event} of {path} after {last_step[0]} of {last_step[1]}")

    durable.failpoint = step
    sys.addaudithook(audit)
    return unregistered


def is_writing(arguments: tuple[object, ...]) -> bool:
    flags = arguments[2]
    return isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC))


@pytest.mark.slow
def test_the_cases_have_every_kind_of_step(sources: Sources, scratch: Path) -> None:
    kinds = set()
    for case in ALONE:
        Proof(case, sources, scratch / case.name)
        start = scratch / case.name / "start"
        kinds |= {kind for kind, _ in list_steps(lambda case=case, start=start: case.work(sources, start, INLINE))}

    assert kinds == set(get_args(durable.Operation))


def test_an_unregistered_operation_is_detected(tmp_path: Path) -> None:
    def run_watched() -> None:
        unregistered = watch_unregistered_operations(tmp_path)
        durable.write_durably(tmp_path / "stepped", b"")
        (tmp_path / "around").mkdir()
        assert unregistered == [f"os.mkdir of {tmp_path / 'around'} after fsync of {tmp_path}"]

    assert count_steps(run_watched) == 5
