"""Run settings: data root, workers, memory and hub access.

They never change the content of an artifact. They come from options, CORPUSMILL_* variables and defaults.
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast, get_args

from pipeline_assets.build.removal_state import applied_positions, read_removals
from pipeline_assets.corpus.readers.hub_files import CACHE_FOLDER, HubFiles
from pipeline_assets.corpus.removals import Removals
from pipeline_assets.spine.areas import scan_areas
from pipeline_assets.spine.engine import PROCESS_BYTES, EngineName, RunSettings
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.spine.files import require_utf8_names
from pipeline_assets.spine.install_hints import not_installed_error
from pipeline_assets.spine.manifest import Manifest
from pipeline_assets.spine.ray_engine import parse_address
from pipeline_assets.spine.start_method import StartMethod, default_start_method

if TYPE_CHECKING:
    from pipeline_assets.corpus.scoring.launcher import RemoteLauncherFactory  # which loads more than most runs need

_UNLIMITED = 2**31


@dataclass(frozen=True)
class NumberSetting:
    """Environment variable with an integer, its default and its range."""

    variable: str
    default: int
    minimum: int
    maximum: int = _UNLIMITED

    def read(self, variables: Mapping[str, str]) -> int:
        """Return the variable's number or the default; UsageError for an invalid number."""
        value = variables.get(self.variable) or str(self.default)
        if not value.isdecimal() or len(value) > 18 or not self.minimum <= int(value) <= self.maximum:
            is_shown = self.maximum < _UNLIMITED or (value.isdecimal() and len(value) > 9)
            limits = f"from {self.minimum} to {self.maximum}" if is_shown else f">= {self.minimum}"
            raise UsageError(f"must be an integer {limits}, got {value!r}", self.variable, "correct it")
        return int(value)


@dataclass(frozen=True)
class ChoiceSetting:
    """Environment variable with a fixed set of values, and its default."""

    variable: str
    default: str
    choices: tuple[str, ...]

    def read(self, variables: Mapping[str, str]) -> str:
        """Return the value or the default; UsageError for a value not in `choices`."""
        value = variables.get(self.variable) or self.default
        if value not in self.choices:
            raise UsageError(f"must be {' or '.join(self.choices)}, got {value!r}", self.variable, "correct it")
        return value


WORKERS = NumberSetting("CORPUSMILL_WORKERS", 2, minimum=0)
LOG_EVERY = NumberSetting("CORPUSMILL_LOG_EVERY", 10, minimum=1)
ZSTD_LEVEL = NumberSetting("CORPUSMILL_ZSTD_LEVEL", RunSettings.zstd_level, minimum=1, maximum=22)
MEMORY_MIB = NumberSetting("CORPUSMILL_MEMORY_MIB", 2048, minimum=1)
HUB_TRIES = NumberSetting("CORPUSMILL_HUB_TRIES", 6, minimum=1)
FAISS_GPU = NumberSetting("CORPUSMILL_FAISS_GPU", 0, minimum=0)
KEEP_WORK = NumberSetting("CORPUSMILL_KEEP_WORK", 0, minimum=0, maximum=1)
START_METHOD = ChoiceSetting("CORPUSMILL_START_METHOD", default_start_method(), get_args(StartMethod))
ENGINE = ChoiceSetting("CORPUSMILL_ENGINE", RunSettings.engine, get_args(EngineName))
KEEP_RUNS_DAYS = NumberSetting("CORPUSMILL_KEEP_RUNS_DAYS", 90, minimum=0, maximum=36_500)  # 0 keeps all runs
_RUN_SETTINGS = (WORKERS, LOG_EVERY, ZSTD_LEVEL, MEMORY_MIB, HUB_TRIES, FAISS_GPU, KEEP_WORK, START_METHOD, ENGINE)
SETTINGS = (*_RUN_SETTINGS, KEEP_RUNS_DAYS)
"""All settings of runs and of the UI, except the launcher."""

FolderFinder = Callable[[str], Path]
"""Returns an artifact's folder, relative to the data root, by its role; LookupError if none matches."""

INTERMEDIATE_ZSTD_LEVEL = 1  # of artifacts that only the next steps read; a tenth more bytes than at level 3
_MIN_PARALLEL_BYTES = 6 << 20  # of compressed shards: half a second of work, and workers take as long to start


@dataclass(frozen=True)
class Run:
    """Settings of a build."""

    root: Path
    settings: RunSettings
    hub: HubFiles | None = None  # None if nothing is read from a hub
    replace: bool = False  # a build may replace an artifact that is damaged or does not match its recipe
    wait_s: float = 0  # seconds to wait for another builder of the artifact; 0 raises BuilderBusyError at once
    publishes: bool = True  # publications are uploaded to the hub; False in a rebuild
    remote_launcher: "RemoteLauncherFactory | None" = None  # scores shards elsewhere; None scores on this machine
    # Maps a role to the folder of an earlier recipe's artifact. If that matches the target, a build links its files.
    find_previous_folder: FolderFinder | None = None
    removals: Removals | None = None  # removal list of a build; None reads the list of the data root
    keep_work: bool | None = None  # keep finished tasks for the next version; None: only for dated versions

    @functools.cached_property
    def _applied_positions(self) -> Mapping[str, str]:
        return applied_positions(sealed for _, sealed in scan_areas(self.root) if isinstance(sealed, Manifest))

    def removal_list(self) -> Removals:
        """Return the removal list; InputError if it lacks entries that builds applied."""
        return read_removals(self.root, self._applied_positions) if self.removals is None else self.removals

    @classmethod
    def from_settings(
        cls,
        root: Path,
        variables: Mapping[str, str],
        *,
        workers: int | None = None,
        hub: HubFiles | None = None,
        fetch_threads: int = RunSettings.fetch_threads,
        replace: bool = False,
        wait_s: float = 0,
        remote_launcher: "RemoteLauncherFactory | None" = None,
        vocabulary: Path | None = None,
    ) -> Self:
        """Return the settings from arguments, else CORPUSMILL_* variables, else defaults.

        Raise UsageError if a variable is invalid, if file names are not UTF-8, or if the engine is Ray and Ray is not
        installed.
        """
        require_utf8_names()
        workers = WORKERS.read(variables) if workers is None else workers
        engine = cast(EngineName, ENGINE.read(variables))
        memory = MEMORY_MIB.read(variables) << 20
        if engine == "ray" and not find_spec("ray"):
            raise not_installed_error(ModuleNotFoundError(name="ray"), "ray")
        if engine == "ray":
            parse_address(variables.get("RAY_ADDRESS", ""))
        settings = RunSettings(
            workers,
            cast(StartMethod, START_METHOD.read(variables)),
            LOG_EVERY.read(variables),
            min_parallel_bytes=_MIN_PARALLEL_BYTES,
            zstd_level=ZSTD_LEVEL.read(variables),
            intermediate_zstd_level=None if variables.get(ZSTD_LEVEL.variable) else INTERMEDIATE_ZSTD_LEVEL,
            fetch_threads=fetch_threads,
            engine=engine,
            # Workers of this machine share its memory, together with this process.
            worker_bytes=memory if engine == "ray" else max(memory - PROCESS_BYTES, 0) // max(workers, 1),
            faiss_gpu=FAISS_GPU.read(variables) if variables.get(FAISS_GPU.variable) else None,
            vocabulary=vocabulary,
        )
        hub = hub or open_hub(root, variables)
        keep_work = bool(KEEP_WORK.read(variables)) if variables.get(KEEP_WORK.variable) else None
        return cls(root, settings, hub, replace, wait_s, remote_launcher=remote_launcher, keep_work=keep_work)

    def require_hub(self, purpose: str) -> HubFiles:
        """Return the hub; if the run has none, raise a ValueError that names `purpose`."""
        if self.hub is None:
            raise ValueError(f"this run has no hub, which is needed for {purpose}")
        return self.hub

    def for_artifact(self, partition: str | None, is_intermediate: bool = False) -> Self:
        """Return a copy with one artifact's compression level and progress name."""
        settings = replace(self.settings, progress_name=partition or "")
        if is_intermediate and settings.intermediate_zstd_level is not None:
            settings = replace(settings, zstd_level=settings.intermediate_zstd_level)
        return replace(self, settings=settings)

    def provenance(self) -> Mapping[str, Any]:
        """Return the settings that a manifest records."""
        names = ("workers", "engine", "start_method", "zstd_level", "fetch_threads")
        return {name: getattr(self.settings, name) for name in names}


def open_hub(root: Path, variables: Mapping[str, str]) -> HubFiles:
    """Return access to the hub, with its cache in a data root."""
    return HubFiles(root / CACHE_FOLDER, tries=HUB_TRIES.read(variables))
