"""The nemotron recipe: refusals, targets, warnings and unpinned datasets."""

import datetime
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from nemotron_hub import SHIPPED, SPLITS
from refusals import refusal

from pipeline_assets.build.pins.split_pin import SplitFolder
from pipeline_assets.build.run import Run
from pipeline_assets.corpus.nemotron.dataset_section import DatasetSection
from pipeline_assets.corpus.nemotron.splits import find_splits, partition_key
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.spine.key_types import UNPINNED
from pipeline_assets.systems.nemotron import NemotronRecipe
from pipeline_assets.systems.registry import SYSTEMS


def build_recipe(*datasets: dict[str, Any]) -> NemotronRecipe:
    content = {"system": "nemotron", "name": "chats", "scan": {"max_rows": None}, "datasets": list(datasets)}
    return NemotronRecipe.from_mapping(content, "chats.yaml")


def dataset(**changes: Any) -> dict[str, Any]:
    return {"dataset": "maker/chats", "revision": "a" * 40, "splits": ["low"]} | changes


def test_the_shipped_recipe_names_every_split_of_six_datasets() -> None:
    recipe = SYSTEMS.read_recipe(SHIPPED)

    assert isinstance(recipe, NemotronRecipe)
    splits = [partition_key(dataset, split) for dataset, dataset_splits in SPLITS.items() for split in dataset_splits]
    assert [target.partition for target in recipe.targets() if target.kind.name == "nemotron/inventory"] == splits
    assert splits[0] == "nemotron-math-v2/high_part00" and len(splits) == 13
    assert [name for name, _ in recipe.revisions()] == list(SPLITS) and len(SPLITS) == 6


ONE_LOCATION = "maker/chats must have one location; set `revision` for a hub dataset, or `path` for a local folder"
SEEDS = {"dataset": "maker/chats", "path": "seeds", "splits": ["low"], "text": "text"}


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"revision": "main"}, "maker/chats must be a commit of 40 hex digits, since a branch moves, got 'main'"),
        ({"revision": None}, ONE_LOCATION),
        ({"path": "chats"}, ONE_LOCATION),
        ({"dataset": "chats"}, "`dataset` must be owner/name, such as nvidia/Nemotron-Science-v1, got 'chats'"),
        ({"dataset": "maker/nemotron"}, "'maker/nemotron' cannot be a folder name in the data root; choose another"),
        ({"dataset": f"maker/{'x' * 151}"}, f"name must have at most 150 characters, got '{'x' * 151}'"),
        ({"splits": ["low...high"]}, "a dataset or split name must not contain `...`, which is a range in Dagster's"),
        ({"splits": ["../low"]}, "a split name must begin with a letter, a digit or `_`, and have only these, `.`"),
        ({"splits": ["low", "low"]}, "chats/low is repeated; name each split once"),
        ({"prompts": [SEEDS]}, "chats/low is the name of two different sources; give each seed set a `dataset` of"),
        ({"files": {"high": ["*"]}}, "`files` has 'high', which is not in `splits`"),
        ({"reasoning_effort": {"high": "high"}}, "`reasoning_effort` has 'high', which is not in `splits`"),
        ({"split": ["low"]}, "unknown key `datasets.0.split`; chats.yaml"),
    ],
)
def test_an_invalid_section_is_refused_in_one_line(changes: dict[str, Any], line: str) -> None:
    message = refusal(lambda: build_recipe(dataset(**changes)), UsageError)

    assert line.partition("; ")[0] in message and "\n" not in message


def test_datasets_of_two_owners_with_one_name_are_refused_in_one_line() -> None:
    """Names of artifacts omit the owner."""
    with pytest.raises(UsageError) as refused:
        build_recipe(dataset(), dataset(dataset="other/chats"))

    assert (refused.value.what, *refused.value.others) == ("chats/low is the name of two different datasets",)
    assert refused.value.fix == "give a local folder another `dataset`, or a hub dataset a recipe of its own"


def test_two_datasets_of_one_folder_name_are_refused_even_if_their_splits_differ() -> None:
    first = dataset()["dataset"]
    for other in ("other/chats", str(first).replace("chats", "Chats")):
        line = refusal(lambda name=other: build_recipe(dataset(), dataset(dataset=name, splits=["high"])), UsageError)
        assert f"{first} and {other} share the folder name chats; give a local folder another `dataset`" in line
    assert len(build_recipe(dataset(), dataset(splits=["high"])).datasets) == 2


def test_a_seed_set_may_be_a_split_of_a_dataset_in_the_recipe() -> None:
    files = {"low": ["low*.jsonl"], "high": ["high*.jsonl"]}
    seeds = dataset(files={"low": ["low*.jsonl"]}, text="text")

    recipe = build_recipe(dataset(splits=["low", "high"], files=files, prompts=[seeds]))

    raw = [target.partition for target in recipe.targets() if target.kind.name == "nemotron/raw"]
    assert raw == ["chats/low", "chats/high"]


def build_rows_recipe(**changes: Any) -> NemotronRecipe:
    shipped = yaml.safe_load(SHIPPED.read_text())
    sections = {"rows": shipped["rows"] | changes, "hf_layout": shipped["hf_layout"]}
    content = {"system": "nemotron", "name": "chats", **sections, "datasets": [dataset(domain="math")]}
    return NemotronRecipe.from_mapping(content, "chats.yaml")


def test_a_recipe_without_a_scan_has_no_inventory() -> None:
    kinds = [target.kind.name for target in build_rows_recipe().targets()]

    assert kinds == ["nemotron/raw", "nemotron/normalized_shards", "nemotron/hf_layout"]


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"template": "qwen"}, "must be harmony/1, or in a recipe {path: FOLDER} for a model's chat template, got 'qw"),
        (
            {"template": {"path": "m", "date": datetime.date(2026, 1, 31)}},
            "`rows.template.date` must be text, got 2026-01-31; put it in quotes",
        ),
        (
            {"template": {"path": "m", "date": "2026-02-31"}},
            "`rows.template.date` is '2026-02-31': day is out of range",
        ),
        (
            {"template": {"path": "m", "variables": {"effort": 0.5}}},
            "`rows.template.variables.effort` must be true or false, or an integer, or text, got 0.5",
        ),
        ({"template": "plain/1"}, "`rows.template` is 'plain/1': plain/1 was removed; write"),
        (
            {"loss": {"mode": "assistant_first"}},
            "`rows.loss.mode` must be one of assistant_all, assistant_last, "
            "got 'assistant_first'; did you mean assistant_last?",
        ),
        ({"loss": {"mode": "assistant_all", "call": True}}, "unknown key `rows.loss.call`"),
        ({"max_reject_fraction": "1.5"}, "must be in [0, 1]"),
        ({"shard_bytes": 0}, "`rows.shard_bytes` must be > 0, got 0"),
        ({"tokenizer": {"family": "o200k_harmony", "sha256": "0" * 64}}, "the vocabulary that ships with this program"),
    ],
)
def test_invalid_rows_sections_are_refused_in_one_line(changes: dict[str, Any], line: str) -> None:
    assert line in refusal(lambda: build_rows_recipe(**changes), UsageError)


SCAN: dict[str, Any] = {"scan": {"max_rows": None}}
DEDUPLICATED: dict[str, Any] = {"rows": {}, "deduplicate": {}}


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ({"scan": {"max_rows": 0}}, "`scan.max_rows` must be >= 1, got 0"),
        ({"scan": None}, "the recipe requests no artifact; add `scan` for inventories, `rows` for normalized rows"),
        (SCAN | {"hf_layout": {"readme": True}}, "`hf_layout` needs normalized rows; add `rows`"),
        (SCAN | {"deduplicate": {}}, "`deduplicate` needs normalized rows; add `rows`"),
        ({"rows": {}, "pools": {}}, "`pools` needs deduplicated rows; add `deduplicate`, `{}` is enough"),
        (
            {"rows": {}, "deduplicate": {"near": None, "near_duplicates": "drop"}},
            "`near_duplicates` is drop, but `near: null` finds none; remove one of them",
        ),
        (
            DEDUPLICATED | {"pools": {"rules": {}, "by_capability": False}},
            "`pools` has neither rules nor pools by capability; add a rule to `pools.rules`, or remove `pools`",
        ),
        ({"rows": {}, "scoring": {"model": {"path": "m"}}}, "`scoring` needs pools; add `pools`, `{}` is enough"),
    ],
)
def test_incomplete_or_contradictory_recipes_are_refused(content: dict[str, Any], line: str) -> None:
    recipe = {"system": "nemotron", "name": "chats", "datasets": [dataset()]} | content

    with pytest.raises(UsageError, match=re.escape(line)):
        NemotronRecipe.from_mapping(recipe, "chats.yaml")


def test_reasoning_efforts_belong_to_rows_of_their_split() -> None:
    efforts = [
        target.recipe["reasoning_effort"]
        for target in SYSTEMS.read_recipe(SHIPPED).targets()
        if target.kind.name == "nemotron/normalized_shards" and "math-v2/" in str(target.partition)
    ]

    assert efforts == ["high", "high", "high", "medium", "low"]


@pytest.mark.parametrize(
    ("splits", "efforts", "default", "warning"),
    [
        (
            ["low", "medium", "HIGH_part00"],
            {},
            "medium",
            "low, HIGH_part00: their rendered rows have effort medium; their names suggest low: low, HIGH_part00: high",
        ),
        (["low", "rest"], {"low": "low"}, "medium", "rest: their rendered rows have effort medium"),
        (["low", "medium"], {"low": "low"}, "medium", None),
        (["medium"], {}, None, "medium: their rendered rows have effort none; their names suggest medium: medium"),
        (["slow", "highway", "train"], {}, "medium", None),
    ],
)
def test_efforts_that_contradict_split_names_or_siblings_are_reported(
    splits: list[str], efforts: dict[str, str], default: str | None, warning: str | None
) -> None:
    section = DatasetSection.from_mapping(dataset(splits=splits, reasoning_effort=efforts), "chats.yaml")

    message = section.effort_warning(default)  # type: ignore[arg-type]

    assert message == (warning and f"{section.dataset}: `reasoning_effort` lacks {warning}")


@pytest.mark.parametrize(
    ("sections", "datasets", "warnings"),
    [
        ({"rows": {}}, ["maker/chats", "own/other", "nvidia/Nemotron-Math-v2"], 3),
        ({"rows": {}}, ["radna0/nemotron-math-v2-harmony-tools"], 0),  # whose rows are texts already
        ({"rows": {"system": None}}, ["maker/chats"], 0),
        ({"rows": {"template": {"path": "my/model"}}}, ["maker/chats"], 0),  # which writes its own system messages
        ({"scan": {}}, ["maker/chats"], 0),
    ],
)
def test_missing_efforts_are_one_warning_per_dataset_with_system_messages(
    sections: dict[str, Any], datasets: list[str], warnings: int
) -> None:
    content = {"system": "nemotron", "name": "chats", **sections}
    content["datasets"] = [dataset(domain="math", splits=["low", "high"], dataset=name) for name in datasets]

    assert len([*NemotronRecipe.from_mapping(content, "chats.yaml").warnings()]) == warnings
    assert [*SYSTEMS.read_recipe(SHIPPED).warnings()] == []


def test_the_path_of_a_folder_changes_no_artifact() -> None:
    relative, absolute = (build_recipe(dataset(revision=None, path=path)).targets()[0] for path in ("a", "/b"))

    assert relative.recipe == absolute.recipe


def test_an_unpinned_dataset_is_refused_with_the_command_that_pins_it(tmp_path: Path) -> None:
    recipe = build_recipe(dataset(revision=UNPINNED))
    run = Run(tmp_path, RunSettings(), HubFiles(tmp_path, endpoint="http://127.0.0.1:9"))

    with pytest.raises(UsageError, match="maker/chats: no revision is pinned yet; run corpusmill pin maker/chats"):
        SYSTEMS.kinds["nemotron/raw"].build(recipe.targets()[0], run)


def test_shipped_recipes_name_commits_and_the_splits_of_parquet_files() -> None:
    recipes = [SYSTEMS.read_recipe(path) for path in sorted(SHIPPED.parent.glob("*.yaml"))]
    unpinned = {
        (recipe.name, dataset)
        for recipe in recipes
        for dataset, revision in recipe.revisions()
        if revision == UNPINNED and recipe.name != "nemotron_v3"  # whose commits are left to `pin`
    }
    files = [f"data/{name}.parquet" for name in ("high_part00", "high_part01", "high_part02", "medium", "low")]

    assert unpinned == {("nemotron_v1", "radna0/nemotron-math-v2-harmony-tools")}
    assert sorted(find_splits(files, "", "math")) == sorted(SPLITS["nvidia/Nemotron-Math-v2"])


@pytest.mark.parametrize(
    ("name", "problem"), [("none", "folder not found"), ("low.jsonl", "expected a folder, got a file")]
)
def test_the_path_of_a_dataset_must_be_a_folder(name: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / "low.jsonl").touch()

    message = refusal(lambda: SplitFolder(tmp_path / name, "low", {}).choose_files(), UsageError)

    assert message == f"{tmp_path / name}: {problem}; correct the dataset's `path`"


def test_pools_of_one_dataset_from_two_folders_are_refused() -> None:
    def score(*folders: str, **sections: Any) -> NemotronRecipe:
        pools = [{"dataset": "chats", "folder": folder, "splits": [f"low{n}"]} for n, folder in enumerate(folders)]
        content = {"system": "nemotron", "name": "scored", "scoring": {"model": {"path": "model"}}, **sections}
        return NemotronRecipe.from_mapping(content | {"sealed_pools": pools}, "scored.yaml")

    built: dict[str, Any] = {"datasets": [dataset(domain="math")], "rows": {}, "deduplicate": {}, "pools": {}}
    fix = "score one of them in a recipe of its own"
    assert refusal(lambda: score("a", "b"), UsageError) == f"scored.yaml: chats has pools of a and of b; {fix}"
    assert refusal(lambda: score("a", **built), UsageError).endswith(f"chats has pools of `datasets` and of a; {fix}")
    assert len(score("a", "a").sealed_pools) == 2
