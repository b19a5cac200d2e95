"""Language models of a hub or a folder, pinned by hash, given to builds.

A system that exists only in these tests reads the model. The hub is the project's own, on loopback; the client is
the real one.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
from faulty_hub import FaultyHub
from refusals import refusal
from safetensors.numpy import load_file

from pipeline_assets.build import drive
from pipeline_assets.build.builders import Job, file_builder
from pipeline_assets.build.checks import FILES_CHECK
from pipeline_assets.build.pins.files_check import check_hub_cache
from pipeline_assets.build.pins.model_pin import (
    ModelSection,
    list_model,
    list_uncached,
    model_folder,
    restore_model_folder,
)
from pipeline_assets.build.recipe import Recipe
from pipeline_assets.build.run import Run
from pipeline_assets.build.target import Kind, Planner, Target
from pipeline_assets.corpus.nemotron.rows_recipe import ChatTemplateSection
from pipeline_assets.corpus.readers.hub_files import CACHE_FOLDER, HubFiles
from pipeline_assets.spine.areas import AREAS
from pipeline_assets.spine.artifact import Artifact, open_artifact
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.durable import DurableFile
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.spine.errors import InputError, UsageError
from pipeline_assets.spine.manifest import StageVersion
from pipeline_assets.spine.staging import OutputFile
from pipeline_assets.systems.registry import SYSTEMS
from pipeline_assets.systems.scoring import MODEL, template_targets
from pipeline_assets.trust.rebuild import rebuild

NAME = "maker/tiny"
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
CONFIG: dict[str, Any] = {
    "architectures": ["TinyForCausalLM"],
    "model_type": "tiny",
    "dtype": "bfloat16",
    "quantization_config": {"quant_method": "mxfp4"},
    "vocab_size": 201_088,
    "max_position_embeddings": 131_072,
    "time_step_limit": [0.0, float("inf")],
}
HEAD = b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'
TENSOR = len(HEAD).to_bytes(8, "little") + HEAD + bytes(8)
PINNED = {
    "chat_template.jinja": b"{{ messages }}",
    "config.json": json.dumps(CONFIG).encode(),
    "generation_config.json": b"{}",
    SHARDS[0]: TENSOR,
    SHARDS[1]: TENSOR + b" ",
    "model.safetensors.index.json": json.dumps({"weight_map": {"a": SHARDS[0], "b": SHARDS[1]}}).encode(),
    "special_tokens_map.json": b"{}",
    "tokenizer.json": b'{"version": "1.0"}',
    "tokenizer_config.json": b"{}",
}
OTHER_FILES = {
    ".gitattributes": b"*.safetensors filter=lfs\n",
    "README.md": b"# Tiny\n",
    "consolidated.safetensors": TENSOR,
    "metal/model.bin": b"metal",
    "original/config.json": b"{}",
    "original/model.py": b"print()",
    "pytorch_model.bin": b"pickle",
    "tiny-Q4.gguf": b"GGUF",
}
LEFT_OUT_FILES = sorted(OTHER_FILES.keys() - {".gitattributes"})


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
    planner=Planner(list_uncached),
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


@pytest.fixture
def run(hub: FaultyHub, tmp_path: Path) -> Run:
    root = tmp_path / "data"
    return Run(root, RunSettings(), HubFiles(root / CACHE_FOLDER, hub.endpoint, tries=2, wait_s=0.01))


def write_model(folder: Path, **changes: bytes | None) -> Path:
    """Write the model to a folder with some files changed or left out."""
    for name, content in (PINNED | OTHER_FILES | changes).items():
        if content is not None:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
    return folder


def publish(hub: FaultyHub, **changes: bytes | None) -> str:
    """Write the model to the hub and return its commit."""
    write_model(hub.folder / "models" / NAME, **changes)
    return hub.commits()[f"models/{NAME}"]


def pin_for(**section: str) -> Target:
    section_read = ModelSection.from_mapping(section, "the recipe")
    return MODEL.target("mine", section_read.pinned_content(), external_inputs=section_read.folder())


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


def test_the_path_of_a_folder_does_not_change_the_digest(run: Run, tmp_path: Path) -> None:
    write_model(tmp_path / "tiny")
    write_model(run.root / "models" / "tiny")

    external = drive.build(pin_for(path=str(tmp_path / "tiny")), run).artifact.manifest
    internal = drive.build(pin_for(path="models/tiny"), replace(run, replace=True)).artifact.manifest

    assert external.digest == internal.digest
    assert restore_model_folder(internal, run.root) == pin_for(path=str(run.root / "models/tiny")).external_inputs


def test_a_single_weight_file_needs_no_index(run: Run, tmp_path: Path) -> None:
    folder = write_model(tmp_path / "tiny", **{"model.safetensors": TENSOR})

    _, seen = build_and_read(pin_for(path=str(folder)), run)

    assert [name for name in seen if "model." in name or "model-" in name] == ["model.safetensors"]
    assert load_file(folder / "model.safetensors")["a"].tolist() == [0.0, 0.0]


def test_missing_values_of_a_config_are_null_and_nested_ones_count(run: Run, tmp_path: Path) -> None:
    config = {"architectures": None, "vocab_size": 0.5, "text_config": {"torch_dtype": "float16", "n_positions": 1024}}
    folder = write_model(tmp_path / "tiny", **{"config.json": json.dumps(config).encode()})

    decisions = drive.build(pin_for(path=str(folder)), run).artifact.manifest.identity.decisions

    stated = {name: value for name, value in decisions.items() if value is not None}
    assert stated == {"dtype": "float16", "max_positions": 1024, "left_out": LEFT_OUT_FILES}


INDEX = "model.safetensors.index.json"
WHOLE = "use a complete model"
NO_MAPPING = f"config.json is not a JSON object; {WHOLE}"
ANOTHER = "use a model in the format of transformers: config.json, and weights in safetensors"
ITSELF = "which is never run; use a model whose architecture is part of transformers"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"config.json": None}, f"config.json not found; {ANOTHER}"),
        *(({"config.json": odd}, NO_MAPPING) for odd in (b"{", b"[" * 100_000, b"[]")),
        ({SHARDS[1]: None}, f"{INDEX} lists {SHARDS[1]}, which is missing or not in safetensors; {WHOLE}"),
        (
            {INDEX: b'{"weight_map": {"a": "pytorch_model.bin"}}'},
            f"{INDEX} lists pytorch_model.bin, which is missing or not in safetensors; {WHOLE}",
        ),
        ({INDEX: b'{"weight_map": {}}'}, f"{INDEX} lists no file; {WHOLE}"),
        (
            {INDEX: None},
            "the weights are a pickle (pytorch_model.bin), which can run code when it is read; "
            "convert them to safetensors, or use a revision with safetensors",
        ),
        ({INDEX: None, "pytorch_model.bin": None}, f"neither model.safetensors nor {INDEX} found; {ANOTHER}"),
        (
            {f"{name}.py": b"" for name in ("z", "tokens", "y", "modeling_tiny", "x")},
            f"the model has its own code (modeling_tiny.py), {ITSELF}",
        ),
        (
            {"config.json": json.dumps(CONFIG | {"auto_map": {"AutoModel": "other/repo--modeling.Tiny"}}).encode()},
            f"the model has its own code (`auto_map` in config.json), {ITSELF}",
        ),
    ],
)
@pytest.mark.parametrize("is_on_hub", [True, False])
def test_a_model_that_needs_more_than_its_files_is_refused_in_one_line(
    changes: dict[str, bytes | None], message: str, is_on_hub: bool, hub: FaultyHub, run: Run, tmp_path: Path
) -> None:
    commit = publish(hub, **changes)
    folder = write_model(tmp_path / "tiny", **changes)
    pin = pin_for(name=NAME, revision=commit) if is_on_hub else pin_for(path=str(folder))

    assert refusal(lambda: drive.build(pin, run)) == f"{f'maker/tiny@{commit}' if is_on_hub else folder}: {message}"


COMMIT = "a" * 40
ONE_OF = "set `name` and `revision` for a model on a hub, or only `path` for a local folder"


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({}, ONE_OF),
        ({"name": "maker/tiny"}, ONE_OF),
        ({"name": None, "revision": COMMIT}, ONE_OF),
        ({"path": "tiny", "name": "maker/tiny"}, ONE_OF),
        ({"path": "tiny", "revision": COMMIT}, ONE_OF),
        (
            {"name": "a/b/c", "revision": COMMIT},
            "'a/b/c' is not a model name: write owner/name, such as unsloth/gpt-oss-120b",
        ),
        (
            {"name": "..", "revision": COMMIT},
            "'..' is not a model name: write owner/name, such as unsloth/gpt-oss-120b",
        ),
        (
            {"name": "gpt2", "revision": "main"},
            "the revision of gpt2 must be a commit of 40 hex digits, got 'main'",
        ),
    ],
)
def test_a_section_without_exactly_one_model_is_refused_in_one_line(section: dict[str, Any], message: str) -> None:
    refused = refusal(lambda: ModelSection.from_mapping(section, "the recipe"), UsageError)

    assert message in refused and "\n" not in refused


def test_a_section_has_the_default_model_unless_it_names_another() -> None:
    default, folder = (
        ModelSection.from_mapping(keys, "the recipe") for keys in ({"revision": "0" * 40}, {"path": "models/tiny"})
    )

    assert default.content() == {"name": "unsloth/gpt-oss-120b", "revision": "0" * 40, "path": None}
    assert folder.content() == {"name": None, "revision": None, "path": "models/tiny"}
    assert [ModelSection.from_content(section.content()) for section in (default, folder)] == [default, folder]


def test_an_unpinned_or_missing_model_is_refused(run: Run) -> None:
    unpinned = refusal(lambda: drive.build(pin_for(name=NAME, revision="0" * 40), run), UsageError)
    missing = refusal(lambda: drive.build(pin_for(path="models/none"), run), UsageError)

    assert unpinned == (
        "maker/tiny: no revision is pinned yet; "
        "set `revision` to the commit that `corpusmill pin maker/tiny --model` prints"
    )
    assert missing == f"{run.root / 'models/none'}: folder not found; correct the model's `path`"
    (run.root / "models").mkdir(parents=True, exist_ok=True)
    (run.root / "models/none").touch()
    file = refusal(lambda: drive.build(pin_for(path="models/none"), run), UsageError)
    assert file == f"{run.root / 'models/none'}: expected a folder, got a file; correct the model's `path`"


def test_the_files_of_a_model_are_listed_before_its_pin_and_download(hub: FaultyHub, run: Run, tmp_path: Path) -> None:
    hub_pin, folder_pin = pin_for(name=NAME, revision=publish(hub)), pin_for(path=str(write_model(tmp_path / "tiny")))
    look = LOOK.target("mine", {}, [hub_pin])

    listed, before = list_model(hub_pin, run), list_uncached(look, run)
    artifact, _ = build_and_read(hub_pin, run)

    fetched = ("config.json", "model.safetensors.index.json")
    assert list(listed.inputs) == list(artifact.manifest.identity.inputs)
    assert before.missing_bytes == {
        f"{NAME}:{name}": 0 if name in fetched else len(content) for name, content in PINNED.items()
    }
    assert set((list_uncached(look, run).missing_bytes or {}).values()) == {0}
    assert [file["name"] for file in list_model(folder_pin, run).inputs] == list(PINNED)
    assert list_uncached(LOOK.target("mine", {}, [folder_pin]), run).missing_bytes is None


@pytest.mark.parametrize(("name", "note"), [("config.json", ""), (SHARDS[0], ""), ("vocab.json", " (new)")])
def test_a_changed_folder_makes_its_pin_stale(name: str, note: str, run: Run, tmp_path: Path) -> None:
    pin = pin_for(path=str(write_model(tmp_path / "tiny")))
    drive.build(pin, run)

    (tmp_path / "tiny" / "README.md").write_text("nobody loads it")
    assert pin.state(run.root)[0] == "current"
    with open(tmp_path / "tiny" / name, "ab") as file:
        file.write(b" ")

    assert pin.state(run.root) == (
        "stale",
        f"1 of the files in {tmp_path / 'tiny'} changed; the first is {name}{note}",
    )


@pytest.mark.parametrize("keeps_size", [True, False])
def test_files_changed_during_their_use_stop_the_build(
    keeps_size: bool, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pin = pin_for(path=str(write_model(tmp_path / "tiny")))
    other = TENSOR[:-1] + b"1" if keeps_size else TENSOR + b"1"
    monkeypatch.setitem(globals(), "disturb", lambda folder: (folder / SHARDS[0]).write_bytes(other))

    with pytest.raises(
        InputError,
        match=r"since the files were hashed: .*; stop writing to the folder, and run the recipe again",
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


def test_a_chat_template_is_pinned_without_weights_or_code(run: Run, hub: FaultyHub) -> None:
    commit = publish(hub, **{"modeling_tiny.py": b"print()", "additional_chat_templates/rag.jinja": b"{{ messages }}"})
    section = ChatTemplateSection.from_mapping({"model": NAME, "revision": commit}, "the recipe")
    [target] = template_targets("mine", section)

    drive.build(target, run)

    inputs = open_artifact(run.root / target.folder).manifest.identity.inputs
    entries = [entry["name"].partition(":")[2] for entry in inputs]
    assert entries == [
        "additional_chat_templates/rag.jinja",
        "chat_template.jinja",
        "special_tokens_map.json",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
