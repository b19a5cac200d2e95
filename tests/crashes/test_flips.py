"""Flipped bits in inputs of a build and in leftovers of a killed one.

See `flip_proof`. Seeded flips of every third case run always, of all cases under `slow`. benchmarks/flips.py makes a
thousand, and prints a table.
"""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from crash_cases import Case, Sources, open_sources, without_git
from flip_proof import FLIP_CASES, FlipProof


@pytest.fixture(scope="module")
def sources() -> Iterator[Sources]:
    """Open sources for these tests alone, which flip bits in any of their files."""
    with without_git(), open_sources() as sources:
        yield sources


@pytest.mark.parametrize(
    "case",
    [case if number % 3 == 0 else pytest.param(case, marks=pytest.mark.slow) for number, case in enumerate(FLIP_CASES)],
    ids=str,
)
def test_a_flipped_bit_changes_no_digest_or_is_reported_with_its_file(
    case: Case, sources: Sources, scratch: Path
) -> None:
    proof, dice = FlipProof(case, sources, scratch / "case"), random.Random(str(case))

    outcomes = [proof.run(dice) for _ in range(2)]

    assert [outcome for outcome in outcomes if outcome.wrong is not None] == []
