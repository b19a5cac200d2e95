"""What a recipe says of normalised rows."""

from dataclasses import replace
from typing import Annotated, Literal, Self

import pydantic

from pipeline_assets.corpus.harmony.loss_spans import AssistantAll, AssistantLast, LossMode
from pipeline_assets.corpus.harmony.prompt import SystemContent
from pipeline_assets.corpus.harmony.template import Analysis, Template
from pipeline_assets.corpus.nemotron.row_settings import Effort, NormaliseRules, RowSettings
from pipeline_assets.corpus.sampling.row_groups import Share
from pipeline_assets.corpus.spine.manifest import StageVersion
from pipeline_assets.corpus.spine.recipe import Option, RecipePart
from pipeline_assets.corpus.tokens.o200k_harmony import TokenizerRecipe

NORMALISE_STAGE = StageVersion("nemotron_normalise", 3)


_LOSS = Option("The completion: assistant_all or assistant_last.", "loss", default="assistant_all")


class AssistantAllLoss(RecipePart):
    """See `AssistantAll`."""

    mode: Annotated[Literal["assistant_all"], _LOSS]
    analysis: bool
    calls: bool


class AssistantLastLoss(RecipePart):
    """See `AssistantLast`."""

    mode: Annotated[Literal["assistant_last"], _LOSS]


class SystemMessage(RecipePart):
    """The system message before each rendered conversation; null leaves its line out. See `SystemContent`."""

    model_identity: str | None
    knowledge_cutoff: str | None
    conversation_start_date: str | None
    reasoning_effort: Effort | None
    valid_channels: Annotated[tuple[str, ...], pydantic.Field(strict=False)]
    channel_required: bool


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
        Option("harmony/1 or plain/1, of texts that are rendered.", default="harmony/1"),
    ]
    analysis: Annotated[
        Analysis, pydantic.Field(strict=False), Option("Reasoning: keep, drop or auto_drop.", default="keep")
    ]
    loss: Annotated[AssistantAllLoss | AssistantLastLoss, pydantic.Field(discriminator="mode")]
    system: SystemMessage | None
    drop_invalid_harmony: Annotated[bool, Option("Leave out rows whose own text is no Harmony.", default=False)]
    drop_empty_completion: Annotated[
        bool, Option("Leave out rows that don't end with the assistant's words.", default=False)
    ]
    keep_user_names: bool
    keep_urls: bool
    max_rows: Annotated[
        int | None, Option("Rows of a split at most, from all over it.", "max-records", default=None)
    ] = pydantic.Field(ge=1)
    shard_bytes: int = pydantic.Field(gt=0)
    max_reject_fraction: Annotated[Share, Option("More bad rows of a split than this stop it.", default="0.05")]
    tokenizer: TokenizerRecipe

    @pydantic.model_validator(mode="after")
    def _fits_its_template(self) -> Self:
        if self.template is Template.PLAIN_1 and self.system is not None and self.system.valid_channels:
            raise ValueError("plain/1 has no channels: its `system` has `valid_channels: []`")
        return self

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
