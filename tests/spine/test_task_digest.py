"""Digests of tasks: equal for equal work, different for whatever a task could read."""

import functools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_assets.spine import task_digest
from pipeline_assets.spine.staged_input import NOT_DIGESTED, StagedInput
from pipeline_assets.spine.task import Task
from pipeline_assets.spine.task_digest import task_digest as digest_of

STAGING = Path("/data/.words.building.1")


class Rules(pydantic.BaseModel):
    threshold: str = "0.8"


@dataclass(frozen=True)
class Part:
    name: str
    rows: int
    file: Path
    place: int = field(default=0, metadata=NOT_DIGESTED)


def work(part: Part, *options: object, **named: object) -> None:
    """A kernel, which no test calls."""


def other_work(part: Part, *options: object, **named: object) -> None:
    """Another kernel."""


@pytest.fixture
def part(tmp_path: Path) -> Part:
    (tmp_path / "a.txt").write_text("one two")
    return Part("a", 2, tmp_path / "a.txt")


def bound(part: Part, kernel: Callable[..., Any] = work, *options: object, **named: object) -> str | None:
    return digest_of(functools.partial(kernel, *options, **named), part, STAGING)


def test_equal_work_has_equal_digests_wherever_its_files_are(part: Part, tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_text("one two")

    assert bound(part, rules=Rules()) == bound(replace(part, file=tmp_path / "b.txt", place=7), rules=Rules())
    assert digest_of(work, part, STAGING) is not None


@pytest.mark.parametrize(
    "change",
    [
        lambda part: bound(replace(part, name="b")),
        lambda part: bound(replace(part, rows=3)),
        lambda part: bound(part, other_work),
        lambda part: bound(part, work, 1),
        lambda part: bound(part, work, "1"),
        lambda part: bound(part, work, True),
        lambda part: bound(part, work, (1, 2)),
        lambda part: bound(part, work, frozenset({1, 2})),
        lambda part: bound(part, work, {1: 2}),
        lambda part: bound(part, work, b"1"),
        lambda part: bound(part, work, None),
        lambda part: bound(part, work, Fraction(1, 2)),
        lambda part: bound(part, rules=Rules()),
        lambda part: bound(part, rules=Rules(threshold="0.9")),
        lambda part: bound(part, limits=Rules()),
    ],
)
def test_different_work_has_different_digests(change: Callable[[Part], str | None], part: Part) -> None:
    plain = bound(part)
    seen = change(part)

    assert seen is not None and seen != plain


def test_a_changed_file_changes_the_digest(part: Part) -> None:
    before = bound(part)
    part.file.write_text("one three")

    assert bound(part) != before


def test_another_program_changes_the_digest(part: Part, monkeypatch: pytest.MonkeyPatch) -> None:
    before = bound(part)
    monkeypatch.setattr(task_digest, "_versions_json", lambda: "another")

    assert bound(part) != before


def local_function() -> Callable[..., None]:
    def kernel(part: Part) -> None:
        """A function whose name says nothing of what it captures."""

    return kernel


class Scorer:
    def score(self, part: Part) -> None:
        """A method, whose object could be anything."""


@pytest.mark.parametrize(
    "argument",
    [
        STAGING / ".work" / "ranges.index",  # names other files
        Path("/nowhere"),
        Path("/"),
        np.zeros(3),
        Scorer(),
        Scorer().score,
        local_function(),
        lambda part: None,
        Part,
        iter(()),
    ],
)
def test_work_whose_input_is_not_known_has_no_digest(argument: object, part: Part) -> None:
    assert bound(part, work, argument) is None
    assert bound(part, work, [argument]) is None
    assert bound(part, work, rules={"key": argument}) is None


def test_a_file_of_the_same_build_counts_by_its_stated_hash(part: Part) -> None:
    first, second = (bound(part, work, StagedInput(STAGING / name, "ab")) for name in ("a", "b"))

    assert first == second != bound(part, work, StagedInput(STAGING / "a", "cd"))


def test_a_task_has_the_digest_of_its_kernel_and_arguments(part: Part) -> None:
    def run(task: Task) -> str | None:
        return digest_of(work, task, STAGING)

    assert run(Task.bind(work, part, 1)) == run(Task.bind(work, part, 1)) != run(Task.bind(work, part, 2))


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.binary(max_size=3),
    lambda items: st.lists(items, max_size=3).map(tuple) | st.dictionaries(st.text(max_size=2), items, max_size=3),
    max_leaves=6,
)


def typed(value: object) -> object:
    """A value that equals another only if their types are equal too, at every depth."""
    match value:
        case tuple():
            return ("tuple", *map(typed, value))
        case dict():
            return ("dict", tuple(sorted((key, repr(typed(item))) for key, item in value.items())))
    return (type(value).__name__, value)


@given(values, values)
def test_digests_are_equal_exactly_for_equal_arguments(first: object, second: object) -> None:
    def digest(value: object) -> str | None:
        return digest_of(functools.partial(work, value), None, STAGING)

    assert (digest(first) == digest(second)) == (typed(first) == typed(second))
