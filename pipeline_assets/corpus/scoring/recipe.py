"""What decides scores besides the rows and the model's files; and which scored rows are for what: bands of percentiles
and conditions over columns, and which rows each rule takes.

Who comes first where there are too many depends on (seed, rule, split, id) of the row alone: not on the order of
splits, on workers, nor on other rows. So a larger `max_rows` only adds rows to a subset.
"""

from typing import Annotated, Literal, Self

import pydantic

from pipeline_assets.spine.install_hints import not_installed
from pipeline_assets.spine.manifest import StageVersion
from pipeline_assets.spine.section import Option, RecipeSection

SCORES_STAGE = StageVersion("nemotron_nll_scores", 1)
Device = Literal["cpu", "cuda"]
Dtype = Literal["float32", "bfloat16", "float16"]
MIN_BATCH_TOKENS = 512  # a smaller number is meant as rows: other scorers count a batch in rows


class ScoringRecipe(RecipeSection):
    """How rows are scored. All of it may change bits of a score; equal recipes on CPUs give equal bytes.

    Attributes:
        dtype: of weights; by default float32 on a CPU, bfloat16 on a GPU.
        attention: of `transformers`, for batches with padding; by default rows are packed, or the best that there is.
        spreads: over all GPUs of a machine, for a model that is larger than one; else each GPU has its own.
        dequantise: quantised weights become `dtype`.
        threads: of a CPU, for a shard.
        tokenizer: `model` for the one that lies with it.
        max_length: tokens of a row; what is beyond is cut off. By default as many as the model's config says.
        batch_tokens: that go through the model at once, padding included; a longer row is alone.
        shard_rows: rows of a score shard, after which a killed build or a preempted call goes on.
        max_rows: of a split, chosen by a hash of their ids; None for all.
        rescored: rows of a split that are scored again in batches of other sizes, to say how sure scores are.
    """

    device: Annotated[Device, Option("Where the model runs.", default=None)] = "cpu"
    dtype: Annotated[Dtype | None, Option("Of weights; float32 on CPU, bfloat16 on GPU.")] = None
    attention: Annotated[str | None, Option("Of transformers, such as sdpa, if not ours.")] = None
    spreads: Annotated[bool, Option("The model over all GPUs, not one on each.")] = False
    dequantise: Annotated[bool, Option("Quantised weights in full: needs memory.")] = False
    threads: int = pydantic.Field(1, ge=1)
    tokenizer: Annotated[Literal["model", "o200k_harmony"], Option("The model's own, or the one that ships here.")] = (
        "model"
    )
    max_length: Annotated[int | None, Option("Tokens of a row; its end is cut off.")] = pydantic.Field(None, ge=2)
    batch_tokens: Annotated[int, Option("Tokens that go through the model at once.")] = pydantic.Field(8192, ge=1)
    shard_rows: Annotated[int, Option("Rows of a shard.")] = pydantic.Field(512, ge=1)
    max_rows: Annotated[int | None, Option("Rows of a split at most, from all over it.", "max-records")] = (
        pydantic.Field(None, ge=1)
    )
    rescored: int = pydantic.Field(64, ge=0)

    @pydantic.model_validator(mode="after")
    def _fits_its_device(self) -> Self:
        if (self.device == "cpu") != (self.resolved_dtype == "float32"):
            what = f"`dtype` is {self.dtype} and `device` {self.device}"
            raise ValueError(f"{what}: a CPU takes float32, a GPU bfloat16 or float16")
        return self

    @property
    def resolved_dtype(self) -> Dtype:
        """The dtype that is asked, or that of the device."""
        return self.dtype or ("float32" if self.device == "cpu" else "bfloat16")


def detect_device() -> Device:
    """Where models run on this machine.

    Raises:
        UsageError: torch is not installed.
    """
    try:
        import torch
    except ImportError as error:
        raise not_installed(error, "scoring") from None
    return "cuda" if torch.cuda.is_available() else "cpu"
