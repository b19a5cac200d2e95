"""Recipe section of normalized rows."""

import datetime
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

import pydantic

from pipeline_assets.corpus.harmony.encode import AssistantAll, AssistantLast, LossMode
from pipeline_assets.corpus.harmony.message import AnalysisMode, Template
from pipeline_assets.corpus.harmony.prompt import GPT_OSS_SYSTEM, SystemContent
from pipeline_assets.corpus.nemotron.dataset_section import Effort
from pipeline_assets.corpus.nemotron.message_text import REASONING_KEYS, ThinkTags
from pipeline_assets.corpus.tokens.o200k_harmony import HarmonyRecipe
from pipeline_assets.spine.command_option import Option
from pipeline_assets.spine.key_types import Commit, Share, pattern_rule
from pipeline_assets.spine.manifest import StageVersion
from pipeline_assets.spine.section import RecipeSection

NORMALISE_STAGE = StageVersion("nemotron_normalise", 8)
_LOSS_OPTION = Option("Messages in the loss: assistant_all or assistant_last.", "loss", default="assistant_all")


class AssistantAllLoss(RecipeSection):
    """Settings of the loss mode `AssistantAll`."""

    mode: Annotated[Literal["assistant_all"], _LOSS_OPTION] = "assistant_all"
    analysis: bool = True
    calls: bool = True


class AssistantLastLoss(RecipeSection):
    """Settings of the loss mode `AssistantLast`."""

    mode: Annotated[Literal["assistant_last"], _LOSS_OPTION]


class SystemMessage(RecipeSection):
    """Fields of `SystemContent` in rendered conversations; a null field is omitted."""

    model_identity: str | None = GPT_OSS_SYSTEM.model_identity
    knowledge_cutoff: str | None = GPT_OSS_SYSTEM.knowledge_cutoff
    conversation_start_date: str | None = GPT_OSS_SYSTEM.conversation_start_date
    reasoning_effort: Effort | None = GPT_OSS_SYSTEM.reasoning_effort
    valid_channels: Annotated[tuple[str, ...], pydantic.Field(strict=False)] = GPT_OSS_SYSTEM.valid_channels
    channel_required: bool = GPT_OSS_SYSTEM.channel_required


class ChatTemplateSection(RecipeSection):
    """Chat template of a model: on a hub at a commit, or in a local folder.

    Attributes:
        path: Local folder, absolute or relative to the data root; the path changes no byte of the rows.
        date: Date that the template writes as the current date, `YYYY-MM-DD`; None if the template writes no date.
        variables: Other values that the template reads, such as `enable_thinking`.
    """

    OMITTABLE_KEYS = frozenset({"variables"})
    model: Annotated[str, pattern_rule(r"[\w.-]+(/[\w.-]+)?", "must be owner/name, such as Qwen/Qwen3")] | None = None
    revision: Commit | None = None
    path: str | None = None
    date: Annotated[str, pattern_rule(r"\d{4}-\d\d-\d\d", "must be YYYY-MM-DD")] | None = None
    variables: dict[str, bool | int | str] = pydantic.Field({})

    @pydantic.field_validator("date")
    @classmethod
    def _check_date(cls, date: str | None) -> str | None:
        if date is not None:
            datetime.date.fromisoformat(date)
        return date

    @pydantic.model_validator(mode="after")
    def _check_location(self) -> Self:
        if {self.model is None, self.revision is None} != {self.path is not None}:
            raise ValueError("the model must have one location; set `model` and `revision`, or only `path`")
        if taken := self.variables.keys() & {"messages", "tools", "documents", "add_generation_prompt"}:
            raise ValueError(f"`variables` cannot set {min(taken)}, which each row sets")
        return self


class RowsRecipe(RecipeSection):
    """Rules that turn source rows into texts and files.

    The help texts of options describe the other keys.

    Attributes:
        template: Harmony template or chat template that renders conversations. A row's own Harmony text is kept by a
            Harmony template, but rendered again by a chat template.
        analysis: Treatment of messages on the analysis channel; no effect on a row with its own text.
        loss: Loss mode, which decides which message bodies count as completion.
        system: System message before each rendered conversation, or null. A row's tools are in the developer message. A
            chat template ignores `system`.
        restore_latex: Whether to restore LaTeX words whose start became a control character in JSON; see `text_flags`.
        drop_invalid_harmony: Whether to drop rows whose own text is not valid Harmony, instead of flagging them.
        drop_empty_completion: Whether to drop rows without a completion, instead of flagging them. A completion is a
            nonblank last message that counts in the loss; with `train_turns`, any nonblank message that counts.
    """

    OMITTABLE_KEYS = frozenset({"reasoning_key", "think_tags", "restore_latex"})
    template: Annotated[
        Annotated[Template, pydantic.Field(strict=False), pydantic.Tag("(name)")]
        | Annotated[ChatTemplateSection, pydantic.Tag("(model)")],
        pydantic.Discriminator(lambda value: "(name)" if isinstance(value, str) else "(model)"),
        Option("Template of rendered texts: harmony/1."),
    ] = Template.HARMONY_1
    analysis: Annotated[AnalysisMode, pydantic.Field(strict=False), Option("Reasoning: keep, drop or auto_drop.")] = (
        AnalysisMode.KEEP
    )
    loss: Annotated[AssistantAllLoss | AssistantLastLoss, pydantic.Field(discriminator="mode")] = AssistantAllLoss()
    system: SystemMessage | None = SystemMessage()
    reasoning_key: Annotated[
        str | None, Option(f"Message key of reasoning; by default each of {', '.join(REASONING_KEYS)}.")
    ] = None
    think_tags: Annotated[
        ThinkTags, pydantic.Field(strict=False), Option("<think> blocks of the assistant: keep, split or drop.")
    ] = ThinkTags.KEEP
    restore_latex: Annotated[bool, Option("Restore LaTeX such as \\boxed from control characters.")] = False
    drop_invalid_harmony: Annotated[bool, Option("Drop rows whose own text is not valid Harmony.")] = False
    drop_empty_completion: Annotated[bool, Option("Drop rows that do not end with assistant text.")] = False
    keep_user_names: bool = False  # stores the column `user_name` in `meta_source_json`
    keep_urls: bool = False  # stores the columns `url` and `user_url` in `meta_source_json`
    max_rows: Annotated[int | None, Option("Maximum rows of a split, sampled over all files.", "max-records")] = (
        pydantic.Field(None, ge=1)
    )
    shard_bytes: int = pydantic.Field(1 << 27, gt=0)  # approximate source bytes for one Parquet file
    max_reject_fraction: Annotated[Share, Option("Stop if a split's share of rejected rows exceeds this.")] = "0.05"
    tokenizer: HarmonyRecipe = HarmonyRecipe()

    @pydantic.field_validator("template", mode="before")
    @classmethod
    def _check_template_name(cls, template: object) -> object:
        if template == Template.PLAIN_1:
            raise ValueError(f"{template} was removed; write {Template.HARMONY_1}")
        if isinstance(template, str) and template not in [*Template]:
            what = f"must be {Template.HARMONY_1}, or in a recipe {{path: FOLDER}} for a model's chat template"
            raise ValueError(what)
        return template

    @pydantic.field_validator("reasoning_key")
    @classmethod
    def _check_reasoning_key(cls, name: str | None) -> str | None:
        if name in ("", "role", "content", "tool_calls"):
            raise ValueError(f"must name a message key other than role, content and tool_calls, got {name!r}")
        return name

    def content_without_tokenizer(self) -> dict[str, Any]:
        """Return the section's content without the tokenizer, which is stored separately.

        A chat template's folder is replaced by a dot, because its path changes no byte.
        """
        content = {key: value for key, value in self.content().items() if key != "tokenizer"}
        if self.chat_template is not None and self.chat_template.path is not None:
            content["template"] = self.chat_template.model_copy(update={"path": "."}).content()
        return content

    @property
    def tokenizer_content(self) -> dict[str, Any] | None:
        """Content of the tokenizer; None with a chat template, which sets the tokenizer."""
        return self.tokenizer.content() if self.chat_template is None else None

    @property
    def chat_template(self) -> ChatTemplateSection | None:
        return None if isinstance(self.template, Template) else self.template

    @property
    def loss_mode(self) -> LossMode:
        loss = self.loss
        return AssistantLast() if isinstance(loss, AssistantLastLoss) else AssistantAll(loss.analysis, loss.calls)

    @property
    def system_content(self) -> SystemContent | None:
        """System message before each rendered conversation; None to omit it."""
        if self.system is None or self.chat_template is not None:
            return None
        return SystemContent(**dict(self.system), tools=())


def rows_recipe(recipe: Mapping[str, Any], tokenizer: Mapping[str, Any] | None) -> RowsRecipe:
    """Return a split's rules, from `recipe` and `tokenizer` of a target or manifest."""
    stored = {} if tokenizer is None else {"tokenizer": tokenizer}  # a chat template has its own tokenizer
    rows, effort = RowsRecipe.from_content({**recipe["rows"], **stored}), recipe["reasoning_effort"]
    if rows.system is None or effort is None:
        return rows
    return rows.model_copy(update={"system": rows.system.model_copy(update={"reasoning_effort": effort})})
