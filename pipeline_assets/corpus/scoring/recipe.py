"""Recipe section of NLL scores, with the detection of GPUs."""

from importlib.util import find_spec
from typing import Annotated, Literal, Self

import pydantic

from pipeline_assets.spine.command_option import Option
from pipeline_assets.spine.errors import RecipeKey, UsageError
from pipeline_assets.spine.install_hints import not_installed_error
from pipeline_assets.spine.manifest import StageVersion
from pipeline_assets.spine.section import RecipeSection

SCORES_STAGE = StageVersion("nemotron_nll_scores", 1)
Device = Literal["cpu", "cuda"]
Dtype = Literal["float32", "bfloat16", "float16"]
MIN_BATCH_TOKENS = 512  # a smaller number is probably meant as rows, the unit of other scorers


class ScoringRecipe(RecipeSection):
    """Settings that determine the scores of rows.

    All keys but `rescored` and `token_nll` may change bits of a score or the choice of rows. On a CPU, equal recipes
    and versions of libraries give equal bytes. The help texts of options describe the keys. Further rules:

    Attributes:
        attention: Attention implementation for padded rows; None packs rows if the model allows it.
        spreads: If false, each GPU has a copy of the model.
        threads: Number of CPU threads per shard.
        max_length: The default is the limit in the model's config.
        batch_tokens: Padding is included; a longer row is a batch of its own.
        shard_rows: An interrupted build resumes at the next shard.
        max_rows: Rows are chosen by a hash of their ids.
        rescored: Number of rows per split that are scored again in batches of different sizes, to measure the
            stability of scores.
    """

    OMITTABLE_KEYS = frozenset({"token_nll"})
    device: Annotated[Device, Option("Device: cpu or cuda. Default: cuda if there is a GPU.", default=None)] = "cpu"
    dtype: Annotated[Dtype | None, Option("Dtype; float32 on CPU, bfloat16 on GPU.")] = None
    attention: Annotated[str | None, Option("Attention of transformers, such as sdpa. Default: packed rows.")] = None
    spreads: Annotated[bool, Option("Spread one model over all GPUs.")] = False
    dequantise: Annotated[bool, Option("Expand quantized weights, which needs more memory.")] = False
    threads: int = pydantic.Field(1, ge=1)
    tokenizer: Annotated[Literal["model", "o200k_harmony"], Option("Tokenizer: model (its own) or o200k_harmony.")] = (
        "model"
    )
    max_length: Annotated[int | None, Option("Maximum tokens of a row; the rest is cut.")] = pydantic.Field(None, ge=2)
    batch_tokens: Annotated[int, Option("Maximum tokens per batch.")] = pydantic.Field(8192, ge=1)
    shard_rows: Annotated[int, Option("Rows per shard.")] = pydantic.Field(512, ge=1)
    max_rows: Annotated[int | None, Option("Maximum rows of a split, spread over it.", "max-records")] = pydantic.Field(
        None, ge=1
    )
    rescored: int = pydantic.Field(64, ge=0)
    token_nll: Annotated[bool, Option("Also store the NLL of each token.")] = False

    @pydantic.model_validator(mode="after")
    def _check_device(self) -> Self:
        if (self.device == "cpu") != (self.resolved_dtype == "float32"):
            what = f"`dtype` is {self.dtype} and `device` {self.device}"
            raise ValueError(f"{what}: a CPU needs float32, a GPU bfloat16 or float16")
        return self

    @property
    def resolved_dtype(self) -> Dtype:
        """Configured dtype, or the default dtype of the device."""
        return self.dtype or ("float32" if self.device == "cpu" else "bfloat16")


def require_torch() -> None:
    """Raise UsageError if PyTorch or transformers is not installed."""
    for package in ("torch", "transformers"):
        if find_spec(package) is None:
            raise not_installed_error(ModuleNotFoundError(name=package), "scoring")


def detect_device() -> Device:
    """Return `cuda` if PyTorch finds a GPU, else `cpu`; UsageError without PyTorch."""
    try:
        import torch
    except ImportError as error:
        raise not_installed_error(error, "scoring") from None
    # Not `can_start_cuda`: processes that are forked after it cannot use CUDA.
    return "cuda" if torch.cuda.device_count() else "cpu"


def require_gpu() -> None:
    """Raise UsageError if PyTorch finds no GPU or is not installed."""
    if detect_device() != "cuda":
        what, fix = "no GPU found that PyTorch can use", "set `scoring.device` to cpu"
        raise UsageError(what, RecipeKey("scoring.device"), f"{fix}, or install a CUDA build")


def can_start_cuda() -> bool:
    """Check whether PyTorch can use a GPU, by starting CUDA in this process."""
    import torch

    return torch.cuda.is_available()
