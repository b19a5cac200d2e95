"""run, and what commands share that build what a user names: options, places, and what is said of what was built."""

import contextlib
import functools
import math
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar

import typer

from pipeline_assets.build.files import write_new_recipe
from pipeline_assets.build.recipe import Recipe, upstream_first
from pipeline_assets.build.recipe_paths import recipe_path
from pipeline_assets.build.run import Run
from pipeline_assets.build.run_targets import run_targets
from pipeline_assets.build.target import Target
from pipeline_assets.commands import terminal
from pipeline_assets.commands.options import Sets
from pipeline_assets.spine.artifact import Artifact, CheckResult, open_artifact, read_manifest
from pipeline_assets.spine.errors import InputError, UsageError, key
from pipeline_assets.spine.manifest import FILE_NAME
from pipeline_assets.systems.registry import SYSTEMS
from resources.launchers import remote_launcher_factory

OutDir = Annotated[
    Path,
    typer.Option("--data", "--out-dir", envvar="CORPUSMILL_DATA", show_envvar=False, help="Data root of what is made."),
    Sets("name", "data"),
]
Strict = Annotated[bool, typer.Option("--strict", help="Exit with 1 if a check warns.")]
# Of commands that build what is named on them, where neither an option nor the environment says otherwise.
_OF_BUILDS = {"CORPUSMILL_WORKERS": str(min(16, os.cpu_count() or 1)), "CORPUSMILL_LOG_EVERY": "300"}
_GROUP_OF = {"stage_a": "stage-a", "parallel_text": "parallel"}  # of commands, by system
Lines = Callable[[Artifact], Iterable[str]]
R = TypeVar("R", bound=Recipe)


@dataclass(frozen=True)
class Flags:
    """Options of every command that builds what is named on it."""

    replace: Annotated[bool, typer.Option("--replace", help="Replace what other settings made.")] = False
    strict: Strict = False

    def run_below(self, root: Path) -> Run:
        """The settings of a build below a root, of these options and of the environment; logs as they say.

        Raises:
            UsageError: a variable that can't be used.
        """
        variables = _OF_BUILDS | {name: value for name, value in os.environ.items() if value}
        run = Run.from_settings(
            root, variables, replace=self.replace, remote_launcher=remote_launcher_factory(variables)
        )
        terminal.log_to_stderr()
        return run


@dataclass(frozen=True)
class Build(Flags):
    """Options of the commands that build below a data root, and how all of them do: what is typed becomes a recipe, or
    targets of what is sealed; these are built, and lines say what is there then.
    """

    out_dir: OutDir = Path("data")

    def at_place(self) -> Self:
        """Return the options with the absolute data root.

        Raises:
            UsageError: as `free_folder`; or it is an artifact itself.
        """
        folder = free_folder(self.out_dir)
        if (folder / FILE_NAME).is_file():
            raise UsageError("an artifact is sealed there", self.out_dir, "give --out-dir another folder")
        return replace(self, out_dir=folder)

    @functools.cached_property
    def run(self) -> Run:
        """The settings; errors as `run_below`."""
        return self.run_below(self.out_dir)

    def write(self, kind: type[R], content: Mapping[str, Any]) -> tuple[R, Path]:
        """Writes a recipe of options among those of the data root, and says where.

        Raises:
            UsageError: from `write_new_recipe`.
        """
        group = _GROUP_OF.get(content["system"], content["system"])
        recipe, path = write_new_recipe(kind, content, self.out_dir, group, self.replace)
        terminal.print_lines([f"recipe {path}"], err=True)
        return recipe, path

    def recipe(self, kind: type[Recipe], content: Mapping[str, Any], lines: Lines | None = None) -> None:
        """Writes a recipe of options, and builds it: arguments and errors as `write`, `build_recipe`."""
        recipe, path = self.write(kind, content)
        build_recipe(recipe, path, self.run, strict=self.strict, lines=lines)

    def targets(self, goals: Iterable[Target], lines: Lines = lambda _: ()) -> Artifact:
        """Builds them and what they need: arguments and errors as `build_targets`."""
        return build_targets(upstream_first(goals), self.run, self.strict, lines)


def free_folder(out_dir: Path) -> Path:
    """Return a folder as an absolute path.

    Raises:
        UsageError: It is a file, or lies within an artifact, which is sealed.
    """
    folder = out_dir.absolute()
    if folder.is_file():
        raise UsageError("a file lies where a folder belongs", folder, "give another folder, or move the file away")
    around = next((above for above in folder.resolve().parents if (above / FILE_NAME).is_file()), None)
    if around is not None:
        fix = f"give {key('name', 'it')} another folder"
        raise UsageError(f"it lies within {around}, which is sealed", out_dir, fix)
    return folder


def run(
    recipe: terminal.RecipeName,
    partition: Annotated[str | None, typer.Option(help="Only this partition, such as train.")] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace artifacts of another recipe.")] = False,
    strict: Strict = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait while another process builds the same artifact.")] = False,
    data: terminal.Root = Path("data"),
    as_json: terminal.AsJson = False,
) -> None:
    """Example: corpusmill run healing_text_v1 --partition valid --workers 2"""
    wait_s, remote = math.inf if wait else 0, remote_launcher_factory(os.environ)
    settings = Run.from_settings(data, os.environ, replace=replace, wait_s=wait_s, remote_launcher=remote)
    path = recipe_path(recipe, data)
    build_recipe(SYSTEMS.read_recipe(path, data), path, settings, partition=partition, strict=strict, as_json=as_json)


def build_recipe(
    wanted: Recipe,
    path: Path,
    settings: Run,
    *,
    partition: str | None = None,
    kinds: Collection[str] | None = None,
    strict: bool = False,
    as_json: bool = False,
    lines: Lines | None = None,
) -> None:
    """Builds what is missing of a recipe, and says what is there then, a line an artifact.

    Args:
        path: of its file.
        kinds: only artifacts of these; None for all.
        lines: what is said of each artifact when it is there, in place of a line of each in the end; the recipe is of
            options then, and errors name these, not the keys of its file.
    Raises:
        UsageError: there is no such partition.
        InputError: which artifacts failed.
        typer.Exit: with 1, if a check warned and it is `strict`.
    """
    terminal.print_lines(wanted.warnings(), err=True)
    targets, data = wanted.targets(), settings.root
    partitions = dict.fromkeys(target.partition for target in targets if target.partition is not None)
    if partition not in (None, *partitions):
        raise UsageError(f"there is no partition {partition!r}", wanted.name, f"give one of {', '.join(partitions)}")
    asked = [
        target
        for target in targets
        if (partition is None or target.partition in (None, partition)) and (kinds is None or target.kind.name in kinds)
    ]
    with warning_last(asked, data, strict):
        if lines is not None:
            _build(wanted, asked, path, settings, lines)
            return
        with terminal.naming(path):
            is_there = all(target.is_up_to_date(data) for target in asked)
            built = set() if is_there else _build(wanted, asked, path, settings)
        rows = [_row(target, built, data) for target in asked]
        terminal.answer(as_json, rows, map(_row_line, rows))


def _build(recipe: Recipe, asked: Sequence[Target], path: Path, settings: Run, lines: Lines | None = None) -> set[str]:
    """Build what is missing, print what its checks found, and return the roles of what was built."""
    terminal.log_to_stderr()
    built: set[str] = set()
    failures: dict[str, InputError] = {}
    recipe.check_local_files(settings.root)
    for outcome in run_targets(asked, settings, keep_going=True):
        target = outcome.target
        if outcome.failure is not None:
            outcome.failure.name_keys(None if lines else path)
            failures[target.role] = outcome.failure
            terminal.print_lines([f"FAILED {target.role}: {outcome.failure}"], err=True)
        elif not outcome.was_current:
            built.add(target.role)
        if lines is not None and outcome.manifest is not None:
            terminal.print_lines(lines(open_artifact(settings.root / target.folder)))
        told = outcome.checks if os.environ.get(terminal.VERBOSE) else [one for one in outcome.checks if not one.passed]
        terminal.print_lines((_check_line(target, check) for check in told), err=True)
    if failures:
        what = f"{len(failures)} of {len(asked)} artifacts failed: {', '.join(failures)}"
        is_usage = all(isinstance(error, UsageError) for error in failures.values())
        fix = "the lines that begin with FAILED say why; what isn't made from them is built"
        raise (UsageError if is_usage else InputError)(what, path, fix)
    return built


def _row(target: Target, built: Collection[str], root: Path) -> dict[str, Any]:
    manifest, (state, _) = read_manifest(root / target.folder), target.state(root)
    counts = manifest.identity.counts if manifest else {}
    fates = manifest.identity.ledger.fates() if manifest and "ledger" in counts else ()
    return {
        "artifact": target.kind.name,
        "partition": target.partition,
        "state": state,
        "was_built": target.role in built and state == "current",
        "digest": manifest.digest if manifest else None,
        "checks": target.results(root, manifest) if manifest else [],
        "counts": {name: counts[name] for name in ("documents", "tokens") if name in counts},
        "gone": {reason or fate: count for fate, reason, count in fates if count},
        "published": manifest.provenance.get("published") if manifest else None,
        "folder": root / target.folder,
    }


def _row_line(row: Mapping[str, Any]) -> str:
    counts = ", ".join(f"{_number(count)} {name}" for name, count in row["counts"].items())
    gone = ", ".join(f"{count:,} {reason}" for reason, count in row["gone"].items())
    counts += f"; other rows: {gone}" if gone else ""
    counts += f"{row['published']['url']} at {row['published']['commit']}" if row["published"] else ""
    word = "built" if row["was_built"] else row["state"]
    digest = f"  {row['digest'] or 'not built'}" if os.environ.get(terminal.VERBOSE) else ""
    return f"{word:8} {row['folder']}{digest}  {counts}".rstrip()


def _number(count: object) -> str:
    match count:
        case dict():
            return " + ".join(f"{value:,} {name}" for name, value in count.items())
        case int():
            return f"{count:,}"
    return str(count)


def build_targets(targets: Sequence[Target], run: Run, strict: bool = False, lines: Lines = lambda _: ()) -> Artifact:
    """Builds one after the other, upstream first, and says what came of each; the last of them. What checks warned of
    is said in the end.

    Raises:
        InputError: as `drive.build`; or a check holds one back.
        typer.Exit: with 1, if a check warned and it is `strict`.
    """
    with warning_last(targets, run.root, strict):
        for outcome in run_targets(targets, run):
            built = open_artifact(run.root / outcome.target.folder)
            terminal.print_lines(lines(built))
    return built


def _check_line(target: Target, result: CheckResult) -> str:
    return f"check {target.name}: {result.name}: {result.word}: {result.because}"


@contextlib.contextmanager
def warning_last(targets: Sequence[Target], root: Path, strict: bool) -> Iterator[None]:
    """After the block, and after one that failed, what checks warned of: said last, where it is read.

    Raises:
        typer.Exit: with 1, if one did and it is `strict`.
    """
    try:
        yield
    except InputError:
        terminal.print_lines(_warnings(targets, root), err=True)
        raise
    warnings = list(_warnings(targets, root))
    terminal.print_lines(warnings, err=True)
    if warnings and strict:
        raise typer.Exit(1)


def _warnings(targets: Iterable[Target], root: Path) -> Iterator[str]:
    for target in targets:
        with contextlib.suppress(InputError):  # of a damaged one there is more to say
            if (manifest := read_manifest(root / target.folder)) is not None:
                warned = (one for one in target.results(root, manifest) if not (one.passed or one.is_blocking_failure))
                yield from (_check_line(target, one) for one in warned)
