"""Run: where artifacts lie, and how they are built: speed and storage, never content."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from pipeline_assets.corpus.readers.hub_files import CACHE_FOLDER, HubFiles
from pipeline_assets.corpus.spine.engine import EngineSettings
from pipeline_assets.corpus.spine.settings import (
    FAISS_GPU,
    HUB_TRIES,
    LOG_EVERY,
    MEMORY_MIB,
    START_METHOD,
    WORKERS,
    ZSTD_LEVEL,
    NumberSetting,
    parse_gpu,
    parse_start_method,
)

_INLINE_BYTES = 4 << 20  # of shards: half a second of work, and workers take longer to start


@dataclass(frozen=True)
class Run:
    """Settings of a build.

    Attributes:
        root: the data root.
        hub: reading access to a hub; None where nothing is read from one.
        zstd_level: compression of text shards.
        fetch_threads: downloads at a time.
        memory_bytes: what deduplication may take, all processes together; it spills what is beyond.
        faiss_gpu: the GPU that faiss is to search on; None for the CPU.
        replace: whether an artifact of another recipe, or a damaged one, gives way to what is built.
        wait_s: how long to wait while another process builds the same artifact; 0 refuses at once.
    """

    root: Path
    engine: EngineSettings
    hub: HubFiles | None = None
    zstd_level: int = ZSTD_LEVEL.default
    fetch_threads: int = 8
    memory_bytes: int = MEMORY_MIB.default << 20
    faiss_gpu: int | None = None
    replace: bool = False
    wait_s: float = 0

    @classmethod
    def of(
        cls,
        root: Path,
        variables: Mapping[str, str],
        *,
        workers: int | None = None,
        log_every_s: int | None = None,
        memory_mib: int | None = None,
        faiss_gpu: int | None = None,
        hub: HubFiles | None = None,
        fetch_threads: int = 8,
        replace: bool = False,
        wait_s: float = 0,
    ) -> Self:
        """The settings that flags give, else CORPUSMILL_* variables, else defaults.

        Args:
            variables: the environment.
            hub: None for the one that the environment names, with its cache in the data root.
        Raises:
            UsageError: a variable that can't be used.
        """

        def setting(known: NumberSetting, flag: int | None) -> int:
            return known.parse(variables.get(known.variable, "")) if flag is None else flag

        engine = EngineSettings(
            setting(WORKERS, workers),
            parse_start_method(variables.get(START_METHOD, "")),
            setting(LOG_EVERY, log_every_s),
            inline_bytes=_INLINE_BYTES,
        )
        return cls(
            root,
            engine,
            hub or hub_of(root, variables),
            setting(ZSTD_LEVEL, None),
            memory_bytes=setting(MEMORY_MIB, memory_mib) << 20,
            faiss_gpu=parse_gpu(variables.get(FAISS_GPU.variable, "")) if faiss_gpu is None else faiss_gpu,
            fetch_threads=fetch_threads,
            replace=replace,
            wait_s=wait_s,
        )

    def hub_for(self, what: str) -> HubFiles:
        """The hub that something is read from.

        Raises:
            ValueError: there is none.
        """
        if self.hub is None:
            raise ValueError(f"{what} is read from a hub, and the run has none")
        return self.hub

    def naming(self, partition: str | None) -> Self:
        """The same, with a partition named in progress lines."""
        return replace(self, engine=replace(self.engine, subject=partition or ""))

    def provenance(self) -> Mapping[str, Any]:
        """What a manifest records of the settings."""
        return {
            "workers": self.engine.workers,
            "start_method": self.engine.start_method,
            "zstd_level": self.zstd_level,
            "fetch_threads": self.fetch_threads,
        }


def hub_of(root: Path, variables: Mapping[str, str]) -> HubFiles:
    """The hub that the environment names, with its cache in a data root.

    Raises:
        UsageError: CORPUSMILL_HUB_TRIES can't be used.
    """
    return HubFiles(root / CACHE_FOLDER, tries=HUB_TRIES.parse(variables.get(HUB_TRIES.variable, "")))
