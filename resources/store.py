"""Dagster resources: store of artifacts, launcher, hub and tokenizer.

A setting that is missing in the config comes from its CORPUSMILL_* variable, otherwise from its default.

Values are checked when a step uses a resource, not when the resource is created: after an error in creation, Dagster
would run the job two more times.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg
from pydantic import Field, PrivateAttr

from pipeline_assets.build.run import ENGINE, HUB_TRIES, SETTINGS, Run
from pipeline_assets.corpus.readers.hub_files import CACHE_FOLDER, HubFiles
from pipeline_assets.corpus.scoring.modal_settings import VARIABLE_NAMES
from pipeline_assets.corpus.tokens.o200k_harmony import (
    VOCABULARY_PATH,
    VOCABULARY_SHA256,
    HarmonyEncoder,
    check_vocabulary,
    load_encoder,
)
from pipeline_assets.corpus.tokens.o200k_vocabulary import FAMILY
from pipeline_assets.spine.errors import UsageError
from resources.launchers import LAUNCHER_NAMES, LAUNCHER_VARIABLE, remote_launcher_factory

if TYPE_CHECKING:
    from pipeline_assets.corpus.scoring.launcher import RemoteLauncherFactory  # loads more than most runs need


def environment() -> dict[str, str]:
    """Return the environment variables that configure a run, without empty values."""
    names = (*(setting.variable for setting in SETTINGS), *VARIABLE_NAMES, LAUNCHER_VARIABLE, "CORPUSMILL_DATA")
    return {name: value for name in names if (value := dg.EnvVar(name).get_value())}


def _require_at_least(minimum: int, resource: str, **values: float | None) -> None:
    """Raise UsageError if a value of a resource is below a minimum, or is NaN."""
    for name, value in values.items():
        if value is not None and not value >= minimum:
            raise _invalid_error(resource, name, f">= {minimum}", value)


def _invalid_error(resource: str, name: str, rule: str, value: object) -> UsageError:
    return UsageError(f"`{name}` must be {rule}, got {value!r}", f"the resource `{resource}`", "correct it")


def data_root() -> Path:
    """Return the absolute data root: CORPUSMILL_DATA, otherwise ./data."""
    return Path(environment().get("CORPUSMILL_DATA", "data")).absolute()


class Store(dg.ConfigurableResource):
    """Store of artifacts, with run settings, which do not affect the built bytes."""

    replace: bool = Field(default=False, description="Replace stale and damaged artifacts")
    workers: int | None = Field(
        default=None, description="Worker processes, 0 for the run's own; default: CORPUSMILL_WORKERS, else 2"
    )
    engine: str | None = Field(default=None, description="local or ray; default: CORPUSMILL_ENGINE, else local")
    fetch_threads: int = Field(default=8, description="Number of parallel downloads")
    wait_for_builder_s: float = Field(
        default=86_400, description="Seconds to wait for a run that builds the same artifact; 0 fails immediately"
    )

    keep_versions: int | None = Field(
        default=None, description="Number of a repinned recipe's versions that keep their artifacts; default: all"
    )

    def make_run(self, root: Path, hub: HubFiles, tokenizer: "Tokenizer", launcher: "Launcher") -> Run:
        """Return the run settings of a build; InputError if a value or file is invalid."""
        _require_at_least(0, "store", workers=self.workers, wait_for_builder_s=self.wait_for_builder_s)
        _require_at_least(1, "store", fetch_threads=self.fetch_threads, keep_versions=self.keep_versions)
        if self.engine and self.engine not in ENGINE.choices:
            raise _invalid_error("store", "engine", " or ".join(ENGINE.choices), self.engine)
        return Run.from_settings(
            root,
            environment() | ({} if self.engine is None else {ENGINE.variable: self.engine}),
            remote_launcher=launcher.remote(),
            vocabulary=tokenizer.checked_vocabulary(),
            workers=self.workers,
            hub=hub,
            fetch_threads=self.fetch_threads,
            replace=self.replace,
            wait_s=self.wait_for_builder_s,
        )


class Launcher(dg.ConfigurableResource):
    """Launcher of score shards.

    `local` runs worker processes on this machine, `modal` calls an app on Modal.
    """

    name: str | None = Field(default=None, description="local or modal; default: CORPUSMILL_LAUNCHER, else local")
    cost_limit: float | None = Field(
        default=None, description="Cost limit of a run on Modal; default: CORPUSMILL_MODAL_COST_LIMIT or none"
    )
    split_cost_limit: float | None = Field(
        default=None, description="Cost limit of a split on Modal; default: CORPUSMILL_MODAL_SPLIT_COST_LIMIT or none"
    )
    _remote: "RemoteLauncherFactory | None" = PrivateAttr(default=None)

    def remote(self) -> "RemoteLauncherFactory | None":
        """Return the factory of launchers on Modal; None to score on this machine.

        The factory is created once, so that all steps of a run share its cost limit.
        """
        if self.name and self.name not in LAUNCHER_NAMES:
            raise _invalid_error("launcher", "name", " or ".join(LAUNCHER_NAMES), self.name)
        _require_at_least(0, "launcher", cost_limit=self.cost_limit, split_cost_limit=self.split_cost_limit)
        if self._remote is None:
            self._remote = remote_launcher_factory(
                environment(), self.name, cost_limit=self.cost_limit, split_cost_limit=self.split_cost_limit
            )
        return self._remote


class Hub(dg.ConfigurableResource):
    """Hub that datasets are read from.

    The token comes from the hub's client (HF_TOKEN or the saved login), not from the config.
    """

    endpoint: str | None = Field(
        default=None, description="Address, without a password; empty means HF_ENDPOINT or the public hub"
    )
    cache: str | None = Field(default=None, description="Folder for fetched bytes; empty means <data root>/hub_cache")

    tries: int | None = Field(default=None, description="Tries per call; default: CORPUSMILL_HUB_TRIES, else 6")

    def files(self, root: Path, tries: int | None = None) -> HubFiles:
        """Return access to the hub; `tries` overrides the configured tries per call."""
        _require_at_least(1, "hub", tries=self.tries)
        cache = Path(self.cache) if self.cache else root / CACHE_FOLDER
        tries = tries or self.tries or HUB_TRIES.read(environment())
        return HubFiles(cache, endpoint=self.endpoint, tries=tries)


class Tokenizer(dg.ConfigurableResource):
    """Tokenizer o200k Harmony, with the vocabulary file that recipes pin.

    Every build that encodes with o200k Harmony reads this file. Recipes name the files of other tokenizers.
    """

    family: str = Field(default=FAMILY, description="Family of the tokenizer; recipes name it")
    sha256: str = Field(default=VOCABULARY_SHA256, description="sha256 of the vocabulary file; recipes pin it")
    path: str | None = Field(default=None, description="Vocabulary file; empty means the built-in file")

    def checked_vocabulary(self) -> Path | None:
        """Return the configured vocabulary file, checked; None for the built-in file."""
        if self.family != FAMILY:
            raise _invalid_error("tokenizer", "family", FAMILY, self.family)
        check_vocabulary(self._configured_path() or VOCABULARY_PATH, self.sha256)
        return self._configured_path()

    def _configured_path(self) -> Path | None:
        return Path(self.path).absolute() if self.path else None

    def encoder(self) -> HarmonyEncoder:
        """Return the encoder for builds, which is loaded once per process."""
        return load_encoder(self.sha256, self._configured_path())
