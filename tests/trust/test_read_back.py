"""Rebuild plans from manifests, and manifests that this program cannot rebuild."""

import dataclasses
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from forgery import reseal
from healing_set import HealingSet
from refusals import refusal

from pipeline_assets.build.builders import Job, file_builder
from pipeline_assets.build.checks import FILES_CHECK
from pipeline_assets.build.run import Run
from pipeline_assets.build.systems import unknown_kind
from pipeline_assets.build.target import Kind, Target
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.durable import write_durably
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.spine.manifest import StageVersion
from pipeline_assets.spine.staging import OutputFile
from pipeline_assets.systems.registry import SYSTEMS
from pipeline_assets.trust.rebuild import RebuildPlan, rebuild

MEMBERS = ["megatron_dataset/train", "megatron_dataset/valid", "megatron_dataset"]


def plan(built: HealingSet, name: str, with_upstream: bool = False) -> RebuildPlan:
    return RebuildPlan(built.folder(name), built.root, SYSTEMS.kinds, with_upstream)


@pytest.mark.parametrize(
    ("name", "with_upstream", "steps"),
    [
        ("snapshot", False, ["fineweb_edu_snapshot"]),
        ("selection", False, ["healing_text_manifest"]),
        ("train", False, ["megatron_split"]),
        ("dataset", False, MEMBERS),
        ("dataset", True, ["fineweb_edu_snapshot", "healing_text_manifest", *MEMBERS]),
    ],
)
def test_a_plan_has_an_artifact_and_its_members_or_all_upstream_once(
    built: HealingSet, name: str, with_upstream: bool, steps: list[str]
) -> None:
    assert [str(step.target.folder) for step in plan(built, name, with_upstream).steps] == steps


def test_an_artifact_outside_the_data_root_is_rebuilt_from_inputs_inside(built: HealingSet, tmp_path: Path) -> None:
    shutil.copytree(built.folder("dataset"), tmp_path / "moved")

    chain = RebuildPlan(tmp_path / "moved", built.root, SYSTEMS.kinds, with_upstream=False)

    folders = [tmp_path / "moved" / name for name in ("train", "valid", "")]
    assert [step.sealed_folder for step in chain.steps] == folders
    assert rebuild(tmp_path / "moved", built.run, SYSTEMS.kinds).is_identical


def test_an_artifact_of_another_stage_version_is_refused_with_its_program(built: HealingSet) -> None:
    manifest = built.manifest("train")
    provenance = {"git_sha": "ab" * 20, "python": "3.11.2", "libraries": {"numpy": "1.26.0"}}
    older = dataclasses.replace(manifest, provenance=provenance)
    reseal(built.folder("train"), older, stage=StageVersion("megatron_split", 0))

    assert refusal(lambda: plan(built, "train"), UsageError) == (
        f"{built.folder('train')}: pages_v1/train was built by megatron_split version 0, this program has "
        f"megatron_split version 1; use the version that built it: program {'ab' * 20}, python 3.11.2, numpy 1.26.0"
    )


def test_upstream_versions_are_checked_before_a_rebuild(built: HealingSet) -> None:
    manifest = built.manifest("snapshot")
    reseal(built.folder("snapshot"), manifest, stage=StageVersion("snapshot", 7))
    for name, target in zip(("selection", "train"), built.recipe.targets()[1:], strict=False):
        target.kind.build(target, built.run)
        assert plan(built, name).steps

    with pytest.raises(UsageError, match="was built by snapshot version 7, this program has snapshot version 3"):
        plan(built, "train", with_upstream=True)


def test_an_unknown_kind_is_refused(built: HealingSet) -> None:
    manifest = dataclasses.replace(built.manifest("valid"), kind="weather/forecast", provenance={})
    reseal(built.folder("valid"), manifest)

    assert refusal(lambda: plan(built, "valid"), UsageError) == (
        f"{built.folder('valid')}: pages_v1/valid is a weather/forecast, which this program cannot build; "
        "use the version that built it: its manifest names none"
    )


def test_a_missing_input_is_named(built: HealingSet) -> None:
    digest = built.manifest("snapshot").digest
    (built.root / "manifests").mkdir()
    copy = shutil.copyfile(built.folder("snapshot") / "manifest.json", built.root / "manifests" / "snapshot.json")
    shutil.rmtree(built.folder("snapshot"))
    missing_input = f"input healing/fineweb_edu_snapshot {digest}"

    def refused_line(with_upstream: bool) -> str:
        return refusal(lambda: rebuild(built.folder("train"), built.run, SYSTEMS.kinds, with_upstream))

    with_copy = refused_line(with_upstream=False)
    copy.unlink()

    assert with_copy == (
        f"{built.folder('train')}: the {missing_input} is not sealed below {built.root}; "
        "use the data root that contains it, with --data or --out-dir, or build it again too with --upstream"
    )
    assert refused_line(with_upstream=False) == with_copy.removesuffix(", or build it again too with --upstream")
    assert refused_line(with_upstream=True) == (
        f"{built.root}: no manifest found below "
        "corpora, selections, megatron, stage_a, nemotron, stage2, parallel_text or manifests "
        f"for the {missing_input}; "
        "use the data root that contains it, with --data or --out-dir"
    )


def test_artifacts_of_one_kind_are_rebuilt_in_separate_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Build three artifacts in a row, each with the upstream lines and one more."""

    def build_words(job: Job) -> BuildResult:
        lines = b"".join(artifact.path("words.txt").read_bytes() for artifact in job.upstream)
        data = lines + f"{job.recipe['word']}\n".encode()
        sha256 = write_durably(job.staging.path("words.txt"), data)
        rows = data.count(b"\n")
        return BuildResult([OutputFile("words.txt", rows, len(data), sha256, sha256)], {"words": rows}, {})

    stage, run = StageVersion("words", 1), Run(tmp_path, RunSettings())
    page = SimpleNamespace(KINDS=(Kind("words/said", stage, file_builder(build_words), "Words.", (FILES_CHECK,)),))
    monkeypatch.setitem(sys.modules, "words_page", page)
    monkeypatch.setitem(SYSTEMS.pages, "words", "words_page")
    targets: list[Target] = []
    for word in ("one", "two", "three"):
        upstream = tuple(targets[-1:])
        targets.append(Target(unknown_kind("words/said", stage), word, Path("corpora", word), {"word": word}, upstream))
        SYSTEMS.kinds["words/said"].build(targets[-1], run)

    chain = rebuild(tmp_path / "corpora/three", run, SYSTEMS.kinds, with_upstream=True)
    shutil.rmtree(tmp_path / "corpora/one")
    alone = rebuild(tmp_path / "corpora/three", run, SYSTEMS.kinds)

    assert [outcome.step.manifest.name for outcome in chain.outcomes] == ["one", "two", "three"]
    assert chain.is_identical
    assert len({outcome.step.target.folder for outcome in chain.outcomes}) == 3
    assert alone.is_identical, "earlier upstream artifacts may be missing"
