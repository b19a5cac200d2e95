"""The command `status`, which reads the states of a data root's artifacts."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from pipeline_assets.build import inventory
from pipeline_assets.build.recipe_paths import read_named_recipe, recipe_path, recipe_paths
from pipeline_assets.build.target import Target
from pipeline_assets.commands import terminal
from pipeline_assets.spine.disk_errors import explain_os_error
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.lineage import Lineage
from pipeline_assets.spine.plural import pluralize
from pipeline_assets.spine.visible import to_one_line
from pipeline_assets.systems.registry import SYSTEMS

_STATES_NEEDING_WORK = ("failed", "stale", "damaged", "interrupted")
_INDENT = "  "


@dataclass(frozen=True)
class RecipeStatus:
    """Recipe with the states of its artifacts, or an error if it cannot be read."""

    name: str
    path: Path
    root: Path
    targets: Sequence[Target]
    artifacts: Sequence[inventory.ArtifactStatus]
    error: str | None = None

    @classmethod
    def read(cls, name: str, path: Path, root: Path) -> "RecipeStatus":
        targets = SYSTEMS.read_recipe(path).targets()
        return cls(name, path, root, targets, inventory.artifact_statuses(root, targets))

    @classmethod
    def try_read(cls, name: str, path: Path, root: Path) -> "RecipeStatus":
        """Read a recipe as `read` does, but record an error instead of raising it."""
        try:
            read_named_recipe(path)
            return cls.read(name, path, root)
        except InputError as error:
            return cls(name, path, root, [], [], str(error))
        except OSError as error:
            return cls(name, path, root, [], [], str(explain_os_error(error, Path(error.filename or path))))

    @property
    def is_listed(self) -> bool:
        """True if the recipe is unreadable, is stored in `root`, or has artifacts there."""
        if self.path.parent == self.root / "recipes" or self.error is not None:
            return True
        return any(entry.sealed_state != "missing" or entry.partial_build for entry in self.artifacts)

    def command_for(self, artifact: inventory.ArtifactStatus) -> str:
        """Return the command that continues, rebuilds or repairs an artifact."""
        is_sealing = artifact.partial_build is not None and artifact.partial_build.is_sealing
        replace = ["--replace"] if artifact.sealed_state in ("stale", "damaged") and not is_sealing else []
        return terminal.format_command("run", self.name, *replace, "--data", self.root)


def status(
    recipe: Annotated[
        str | None,
        typer.Argument(help="Name or path of a recipe. Default: all.", autocompletion=terminal.complete_recipe_name),
    ] = None,
    data: terminal.Root = Path("data"),
    as_json: terminal.AsJson = False,
) -> bool:
    """Show the artifacts in the data root and which ones need work.

    Exit status 1: an artifact needs work, or a recipe cannot be read.

    Example: corpusmill status healing_text_v1 --data data/demo
    """
    terminal.require_root(data)
    if recipe is not None:
        shown = recipes = [RecipeStatus.read(recipe, recipe_path(recipe, data), data)]
        orphans = list[inventory.Orphan]()
    else:
        recipes = [RecipeStatus.try_read(name, path, data) for name, path in recipe_paths(data).items()]
        shown = [known for known in recipes if known.is_listed]
        orphans = inventory.find_orphans(Lineage(data), [target for known in recipes for target in known.targets])
    untouched = [known.name for known in recipes if known not in shown]
    content = {
        "data": data,
        "recipes": [
            {"recipe": known.name, "path": known.path, "error": known.error}
            | {"artifacts": [_artifact_json(entry, known) for entry in known.artifacts]}
            for known in shown
        ],
        "untouched": untouched,
        "unasked": [
            {key: getattr(orphan, key) for key in ("folder", "name", "digest", "damage")}
            | {**asdict(orphan.size), "sealed_at_utc": orphan.sealed_at}
            for orphan in orphans
        ],
    }
    lines = list(_status_lines(shown, orphans, data))
    if not shown:
        names = ", ".join(untouched)
        lines.append(f"nothing is built yet of any recipe: {names}; `corpusmill status NAME` lists missing artifacts")
    terminal.print_answer(as_json, content, lines)
    needs_work = any(entry.display_state in _STATES_NEEDING_WORK for known in shown for entry in known.artifacts)
    return not (needs_work or any(known.error for known in shown) or any(orphan.damage for orphan in orphans))


def _status_lines(recipes: Sequence[RecipeStatus], orphans: Sequence[inventory.Orphan], root: Path) -> Iterator[str]:
    cells = [_row_cells(item.display_state, item.target.folder, item) for known in recipes for item in known.artifacts]
    cells += [
        _row_cells("damaged" if orphan.damage else "sealed", orphan.folder.relative_to(root), orphan)
        for orphan in orphans
    ]
    rows = iter(terminal.align(cells, number_columns=(2, 3, 4)))
    for known in recipes:
        yield f"{known.name}  {known.path}"
        if known.error:
            yield f"{_INDENT}cannot be read: {known.error}"
        for entry in known.artifacts:
            yield _INDENT + next(rows)
            if reason := _explain_state(entry, known):
                yield f"{_INDENT * 2}{to_one_line(reason)}"
            for check in entry.checks:
                if not (check.passed or check.is_blocking_failure):
                    yield f"{_INDENT * 2}{check.name} warns: {to_one_line(check.because)}"
    if orphans:
        yield "requested by no " + ("readable recipe" if any(known.error for known in recipes) else "recipe")
    for orphan in orphans:
        yield _INDENT + next(rows)
        yield f"{_INDENT * 2}{orphan.damage or f'{orphan.name} {orphan.digest}'}"


def _row_cells(state: str, folder: Path, artifact: inventory.ArtifactStatus | inventory.Orphan) -> tuple[str, ...]:
    sizes = [pluralize(count, unit[:-1]) if count is not None else "" for unit, count in vars(artifact.size).items()]
    sealed = "" if artifact.sealed_at is None else f"sealed {terminal.format_age(artifact.sealed_at)} ago"
    return (state, str(folder), *sizes, sealed)


def _explain_state(artifact: inventory.ArtifactStatus, recipe: RecipeStatus) -> str | None:
    """Explain an artifact's state; None for a current artifact without leftovers.

    For a damaged, failed or interrupted artifact, the text also has the command to run.
    """
    unfinished, reason = artifact.partial_build, artifact.reason
    run_command = recipe.command_for(artifact)
    if artifact.display_state == "damaged":
        reason = f"{reason}; to repair it: {run_command}"
    elif artifact.display_state == "failed":
        reason = f"{reason}; this check blocks downstream builds; to run it again: {run_command}"
    if unfinished is None:
        return reason
    if artifact.display_state not in ("building", "interrupted"):
        leftovers = ", ".join(folder.name for folder in unfinished.folders)
        advice = f"a crash left {leftovers} next to it, which is not needed: remove it"
        return f"{reason}; {advice}" if reason else advice
    earlier = "" if artifact.sealed_state == "missing" else f"; sealed earlier: {artifact.sealed_state}"
    earlier += f" ({reason})" if earlier and reason else ""
    counts = unfinished.finished_shards.items()
    shards = ", ".join(f"{pluralize(count, 'shard')} of {stage}" for stage, count in counts)
    progress = f"finished: {shards}" if shards else "no shard is finished"
    if (builder := unfinished.builder) is not None:
        is_known, since = builder.pid is not None, builder.since
        process = f"process {builder.pid} on {builder.host}" if is_known else "another process"
        age = f", for {terminal.format_age(since)}" if is_known and since is not None else ""
        return f"{process} is building it{age}; {progress}{earlier}"
    if unfinished.is_sealing:
        progress = "all shards are finished, the seal was interrupted"
    command = "`corpusmill pull` it again" if unfinished.is_pull else run_command
    stopped = f"stopped {terminal.format_age(unfinished.last_write)} ago"
    return f"{stopped}; {progress}{earlier}; to continue: {command}"


def _artifact_json(artifact: inventory.ArtifactStatus, recipe: RecipeStatus) -> dict[str, Any]:
    is_pull = artifact.partial_build is not None and artifact.partial_build.is_pull
    command = recipe.command_for(artifact)
    return {
        "artifact": artifact.target.kind.name,
        "partition": artifact.target.partition,
        "name": artifact.target.name,
        "folder": recipe.root / artifact.target.folder,
        "state": artifact.display_state,
        "sealed": artifact.sealed_state,
        "reason": artifact.reason,
        "digest": artifact.manifest.digest if artifact.manifest else None,
        "checks": artifact.checks,
        **asdict(artifact.size),
        "sealed_at_utc": artifact.sealed_at,
        "unfinished": artifact.partial_build,
        "go_on": command if artifact.display_state == "interrupted" and not is_pull else None,
        "mend": command if artifact.display_state == "damaged" else None,
    }
