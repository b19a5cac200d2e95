"""Quotas of pools: limits, equal shares of strata, and stable selection."""

from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from candidate_pools import STAGE, Row, row, rows_artifact, seal_pools
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refusal

from pipeline_assets.build.build_target import build_target
from pipeline_assets.build.systems import unknown_kind
from pipeline_assets.build.target import Target
from pipeline_assets.corpus.nemotron.pools import build_pools
from pipeline_assets.corpus.nemotron.pools_recipe import PoolsRecipe, describe_quotas
from pipeline_assets.corpus.nemotron.row_checks import pools_have_rows
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.spine.errors import UsageError

RULES = {"right": ["meta_correctness = 1"], "long": ["stats_tokens >= 20"]}


def recipe(seed: int = 0, **quotas: object) -> PoolsRecipe:
    return PoolsRecipe.from_mapping(
        {"rules": RULES, "by_capability": False, "quotas": quotas, "seed": seed}, "the test"
    )


def build_rows(numbers: range, domain: str | None, bin_: str, split: str = "low") -> list[Row]:
    return [
        row(number, id=f"{split}-{domain}-{bin_}-{number}", split=split, meta_domain=domain, meta_solved_bin=bin_,
            meta_correctness=1.0, stats_tokens=10 + number % 2 * 10)
        for number in numbers
    ]  # fmt: skip


def read_rows(pools: Artifact, pool: str) -> list[Row]:
    files = sorted(pools.folder.glob(f"candidates_{pool}/*.parquet"))
    return [entry for file in files for entry in pq.ParquetFile(file).read().to_pylist()]


@pytest.fixture
def splits(tmp_path: Path) -> dict[str, Artifact]:
    """Build two splits: 100 easy and 10 hard rows of math, 4 without a domain."""
    low = [*build_rows(range(60), "math", "easy"), *build_rows(range(10), "math", "hard")]
    high = [*build_rows(range(40), "math", "easy", "high"), *build_rows(range(4), None, "hard", "high")]
    return {"low": rows_artifact(tmp_path, low), "high": rows_artifact(tmp_path, high, name="high")}


def test_strata_get_equal_shares_and_unused_shares_are_divided(tmp_path: Path, splits: dict[str, Artifact]) -> None:
    quota = {"max_rows": 24, "stratify": ["meta_domain", "meta_solved_bin"]}

    pools = seal_pools(tmp_path, splits, recipe(right=quota))

    chosen = Counter((entry["meta_domain"], entry["meta_solved_bin"]) for entry in read_rows(pools, "right"))
    assert chosen == {("math", "easy"): 10, ("math", "hard"): 10, (None, "hard"): 4}
    assert len(read_rows(pools, "long")) == 57
    strata = {
        "math, easy": {"candidates": 100, "rows": 10},
        "math, hard": {"candidates": 10, "rows": 10},
        "null, hard": {"candidates": 4, "rows": 4},
    }
    decided = pools.manifest.identity.decisions["quotas"]
    assert decided == {"right": {"candidates": 114, "rows": 24, "strata": strata}}
    assert "right has 24 of 114 rows by its quota" in pools_have_rows(pools).because


def test_rows_that_quotas_remove_from_every_pool_are_dropped_with_a_reason(
    tmp_path: Path, splits: dict[str, Artifact], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    pools = seal_pools(tmp_path, splits, recipe(every_pool={"max_rows": 5}))

    counts = pools.manifest.identity.counts
    kept = {entry["id"]: entry["stats_tokens"] for pool in RULES for entry in read_rows(pools, pool)}
    assert counts["pools"] == {"long": 5, "right": 5}
    assert counts["documents"] == len(kept)
    assert counts["tokens"] == sum(kept.values())
    assert counts["ledger"] == {
        "in": 114, "out": len(kept), "dropped": {"over_quota": 114 - len(kept)}, "rejected": {}
    }  # fmt: skip
    assert caplog.messages[-1] == "pools: 2/2 shards"  # not minus 100 documents


def test_a_larger_quota_only_adds_rows_and_a_seed_selects_others(tmp_path: Path, splits: dict[str, Artifact]) -> None:
    def ids(seed: int, max_rows: int) -> set[str]:
        quota = {"max_rows": max_rows, "stratify": ["meta_solved_bin"]}
        pools = seal_pools(tmp_path / f"{seed}-{max_rows}", splits, recipe(seed, right=quota))
        return {entry["id"] for entry in read_rows(pools, "right")}

    few, more, other_seed = ids(0, 10), ids(0, 11), ids(1, 10)

    assert (len(few), len(more), len(other_seed)) == (10, 11, 10)
    assert few < more
    assert few != other_seed


def test_neither_workers_nor_the_order_of_splits_change_a_byte(tmp_path: Path, splits: dict[str, Artifact]) -> None:
    rules = recipe(every_pool={"max_rows": 7, "stratify": ["meta_domain"]})
    target = Target(unknown_kind("nemotron/candidate_pools", STAGE), "pools", Path("pools"), {})

    built = [
        build_target(
            target, tmp_path / f"{workers}",
            lambda staging, own=own, workers=workers: build_pools(staging, own, rules, RunSettings(workers)), True, {},
        )
        for workers, own in ((0, splits), (2, dict(reversed(splits.items()))))
    ]  # fmt: skip

    assert built[0].manifest.identity.files == built[1].manifest.identity.files


def test_file_number_without_rows_of_a_pool_is_skipped_with_quotas(tmp_path: Path) -> None:
    long = "x" * 1_100_000  # 70 MB in all, so the rows of a pool have two file numbers
    rows = [row(number, text=f"{number} {long}", meta_correctness=float(number == 0)) for number in range(64)]

    pools = seal_pools(tmp_path, {"low": rows_artifact(tmp_path, rows)}, recipe(right={"max_rows": 5}))

    assert [file.path for file in pools.manifest.identity.files] == ["candidates_right/low-00001-of-00002.parquet"]
    assert [entry["id"] for entry in read_rows(pools, "right")] == ["row-0"]


def test_recipe_and_manifest_without_quotas_do_not_mention_them(tmp_path: Path, splits: dict[str, Artifact]) -> None:
    plain = PoolsRecipe.from_mapping({"rules": RULES, "by_capability": False}, "the test")

    pools = seal_pools(tmp_path, splits, plain)

    assert plain.content().keys() == {"rules", "by_capability", "refuse_licences"}
    assert "quotas" not in pools.manifest.identity.decisions


def test_quota_of_a_capability_without_rows_is_named_in_the_check(tmp_path: Path) -> None:
    rows = rows_artifact(tmp_path, [row(number, meta_capability_target="math") for number in range(3)])
    limits = {"capability_math": {"max_rows": 2}, "capability_maths": {"max_rows": 2}}
    rules = PoolsRecipe.from_mapping({"rules": RULES, "quotas": limits}, "the test")

    because = pools_have_rows(seal_pools(tmp_path, {"low": rows}, rules)).because

    assert "no row is in capability_maths, which `quotas` limits" in because
    assert "no row is in capability_math," not in because


def test_quotas_are_described_for_the_plan() -> None:
    content = {"pools": recipe(right={"max_rows": 5000, "stratify": ["meta_domain", "meta_solved_bin"]}).content()}

    assert describe_quotas(content) == "rows of a dataset, at most: 5,000 of right by meta_domain and meta_solved_bin"
    assert describe_quotas({"pools": PoolsRecipe().content()}) == ""


NO_POOL = "but the recipe has no such pool; use one of every_pool, right, long"


@pytest.mark.parametrize(
    ("quotas", "error"),
    [
        *(({pool: {"max_rows": 1}}, f"`quotas` names '{pool}', {NO_POOL}") for pool in ("wrong", "capability_math")),
        ({"right": {"max_rows": 0}}, "`quotas.right.max_rows` must be >= 1, got 0"),
        ({"right": {"max_rows": 1, "stratify": ["meta_domian"]}}, "'meta_domian' not found; did you mean meta_domain?"),
    ],
)
def test_an_invalid_quota_is_refused(quotas: dict[str, object], error: str) -> None:
    assert error in refusal(lambda: recipe(**quotas), UsageError)


@given(sizes=st.lists(st.integers(0, 12), min_size=1, max_size=4), max_rows=st.integers(1, 30), seed=st.integers(0, 3))
@settings(max_examples=15, deadline=None)
def test_a_quota_is_filled_and_shares_differ_by_one_row_unless_a_stratum_is_exhausted(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], max_rows: int, seed: int
) -> None:
    root = tmp_path_factory.mktemp("quota")
    rows = [entry for number, size in enumerate(sizes) for entry in build_rows(range(size), f"d{number}", "easy")]
    splits = {"low": rows_artifact(root, rows)}

    pools = seal_pools(root, splits, recipe(seed, right={"max_rows": max_rows, "stratify": ["meta_domain"]}))

    chosen = Counter(entry["meta_domain"] for entry in read_rows(pools, "right"))
    assert chosen.total() == min(max_rows, sum(sizes))
    unfilled = [chosen[f"d{number}"] for number, size in enumerate(sizes) if chosen[f"d{number}"] < size]
    largest = max(chosen.values(), default=0)
    assert all(largest - count <= 1 for count in unfilled)
