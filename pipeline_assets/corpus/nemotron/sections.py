"""What a recipe says of datasets, of their rows, and of what is made of these: its sections, but `pools`."""

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, get_args

import pydantic

from pipeline_assets.corpus.dedup.recipe import DedupRecipe, NearRecipe
from pipeline_assets.corpus.nemotron.dataset_section import DOMAINS, EFFORTS, DatasetSection, Domain, known_domain
from pipeline_assets.corpus.nemotron.rows_recipe import RowsRecipe
from pipeline_assets.corpus.nemotron.splits import dataset_key, dataset_name, partition_key
from pipeline_assets.spine.manifest import StageVersion
from pipeline_assets.spine.recipe_yaml import section_at, sections_at
from pipeline_assets.spine.section import Option, RecipeError, RecipeSection

PROMPTS_STAGE = StageVersion("nemotron_prompts", 1)
DEDUPLICATED_STAGE = StageVersion("nemotron_deduplicated", 2)


PUBLISH_STAGE = StageVersion("nemotron_published_pools", 1)
CORRECTNESS = "correctness"  # in the meta of a prompt, by which one of several is chosen


class Scan(RecipeSection):
    """How much of each split the inventory reads.

    Attributes:
        max_rows: of a sample that lies evenly over its files; None for all.
    """

    max_rows: Annotated[int | None, Option("Rows of a split at most, from all over it.", "max-records")] = (
        pydantic.Field(None, ge=1)
    )


class HubLayout(RecipeSection):
    """Splits of a dataset in one folder, as a hub has them.

    Attributes:
        readme: with the dataset's card.
    """

    readme: Annotated[bool, Option("With the dataset's card in it.", "write-readme")] = False


class DeduplicateRecipe(RecipeSection):
    """Which normalised rows go, or are tagged as duplicates.

    Attributes:
        min_completion_tokens: a completion of fewer is next to nothing.
        scope: among whose rows one may be a duplicate: of its split, of its dataset, or of all of the recipe.
        near: prompts that are alike; None looks for none.
        near_duplicates: whether they are tagged, or dropped; the most correct one stays, of several of those the first.
    """

    min_completion_tokens: int = pydantic.Field(8, ge=0)
    scope: Literal["split", "dataset", "all"] = "split"
    near: NearRecipe | None = NearRecipe.model_validate({})
    near_duplicates: Literal["tag", "drop"] = "tag"

    def split_scope(self, split: str) -> str | None:
        """The partition of all whose rows are compared with those of one; None where there is but one."""
        return {"split": split, "dataset": dataset_name(split), "all": None}[self.scope]

    def by_prompt(self) -> dict[str, Any] | None:
        """How prompts are deduplicated, as a `DedupRecipe`; None where they aren't."""
        if self.near is None:
            return None
        order = {"selection": "quality", "quality_column": CORRECTNESS}
        return DedupRecipe.from_mapping({"near": self.near.content(), **order}, "deduplicate").content()


class PublishRecipe(RecipeSection):
    """The pools of each dataset as a dataset of a hub.

    Attributes:
        repo: owner/name; `{dataset}` in it stands for the name of the dataset, without its owner, in lower case.
        private: of a repo that isn't there yet: whether only its owner sees it.
        allow_unknown_licences: whether rows go of which nobody knows the licence.
    """

    repo: Annotated[str, pydantic.Field(pattern=r"^[\w.-]+/([\w.-]|\{dataset\})+$")]
    private: bool = True
    allow_unknown_licences: bool = False

    def recipe_content(self, dataset: str) -> dict[str, Any]:
        """The same of one dataset, by the name of its folder."""
        return self.content() | {"repo": self.repo.replace("{dataset}", dataset)}


def recipe_warnings(
    datasets: Sequence[DatasetSection], rows: RowsRecipe | None, publish: PublishRecipe | None
) -> Iterator[str]:
    """What to know before a recipe is built: splits whose system messages may say another effort than they were
    answered with; that no token says who publishes. Of the six, EFFORTS has those that are rendered and whose splits
    are named after efforts.
    """
    if rows is not None and rows.system is not None:
        asked = [one for one in datasets if one.dataset in EFFORTS or one.dataset not in DOMAINS]
        yield from filter(None, (one.effort_warnings(rows.system.reasoning_effort) for one in asked))
    if publish is not None and not os.environ.get("HF_TOKEN"):
        yield f"HF_TOKEN isn't set: all is built but what is published as {publish.repo}"


def check_sections(recipe: Mapping[str, Any]) -> Iterator[RecipeError]:
    """Sections of a recipe, as it was read, that lack another one, or can't be as they are."""
    has_rows, has_layout = recipe.get("rows") is not None, recipe.get("hf_layout") is not None
    if not has_rows and recipe.get("scan") is None and recipe.get("scoring") is None:
        fix = "add `scan` for inventories, `rows` for normalised rows, `scoring` for scores of pools"
        yield RecipeError((), "it asks for nothing", fix)
    for key, what in (("hf_layout", "lays out"), ("deduplicate", "is about")):
        if recipe.get(key) is not None and not has_rows:
            yield RecipeError((key,), f"`{key}` {what} normalised rows", "add `rows`")
    for key, what in (("pools", "are of rows that stay"), ("decontamination", "decides which rows stay")):
        if recipe.get(key) is not None and recipe.get("deduplicate") is None:
            yield RecipeError((key,), f"`{key}` {what}", "add `deduplicate`, `{}` is enough")
    if recipe.get("publish") is not None and recipe.get("pools") is None:
        yield RecipeError(("publish",), "`publish` sends pools", "add `pools`, `{}` is enough")
    if recipe.get("scoring") is not None and has_rows and recipe.get("pools") is None:
        fix = "add `pools`, `{}` is enough; or leave out `rows`, if the datasets are pools"
        yield RecipeError(("scoring",), "`scoring` is of pools", fix)
    if recipe.get("subsets") is not None and recipe.get("scoring") is None:
        yield RecipeError(("subsets",), "`subsets` are chosen by scores", "add `scoring`")
    repo = section_at(recipe, "publish").get("repo")
    if isinstance(repo, str) and "{dataset}" not in repo and len(sections_at(recipe, "datasets")) > 1:
        fix = "write {dataset} in it, such as owner/{dataset}-pools"
        yield RecipeError(("publish", "repo"), "all datasets would be one repo", fix)
    if section_at(recipe, "decontamination").get("action") == "cut":
        what, fix = "a row goes as a whole, nothing is cut out of it", "write `drop`, without the section `cut`"
        yield RecipeError(("decontamination", "action"), what, fix)
    yield from _check_datasets(recipe, has_rows, has_layout)


def _check_datasets(recipe: Mapping[str, Any], has_rows: bool, has_layout: bool) -> Iterator[RecipeError]:
    """Datasets that are there twice, or lack what their rows need."""
    earlier = set[str]()
    for position, section in sections_at(recipe, "datasets"):
        dataset, place = str(section.get("dataset")), ("datasets", position)
        splits = section.get("splits")
        splits = [str(split) for split in splits] if isinstance(splits, list | tuple) else []
        named = [dataset_key(dataset)] if has_layout else []
        for key in (*named, *(partition_key(dataset, split) for split in splits)):
            if key in earlier:
                fix = "`hf_layout` needs it once" if key in named else "name each split once"
                yield RecipeError((*place, "dataset" if key in named else "splits"), f"{key} is there twice", fix)
            earlier.add(key)
        if has_rows and section.get("domain") is None and known_domain(dataset) is None:
            yield RecipeError(place, f"{dataset} needs a `domain`", f"add one of {', '.join(get_args(Domain))}")
        if has_rows and section.get("reasoning_effort") and section_at(recipe, "rows").get("system", True) is None:
            what = f"`reasoning_effort` of {dataset} is told in a system message"
            yield RecipeError((*place, "reasoning_effort"), what, "leave out `system: null`")
