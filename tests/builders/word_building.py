"""Builds of `word_artifact` by hand, sealed on request and with any plan."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from word_artifact import ENGLISH, write_words

from pipeline_assets.spine.artifact import Artifact, Damage, verify
from pipeline_assets.spine.engine import RunSettings, run_stage
from pipeline_assets.spine.manifest import Identity, Manifest, StageVersion
from pipeline_assets.spine.opening import open_staging_dir
from pipeline_assets.spine.sealed_folder import require_manifest
from pipeline_assets.spine.stage import WHOLE_SHARD
from pipeline_assets.spine.staging import OutputFile, Receipt, StagingDir

PLAN = {"recipe": {"language": "english"}}


def write_shard(building: StagingDir, position: int) -> Receipt:
    """Write and commit one shard of the English words."""
    shard = ENGLISH[position]
    receipt = write_words(shard, WHOLE_SHARD, building)
    building.commit("write", shard.name, receipt)
    return receipt


def seal(building: StagingDir, files: list[OutputFile], recipe: Mapping[str, Any] = PLAN["recipe"]) -> Artifact:
    identity = Identity(StageVersion("words", 1), recipe, [], None, {}, {}, [file.content for file in files])
    return building.seal(Manifest("words/parts", "words", identity, [file.stored for file in files], {}))


def build(target: Path, plan: Mapping[str, Any] = PLAN) -> Artifact:
    """Build the English words under any plan."""
    with open_staging_dir(target, plan) as building:
        receipts = list(run_stage("write", write_words, ENGLISH, building, RunSettings()))
        return seal(building, [receipt.files[0] for receipt in receipts], plan)


def files_in(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def list_siblings(target: Path) -> list[str]:
    return sorted(path.name for path in target.parent.iterdir())


def is_whole(folder: Path) -> bool:
    return not any(isinstance(item, Damage) for item in verify(Artifact(folder, require_manifest(folder))))
