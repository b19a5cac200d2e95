"""Generated files of the demo have the same bytes everywhere."""

import hashlib
from pathlib import Path

import pytest
import yaml

from pipeline_assets.demo.corpora import FILE_GENERATORS, write_inputs
from pipeline_assets.demo.texts import pages, place_name, python_module, translate, unwanted_pages


def test_texts_are_equal_on_every_machine_and_python() -> None:
    texts = [page.text for page in pages("edu", 80) + unwanted_pages("web", 0)]
    texts += [*map(python_module, range(20)), translate(texts[0]), *map(place_name, range(96))]

    digest = hashlib.sha256("\n".join(texts).encode()).hexdigest()
    assert digest == "7571dc1abc21c5005b2c0b60a5081153ef9f0f10ce1904c72638653d6f0697b7"


@pytest.mark.parametrize(
    ("system", "sha256"),
    [
        ("healing", "1b2ff895ec9b371ad930d4ac904775d86713962c6f220f0a3eed087a30f3485a"),
        ("stage_a", "84c16663e6255a99436004c9fca0918366b1a6db42ffcb5a9eed427b043d44b4"),
        ("nemotron", "e9710b6ab6b754e4a6a202574d453fc08a00b086f75303a9638ff0698673bab6"),
        ("stage2", "08abf0a0f41189a4484d5f2a30a723f4335a56f33b20293f039d61a13eae19a5"),
        ("parallel_text", "caa2cbcd1c7bc760534ae01e42838e28d214a27771f32beecae0ded3c1ef7a36"),
    ],
)
def test_files_are_equal_with_the_pinned_library_versions(system: str, sha256: str) -> None:
    content = hashlib.sha256()
    for path, data in FILE_GENERATORS[system]():
        content.update(path.encode() + b"\0" + data)

    assert content.hexdigest() == sha256


def test_existing_files_keep_their_times_and_others_are_rewritten(tmp_path: Path) -> None:
    write_inputs(tmp_path, "parallel_text")
    [card] = tmp_path.rglob("README.md")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.parquet")}
    text = card.read_text()
    card.write_text("cut off")

    write_inputs(tmp_path, "parallel_text")

    assert before and {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.parquet")} == before
    assert card.read_text() == text


@pytest.mark.parametrize("system", FILE_GENERATORS)
def test_cards_state_that_the_datasets_are_stand_ins(system: str) -> None:
    files = dict(FILE_GENERATORS[system]())
    cards = {path: data.decode() for path, data in files.items() if path.endswith("README.md")}

    assert cards
    for path, card in cards.items():
        name = "/".join(path.split("/")[2:4])
        _, head, text = card.split("---\n")
        assert f"This is not {name} and holds none of its text." in text
        assert "licence" not in head and yaml.safe_load(head)["pretty_name"] == name.split("/")[1]
