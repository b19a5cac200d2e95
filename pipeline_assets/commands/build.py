"""The command `run`, with the code that all building commands share."""

import contextlib
import functools
import math
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar

import typer

from pipeline_assets.build.join import join_targets
from pipeline_assets.build.recipe import Recipe, upstream_first
from pipeline_assets.build.recipe_paths import recipe_path
from pipeline_assets.build.recipe_writing import write_new_recipe
from pipeline_assets.build.run import Run
from pipeline_assets.build.run_targets import restore_manifest_copies, run_targets
from pipeline_assets.build.run_warnings import check_result_line, warning_lines
from pipeline_assets.build.target import Target
from pipeline_assets.commands import terminal
from pipeline_assets.commands.next_steps import next_steps
from pipeline_assets.commands.options import SetsKeys
from pipeline_assets.commands.settings import misspelled_settings
from pipeline_assets.spine.artifact import Artifact, open_artifact, read_manifest
from pipeline_assets.spine.errors import InputError, UsageError
from pipeline_assets.spine.json_log import is_json_log
from pipeline_assets.spine.manifest import MANIFEST_FILE
from pipeline_assets.spine.plural import pluralize
from pipeline_assets.spine.sealed_folder import find_artifact_above
from pipeline_assets.systems.registry import SYSTEMS
from resources.launchers import remote_launcher_factory

OutDir = Annotated[
    Path,
    typer.Option("--data", "--out-dir", envvar="CORPUSMILL_DATA", show_envvar=False, help="Data root for the output."),
    SetsKeys("name"),
]
Strict = Annotated[bool, typer.Option("--strict", help="Exit with 1 if there are warnings.")]
# Run settings of commands whose options name the inputs, unless an option or the environment sets them.
_DEFAULT_SETTINGS = {"CORPUSMILL_WORKERS": str(min(16, os.cpu_count() or 1)), "CORPUSMILL_LOG_EVERY": "300"}
_GROUPS_BY_SYSTEM = {"stage_a": "stage-a", "parallel_text": "parallel"}  # groups of commands
ArtifactFormatter = Callable[[Artifact], Iterable[str]]
RecipeT = TypeVar("RecipeT", bound=Recipe)


@dataclass(frozen=True)
class BuildFlags:
    """Options shared by commands that build artifacts."""

    replace: Annotated[bool, typer.Option("--replace", help="Replace artifacts that other settings built.")] = False
    strict: Strict = False

    def start_run(self, root: Path) -> Run:
        """Return run settings from options and environment; start logging to stderr."""
        variables = _DEFAULT_SETTINGS | {name: value for name, value in os.environ.items() if value}
        remote = remote_launcher_factory(variables)
        run = Run.from_settings(root, variables, replace=self.replace, remote_launcher=remote)
        terminal.log_to_stderr()
        return run


@dataclass(frozen=True)
class BuildOptions(BuildFlags):
    """Options of commands that build artifacts in a data root."""

    out_dir: OutDir = Path("data")

    def with_absolute_root(self) -> Self:
        """Return the options with the data root made absolute by `resolve_data_root`."""
        return replace(self, out_dir=resolve_data_root(self.out_dir, "--out-dir"))

    @functools.cached_property
    def run(self) -> Run:
        resolve_data_root(self.out_dir, "--out-dir")  # raises for a root that cannot be one
        return self.start_run(self.out_dir)

    def write_recipe(self, recipe_class: type[RecipeT], content: Mapping[str, Any]) -> tuple[RecipeT, Path]:
        """Write a recipe to the data root; print its path, and return recipe and path."""
        group = _GROUPS_BY_SYSTEM.get(content["system"], content["system"])
        recipe, path = write_new_recipe(recipe_class, content, self.out_dir, group, self.replace)
        terminal.print_lines([f"recipe {path}"], err=True)
        return recipe, path

    def build_recipe(
        self, recipe_class: type[Recipe], content: Mapping[str, Any], format_lines: ArtifactFormatter | None = None
    ) -> None:
        """Write a recipe with this content to the data root, and build its artifacts."""
        recipe, path = self.write_recipe(recipe_class, content)
        build_recipe(recipe, path, self.run, strict=self.strict, format_lines=format_lines)

    def build_targets(self, targets: Iterable[Target], format_lines: ArtifactFormatter = lambda _: ()) -> Artifact:
        """Build targets, inputs first; print lines per artifact; return the last artifact."""
        return build_targets(upstream_first(targets), self.run, self.strict, format_lines)


def resolve_output_folder(out_dir: Path) -> Path:
    """Return a folder's absolute path; UsageError if it is a file or in an artifact."""
    folder = out_dir.absolute()
    if folder.is_file():
        raise UsageError("expected a folder, got a file", folder, "choose another folder, or move the file away")
    if (artifact := find_artifact_above(folder)) is not None:
        fix = "choose another output folder"
        raise UsageError(f"the folder is inside the sealed artifact {artifact}", out_dir, fix)
    return folder


def resolve_data_root(root: Path, option: str) -> Path:
    """Return a data root's absolute path; UsageError for a file or an artifact."""
    folder = resolve_output_folder(root)
    if (folder / MANIFEST_FILE).is_file():
        raise UsageError("expected a data root, got an artifact", root, f"set {option} to another folder")
    return folder


def run(
    recipe: terminal.RecipeName,
    partition: Annotated[str | None, typer.Option(help="Build only this partition, such as train.")] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace stale and damaged artifacts.")] = False,
    strict: Strict = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for another process's build of an artifact.")] = False,
    join: Annotated[bool, typer.Option("--join", help="Share the artifacts with other runs, on any machine.")] = False,
    data: terminal.Root = Path("data"),
    as_json: terminal.AsJson = False,
) -> None:
    """Build a recipe. Each run ends with the warnings of all checks.

    Example: corpusmill run healing_text_v1 --partition valid --workers 2
    """
    resolve_data_root(data, "--data")  # raises for an artifact
    wait_s, remote = math.inf if wait else 0, remote_launcher_factory(os.environ)
    settings = Run.from_settings(data, os.environ, replace=replace, wait_s=wait_s, remote_launcher=remote)
    path = recipe_path(recipe, data)
    parsed = SYSTEMS.read_recipe(path, data)
    build_recipe(parsed, path, settings, partition=partition, strict=strict, as_json=as_json, join=join)


def build_recipe(
    recipe: Recipe,
    path: Path,
    run: Run,
    *,
    partition: str | None = None,
    kinds: Collection[str] | None = None,
    strict: bool = False,
    as_json: bool = False,
    format_lines: ArtifactFormatter | None = None,
    join: bool = False,
) -> None:
    """Build the artifacts of a recipe, and print one or more lines on each.

    `path` is the recipe's file. `partition` selects the artifacts that have this partition or no partition; `kinds`
    selects artifacts by the names of their kinds.

    Without `format_lines`, one line per artifact is printed at the end. With `format_lines`, an artifact's lines are
    printed as soon as it is up to date; `as_json` and `join` have no effect, and errors name options instead of recipe
    keys. With `strict`, warnings end the command with status 1. With `join`, other processes may build some artifacts
    (see `join_targets`). Raise UsageError if no artifact has the partition.
    """
    terminal.print_lines([*misspelled_settings(os.environ), *recipe.warnings()], err=True)
    targets, data = recipe.targets(), run.root
    partitions = dict.fromkeys(target.partition for target in targets if target.partition is not None)
    if partition not in (None, *partitions):
        raise UsageError(f"no partition {partition!r}", recipe.name, f"choose one of {', '.join(partitions)}")
    requested = [
        target
        for target in targets
        if (partition is None or target.partition in (None, partition)) and (kinds is None or target.kind.name in kinds)
    ]
    with print_warnings_last(requested, data, strict):
        if format_lines is not None:
            _build(recipe, requested, path, run, format_lines, join=False)
            return
        with terminal.explain_recipe_keys(path):
            earlier = {target.role: digest for target in requested if (digest := target.up_to_date_digest(data))}
            is_done = len(earlier) == len(requested)
            built = set() if is_done else _build(recipe, requested, path, run, None, join)
        for target in requested if is_done else ():
            restore_manifest_copies(target, data)
        current = {role: ("current", digest) for role, digest in earlier.items()}
        states = current if is_done else {target.role: target.state(data) for target in requested}
        changed = {role for role, state in states.items() if state != ("current", earlier.get(role))}
        joined = changed - built if join else set()
        rows = [_artifact_row(target, states[target.role][0], built, joined, data) for target in requested]
        terminal.print_answer(as_json, rows, map(_format_row, rows))
        if not as_json and not is_json_log():
            terminal.print_lines(next_steps(requested, data), err=True)
        if join:
            counts = f"this process built {len(built):,}, other processes {len(joined):,}"
            total, existed = pluralize(len(requested), "artifact"), len(requested) - len(built) - len(joined)
            terminal.print_lines([f"{total}: {counts}, and {existed:,} existed before"], err=True)


def _build(
    recipe: Recipe, targets: Sequence[Target], path: Path, run: Run, format_lines: ArtifactFormatter | None, join: bool
) -> set[str]:
    """Build artifacts; return the roles of the artifacts that this process built."""
    from pipeline_assets.systems.early_checks import check_before_build  # loads what `--help` does not need

    terminal.log_to_stderr()
    built: set[str] = set()
    failures: dict[str, InputError] = {}
    check_before_build(recipe, targets, run)
    outcomes = join_targets(targets, run) if join else run_targets(targets, run, keep_going=True)
    for outcome in outcomes:
        target = outcome.target
        if outcome.failure is not None:
            if format_lines is None:
                outcome.failure.name_keys(path)
            failures[target.role] = outcome.failure
            terminal.print_lines([f"FAILED {target.role}: {outcome.failure}"], err=True)
        elif not outcome.was_current:
            built.add(target.role)
        if format_lines is not None and outcome.manifest is not None:
            terminal.print_lines(format_lines(open_artifact(run.root / target.folder)))
        checks = [check for check in outcome.checks if not check.passed or os.environ.get(terminal.VERBOSE_VARIABLE)]
        terminal.print_lines((check_result_line(target, check) for check in checks), err=True)
    if failures:
        what = f"{len(failures)} of {len(targets)} artifacts failed: {', '.join(failures)}"
        is_usage = all(isinstance(error, UsageError) for error in failures.values())
        fix = "lines that start with FAILED give the reasons; artifacts that do not depend on these are built"
        raise (UsageError if is_usage else InputError)(what, path, fix)
    return built


def _artifact_row(
    target: Target, state: str, built_roles: Collection[str], joined_roles: Collection[str], root: Path
) -> dict[str, Any]:
    manifest = read_manifest(root / target.folder)
    counts = manifest.identity.counts if manifest else {}
    fates = manifest.identity.ledger.other_outcomes() if manifest and "ledger" in counts else ()
    return {
        "artifact": target.kind.name,
        "partition": target.partition,
        "state": state,
        "was_built": target.role in built_roles and state == "current",
        "was_built_by_others": target.role in joined_roles and state == "current",
        "digest": manifest.digest if manifest else None,
        "checks": target.check_results(root, manifest) if manifest else [],
        "counts": {name: counts[name] for name in ("documents", "tokens") if name in counts},
        "gone": {reason or fate: count for fate, reason, count in fates if count},
        "published": manifest.provenance.get("published") if manifest else None,
        "folder": root / target.folder,
    }


def _format_row(row: Mapping[str, Any]) -> str:
    named_counts = ((name[: -1 if count == 1 else None], count) for name, count in row["counts"].items())
    counts = ", ".join(f"{_format_count(count)} {name}" for name, count in named_counts)
    lost_rows = ", ".join(f"{count:,} {reason}" for reason, count in row["gone"].items())
    published = f"{row['published']['url']} at {row['published']['commit']}" if row["published"] else ""
    counts = "; ".join(filter(None, (counts, lost_rows and f"other rows: {lost_rows}", published)))
    state = "built" if row["was_built"] else "others" if row["was_built_by_others"] else row["state"]
    digest = f"  {row['digest'] or 'not built'}" if os.environ.get(terminal.VERBOSE_VARIABLE) else ""
    return f"{state:8} {row['folder']}{digest}  {counts}".rstrip()


def _format_count(count: object) -> str:
    if isinstance(count, dict):
        return " + ".join(f"{value:,} {name}" for name, value in count.items())
    return f"{count:,}" if isinstance(count, int) else str(count)


def build_targets(
    targets: Sequence[Target], run: Run, strict: bool = False, format_lines: ArtifactFormatter = lambda _: ()
) -> Artifact:
    """Build targets in order; print lines, then warnings; return the last artifact."""
    with print_warnings_last(targets, run.root, strict):
        for outcome in run_targets(targets, run):
            built = open_artifact(run.root / outcome.target.folder)
            terminal.print_lines(format_lines(built))
    return built


@contextlib.contextmanager
def print_warnings_last(targets: Sequence[Target], root: Path, strict: bool) -> Iterator[None]:
    """Print warnings about artifacts after the block, even after an InputError.

    The warnings are about checks, unread files and repeated ids. If `strict` is set, a warning ends the command with
    status 1.
    """
    try:
        yield
    except InputError:
        terminal.print_lines(warning_lines(targets, root), err=True)
        raise
    warnings = list(warning_lines(targets, root))
    terminal.print_lines(warnings, err=True)
    if warnings and strict:
        raise typer.Exit(1)
