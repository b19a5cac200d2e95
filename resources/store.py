"""Dagster's resources: the data root and how artifacts are built there, the hub, the tokenizer that ships.

Where the config leaves a setting out, its CORPUSMILL_* variable says it, else it has its default.
"""

from collections.abc import Mapping
from pathlib import Path

import dagster as dg
from pydantic import Field, PrivateAttr

from pipeline_assets.corpus.readers.hub_files import CACHE_FOLDER, HubFiles
from pipeline_assets.corpus.recipes.run import HUB_TRIES, SETTINGS, Run
from pipeline_assets.corpus.scoring.modal_settings import VARIABLES
from pipeline_assets.corpus.tokens.encode import cached_encoder
from pipeline_assets.corpus.tokens.o200k_harmony import FAMILY, VOCABULARY, VOCABULARY_SHA256, Encoder, check_vocabulary
from resources.launchers import LAUNCHER, elsewhere_of

_CALLS = "corpusmill/modal_calls"


def environment() -> Mapping[str, str]:
    """The variables that say settings, as far as they are set."""
    values = {name: dg.EnvVar(name).get_value() for name in (*SETTINGS, *VARIABLES, LAUNCHER, "CORPUSMILL_DATA")}
    return {name: value for name, value in values.items() if value}


def data_root() -> Path:
    """The folder of all artifacts, absolute: CORPUSMILL_DATA, else ./data."""
    return Path(environment().get("CORPUSMILL_DATA", "data")).absolute()


class Store(dg.ConfigurableResource):
    """How artifacts are built: run settings, which never change a byte."""

    replace: bool = Field(default=False, description="Exchange sealed artifacts of another recipe for new ones")
    workers: int | None = Field(
        default=None, ge=0, description="Worker processes, 0 works in the run's own; else CORPUSMILL_WORKERS, 2"
    )
    fetch_threads: int = Field(default=8, ge=1, description="Downloads at a time")
    wait_for_builder_s: float = Field(
        default=86_400, ge=0, description="How long to wait for a run that builds the same artifact; 0 fails at once"
    )

    launcher: str | None = Field(
        default=None, description="Where score shards run, local or modal; else CORPUSMILL_LAUNCHER, local"
    )
    cost_limit: float | None = Field(
        default=None, description="What a split may cost on Modal; else CORPUSMILL_MODAL_COST_LIMIT, no limit"
    )
    keep_versions: int | None = Field(
        default=None, ge=1, description="Of a recipe that is repinned, how many versions keep their artifacts; else all"
    )
    _context: dg.InitResourceContext | None = PrivateAttr(default=None)

    def setup_for_execution(self, context: dg.InitResourceContext) -> None:
        self._context = context

    def run(self, root: Path, hub: HubFiles) -> Run:
        """The settings of a build below a data root.

        Raises:
            UsageError: a setting that is none.
        """
        return Run.of(
            root,
            environment(),
            elsewhere=elsewhere_of(environment(), self.launcher, self.cost_limit, self._tag),
            workers=self.workers,
            hub=hub,
            fetch_threads=self.fetch_threads,
            replace=self.replace,
            wait_s=self.wait_for_builder_s,
        )

    def _tag(self, what: str, calls: str) -> None:
        """Shows calls with the run that waits for them."""
        context = self._context
        if context is not None and context.run is not None and context.instance is not None:
            context.instance.add_run_tags(context.run.run_id, {_CALLS: f"{what}: {calls}"})


class Hub(dg.ConfigurableResource):
    """Where datasets are read from. The token is the client's own (HF_TOKEN or the saved login): it is no config."""

    endpoint: str | None = Field(
        default=None, description="Address, without a password; empty means HF_ENDPOINT or the public hub"
    )
    cache: str | None = Field(default=None, description="Folder for fetched bytes; empty means <data root>/hub_cache")

    tries: int | None = Field(default=None, ge=1, description="Tries of a call; else CORPUSMILL_HUB_TRIES, 6")

    def files(self, data_root: Path, tries: int | None = None) -> HubFiles:
        """Reading access, with the cache below the data root unless the config says otherwise.

        Args:
            tries: of a call, whatever is set; None leaves it at that.
        """
        cache = Path(self.cache) if self.cache else data_root / CACHE_FOLDER
        tries = tries or self.tries or HUB_TRIES.of(environment())
        return HubFiles(cache, endpoint=self.endpoint, tries=tries)


class Tokenizer(dg.ConfigurableResource):
    """Text to ids, as recipes pin it. Files of other tokenizers are named by the recipes that pack with them."""

    family: str = Field(default=FAMILY, description="Of the tokenizer; recipes name it")
    sha256: str = Field(default=VOCABULARY_SHA256, description="Of its vocabulary file; recipes pin it")

    def setup_for_execution(self, context: dg.InitResourceContext) -> None:
        """
        Raises:
            InputError: the file is missing, or has another hash.
        """
        check_vocabulary(VOCABULARY, self.sha256)

    def encoder(self) -> Encoder:
        """The encoder that builds take, loaded once in a process."""
        return cached_encoder(self.sha256, "gigatoken")
