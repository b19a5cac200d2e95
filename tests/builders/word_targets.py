"""Targets of `word_artifact` and their builds."""

from collections.abc import Callable
from pathlib import Path

from word_artifact import ENGLISH, target_in, write_words

from pipeline_assets.build.build_target import build_target
from pipeline_assets.build.systems import unknown_kind
from pipeline_assets.build.target import Target
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.manifest import StageVersion
from pipeline_assets.spine.stage import WHOLE_SHARD
from pipeline_assets.spine.staging import StagingDir

COUNT = Target(
    unknown_kind("words/count", StageVersion("count", 1)), "count", Path("count"), {}, upstream=(target_in("english"),)
)
ENGLISH_WORDS = target_in("english")


def nothing(building: StagingDir) -> BuildResult:
    return BuildResult([], {"documents": 0}, {})


def one_file(building: StagingDir) -> BuildResult:
    return BuildResult([write_words(ENGLISH[0], WHOLE_SHARD, building).files[0]], {"documents": 2}, {})


def never(building: StagingDir) -> BuildResult:
    raise AssertionError("the artifact is there: nothing is to be made")


def build(
    target: Target, root: Path, make: Callable[[StagingDir], BuildResult] = nothing, replace: bool = False
) -> Artifact:
    return build_target(target, root, make, replace, {"workers": 1})
