"""Settings and costs of scoring on Modal."""

import difflib
from collections.abc import Mapping
from datetime import date
from typing import Self

import pydantic

from pipeline_assets.spine.errors import UsageError
from pipeline_assets.spine.plural import pluralize

NO_GPU = "none"
_VARIABLE_PREFIX = "CORPUSMILL_MODAL_"
_APP_VARIABLES = "PACKAGES", "MOUNT"  # the app reads these itself
BYTES_PER_TOKEN = 4  # o200k, English text
_TIME_RESERVE_FACTOR = 3  # a shard may take this many times its estimate
_MAX_LOST_WORK_S = 300  # seconds of work that a preempted call may lose


class ModalSettings(pydantic.BaseModel):
    """Settings of scoring on Modal, for a run and for the deployed app.

    The environment variable for a setting is CORPUSMILL_MODAL_ plus the setting's name in capitals. All prices are in
    one currency of your choice, per hour of a GPU, a core or a GiB. A price of None is unknown, a limit of None is not
    set.
    """

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    # Name of the app on Modal, and prefix of its volumes.
    app: str = pydantic.Field("corpusmill-nll-scoring", pattern=r"^[a-z0-9-]{1,48}$")
    environment: str | None = None  # Modal environment; None for Modal's default
    # GPU model; `none` scores on a CPU. Modal may replace `H100` by an H200, but never `H100!`.
    gpu: str = pydantic.Field("H100!", min_length=1)
    gpus: int = pydantic.Field(1, ge=1, le=8)  # per container
    cpu: float = pydantic.Field(4, gt=0)  # physical cores per container
    memory_gib: float = pydantic.Field(64, gt=0)
    region: str | None = None  # Modal region; None for any
    secret: str = ""  # name of the Modal secret with HF_TOKEN, for hub files that need a token; empty for none
    timeout_s: int = pydantic.Field(3600, ge=10, le=86_400)  # maximum for a shard, with the loading of the model
    startup_s: int = pydantic.Field(1800, ge=10, le=86_400)  # maximum for a container's start, with its image
    scaledown_s: int = pydantic.Field(60, ge=2, le=3600)  # a container's wait for another shard
    places: int = pydantic.Field(16, ge=1, le=1000)  # maximum containers at a time; each scores one shard
    # Estimated speed of a container. 17,000 is a published figure of gpt-oss-120b on one H100.
    tokens_per_s: float = pydantic.Field(17_000, gt=0)
    gpu_price: float | None = pydantic.Field(None, ge=0)
    cpu_price: float = pydantic.Field(0, ge=0)
    memory_price: float = pydantic.Field(0, ge=0)
    region_factor: float = pydantic.Field(1, ge=1)  # applies to all prices, even if `region` is None
    prices_read: date | None = None  # day on which the prices were read
    cost_limit: float | None = pydantic.Field(None, ge=0)  # for all splits that one command scores
    split_cost_limit: float | None = pydantic.Field(None, ge=0)

    @classmethod
    def from_mapping(cls, variables: Mapping[str, str], **overrides: object) -> Self:
        """Read settings from variables; an override that is not None replaces a variable.

        Raise UsageError, with the variable's name, for an unknown variable or an invalid value.
        """
        if f"{_VARIABLE_PREFIX}KERNELS" in variables:
            fix = "unset it, and for quantized weights set `scoring.dequantise`"
            raise UsageError("kernels are no longer fetched from a hub", f"{_VARIABLE_PREFIX}KERNELS", fix)
        known = [*map(variable_name, cls.model_fields), *(_VARIABLE_PREFIX + name for name in _APP_VARIABLES)]
        unknown = [name for name in variables if name.startswith(_VARIABLE_PREFIX) and name not in known]
        if unknown:
            nearest = difflib.get_close_matches(unknown[0], known, n=1) or known[:1]
            raise UsageError("unknown setting", unknown[0], f"did you mean {nearest[0]}?")
        values: dict[str, object] = {
            name: value for name in cls.model_fields if (value := variables.get(variable_name(name)))
        }
        values |= {name: value for name, value in overrides.items() if value is not None}
        try:
            return cls.model_validate(values)
        except pydantic.ValidationError as error:
            first = error.errors()[0]
            what = f"invalid value {first['input']!r}: {first['msg'].lower()}"
            raise UsageError(what, variable_name(str(first["loc"][0])), "correct it") from None

    @property
    def volumes(self) -> tuple[str, str]:
        """Names of the volume with hub files and of the volume with scores."""
        return f"{self.app}-files", f"{self.app}-scores"

    def cost(self, seconds: float) -> float | None:
        """Return a container's cost for a time in seconds; None if a price is unknown."""
        gpus, gpu_price = (0, 0.0 if self.cpu_price else None) if self.gpu == NO_GPU else (self.gpus, self.gpu_price)
        if gpu_price is None:
            return None
        hourly = self.cpu * self.cpu_price + self.memory_gib * self.memory_price + gpus * gpu_price
        return seconds / 3600 * hourly * self.region_factor

    def describe_estimate(self, tokens: int, shards: int) -> str:
        """Describe the estimated work and cost, not counting the start of containers."""
        seconds = tokens / self.tokens_per_s
        hours, cost = seconds * (1 if self.gpu == NO_GPU else self.gpus) / 3600, self.cost(seconds)
        price = variable_name("cpu_price" if self.gpu == NO_GPU else "gpu_price")
        units = "CPUs" if self.gpu == NO_GPU else self.gpu
        stated_cost = f"cost unknown: set {price}" if cost is None else f"cost about {format_money(cost)}"
        work = f"about {tokens:,} tokens in {pluralize(shards, 'shard')}"
        return f"{work}, {hours:,.2f} hours of {units}, {stated_cost}"

    def describe_rates(self) -> str:
        """Describe the rates and settings on which `describe_estimate` is based."""
        date_text = f", prices of {self.prices_read}" if self.prices_read else ""
        changed = self.model_dump(mode="json", exclude_defaults=True).items()
        places = pluralize(self.places, "container")
        rates = f"at {self.tokens_per_s:,.0f} tokens/s per container, {places} at a time{date_text}"
        return f"{rates}; settings: {', '.join(f'{name} {value}' for name, value in changed) or 'all by default'}"

    def start_error(self, split: str, tokens: int, shards: int, rows: int, past_cost: float) -> UsageError | None:
        """Return the error that prevents the start of a split; None if it can start.

        A split cannot start if its cost exceeds a limit, or if a limit is set and the cost is unknown. Nor can it start
        if a shard would take more than a third of `timeout_s`, or more than `_MAX_LOST_WORK_S` seconds. `tokens`,
        `shards` and `rows` cover only unfinished shards. `past_cost` is the cost of the command's earlier splits.
        """
        seconds = tokens / self.tokens_per_s
        cost, shard_seconds = self.cost(seconds), seconds / max(shards, 1)
        limits = ((self.split_cost_limit, 0.0, "split_cost_limit"), (self.cost_limit, past_cost, "cost_limit"))
        for limit, before, name in limits:
            if limit is None or (cost is not None and before + cost <= limit):
                continue
            option = f"--{name.replace('_', '-')}"
            exceeded = f"{option} is {format_money(limit)}"
            if cost is None:
                price = variable_name("cpu_price" if self.gpu == NO_GPU else "gpu_price")
                return UsageError(f"the cost is unknown, and {exceeded}", split, f"set {price}")
            subject = "this split and the splits before it" if before else "this split"
            fix = f"score fewer rows (`scoring.max_rows`), or raise {option} ({variable_name(name)})"
            return UsageError(f"{subject} would cost about {format_money(before + cost)}, and {exceeded}", split, fix)
        limit_s = min(_MAX_LOST_WORK_S, self.timeout_s / _TIME_RESERVE_FACTOR)
        if shard_seconds > limit_s:
            is_lost = limit_s == _MAX_LOST_WORK_S
            why = "an interrupted call loses its work" if is_lost else f"{variable_name('timeout_s')} ends it"
            what = f"a shard would take about {shard_seconds:,.0f} s, and may take {limit_s:,.0f} s because {why}"
            fewer, speed = int(rows * limit_s / seconds), variable_name("tokens_per_s")
            fix = f"`scoring.shard_rows` to {fewer} or less" if fewer else f"{speed} to the speed of a faster container"
            return UsageError(what, split, f"set {fix}")
        return None


def format_money(amount: float) -> str:
    """Format an amount of any currency, with two significant digits if it is below 1."""
    return f"{amount:,.2f}" if amount >= 1 else f"{amount:.2g}"


def variable_name(setting: str) -> str:
    return _VARIABLE_PREFIX + setting.upper()


VARIABLE_NAMES = tuple(map(variable_name, ModalSettings.model_fields))
