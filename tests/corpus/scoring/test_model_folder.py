"""Files of pinned language models as builds see them."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from faulty_hub import FaultyHub
from pinned_models import LEFT_OUT_FILES, NAME, PINNED, SHARDS, TENSOR, pin_for, publish, write_model
from safetensors.numpy import load_file

from pipeline_assets.build import drive
from pipeline_assets.build.builders import Job, file_builder
from pipeline_assets.build.checks import FILES_CHECK
from pipeline_assets.build.pins.files_check import check_hub_cache
from pipeline_assets.build.pins.model_pin import list_hub_inputs, model_folder
from pipeline_assets.build.recipe import Recipe
from pipeline_assets.build.run import Run
from pipeline_assets.build.target import Kind, Planner, Target
from pipeline_assets.corpus.readers.hub_files import CACHE_FOLDER
from pipeline_assets.spine.areas import AREAS
from pipeline_assets.spine.artifact import Artifact, open_artifact
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.durable import DurableFile
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.manifest import StageVersion
from pipeline_assets.spine.staging import OutputFile
from pipeline_assets.systems.registry import SYSTEMS
from pipeline_assets.trust.rebuild import rebuild


def record_files(job: Job) -> BuildResult:
    """Record the hash of each file that transformers would see."""
    [pin] = job.target.upstream
    with model_folder(pin, job.run, job.staging) as folder:
        seen = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}
        with DurableFile(job.staging.path("seen.json")) as file:
            file.write(json.dumps(seen).encode())
        disturb(folder)
    return BuildResult([OutputFile.uncompressed("seen.json", 1, file)], {}, {})


def disturb(folder: Path) -> None:
    """Do nothing; tests replace this to act while the model is used."""


LOOK = Kind(
    "lm/look",
    StageVersion("look", 1),
    file_builder(record_files),
    "What is seen of it.",
    (FILES_CHECK,),
    planner=Planner(list_hub_inputs),
)
KINDS = (LOOK,)


class RECIPE(Recipe):
    system: Literal["lm"]


@pytest.fixture(scope="module", autouse=True)
def system() -> Iterator[None]:
    """Register the system during these tests."""
    SYSTEMS.add("lm", __name__)
    yield
    AREAS.remove("lm")
    del SYSTEMS.pages["lm"]


def build_and_read(pin: Target, run: Run) -> tuple[Artifact, dict[str, str]]:
    """Build the pin and return it with the files that a build saw."""
    look = LOOK.target("mine", {}, [pin])
    drive.build(pin, run)
    artifact = drive.build(look, run).artifact
    return open_artifact(run.root / pin.folder), json.loads(artifact.path("seen.json").read_bytes())


def test_a_hub_pin_lists_the_files_of_a_model_and_reads_its_config(hub: FaultyHub, run: Run) -> None:
    commit = publish(hub)
    pin = pin_for(name=NAME, revision=commit)

    identity = drive.build(pin, run).artifact.manifest.identity
    fetched = {
        request.path.rpartition("/")[2]
        for request in hub.requests
        if "/resolve/" in request.path and request.method == "GET"  # the hub confirms the other files by a HEAD
    }
    _, seen = build_and_read(pin, run)

    assert fetched == {"config.json", "model.safetensors.index.json"}
    assert seen == {name: hashlib.sha256(content).hexdigest() for name, content in PINNED.items()}
    assert [entry["name"] for entry in identity.inputs] == [f"models/maker/tiny@{commit}:{name}" for name in PINNED]
    digests = {entry["name"].partition(":")[2]: (entry["digest"], entry["bytes"]) for entry in identity.inputs}
    assert digests[SHARDS[0]] == (f"sha256:{hashlib.sha256(TENSOR).hexdigest()}", len(TENSOR))
    assert digests["generation_config.json"] == ("git-sha1:9e26dfeeb6e641a33dae4961196235bdb965b21b", 2)
    assert identity.recipe == {"name": NAME, "revision": commit}
    assert identity.counts == {"files": 9, "bytes": sum(map(len, PINNED.values()))}
    assert identity.decisions == {
        "architecture": "TinyForCausalLM",
        "model_type": "tiny",
        "dtype": "bfloat16",
        "quantization": "mxfp4",
        "vocabulary_size": 201_088,
        "max_positions": 131_072,
        "left_out": LEFT_OUT_FILES,
    }


def test_a_folder_is_pinned_like_a_hub_model_with_relative_names(run: Run, tmp_path: Path) -> None:
    folder = write_model(tmp_path / "tiny")

    artifact, seen = build_and_read(pin_for(path=str(folder)), run)

    identity = artifact.manifest.identity
    assert [(entry["name"], entry["bytes"]) for entry in identity.inputs] == [
        (name, len(content)) for name, content in PINNED.items()
    ]
    assert (identity.recipe, identity.decisions["left_out"]) == ({}, LEFT_OUT_FILES)
    assert seen == {name: hashlib.sha256(content).hexdigest() for name, content in PINNED.items()}
    assert not [path for path in run.root.rglob("*") if path.is_symlink()]
    assert (folder / SHARDS[0]).read_bytes() == TENSOR


def test_a_single_weight_file_needs_no_index(run: Run, tmp_path: Path) -> None:
    folder = write_model(tmp_path / "tiny", **{"model.safetensors": TENSOR})

    _, seen = build_and_read(pin_for(path=str(folder)), run)

    assert [name for name in seen if "model." in name or "model-" in name] == ["model.safetensors"]
    assert load_file(folder / "model.safetensors")["a"].tolist() == [0.0, 0.0]


def test_the_files_of_a_model_are_listed_before_its_pin_and_download(hub: FaultyHub, run: Run, tmp_path: Path) -> None:
    hub_pin, folder_pin = pin_for(name=NAME, revision=publish(hub)), pin_for(path=str(write_model(tmp_path / "tiny")))
    look = LOOK.target("mine", {}, [hub_pin])

    listed, before = hub_pin.kind.planner.list_files(hub_pin, run), list_hub_inputs(look, run)
    artifact, _ = build_and_read(hub_pin, run)

    fetched = ("config.json", "model.safetensors.index.json")
    assert list(listed.inputs) == list(artifact.manifest.identity.inputs)
    assert before.bytes_to_fetch == {
        f"{NAME}:{name}": 0 if name in fetched else len(content) for name, content in PINNED.items()
    }
    assert set((list_hub_inputs(look, run).bytes_to_fetch or {}).values()) == {0}
    assert [file["name"] for file in folder_pin.kind.planner.list_files(folder_pin, run).inputs] == list(PINNED)
    assert list_hub_inputs(LOOK.target("mine", {}, [folder_pin]), run).bytes_to_fetch is None


@pytest.mark.parametrize("keeps_size", [True, False])
def test_files_changed_during_their_use_stop_the_build(
    keeps_size: bool, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pin = pin_for(path=str(write_model(tmp_path / "tiny")))
    other = TENSOR[:-1] + b"1" if keeps_size else TENSOR + b"1"
    monkeypatch.setitem(globals(), "disturb", lambda folder: (folder / SHARDS[0]).write_bytes(other))

    with pytest.raises(
        InputError,
        match=r"since the files were hashed: .*; restore the files, or stop writing to the folder and run the recipe",
    ):
        build_and_read(pin, run)


def test_files_left_by_an_interrupted_build_are_not_seen(
    hub: FaultyHub, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    pin = pin_for(name=NAME, revision=publish(hub))

    def interrupt(folder: Path) -> None:
        (folder / "adapter_config.json").symlink_to("nowhere")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setitem(globals(), "disturb", interrupt)
        build_and_read(pin, run)
    _, seen = build_and_read(pin, run)

    assert list(seen) == list(PINNED)


def test_verification_and_rebuild_find_model_files_in_the_cache(hub: FaultyHub, run: Run) -> None:
    pin = pin_for(name=NAME, revision=publish(hub))
    artifact, _ = build_and_read(pin, run)
    names = [entry["name"] for entry in artifact.manifest.identity.inputs]

    cached = check_hub_cache(run.root / CACHE_FOLDER, {artifact.manifest.digest: artifact.manifest.identity.inputs})
    uncached = check_hub_cache(run.root / "none", {artifact.manifest.digest: artifact.manifest.identity.inputs})

    assert (cached.whole_files, cached.unavailable, cached.unsearched_names, cached.findings) == (names, [], [], [])
    assert (uncached.whole_files, uncached.unavailable, uncached.unsearched_names) == ([], names, [])
    rebuilt = rebuild(run.root / "lm/mine/look", run, SYSTEMS.kinds, with_upstream=True)
    assert [outcome.verdict for outcome in rebuilt.outcomes] == ["identical", "identical"]
