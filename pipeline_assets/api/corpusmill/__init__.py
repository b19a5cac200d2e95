"""Python API of corpusmill for notebooks, scripts and trainers.

    from corpusmill import open_folder, run

    artifacts = run("notes", data="data")                         # by kind: artifacts["stage_a/packed"]
    corpus = open_folder("data/stage_a/notes/deduplicated/notes")
    next(corpus.documents()).text
    corpus.table().to_pandas()                                    # or polars.from_arrow(corpus.table())
    corpus.trace(row=0)[0].text.source                            # file, row, digest, licence

    from corpusmill import labels, loader
    for tokens, documents, rows in loader("data/stage_a/notes/packed/notes", batch=8, seed=1):
        targets = labels(tokens, documents)

The import loads neither Dagster nor torch; the first use of `loader` or `labels` loads torch.
"""

import logging
import os
import shlex
import threading
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpusmill.opened import OpenedArtifact
from pipeline_assets.build.argument_names import name_arguments
from pipeline_assets.build.recipe_paths import recipe_path
from pipeline_assets.build.run import Run
from pipeline_assets.build.run_targets import run_targets
from pipeline_assets.build.run_warnings import warning_lines
from pipeline_assets.spine.argument_types import check_arguments
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.spine.provenance import ProvenanceRecorder
from pipeline_assets.spine.ray_engine import disconnect
from pipeline_assets.spine.sealed_folder import raise_if_artifact
from pipeline_assets.systems.early_checks import check_before_build
from pipeline_assets.systems.registry import SYSTEMS

if TYPE_CHECKING:
    from pipeline_assets.corpus.batching import labels, loader

__all__ = ["OpenedArtifact", "__version__", "labels", "loader", "open_folder", "run"]
__version__ = version("corpusmill")
_logger = logging.getLogger("corpusmill")
_run_lock = threading.RLock()


@check_arguments
@name_arguments()
def run(
    recipe: Path | str, data: Path | str = "data", workers: int = 2, replace: bool = False
) -> dict[str, list[OpenedArtifact]]:
    """Build a recipe as the command `corpusmill run` does.

    Warnings of the recipe and of checks are logged at the end. Calls from several threads take turns.

    Args:
        recipe: Name or path of the recipe.
        data: Data root.
        workers: Worker processes; 0 builds in this process.
        replace: Whether stale and damaged artifacts may be replaced.

    Returns:
        All artifacts of the recipe by kind, in the recipe's order.

    Raises:
        InputError: An artifact cannot be built. `UsageError` if an argument has a wrong type, or if the recipe is
            missing or invalid; other mistakes of the recipe are its notes.
    """
    root = Path(data)
    if workers < 0:
        raise UsageError(f"must be an integer >= 0, got {workers!r}", "workers", "correct it")
    raise_if_artifact(root, "set data to another folder")
    parsed = SYSTEMS.read_recipe(recipe_path(str(recipe), root), root)
    settings = Run.from_settings(root, os.environ, workers=workers, replace=replace)
    check_before_build(parsed, parsed.targets(), settings)
    artifacts: dict[str, list[OpenedArtifact]] = {}
    with _run_lock:  # the recorded command and the fork server belong to the whole process
        earlier = ProvenanceRecorder.command
        try:
            # `gc` keeps artifacts of a named file
            ProvenanceRecorder.record_command(f"corpusmill run {shlex.quote(str(recipe))}")
            for outcome in run_targets(parsed.targets(), settings):
                artifacts.setdefault(outcome.target.kind.name, []).append(open_folder(root / outcome.target.folder))
        finally:
            for line in (*parsed.warnings(), *warning_lines(parsed.targets(), root)):
                _logger.warning(line)
            ProvenanceRecorder.command = earlier
            disconnect()  # from Ray, if a stage used it
    return artifacts


def open_folder(folder: Path | str) -> OpenedArtifact:
    """Open the sealed artifact in a folder; InputError if it is missing or damaged."""
    return OpenedArtifact(folder)


if not TYPE_CHECKING:  # a type checker that knows `__getattr__` accepts misspelled names

    def __getattr__(name: str) -> Any:
        """Import `loader` and `labels`, which need torch, on their first use."""
        if name in ("labels", "loader"):
            try:
                from pipeline_assets.corpus import batching
            except ModuleNotFoundError as error:
                if error.name != "torch":
                    raise
                fix = "install it: python -m pip install -c constraints.txt torch"
                raise ModuleNotFoundError(f"{name} needs torch; {fix}", name="torch") from None
            return getattr(batching, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """List all names, including names that are imported on first use."""
    return sorted({*globals(), *__all__})
