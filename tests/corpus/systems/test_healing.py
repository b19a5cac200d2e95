"""The healing recipe: its targets and sections, also read back from manifests."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pydantic
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from refusals import refusal

from pipeline_assets.build.run import Run
from pipeline_assets.corpus.megatron_split import MegatronRecipe
from pipeline_assets.corpus.snapshot.recipe import SnapshotRecipe
from pipeline_assets.corpus.tokens.o200k_harmony import VOCABULARY_SHA256
from pipeline_assets.corpus.training_set import TextRecipe, describe_split
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.spine.errors import InputError, UsageError
from pipeline_assets.systems.healing import HealingRecipe

RECIPE = Path(__file__).parents[3] / "manifests" / "recipes" / "healing_text_v1.yaml"
Recipes = Callable[..., HealingRecipe]
Build = Callable[..., Artifact]
PAGES = pa.table({"text": [f"Page {n}" for n in range(30)], "id": [f"page-{n}" for n in range(30)]})
REVISION = "87f09149ef4734204d70ed1d046ddc9ca3f2b8f9"
INLINE = RunSettings(workers=0)
AMOUNTS = st.one_of(
    st.builds(lambda count: {"documents": count}, st.integers(1, 10**9)),
    st.builds(lambda count: {"text_bytes": count}, st.integers(1, 10**13)),
)


def test_the_snapshot_has_its_own_name_and_other_targets_that_of_the_recipe(healing_recipe: Recipes) -> None:
    targets = healing_recipe(REVISION, {"name": "pages_small"}).targets()

    snapshot = f"pages_small_{REVISION}"
    assert targets[0].name == snapshot
    assert [
        (target.kind.name.partition("/")[2], str(target.folder), target.copy_name, target.name_key)
        for target in targets
    ] == [
        ("fineweb_edu_snapshot", f"corpora/pages_small/{REVISION}", f"{snapshot}.json", "snapshot.name"),
        ("healing_text_manifest", "selections/pages_v1", "pages_v1.json", "name"),
        ("megatron_split", "megatron/pages_v1/train", "pages_v1_train.json", "name"),
        ("megatron_split", "megatron/pages_v1/valid", "pages_v1_valid.json", "name"),
        ("megatron_dataset", "megatron/pages_v1", "pages_v1_megatron.json", "name"),
    ]


def test_exported_manifests_record_normalisation_split_and_tokenizer_file(
    publish: Callable[..., str], healing_recipe: Recipes, build_snapshot: Build, build_megatron: Build, tmp_path: Path
) -> None:
    recipe = healing_recipe(publish({"a.parquet": PAGES}))
    build_snapshot(recipe, tmp_path)
    build_megatron(recipe, tmp_path, "train")

    snapshot, text = (
        json.loads((tmp_path / item.folder / "manifest.json").read_text()) for item in recipe.targets()[:2]
    )

    normalised = "text stays as it came; only its NUL characters (U+0000) are removed"
    invariants = text["identity"]["decisions"]["invariants"]
    assert snapshot["identity"]["decisions"]["normalisation"] == invariants["normalisation"] == normalised
    assert invariants["split"]["valid_fraction"] == text["identity"]["recipe"]["valid_fraction"] == "0.1"
    for manifest in (snapshot, text):
        assert manifest["provenance"]["made_for"] == {
            "recipe": "pages_v1",
            "split": describe_split("0.1"),
            "tokenizer": {
                "family": "o200k_harmony",
                "sha256": VOCABULARY_SHA256,
                "path": "pipeline_assets/corpus/tokens/o200k_base.tiktoken",
            },
        }


def test_names_change_no_content_budgets_only_splits_fractions_selections_too(healing_recipe: Recipes) -> None:
    renamed = healing_recipe(REVISION, {"name": "leaves"}).model_copy(update={"name": "leaves_v1"})
    changes = [{}, {"token_budget": 20}, {"valid_fraction": "0.2"}]

    recipes = [healing_recipe(REVISION, {}, megatron) for megatron in changes] + [renamed]

    plain, budget, fraction, names = ([target.recipe for target in recipe.targets()] for recipe in recipes)
    assert plain == names
    assert plain[:2] == budget[:2] and plain[2:4] != budget[2:4]
    assert plain[0] == fraction[0] and plain[1] != fraction[1]


@pytest.mark.parametrize("revision", ["main", "", "87f0914", REVISION.upper(), REVISION + "0", REVISION + "\n"])
def test_a_revision_that_is_not_a_commit_is_refused(healing_recipe: Recipes, revision: str) -> None:
    with pytest.raises(
        pydantic.ValidationError, match="a revision must be a commit of 40 hex digits, because branches move"
    ):
        healing_recipe(revision)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rules": ["int_score"]}, "'int_score' is not a rule; write"),
        ({"dataset": "fineweb-edu"}, "must be owner/name"),
        ({"files": []}, "at least 1 item"),
        ({"shard_text_bytes": 0}, "greater than 0"),
        ({"max_reject_fraction": "1 %"}, "must be a decimal number"),
        ({"name": "../pages"}, "must contain only lower-case letters"),
    ],
)
def test_a_section_out_of_range_is_refused(healing_recipe: Recipes, change: dict[str, object], message: str) -> None:
    with pytest.raises(pydantic.ValidationError, match=message):
        healing_recipe(REVISION, change)


OTHER = "ab" * 32


@pytest.mark.parametrize(
    ("change", "line", "message"),
    [
        (lambda recipe: recipe["snapshot"].pop("name"), 11, "the key `snapshot.name` is missing; add it"),
        (
            lambda recipe: recipe["megatron"]["tokenizer"].update(sha256=OTHER),
            5,
            f"`megatron.tokenizer.sha256` is '{OTHER}': "
            f"the vocabulary that ships with this program has {VOCABULARY_SHA256}; correct the value",
        ),
    ],
    ids=["a snapshot without a name", "another vocabulary than the shipped one"],
)
def test_a_recipe_that_lacks_a_name_or_pins_another_vocabulary_is_refused(
    change: Callable[[dict[str, Any]], object], line: int, message: str, tmp_path: Path
) -> None:
    recipe = yaml.safe_load(RECIPE.read_text(encoding="utf-8"))
    change(recipe)
    path = tmp_path / RECIPE.name
    path.write_text(yaml.safe_dump(recipe))

    assert refusal(lambda: HealingRecipe.read(path), UsageError) == f"{path}:{line}: {message}"


@given(amount=AMOUNTS, rules=st.lists(st.sampled_from(["a >= 3", "b < 1"])))
def test_the_snapshot_section_is_read_back_from_its_content(
    amount: dict[str, object], rules: list[str], healing_recipe: Recipes
) -> None:
    section = healing_recipe("ab" * 20, {"amount": amount, "rules": rules}).snapshot

    recipe = SnapshotRecipe.from_output_content(section.output_content())

    assert recipe.model_copy(update={"name": section.name}) == section
    assert recipe.output_content() == section.output_content()


def test_the_other_sections_are_read_back_from_their_content() -> None:
    recipe = HealingRecipe.read(RECIPE)

    assert MegatronRecipe.from_content(recipe.megatron.content()) == recipe.megatron
    assert TextRecipe.from_content(recipe.healing_text_manifest().recipe).shards == recipe.selection.shards


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"valid_part": "0.1"}, "unknown key `valid_part`"),
        ({"token_budget": 0}, "`token_budget` must be > 0, got 0"),
    ],
)
def test_an_unknown_section_is_reported_with_a_fix(change: dict[str, object], message: str) -> None:
    content = HealingRecipe.read(RECIPE).megatron.content() | change

    assert refusal(lambda: MegatronRecipe.from_content(content), UsageError) == (
        f"the recipe in the manifest: {message}; use the version of the program that wrote it"
    )


def test_a_split_is_not_built_from_a_replaced_snapshot(
    publish: Callable[..., str], healing_recipe: Recipes, build_snapshot: Build, tmp_path: Path
) -> None:
    recipe = healing_recipe(publish({"a.parquet": PAGES}))
    snapshot, selection, split, *_ = recipe.targets()
    build_snapshot(recipe, tmp_path)
    selection.kind.build(selection, Run(tmp_path, INLINE))
    (tmp_path / snapshot.folder).rename(tmp_path / "moved")
    build_snapshot(healing_recipe(recipe.snapshot.revision, {"amount": {"documents": 3}}), tmp_path)

    message = r"digest is sha256:.*, expected sha256:.*; the artifact was replaced; run the same command again"
    with pytest.raises(InputError, match=message):
        split.kind.build(split, Run(tmp_path, INLINE))


def test_a_snapshot_needs_a_hub(healing_recipe: Recipes, tmp_path: Path) -> None:
    target = healing_recipe("ab" * 20).fineweb_edu_snapshot()

    with pytest.raises(ValueError, match="this run has no hub, which is needed for a snapshot"):
        target.kind.build(target, Run(tmp_path, INLINE))
