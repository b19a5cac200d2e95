"""Validation and recommended values of deduplication recipes, and removal caps."""

import pydantic
import pytest
from dedup_build import recipe

from pipeline_assets.corpus.dedup.dedup_run import worker_bytes
from pipeline_assets.corpus.dedup.proposal import Banding, DistanceLimit, recommend_banding, recommend_distance
from pipeline_assets.corpus.dedup.recipe import DedupRecipe
from pipeline_assets.corpus.dedup.removal_caps import RemovalCaps
from pipeline_assets.spine.engine import RunSettings

SKETCHES = {"shingle_words": 5, "bits": 256, "max_distance": 50, "seed": 1}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bands": 13}, "`near.minhash.bands` times 8 rows must equal 112 permutations, got 104"),
        ({"threshold": "0"}, r"must be in \(0, 1\], got 0"),
        ({"threshold": "1.01"}, r"must be in \(0, 1\], got 1.01"),
        ({"selection": "quality"}, "selection.* quality requires .*quality_column"),
        ({"max_compared": 2**63}, "`max_compared` must be from -9223372036854775807 to 9223372036854775807, got 9223"),
        ({"faiss": SKETCHES | {"bits": 100}}, "multiple of 8"),
        ({"faiss": SKETCHES | {"max_distance": 128}}, "half of them differ by chance"),
    ],
)
def test_invalid_recipe_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        recipe(**change)


@pytest.mark.parametrize(
    ("near", "bands", "rows"),
    [
        ({}, 28, 4),
        ({"threshold": "0.9"}, 14, 8),
        ({"minhash": {"permutations": 128}}, 32, 4),
        ({"minhash": {"bands": 14}}, 14, 8),
        ({"minhash": {"rows": 8}}, 14, 8),
    ],
)
def test_missing_near_duplicate_settings_are_recommended(near: dict[str, object], bands: int, rows: int) -> None:
    parsed = DedupRecipe.model_validate({"near": near})

    assert parsed.near is not None and parsed.near.minhash is not None
    assert (parsed.mode, parsed.near.minhash.bands, parsed.near.minhash.rows) == ("both", bands, rows)
    assert DedupRecipe.from_content(parsed.content()) == parsed


def test_default_mode_is_both_and_exact_mode_has_no_near_section() -> None:
    assert DedupRecipe.model_validate({}) == DedupRecipe.model_validate({"near": {}})
    assert DedupRecipe.model_validate({"mode": "exact"}).near is None


@pytest.mark.parametrize("near", [recipe().content()["near"] | {"faiss": SKETCHES}, {"minhash": {}, "faiss": {}}])
def test_two_proposers_are_refused(near: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="set one of `minhash` and `faiss`"):
        DedupRecipe.model_validate({"near": near})


@pytest.mark.parametrize(
    ("near", "key"),
    [
        ({"threshold": 2}, "threshold"),
        ({"threshold": 2, "faiss": {}}, "threshold"),
        ({"faiss": {"bits": "x"}}, "faiss.bits"),
        ({"minhash": False}, "minhash"),
        ({"minhash": {"permutations": "x"}}, "minhash.permutations"),
        ({"minhash": {"permutations": 0}}, "minhash.permutations"),
    ],
)
def test_a_wrong_key_is_the_only_error(near: dict[str, object], key: str) -> None:
    with pytest.raises(pydantic.ValidationError) as refused:
        DedupRecipe.model_validate({"near": near})

    assert [".".join(map(str, error["loc"])) for error in refused.value.errors()] == [f"near.{key}"]


def test_recall_is_the_probability_of_an_equal_band() -> None:
    assert Banding(14, 8).recall(0.8) == pytest.approx(1 - (1 - 0.8**8) ** 14)
    assert (Banding(14, 8).recall(1), Banding(14, 8).recall(0)) == (1, 0)


def test_recommended_banding_has_the_most_rows_with_enough_recall() -> None:
    assert recommend_banding(112, 0.8, 0.95) == Banding(16, 7)
    assert recommend_banding(112, 0.8, 0.999) == Banding(28, 4)
    assert recommend_banding(112, 0.01, 0.95) == Banding(112, 1)
    assert [recommend_banding(12, 0.9, recall).rows for recall in (0, 0.5, 0.9, 0.97, 0.999, 1)] == [12, 6, 4, 3, 2, 1]


def test_recommended_distance_is_the_smallest_with_enough_recall() -> None:
    assert recommend_distance(256, 0.7, 0.95) == DistanceLimit(256, 48)
    assert DistanceLimit(256, 48).recall(0.7) >= 0.95 > DistanceLimit(256, 47).recall(0.7)


def test_named_source_has_its_own_cap() -> None:
    caps = RemovalCaps(every_source="0.3", sources={"notes": "0.5"})

    assert (float(caps.cap("notes")), float(caps.cap("pages"))) == (0.5, 0.3)


@pytest.mark.parametrize(("worker", "data"), [(0, 64), (200, 64), (264, 64), (265, 65), (1200, 1000)])
def test_worker_data_has_all_but_200_mib_of_its_memory_and_at_least_64_mib(worker: int, data: int) -> None:
    assert worker_bytes(RunSettings(worker_bytes=worker << 20)) == data << 20
