"""Kinds of artifacts: their stages, builds, checks and rows."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline_assets.build.checks import FILES, Check
from pipeline_assets.build.run import Run
from pipeline_assets.build.target import ExternalInputs, Target
from pipeline_assets.corpus.readers.listing import Forecast, Inputs, Listing, input_figures
from pipeline_assets.spine.artifact import (
    Artifact,
    CheckResult,
    Verdict,
    open_artifact,
    read_manifest,
    write_check_results,
)
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.lineage import Lineage
from pipeline_assets.spine.manifest import Manifest, StageVersion
from pipeline_assets.spine.provenance import Stopwatch
from pipeline_assets.spine.reuse import link_content
from pipeline_assets.spine.staging import StagingDir
from pipeline_assets.spine.verified_reads import verify_reads

if TYPE_CHECKING:
    from pipeline_assets.build.recipe import Recipe
    from pipeline_assets.build.rows.store import RowStore  # which loads NumPy and Arrow

Build = Callable[[Target, Run], Artifact]
"""Builds the artifact of a target in the data root of a run, unless it matches its recipe."""


@dataclass(frozen=True)
class Job:
    """Build of one artifact: its staging directory, target and run."""

    staging: StagingDir
    target: Target
    run: Run

    @property
    def recipe(self) -> Mapping[str, Any]:
        return self.target.recipe

    @property
    def upstream(self) -> list[Artifact]:
        """Opened input artifacts, in the order of `target.upstream`."""
        return [open_artifact(self.run.root / upstream.folder) for upstream in self.target.upstream]

    def upstream_by_name(self, *kinds: "Kind") -> dict[str, Artifact]:
        """Open inputs of `kinds` (default: all); keys are partitions, or else names."""
        names = {kind.name for kind in kinds}
        opened = zip(self.target.upstream, self.upstream, strict=True)
        chosen = [(target, artifact) for target, artifact in opened if not names or target.kind.name in names]
        return {target.partition or target.name: artifact for target, artifact in chosen}


@dataclass(frozen=True)
class Planner:
    """Numbers of a build that are known before it starts.

    Attributes:
        list_files: Lists the external files that a build needs; by default none, as for builds from artifacts.
        plan_tokens: Returns the planned number of tokens of a recipe, or None if the recipe sets no number.
    """

    list_files: Callable[[Target, Run], Listing] = lambda target, run: Listing()
    plan_tokens: Callable[[Mapping[str, Any]], Forecast | None] = lambda recipe: None

    def figures(self, target: Target, listed: Inputs) -> dict[str, Forecast]:
        """Return the known figures, from a target's recipe and its external files."""
        read, tokens = input_figures(() if target.upstream else listed), self.plan_tokens(target.recipe)
        figures = {name: Forecast(count, "the listing and footers") for name, count in read.items()}
        return figures if tokens is None else figures | {"tokens": tokens}


Rows = list[dict[str, str]]


@dataclass(frozen=True)
class Kind:
    """Kind of artifact: its build, its checks and its views.

    Attributes:
        name: `system/artifact`.
        build: Function that builds a target. It needs no recipe, so `rebuild` can pass a target read from a manifest.
        description: Markdown for the UI; the first line is a summary.
        formats: Formats of its files, as shown in the UI.
        external_inputs: Returns the local files outside the data root that a sealed artifact was built from, or None.
        labels: Names of files that no digest covers, because they contain a time or a path.
        checks: Checks of every artifact. The first compares the files; if it fails, the others do not run.
        rows: Class that reads and traces its rows; None if it has no rows.
        preview: Returns the preview table of the UI; if the field is None, the first rows are shown.
        after_build: Writes files outside the artifact, also if the artifact was up to date.
        planner: Plans a build from its recipe and its external files.
        pool: Dagster pool that limits parallel builds; builds that read a hub use `hub` instead.
    """

    name: str
    stage: StageVersion
    build: Build
    description: str
    formats: frozenset[str] = frozenset()
    external_inputs: Callable[[Manifest, Path], ExternalInputs | None] = lambda manifest, root: None
    labels: tuple[str, ...] = ()
    checks: tuple[Check, ...] = (FILES,)
    rows: "type[RowStore] | None" = None
    preview: Callable[[Artifact], Rows] | None = None
    after_build: Callable[[Artifact], object] | None = None
    planner: Planner = Planner()
    pool: str = "cpu"

    @property
    def step(self) -> str:
        """Name without the system."""
        return self.name.partition("/")[2]

    def target(
        self,
        recipe: str,
        content: Mapping[str, Any],
        upstream: Sequence[Target] = (),
        *,
        partition: str | None = None,
        **more: Any,
    ) -> Target:
        """Return the target of this kind in the folder `system/recipe/artifact/partition`.

        `recipe` is the recipe's name; `content` are its values that the bytes depend on; `more` are further attributes
        of the target, which override the defaults.
        """
        system, step = self.name.partition("/")[0], self.step
        parts = [] if partition is None else [partition]
        file = "_".join([recipe, *(part.replace("/", "_") for part in parts), step])
        named: dict[str, Any] = {
            "name": "/".join([recipe, *parts]),
            "export_as": f"{file}.json",
            "partition": partition,
            "folder": Path(system, recipe, step, *parts),
        }
        return Target(kind=self, recipe=content, upstream=tuple(upstream), **named | more)

    def run_checks(self, target: Target, root: Path) -> list[CheckResult]:
        """Run the checks of a sealed artifact, and store their results next to it.

        If the first check fails, the others are skipped. All results are stored in one write, so after a crash all
        checks run again. If the artifact cannot be opened, only that failure is returned, and nothing is stored.
        """
        try:
            artifact = open_artifact(root / target.folder)
        except InputError as damaged:
            return [CheckResult(FILES.name, False, FILES.is_blocking, str(damaged))]
        results: list[CheckResult] = []
        for check in self.checks:
            if results and not results[0].passed:
                break
            try:
                verdict = check.evaluate(artifact, target, root)
            except InputError as error:  # an unreadable file fails the check, not the run
                verdict = Verdict(False, str(error))
            results.append(CheckResult.from_verdict(check.name, check.is_blocking, verdict))
        write_check_results(artifact.folder, artifact.manifest.digest, results)
        return results


Kinds = Mapping[str, Kind]
"""Kinds by the name that manifests contain."""


def unknown_kind(name: str, stage: StageVersion) -> Kind:
    """Return a kind that cannot be built, for a manifest whose kind is unknown."""

    def build(target: Target, run: Run) -> Artifact:
        raise LookupError(f"this program has no kind {name}")

    return Kind(name, stage, build, "An artifact of a kind that this program does not know.")


def file_builder(make: Callable[[Job], BuildResult]) -> Build:
    """Return a `build` that links files of the previous recipe or else calls `make`."""

    def build(target: Target, run: Run) -> Artifact:
        labelled = run.for_partition(target.partition)

        def write(staging: StagingDir) -> BuildResult:
            previous = run.previous_recipe
            reused = None if previous is None else _reuse_earlier(staging, target, run.root, previous)
            return add_plan(make(Job(staging, target, labelled)), target) if reused is None else reused

        return target.build(run.root, write, run.replace, run.provenance())

    return build


def _reuse_earlier(staging: StagingDir, target: Target, root: Path, earlier: "Recipe") -> BuildResult | None:
    """Link the files of an earlier recipe's artifact; None unless it matches `target`."""
    try:
        artifact = open_artifact(root / earlier.target(target.kind.name, target.partition).folder)
    except (LookupError, InputError):
        return None
    if target.staleness_reason(root, artifact.manifest) is not None:
        return None
    linked = link_content(staging, artifact)
    return replace(linked, provenance={**artifact.manifest.provenance, **linked.provenance})


def input_builder(describe: Callable[[Target, Run], BuildResult]) -> Build:
    """Return the `build` of a kind that writes only a manifest of inputs.

    `describe` lists the inputs. It may hash all of them, so it is not called if the sealed artifact matches its recipe.
    """

    def build(target: Target, run: Run) -> Artifact:
        if target.matches_recipe(run.root):
            return open_artifact(run.root / target.folder)
        stopwatch = Stopwatch()
        with verify_reads():
            content = add_plan(describe(target, run.for_partition(target.partition)), target)
        replace = run.replace or not _has_downstream(run.root / target.folder, run.root)
        return target.seal_manifest(run.root, content, run.provenance(), stopwatch, replace)

    return build


def _has_downstream(folder: Path, root: Path) -> bool:
    """Check whether other artifacts were derived from the artifact in a folder.

    Without such artifacts, its manifest can be replaced without `--replace`. If it is unreadable, return True.
    """
    try:
        sealed = read_manifest(folder)
    except InputError:
        return True
    return sealed is not None and bool(Lineage(root).downstream(sealed.digest))


def add_plan(content: BuildResult, target: Target) -> BuildResult:
    """Return a build result with the target's planned figures in its provenance."""
    figures = target.kind.planner.figures(target, content.external_inputs)
    planned = {name: vars(figure) for name, figure in figures.items()}
    provenance = {**content.provenance, "planned": planned | content.provenance.get("planned", {})}
    return replace(content, provenance=provenance)
