"""Functions that convert the build code of a kind to its `Kind.build`."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pipeline_assets.build.build_target import build_target, seal_manifest
from pipeline_assets.build.earlier_versions import link_earlier_files, open_kept_work
from pipeline_assets.build.run import Run
from pipeline_assets.build.target import Build, Kind, Target
from pipeline_assets.corpus.removals import NO_REMOVALS, REMOVALS_KEY, Removals
from pipeline_assets.spine.artifact import Artifact, open_artifact
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.staging import StagingDir


@dataclass(frozen=True)
class Job:
    """Build of one artifact: its staging directory, target, run and removal list."""

    staging: StagingDir
    target: Target
    run: Run
    removals: Removals = NO_REMOVALS

    @property
    def recipe(self) -> Mapping[str, Any]:
        return self.target.recipe

    @property
    def upstream(self) -> list[Artifact]:
        """Opened input artifacts, in the order of `target.upstream`."""
        return [open_artifact(self.run.root / upstream.folder) for upstream in self.target.upstream]

    def upstream_by_name(self, *kinds: Kind) -> dict[str, Artifact]:
        """Return the opened input artifacts by partition or, without one, by name.

        If `kinds` are given, only inputs of these kinds are returned.
        """
        names = {kind.name for kind in kinds}
        opened = zip(self.target.upstream, self.upstream, strict=True)
        chosen = [(target, artifact) for target, artifact in opened if not names or target.kind.name in names]
        return {target.partition or target.name: artifact for target, artifact in chosen}


def file_builder(build_files: Callable[[Job], BuildResult]) -> Build:
    """Return a `Kind.build` that builds files, or links them from an earlier artifact."""

    def build(target: Target, run: Run) -> Artifact:
        labelled = run.for_artifact(target.partition, target.is_intermediate)

        def write(staging: StagingDir) -> BuildResult:
            find = run.find_previous_folder
            if find is not None and (reused := link_earlier_files(staging, target, run.root, find)) is not None:
                return reused
            kept = open_kept_work(target, run) if run.keep_work else None
            removals = run.removal_list() if target.kind.applies_removals else NO_REMOVALS
            settings = replace(labelled.settings, kept_work=kept)
            result = build_files(Job(staging, target, replace(labelled, settings=settings), removals))
            if removals.entries:
                result = replace(result, provenance={**result.provenance, REMOVALS_KEY: removals.positions[-1]})
            if kept is not None:
                kept.write(staging)
            return add_plan(result, target)

        return build_target(target, run.root, write, run.replace, labelled.provenance())

    return functools.update_wrapper(build, build_files)


def input_builder(describe_inputs: Callable[[Target, Run], BuildResult]) -> Build:
    """Return a `Kind.build` that seals a manifest with a list of inputs, but no files."""

    def build(target: Target, run: Run) -> Artifact:
        def list_inputs() -> BuildResult:
            return add_plan(describe_inputs(target, run.for_artifact(target.partition)), target)

        return seal_manifest(target, run.root, list_inputs, run.replace, run.provenance())

    return functools.update_wrapper(build, describe_inputs)


def add_plan(result: BuildResult, target: Target) -> BuildResult:
    """Return `result` with the target's planned figures added to its provenance."""
    figures = target.kind.planner.figures(target, result.external_inputs)
    planned = {name: vars(figure) for name, figure in figures.items()}
    provenance = {**result.provenance, "planned": planned | result.provenance.get("planned", {})}
    return replace(result, provenance=provenance)
