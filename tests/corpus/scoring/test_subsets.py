"""Subsets: their rows, their independence of order and workers, and their figures."""

import hashlib
import math
import random
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from score_files import naive_percentile
from subset_pools import Row, bare, build_subsets, ids_in, rows_in, scored

from pipeline_assets.corpus.nemotron.schema import SCHEMA
from pipeline_assets.corpus.scoring import subsets
from pipeline_assets.corpus.scoring.row_choice import boundary_mask, choose_rows, select_candidates, selection_ranks
from pipeline_assets.corpus.scoring.scores import percentiles
from pipeline_assets.corpus.scoring.subset_recipe import SubsetRule, SubsetsRecipe
from pipeline_assets.corpus.scoring.subsets import COLUMN_DESCRIPTIONS, SUBSET_SCHEMA
from pipeline_assets.spine.errors import InputError
from pipeline_assets.trust.verify import content_sha256

RULES: dict[str, Any] = {
    "anchor": {"percentile": [0, 25], "where": ["meta_correctness = 1"]},
    "middle": {"percentile": ["40", "60"], "max_rows": 3},
    "top": {"percentile": [70, 100], "where": ["meta_correctness >= 0.5"], "max_rows": 4, "balance": True},
    "rest": {"percentile": [50, 100]},
}
CONDITIONS = {"anchor": lambda right: right == 1, "top": lambda right: right is not None and right >= 0.5}


def draw_rows(count: int, seed: int = 0) -> tuple[list[Row], list[float | None]]:
    draw = random.Random(seed)
    right, domains = (None, 0.0, 0.5, 0.75, 1.0), (None, "math", "math", "proof", "science")
    rows = [
        bare(f"row-{number}", meta_correctness=draw.choice(right), meta_domain=draw.choice(domains))
        for number in range(count)
    ]
    return rows, [draw.choice([None, *[round(draw.uniform(0, 5), 1)] * 9]) for _ in rows]


def choose_ids(splits: dict[str, tuple[list[Row], list[float | None]]], disjoint: bool = True) -> dict[str, list[str]]:
    """Choose ids by rule, in the order of splits and rows, one row at a time."""
    everything = [
        (split, row, naive_percentile(value, [other for other in nll if other is not None]))
        for split, (rows, nll) in sorted(splits.items())
        for row, value in zip(rows, nll, strict=True)
        if value is not None
    ]
    used: set[tuple[str, str]] = set()
    ids_by_rule: dict[str, list[str]] = {}
    for rule, spec in RULES.items():
        low, high = map(Fraction, spec["percentile"])
        condition = CONDITIONS.get(rule, lambda right: True)
        candidates = [
            (split, row) for split, row, percentile in everything
            if low <= percentile <= high and condition(row["meta_correctness"])
            and not (disjoint and (split, row["id"]) in used)
        ]  # fmt: skip
        queues: dict[str, list[tuple[bytes, str, str]]] = {}
        for split, row in candidates:
            turn = hashlib.sha256(f"0\0{rule}\0{split}\0{row['id']}".encode()).digest()
            domain = (row["meta_domain"] or "") if spec.get("balance") else ""
            queues.setdefault(domain, []).append((turn, split, row["id"]))
        chosen: set[tuple[str, str]] = set()
        ranked = [sorted(queue) for _, queue in sorted(queues.items())]
        while any(ranked) and len(chosen) < spec.get("max_rows", len(candidates)):  # a row of each domain in turn
            for queue in ranked:
                if queue and len(chosen) < spec.get("max_rows", len(candidates)):
                    chosen.add(queue.pop(0)[1:])
        used |= chosen
        ids_by_rule[rule] = [row["id"] for split, row in candidates if (split, row["id"]) in chosen]
    return ids_by_rule


def draw_splits(count: int = 40) -> dict[str, tuple[list[Row], list[float | None]]]:
    names = ("math-v2/high", "math-v2/low", "web/train")
    return {"math-v2/none": ([], [])} | {name: draw_rows(count, seed) for seed, name in enumerate(names)}


MUST_BE_TRUE = ("valid_harmony", "completion_nonempty", "valid_tool_schema", "known_channels")
BEST: Row = {f"quality_{name}": True for name in MUST_BE_TRUE} | {"quality_is_duplicate": False}
BEST |= {"quality_control_characters": 0, "quality_stalled_calls": 0, "quality_repetition": 0.49}
FLAGS: list[Row] = [
    *({f"quality_{name}": False} for name in MUST_BE_TRUE),
    {"quality_is_duplicate": True},
    {"quality_control_characters": 1},
    {"quality_stalled_calls": 1},
    {"quality_repetition": 0.5},
    {"meta_correctness": 0.0},
]


def test_rows_without_correctness_enter_unverified_subsets_by_percentile_and_quality(tmp_path: Path) -> None:
    columns: list[Row] = [{}, BEST, *({**BEST, **flag} for flag in FLAGS)]
    rows = [bare(f"{band}-{number}", **flags) for band in range(100) for number, flags in enumerate(columns)]
    nll = [float(row["id"].partition("-")[0]) for row in rows]

    artifact = build_subsets(tmp_path, [scored(tmp_path, "web/train", rows, nll)], SubsetsRecipe().content()["rules"])

    bands = {"anchor": range(25), "challenge": range(90, 100), "learning": range(75, 90)}
    assert {name: ids_in(artifact, f"{name}_unverified") for name in bands} == {
        name: [f"{band}-{number}" for band in bands[name] for number in (0, 1)] for name in bands
    }
    assert [row["training_subset"] for row in rows_in(artifact, "anchor_unverified")] == ["anchor_unverified"] * 50
    assert {name: ids_in(artifact, name) for name in bands} == {name: [] for name in bands}


def test_a_correctness_that_is_nan_is_unknown(tmp_path: Path) -> None:
    rows = [bare(f"{band}-{share}", meta_correctness=share) for band in range(10) for share in (math.nan, 1.0)]
    recipe = {"a": {"where": ["meta_correctness >= 0.5"]}, "b": {"balance": ["meta_correctness"]}}

    artifact = build_subsets(tmp_path, [scored(tmp_path, "web/train", rows, [1.0] * 20)], recipe)

    assert ids_in(artifact, "a") == [f"{band}-1.0" for band in range(10)]
    assert {row["meta_correctness"] for row in rows_in(artifact, "b")} == {None}


@pytest.mark.parametrize("disjoint", [True, False])
def test_subsets_equal_a_naive_computation(tmp_path: Path, disjoint: bool) -> None:
    drawn = draw_splits()

    splits = [scored(tmp_path, name, *rows_and_nll) for name, rows_and_nll in drawn.items()]
    artifact = build_subsets(tmp_path, splits, RULES, disjoint=disjoint)

    expected = choose_ids(drawn, disjoint)
    assert {rule: ids_in(artifact, rule) for rule in RULES} == expected
    counts = artifact.manifest.identity.counts
    assert counts["subsets"] == {rule: len(ids) for rule, ids in expected.items()}
    assert all(counts["subsets"].values())
    ledger = artifact.manifest.identity.ledger
    scores = [value for _, nll in drawn.values() for value in nll]
    assert ledger.adds_up and ledger.rows_in == len(scores)
    assert ledger.dropped["no_score"] == scores.count(None)
    rows = {(row["training_subset"], row["id"], row["nll_mean"]) for rule in RULES for row in rows_in(artifact, rule)}
    assert ledger.out == counts["documents"] == counts["tokens"] // 10 == counts["completion_tokens"] // 4
    assert ledger.out == len(rows) if disjoint else ledger.out < len(rows)


def test_each_dropped_row_has_its_reason(tmp_path: Path) -> None:
    rows = [bare(f"{number}", meta_correctness=1.0) for number in range(6)]
    split = scored(tmp_path, "math/low", rows, [1.0, 2.0, 3.0, 4.0, 5.0, None])

    rules = {"low": {"percentile": [0, 50], "max_rows": 2}, "off": {"percentile": [5, 5]}}
    artifact = build_subsets(tmp_path, [split], rules)

    dropped = {"in_no_subset": 2, "no_score": 1, "over_max_rows": 1}
    assert artifact.manifest.identity.counts["ledger"] == {"in": 6, "out": 2, "dropped": dropped, "rejected": {}}
    assert artifact.manifest.identity.counts["subsets"] == {"low": 2, "off": 0}
    assert not (artifact.folder / "subset_off").exists()


def test_files_have_the_pools_rows_with_their_scores_in_one_schema(tmp_path: Path) -> None:
    rows = [bare(f"row-{number}", meta_tags=["tools"], meta_correctness=number / 10) for number in range(10)]
    split = scored(tmp_path, "math/low", rows, [float(number) for number in range(10)])

    artifact = build_subsets(tmp_path, [split], {"all": {}})

    [file] = artifact.folder.glob("subset_*/**/*.parquet")
    assert file.relative_to(artifact.folder).as_posix() == "subset_all/math/low-00000-of-00001.parquet"
    assert pq.read_schema(file).remove_metadata().equals(SUBSET_SCHEMA)
    for number, row in enumerate(rows_in(artifact, "all")):
        assert {name: row[name] for name in SCHEMA.names} == rows[number]
        assert (row["training_subset"], row["nll_mean"], row["nll_sum"]) == ("all", number, 4 * number)
        assert row["percentile_within_split"] == pytest.approx(10 * number + 5)
    assert list(COLUMN_DESCRIPTIONS) == SUBSET_SCHEMA.names[len(SCHEMA) :]
    # Without an error bar, the rows that could flip are unknown.
    assert artifact.manifest.identity.decisions["rules"]["all"]["could_flip"] is None


def test_missing_columns_of_a_pool_are_null(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("text", pa.large_string())])
    raw = [{"id": f"{number}", "text": "t"} for number in range(4)]
    split = scored(tmp_path, "math/low", raw, [1.0, 2.0, 3.0, 4.0], schema)

    artifact = build_subsets(tmp_path, [split], {"right": {"where": ["meta_correctness = 1"]}, "all": {}})

    assert ids_in(artifact, "right") == [] and ids_in(artifact, "all") == ["0", "1", "2", "3"]
    assert all(row["meta_tags"] is None and row["text"] == "t" for row in rows_in(artifact, "all"))


def test_a_column_of_another_type_is_named(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("meta_domain", pa.list_(pa.string()))])
    split = scored(tmp_path, "math/low", [{"id": "0", "meta_domain": ["a"]}] * 3, [1.0, 2.0, 3.0], schema)

    with pytest.raises(InputError, match=r"math/low: column meta_domain must be string, got list<.*>"):
        build_subsets(tmp_path, [split], {"all": {}})


def test_many_rows_are_cut_into_files_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subsets, "_FILE_BYTES", 4000)
    rows = [bare(f"{number:03d}", text="word " * 100) for number in range(50)]

    artifact = build_subsets(tmp_path, [scored(tmp_path, "math/low", rows, [float(n) for n in range(50)])], {"all": {}})

    files = sorted(path.name for path in (artifact.folder / "subset_all/math").iterdir())
    assert len(files) > 3 and files[0] == f"low-00000-of-{len(files):05d}.parquet"
    assert ids_in(artifact, "all") == [row["id"] for row in rows]


def test_neither_the_order_of_splits_nor_workers_change_a_byte(tmp_path: Path) -> None:
    drawn = draw_splits(12)
    splits = [scored(tmp_path, name, *rows_and_nll) for name, rows_and_nll in drawn.items()]

    serial = build_subsets(tmp_path / "here", splits, RULES)
    parallel = build_subsets(tmp_path / "there", splits[::-1], RULES, workers=2)

    assert serial.manifest.digest == parallel.manifest.digest
    assert serial.manifest.storage == parallel.manifest.storage
    for file in serial.manifest.identity.files:
        assert content_sha256(serial.path(file.path)) == file.content_sha256


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.integers(1, 25), st.integers(1, 25), st.booleans())
def test_a_larger_max_rows_only_adds_rows(seed: int, fewer: int, more: int, balance: bool) -> None:
    draw = random.Random(seed)
    ids = [f"row-{number}" for number in range(20)]
    domains = np.array([draw.randrange(4) for _ in ids], np.int32)
    turn = selection_ranks(seed, "mine", "math/low", ids)

    small, large = (
        select_candidates(SubsetRule(max_rows=rows, balance=balance), turn, domains) for rows in sorted([fewer, more])
    )

    assert not (small & ~large).any()
    assert (small.sum(), large.sum()) == tuple(min(rows, 20) for rows in sorted([fewer, more]))


def test_balance_without_max_rows_limits_each_domain_to_the_smallest(tmp_path: Path) -> None:
    domains = ["math"] * 7 + ["proof"] * 3 + [None] * 4
    rows = [bare(f"{number}", meta_domain=domain) for number, domain in enumerate(domains)]

    artifact = build_subsets(tmp_path, [scored(tmp_path, "math/low", rows, [1.0] * 14)], {"even": {"balance": True}})

    assert Counter(row["meta_domain"] for row in rows_in(artifact, "even")) == {"math": 3, "proof": 3, None: 3}


def test_balance_by_columns_gives_each_combination_equal_shares(tmp_path: Path) -> None:
    columns = ["meta_domain", "meta_difficulty_bin"]
    strata = [("math", "low")] * 9 + [("math", "high")] * 2 + [("proof", None)] * 5
    rows = [bare(f"{number}", **dict(zip(columns, stratum, strict=True))) for number, stratum in enumerate(strata)]
    rules = {"some": {"max_rows": 10, "balance": columns}, "even": {"balance": columns}}

    artifact = build_subsets(tmp_path, [scored(tmp_path, "math/low", rows, [1.0] * 16)], rules, disjoint=False)

    counts = [Counter(tuple(row[name] for name in columns) for row in rows_in(artifact, rule)) for rule in rules]
    assert counts == [
        {("math", "low"): 4, ("math", "high"): 2, ("proof", None): 4},
        {("math", "low"): 2, ("math", "high"): 2, ("proof", None): 2},
    ]
    with pytest.raises(ValueError, match="column 'meta_dificulty_bin' not found; did you mean meta_difficulty_bin"):
        SubsetRule.model_validate({"balance": ["meta_dificulty_bin"]})


def test_another_seed_chooses_other_rows(tmp_path: Path) -> None:
    split = scored(tmp_path, "math/low", [bare(f"{number}") for number in range(40)], [1.0] * 40)

    subsets = (build_subsets(tmp_path / f"{seed}", [split], {"some": {"max_rows": 9}}, seed=seed) for seed in (0, 1))
    chosen = [ids_in(built, "some") for built in subsets]

    assert chosen[0] != chosen[1]


def test_rows_near_a_boundary_could_flip(tmp_path: Path) -> None:
    nll = [1.0, 2.0, 3.0, 3.05, 4.0, 4.02, 5.0, 6.0, 7.0, 8.0]  # percentiles 5, 15, …, 95
    rows = [bare(f"{number}", meta_correctness=1.0 if number != 4 else 0.0) for number in range(10)]
    sure = scored(tmp_path, "math/sure", rows, nll, how_sure={"error_bar": "0.1"})
    unknown = scored(tmp_path, "math/unknown", rows, nll)

    rules = {"band": {"percentile": [30, 50], "where": ["meta_correctness = 1"]}, "all": {}}
    decisions = build_subsets(tmp_path, [sure, unknown], rules).manifest.identity.decisions
    assert decisions["error_bar"] == {"math/sure": "0.1", "math/unknown": None}
    band = decisions["rules"]["band"]
    # In the band are 3.05 and 4.0, of which 4.0 is incorrect; 3.0 and 4.02 are within 0.1 of its edges.
    assert band["could_flip"] == {"rows": 3, "share": "1.000000"}
    assert (band["candidates"], band["taken"]) == (2, 2)
    assert band["splits"]["math/sure"] == {"rows": 1, "nll_mean": ["3.05", "3.05"], "percentile": ["35.0", "35.0"]}
    assert decisions["rules"]["all"]["could_flip"] == {"rows": 0, "share": "0.000000"}


@pytest.mark.parametrize(
    ("nll", "band", "error_bar", "near"),
    [
        ([1.0, 2.0, np.nan], ("90", "100"), 10.0, [False, False, False]),  # a band that begins above all rows
        ([1.0, 2.0, np.nan], ("50", "100"), 0.5, [True, True, False]),
        ([1.0, 1.001, 2.0], ("40", "60"), 0.0, [False, False, False]),  # exact scores
        ([1.0, 1.001, 2.0], ("40", "60"), 0.001, [True, True, False]),
    ],
)
def test_rows_within_the_error_bar_of_a_boundary_are_near_it(
    nll: list[float], band: tuple[str, str], error_bar: float, near: list[bool]
) -> None:
    values = np.array(nll)

    assert boundary_mask(values, percentiles(values), SubsetRule(percentile=band), error_bar).tolist() == near


LIMITED = st.builds(
    SubsetRule, max_rows=st.none() | st.integers(1, 12), balance=st.booleans(), percentile=st.just(("0", "100"))
)


@settings(max_examples=40)
@given(st.lists(LIMITED, min_size=1, max_size=4), st.integers(0, 10**6), st.booleans())
def test_disjoint_subsets_share_no_row_and_row_order_does_not_matter(
    rules: list[SubsetRule], seed: int, disjoint: bool
) -> None:
    draw = np.random.default_rng(seed)
    candidates = draw.random((30, len(rules))) < 0.6
    turn = np.stack(
        [selection_ranks(seed, f"{number}", "math/low", map(str, range(30))) for number in range(len(rules))], axis=1
    )
    domains = np.repeat(draw.integers(0, 3, (30, 1)).astype(np.int32), len(rules), axis=1)
    permutation = draw.permutation(30)

    chosen = choose_rows(candidates, turn, domains, rules, disjoint=disjoint)

    permuted = choose_rows(candidates[permutation], turn[permutation], domains[permutation], rules, disjoint=disjoint)
    assert (permuted == chosen[permutation]).all() and not (chosen & ~candidates).any()
    assert chosen.sum(axis=1).max() <= 1 or not disjoint
    for position, rule in enumerate(rules):
        free = candidates[:, position] & ~(chosen[:, :position].any(axis=1) & disjoint)
        if not rule.balance:
            assert chosen[:, position].sum() == min(free.sum(), rule.max_rows or 30)


def test_scores_of_missing_pool_rows_stop_the_build(tmp_path: Path) -> None:
    split = scored(tmp_path, "math/low", [bare(f"{number}") for number in range(9)], [1.0] * 9)
    scores = pq.read_table(split.scores_file)
    rows = pa.array([-1, *scores["pool_row"].to_pylist()[1:]], pa.int64())
    pq.write_table(scores.set_column(scores.column_names.index("pool_row"), "pool_row", rows), split.scores_file)

    with pytest.raises(InputError, match="row -1 was scored, but the file has only 3 rows"):
        build_subsets(tmp_path, [split], {"all": {}})
