"""A manifest and its inputs' manifests tell how an artifact was made; what this program can't make again is refused."""

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
def test_an_artifact_is_built_from_what_is_sealed_but_for_its_members_or_with_all_upstream_once(
    made: HealingSet, name: str, with_upstream: bool, steps: list[str]
) -> None:
    chain = RebuildPlan(made.folder(name), made.root, SYSTEMS.kinds, with_upstream)

    assert [str(step.target.folder) for step in chain.steps] == steps


def test_an_artifact_outside_of_the_data_root_is_built_from_what_is_in_it(made: HealingSet, tmp_path: Path) -> None:
    shutil.copytree(made.folder("dataset"), tmp_path / "moved")

    chain = RebuildPlan(tmp_path / "moved", made.root, SYSTEMS.kinds, with_upstream=False)

    assert [step.sealed_folder for step in chain.steps] == [
        tmp_path / "moved" / "train",
        tmp_path / "moved" / "valid",
        tmp_path / "moved",
    ]
    assert rebuild(tmp_path / "moved", made.run, SYSTEMS.kinds).is_identical


def test_an_artifact_made_by_another_version_is_refused_with_what_made_it(made: HealingSet) -> None:
    manifest = made.manifest("train")
    provenance = {"git_sha": "ab" * 20, "python": "3.11.2", "libraries": {"numpy": "1.26.0"}}
    older = dataclasses.replace(manifest, provenance=provenance)
    reseal(made.folder("train"), older, stage=StageVersion("megatron_split", 0))

    assert refusal(
        lambda: RebuildPlan(made.folder("train"), made.root, SYSTEMS.kinds, with_upstream=False), UsageError
    ) == (
        f"{made.folder('train')}: pages_v1/train was built by megatron_split version 0, this program has "
        f"megatron_split version 1; use the version that built it: program {'ab' * 20}, python 3.11.2, numpy 1.26.0"
    )


def test_with_upstream_the_versions_of_all_are_looked_at_before_anything_is_built(made: HealingSet) -> None:
    manifest = made.manifest("snapshot")
    reseal(made.folder("snapshot"), manifest, stage=StageVersion("snapshot", 7))
    for name, target in zip(("selection", "train"), made.recipe.targets()[1:], strict=False):
        target.kind.build(target, made.run)
        assert RebuildPlan(made.folder(name), made.root, SYSTEMS.kinds, with_upstream=False).steps

    with pytest.raises(UsageError, match="was built by snapshot version 7, this program has snapshot version 3"):
        RebuildPlan(made.folder("train"), made.root, SYSTEMS.kinds, with_upstream=True)


def test_a_kind_that_this_program_does_not_make_is_refused(made: HealingSet) -> None:
    manifest = dataclasses.replace(made.manifest("valid"), kind="weather/forecast", provenance={})
    reseal(made.folder("valid"), manifest)

    assert refusal(
        lambda: RebuildPlan(made.folder("valid"), made.root, SYSTEMS.kinds, with_upstream=False), UsageError
    ) == (
        f"{made.folder('valid')}: pages_v1/valid is a weather/forecast, which this program cannot build; "
        "use the version that built it: its manifest names none"
    )


def test_what_it_is_made_from_and_is_gone_is_named(made: HealingSet) -> None:
    digest = made.manifest("snapshot").digest
    (made.root / "manifests").mkdir()
    copy = shutil.copyfile(made.folder("snapshot") / "manifest.json", made.root / "manifests" / "snapshot.json")
    shutil.rmtree(made.folder("snapshot"))
    words = f"input healing/fineweb_edu_snapshot {digest}"

    def told(with_upstream: bool) -> str:
        return refusal(lambda: rebuild(made.folder("train"), made.run, SYSTEMS.kinds, with_upstream))

    with_copy = told(with_upstream=False)
    copy.unlink()

    assert with_copy == (
        f"{made.folder('train')}: the {words} is not sealed below {made.root}; "
        "use the data root that contains it, with --data or --out-dir, or build it again too with --upstream"
    )
    assert told(with_upstream=False) == with_copy.removesuffix(", or build it again too with --upstream")
    assert told(with_upstream=True) == (
        f"{made.root}: no manifest found below "
        "corpora, selections, megatron, stage_a, nemotron, stage2, parallel_text or manifests "
        f"for the {words}; "
        "use the data root that contains it, with --data or --out-dir"
    )


def test_a_kind_of_any_system_is_rebuilt_and_two_of_one_role_have_folders_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three artifacts in a row, each holding what the one before holds and a word more."""

    def make(job: Job) -> BuildResult:
        before = b"".join(one.path("words.txt").read_bytes() for one in job.upstream)
        data = before + f"{job.recipe['word']}\n".encode()
        sha256 = write_durably(job.staging.path("words.txt"), data)
        rows = data.count(b"\n")
        return BuildResult([OutputFile("words.txt", rows, len(data), sha256, sha256)], {"words": rows}, {})

    stage, run = StageVersion("words", 1), Run(tmp_path, RunSettings())
    page = SimpleNamespace(KINDS=(Kind("words/said", stage, file_builder(make), "Words.", (FILES_CHECK,)),))
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

    assert [(outcome.step.manifest.name, outcome.verdict) for outcome in chain.outcomes] == [
        ("one", "identical"),
        ("two", "identical"),
        ("three", "identical"),
    ]
    assert len({outcome.step.target.folder for outcome in chain.outcomes}) == 3
    assert alone.is_identical, "what lies further up may be gone"
