"""The store: the data root, and how artifacts are built there. Where the config leaves a setting out, its CORPUSMILL_*
variable says it, else it has its default.
"""

from collections.abc import Mapping
from pathlib import Path

import dagster as dg
from pydantic import Field, PrivateAttr

from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.recipes.run import SETTINGS, Run
from pipeline_assets.corpus.scoring.modal_settings import VARIABLES
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
