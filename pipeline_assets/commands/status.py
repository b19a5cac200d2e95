"""status: what lies under a data root, and what needs work. Only reads."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from pipeline_assets.build import inventory
from pipeline_assets.build.recipe_paths import check_file_name, recipe_path, recipe_paths
from pipeline_assets.build.target import Target
from pipeline_assets.commands import terminal
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.lineage import Lineage
from pipeline_assets.systems.registry import SYSTEMS

_NEEDS_WORK = ("failed", "stale", "damaged", "interrupted")
_GAP = "  "


@dataclass(frozen=True)
class KnownRecipe:
    """A recipe that the command found; one that can't be read has no targets, and `error` says why."""

    name: str
    path: Path
    root: Path
    targets: Sequence[Target]
    locked: Sequence[inventory.ArtifactStatus]
    error: str | None = None

    @classmethod
    def read(cls, name: str, path: Path, root: Path) -> "KnownRecipe":
        """
        Raises:
            InputError, OSError: it can't be read.
        """
        targets = SYSTEMS.read_recipe(path).targets()
        return cls(name, path, root, targets, inventory.artifact_statuses(root, targets))

    @classmethod
    def found(cls, name: str, path: Path, root: Path) -> "KnownRecipe":
        """The same of one that may be wrong: then why, and no targets."""
        try:
            check_file_name(path)
            return cls.read(name, path, root)
        except InputError as error:
            return cls(name, path, root, [], [], str(error))
        except OSError as error:
            return cls(name, path, root, [], [], f"{path}: {error.strerror or error}; make it readable")

    @property
    def is_of_interest(self) -> bool:
        """Whether it is told of unasked: one of the data root always is; one of the project, which nobody may ever have
        meant to build here, if something of it is here, or if it can't be read.
        """
        is_own = self.path.parent == self.root / "recipes"
        return is_own or self.error is not None or any(one.sealed != "missing" or one.unfinished for one in self.locked)

    def again(self, holding: inventory.ArtifactStatus) -> str:
        """The command that goes on with it or mends it; what another recipe sealed is only replaced when asked to."""
        is_sealing = holding.unfinished is not None and holding.unfinished.is_sealing
        replace = ["--replace"] if holding.sealed in ("stale", "damaged") and not is_sealing else []
        return terminal.as_command("run", self.name, *replace, "--data", self.root)


def status(
    recipe: Annotated[
        str | None,
        typer.Argument(help="Name or path of a recipe; all by default.", autocompletion=terminal.known_recipes),
    ] = None,
    data: terminal.Root = Path("data"),
    as_json: terminal.AsJson = False,
) -> bool:
    """Example: corpusmill status healing_text_v1 --data data/demo"""
    if recipe is not None:
        known = found = [KnownRecipe.read(recipe, recipe_path(recipe, terminal.existing_root(data)), data)]
        others = list[inventory.Orphan]()
    else:
        found = [
            KnownRecipe.found(name, path, data) for name, path in recipe_paths(terminal.existing_root(data)).items()
        ]
        known = [one for one in found if one.is_of_interest]
        others = inventory.orphans(Lineage(data), [target for one in found for target in one.targets])
    untouched = [one.name for one in found if one not in known]
    content = {
        "data": data,
        "recipes": [
            {"recipe": one.name, "path": one.path, "error": one.error}
            | {"artifacts": [_holding_json(holding, one) for holding in one.locked]}
            for one in known
        ],
        "untouched": untouched,
        "unasked": [
            {key: getattr(other, key) for key in ("folder", "name", "digest", "damage")}
            | {**asdict(other.size), "sealed_at_utc": other.sealed_at}
            for other in others
        ],
    }
    lines = list(_status_lines(known, others, data))
    if not known:
        names = ", ".join(untouched)
        lines.append(f"of no recipe anything is here yet: {names}; `corpusmill status NAME` names what is missing")
    terminal.answer(as_json, content, lines)
    needs_work = any(holding.condition in _NEEDS_WORK for one in known for holding in one.locked)
    return not (needs_work or any(one.error for one in known))


def _status_lines(known: Sequence[KnownRecipe], others: Sequence[inventory.Orphan], root: Path) -> Iterator[str]:
    cells = [_cells(one.condition, one.target.folder, one) for recipe in known for one in recipe.locked]
    cells += [_cells("damaged" if one.damage else "sealed", one.folder.relative_to(root), one) for one in others]
    rows = iter(terminal.aligned(cells, numbers=(2, 3, 4)))
    for one in known:
        yield f"{one.name}  {one.path}"
        if one.error:
            yield f"{_GAP}can't be read: {one.error}"
        for holding in one.locked:
            yield _GAP + next(rows)
            words = _reason(holding, one)
            if words:
                yield f"{_GAP * 2}{words}"
            for check in holding.checks:
                if not (check.passed or check.is_blocking_failure):
                    yield f"{_GAP * 2}{check.name} warns: {check.because}"
    if others:
        yield "no recipe asks for these" + (", of those that can be read" if any(one.error for one in known) else "")
    for other in others:
        yield _GAP + next(rows)
        yield f"{_GAP * 2}{other.damage or f'{other.name} {other.digest}'}"


def _cells(state: str, folder: Path, one: inventory.ArtifactStatus | inventory.Orphan) -> tuple[str, ...]:
    sizes = [f"{count:,} {unit}" if count is not None else "" for unit, count in vars(one.size).items()]
    return (state, str(folder), *sizes, "" if one.sealed_at is None else f"sealed {terminal.ago(one.sealed_at)} ago")


def _reason(holding: inventory.ArtifactStatus, known: KnownRecipe) -> str | None:
    """Say why the artifact is in its state; None where there is nothing to say."""
    unfinished, reason = holding.unfinished, holding.reason
    if holding.condition == "damaged":
        reason = f"{reason}; to mend it: {known.again(holding)}"
    elif holding.condition == "failed":
        reason = f"{reason}; nothing is made of it until that passes; to ask again: {known.again(holding)}"
    if unfinished is None:
        return reason
    if holding.condition not in ("building", "interrupted"):
        litter = ", ".join(folder.name for folder in unfinished.folders)
        left = f"a crash left {litter} beside it, which nothing needs: remove it"
        return f"{reason}; {left}" if reason else left
    beside = "" if holding.sealed == "missing" else f"; what is sealed meanwhile: {holding.sealed}"
    beside += f" ({reason})" if beside and reason else ""
    done = ", ".join(f"{count} shards of {stage}" for stage, count in unfinished.finished_shards.items())
    left = f"finished: {done}" if done else "no shard is finished"
    if unfinished.builder is None and unfinished.is_sealing:
        left = "all shards are finished, its seal was cut short"
    going_on = "" if unfinished.builder is not None else f"; to go on: {known.again(holding)}"
    return f"{_builder_words(unfinished)}; {left}{beside}{going_on}"


def _builder_words(unfinished: inventory.PartialBuild) -> str:
    builder = unfinished.builder
    if builder is None:
        return f"left {terminal.ago(unfinished.last_write)} ago"
    if builder.pid is None:
        return "another process is building it"
    since = "" if builder.since is None else f", for {terminal.ago(builder.since)}"
    return f"process {builder.pid} on {builder.host} is building it{since}"


def _holding_json(holding: inventory.ArtifactStatus, known: KnownRecipe) -> dict[str, Any]:
    return {
        "artifact": holding.target.kind.name,
        "partition": holding.target.partition,
        "name": holding.target.name,
        "folder": known.root / holding.target.folder,
        "state": holding.condition,
        "sealed": holding.sealed,
        "reason": holding.reason,
        "digest": holding.manifest.digest if holding.manifest else None,
        "checks": holding.checks,
        **asdict(holding.size),
        "sealed_at_utc": holding.sealed_at,
        "unfinished": holding.unfinished,
        "go_on": known.again(holding) if holding.condition == "interrupted" else None,
        "mend": known.again(holding) if holding.condition == "damaged" else None,
    }
