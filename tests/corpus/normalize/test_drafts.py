"""Sources that are drafted from the files of a folder, hidden files left out."""

import json
from pathlib import Path

import pytest

from pipeline_assets.corpus.normalize.drafts import draft_sources
from pipeline_assets.corpus.normalize.left_out import scan_hidden_entries
from pipeline_assets.corpus.readers.source_folder import SourceFolder


def test_digits_of_a_longer_number_in_a_path_are_not_a_dump_date(tmp_path: Path) -> None:
    pages = tmp_path / "job-720190230155" / "AA"
    pages.mkdir(parents=True)
    (pages / "wiki_00").write_text('<doc id="1" url="?curid=1" title="Soil">\nSoil\n\nSoil is soil.\n</doc>\n')

    [draft], _ = draft_sources(SourceFolder(pages.parent, ("**/*",)), "pages", tmp_path)

    assert ("dump_date" in draft.content, draft.content["license_tag"]) == (False, "cc-by-sa-4.0")


@pytest.mark.parametrize(
    ("second", "columns"),
    [
        ({"license": ["GPL-3.0"]}, {"text": "text", "license": "license"}),
        ({"license": {"name": "GPL-3.0"}}, {"text": "text", "license": "license"}),
        ({"license": None}, {"text": "text"}),
        ({}, {"text": "text"}),
    ],
)
def test_a_licence_column_needs_text_values(second: dict[str, object], columns: dict[str, str], tmp_path: Path) -> None:
    rows = ({"text": "Soil is soil.", "license": "MIT"}, {"text": "Mud is mud."} | second)
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    [draft], _ = draft_sources(SourceFolder(tmp_path, ("**/*",)), "rows", tmp_path)

    assert draft.content["columns"] == columns
    assert ("licences that are no text, such as lists, are unknown" in draft.notes["columns"]) == (len(columns) == 2)


@pytest.mark.parametrize(("site", "kind"), [("wiktionary", "local"), ("wikipedia", "wikipedia")])
def test_json_lines_of_another_wiki_are_a_local_source(site: str, kind: str, tmp_path: Path) -> None:
    page = {"id": "1", "url": f"https://en.{site}.org/wiki?curid=1", "title": "Soil", "text": "Soil is soil."}
    (tmp_path / "wiki_00.jsonl").write_text(json.dumps(page) + "\n")

    [draft], _ = draft_sources(SourceFolder(tmp_path, ("**/*",)), "pages", tmp_path)

    assert draft.content["kind"] == kind


def test_hidden_files_and_folders_are_listed_in_order_and_not_entered(tmp_path: Path) -> None:
    for name in (".z/inner.md", ".a", "deep/.b", "deep/.c/x"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()

    assert scan_hidden_entries(tmp_path) == (False, [".a", ".z/", "deep/.b", "deep/.c/"])
    (tmp_path / "deep" / "seen.md").touch()
    assert scan_hidden_entries(tmp_path)[0]


def test_linked_folders_are_scanned_and_links_in_a_loop_are_not(tmp_path: Path) -> None:
    (tmp_path / "input").mkdir()
    (tmp_path / "notes").mkdir()
    (tmp_path / "input" / "linked").symlink_to(tmp_path / "notes")
    (tmp_path / "input" / "loop").symlink_to(tmp_path / "input")

    assert scan_hidden_entries(tmp_path / "input") == (False, [])
    (tmp_path / "notes" / "first.jsonl").touch()
    assert scan_hidden_entries(tmp_path / "input") == (True, [])
