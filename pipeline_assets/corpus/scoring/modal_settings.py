"""What is asked of Modal, and what it costs: settings of a run, and of the app when it is deployed."""

import difflib
from collections.abc import Mapping
from datetime import date
from typing import Self

import pydantic

from pipeline_assets.spine.errors import UsageError

NO_GPU = "none"
_PREFIX = "CORPUSMILL_MODAL_"
_OF_THE_APP = "PACKAGES", "MOUNT"  # which it reads itself
BYTES_A_TOKEN = 4  # of o200k in English
_SPARE = 3  # times as long as planned that a shard may take
_MOST_LOST_S = 300  # of work that a call loses when its container is taken away


class ModalSettings(pydantic.BaseModel):
    """Each is CORPUSMILL_MODAL_ and its name in capitals. Prices are of an hour, in any currency.

    Attributes:
        app: its name on Modal; its volumes begin with it.
        environment: of Modal; None for its default.
        gpu: the model of a GPU: H100! is never given as an H200, which H100 may be; `none` scores on a CPU.
        gpus, cpu, memory_gib: of a container; `cpu` are physical cores.
        secret: that holds HF_TOKEN, for files that need one; empty for none.
        timeout_s: of a shard, loading the model included.
        startup_s: of a container, its image included.
        scaledown_s: that a container waits for another shard.
        places: shards at a time, so containers.
        tokens_per_s: that a container is thought to score. 17,000 is a published figure of gpt-oss-120b on one H100.
        gpu_price, cpu_price, memory_price: of a GPU, a core and a GiB; None where nobody said.
        prices_read: when they were read.
        region_factor: by which all of these rise, where a region was asked.
        cost_limit: for all splits that one command scores; None for no limit.
        split_cost_limit: for one split; None for no limit.
    """

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")

    app: str = pydantic.Field("corpusmill-nll-scoring", pattern=r"^[a-z0-9-]{1,48}$")
    environment: str | None = None
    gpu: str = pydantic.Field("H100!", min_length=1)
    gpus: int = pydantic.Field(1, ge=1, le=8)
    cpu: float = pydantic.Field(4, gt=0)
    memory_gib: float = pydantic.Field(64, gt=0)
    region: str | None = None
    secret: str = ""
    timeout_s: int = pydantic.Field(3600, ge=10, le=86_400)
    startup_s: int = pydantic.Field(1800, ge=10, le=86_400)
    scaledown_s: int = pydantic.Field(60, ge=2, le=3600)
    places: int = pydantic.Field(16, ge=1, le=1000)
    tokens_per_s: float = pydantic.Field(17_000, gt=0)
    gpu_price: float | None = pydantic.Field(None, ge=0)
    cpu_price: float = pydantic.Field(0, ge=0)
    memory_price: float = pydantic.Field(0, ge=0)
    region_factor: float = pydantic.Field(1, ge=1)
    prices_read: date | None = None
    cost_limit: float | None = pydantic.Field(None, ge=0)
    split_cost_limit: float | None = pydantic.Field(None, ge=0)

    @classmethod
    def from_mapping(cls, variables: Mapping[str, str], **given: object) -> Self:
        """Settings as the environment has them.

        Args:
            given: goes before them; None says nothing.
        Raises:
            UsageError: one can't be used; names the variable.
        """
        if f"{_PREFIX}KERNELS" in variables:
            fix = "unset it, and for quantised weights set `scoring.dequantise`"
            raise UsageError("no kernels are fetched from a hub any more", f"{_PREFIX}KERNELS", fix)
        known = [*map(variable_name, cls.model_fields), *(_PREFIX + name for name in _OF_THE_APP)]
        unknown = [name for name in variables if name.startswith(_PREFIX) and name not in known]
        if unknown:
            nearest = difflib.get_close_matches(unknown[0], known, n=1) or known[:1]
            raise UsageError("there is no such setting", unknown[0], f"did you mean {nearest[0]}?")
        said = {name: value for name in cls.model_fields if (value := variables.get(variable_name(name)))}
        try:
            return cls.model_validate({**said, **{name: value for name, value in given.items() if value is not None}})
        except pydantic.ValidationError as error:
            first = error.errors()[0]
            what = f"it is {first['input']!r}: {first['msg'].lower()}"
            raise UsageError(what, variable_name(str(first["loc"][0])), "correct it") from None

    @property
    def volumes(self) -> tuple[str, str]:
        """Their names: of files of hubs, and of scores."""
        return f"{self.app}-files", f"{self.app}-scores"

    def cost(self, seconds: float) -> float | None:
        """Of containers that work so long, added up; None where nobody said what a GPU costs, or a core without one."""
        gpus, gpu_price = (0, 0.0 if self.cpu_price else None) if self.gpu == NO_GPU else (self.gpus, self.gpu_price)
        if gpu_price is None:
            return None
        hourly = self.cpu * self.cpu_price + self.memory_gib * self.memory_price + gpus * gpu_price
        return seconds / 3600 * hourly * self.region_factor

    def describe_estimate(self, tokens: int, shards: int) -> str:
        """What scoring is thought to take, without starting containers and loading models."""
        seconds = tokens / self.tokens_per_s
        hours, cost = seconds * (1 if self.gpu == NO_GPU else self.gpus) / 3600, self.cost(seconds)
        price = variable_name("cpu_price" if self.gpu == NO_GPU else "gpu_price")
        return (
            f"about {tokens:,} tokens in {shards:,} shards, {hours:,.2f} hours of "
            f"{'CPUs' if self.gpu == NO_GPU else self.gpu}, "
            + (f"cost unknown: {price} says the price" if cost is None else f"cost about {money(cost)}")
        )

    def describe_rates(self) -> str:
        """What these words go by."""
        read = f", prices of {self.prices_read}" if self.prices_read else ""
        said = self.model_dump(mode="json", exclude_defaults=True).items()
        return f"at {self.tokens_per_s:,.0f} tokens/s a container, {self.places} at a time{read}; settings: " + (
            ", ".join(f"{name} {value}" for name, value in said) or "all by default"
        )

    def refusal(self, split: str, tokens: int, shards: int, rows: int, spent: float = 0.0) -> UsageError | None:
        """Return the reason not to begin a split: a limit on costs, or shards that lose too much when cut off.

        Args:
            tokens, shards, rows: Left to score.
            spent: Cost of the splits that the command began before this one.
        """
        seconds = tokens / self.tokens_per_s
        cost, of_shard = self.cost(seconds), seconds / max(shards, 1)
        for limit, before, name in (
            (self.split_cost_limit, 0.0, "split_cost_limit"),
            (self.cost_limit, spent, "cost_limit"),
        ):
            if limit is None or (cost is not None and before + cost <= limit):
                continue
            option = f"--{name.replace('_', '-')}"
            exceeded = f"{option} is {money(limit)}"
            if cost is None:
                price = variable_name("cpu_price" if self.gpu == NO_GPU else "gpu_price")
                return UsageError(f"the cost is unknown, and {exceeded}", split, f"set {price}")
            subject = "this split and those before it" if before else "it"
            fix = f"score fewer rows (`scoring.max_rows`), or raise {option} ({variable_name(name)})"
            return UsageError(f"{subject} would cost about {money(before + cost)}, and {exceeded}", split, fix)
        most = min(_MOST_LOST_S, self.timeout_s / _SPARE)
        if of_shard > most:
            what = f"a shard is thought to take {of_shard:,.0f} s, and may take {most:,.0f} s"
            why = "a call that is cut off loses it" if most == _MOST_LOST_S else f"{variable_name('timeout_s')} ends it"
            fewer = f"`scoring.shard_rows` to {max(int(rows * most / seconds), 1)} or less"
            return UsageError(f"{what}, since {why}", split, f"set {fewer}")
        return None


def money(amount: float) -> str:
    """An amount of any currency; of a small one its first digits."""
    return f"{amount:,.2f}" if amount >= 1 else f"{amount:.2g}"


def variable_name(name: str) -> str:
    """That holds a setting."""
    return _PREFIX + name.upper()


VARIABLES = tuple(map(variable_name, ModalSettings.model_fields))
