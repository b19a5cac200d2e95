"""status: what lies under a data root, and what needs work. Only reads."""

import datetime
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from pipeline_assets.commands.quantities import age
from pipeline_assets.commands.status_rebuilds import rebuild_json, rebuild_lines
from pipeline_assets.commands.terminal import AsJson, Root, existing_root
from pipeline_assets.corpus.spine.errors import InputError

if TYPE_CHECKING:
    from pipeline_assets.corpus.spine.inventory import ArtifactStatus, Orphan, OrphanBuild, Unfinished
    from pipeline_assets.corpus.spine.target import Target

app = typer.Typer()

_NEEDS_WORK = ("failed", "stale", "damaged", "interrupted")
_GAP = "  "


@dataclass(frozen=True)
class _Known:
    """A recipe that the command found: its targets, or why it can't be read."""

    name: str
    path: Path
    targets: Sequence["Target"]
    error: str | None


@app.command(epilog="Example: corpusmill status healing_text_v1 --data data/demo")
def status(
    recipe: Annotated[str | None, typer.Argument(help="Name or path of a recipe; all by default.")] = None,
    data: Root = Path("data"),
    as_json: AsJson = False,
) -> None:
    """Tell what lies under the data root, and what needs work."""
    from pipeline_assets.corpus.spine.inventory import artifact_statuses, orphan_builds, orphans
    from pipeline_assets.corpus.spine.lineage import Lineage
    from pipeline_assets.corpus.trust.rebuild import leftovers

    found = _known_recipes(recipe, existing_root(data))
    held = {one.path: artifact_statuses(data, one.targets) for one in found}
    lineage = Lineage(data)
    asked = [target for one in found for target in one.targets]
    others = orphans(lineage, asked) if recipe is None else []
    builds = orphan_builds(lineage, asked) if recipe is None else []
    rebuilds = leftovers(data) if recipe is None else []
    known = [one for one in found if recipe is not None or _is_of_interest(one, held[one.path], data)]
    untouched = [one.name for one in found if one not in known]
    now = datetime.datetime.now(datetime.UTC)
    if as_json:
        recipes = [
            {
                "recipe": one.name,
                "path": str(one.path),
                "error": one.error,
                "artifacts": [_holding_json(holding, one, data, now) for holding in held[one.path]],
            }
            for one in known
        ]
        report = {
            "data": str(data),
            "recipes": recipes,
            "untouched": untouched,
            "unasked": [_unasked_json(other, now) for other in others],
            "unasked_builds": [{"folder": str(build.folder), **_unfinished_json(build.unfinished)} for build in builds],
            "rebuilds": [rebuild_json(rebuild, now) for rebuild in rebuilds],
        }
        typer.echo(json.dumps(report, indent=1))
    else:
        for line in _status_lines(known, held, others, data, now):
            typer.echo(line)
        for line in _build_lines(builds, data, now):
            typer.echo(line)
        for line in rebuild_lines(rebuilds, now):
            typer.echo(line)
        if not known:
            names = ", ".join(untouched)
            typer.echo(f"of no recipe anything is here yet: {names}; `corpusmill status NAME` names what is missing")
    needs_work = any(holding.condition in _NEEDS_WORK for one in known for holding in held[one.path])
    is_begun = any(build.unfinished.builder is None for build in builds)
    raise typer.Exit(1 if needs_work or is_begun or any(one.error for one in known) else 0)


def _known_recipes(name: str | None, root: Path) -> list[_Known]:
    """The recipe asked for, or every one that `run` would find by name: the data root's before the project's.

    Raises:
        UsageError: the one asked for can't be read.
    """
    from pipeline_assets.systems.registry import read_recipe, recipe_path, recipe_paths

    if name is not None:
        path = recipe_path(name, root)
        return [_Known(name, path, read_recipe(path).targets(), None)]
    return [_known(stem, path) for stem, path in recipe_paths(root).items()]


def _known(name: str, path: Path) -> _Known:
    from pipeline_assets.systems.registry import read_recipe

    try:
        return _Known(name, path, read_recipe(path).targets(), None)
    except InputError as error:
        return _Known(name, path, [], str(error))
    except OSError as error:
        return _Known(name, path, [], f"{path}: {error.strerror or error}; make it readable")


def _is_of_interest(one: _Known, held: Sequence["ArtifactStatus"], root: Path) -> bool:
    """Whether a recipe is told of unasked: one of the data root always is; one of the project, which nobody may ever
    have meant to build here, if something of it is here, or if it can't be read.
    """
    is_own = one.path.parent == root / "recipes"
    return is_own or one.error is not None or any(holding.sealed != "missing" or holding.unfinished for holding in held)


def _status_lines(
    known: Sequence[_Known],
    held: Mapping[Path, Sequence["ArtifactStatus"]],
    others: Sequence["Orphan"],
    root: Path,
    now: datetime.datetime,
) -> Iterator[str]:
    cells = {
        id(holding): _cells(holding.condition, str(holding.target.folder), holding.size, holding.sealed_at, now)
        for found in held.values()
        for holding in found
    }
    other_cells = [
        _cells(
            "damaged" if other.damage else "sealed",
            str(other.folder.relative_to(root)),
            other.size,
            other.sealed_at,
            now,
        )
        for other in others
    ]
    widths = [max(map(len, column)) for column in zip(*cells.values(), *other_cells, strict=True)]
    for one in known:
        yield f"{one.name}  {one.path}"
        if one.error:
            yield f"{_GAP}can't be read: {one.error}"
        for holding in held[one.path]:
            yield _GAP + _aligned(cells[id(holding)], widths)
            words = _reason(holding, one, root, now)
            if words:
                yield f"{_GAP * 2}{words}"
            for check in holding.checks:
                if not (check.passed or check.holds_back):
                    yield f"{_GAP * 2}{check.name} warns: {check.because}"
    if others:
        yield "no recipe asks for these" + (", of those that can be read" if any(one.error for one in known) else "")
        for other, row in zip(others, other_cells, strict=True):
            yield _GAP + _aligned(row, widths)
            yield f"{_GAP * 2}{other.damage or f'{other.name} {other.digest}'}"


def _build_lines(builds: Sequence["OrphanBuild"], root: Path, now: datetime.datetime) -> Iterator[str]:
    if builds:
        yield "no recipe asks for these, which were begun"
    for build in builds:
        unfinished = build.unfinished
        yield f"{_GAP}{'building' if unfinished.builder else 'interrupted'}{_GAP}{build.folder.relative_to(root)}"
        if unfinished.builder is not None:
            yield f"{_GAP * 2}{_builder_words(unfinished, now)}; {_finished(unfinished)}"
            continue
        litter = shlex.join(["rm", "-r", *map(str, unfinished.folders)])
        left = f"left {age(unfinished.last_write, now)} ago; {_finished(unfinished)}"
        yield f"{_GAP * 2}{left}; the command that began it goes on; if it isn't wanted: {litter}"


def _cells(
    state: str, folder: str, size: Any, sealed_at: datetime.datetime | None, now: datetime.datetime
) -> tuple[str, ...]:
    return (
        state,
        folder,
        "" if size.documents is None else f"{size.documents:,} documents",
        "" if size.tokens is None else f"{size.tokens:,} tokens",
        "" if size.bytes is None else f"{size.bytes:,} bytes",
        "" if sealed_at is None else f"sealed {age(sealed_at, now)} ago",
    )


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> str:
    """Words to the left, numbers to the right."""
    aligned = [
        cell.rjust(width) if 2 <= column < 5 else cell.ljust(width)
        for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return _GAP.join(aligned).rstrip()


def _reason(holding: "ArtifactStatus", known: _Known, root: Path, now: datetime.datetime) -> str | None:
    """Why the artifact is in its state, in words; None where there is nothing to say."""
    unfinished, reason = holding.unfinished, holding.reason
    if holding.condition == "damaged":
        reason = f"{reason}; to mend it: {_mending(holding, known, root)}"
    elif holding.condition == "failed":
        again = shlex.join(["corpusmill", "run", known.name, "--data", str(root)])
        reason = f"{reason}; nothing is made of it until that passes; to ask again: {again}"
    if unfinished is None:
        return reason
    if holding.condition not in ("building", "interrupted"):
        litter = ", ".join(folder.name for folder in unfinished.folders)
        left = f"a crash left {litter} beside it, which nothing needs: remove it"
        return f"{reason}; {left}" if reason else left
    finished = _finished(unfinished)
    beside = "" if holding.sealed == "missing" else f"; what is sealed meanwhile: {holding.sealed}"
    beside += f" ({reason})" if beside and reason else ""
    if unfinished.builder is not None:
        return f"{_builder_words(unfinished, now)}; {finished}{beside}"
    left = "all shards are finished, its seal was cut short" if unfinished.is_sealing else finished
    if not unfinished.is_sealing and not unfinished.is_as_asked:
        left += ", for another recipe or other inputs: it will start again"
    return f"left {age(unfinished.last_write, now)} ago; {left}{beside}; to go on: {_going_on(holding, known, root)}"


def _finished(unfinished: "Unfinished") -> str:
    done = ", ".join(f"{count} shards of {stage}" for stage, count in unfinished.finished_shards.items())
    return f"finished: {done}" if done else "no shard is finished"


def _builder_words(unfinished: "Unfinished", now: datetime.datetime) -> str:
    builder = unfinished.builder
    if builder is None or builder.pid is None:
        return "another process is building it"
    since = "" if builder.since is None else f", for {age(builder.since, now)}"
    return f"process {builder.pid} on {builder.host} is building it{since}"


def _going_on(holding: "ArtifactStatus", known: _Known, root: Path) -> str:
    """The command that goes on; a sealed artifact of another recipe is only replaced when asked to."""
    is_replacing = holding.sealed in ("stale", "damaged") and not (holding.unfinished and holding.unfinished.is_sealing)
    words = ["corpusmill", "run", known.name, *(["--replace"] if is_replacing else []), "--data", str(root)]
    return shlex.join(words)


def _mending(holding: "ArtifactStatus", known: _Known, root: Path) -> str:
    """The command that puts back what the manifest says; without a manifest, the one that builds it again."""
    if holding.manifest is None:
        return shlex.join(["corpusmill", "run", known.name, "--replace", "--data", str(root)])
    return shlex.join(["corpusmill", "rebuild", str(root / holding.target.folder), "--put-back", "--data", str(root)])


def _holding_json(holding: "ArtifactStatus", known: _Known, root: Path, now: datetime.datetime) -> dict[str, Any]:
    unfinished = None if holding.unfinished is None else _unfinished_json(holding.unfinished)
    return {
        "artifact": holding.target.kind,
        "partition": holding.target.partition,
        "name": holding.target.name,
        "folder": str(root / holding.target.folder),
        "state": holding.condition,
        "sealed": holding.sealed,
        "reason": holding.reason,
        "digest": holding.manifest.digest if holding.manifest else None,
        "checks": [msgspec.to_builtins(one) for one in holding.checks],
        **asdict(holding.size),
        **_sealed_json(holding.sealed_at, now),
        "builder": None,
        "unfinished": None,
        **(unfinished or {}),
        "go_on": _going_on(holding, known, root) if holding.condition == "interrupted" else None,
        "mend": _mending(holding, known, root) if holding.condition == "damaged" else None,
    }


def _unfinished_json(unfinished: "Unfinished") -> dict[str, Any]:
    builder = unfinished.builder
    return {
        "builder": None
        if builder is None
        else {"pid": builder.pid, "host": builder.host, "since": _utc(builder.since)},
        "unfinished": {
            "folders": [str(folder) for folder in unfinished.folders],
            "finished_shards": dict(unfinished.finished_shards),
            "last_write_utc": _utc(unfinished.last_write),
            "is_as_asked": unfinished.is_as_asked,
            "is_sealing": unfinished.is_sealing,
        },
    }


def _unasked_json(other: "Orphan", now: datetime.datetime) -> dict[str, Any]:
    return {
        "folder": str(other.folder),
        "name": other.name,
        "digest": other.digest,
        "damage": other.damage,
        **asdict(other.size),
        **_sealed_json(other.sealed_at, now),
    }


def _sealed_json(sealed_at: datetime.datetime | None, now: datetime.datetime) -> dict[str, Any]:
    age_s = None if sealed_at is None else max(0, int((now - sealed_at).total_seconds()))
    return {"sealed_at_utc": _utc(sealed_at), "age_s": age_s}


def _utc(moment: datetime.datetime | None) -> str | None:
    return None if moment is None else moment.isoformat(timespec="seconds")
