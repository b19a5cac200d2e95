"""Contract of row access, for every kind of artifact with rows."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from parallel_build import build as build_pairs
from parallel_build import contents, write_set
from rows_contract import check_contract
from stage2_build import build as build_mixture
from stage2_build import write_local_mixture
from stage_a_build import NO_COMMIT, build, local_source
from stage_a_sources import recipe_content, with_decontamination, with_dedup, with_pack, write_quiz

from pipeline_assets.build.rows.row_stores import open_rows
from pipeline_assets.build.rows.source_row import AnySourceRow, HubRow, LocalRow
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.systems.parallel_text import ParallelRecipe
from pipeline_assets.systems.registry import SYSTEMS
from pipeline_assets.systems.stage_a import StageARecipe

STAGE_A = ("normalized/notes", "filtered/notes", "deduplicated", "decontaminated", "packed")
STAGE_2 = ("raw_corpus/first", "filtered/first", "deduplicated", "token_shards/second")
PARALLEL = ("sample", "token_cache")
FILTERS = {"length": {"min_words": 5}}


@pytest.fixture(scope="module")
def stage_a(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Artifact]:
    """Build stage A from notes with short texts, copies and a leaked quiz item."""
    root = tmp_path_factory.mktemp("stage_a")
    texts = [
        f"Dear friend, note {n - n % 7 % 2} is of the river and of its boats" + " again" * (n % 5) for n in range(20)
    ]
    rows = [{"text": text, "key": f"n-{n}"} for n, text in enumerate([*texts, "too short", "日本語 is in five words"])]
    content: dict[str, Any] = recipe_content(NO_COMMIT)
    content["sources"] = [local_source(root, "notes", rows, filters=FILTERS)]
    with_dedup(content)
    with_decontamination(content, str(root / "quiz"))
    with_pack(content)
    write_quiz(root / "quiz", ["What is it that nobody ever wrote?"])
    return build(StageARecipe.model_validate(content), root)


def is_source_line(text: str, source: AnySourceRow) -> bool:
    assert isinstance(source, LocalRow)
    return bool(json.loads(source.path.read_bytes()[source.row :].splitlines()[0])["text"] == text)


@pytest.mark.parametrize("role", STAGE_A)
def test_rows_of_stage_a_keep_the_contract(stage_a: dict[str, Artifact], role: str) -> None:
    check_contract(open_rows(stage_a[f"stage_a/{role}"].folder, SYSTEMS.kinds), is_source_line)


@pytest.fixture(scope="module")
def stage2(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Artifact]:
    """Build two corpora that share a text and have an unusable row each."""
    root = tmp_path_factory.mktemp("stage2")
    return build_mixture(write_local_mixture(root), root)


@pytest.mark.parametrize("role", STAGE_2)
def test_rows_of_stage_2_keep_the_contract(stage2: dict[str, Artifact], role: str) -> None:
    check_contract(open_rows(stage2[f"stage2/{role}"].folder, SYSTEMS.kinds), is_source_line)


@pytest.fixture(scope="module")
def parallel_text(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Artifact]:
    pytest.importorskip("sentencepiece", reason="needs the extra `tokenizers`")
    root = tmp_path_factory.mktemp("parallel")
    write_set(root / "set", parquet=False)
    content = contents({"path": str(root / "set"), "files": ["{split}-*.jsonl"]})
    return build_pairs(ParallelRecipe.from_mapping(content | {"encode": {"vocab_size": 500}}, "made"), root)


@pytest.mark.parametrize("role", PARALLEL)
def test_rows_of_parallel_text_keep_the_contract(parallel_text: dict[str, Artifact], role: str) -> None:
    def is_source_pair(text: str, source: AnySourceRow) -> bool:
        assert isinstance(source, LocalRow)
        row = json.loads(source.path.read_bytes()[source.row :].partition(b"\n")[0])
        return text == "{fr}\n{en}".format(**row["translation"])

    check_contract(open_rows(parallel_text[f"parallel_text/{role}"].folder, SYSTEMS.kinds), is_source_pair)


@pytest.mark.parametrize("place", ["megatron/healing_text_v1/train", "megatron/healing_text_v1/valid", "corpora"])
def test_rows_of_the_healing_set_keep_the_contract(demo_root: Path, place: str) -> None:
    tables: dict[str, list[str]] = {}

    def has_text(text: str, source: AnySourceRow) -> bool:
        assert isinstance(source, HubRow)
        path = demo_root / "hub" / "datasets" / source.dataset / source.path
        rows = tables.setdefault(source.path, pq.read_table(path)["text"].to_pylist())
        return rows[source.row].replace("\0", "") == text

    folder = demo_root / place
    check_contract(open_rows(next(folder.glob("*/[!.]*")) if place == "corpora" else folder, SYSTEMS.kinds), has_text)


def test_every_kind_with_rows_is_covered() -> None:
    stage_a = {f"stage_a/{role.partition('/')[0]}" for role in STAGE_A}
    healing = {"healing/fineweb_edu_snapshot", "healing/megatron_split"}
    prompt_steps = ("prompts", "decontaminated", "near_duplicates")
    steps = (*prompt_steps, "normalized_shards", "deduplicated", "candidate_pools", "hf_layout", "training_subsets")
    nemotron = {f"nemotron/{step}" for step in steps}

    stage2 = {f"stage2/{role.partition('/')[0]}" for role in STAGE_2}

    parallel = {f"parallel_text/{role}" for role in PARALLEL}

    with_rows = {name for name, kind in SYSTEMS.kinds.items() if kind.row_store_class is not None}
    differing = sorted(with_rows ^ (stage_a | healing | nemotron | stage2 | parallel))
    assert not differing, f"add the roles of {differing} to the lists above, or remove them if they have no rows"
