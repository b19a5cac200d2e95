"""Candidate pools: selected rows, stable files and invalid conditions."""

import hashlib
import random
import re
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from candidate_pools import MIXED, Row, row, rows_artifact, seal_pools
from hypothesis import given, settings
from hypothesis import strategies as st
from real_samples import some

from pipeline_assets.corpus.nemotron.pools_recipe import DEFAULT_RULES, PoolsRecipe, parse_condition
from pipeline_assets.corpus.nemotron.row_checks import pools_have_rows
from pipeline_assets.corpus.nemotron.schema import SCHEMA
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.errors import UsageError


def read_ids(pools: Artifact) -> dict[str, list[str]]:
    names: dict[str, list[str]] = {}
    for path in sorted(pools.folder.glob("candidates_*/*.parquet")):
        names.setdefault(path.parent.name.removeprefix("candidates_"), []).extend(pq.read_table(path)["id"].to_pylist())
    return {pool: sorted(ids) for pool, ids in names.items()}


def test_row_is_in_every_pool_whose_conditions_match(tmp_path: Path) -> None:
    pools = seal_pools(tmp_path, {"low": rows_artifact(tmp_path, MIXED[:4], MIXED[4:])})

    assert read_ids(pools) == {
        "capability_chat": ["row-5"],
        "capability_instruction_following": ["row-4"],
        "high_correctness": ["row-0", "row-1"],
        "long_context": ["row-2"],
        "low_correctness": ["row-2"],
        "medium_correctness": ["row-5"],
        "missing_correctness_meta": ["row-4"],
        "reasoning_off": ["row-1"],
        "reasoning_on": ["row-0"],
        "tool_use": ["row-0"],
        "unsolved": ["row-3"],
        "verified_correct": ["row-0"],
    }
    counts = pools.manifest.identity.counts
    assert counts["ledger"] == {"in": 6, "out": 6, "dropped": {}, "rejected": {}}
    assert counts["pools"] == {pool: len(ids) for pool, ids in read_ids(pools).items()}
    for path in some(pools.folder.glob("candidates_*/*.parquet")):
        assert pq.read_schema(path).equals(SCHEMA)
        for pool_row in pq.read_table(path).to_pylist():
            assert pool_row == MIXED[pool_row["source_row"]]


def test_each_capability_has_its_own_pool_for_any_others(tmp_path: Path) -> None:
    targets = ["C", "c ", "C++", "c++", "C#", "C--", "日本語", "中文", " ", "Tool use", "tool-use", "tool  use", "Q&A"]
    rows = [row(number, meta_capability_target=target) for number, target in enumerate(targets)]
    recipe = PoolsRecipe(rules={"tool_use": ("stats_tool_calls > 0",)})

    pools = seal_pools(tmp_path, {"low": rows_artifact(tmp_path, rows)}, recipe)

    assert read_ids(pools) == {
        "capability_c": ["row-0", "row-1"],
        "capability_c_cedb1bac": ["row-2", "row-3"],
        "capability_c_951a4d36": ["row-4"],
        "capability_c_29abb69c": ["row-5"],
        "capability_77710aed": ["row-6"],
        "capability_72726d88": ["row-7"],
        "capability_e3b0c442": ["row-8"],
        "capability_tool_use": ["row-10", "row-11", "row-9"],
        "capability_q_a_353c23e3": ["row-12"],
    }
    alone = seal_pools(tmp_path / "alone", {"low": rows_artifact(tmp_path / "alone", rows[2:3])}, recipe)
    assert read_ids(alone) == {"capability_c_cedb1bac": ["row-2"]}


def test_a_capability_of_many_words_has_a_short_name(tmp_path: Path) -> None:
    targets = ["use-a Tool " * 60, "use a tool" + " use-a tool" * 59, "use a tool " * 61, "use a tool? " * 60]
    rows = [row(number, meta_capability_target=target) for number, target in enumerate(targets)]

    pools = seal_pools(tmp_path, {"low": rows_artifact(tmp_path, rows)}, PoolsRecipe())

    by_ids = {tuple(ids): name for name, ids in read_ids(pools).items() if name.startswith("capability_")}
    assert sorted(by_ids) == [("row-0", "row-1"), ("row-2",), ("row-3",)]
    for name in some(by_ids.values()):
        assert re.fullmatch("capability_(use_a_tool_){13}use_a_t_[0-9a-f]{8}", name)


def test_default_pools_cover_every_correctness_once_apart_from_verified() -> None:
    shares = [None, -0.0, *(number / 10_000 for number in range(10_001))]
    frame = pl.DataFrame(pa.Table.from_pylist([{"meta_correctness": share} for share in shares], SCHEMA))

    pools = {name: rules for name, rules in DEFAULT_RULES.items() if all("meta_correctness" in rule for rule in rules)}
    del pools["verified_correct"]
    masks = [frame.select(pl.all_horizontal(*map(parse_condition, rules)))[:, 0] for rules in pools.values()]

    assert [sum(bool(mask[row]) for mask in masks) for row in range(len(shares))] == [1] * len(shares)


def test_the_first_twenty_rows_of_known_correctness_in_no_pool_are_named(tmp_path: Path) -> None:
    rules = {name: rule for name, rule in DEFAULT_RULES.items() if name not in ("medium_correctness", "unsolved")}
    shares = [0.6, 0.7333, 0.0, 0.75, None, *[0.5] * 25]
    rows = [row(number, meta_correctness=share) for number, share in enumerate(shares)]
    rows[-1]["meta_license"] = "cc-by-sa-4.0"
    recipe = PoolsRecipe(rules=rules, refuse_licences=("cc-by-sa-4.0",))

    pools = seal_pools(tmp_path, {"low": rows_artifact(tmp_path, rows[:9], rows[9:])}, recipe)

    named = [f"low/row-{number}" for number in (0, 1, 2, *range(5, 22))]
    gap = {"rows": 27, "lowest": "0.0", "highest": "0.7333", "examples": named}
    assert pools.manifest.identity.decisions["correctness_gap"] == gap
    message = f"rows of known correctness (0.0 to 0.7333) in no pool: 27 ({', '.join(named)}, …)"
    assert message in pools_have_rows(pools).because


def test_one_row_of_known_correctness_in_no_pool_is_reported_with_its_correctness(tmp_path: Path) -> None:
    recipe = PoolsRecipe(rules={"unsolved": DEFAULT_RULES["unsolved"]})

    pools = seal_pools(tmp_path, {"low": rows_artifact(tmp_path, [row(0, meta_correctness=0.5)])}, recipe)

    assert "rows of known correctness (0.5) in no pool: 1 (low/row-0)" in pools_have_rows(pools).because


def test_a_dataset_without_rows_in_any_pool_is_a_warning(tmp_path: Path) -> None:
    verdict = pools_have_rows(seal_pools(tmp_path, {"low": rows_artifact(tmp_path, [])}))

    assert not verdict.passed
    assert verdict.because.startswith("no pool has rows; omitted, because no row says anything in meta_")


def test_columns_missing_in_an_earlier_version_are_null(tmp_path: Path) -> None:
    later = ("quality_known_channels", "quality_stalled_calls")
    rows = rows_artifact(tmp_path, MIXED, schema=pa.schema([field for field in SCHEMA if field.name not in later]))
    recipe = PoolsRecipe(rules={"stalled": ("quality_stalled_calls > 0",), "all": ("stats_tokens > 0",)})

    pools = seal_pools(tmp_path, {"low": rows}, recipe)

    [pool] = pools.folder.glob("candidates_all/*.parquet")
    assert pq.read_schema(pool).equals(SCHEMA)
    assert sorted(pq.read_table(pool).to_pylist(), key=lambda entry: str(entry["id"])) == MIXED
    assert "stalled" in pools.manifest.identity.decisions["left_out"]


def test_impossible_pools_are_omitted_and_empty_pools_count_rows_by_condition(tmp_path: Path) -> None:
    rules = {"verified": ("meta_correctness = 1", "stats_tokens > 5"), "on": ("meta_reasoning = 'on'",)}
    rows = rows_artifact(tmp_path, [row(0, meta_correctness=0.5), row(1, meta_correctness=0.25)])

    pools = seal_pools(tmp_path, {"low": rows}, PoolsRecipe(rules=rules))

    decisions = pools.manifest.identity.decisions
    assert decisions["empty"] == {"verified": {"meta_correctness = 1": 0, "stats_tokens > 5": 2}}
    assert decisions["left_out"] == {"on": "no row says anything in meta_reasoning"}


def test_rows_of_a_refused_licence_are_in_no_pool(tmp_path: Path) -> None:
    licences = ["cc-by-4.0", "CC BY-SA 4.0", None, "odd"]
    rows = rows_artifact(tmp_path, [row(number, meta_license=licence) for number, licence in enumerate(licences)])

    pools = seal_pools(tmp_path, {"low": rows}, PoolsRecipe(refuse_licences=("cc-by-sa-4.0", "unknown")))

    assert read_ids(pools) == {"missing_correctness_meta": ["row-0"]}
    assert pools.manifest.identity.counts["ledger"]["dropped"] == {"refused_licence": 3}


CORRECTNESS = st.none() | st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0])


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(CORRECTNESS, st.integers(0, 2)), min_size=1, max_size=40), st.integers(0, 40))
def test_pools_equal_a_selection_by_polars_for_any_files(
    tmp_path_factory: pytest.TempPathFactory, drawn: list[tuple[float | None, int]], cut: int
) -> None:
    root = tmp_path_factory.mktemp("pools")
    rows = [row(number, meta_correctness=share, stats_tool_calls=calls) for number, (share, calls) in enumerate(drawn)]
    artifact = rows_artifact(root, *(part for part in (rows[:cut], rows[cut:]) if part))

    actual = read_ids(seal_pools(root, {"low": artifact}))

    frame = pl.DataFrame(pa.Table.from_pylist(rows, SCHEMA))
    expected = {
        pool: sorted(frame.filter(*(pl.sql_expr(condition) for condition in conditions))["id"].to_list())
        for pool, conditions in DEFAULT_RULES.items()
    }
    assert actual == {pool: ids for pool, ids in expected.items() if ids}


GEAR = [int.from_bytes(hashlib.sha256(bytes([byte])).digest()[:4], "big") for byte in range(256)]


def hash_chunks(data: bytes) -> set[str]:
    """Hash chunks of 2 kB on average, cut by a gear hash of 32 bytes (Xia 2016)."""
    chunks, start, rolling = set(), 0, 0
    for place, byte in enumerate(data):
        rolling = ((rolling << 1) + GEAR[byte]) & 0xFFFFFFFF
        if place - start >= 512 and rolling >> 21 == 0:
            chunks.add(hashlib.sha256(data[start:place]).hexdigest())
            start = place
    return chunks | {hashlib.sha256(data[start:]).hexdigest()}


def test_removing_a_row_changes_one_file_and_few_of_its_chunks(tmp_path: Path) -> None:
    draws = random.Random(3)
    texts = [" ".join(str(draws.random()) for _ in range(60)) for _ in range(3000)]
    rows = [row(number, text=text, stats_tool_calls=1) for number, text in enumerate(texts)]
    recipe = PoolsRecipe(rules={"tool_use": ("stats_tool_calls > 0",)}, by_capability=False)

    def files(root: Path, kept: list[Row]) -> dict[str, bytes]:
        root.mkdir()
        pools = seal_pools(root, {"low": rows_artifact(root, kept)}, recipe)
        return {path.name: path.read_bytes() for path in pools.folder.glob("candidates_tool_use/*")}

    before, after = files(tmp_path / "before", rows), files(tmp_path / "after", rows[:1234] + rows[1235:])

    assert before.keys() == after.keys()
    [changed] = [name for name in before if before[name] != after[name]]
    old, new = hash_chunks(before[changed]), hash_chunks(after[changed])
    assert len(new - old) < 0.10 * len(new), (len(new - old), len(new))


def test_a_file_has_one_row_group_and_its_rows_are_sorted_by_their_ids(tmp_path: Path) -> None:
    pools = seal_pools(tmp_path, {"low": rows_artifact(tmp_path, [row(number) for number in range(200)])})

    for path in some(pools.folder.glob("candidates_*/*.parquet")):
        metadata = pq.read_metadata(path)
        ids = pq.read_table(path)["id"].to_pylist()
        assert metadata.num_row_groups == 1 and ids == sorted(ids)
        assert metadata.row_group(0).column(0).has_offset_index


def test_all_invalid_conditions_are_reported_together() -> None:
    rules = {"one": ["a = 1", "stats_tokens > 1"], "two": ["b = 1", 3], "three": []}

    with pytest.raises(UsageError) as refused:
        PoolsRecipe.from_mapping({"rules": rules}, "mine.yaml")

    messages = [error.what.partition(":")[0] for error in (refused.value, *refused.value.others)]
    assert messages == [
        "`rules.one.0` is 'a = 1'",
        "`rules.two.0` is 'b = 1'",
        "`rules.two.1` must be text, got 3",
        "`rules.three` must have at least 1 item, got []",
    ]


@pytest.mark.parametrize("purpose", ["Tool use", "capability_math", "a/b", "", "a_"])
def test_invalid_purpose_is_refused(purpose: str) -> None:
    with pytest.raises(UsageError, match=r"choose another name|must be lower-case words"):
        PoolsRecipe.from_mapping({"rules": {purpose: ["stats_tokens > 1"]}}, "mine.yaml")
