"""Kinds of artifacts: which stage makes one, how, where it lies, and what is asked of it then."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline_assets.build.checks import FILES, Check
from pipeline_assets.build.run import Run
from pipeline_assets.build.target import ExternalInputs, Target
from pipeline_assets.corpus.readers.listing import Inputs, Listing, Planned, input_figures
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
"""Seals the artifact that a target describes, below the run's data root, where its upstream lies; one that is there as
asked is not touched.
"""


@dataclass(frozen=True)
class Job:
    """One artifact that is being built: what its files are written into, and what they are made from."""

    staging: StagingDir
    target: Target
    run: Run

    @property
    def recipe(self) -> Mapping[str, Any]:
        """The part of the recipe that its bytes depend on."""
        return self.target.recipe

    @property
    def upstream(self) -> list[Artifact]:
        """What it is made from, sealed."""
        return [open_artifact(self.run.root / one.folder) for one in self.target.upstream]

    def upstream_by_name(self, *kinds: "Kind") -> dict[str, Artifact]:
        """What it is made from, of these kinds or of all, by its partition; by its name where it has none."""
        names = {kind.name for kind in kinds}
        opened = zip(self.target.upstream, self.upstream, strict=True)
        return {one.partition or one.name: artifact for one, artifact in opened if not names or one.kind.name in names}


Rows = list[dict[str, str]]


@dataclass(frozen=True)
class Kind:
    """One kind of artifact: the only place where it is described.

    Attributes:
        name: `system/artifact`.
        stage: the rule that makes it, at the version that this program has.
        build: makes one from its target alone, so that a target read from a manifest will do.
        description: what it is, for people: one line, then more.
        formats: of its files, as the UI marks it.
        external_inputs: Local files outside the data root that a sealed artifact was built from; None if it has none.
        labels: names of its files that are no content: they carry a time or a path.
        checks: what is asked of every one. The first is whether its files are as sealed: else nothing more is asked.
        rows: what tracing, peeking, comparing and proving ask of its rows; None where it has none.
        preview: what a person would want to see of it first; by default, where it has rows, the first of them.
        after_build: writes what lies beside every one.
        listing: the files outside of the data root that one is made from, known before it is built; None where it is
            made of other artifacts alone.
        tokens: how many a recipe asks of one; None where it is all there is.
        pool: of Dagster, in which its steps wait for each other; those that ask a hub wait in `hub`.
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
    listing: Callable[[Target, Run], Listing] | None = None
    tokens: Callable[[Mapping[str, Any]], Planned | None] = lambda recipe: None
    pool: str = "cpu"

    @property
    def step(self) -> str:
        """Its name within its system."""
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
        """What a recipe of this name asks of this kind, by the part of the recipe that the bytes depend on, and more
        attributes of a target. By default its folder is `system/recipe/artifact/partition`, below the data root.
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
        """What the checks say of a sealed artifact. All of it is kept beside the artifact at once: what a crash comes
        before is asked again. Raises OSError: it can't be kept.
        """
        try:
            artifact = open_artifact(root / target.folder)
        except InputError as damaged:
            return [CheckResult(FILES.name, False, FILES.is_blocking, str(damaged))]
        said: list[CheckResult] = []
        for one in self.checks:
            if said and not said[0].passed:
                break
            try:
                verdict = one.evaluate(artifact, target, root)
            except InputError as error:  # what can't be read fails its check rather than the run
                verdict = Verdict(False, str(error))
            said.append(CheckResult.from_verdict(one.name, one.is_blocking, verdict))
        write_check_results(artifact.folder, artifact.manifest.digest, said)
        return said


Kinds = Mapping[str, Kind]
"""Kinds by name, to look up the one that a manifest names."""


def unknown_kind(name: str, stage: StageVersion) -> Kind:
    """Return a kind that this program cannot build, for an artifact that is read from its manifest."""

    def build(target: Target, run: Run) -> Artifact:
        raise LookupError(f"this program has no kind {name}")

    return Kind(name, stage, build, "An artifact of a kind that this program does not know.")


def file_builder(make: Callable[[Job], BuildResult]) -> Build:
    """Builds artifacts that hold files: `make` writes them into the building folder."""

    def build(target: Target, run: Run) -> Artifact:
        named = run.with_label(target.partition)

        def write(building: StagingDir) -> BuildResult:
            taken = (
                None if run.previous_recipe is None else _reuse_earlier(building, target, run.root, run.previous_recipe)
            )
            return add_plan(make(Job(building, target, named)), target) if taken is None else taken

        return target.build(run.root, write, run.replace, run.provenance())

    return build


def _reuse_earlier(building: StagingDir, target: Target, root: Path, earlier: "Recipe") -> BuildResult | None:
    """The files of an artifact that an earlier recipe made, linked, if it is what is asked; else None."""
    try:
        artifact = open_artifact(root / earlier.target(target.kind.name, target.partition).folder)
    except (LookupError, InputError):
        return None
    if target.staleness_reason(root, artifact.manifest) is not None:
        return None
    linked = link_content(building, artifact)
    return replace(linked, provenance={**artifact.manifest.provenance, **linked.provenance})


def input_builder(describe: Callable[[Target, Run], BuildResult]) -> Build:
    """Builds artifacts whose content is files from elsewhere, or artifacts in their folder: only a manifest is written.
    Work on it may take long, so what is there as asked isn't described again.
    """

    def build(target: Target, run: Run) -> Artifact:
        if target.matches_recipe(run.root):
            return open_artifact(run.root / target.folder)
        stopwatch = Stopwatch()
        with verify_reads():
            content = add_plan(describe(target, run.with_label(target.partition)), target)
        replace = run.replace or not _has_downstream(run.root / target.folder, run.root)
        return target.seal_manifest(run.root, content, run.provenance(), stopwatch, replace)

    return build


def _has_downstream(folder: Path, root: Path) -> bool:
    """Whether something was made of what is sealed there; what a failed command listed gives way unasked."""
    try:
        sealed = read_manifest(folder)
    except InputError:
        return True
    return sealed is not None and bool(Lineage(root).downstream(sealed.digest))


def add_plan(content: BuildResult, target: Target) -> BuildResult:
    """Content with what a plan would have said of it, for its provenance."""
    planned = {name: vars(one) for name, one in planned_figures(target, content.external_inputs).items()}
    told = {**content.provenance, "planned": planned | content.provenance.get("planned", {})}
    return replace(content, provenance=told)


def planned_figures(target: Target, listed: Inputs) -> dict[str, Planned]:
    """Figures that are known before a build, by the listed files that an artifact is made from and by its recipe."""
    read, tokens = input_figures(() if target.upstream else listed), target.kind.tokens(target.recipe)
    figures = {name: Planned(count, "the listing and footers") for name, count in read.items()}
    return figures if tokens is None else figures | {"tokens": tokens}
