"""Documents that are far larger than the others of their source.

They are found while they are written, and shown to the user.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from stage_a_build import INLINE, build, local_source, recipe_of

from pipeline_assets.corpus.document_sizes import DocumentSizes, describe_outsized_document
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.systems.checks import no_document_is_outsized

Built = Callable[..., dict[str, Artifact]]


@pytest.fixture
def built(tmp_path: Path) -> Built:
    def run(texts: list[str], **changes: object) -> dict[str, Artifact]:
        section = local_source(tmp_path, "notes", [{"text": text, "key": f"n-{n}"} for n, text in enumerate(texts)])
        return build(recipe_of(section, **changes), tmp_path / "data", None, INLINE)

    return run


@pytest.mark.parametrize(
    ("large", "other", "holds"),
    [(1_000_001, 9_000, False), (1_000_000, 9_000, True), (1_000_001, 11_000, True), (3_000_000, 29_000, False)],
)
def test_a_document_above_1_mb_and_100_medians_fails_a_check(built: Built, large: int, other: int, holds: bool) -> None:
    texts = [f"{number:05d}".ljust(other, "x") for number in range(9)]

    made = built([*texts, "y" * large], outputs={"up_to": "normalized"})
    [normalized] = [one for role, one in made.items() if role.startswith("stage_a/normal")]

    verdict = no_document_is_outsized(normalized)
    assert verdict.passed == holds
    if not holds:
        assert f"n-9 (rows.jsonl, {large:,} bytes)" in verdict.because
        assert "text_unit" not in verdict.because  # rows of JSON are documents already


def test_shards_of_an_earlier_version_have_no_sizes() -> None:
    assert describe_outsized_document([{}, DocumentSizes().to_json()]) == {}


@pytest.mark.parametrize(("bins", "median"), [({"10": 2, "90": 2}, 90), ({"10": 3, "90": 2}, 10), ({"10": 1}, 10)])
def test_of_two_sizes_in_the_middle_the_larger_one_is_the_median(bins: dict[str, int], median: int) -> None:
    shard = {"bins": bins, "largest": [2_000_000, "a", "rows.jsonl", 3]}

    assert describe_outsized_document([shard])["outsized_document"]["median_bytes"] == median
