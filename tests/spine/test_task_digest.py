"""Equal tasks have equal digests; anything that a task can read changes them."""

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
from pipeline_assets.spine.task_digest import task_digest as compute_digest

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
    """Kernel that no test calls."""


def other_work(part: Part, *options: object, **named: object) -> None:
    """Another kernel that no test calls."""


@pytest.fixture
def part(tmp_path: Path) -> Part:
    (tmp_path / "a.txt").write_text("one two")
    return Part("a", 2, tmp_path / "a.txt")


def digest(part: Part, kernel: Callable[..., Any] = work, *options: object, **named: object) -> str | None:
    return compute_digest(functools.partial(kernel, *options, **named), part, STAGING)


def test_equal_work_has_equal_digests_for_files_in_any_folder(part: Part, tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_text("one two")

    assert digest(part, rules=Rules()) == digest(replace(part, file=tmp_path / "b.txt", place=7), rules=Rules())
    assert compute_digest(work, part, STAGING) is not None


@pytest.mark.parametrize(
    "change",
    [
        lambda part: digest(replace(part, name="b")),
        lambda part: digest(replace(part, rows=3)),
        lambda part: digest(part, other_work),
        lambda part: digest(part, work, 1),
        lambda part: digest(part, work, "1"),
        lambda part: digest(part, work, True),
        lambda part: digest(part, work, (1, 2)),
        lambda part: digest(part, work, frozenset({1, 2})),
        lambda part: digest(part, work, {1: 2}),
        lambda part: digest(part, work, b"1"),
        lambda part: digest(part, work, None),
        lambda part: digest(part, work, Fraction(1, 2)),
        lambda part: digest(part, rules=Rules()),
        lambda part: digest(part, rules=Rules(threshold="0.9")),
        lambda part: digest(part, limits=Rules()),
    ],
)
def test_different_work_has_different_digests(change: Callable[[Part], str | None], part: Part) -> None:
    plain = digest(part)
    changed = change(part)

    assert changed is not None and changed != plain


def test_changed_file_changes_the_digest(part: Part) -> None:
    before = digest(part)
    part.file.write_text("one three")

    assert digest(part) != before


def test_another_program_changes_the_digest(part: Part, monkeypatch: pytest.MonkeyPatch) -> None:
    before = digest(part)
    monkeypatch.setattr(task_digest, "_versions_json", lambda: "another")

    assert digest(part) != before


def build_local_function() -> Callable[..., None]:
    def kernel(part: Part) -> None:
        """Kernel whose name does not identify its captured values."""

    return kernel


class Scorer:
    def score(self, part: Part) -> None:
        """Kernel whose object can be anything."""


@pytest.mark.parametrize(
    "argument",
    [
        STAGING / ".work" / "ranges.index",  # names other files
        Path("/nowhere"),
        Path("/"),
        np.zeros(3),
        Scorer(),
        Scorer().score,
        build_local_function(),
        lambda part: None,
        Part,
        iter(()),
    ],
)
def test_work_with_unknown_inputs_has_no_digest(argument: object, part: Part) -> None:
    assert digest(part, work, argument) is None
    assert digest(part, work, [argument]) is None
    assert digest(part, work, rules={"key": argument}) is None


def test_staged_input_is_digested_by_its_stated_hash(part: Part) -> None:
    first, second = (digest(part, work, StagedInput(STAGING / name, "ab")) for name in ("a", "b"))

    assert first == second != digest(part, work, StagedInput(STAGING / "a", "cd"))


def test_digest_of_a_task_covers_its_kernel_and_arguments(part: Part) -> None:
    def run(task: Task) -> str | None:
        return compute_digest(work, task, STAGING)

    assert run(Task.bind(work, part, 1)) == run(Task.bind(work, part, 1)) != run(Task.bind(work, part, 2))


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.binary(max_size=3),
    lambda items: st.lists(items, max_size=3).map(tuple) | st.dictionaries(st.text(max_size=2), items, max_size=3),
    max_leaves=6,
)


def add_types(value: object) -> object:
    """Add the type to a value at every depth, so that equal values have equal types."""
    match value:
        case tuple():
            return ("tuple", *map(add_types, value))
        case dict():
            return ("dict", tuple(sorted((key, repr(add_types(item))) for key, item in value.items())))
    return (type(value).__name__, value)


@given(values, values)
def test_digests_are_equal_only_for_equal_arguments(first: object, second: object) -> None:
    def argument_digest(value: object) -> str | None:
        return compute_digest(functools.partial(work, value), None, STAGING)

    assert (argument_digest(first) == argument_digest(second)) == (add_types(first) == add_types(second))
