"""Recipe sections of the Nemotron stages, with checks across sections."""

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, get_args

import pydantic

from pipeline_assets.corpus.dedup.recipe import DedupRecipe, NearRecipe
from pipeline_assets.corpus.nemotron.dataset_section import DOMAINS, EFFORTS, DatasetSection, Domain, known_domain
from pipeline_assets.corpus.nemotron.rows_recipe import RowsRecipe
from pipeline_assets.corpus.nemotron.splits import dataset_key, dataset_of_partition, partition_key
from pipeline_assets.spine.command_option import Option
from pipeline_assets.spine.key_types import pattern_rule
from pipeline_assets.spine.manifest import StageVersion
from pipeline_assets.spine.recipe_validation import RecipeProblem
from pipeline_assets.spine.recipe_yaml import section_at, sections_at
from pipeline_assets.spine.section import RecipeSection

PROMPTS_STAGE = StageVersion("nemotron_prompts", 1)
DEDUPLICATED_STAGE = StageVersion("nemotron_deduplicated", 2)
PUBLISH_STAGE = StageVersion("nemotron_published_pools", 2)
CORRECTNESS_KEY = "correctness"  # meta key of a prompt; the most correct of several duplicates is kept
# Section -> the section that it requires, and what that section provides.
_REQUIRED_SECTIONS = {
    "hf_layout": ("rows", "normalized rows"),
    "deduplicate": ("rows", "normalized rows"),
    "pools": ("deduplicate", "deduplicated rows"),
    "decontamination": ("deduplicate", "deduplicated rows"),
    "publish": ("pools", "pools"),
    "sealed_pools": ("scoring", "scores"),
    "subsets": ("scoring", "scores"),
}
_OTHER_NAME = "give a local folder another `dataset`, or a hub dataset a recipe of its own"


class Scan(RecipeSection):
    """Rows that the inventory counts: all, or a sample of `max_rows`."""

    max_rows: Annotated[int | None, Option("Maximum rows of a split, sampled over all files.", "max-records")] = (
        pydantic.Field(None, ge=1)
    )


class HubLayoutSection(RecipeSection):
    """Section that requests a dataset's splits in one folder, as on a hub."""

    readme: Annotated[bool, Option("Add the dataset's card.", "write-readme")] = False


class DeduplicateRecipe(RecipeSection):
    """Rules that drop normalized rows or tag them as duplicates.

    Of near duplicates, the row with the highest correctness is kept; of several such rows, the first.
    """

    min_completion_tokens: int = pydantic.Field(8, ge=0)  # a row with fewer completion tokens is dropped
    scope: Literal["split", "dataset", "all"] = "split"  # within which rows are compared
    near: NearRecipe | None = NearRecipe.model_validate({})  # similarity of near duplicates; None to skip the search
    near_duplicates: Literal["tag", "drop"] = "tag"

    def scope_for(self, split: str) -> str | None:
        """Return the split or dataset within which rows are compared; None for all rows."""
        return {"split": split, "dataset": dataset_of_partition(split), "all": None}[self.scope]

    def prompt_dedup_recipe(self) -> dict[str, Any] | None:
        """Return the content of the `DedupRecipe` for prompts; None if `near` is not set."""
        if self.near is None:
            return None
        order = {"selection": "quality", "quality_column": CORRECTNESS_KEY}
        return DedupRecipe.from_mapping({"near": self.near.content(), **order}, "deduplicate").content()


class PublishRecipe(RecipeSection):
    """Publication on a hub, where each dataset's pools form one dataset."""

    # Owner/name; `{dataset}` stands for the dataset's name without its owner, in lower case.
    repo: Annotated[str, pattern_rule(r"[\w.-]+/([\w.-]|\{dataset\})+", "must be owner/name, such as me/{dataset}")]
    private: bool = True
    allow_unknown_licences: bool = False  # publishes rows without a known licence, too

    def recipe_content(self, dataset: str) -> dict[str, Any]:
        """Return the section's content, with a dataset's name in place of `{dataset}`."""
        return self.content() | {"repo": self.repo.replace("{dataset}", dataset)}


def recipe_warnings(
    datasets: Sequence[DatasetSection], rows: RowsRecipe | None, publish: PublishRecipe | None
) -> Iterator[str]:
    """Yield warnings about a missing HF_TOKEN and possibly wrong reasoning efforts.

    Efforts are checked only if `rows` has `system` and no chat template. Datasets in `DOMAINS` but not in `EFFORTS` are
    skipped.
    """
    if rows is not None and rows.system is not None and rows.chat_template is None:
        sections = [section for section in datasets if section.dataset in EFFORTS or section.dataset not in DOMAINS]
        yield from filter(None, (section.effort_warning(rows.system.reasoning_effort) for section in sections))
    if publish is not None and not os.environ.get("HF_TOKEN"):
        yield f"HF_TOKEN is not set: everything except the publication to {publish.repo} will be built"


def check_sections(recipe: Mapping[str, Any]) -> Iterator[RecipeProblem]:
    """Yield errors of sections that require a missing section or contradict another."""
    yield from _check_required_sections(recipe)
    yield from _check_contradictions(recipe)
    yield from _check_datasets(recipe)
    yield from _check_pool_folders(recipe)


def _check_required_sections(recipe: Mapping[str, Any]) -> Iterator[RecipeProblem]:
    """Yield an error for each section whose required section is missing."""
    present = {key for key, section in recipe.items() if section not in (None, [])}
    if not present & {"datasets", "sealed_pools"}:
        yield RecipeProblem(("name",), "the recipe has no `datasets`", "add one, or `sealed_pools` for scores")
    if not present & {"scan", "rows", "scoring"}:
        fix = "add `scan` for inventories, `rows` for normalized rows, `scoring` for scores of pools"
        yield RecipeProblem((), "the recipe requests no artifact", fix)
    for key, (needed, description) in _REQUIRED_SECTIONS.items():
        if key in present and needed not in present:
            fix = f"add `{needed}`" + ", `{}` is enough" * (needed in ("deduplicate", "pools"))
            yield RecipeProblem((key,), f"`{key}` needs {description}", fix)
    if "scoring" in present and "rows" in present and "pools" not in present:
        fix = "add `pools`, `{}` is enough; or omit `rows`, if the datasets are pools"
        yield RecipeProblem(("scoring",), "`scoring` needs pools", fix)


def _check_contradictions(recipe: Mapping[str, Any]) -> Iterator[RecipeProblem]:
    """Yield errors of settings that exclude each other."""
    duplicates, pools = section_at(recipe, "deduplicate"), section_at(recipe, "pools")
    if duplicates.get("near_duplicates") == "drop" and duplicates.get("near", ()) is None:
        what, fix = "`near_duplicates` is drop, but `near: null` finds none", "remove one of them"
        yield RecipeProblem(("deduplicate", "near_duplicates"), what, fix)
    if pools.get("rules") == {} and pools.get("by_capability") is False:
        fix = "add a rule to `pools.rules`, or remove `pools`"
        yield RecipeProblem(("pools",), "`pools` has neither rules nor pools by capability", fix)
    repo = section_at(recipe, "publish").get("repo")
    if isinstance(repo, str) and "{dataset}" not in repo and len(sections_at(recipe, "datasets")) > 1:
        fix = "add {dataset}, such as owner/{dataset}-pools"
        yield RecipeProblem(("publish", "repo"), "`publish.repo` would be the same for all datasets", fix)
    if section_at(recipe, "decontamination").get("action") == "cut":
        what, fix = "rows can only be dropped as a whole, got `cut`", "write `drop`, without the section `cut`"
        yield RecipeProblem(("decontamination", "action"), what, fix)


def _check_pool_folders(recipe: Mapping[str, Any]) -> Iterator[RecipeProblem]:
    """Yield an error for each dataset whose pools would come from two places."""
    names = [dataset_key(str(section.get("dataset"))) for _, section in sections_at(recipe, "datasets")]
    folders = dict.fromkeys(names, "`datasets`") if recipe.get("pools") is not None else {}
    for number, section in sections_at(recipe, "sealed_pools"):
        name, folder = str(section.get("dataset")), str(section.get("folder"))
        if (first := folders.setdefault(name, folder)) != folder:
            what = f"{name} has pools of {first} and of {folder}"
            yield RecipeProblem(("sealed_pools", number), what, "score one of them in a recipe of its own")


def _check_datasets(recipe: Mapping[str, Any]) -> Iterator[RecipeProblem]:
    """Yield errors of datasets, such as a repeated split or a missing domain."""
    has_rows, has_layout = recipe.get("rows") is not None, recipe.get("hf_layout") is not None
    earlier, sources, names = dict[str, object](), dict[str, object](), dict[str, str]()
    for number, section in sections_at(recipe, "datasets"):
        dataset, location = str(section.get("dataset")), ("datasets", number)
        splits = section.get("splits")
        splits = [str(split) for split in splits] if isinstance(splits, list | tuple) else []
        named = [dataset_key(dataset)] if has_layout else []
        repeated = set[str]()
        for key in (*named, *(partition_key(dataset, split) for split in splits)):
            if key in earlier:
                repeated.add(key)
                what, fix = "repeated", "name it once for `hf_layout`" if key in named else "name each split once"
                if earlier[key] != (dataset, section.get("path")):
                    what = "the name of two different datasets"
                    fix = _OTHER_NAME
                yield RecipeProblem((*location, "dataset" if key in named else "splits"), f"{key} is {what}", fix)
            earlier[key] = (dataset, section.get("path"))
        if (first := names.setdefault(dataset_key(dataset), dataset)) != dataset and not repeated:
            what = f"{first} and {dataset} share the folder name {dataset_key(dataset)}"
            yield RecipeProblem((*location, "dataset"), what, _OTHER_NAME)
        for source in (section, *(seeds for _, seeds in sections_at(section, "prompts"))):
            place, splits = [source.get(key) for key in ("dataset", "path", "revision")], source.get("splits")
            for split in splits if isinstance(splits, list | tuple) else []:
                key = partition_key(str(source.get("dataset")), str(split))
                files = section_at(source, "files").get(str(split))
                is_known = source is section and key in repeated
                if (place, files) != sources.setdefault(key, (place, files)) and not is_known:
                    fix = "give each seed set a `dataset` of its own"
                    yield RecipeProblem((*location, "prompts"), f"{key} is the name of two different sources", fix)
        if has_rows and section.get("domain") is None and known_domain(dataset) is None:
            yield RecipeProblem(location, f"{dataset} needs a `domain`", f"add one of {', '.join(get_args(Domain))}")
        if has_rows and section.get("reasoning_effort") and section_at(recipe, "rows").get("system", True) is None:
            what = f"`reasoning_effort` of {dataset} needs a system message"
            yield RecipeProblem((*location, "reasoning_effort"), what, "omit `system: null`")
