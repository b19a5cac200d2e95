"""The healing recipe that ships, and the artifacts that it names."""

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pydantic
import pytest
import yaml

from pipeline_assets.corpus.megatron_split import describe_dataset
from pipeline_assets.corpus.sampling.split import SPLITS, describe_split
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.errors import UsageError
from pipeline_assets.corpus.tokens.o200k_harmony import VOCABULARY_SHA256
from pipeline_assets.systems.healing import HealingRecipe

RECIPE = Path(__file__).parents[3] / "manifests" / "recipes" / "healing_text_v1.yaml"
REVISION = "87f09149ef4734204d70ed1d046ddc9ca3f2b8f9"


def test_the_shipped_recipe_pins_commit_tokenizer_and_budget() -> None:
    recipe = HealingRecipe.read(RECIPE)

    assert (recipe.snapshot.dataset, recipe.snapshot.revision) == ("HuggingFaceFW/fineweb-edu", REVISION)
    assert recipe.megatron.tokenizer.sha256 == VOCABULARY_SHA256
    assert (recipe.megatron.token_budget, recipe.megatron.valid_fraction) == (200_000_000, "0.1")
    assert recipe.snapshot.amount.limit == ("text_bytes", 1_104_000_000)


def test_a_recipe_names_five_artifacts_upstream_first() -> None:
    targets = HealingRecipe.read(RECIPE).targets()

    assert [(target.kind, str(target.folder)) for target in targets] == [
        ("healing/fineweb_edu_snapshot", f"corpora/fineweb_edu/{REVISION}"),
        ("healing/healing_text_manifest", "selections/healing_text_v1"),
        ("healing/megatron_split", "megatron/healing_text_v1/train"),
        ("healing/megatron_split", "megatron/healing_text_v1/valid"),
        ("healing/megatron_dataset", "megatron/healing_text_v1"),
    ]


def test_each_manifest_has_a_name_of_its_own_in_git() -> None:
    targets = HealingRecipe.read(RECIPE).targets()

    assert [target.export_as for target in targets] == [
        f"fineweb_edu_{REVISION}.json",
        "healing_text_v1.json",
        "healing_text_v1_train.json",
        "healing_text_v1_valid.json",
        "healing_text_v1_megatron.json",
    ]


def test_the_snapshot_has_its_folder_by_its_own_name_and_the_rest_by_the_recipes(
    healing_recipe: Callable[..., HealingRecipe],
) -> None:
    targets = healing_recipe(REVISION, {"name": "pages_small"}).targets()

    assert [(str(target.folder), target.named_by) for target in targets] == [
        (f"corpora/pages_small/{REVISION}", "snapshot.name"),
        ("selections/pages_v1", "name"),
        ("megatron/pages_v1/train", "name"),
        ("megatron/pages_v1/valid", "name"),
        ("megatron/pages_v1", "name"),
    ]
    assert (targets[0].name, targets[0].export_as) == (f"pages_small_{REVISION}", f"pages_small_{REVISION}.json")


def test_the_same_content_under_other_names_has_the_same_digests(
    publish: Callable[..., str],
    healing_recipe: Callable[..., HealingRecipe],
    build_snapshot: Callable[..., Artifact],
    build_megatron: Callable[..., Artifact],
    tmp_path: Path,
) -> None:
    table = pa.table({"text": [f"Page {n}" for n in range(30)], "id": [f"page-{n}" for n in range(30)]})
    first = healing_recipe(publish({"a.parquet": table}))
    snapshot = first.snapshot.model_copy(update={"name": "leaves"})
    second = first.model_copy(update={"name": "leaves_v1", "snapshot": snapshot})

    def states(recipe: HealingRecipe) -> list[tuple[str, str]]:
        build_snapshot(recipe, tmp_path)
        splits = {split: build_megatron(recipe, tmp_path, split) for split in SPLITS}
        recipe.megatron_dataset().seal_members(tmp_path, describe_dataset(splits, recipe.megatron), {})
        return [target.state(tmp_path) for target in recipe.targets()]

    of_first, of_second = states(first), states(second)

    assert of_first == of_second
    assert [state for state, _ in of_first] == ["current"] * 5
    assert {path.name for path in (tmp_path / "corpora").iterdir()} == {"pages", "leaves"}
    assert {path.name for path in (tmp_path / "megatron").glob("[!.]*")} == {"pages_v1", "leaves_v1"}


def test_recipes_of_two_token_budgets_share_one_snapshot(
    publish: Callable[..., str],
    healing_recipe: Callable[..., HealingRecipe],
    build_snapshot: Callable[..., Artifact],
    build_megatron: Callable[..., Artifact],
    tmp_path: Path,
) -> None:
    table = pa.table({"text": [f"Page {n}" for n in range(30)], "id": [f"page-{n}" for n in range(30)]})
    large = healing_recipe(publish({"a.parquet": table}), {"amount": {"text_bytes": 150}}, {"token_budget": 1000})
    small = large.model_copy(
        update={"name": "small_v1", "megatron": large.megatron.model_copy(update={"token_budget": 20})}
    )
    folder = build_snapshot(large, tmp_path).folder
    before = {path: path.stat().st_ino for path in folder.rglob("*")}

    shared = build_snapshot(small, tmp_path)
    tokens = [build_megatron(recipe, tmp_path, "train").manifest.identity.counts["tokens"] for recipe in (large, small)]

    assert shared.folder == folder
    assert {path: path.stat().st_ino for path in folder.rglob("*")} == before
    assert tokens[1] <= 18 < tokens[0]


def test_what_is_kept_for_git_says_how_text_was_normalised_and_split_and_which_tokenizer_file_it_is_for(
    publish: Callable[..., str],
    healing_recipe: Callable[..., HealingRecipe],
    build_snapshot: Callable[..., Artifact],
    build_megatron: Callable[..., Artifact],
    tmp_path: Path,
) -> None:
    table = pa.table({"text": [f"Page {n}" for n in range(30)], "id": [f"page-{n}" for n in range(30)]})
    recipe = healing_recipe(publish({"a.parquet": table}))
    build_snapshot(recipe, tmp_path)
    build_megatron(recipe, tmp_path, "train")

    snapshot, text = (json.loads((tmp_path / one.folder / "manifest.json").read_text()) for one in recipe.targets()[:2])

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


def test_a_snapshot_is_the_same_for_another_split_and_its_selection_is_not(
    healing_recipe: Callable[..., HealingRecipe],
) -> None:
    tenth, fifth = (healing_recipe(REVISION, {}, {"valid_fraction": fraction}) for fraction in ("0.1", "0.2"))

    assert tenth.fineweb_edu_snapshot().recipe == fifth.fineweb_edu_snapshot().recipe
    assert tenth.healing_text_manifest().recipe != fifth.healing_text_manifest().recipe


@pytest.mark.parametrize("revision", ["main", "", "87f0914", REVISION.upper(), REVISION + "0", REVISION + "\n"])
def test_a_revision_that_is_no_commit_is_refused(healing_recipe: Callable[..., HealingRecipe], revision: str) -> None:
    with pytest.raises(pydantic.ValidationError, match="a revision is a commit of 40 hex digits, since a branch moves"):
        healing_recipe(revision)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"rules": ["int_score"]}, "'int_score' is no rule; write"),
        ({"dataset": "fineweb-edu"}, "write owner/name"),
        ({"files": []}, "at least 1 item"),
        ({"shard_text_bytes": 0}, "greater than 0"),
        ({"max_reject_fraction": "1 %"}, "write it as a decimal number"),
        ({"columns": {"text": "text"}}, "Field required"),
        ({"name": "../pages"}, "a name has lower-case letters"),
        ({"name": ""}, "a name has lower-case letters"),
    ],
)
def test_a_section_out_of_range_is_refused(
    healing_recipe: Callable[..., HealingRecipe], change: dict[str, object], complaint: str
) -> None:
    with pytest.raises(pydantic.ValidationError, match=complaint):
        healing_recipe(REVISION, change)


def changed(tmp_path: Path, section: str, key: str, value: object) -> Path:
    """The shipped recipe with one value changed; None takes the key away."""
    recipe = yaml.safe_load(RECIPE.read_text(encoding="utf-8"))
    part = recipe[section] if section != "tokenizer" else recipe["megatron"]["tokenizer"]
    part.pop(key)
    part |= {} if value is None else {key: value}
    path = tmp_path / RECIPE.name
    path.write_text(yaml.safe_dump(recipe))
    return path


def test_a_recipe_whose_snapshot_has_no_name_is_refused(tmp_path: Path) -> None:
    path = changed(tmp_path, "snapshot", "name", None)

    with pytest.raises(UsageError) as refused:
        HealingRecipe.read(path)

    assert str(refused.value) == f"{path}: the key `snapshot.name` is missing; add it"


def test_a_recipe_that_pins_another_vocabulary_than_the_shipped_one_is_refused(tmp_path: Path) -> None:
    path = changed(tmp_path, "tokenizer", "sha256", "ab" * 32)

    with pytest.raises(UsageError) as refused:
        HealingRecipe.read(path)

    assert str(refused.value) == (
        f"{path}: `megatron.tokenizer.sha256` is '{'ab' * 32}': "
        f"the vocabulary that ships with this program has {VOCABULARY_SHA256}; correct the value"
    )
