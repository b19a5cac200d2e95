"""Pins of language models in a folder or on a hub."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from faulty_hub import FaultyHub
from pinned_models import CONFIG, LEFT_OUT_FILES, NAME, SHARDS, pin_for, publish, write_model
from refusals import refusal

from pipeline_assets.build import drive
from pipeline_assets.build.pins.model_pin import ModelSection, restore_model_folder
from pipeline_assets.build.run import Run
from pipeline_assets.corpus.nemotron.rows_recipe import ChatTemplateSection
from pipeline_assets.spine.artifact import open_artifact
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.systems.scoring import template_targets


def test_the_path_of_a_folder_does_not_change_the_digest(run: Run, tmp_path: Path) -> None:
    write_model(tmp_path / "tiny")
    write_model(run.root / "models" / "tiny")

    external = drive.build(pin_for(path=str(tmp_path / "tiny")), run).artifact.manifest
    internal = drive.build(pin_for(path="models/tiny"), replace(run, replace=True)).artifact.manifest

    assert external.digest == internal.digest
    assert restore_model_folder(internal, run.root) == pin_for(path=str(run.root / "models/tiny")).external_inputs


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
PICKLE = (
    "the weights are a pickle (pytorch_model.bin), which can run code when it is read; "
    "convert them to safetensors, or use a revision with safetensors"
)
ITSELF = "which is never run; use a model whose architecture is part of transformers"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"config.json": None}, f"config.json not found; {ANOTHER}"),
        *(({"config.json": odd}, NO_MAPPING) for odd in (b"{", b"[" * 100_000, b"[]")),
        ({SHARDS[1]: None}, f"{INDEX} lists {SHARDS[1]}, which is missing or not in safetensors; {WHOLE}"),
        (
            {INDEX: b'{"weight_map": {"a": "b.bin"}}'},
            f"{INDEX} lists b.bin, which is missing or not in safetensors; {WHOLE}",
        ),
        (
            {INDEX: json.dumps({"weight_map": {f"{name}": f"{name}.bin" for name in range(9, 0, -1)}}).encode()},
            f"{INDEX} lists 1.bin, which is missing or not in safetensors; {WHOLE}",
        ),
        ({INDEX: b'{"weight_map": {}}'}, f"{INDEX} lists no file; {WHOLE}"),
        ({INDEX: None}, PICKLE),
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
WRITE = "write owner/name, such as unsloth/gpt-oss-120b"
ONE_OF = "the model must have one location; set `name` and `revision`, or only `path`"


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({}, ONE_OF),
        ({"name": "maker/tiny"}, ONE_OF),
        ({"name": None, "revision": COMMIT}, ONE_OF),
        ({"path": "tiny", "name": "maker/tiny"}, ONE_OF),
        ({"path": "tiny", "revision": COMMIT}, ONE_OF),
        *(({"name": odd, "revision": COMMIT}, f"'{odd}' is not a model name; {WRITE}") for odd in ("a/b/c", "..")),
        ({"name": "gpt2", "revision": "main"}, "the revision of gpt2 must be a commit of 40 hex digits, got 'main'"),
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


@pytest.mark.parametrize(("name", "note"), [("config.json", ""), (SHARDS[0], ""), ("vocab.json", " (new)")])
def test_a_changed_folder_makes_its_pin_stale(name: str, note: str, run: Run, tmp_path: Path) -> None:
    pin = pin_for(path=str(write_model(tmp_path / "tiny")))
    drive.build(pin, run)

    (tmp_path / "tiny" / "README.md").write_text("nobody loads it")
    assert pin.state(run.root)[0] == "current"
    with open(tmp_path / "tiny" / name, "ab") as file:
        file.write(b" ")

    line = f"1 of the files in {tmp_path / 'tiny'} changed; the first is {name}{note}"
    assert pin.state(run.root) == ("stale", line)


def test_a_chat_template_is_pinned_without_weights_or_code(run: Run, hub: FaultyHub) -> None:
    commit = publish(hub, **{"modeling_tiny.py": b"print()", "additional_chat_templates/rag.jinja": b"{{ messages }}"})
    section = ChatTemplateSection.from_mapping({"model": NAME, "revision": commit}, "the recipe")
    [target] = template_targets("mine", section)

    drive.build(target, run)

    inputs = open_artifact(run.root / target.folder).manifest.identity.inputs
    template = ["additional_chat_templates/rag.jinja", "chat_template.jinja", "special_tokens_map.json"]
    files = [entry["name"].partition(":")[2] for entry in inputs]
    assert files == [*template, "tokenizer.json", "tokenizer_config.json"]
