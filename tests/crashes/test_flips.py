"""A flipped bit of what a build reads, or of what a killed build left: see `flip_proof`.

Three seeded flips of each case run always; benchmarks/flips.py makes a thousand, and prints a table.
"""

import random
from pathlib import Path

import pytest
from crash_cases import Case, Sources
from flip_proof import FLIP_CASES, FlipProof


@pytest.mark.parametrize("case", FLIP_CASES, ids=str)
def test_after_a_flipped_bit_the_digest_is_the_honest_one_or_a_line_names_the_file(
    case: Case, sources: Sources, scratch: Path
) -> None:
    proof, dice = FlipProof(case, sources, scratch / "case"), random.Random(str(case))

    outcomes = [proof.run(dice) for _ in range(2)]

    assert [outcome for outcome in outcomes if outcome.wrong is not None] == []
