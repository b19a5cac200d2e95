"""A sample in a notebook's folder is drawn once and returned to its request."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest
from refusals import refusal
from sentence_pairs import SOURCE, synthetic_pair, translation_lines

from pipeline_assets.corpus.parallel_text.draw import materialize
from pipeline_assets.corpus.parallel_text.sample import read_sample
from pipeline_assets.corpus.parallel_text.translation_files import TranslationFile
from pipeline_assets.spine import durable
from pipeline_assets.spine.errors import UsageError

REQUEST = {"k": 20, "languages": ("fr", "en"), "source": SOURCE}
OTHER_REQUESTS: Mapping[str, tuple[dict[str, object], str]] = {
    "k": ({"k": 21}, "k is 20, not 21"),
    "seed": ({"seed": 7}, "seed is 42, not 7; choose"),
    "splits": ({"splits": (1, 1, 0)}, "split_sizes is {'train': 16, 'val': 2, 'test': 2}, not {'train': 10, 'val'"),
    "filters": ({"filters": None}, "filters is {"),
    "changed filter": ({"filters": {"min_chars": 4}}, "filters is {"),
    "languages": ({"languages": ("en", "fr")}, "src is fr, not en; tgt is en, not fr"),
    "source": (
        {"source": msgspec.structs.replace(SOURCE, revision="b" * 40)},
        f"revision is {'a' * 40}, not {'b' * 40}",
    ),
    "algorithm": ({"algorithm": "es_weighted", "weight": "chars"}, "algorithm is classic, not es_weighted"),
    "duplicates": ({"duplicates": "keep"}, "duplicates is within, not keep"),
    "files": ({"files": [TranslationFile("b.jsonl", lambda: Path("b.jsonl"))]}, "files are a.jsonl, not b.jsonl"),
}


@pytest.fixture
def arguments(tmp_path: Path) -> dict[str, object]:
    """Return a request whose sample is drawn."""
    file = translation_lines(tmp_path / "a.jsonl", [synthetic_pair(number) for number in range(100)])
    requested = {**REQUEST, "files": [file], "folder": tmp_path / "sample"}
    materialize(**requested)
    return requested


def read_folder(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_an_equal_request_returns_the_sample_and_reads_no_file(arguments: dict[str, object], tmp_path: Path) -> None:
    before = read_folder(tmp_path / "sample")
    (tmp_path / "a.jsonl").unlink()

    assert materialize(**arguments) == tmp_path / "sample" / "manifest.jsonl"
    assert read_folder(tmp_path / "sample") == before


def test_another_file_is_another_request(arguments: dict[str, object], tmp_path: Path) -> None:
    files = [*arguments["files"], TranslationFile("b.jsonl", lambda: tmp_path / "b.jsonl")]
    message = refusal(lambda: materialize(**arguments | {"files": files}), UsageError)
    assert ": files are a.jsonl, not a.jsonl, b.jsonl; " in message

    # A sample of a version that stored no names still has the files of its pairs.
    meta = tmp_path / "sample" / "MANIFEST.meta.json"
    content = {key: value for key, value in json.loads(meta.read_text()).items() if key != "files"}
    meta.write_text(json.dumps(content))
    materialize(**arguments)
    assert ": files contain a.jsonl; " in refusal(lambda: materialize(**arguments | {"files": files[1:]}), UsageError)


@pytest.mark.parametrize("name", OTHER_REQUESTS)
def test_another_request_is_refused(arguments: dict[str, object], tmp_path: Path, name: str) -> None:
    before, (changes, difference) = read_folder(tmp_path / "sample"), OTHER_REQUESTS[name]

    message = refusal(lambda: materialize(**arguments | changes), UsageError)

    assert message.startswith(f"{tmp_path}/sample/manifest.jsonl: the frozen sample differs: {difference}")
    assert message.endswith("; choose another folder, or pass replace=True to draw the sample again")
    assert read_folder(tmp_path / "sample") == before


def test_replace_draws_another_sample(arguments: dict[str, object]) -> None:
    manifest = materialize(**arguments | {"k": 30}, replace=True)

    assert len(read_sample(manifest).pairs) == 30


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"replace": "no"}, "replace: must be True or False, got 'no'; correct it"),
        ({"folder": ""}, "folder: must not be empty; correct it"),
        ({"splits": 3}, "splits: must be a Sequence, got 3; correct it"),
        ({"filters": "none"}, "filters: must be a Mapping or None, got 'none'; correct it"),
        ({"languages": "fr-en"}, "languages: must have 2 items, got 'fr-en'; correct it"),
        ({"splits": (80, 20)}, "splits: must have 3 items, got (80, 20); correct it"),
    ],
)
def test_an_argument_of_another_type_or_length_replaces_no_sample(
    arguments: dict[str, object], tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    before = read_folder(tmp_path / "sample")

    assert refusal(lambda: materialize(**arguments | {"k": 30} | changes), UsageError) == message
    assert read_folder(tmp_path / "sample") == before


def test_a_sample_in_a_sealed_artifact_is_never_replaced(arguments: dict[str, object], tmp_path: Path) -> None:
    (tmp_path / "sample" / "manifest.json").touch()
    before = read_folder(tmp_path / "sample")

    message = refusal(lambda: materialize(**arguments | {"k": 30}, replace=True), UsageError)

    assert message == (
        f"{tmp_path}/sample: the folder is in the sealed artifact {tmp_path}/sample; choose another folder"
    )
    assert materialize(**arguments | {"folder": str(tmp_path / "sample")}) == tmp_path / "sample" / "manifest.jsonl"
    assert read_folder(tmp_path / "sample") == before


def test_an_edited_sample_is_refused_and_replaced(arguments: dict[str, object], tmp_path: Path) -> None:
    manifest = tmp_path / "sample" / "manifest.jsonl"
    data = manifest.read_bytes()
    edited = data.replace(b'"train"', b'"val"', 1)
    manifest.write_bytes(edited)

    assert refusal(lambda: materialize(**arguments)) == (
        f"{manifest}: sample was edited after the draw: sha256 is {hashlib.sha256(edited).hexdigest()}, "
        f"expected {hashlib.sha256(data).hexdigest()}; restore it, or draw the sample: `corpusmill parallel sample`"
    )
    assert materialize(**arguments, replace=True).read_bytes() == data


def test_an_interrupted_replacement_leaves_no_mixed_sample(
    arguments: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(path: Path, data: bytes) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(durable, "write_durably", write)
        materialize(**arguments | {"k": 30}, replace=True)

    assert len(read_sample(materialize(**arguments | {"k": 25})).pairs) == 25
