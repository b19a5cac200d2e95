"""What decides the rows besides their source: recipe, rules of one split, and where rows come from.

All are choices of a recipe; none has a default.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, Self

import pydantic

from pipeline_assets.corpus.harmony.encode import AssistantAll, AssistantLast, LossMode
from pipeline_assets.corpus.harmony.message import Analysis, Template
from pipeline_assets.corpus.harmony.prompt import GPT_OSS_SYSTEM, SystemContent
from pipeline_assets.corpus.spine.manifest import StageVersion
from pipeline_assets.corpus.spine.recipe import Option, RecipePart, Share
from pipeline_assets.corpus.tokens.o200k_harmony import TokenizerRecipe

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
    },
}


@dataclass(frozen=True)
class RowSettings:
    """How rows become texts.

    Attributes:
        template: of texts that are rendered. `plain/1` has no channels, so rows with tools, calls or kept analysis are
            rejects of `not_in_template`. A row that is Harmony text already keeps its text.
        analysis: what becomes of reasoning; of no effect on a row that is text already.
        loss: which bodies are the completion.
        system: the system message before each rendered conversation, or none. It has no tools of its own.
        drop_invalid_harmony: a row whose own text is no Harmony is dropped; else it is kept, and says so.
        drop_empty_completion: a row that doesn't end with the assistant's words is dropped; else it is kept, and says
            so.
        keep_user_names: the column `user_name` goes into `meta_source_json`.
        keep_urls: the columns `url` and `user_url` do.
    """

    template: Template
    analysis: Analysis
    loss: LossMode
    system: SystemContent | None
    drop_invalid_harmony: bool
    drop_empty_completion: bool
    keep_user_names: bool = False
    keep_urls: bool = False

    def __post_init__(self) -> None:
        if self.system is not None and self.system.tools:
            raise ValueError("the system message of a row has no tools: a row's own go into the developer message")


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


@dataclass(frozen=True)
class NormaliseRules:
    """What decides the bytes besides the source.

    Attributes:
        max_rows: of a sample that lies evenly over the split's files (`plan_sample`); None for all.
        shard_bytes: of a split's files that become one Parquet file.
        max_reject_fraction: more bad rows than this stop the build, a decimal string.
        tokenizer_sha256: of the o200k file that counts tokens.
    """

    rows: RowSettings
    max_rows: int | None
    shard_bytes: int
    max_reject_fraction: str
    tokenizer_sha256: str


NORMALISE_STAGE = StageVersion("nemotron_normalise", 4)
PROMPTS_STAGE = StageVersion("nemotron_prompts", 1)
DEDUPLICATED_STAGE = StageVersion("nemotron_deduplicated", 1)
SHARD_BYTES = 1 << 27  # of a split, that become one Parquet file


_LOSS = Option("The completion: assistant_all or assistant_last.", "loss", default="assistant_all")


class AssistantAllLoss(RecipePart):
    """See `AssistantAll`."""

    mode: Annotated[Literal["assistant_all"], _LOSS] = "assistant_all"
    analysis: bool = True
    calls: bool = True


class AssistantLastLoss(RecipePart):
    """See `AssistantLast`."""

    mode: Annotated[Literal["assistant_last"], _LOSS]


class SystemMessage(RecipePart):
    """The system message before each rendered conversation; null leaves its line out. See `SystemContent`."""

    model_identity: str | None = GPT_OSS_SYSTEM.model_identity
    knowledge_cutoff: str | None = GPT_OSS_SYSTEM.knowledge_cutoff
    conversation_start_date: str | None = GPT_OSS_SYSTEM.conversation_start_date
    reasoning_effort: Effort | None = GPT_OSS_SYSTEM.reasoning_effort
    valid_channels: Annotated[tuple[str, ...], pydantic.Field(strict=False)] = GPT_OSS_SYSTEM.valid_channels
    channel_required: bool = GPT_OSS_SYSTEM.channel_required


class RowsRecipe(RecipePart):
    """How rows become texts, see `RowSettings`, and how they lie in files.

    Attributes:
        max_rows: of a split at most, from all over it; None for all.
        shard_bytes: of a split's files that become one Parquet file.
        max_reject_fraction: more bad rows than this stop the build.
    """

    template: Annotated[
        Template,
        pydantic.Field(strict=False),
        Option("harmony/1 or plain/1, of texts that are rendered."),
    ] = Template.HARMONY_1
    analysis: Annotated[Analysis, pydantic.Field(strict=False), Option("Reasoning: keep, drop or auto_drop.")] = (
        Analysis.KEEP
    )
    loss: Annotated[AssistantAllLoss | AssistantLastLoss, pydantic.Field(discriminator="mode")] = AssistantAllLoss()
    system: SystemMessage | None = SystemMessage()
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

    @pydantic.model_validator(mode="after")
    def _fits_its_template(self) -> Self:
        if self.template is Template.PLAIN_1 and self.system is not None and self.system.valid_channels:
            raise ValueError("plain/1 has no channels: its `system` has `valid_channels: []`")
        return self

    def content_of_rows(self) -> dict[str, Any]:
        """The same without the tokenizer, which manifests name beside it."""
        return {key: value for key, value in self.content().items() if key != "tokenizer"}

    def rules(self, effort: Effort | None) -> NormaliseRules:
        """The same for the rows of one split.

        Args:
            effort: how hard whoever answered was told to think, where the split says it; None is as `system` says.
        """
        system = None if self.system is None else SystemContent(**dict(self.system), tools=())
        if system is not None and effort is not None:
            system = replace(system, reasoning_effort=effort)
        rows = RowSettings(
            template=self.template,
            analysis=self.analysis,
            loss=self._loss_mode(),
            system=system,
            drop_invalid_harmony=self.drop_invalid_harmony,
            drop_empty_completion=self.drop_empty_completion,
            keep_user_names=self.keep_user_names,
            keep_urls=self.keep_urls,
        )
        return NormaliseRules(rows, self.max_rows, self.shard_bytes, self.max_reject_fraction, self.tokenizer.sha256)

    def _loss_mode(self) -> LossMode:
        if isinstance(self.loss, AssistantLastLoss):
            return AssistantLast()
        return AssistantAll(analysis=self.loss.analysis, calls=self.loss.calls)


def rules_of(recipe: Mapping[str, Any], tokenizer: Mapping[str, Any] | None) -> NormaliseRules:
    """By what the rows of a split are made, or were.

    Args:
        recipe: the part of the recipe that their bytes depend on, as a target or a manifest has it.
    """
    return RowsRecipe.from_content({**recipe["rows"], "tokenizer": tokenizer}).rules(recipe["reasoning_effort"])
