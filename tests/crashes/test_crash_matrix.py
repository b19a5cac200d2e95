"""kill -9 before every step on the disk, of every case of `crash_cases`, and on from there: see `crash_proof`.

A seeded point of each case runs always, more under `slow`, all points under `proof`. benchmarks/crashes.py prints the
same as a table.
"""

import os
import random
import sys
from pathlib import Path
from typing import get_args

import pytest
from crash_cases import CASES, INLINE, Case, Sources
from crash_points import count_steps, steps_of
from crash_proof import Proof

from pipeline_assets.spine import durable

ALONE = [case for case in CASES if case.engine is INLINE]
QUICK = [case for case in CASES if case.stride == 1]
# What each operation that Python audits is called as a step; a file that is there may be opened to go on writing.
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
def test_killed_at_seeded_points_it_goes_on_to_the_same_files(case: Case, sources: Sources, scratch: Path) -> None:
    proof, dice = Proof(case, sources, scratch / "case"), random.Random(str(case))

    outcome = proof.run(proof.some_point(dice))

    assert outcome.wrong == []


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=str)
def test_killed_at_more_seeded_points_it_does_too(case: Case, sources: Sources, scratch: Path) -> None:
    proof, dice = Proof(case, sources, scratch / "case"), random.Random(f"more of {case}")

    outcomes = [proof.run(proof.some_point(dice)) for _ in range(4)]

    assert [outcome.wrong for outcome in outcomes] == [[]] * 4
    assert any(outcome.killed_before for outcome in outcomes)


@pytest.mark.proof
@pytest.mark.parametrize("case", CASES, ids=str)
def test_killed_at_any_point_it_goes_on_to_the_same_files(case: Case, sources: Sources, scratch: Path) -> None:
    proof = Proof(case, sources, scratch / "case")

    outcomes = {point: proof.run(point) for point in proof.points()[:: case.stride]}

    assert {point: outcome for point, outcome in outcomes.items() if outcome.wrong} == {}
    killed = sum(outcome.killed_before is not None for outcome in outcomes.values())
    is_in_order = case.engine is INLINE and case.name != "fetch"  # whose threads read ahead, or don't get to it
    assert killed == len(outcomes) if is_in_order else killed > 0.9 * len(outcomes)


@pytest.mark.parametrize("case", ALONE, ids=str)
def test_no_operation_on_the_disk_goes_around_the_steps(case: Case, sources: Sources, scratch: Path) -> None:
    Proof(case, sources, scratch / "case")
    start = scratch / "case" / "start"

    def watched() -> None:
        around = operations_around_the_steps(start)
        case.work(sources, start, INLINE)
        assert around == []

    assert count_steps(watched) > 0


def operations_around_the_steps(folder: Path) -> list[str]:
    """From now on in this process: what changes the folder without being the last step."""
    around: list[str] = []
    last: tuple[str, str] = ("", "")
    counting = durable.failpoint

    def step(kind: durable.Operation, path: Path) -> None:
        nonlocal last
        last = kind, str(path)
        if counting is not None:
            counting(kind, path)

    def audit(event: str, arguments: tuple[object, ...]) -> None:
        if event not in STEPS or (event == "open" and not is_writing(arguments)):
            return
        path = str(arguments[1] if event in ("os.rename", "os.link") else arguments[0])
        if path.startswith(str(folder)) and not (last[0] in STEPS[event] and last[1] == path):
            around.append(f"{event} of {path} after {last[0]} of {last[1]}")

    durable.failpoint = step
    sys.addaudithook(audit)
    return around


def is_writing(arguments: tuple[object, ...]) -> bool:
    flags = arguments[2]
    return isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC))


def test_the_cases_take_every_kind_of_step(sources: Sources, scratch: Path) -> None:
    kinds = set()
    for case in ALONE:
        Proof(case, sources, scratch / case.name)
        start = scratch / case.name / "start"
        kinds |= {kind for kind, _ in steps_of(lambda case=case, start=start: case.work(sources, start, INLINE))}

    assert kinds == set(get_args(durable.Operation))


def test_an_operation_around_the_steps_is_found(tmp_path: Path) -> None:
    def watched() -> None:
        around = operations_around_the_steps(tmp_path)
        durable.write_durably(tmp_path / "stepped", b"")
        (tmp_path / "around").mkdir()
        assert around == [f"os.mkdir of {tmp_path / 'around'} after fsync of {tmp_path}"]

    assert count_steps(watched) == 5
