"""Rows of training subsets are traced to the scored pools or files."""

import functools
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import subset_pools
from hub_pools import build_rows, pools
from nemotron_build import build, offline
from nemotron_hub import is_science_line
from rows_contract import check_contract

from pipeline_assets.build.build_target import build_target
from pipeline_assets.build.rows.comparison import compare
from pipeline_assets.build.rows.conversations import PoolRows, SubsetRows
from pipeline_assets.build.rows.row_stores import open_rows, preview
from pipeline_assets.build.rows.source_listing import TextSource
from pipeline_assets.build.rows.store import UpstreamRow
from pipeline_assets.build.rows.trace import trace_id, trace_row
from pipeline_assets.build.systems import unknown_kind
from pipeline_assets.build.target import Target
from pipeline_assets.corpus.formats.parquet_tables import write_table
from pipeline_assets.corpus.scoring.scored_split import ScoredSplit
from pipeline_assets.corpus.scoring.scores import SCORES_FILE, SCORES_SCHEMA
from pipeline_assets.corpus.scoring.subset_recipe import SUBSETS_STAGE, SubsetsRecipe
from pipeline_assets.corpus.scoring.subsets import choose_subsets
from pipeline_assets.corpus.tokens.o200k_harmony import VOCABULARY_SHA256, load_encoder
from pipeline_assets.spine.artifact import Artifact, open_artifact
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.lineage import Lineage
from pipeline_assets.spine.manifest import StageVersion
from pipeline_assets.spine.staging import StagingDir
from pipeline_assets.systems.nemotron import NemotronRecipe
from pipeline_assets.systems.registry import SYSTEMS

DATASET = "nemotron-science-v1"
STAGE = StageVersion("made", 1)
RULES = {"hard": {"percentile": [50, 100]}}


@pytest.fixture(scope="module")
def built(
    recipe: NemotronRecipe, cache: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, Target]]:
    root = tmp_path_factory.mktemp("science")
    science = recipe.model_copy(update={"datasets": recipe.datasets[2:3]})
    build(science, root, offline(cache), RunSettings())
    return root, {target.role: target for target in science.targets()}


def seal_scores(root: Path, split: str, files: dict[str, list[str]], upstream: Target) -> Target:
    """Seal scores of the rows of files; `files` maps each file to its row ids."""
    ids = list(dict.fromkeys(row_id for rows in files.values() for row_id in rows))
    places = {row_id: (file, row) for file, rows in reversed(files.items()) for row, row_id in enumerate(rows)}
    by_position = sorted(ids, key=lambda row_id: places[row_id])
    rows: list[dict[str, Any]] = []
    for number, row_id in enumerate(by_position):
        ranks = {"id": row_id, "nll_mean": float(number), "percentile_within_split": 100 * (number + 0.5) / len(ids)}
        file, row = places[row_id]
        rows.append({**dict.fromkeys(SCORES_SCHEMA.names), **ranks, "pool_file": file, "pool_row": row})

    def make(building: StagingDir) -> BuildResult:
        table = pa.Table.from_pylist(rows, SCORES_SCHEMA)
        return BuildResult([write_table(building.path(SCORES_FILE), SCORES_FILE, [table], SCORES_SCHEMA)], {}, {})

    folder = Path("nemotron", "scores", upstream.kind.name.replace("/", "_"), split)
    target = Target(
        unknown_kind("nemotron/nll_scores", STAGE), split, folder, {}, (upstream,), partition=f"{DATASET}/{split}"
    )
    build_target(target, root, make, True, {})
    return target


def seal_subsets(root: Path, name: str, scores: list[Target], pools: list[Target], files: dict[str, Path]) -> Artifact:
    recipe = SubsetsRecipe.from_mapping({"rules": RULES, "tokens": False}, "the test")
    splits = [ScoredSplit(str(target.partition), root / target.folder / SCORES_FILE, files) for target in scores]
    target = Target(
        unknown_kind("nemotron/training_subsets", SUBSETS_STAGE), name, Path("nemotron", name), {}, (*scores, *pools)
    )
    encoder = load_encoder(VOCABULARY_SHA256)
    make = functools.partial(choose_subsets, splits=splits, recipe=recipe, tokenizer=encoder, settings=RunSettings())
    return build_target(target, root, make, True, {})


@pytest.fixture(scope="module")
def subset_and_pools(built: tuple[Path, dict[str, Target]]) -> tuple[Artifact, Artifact]:
    """Seal a subset; return it with the pools that its rows were chosen from."""
    root, targets = built
    target = targets[f"nemotron/candidate_pools/{DATASET}"]
    pools = open_artifact(root / target.folder)
    paths = {file.path: pools.path(file.path) for file in pools.manifest.identity.files}
    ids = {name: pq.read_table(path)["id"].to_pylist() for name, path in paths.items()}
    scores = [
        seal_scores(root, split, {name: ids[name] for name in ids if f"/{split}-" in name}, target)
        for split in ("MCQ", "RQA")
    ]
    return seal_subsets(root, "mine", scores, [target], paths), pools


def test_rows_keep_the_contract(subset_and_pools: tuple[Artifact, Artifact], real: bool) -> None:
    check_contract(open_rows(subset_and_pools[0].folder, SYSTEMS.kinds), functools.partial(is_science_line, real=real))


def test_origin_of_a_row_is_the_scored_row_of_the_pools(
    built: tuple[Path, dict[str, Target]], subset_and_pools: tuple[Artifact, Artifact]
) -> None:
    (root, _), (subsets, pools) = built, subset_and_pools
    store, upstream = SubsetRows(subsets, Lineage(root)), open_rows(pools.folder, SYSTEMS.kinds)

    assert len(store) == subsets.manifest.identity.counts["documents"] > 2
    assert [row.id.rpartition("\0")[2] for row in store] == [store.row_at(n).parts[0].id for n in range(len(store))]
    for number in range(len(store)):
        [part] = store.row_at(number).parts
        origin = store.origin(part)
        assert isinstance(origin, UpstreamRow) and isinstance(origin.store, PoolRows)
        assert (origin.part().id, origin.part().text) == (part.id, part.text)
        [traced], [same] = trace_row(store, number), trace_row(upstream, origin.number)
        assert traced.text.source == same.text.source
        fate = store.fate(origin.part())
        assert fate is not None and (fate.outcome, [*fate.facts["subsets"]]) == ("chosen", ["hard"])
    unused = [number for number in range(len(upstream)) if not store.find(upstream.row_at(number).parts[0].id)]
    fate = store.fate(upstream.row_at(unused[0]).parts[0])
    assert fate is not None and (fate.outcome, fate.detail) == ("in_no_subset", "dropped as in_no_subset")


def test_a_row_of_another_dataset_with_the_same_split_and_id_is_in_no_subset(
    built: tuple[Path, dict[str, Target]], subset_and_pools: tuple[Artifact, Artifact]
) -> None:
    store = SubsetRows(subset_and_pools[0], Lineage(built[0]))
    [part] = store.row_at(0).parts

    other = replace(part, record={**part.record, "dataset": "maker/other"})
    chosen, unchosen = store.fate(part), store.fate(other)

    assert chosen is not None and unchosen is not None
    assert (chosen.outcome, unchosen.outcome) == ("chosen", "in_no_subset")
    with pytest.raises(InputError, match="row 'other' has no score"):
        store.origin(replace(part, id="other"))


@pytest.mark.parametrize(("percentile", "reasons"), [([0, 100], []), ([100, 100], ["dropped as in_no_subset"])])
def test_a_row_that_was_not_scored_has_no_reason_of_the_subsets(
    built: tuple[Path, dict[str, Target]],
    subset_and_pools: tuple[Artifact, Artifact],
    percentile: list[int],
    reasons: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Other rows may have reasons."""
    root, pools = shutil.copytree(built[0], tmp_path / "root"), subset_and_pools[1]
    target = built[1][f"nemotron/candidate_pools/{DATASET}"]
    shutil.rmtree(root / "nemotron" / "scores")
    monkeypatch.setitem(RULES, "hard", {"percentile": percentile})
    paths = {file.path: pools.path(file.path) for file in pools.manifest.identity.files if "/MCQ-" in file.path}
    first = {name: pq.read_table(path)["id"].to_pylist()[:1] for name, path in paths.items()}
    subsets = seal_subsets(root, "first", [seal_scores(root, "MCQ", first, target)], [target], paths)
    store, rows = SubsetRows(subsets, Lineage(root)), open_rows(pools.folder, SYSTEMS.kinds)

    fates = [store.fate(rows.row_at(number).parts[0]) for number in range(len(rows))]

    details = {fate.detail for fate in fates if fate is not None and fate.outcome == "in_no_subset"}
    assert details == {"not among the rows it was built from", *reasons}


def test_a_row_with_a_score_was_not_dropped_for_lack_of_one(
    built: tuple[Path, dict[str, Target]], subset_and_pools: tuple[Artifact, Artifact]
) -> None:
    (root, _), (subsets, pools) = built, subset_and_pools
    dropped = {"no_score": 1, "in_no_subset": 2, "over_max_rows": 3}
    counts = {**subsets.manifest.identity.counts, "ledger": {"in": 6, "out": 0, "dropped": dropped, "rejected": {}}}
    identity = replace(subsets.manifest.identity, counts=counts)
    manifest = replace(subsets.manifest, identity=identity)
    store = SubsetRows(Artifact(subsets.folder, manifest), Lineage(root))
    rows = open_rows(pools.folder, SYSTEMS.kinds)

    fates = [store.fate(rows.row_at(number).parts[0]) for number in range(len(rows))]

    details = {fate.detail for fate in fates if fate is not None and fate.outcome == "in_no_subset"}
    assert details == {"dropped as in_no_subset or over_max_rows"}


def test_row_of_several_pools_is_found_at_its_first_position(tmp_path: Path) -> None:
    rules = {"many": ["stats_tool_calls > 0"], "all": ["stats_tool_calls >= 0"]}
    store = open_rows(pools(tmp_path, {"low": build_rows("0" * 40, 9)}, rules=rules).folder, SYSTEMS.kinds)
    numbers: dict[str, list[int]] = {}
    for number in range(len(store)):
        numbers.setdefault(store.row_at(number).parts[0].id, []).append(number)

    fates = {row: store.fate(store.row_at(places[-1]).parts[0]) for row, places in numbers.items()}

    positions = {row: (fate.row_number, len(fate.facts["pools"])) for row, fate in fates.items() if fate is not None}
    assert positions == {row: (places[0], len(places)) for row, places in numbers.items()}
    assert {len(places) for places in numbers.values()} == {1, 2}


def test_origin_of_a_row_without_pools_is_the_scored_file_row(built: tuple[Path, dict[str, Target]]) -> None:
    root, targets = built
    target = targets[f"nemotron/raw/{DATASET}/RQA"]
    [entry] = open_artifact(root / target.folder).manifest.identity.inputs
    file = entry["name"].partition(":")[2]
    path = root / "raw.parquet"
    pq.write_table(pa.table({"id": ["a", "b", "c", "d"], "text": ["t"] * 4, "split": ["RQA"] * 4}), path)
    scores = seal_scores(root, "RQA", {file: ["a", "b", "c", "d"]}, target)
    subsets = seal_subsets(root, "raw_mine", [scores], [target], {file: path})

    store = SubsetRows(subsets, Lineage(root))

    [first, second] = (store.origin(store.row_at(number).parts[0]) for number in range(2))
    assert isinstance(first, TextSource) and isinstance(second, TextSource)
    assert [source.rows[0].row for source in (first, second)] == [2, 3]
    assert (first.file, first.digest, first.license_tag) == (file, entry["digest"], "not stated")


def test_an_id_in_several_splits_is_traced_to_each(built: tuple[Path, dict[str, Target]], tmp_path: Path) -> None:
    """Splits of two datasets may have one name, which is the `source` of their rows."""
    root, targets = shutil.copytree(built[0], tmp_path / "root", ignore=shutil.ignore_patterns("scores")), built[1]
    raw = [targets[f"nemotron/raw/{DATASET}/{split}"] for split in ("MCQ", "RQA")]
    names = [
        open_artifact(root / target.folder).manifest.identity.inputs[0]["name"].partition(":")[2] for target in raw
    ]
    path = root / "repeated.parquet"
    pq.write_table(pa.table({"id": ["a", "b"], "text": ["t"] * 2, "split": ["low"] * 2}), path)
    scores = [
        seal_scores(root, split, {file: ["a", "b"]}, target)
        for split, file, target in zip(("MCQ", "RQA"), names, raw, strict=True)
    ]
    store = SubsetRows(seal_subsets(root, "repeated", scores, raw, dict.fromkeys(names, path)), Lineage(root))

    traced = trace_id(store, "b")

    assert [row.row_parts[0][1].shard.split("/")[2].partition("-")[0] for row in traced] == ["MCQ", "RQA"]
    assert [row.text.source.file for row in traced] == names


def test_preview_omits_token_counts_that_pools_lack(tmp_path: Path) -> None:
    rows = [subset_pools.talk(name, stats_tokens=None, stats_completion_tokens=None) for name in ("a", "b", "c")]
    scored = subset_pools.scored(tmp_path, "mine/low", rows, [1.0, 2.0, 3.0])

    subsets = subset_pools.build_subsets(tmp_path, [scored], {"all": {}})

    assert preview(subsets, SYSTEMS.kinds)[0] == {"id": "a", "characters": "355", "asked": "2 + 2?"}


def test_subsets_whose_rows_name_no_split_are_compared(tmp_path: Path) -> None:
    subsets = []
    for folder, names in ((tmp_path / "first", "abc"), (tmp_path / "second", "abd")):
        rows = [subset_pools.talk(name, split=None) for name in names]
        scored = subset_pools.scored(folder, "mine/low", rows, [1.0, 2.0, 3.0])
        subsets.append(subset_pools.build_subsets(folder, [scored], {"all": {}}))

    [documents] = compare(*subsets, SYSTEMS.kinds).document_changes

    assert (documents.only_in_a.examples, documents.only_in_b.examples) == (["c"], ["d"])
    assert documents.in_both.documents == 2
