"""The store: artifacts and recipes on this machine, built in turn and shown as materialisations."""

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import dagster as dg
from pydantic import Field

from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.recipes.kind import Check, RunSettings
from pipeline_assets.corpus.recipes.systems import KINDS, RECIPES, recipe_path
from pipeline_assets.corpus.spine import durable
from pipeline_assets.corpus.spine.artifact import Artifact, open_artifact
from pipeline_assets.corpus.spine.audit import Verdict
from pipeline_assets.corpus.spine.engine import EngineSettings
from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.spine.lineage import keep_copy
from pipeline_assets.corpus.spine.lock import BuilderBusy
from pipeline_assets.corpus.spine.recipe import Recipe
from pipeline_assets.corpus.spine.settings import (
    FAISS_GPU,
    LOG_EVERY,
    MEMORY_MIB,
    START_METHOD,
    WORKERS,
    ZSTD_LEVEL,
    parse_gpu,
    parse_start_method,
)
from pipeline_assets.corpus.spine.target import Target
from resources.materialization import Preview, metadata_of

PROJECT_RECIPES = Path(__file__).parents[1] / "manifests" / "recipes"
RECIPE_TAG = "corpusmill/recipe"
_POLL_S = 1.0
R = TypeVar("R", bound=Recipe)


@contextlib.contextmanager
def _as_failure(root: Path) -> Iterator[None]:
    """What a user can cause, or the world, ends the step with its one line.

    Raises:
        dg.Failure: of an InputError or an OSError.
    """
    try:
        yield
    except InputError as error:
        raise dg.Failure(description=str(error), allow_retries=False) from error
    except OSError as error:
        explained = durable.explain(error, Path(os.fsdecode(error.filename or root)))
        raise dg.Failure(description=str(explained), allow_retries=False) from explained


def environment_setting(variable: str) -> str:
    """What a variable holds; empty where it is unset."""
    return dg.EnvVar(variable).get_value() or ""


class CorpusStore(dg.ConfigurableResource):
    """Where artifacts lie, which recipes are built, and the run settings, which never change a byte.

    A setting that the config leaves out comes from its CORPUSMILL_* variable, else it has its default.
    """

    data_root: str | None = Field(default=None, description="Folder of all artifacts; else CORPUSMILL_DATA, ./data")
    healing_recipe: str = Field(default="healing_text_v1", description="Name or path of the healing recipe")
    stage_a_recipe: str = Field(default="stage_a_v1", description="Name or path of the stage A recipe")
    nemotron_recipe: str = Field(default="nemotron_v1", description="Name or path of the nemotron recipe")
    replace: bool = Field(default=False, description="Exchange sealed artifacts of another recipe for new ones")
    workers: int | None = Field(
        default=None, ge=0, description="Worker processes, 0 works in the run's own; else CORPUSMILL_WORKERS, 2"
    )
    fetch_threads: int = Field(default=8, ge=1, description="Downloads at a time")
    wait_for_builder_s: float = Field(
        default=86_400, ge=0, description="How long to wait for a run that builds the same artifact; 0 fails at once"
    )

    @property
    def root(self) -> Path:
        """The data root, absolute."""
        return Path(self.data_root or environment_setting("CORPUSMILL_DATA") or "data").absolute()

    @property
    def engine(self) -> EngineSettings:
        """How stages run.

        Raises:
            UsageError: a setting that is none.
        """
        return EngineSettings(
            WORKERS.parse(environment_setting(WORKERS.variable)) if self.workers is None else self.workers,
            parse_start_method(environment_setting(START_METHOD)),
            LOG_EVERY.parse(environment_setting(LOG_EVERY.variable)),
        )

    @property
    def zstd_level(self) -> int:
        """Compression of text shards."""
        return ZSTD_LEVEL.parse(environment_setting(ZSTD_LEVEL.variable))

    def recipe(self, kind: type[R]) -> R:
        """The chosen recipe of a system, from the data root's recipes or the project's."""
        system = next(name for name, known in RECIPES.items() if known is kind)
        return kind.read(recipe_path(self._recipe_name(system), [self.root / "recipes", PROJECT_RECIPES]))

    def recipes(self, kind: type[R]) -> Iterator[R]:
        """Every recipe of a system that can be chosen by name, and can be read."""
        paths = {
            path.stem: path for folder in (PROJECT_RECIPES, self.root / "recipes") for path in folder.glob("*.yaml")
        }
        for _, path in sorted(paths.items()):
            with contextlib.suppress(InputError):
                yield kind.read(path)

    def open(self, target: Target) -> Artifact:
        """A sealed artifact of the store."""
        return open_artifact(self.root / target.folder)

    def run_settings(self, hub: HubFiles | None = None) -> RunSettings:
        """How things are built.

        Raises:
            UsageError: a setting that is none.
        """
        memory_bytes = MEMORY_MIB.parse(environment_setting(MEMORY_MIB.variable)) << 20
        faiss_gpu = parse_gpu(environment_setting(FAISS_GPU.variable))
        return RunSettings(self.engine, hub, self.zstd_level, self.fetch_threads, memory_bytes, faiss_gpu)

    def ask(self, target: Target) -> list[tuple[Check, Verdict]]:
        """What its checks say of a sealed artifact, asked now and kept."""
        with _as_failure(self.root):
            return KINDS[target.kind].ask(target, self.root)

    def waits(self, context: dg.AssetExecutionContext, target: Target) -> bool:
        """Whether something that an artifact is made from is not there as asked; says what.

        Raises:
            dg.Failure: it is there, and a check holds it back.
        """
        with _as_failure(self.root):
            for one in target.upstream:
                one.refuse_failed(self.root)
        missing = [one.partition or one.kind for one in target.upstream if one.state(self.root)[0] != "current"]
        if missing:
            context.log.info(f"not there yet: {', '.join(missing)}")
        return bool(missing)

    def build(
        self,
        context: dg.AssetExecutionContext,
        target: Target,
        preview: Preview | None = None,
        hub: HubFiles | None = None,
    ) -> dg.MaterializeResult:
        """The artifact as a materialisation; built as its kind is, only if it is not there as asked.

        Args:
            preview: rows of it for the UI.
            hub: for an artifact that is read from one.
        """
        settings, kind = self.run_settings(hub), KINDS[target.kind]
        context.instance.add_run_tags(context.run_id, {RECIPE_TAG: Path(self._recipe_name(target.system)).stem})
        state, reason = target.state(self.root)
        was_there = target.is_sealed(self.root)
        context.log.info(f"{target.name}: {state} ({reason})")
        with _as_failure(self.root):
            artifact = self._build_in_turn(context, lambda: kind.build(target, self.root, self.replace, settings))
        if target.export_as is not None:
            keep_copy(self.root, artifact, target.export_as)
        return dg.MaterializeResult(
            metadata=metadata_of(artifact, was_current=was_there, preview=preview),
            data_version=dg.DataVersion(artifact.manifest.digest),
        )

    def _build_in_turn(self, context: dg.AssetExecutionContext, build: Callable[[], Artifact]) -> Artifact:
        """Runs of two partitions may want one upstream artifact: the second waits, then finds it there."""
        deadline = time.monotonic() + self.wait_for_builder_s
        has_spoken = False
        while True:
            try:
                return build()
            except BuilderBusy as busy:
                if time.monotonic() >= deadline:
                    raise
                if not has_spoken:
                    context.log.info(f"waiting: {busy.where}: {busy.what}")
                    has_spoken = True
                time.sleep(_POLL_S)

    def _recipe_name(self, system: str) -> str:
        return str(getattr(self, f"{system}_recipe"))
