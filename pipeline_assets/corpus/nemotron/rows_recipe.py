"""Recipe of rows."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import pydantic

from pipeline_assets.corpus.harmony.encode import RENDERERS, AssistantAll, AssistantLast, LossMode
from pipeline_assets.corpus.harmony.message import Analysis, Template
from pipeline_assets.corpus.harmony.prompt import GPT_OSS_SYSTEM, SystemContent
from pipeline_assets.corpus.nemotron.dataset_section import Effort
from pipeline_assets.corpus.nemotron.message_text import REASONING_KEYS, ThinkTags
from pipeline_assets.corpus.tokens.o200k_harmony import TokenizerRecipe
from pipeline_assets.spine.manifest import StageVersion
from pipeline_assets.spine.section import Option, RecipeSection, Share

NORMALISE_STAGE = StageVersion("nemotron_normalise", 5)
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
