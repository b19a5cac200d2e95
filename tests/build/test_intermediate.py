"""Compression levels of intermediate corpora, for every command that builds them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from checkout import PROJECT
from stage_a_build import digests, local_source, parse_recipe
from stage_a_sources import with_decontamination, with_dedup, write_quiz

from pipeline_assets.build.recipe import Recipe
from pipeline_assets.build.run import Run
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.systems.registry import SYSTEMS
from pipeline_assets.systems.stage_a import StageARecipe
from pipeline_assets.trust.rebuild import rebuild

TEXTS = [f"Note {number} has an address a{number}@b.org in it. " * 3 for number in range(10)]
ROWS = [{"text": text, "key": f"note-{number}"} for number, text in enumerate([*TEXTS, TEXTS[1]])]
RULES = {"length": {"min_words": 2}}


def recipe_with(folder: Path, filters: Mapping[str, Any] = RULES, **keys: Any) -> StageARecipe:
    source = local_source(folder, "notes", ROWS, filters=filters)
    return parse_recipe(source, **{"refuse_licences": [], "outputs": None} | keys)


def build_complete_recipe(folder: Path) -> StageARecipe:
    write_quiz(folder / "quiz", [TEXTS[3]])
    content: dict[str, Any] = {}
    with_dedup(content)
    with_decontamination(content, str(folder / "quiz"))
    return recipe_with(folder, **content | {"outputs": None})


def intermediate_kinds(recipe: Recipe) -> list[str]:
    return list(dict.fromkeys(target.kind.name for target in recipe.targets() if target.is_intermediate))


def zstd_levels(built: Mapping[str, Artifact]) -> dict[str, int]:
    corpora = {role: artifact for role, artifact in built.items() if (artifact.folder / "shards").exists()}
    return {role: artifact.manifest.provenance["run_settings"]["zstd_level"] for role, artifact in corpora.items()}


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("healing_text_v1", []),
        ("stage_a_v1", ["stage_a/normalized", "stage_a/filtered"]),
        ("nemotron_v1", ["nemotron/prompts", "nemotron/near_duplicates"]),
        ("refinedweb_mixture", []),
        ("refinedweb_mixture_filtered", ["stage2/raw_corpus", "stage2/filtered"]),
        ("wmt14_fr_en", []),
    ],
)
def test_corpora_that_become_the_next_corpus_are_intermediate_in_each_system(name: str, kinds: list[str]) -> None:
    assert intermediate_kinds(SYSTEMS.read_recipe(PROJECT / "manifests" / "recipes" / f"{name}.yaml")) == kinds


@pytest.mark.parametrize(
    ("keys", "kinds"),
    [
        ({}, ["stage_a/normalized"]),
        ({"outputs": {"up_to": "normalized"}}, []),
        ({"outputs": {"up_to": "filtered"}}, ["stage_a/normalized"]),
        ({"outputs": {"normalized_dir": "stage_a/mine/normalized"}}, []),
        ({"dedup": {}}, ["stage_a/normalized", "stage_a/filtered"]),
        ({"dedup": {}, "outputs": {"normalized_dir": "stage_a/mine/normalized"}}, ["stage_a/filtered"]),
        ({"filters": {}}, []),
        ({"filters": {}, "dedup": {}}, ["stage_a/normalized", "stage_a/filtered"]),
        ({"filters": {}, "refuse_licences": ["proprietary"]}, ["stage_a/normalized"]),
    ],
)
def test_last_named_and_linked_corpora_are_not_intermediate(
    keys: dict[str, Any], kinds: list[str], tmp_path: Path
) -> None:
    assert intermediate_kinds(recipe_with(tmp_path, **keys)) == kinds


def test_intermediate_corpora_have_level_1_and_the_last_level_3_unless_set(tmp_path: Path) -> None:
    recipe, built = build_complete_recipe(tmp_path), dict[str, dict[str, Artifact]]()
    for variables in ({}, {"CORPUSMILL_ZSTD_LEVEL": "3"}, {"CORPUSMILL_ZSTD_LEVEL": "19"}):
        name = variables.get("CORPUSMILL_ZSTD_LEVEL", "unset")
        run = Run.from_settings(tmp_path / name, variables, workers=0)
        built[name] = {target.role: target.kind.build(target, run) for target in recipe.targets()}

    steps = ["normalized/notes", "filtered/notes", "deduplicated", "decontaminated"]
    assert zstd_levels(built["unset"]) == dict(zip([f"stage_a/{step}" for step in steps], [1, 1, 1, 3], strict=True))
    assert set(zstd_levels(built["3"]).values()) == {3}
    assert set(zstd_levels(built["19"]).values()) == {19}
    assert digests(built["unset"]) == digests(built["3"]) == digests(built["19"])


def test_rebuild_writes_equal_bytes_with_and_without_its_inputs(tmp_path: Path) -> None:
    recipe, run = build_complete_recipe(tmp_path), Run.from_settings(tmp_path, {}, workers=0)
    built = [target.kind.build(target, run) for target in recipe.targets()]

    for artifact in built:
        for with_upstream in (False, True):
            result = rebuild(artifact.folder, run, SYSTEMS.kinds, with_upstream)
            assert result.is_identical
            assert [outcome.differently_stored_paths for outcome in result.outcomes] == [[]] * len(result.outcomes)
