"""Documents that are far larger than the others of their source.

They are found while they are written, and shown to the user.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from stage_a_build import INLINE, build, local_source, parse_recipe

from pipeline_assets.corpus.document import Document, Meta
from pipeline_assets.corpus.document_sizes import DocumentSizes, describe_outsized_document
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.systems.checks import no_document_is_outsized

Build = Callable[..., dict[str, Artifact]]


@pytest.fixture
def build_notes(tmp_path: Path) -> Build:
    def run(texts: list[str], **changes: object) -> dict[str, Artifact]:
        section = local_source(tmp_path, "notes", [{"text": text, "key": f"n-{n}"} for n, text in enumerate(texts)])
        return build(parse_recipe(section, **changes), tmp_path / "data", None, INLINE)

    return run


@pytest.mark.parametrize(
    ("large", "other", "is_outsized"),
    [
        (1_000_001, 9_000, True),
        (1_000_000, 9_000, False),
        (1_000_001, 11_000, False),
        (3_000_000, 29_000, True),
        (1_024_000, 10_240, True),  # exactly 100 medians
        (1_023_999, 10_240, False),
    ],
)
def test_a_document_above_1_mb_and_100_medians_is_outsized(large: int, other: int, is_outsized: bool) -> None:
    document, sizes = Document("text", "notes", "books", "a", "mit", "", Meta("rows.jsonl", 0)), DocumentSizes()
    sizes.add([document] * 10, [*[other] * 9, large])

    assert bool(describe_outsized_document([sizes.to_json()])) == is_outsized


def test_an_outsized_document_fails_a_check_that_names_its_row(build_notes: Build) -> None:
    texts = [f"{number:05d}".ljust(9_000, "x") for number in range(9)]

    artifacts = build_notes([*texts, "y" * 1_000_001], outputs={"up_to": "normalized"})
    [normalized] = [artifact for role, artifact in artifacts.items() if role.startswith("stage_a/normal")]

    verdict = no_document_is_outsized(normalized)
    assert not verdict.passed and "n-9 (rows.jsonl, 1,000,001 bytes)" in verdict.because
    assert "text_unit" not in verdict.because  # rows of JSON are documents already


def test_shards_of_an_earlier_version_have_no_sizes() -> None:
    assert describe_outsized_document([{}, DocumentSizes().to_json()]) == {}


@pytest.mark.parametrize(("bins", "median"), [({"10": 2, "90": 2}, 90), ({"10": 3, "90": 2}, 10), ({"10": 1}, 10)])
def test_the_larger_of_two_middle_sizes_is_the_median(bins: dict[str, int], median: int) -> None:
    shard = {"bins": bins, "largest": [2_000_000, "a", "rows.jsonl", 3]}

    assert describe_outsized_document([shard])["outsized_document"]["median_bytes"] == median
