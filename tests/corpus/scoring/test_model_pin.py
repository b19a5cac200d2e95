"""A language model of a hub at a commit, or of a folder here, pinned by hash, and given to builds as a folder.

A build of a system that is known to these tests alone looks at the model. The hub is the project's own, on loopback;
the client is the real one.
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
OTHERS = {
    ".gitattributes": b"*.safetensors filter=lfs\n",
    "README.md": b"# Tiny\n",
    "consolidated.safetensors": TENSOR,
    "metal/model.bin": b"metal",
    "original/config.json": b"{}",
    "original/model.py": b"print()",
    "pytorch_model.bin": b"pickle",
    "tiny-Q4.gguf": b"GGUF",
}
LEFT_OUT = sorted(OTHERS.keys() - {".gitattributes"})


def look_at(job: Job) -> BuildResult:
    """What transformers would see of the model, in a file."""
    [pin] = job.target.upstream
    with model_folder(pin, job.run, job.staging) as folder:
        seen = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}
        with DurableFile(job.staging.path("seen.json")) as file:
            file.write(json.dumps(seen).encode())
        meddle(folder)
    return BuildResult([OutputFile.uncompressed("seen.json", 1, file)], {}, {})


def meddle(folder: Path) -> None:
    """What a test does while the model is used."""


LOOK = Kind(
    "lm/look",
    StageVersion("look", 1),
    file_builder(look_at),
    "What is seen of it.",
    (FILES_CHECK,),
    planner=Planner(list_uncached),
)
KINDS = (LOOK,)


class RECIPE(Recipe):
    system: Literal["lm"]


@pytest.fixture(scope="module", autouse=True)
def system() -> Iterator[None]:
    """The system is known while these tests run."""
    SYSTEMS.add("lm", __name__)
    yield
    AREAS.remove("lm")
    del SYSTEMS.pages["lm"]


@pytest.fixture
def run(hub: FaultyHub, tmp_path: Path) -> Run:
    root = tmp_path / "data"
    return Run(root, RunSettings(), HubFiles(root / CACHE_FOLDER, hub.endpoint, tries=2, wait_s=0.01))


def written(folder: Path, **changes: bytes | None) -> Path:
    """The model in a folder, files changed or left out."""
    for name, content in (PINNED | OTHERS | changes).items():
        if content is not None:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
    return folder


def published(hub: FaultyHub, **changes: bytes | None) -> str:
    """The model on the hub; its commit."""
    written(hub.folder / "models" / NAME, **changes)
    return hub.commits()[f"models/{NAME}"]


def pin_of(**section: str) -> Target:
    asked = ModelSection.from_mapping(section, "the recipe")
    return MODEL.target("mine", asked.pinned_content(), external_inputs=asked.folder())


def built(pin: Target, run: Run) -> tuple[Artifact, dict[str, str]]:
    """The pin, sealed, and what a build saw of the model."""
    look = LOOK.target("mine", {}, [pin])
    drive.build(pin, run)
    artifact = drive.build(look, run).artifact
    return open_artifact(run.root / pin.folder), json.loads(artifact.path("seen.json").read_bytes())


def test_a_pin_of_a_hub_lists_what_loading_the_model_takes_fetches_two_files_and_says_what_the_config_says(
    hub: FaultyHub, run: Run
) -> None:
    commit = published(hub)
    pin = pin_of(name=NAME, revision=commit)

    identity = drive.build(pin, run).artifact.manifest.identity
    fetched = {
        request.path.rpartition("/")[2]
        for request in hub.requests
        if "/resolve/" in request.path and request.method == "GET"  # the hub confirms the other files by a HEAD
    }
    _, seen = built(pin, run)

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
        "left_out": LEFT_OUT,
    }


def test_a_folder_is_seen_as_the_hub_is_and_its_pin_names_files_by_their_names_in_it(run: Run, tmp_path: Path) -> None:
    folder = written(tmp_path / "tiny")

    artifact, seen = built(pin_of(path=str(folder)), run)

    identity = artifact.manifest.identity
    assert [(entry["name"], entry["bytes"]) for entry in identity.inputs] == [
        (name, len(content)) for name, content in PINNED.items()
    ]
    assert (identity.recipe, identity.decisions["left_out"]) == ({}, LEFT_OUT)
    assert seen == {name: hashlib.sha256(content).hexdigest() for name, content in PINNED.items()}
    assert not [path for path in run.root.rglob("*") if path.is_symlink()]
    assert (folder / SHARDS[0]).read_bytes() == TENSOR


def test_where_a_folder_lies_changes_no_digest(run: Run, tmp_path: Path) -> None:
    written(tmp_path / "tiny")
    written(run.root / "models" / "tiny")

    there = drive.build(pin_of(path=str(tmp_path / "tiny")), run).artifact.manifest
    below = drive.build(pin_of(path="models/tiny"), replace(run, replace=True)).artifact.manifest

    assert there.digest == below.digest
    assert restore_model_folder(below, run.root) == pin_of(path=str(run.root / "models/tiny")).external_inputs


def test_one_file_of_weights_needs_no_index_and_an_index_beside_it_is_left_out(run: Run, tmp_path: Path) -> None:
    folder = written(tmp_path / "tiny", **{"model.safetensors": TENSOR})

    _, seen = built(pin_of(path=str(folder)), run)

    assert [name for name in seen if "model." in name or "model-" in name] == ["model.safetensors"]
    assert load_file(folder / "model.safetensors")["a"].tolist() == [0.0, 0.0]


def test_what_a_config_does_not_say_is_null_and_what_its_language_model_says_counts(run: Run, tmp_path: Path) -> None:
    config = {"architectures": None, "vocab_size": 0.5, "text_config": {"torch_dtype": "float16", "n_positions": 1024}}
    folder = written(tmp_path / "tiny", **{"config.json": json.dumps(config).encode()})

    decisions = drive.build(pin_of(path=str(folder)), run).artifact.manifest.identity.decisions

    said = {name: value for name, value in decisions.items() if value is not None}
    assert said == {"dtype": "float16", "max_positions": 1024, "left_out": LEFT_OUT}


INDEX = "model.safetensors.index.json"
WHOLE = "use a complete model"
NO_MAPPING = f"config.json is not a JSON object; {WHOLE}"
ANOTHER = "use a model in the format of transformers: config.json, and weights in safetensors"
ITSELF = "which is never run; use a model whose architecture is part of transformers"


@pytest.mark.parametrize(
    ("changes", "line"),
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
@pytest.mark.parametrize("is_of_hub", [True, False])
def test_a_model_that_cannot_be_loaded_from_its_files_alone_is_refused_in_one_line(
    changes: dict[str, bytes | None], line: str, is_of_hub: bool, hub: FaultyHub, run: Run, tmp_path: Path
) -> None:
    commit = published(hub, **changes)
    folder = written(tmp_path / "tiny", **changes)
    pin = pin_of(name=NAME, revision=commit) if is_of_hub else pin_of(path=str(folder))

    assert refusal(lambda: drive.build(pin, run)) == f"{f'maker/tiny@{commit}' if is_of_hub else folder}: {line}"


COMMIT = "a" * 40
ONE_OF = "set `name` and `revision` for a model on a hub, or only `path` for a local folder"


@pytest.mark.parametrize(
    ("section", "line"),
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
def test_a_section_that_names_no_one_model_is_refused_in_one_line(section: dict[str, Any], line: str) -> None:
    refused = refusal(lambda: ModelSection.from_mapping(section, "the recipe"), UsageError)

    assert line in refused and "\n" not in refused


def test_a_section_is_of_the_default_model_unless_it_says_another_or_a_folder() -> None:
    default, folder = (
        ModelSection.from_mapping(one, "the recipe") for one in ({"revision": "0" * 40}, {"path": "models/tiny"})
    )

    assert default.content() == {"name": "unsloth/gpt-oss-120b", "revision": "0" * 40, "path": None}
    assert folder.content() == {"name": None, "revision": None, "path": "models/tiny"}
    assert [ModelSection.from_content(one.content()) for one in (default, folder)] == [default, folder]


def test_a_model_that_nobody_pinned_or_that_is_not_there_is_refused(run: Run) -> None:
    unpinned = refusal(lambda: drive.build(pin_of(name=NAME, revision="0" * 40), run), UsageError)
    gone = refusal(lambda: drive.build(pin_of(path="models/none"), run), UsageError)

    assert unpinned == (
        "maker/tiny: no revision is pinned yet; "
        "set `revision` to the commit that `corpusmill pin maker/tiny --model` prints"
    )
    assert gone == f"{run.root / 'models/none'}: folder not found; correct the model's `path`"
    (run.root / "models").mkdir(parents=True, exist_ok=True)
    (run.root / "models/none").touch()
    file = refusal(lambda: drive.build(pin_of(path="models/none"), run), UsageError)
    assert file == f"{run.root / 'models/none'}: expected a folder, got a file; correct the model's `path`"


def test_the_files_of_a_model_are_known_before_it_is_pinned_and_what_is_missing_before_it_is_loaded(
    hub: FaultyHub, run: Run, tmp_path: Path
) -> None:
    of_hub, of_folder = pin_of(name=NAME, revision=published(hub)), pin_of(path=str(written(tmp_path / "tiny")))
    look = LOOK.target("mine", {}, [of_hub])

    listed, before = list_model(of_hub, run), list_uncached(look, run)
    artifact, _ = built(of_hub, run)

    here = ("config.json", "model.safetensors.index.json")
    assert list(listed.inputs) == list(artifact.manifest.identity.inputs)
    assert before.missing_bytes == {
        f"{NAME}:{name}": 0 if name in here else len(content) for name, content in PINNED.items()
    }
    assert set((list_uncached(look, run).missing_bytes or {}).values()) == {0}
    assert [file["name"] for file in list_model(of_folder, run).inputs] == list(PINNED)
    assert list_uncached(LOOK.target("mine", {}, [of_folder]), run).missing_bytes is None


@pytest.mark.parametrize("name", ["config.json", SHARDS[0], "vocab.json"])
def test_a_changed_folder_makes_its_pin_stale_and_nothing_is_built_of_it(name: str, run: Run, tmp_path: Path) -> None:
    pin = pin_of(path=str(written(tmp_path / "tiny")))
    drive.build(pin, run)

    (tmp_path / "tiny" / "README.md").write_text("nobody loads it")
    assert pin.state(run.root)[0] == "current"
    with open(tmp_path / "tiny" / name, "ab") as file:
        file.write(b" ")

    assert pin.state(run.root) == (
        "stale",
        f"1 of the files in {tmp_path / 'tiny'} changed; the first is {name}",
    )


@pytest.mark.parametrize("keeps_size", [True, False])
def test_files_that_change_while_they_are_used_stop_the_build(
    keeps_size: bool, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pin = pin_of(path=str(written(tmp_path / "tiny")))
    other = TENSOR[:-1] + b"1" if keeps_size else TENSOR + b"1"
    monkeypatch.setitem(globals(), "meddle", lambda folder: (folder / SHARDS[0]).write_bytes(other))

    with pytest.raises(
        InputError,
        match=r"since the files were hashed: .*; stop writing to the folder, and run the recipe again",
    ):
        built(pin, run)


def test_what_a_build_that_was_cut_off_left_is_not_seen_by_the_next(
    hub: FaultyHub, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    pin = pin_of(name=NAME, revision=published(hub))

    def cut_off(folder: Path) -> None:
        (folder / "adapter_config.json").symlink_to("nowhere")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setitem(globals(), "meddle", cut_off)
        built(pin, run)
    _, seen = built(pin, run)

    assert list(seen) == list(PINNED)


def test_verification_and_rebuild_find_the_files_of_a_model_in_the_cache_of_models(hub: FaultyHub, run: Run) -> None:
    pin = pin_of(name=NAME, revision=published(hub))
    artifact, _ = built(pin, run)
    names = [entry["name"] for entry in artifact.manifest.identity.inputs]

    held = check_hub_cache(run.root / CACHE_FOLDER, {artifact.manifest.digest: artifact.manifest.identity.inputs})
    elsewhere = check_hub_cache(run.root / "none", {artifact.manifest.digest: artifact.manifest.identity.inputs})

    assert (held.whole_files, held.unavailable, held.unsearched_names, held.findings) == (names, [], [], [])
    assert (elsewhere.whole_files, elsewhere.unavailable, elsewhere.unsearched_names) == ([], names, [])
    again = rebuild(run.root / "lm/mine/look", run, SYSTEMS.kinds, with_upstream=True)
    assert [one.verdict for one in again.outcomes] == ["identical", "identical"]


def test_a_chat_template_is_pinned_without_weights_even_of_a_model_with_its_own_code(run: Run, hub: FaultyHub) -> None:
    commit = published(
        hub, **{"modeling_tiny.py": b"print()", "additional_chat_templates/rag.jinja": b"{{ messages }}"}
    )
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
