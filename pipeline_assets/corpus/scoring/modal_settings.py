"""What is asked of Modal, and what it costs: settings of a run, and of the app when it is deployed."""

from collections.abc import Iterator, Mapping
from datetime import date
from typing import Self

import pydantic

from pipeline_assets.corpus.spine.errors import UsageError

NO_GPU = "none"
_PREFIX = "CORPUSMILL_MODAL_"
_BYTES_A_TOKEN = 4  # of o200k in English
_SPARE = 3  # times as long as planned that a shard may take


class ModalSettings(pydantic.BaseModel):
    """Each is CORPUSMILL_MODAL_ and its name in capitals. Prices are of an hour, in any currency.

    Attributes:
        app: its name on Modal; its volumes begin with it.
        environment: of Modal; None for its default.
        gpu: the model of a GPU: H100! is never given as an H200, which H100 may be; `none` scores on a CPU.
        gpus, cpu, memory_gib: of a container; `cpu` are physical cores.
        secret: that holds HF_TOKEN, for files that need one; empty for none.
        kernels: of a hub, that a model takes: each `owner/name@commit`, with spaces between.
        timeout_s: of a shard, loading the model included.
        startup_s: of a container, its image included.
        scaledown_s: that a container waits for another shard.
        places: shards at a time, so containers.
        tokens_per_s: that a container is thought to score. 17,000 is a published figure of gpt-oss-120b on one H100.
        gpu_price, cpu_price, memory_price: of a GPU, a core and a GiB; None where nobody said.
        prices_read: when they were read.
        region_factor: by which all of these rise, where a region was asked.
        cost_limit: above which a split is not begun; None for no limit.
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
    kernels: str = pydantic.Field("", pattern=r"^(\s*[\w.-]+/[\w.-]+@[0-9a-f]{40})*\s*$")
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

    @classmethod
    def of(cls, variables: Mapping[str, str], **given: object) -> Self:
        """Settings as the environment has them.

        Args:
            given: goes before them; None says nothing.
        Raises:
            UsageError: one can't be used; names the variable.
        """
        said = {name: value for name in cls.model_fields if (value := variables.get(variable(name)))}
        try:
            return cls.model_validate({**said, **{name: value for name, value in given.items() if value is not None}})
        except pydantic.ValidationError as error:
            first = error.errors()[0]
            what = f"it is {first['input']!r}: {first['msg'].lower()}"
            raise UsageError(what, variable(str(first["loc"][0])), "correct it") from None

    @property
    def volumes(self) -> tuple[str, str]:
        """Their names: of files of hubs, and of scores."""
        return f"{self.app}-files", f"{self.app}-scores"

    def cost(self, seconds: float) -> float | None:
        """Of containers that work so long, added up; None where nobody said what a GPU costs."""
        if self.gpu_price is None:
            return None
        hourly = self.gpus * self.gpu_price + self.cpu * self.cpu_price + self.memory_gib * self.memory_price
        return seconds / 3600 * hourly * self.region_factor

    def tokens_of(self, text_bytes: int) -> int:
        """About how many tokens a text has."""
        return text_bytes // _BYTES_A_TOKEN

    def words(self, tokens: int, shards: int) -> Iterator[str]:
        """Lines on what scoring is thought to take, without starting containers and loading models."""
        seconds = tokens / self.tokens_per_s
        hours, cost = seconds * self.gpus / 3600, self.cost(seconds)
        yield (
            f"about {tokens:,} tokens in {shards:,} shards: {hours:,.2f} hours of {self.gpu} "
            f"at {self.tokens_per_s:,.0f} tokens/s a container, {self.places} at a time"
        )
        read = f" at the prices of {self.prices_read}" if self.prices_read else ""
        yield (
            f"about {cost:,.2f}{read}" if cost is not None else f"cost unknown: {variable('gpu_price')} says the price"
        )
        said = self.model_dump(mode="json", exclude_defaults=True).items()
        yield "settings: " + (", ".join(f"{name} {value}" for name, value in said) or "all by default")

    def refuse(self, tokens: int, shards: int) -> None:
        """
        Raises:
            UsageError: that costs more than the limit, or nobody knows what; a shard may not end within the timeout.
        """
        seconds = tokens / self.tokens_per_s
        cost, of_shard = self.cost(seconds), seconds / max(shards, 1)
        if self.cost_limit is not None and (cost is None or cost > self.cost_limit):
            what = "nobody said what a GPU costs" if cost is None else f"it would cost about {cost:,.2f}"
            fix = (
                f"set {variable('gpu_price')}" if cost is None else "score fewer rows (`max_rows`), or raise the limit"
            )
            raise UsageError(f"{what}, and the limit is {self.cost_limit:,.2f}", variable("cost_limit"), fix)
        if _SPARE * of_shard > self.timeout_s:
            what = f"a shard is thought to take {of_shard:,.0f} s, and is ended after {self.timeout_s:,} s"
            fix = f"lower `shard_rows`, or deploy the app again with {_SPARE} times as many"
            raise UsageError(what, variable("timeout_s"), fix)


def variable(name: str) -> str:
    """That holds a setting."""
    return _PREFIX + name.upper()


VARIABLES = tuple(map(variable, ModalSettings.model_fields))
