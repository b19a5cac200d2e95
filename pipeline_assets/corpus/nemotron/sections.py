"""What a recipe says of datasets, of their rows, and of what is made of these: its sections, but `pools`."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self, get_args

import pydantic

from pipeline_assets.corpus.dedup.recipe import DedupRecipe, NearRecipe
from pipeline_assets.corpus.harmony.encode import RENDERERS, AssistantAll, AssistantLast, LossMode
from pipeline_assets.corpus.harmony.message import Analysis, Template
from pipeline_assets.corpus.harmony.prompt import GPT_OSS_SYSTEM, SystemContent
from pipeline_assets.corpus.nemotron.message_text import REASONING_KEYS, ThinkTags
from pipeline_assets.corpus.nemotron.splits import dataset_key, dataset_name, partition_key
from pipeline_assets.corpus.tokens.o200k_harmony import TokenizerRecipe
from pipeline_assets.spine.lineage import AREAS
from pipeline_assets.spine.manifest import StageVersion
from pipeline_assets.spine.recipe_yaml import section_at, sections_at
from pipeline_assets.spine.section import COMMIT_PATTERN, Option, RecipeError, RecipeSection, Share

Domain = Literal["math", "proof", "science", "agentic", "chat_if"]
Effort = Literal["low", "medium", "high"]

DOMAINS: dict[str, Domain] = {
    "nvidia/Nemotron-Math-v2": "math",
    "nvidia/Nemotron-Math-Proofs-v1": "proof",
    "nvidia/Nemotron-Science-v1": "science",
    "nvidia/Nemotron-Agentic-v1": "agentic",
    "nvidia/Nemotron-Instruction-Following-Chat-v1": "chat_if",
    "radna0/nemotron-math-v2-harmony-tools": "math",
}
# How hard gpt-oss-120b was told to think when it answered, by split: what these are named after.
EFFORTS: dict[str, dict[str, Effort]] = {
    "nvidia/Nemotron-Math-v2": {
        "high_part00": "high",
        "high_part01": "high",
        "high_part02": "high",
        "medium": "medium",
        "low": "low",
    }
}


@dataclass(frozen=True)
class RowOrigin:
    """Where the rows of a block come from.

    Attributes:
        dataset: as the hub names it, `nvidia/Nemotron-Math-v2`.
        subset: the hub's configuration, such as `default`.
        split: `high_part00`.
        domain: of the dataset; `DOMAINS` has the six, for any other the recipe says it.
        file: as the manifest's inputs name it.
        revision: the commit, 40 hex digits; None of a folder.
    """

    dataset: str
    subset: str
    split: str
    domain: Domain
    file: str
    revision: str | None


NORMALISE_STAGE = StageVersion("nemotron_normalise", 5)
PROMPTS_STAGE = StageVersion("nemotron_prompts", 1)
DEDUPLICATED_STAGE = StageVersion("nemotron_deduplicated", 2)
SHARD_BYTES = 1 << 27  # of a split, that become one Parquet file


_LOSS = Option("The completion: assistant_all or assistant_last.", "loss", default="assistant_all")


class AssistantAllLoss(RecipeSection):
    """See `AssistantAll`."""

    mode: Annotated[Literal["assistant_all"], _LOSS] = "assistant_all"
    analysis: bool = True
    calls: bool = True


class AssistantLastLoss(RecipeSection):
    """See `AssistantLast`."""

    mode: Annotated[Literal["assistant_last"], _LOSS]


class SystemMessage(RecipeSection):
    """The system message before each rendered conversation; null leaves its line out. See `SystemContent`."""

    model_identity: str | None = GPT_OSS_SYSTEM.model_identity
    knowledge_cutoff: str | None = GPT_OSS_SYSTEM.knowledge_cutoff
    conversation_start_date: str | None = GPT_OSS_SYSTEM.conversation_start_date
    reasoning_effort: Effort | None = GPT_OSS_SYSTEM.reasoning_effort
    valid_channels: Annotated[tuple[str, ...], pydantic.Field(strict=False)] = GPT_OSS_SYSTEM.valid_channels
    channel_required: bool = GPT_OSS_SYSTEM.channel_required


class RowsRecipe(RecipeSection):
    """How rows become texts and files.

    Attributes:
        template: of texts that are rendered. A row that is Harmony text already keeps its text.
        analysis: what becomes of reasoning; of no effect on a row that is text already.
        loss: which bodies are the completion.
        system: the system message before each rendered conversation, or none. A row's tools are in the developer
            message.
        reasoning_key: of messages, has the reasoning; None reads it from each of `REASONING_KEYS`.
        think_tags: what becomes of `<think>` blocks in content of the assistant.
        drop_invalid_harmony: a row whose own text is no Harmony is dropped; else it is kept, and says so.
        drop_empty_completion: a row that doesn't end with the assistant's words is dropped; else it is kept, and says
            so.
        keep_user_names: the column `user_name` goes into `meta_source_json`.
        keep_urls: the columns `url` and `user_url` do.
        max_rows: of a sample that lies evenly over the split's files (`plan_sample`); None for all.
        shard_bytes: of a split's files that become one Parquet file.
        max_reject_fraction: more bad rows than this stop the build.
        tokenizer: counts tokens.
    """

    LATER_KEYS = frozenset({"reasoning_key", "think_tags"})
    template: Annotated[Template, pydantic.Field(strict=False), Option("Of texts that are rendered: harmony/1.")] = (
        Template.HARMONY_1
    )
    analysis: Annotated[Analysis, pydantic.Field(strict=False), Option("Reasoning: keep, drop or auto_drop.")] = (
        Analysis.KEEP
    )
    loss: Annotated[AssistantAllLoss | AssistantLastLoss, pydantic.Field(discriminator="mode")] = AssistantAllLoss()
    system: SystemMessage | None = SystemMessage()
    reasoning_key: Annotated[
        str | None, Option(f"Message key of reasoning; by default each of {', '.join(REASONING_KEYS)}.")
    ] = None
    think_tags: Annotated[
        ThinkTags, pydantic.Field(strict=False), Option("<think> blocks of the assistant: keep, split or drop.")
    ] = ThinkTags.KEEP
    drop_invalid_harmony: Annotated[bool, Option("Leave out rows whose own text is no Harmony.")] = False
    drop_empty_completion: Annotated[bool, Option("Leave out rows that don't end with the assistant's words.")] = False
    keep_user_names: bool = False
    keep_urls: bool = False
    max_rows: Annotated[int | None, Option("Rows of a split at most, from all over it.", "max-records")] = (
        pydantic.Field(None, ge=1)
    )
    shard_bytes: int = pydantic.Field(SHARD_BYTES, gt=0)
    max_reject_fraction: Annotated[Share, Option("More bad rows of a split than this stop it.")] = "0.05"
    tokenizer: TokenizerRecipe = TokenizerRecipe()

    @pydantic.field_validator("template")
    @classmethod
    def _is_rendered(cls, template: Template) -> Template:
        if template not in RENDERERS:
            raise ValueError(f"{template} is read, and no longer rendered; write {Template.HARMONY_1}")
        return template

    @pydantic.field_validator("reasoning_key")
    @classmethod
    def _is_free(cls, name: str | None) -> str | None:
        if name in ("", "role", "content", "tool_calls"):
            raise ValueError(f"must name a message key other than role, content and tool_calls, got {name!r}")
        return name

    def content_of_rows(self) -> dict[str, Any]:
        """The same without the tokenizer, which manifests name beside it."""
        return {key: value for key, value in self.content().items() if key != "tokenizer"}

    @property
    def loss_mode(self) -> LossMode:
        """The bodies that are the completion."""
        loss = self.loss
        return AssistantLast() if isinstance(loss, AssistantLastLoss) else AssistantAll(loss.analysis, loss.calls)

    @property
    def system_content(self) -> SystemContent | None:
        """The system message before each rendered conversation."""
        return None if self.system is None else SystemContent(**dict(self.system), tools=())


def rows_recipe(recipe: Mapping[str, Any], tokenizer: Mapping[str, Any] | None) -> RowsRecipe:
    """Return how the rows of a split are made; the split's reasoning effort replaces that of the system message.

    Args:
        recipe: the part of the recipe that their bytes depend on, as a target or a manifest has it.
    """
    rows, effort = RowsRecipe.from_content({**recipe["rows"], "tokenizer": tokenizer}), recipe["reasoning_effort"]
    if rows.system is None or effort is None:
        return rows
    return rows.model_copy(update={"system": rows.system.model_copy(update={"reasoning_effort": effort})})


PUBLISH_STAGE = StageVersion("nemotron_published_pools", 1)
_EFFORT = re.compile("(?<![a-z])(low|medium|high)(?![a-z])")  # in a split's name, as a word
CORRECTNESS = "correctness"  # in the meta of a prompt, by which one of several is chosen
Texts = Annotated[tuple[str, ...], pydantic.Field(strict=False, min_length=1)]


class DatasetSection(RecipeSection):
    """One dataset: of a hub, at a commit, or a folder here of the same layout.

    Attributes:
        dataset: owner/name; of a folder, any name: it is what its rows are said to be of.
        revision: 40 hex digits; None of a folder. Forty zeros are a commit that nobody has looked up yet: such a
            dataset can be planned and not built.
        path: of a folder, absolute or below the data root; None of a hub. Where it lies changes no byte.
        splits: which of them; the card names them, else the files do.
        files: patterns by split, see `hub_configs`, where the card isn't to be asked.
        subset: the hub's configuration that rows are said to be of; None for the card's, else `default`.
        domain: of the rows; None of the six, of which it is known.
        reasoning_effort: by split, where it says how hard whoever answered was told to think: their system message says
            that.
    """

    dataset: str
    revision: Annotated[
        str | None, Option("Branch, tag or commit; its commit is written down. Default: main.", default=None)
    ] = None
    path: str | None = None
    splits: Annotated[Texts, Option("Only this one, such as low; repeatable.", "split", default=None)]
    files: dict[str, Texts] = pydantic.Field(default_factory=dict)
    subset: str | None = None
    domain: Annotated[
        Domain | None, Option("math, proof, science, agentic or chat_if; of the six it is known.", default=None)
    ] = None
    reasoning_effort: dict[str, Effort] = pydantic.Field(default_factory=dict)

    @pydantic.model_validator(mode="after")
    def _is_of_a_hub_or_a_folder(self) -> Self:
        if (self.revision is None) == (self.path is None):
            raise ValueError(f"{self.dataset}: give `revision` for a dataset of a hub, or `path` for a folder here")
        if self.revision is not None and not re.fullmatch(r"[\w.-]+/[\w.-]+", self.dataset):
            raise ValueError(f"{self.dataset!r} is no dataset: write owner/name, such as nvidia/Nemotron-Science-v1")
        if self.revision is not None and not re.fullmatch(COMMIT_PATTERN, self.revision):
            raise ValueError(
                f"the revision of {self.dataset} is {self.revision!r}, and a revision is a commit of 40 hex digits, "
                "since a branch moves; `corpusmill pin` gives the commit"
            )
        return self

    @pydantic.model_validator(mode="after")
    def _can_be_a_folder(self) -> Self:
        if not dataset_key(self.dataset) or dataset_key(self.dataset) in AREAS:
            raise ValueError(f"{self.dataset!r} can't be the name of a folder here: give it another")
        for split in self.splits:
            if not re.fullmatch(r"\w[\w.-]*", split):
                raise ValueError(f"{split!r} is no split: its name has letters, digits, `_`, `.` and `-`")
        for key, named in (("files", self.files), ("reasoning_effort", self.reasoning_effort)):
            for split in named:
                if split not in self.splits:
                    raise ValueError(f"`{key}` has {split!r}, which is none of `splits`")
        return self

    @property
    def rows_domain(self) -> Domain | None:
        """The domain of its rows; None if nobody says it."""
        return self.domain or known_domain(self.dataset)

    def rows_content(self, split: str) -> dict[str, Any]:
        """What it says of the rows of a split, beside their files."""
        effort = self.reasoning_effort.get(split)
        return {"subset": self.subset, "domain": self.rows_domain, "reasoning_effort": effort}

    def effort_warnings(self, otherwise: Effort | None) -> str | None:
        """A line on splits whose effort isn't said, though their names say another, or that of other splits is said.

        Args:
            otherwise: what the system messages of their rendered rows say.
        """
        found = {split: _EFFORT.search(split.lower()) for split in self.splits if split not in self.reasoning_effort}
        unsaid = [split for split, name in found.items() if (name[0] != otherwise if name else self.reasoning_effort)]
        if not unsaid:
            return None
        told = f"{self.dataset}: `reasoning_effort` doesn't say that of {', '.join(unsaid)}: rows rendered there say"
        efforts = ", ".join(f"{split}: {name[0]}" for split in unsaid if (name := found[split]))
        return f"{told} {otherwise or 'none'}" + (f"; by their names it would be {efforts}" if efforts else "")


def known_domain(dataset: str) -> Domain | None:
    """The domain of one of the six datasets, by its name; None of any other."""
    known = {dataset_key(name): domain for name, domain in DOMAINS.items()}
    return known.get(dataset_key(dataset))


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
