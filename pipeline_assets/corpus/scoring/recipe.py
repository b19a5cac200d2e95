"""What decides scores besides the rows and the model's files; and which scored rows are for what: bands of percentiles
and conditions over columns, and which rows each rule takes.

Who comes first where there are too many depends on (seed, rule, split, id) of the row alone: not on the order of
splits, on workers, nor on other rows. So a larger `max_rows` only adds rows to a subset.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Annotated, Any, Literal, Self

import numpy as np
import pydantic
from numpy.typing import NDArray

from pipeline_assets.corpus.nemotron.schema import Condition, parse_condition, raise_if_invalid_name
from pipeline_assets.spine.errors import key
from pipeline_assets.spine.install_hints import not_installed
from pipeline_assets.spine.manifest import StageVersion
from pipeline_assets.spine.section import Decimal, Option, RecipeSection

SCORES_STAGE = StageVersion("nemotron_nll_scores", 1)
Device = Literal["cpu", "cuda"]
Dtype = Literal["float32", "bfloat16", "float16"]
FEWEST_BATCH_TOKENS = 512  # a smaller number is meant as rows: other scorers count a batch in rows


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
        if (self.device == "cpu") != (self.dtype_of_device == "float32"):
            what = f"{key('dtype')} is {self.dtype} and {key('device')} {self.device}"
            raise ValueError(f"{what}: a CPU takes float32, a GPU bfloat16 or float16")
        return self

    @property
    def dtype_of_device(self) -> Dtype:
        """The dtype that is asked, or that of the device."""
        return self.dtype or ("float32" if self.device == "cpu" else "bfloat16")


def device_here() -> Device:
    """Where models run on this machine.

    Raises:
        UsageError: torch is not installed.
    """
    try:
        import torch
    except ImportError as error:
        raise not_installed(error, "scoring") from None
    return "cuda" if torch.cuda.is_available() else "cpu"


SUBSETS_STAGE = StageVersion("nemotron_training_subsets", 2)


Percentile = Annotated[Decimal, pydantic.BeforeValidator(lambda value: str(value) if type(value) is int else value)]


class SubsetRule(RecipeSection):
    """The rows of a subset.

    Attributes:
        percentile: the lowest and the highest `percentile_within_split`, both included: whole numbers from 0 to 100, or
            decimal strings.
        where: conditions that all hold, in SQL over the columns of a row, see `parse_condition`.
        max_rows: at most so many, over all splits; None for all.
        balance: whether domains (`meta_domain`; none is one too) have equal shares of `max_rows`; what one lacks goes
            to the others. Without `max_rows` each has as many rows as the domain with the fewest.
    """

    percentile: Annotated[tuple[Percentile, Percentile], pydantic.Field(strict=False)] = ("0", "100")
    where: Annotated[tuple[Condition, ...], pydantic.Field(strict=False)] = ()
    max_rows: int | None = pydantic.Field(default=None, ge=1)
    balance: bool = False

    @pydantic.field_validator("percentile")
    @classmethod
    def _ascends(cls, percentile: tuple[str, str]) -> tuple[str, str]:
        low, high = map(Fraction, percentile)
        if not low <= high <= 100:
            raise ValueError("write the lower percentile first, and 100 at most")
        return percentile

    @property
    def band(self) -> tuple[float, float]:
        """The lowest and the highest percentile."""
        return float(self.percentile[0]), float(self.percentile[1])

    @property
    def columns(self) -> list[str]:
        """Columns that the conditions ask."""
        return sorted({column for one in self.where for column in parse_condition(one).meta.root_names()})


_UNVERIFIED = (
    "meta_correctness IS NULL",
    "COALESCE(quality_valid_harmony, TRUE)",
    "COALESCE(quality_completion_nonempty, TRUE)",
    "COALESCE(quality_valid_tool_schema, TRUE)",
    "COALESCE(quality_known_channels, TRUE)",
    "NOT COALESCE(quality_is_duplicate, FALSE)",
    "COALESCE(quality_control_characters, 0) = 0",
    "COALESCE(quality_stalled_calls, 0) = 0",
    "COALESCE(quality_repetition, 0) < 0.5",
)


def _default_rules() -> dict[str, SubsetRule]:
    rules = {
        "anchor": SubsetRule(percentile=("0", "25"), where=("meta_correctness = 1",)),
        "restoration": SubsetRule(percentile=("40", "60")),
        "challenge": SubsetRule(percentile=("90", "100"), where=("meta_correctness >= 0.5",)),
        "learning": SubsetRule(percentile=("75", "100"), where=("meta_correctness >= 0.75",)),
    }
    by_correctness = {name: rule for name, rule in rules.items() if rule.where}
    return rules | {
        f"{name}_unverified": rule.model_copy(update={"where": _UNVERIFIED}) for name, rule in by_correctness.items()
    }


class SubsetsRecipe(RecipeSection):
    """The training subsets of scored rows. The default ones, by the NLL of a completion under the scoring model:

    - `anchor`: low NLL, always right. What the model does well: it holds behaviour in place while weights change.
    - `restoration`: the middle of each split. The model's usual ground, neither easy nor hard, to bring back what
      surgery on the model damaged.
    - `challenge`: the highest NLL, right in half of the attempts or more. What surprises the model most; below that, a
      high NLL says more of wrong answers than of hard questions.
    - `learning`: high NLL, mostly right. What the model can gain most from. `challenge` has the first choice of the
      top, so these are mostly the rows below it.
    - `anchor_unverified`, `challenge_unverified`, `learning_unverified`: the same bands, of rows without a correctness
      whose quality flags report no fault. Their answers are unverified. A flag that is null reports no fault.

    Attributes:
        rules: by the names of the subsets.
        order: in which rules take rows; by default that of `rules`. It is written down, as manifests sort keys.
        disjoint: whether a row goes to the first rule alone that takes it. A rule takes its rows, at most `max_rows`,
            from those that no earlier rule has taken: what an earlier one left over its `max_rows` is there for others.
        seed: of the choice where there are too many rows.
        tokens: whether token files are made, see `token_rows`.
        terminators, headers: tokens that count in their loss masks in addition to bodies, see `TokenLoss`.
    """

    rules: Annotated[Mapping[str, SubsetRule], pydantic.Field(default_factory=_default_rules, min_length=1)]
    order: Annotated[tuple[str, ...], pydantic.Field(strict=False)] = ()
    disjoint: bool = True
    seed: int = 0
    tokens: bool = True
    terminators: bool = True
    headers: bool = False

    @pydantic.field_validator("rules")
    @classmethod
    def _name_folders(cls, rules: Mapping[str, SubsetRule]) -> Mapping[str, SubsetRule]:
        for name in rules:
            raise_if_invalid_name(name)
        return rules

    @pydantic.model_validator(mode="before")
    @classmethod
    def _writes_its_order_down(cls, values: Any) -> Any:
        rules = values.get("rules", _default_rules()) if isinstance(values, Mapping) else None
        return {"order": [*rules], **values} if isinstance(rules, Mapping) else values

    @pydantic.model_validator(mode="after")
    def _orders_all_rules(self) -> Self:
        if sorted(self.order) != sorted(self.rules):
            raise ValueError(f"`order` has {', '.join(self.order)}: write each of {', '.join(self.rules)} in it once")
        return self

    @property
    def ordered(self) -> list[SubsetRule]:
        """Rules, in the order in which they take rows."""
        return [self.rules[name] for name in self.order]

    @property
    def columns(self) -> list[str]:
        """Columns that the conditions of all rules ask."""
        return sorted({column for rule in self.rules.values() for column in rule.columns})


def selection_order(seed: int, rule: str, split: str, ids: Iterable[str]) -> NDArray[np.uint64]:
    """The first eight bytes of sha256 of seed, rule, split and id, with NUL between, as a number; shape (ids,).

    The lowest come first.
    """
    before = hashlib.sha256(f"{seed}\0{rule}\0{split}\0".encode())
    heads = bytearray()
    for one in ids:
        digest = before.copy()
        digest.update(one.encode())
        heads += digest.digest()[:8]
    return np.frombuffer(bytes(heads), ">u8").astype(np.uint64)


def select_rows(rule: SubsetRule, turn: NDArray[np.uint64], domains: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Which of the rows that it can take a rule takes; all of shape (rows,), `turn` as `turns` has it.

    Balanced domains give a row each, one after the other, as long as they have some: for one row more of the rule, one
    domain gives one more, and none fewer.
    """
    if rule.max_rows is None and not rule.balance:
        return np.ones(len(turn), bool)
    groups = domains if rule.balance else np.zeros_like(domains)
    sizes = np.bincount(groups)
    there = sizes[sizes > 0]
    rows = rule.max_rows if rule.max_rows is not None else int(there.min(initial=len(turn))) * len(there)
    place = np.empty(len(turn), np.int64)  # in its domain
    place[np.lexsort((turn, groups))] = np.arange(len(turn)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    taken = np.zeros(len(turn), bool)
    taken[np.lexsort((groups, place))[:rows]] = True
    return taken


def choose(
    candidates: NDArray[np.bool_],
    turn: NDArray[np.uint64],
    domains: NDArray[np.int32],
    rules: Sequence[SubsetRule],
    *,
    disjoint: bool,
) -> NDArray[np.bool_]:
    """Which rows each rule takes, a rule after the other; shape (rows, rules).

    Args:
        candidates: by a rule's band and conditions, shape (rows, rules).
        turn: shape (rows, rules).
        domains: number of each row's domain, shape (rows,).
        disjoint: whether what a rule has taken is no candidate of those behind it.
    """
    chosen = np.zeros_like(candidates)
    for place, rule in enumerate(rules):
        rows = np.flatnonzero(candidates[:, place] & ~(disjoint & chosen.any(axis=1)))
        chosen[rows, place] = select_rows(rule, turn[rows, place], domains[rows])
    return chosen


def near_a_boundary(
    nll: NDArray[np.float64], percentile: NDArray[np.float64], rule: SubsetRule, error_bar: float
) -> NDArray[np.bool_]:
    """Rows of a split that another score within the error bar could bring into the rule's band, or out of it.

    The band begins halfway between the lowest NLL of the split that is in it and the highest below, and ends likewise;
    one that no row lies beyond, as it begins at 0 or ends at 100, has no boundary there. Arrays are of all rows of the
    split, shape (rows,), NaN without a score.
    """
    low, high = rule.band
    is_near = np.zeros(len(nll), bool)
    for below, above in ((percentile < low, percentile >= low), (percentile <= high, percentile > high)):
        if below.any() and above.any():
            boundary = (nll[below].max() + nll[above].min()) / 2
            is_near |= np.abs(nll - boundary) <= error_bar
    return is_near
