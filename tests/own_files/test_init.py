"""Recipes that `init` writes for folders of files."""

import json
from pathlib import Path
from typing import get_args

import pytest
import yaml
from command_results import Corpusmill, refused

from pipeline_assets.corpus.normalize.drafts import FILE_DESCRIPTIONS
from pipeline_assets.corpus.normalize.sources import FileSource
from pipeline_assets.systems.registry import SYSTEMS


def test_init_writes_a_source_for_each_text_column_and_prints_next_commands(
    mixed: Path, corpusmill: Corpusmill, tmp_path: Path
) -> None:
    init = corpusmill("init", "mine", "--input", mixed, "--data", tmp_path)

    path = tmp_path / "recipes" / "mine.yaml"
    assert (init.returncode, init.stdout) == (
        0,
        f"wrote {path}: 2 sources; edit it, then\n"
        f"  corpusmill plan mine --data {tmp_path}\n"
        f"  corpusmill run mine --data {tmp_path}\n",
    )
    assert init.stderr == (
        f"{mixed}: left out: package.json (one object, such as settings, without a text in a column of a usual name)\n"
        f"{mixed}: left out: scan.djvu (unknown format, binary)\n"
    )
    written = path.read_text()
    first, other = yaml.safe_load(written)["sources"]
    assert (first["source"], first["files"]) == ("my-files", ["**/*.jsonl", "**/*.jsonl.gz", "**/*.md"])
    assert (other["source"], other["files"], other["columns"]) == ("my-files-body", ["**/*.parquet"], {"text": "body"})
    assert "# 5 files, 7.5 KB" in written
    assert "# columns of the files: text, created_at, doc_id, id, license" in written
    assert "# licence of rows without a value in the column license" in written
    assert SYSTEMS.read_recipe(path).name == "mine"


def test_init_recognizes_output_of_wikiextractor_and_stack_exchange(corpusmill: Corpusmill, tmp_path: Path) -> None:
    pages, site = tmp_path / "enwiki-20261101" / "AA", tmp_path / "dumps" / "garden.stackexchange.com"
    pages.mkdir(parents=True)
    site.mkdir(parents=True)
    (pages / "wiki_00").write_text('<doc id="1" url="?curid=1" title="Soil">\nSoil\n\nSoil is soil.\n</doc>\n')
    (site / "Posts.xml").write_text("<posts></posts>")

    init = corpusmill("init", "both", "--input", tmp_path / "dumps", "--input", pages.parent, "--data", tmp_path)

    assert (init.returncode, init.stderr) == (0, "")
    stackexchange, wikipedia = yaml.safe_load((tmp_path / "recipes" / "both.yaml").read_text())["sources"]
    assert (stackexchange["kind"], stackexchange["host"], stackexchange["files"]) == (
        "stackexchange",
        "garden.stackexchange.com",
        ["Posts.xml"],
    )
    assert (wikipedia["kind"], wikipedia["dump_date"], wikipedia["language"]) == ("wikipedia", "2026-11-01", "en")


def test_init_knows_the_files_of_every_kind_of_source(corpusmill: Corpusmill, tmp_path: Path) -> None:
    sections = [section.model_fields["kind"].annotation for section in get_args(FileSource)]
    kinds = {kind for annotation in sections for kind in get_args(annotation)}
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "scan.djvu").write_bytes(b"AT&TFORM\0\0")

    refusal = refused(corpusmill("init", "none", "--input", tmp_path / "empty", "--data", tmp_path))

    assert FILE_DESCRIPTIONS.keys() == kinds, (
        "say in FILE_DESCRIPTIONS of corpus/normalize/drafts.py how its files are known and drafted"
    )
    endings = ".jsonl, .ndjson, .ndjsonl, .json, .parquet, .csv, .tsv, .txt, .md, .html, .htm, .xhtml, .ipynb, .docx"
    assert FILE_DESCRIPTIONS["local"] == f"files that end with {endings}, .pdf"
    assert (FILE_DESCRIPTIONS["stackexchange"], FILE_DESCRIPTIONS["wikipedia"]) == (
        "Posts.xml, a site's .7z",
        "output of wikiextractor",
    )
    assert refusal.endswith(
        f"(left out: scan.djvu (unknown format, binary)); expected {', '.join(FILE_DESCRIPTIONS.values())}"
    )


def test_init_shows_control_characters_in_names_of_columns_and_files(corpusmill: Corpusmill, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "rows.jsonl").write_text('{"my\\ntext\\u001b": "A text.", "a\\u0000": 1}\n')
    (folder / "empty\n.txt").write_text("")

    init = corpusmill("init", "odd", "--input", folder, "--data", tmp_path)

    assert init.stderr == f"{folder}: left out: empty⏎.txt (empty)\n"
    assert init.stdout.splitlines()[0] == (
        "text is the column `my⏎text␛` of rows.jsonl (a guess): set `columns: {text: …}` for another one"
    )
    written = (tmp_path / "recipes" / "odd.yaml").read_text()
    assert "  # columns of the files: my⏎text␛, a␀\n" in written
    assert yaml.safe_load(written)["sources"][0]["columns"] == {"text": "my\ntext\x1b"}


def test_init_uses_ids_that_repeat_only_with_equal_texts(corpusmill: Corpusmill, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.jsonl").write_text('{"id": 1, "text": "One."}\n{"id": true, "text": "Two."}\n')
    init = corpusmill("init", "mine", "--input", tmp_path, "--print")
    assert yaml.safe_load(init.stdout)["sources"][0]["columns"] == {"text": "text"}


def test_a_list_is_a_conversation_only_if_all_its_items_have_roles(corpusmill: Corpusmill, tmp_path: Path) -> None:
    people = [{"role": "author", "name": "Ann"}, {"name": "Bob"}]
    (tmp_path / "a.jsonl").write_text(json.dumps({"people": people, "note": "Some words of a note."}) + "\n")

    init = corpusmill("init", "mine", "--input", tmp_path, "--print")

    assert [source["columns"] for source in yaml.safe_load(init.stdout)["sources"]] == [{"text": "note"}]


def test_files_without_columns_join_the_source_of_a_usual_column(corpusmill: Corpusmill, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"instruction": "Why?", "output": "Because of this."}\n')
    (tmp_path / "b.jsonl").write_text('{"content": "One."}\n')
    (tmp_path / "c.xhtml").write_text("<?xml version='1.0'?><html><body><p>Two.</p></body></html>")

    init = corpusmill("init", "mine", "--input", tmp_path, "--print")

    texts, other = yaml.safe_load(init.stdout)["sources"]
    assert (texts["columns"], texts["exclude"]) == ({"text": "content"}, ["a.jsonl"])
    assert (other["columns"], other["files"]) == ({"text": "output"}, ["a.jsonl"])
    assert texts["files"] == ["**/*.jsonl", "**/*.xhtml"]


def test_init_prints_guessed_text_columns(corpusmill: Corpusmill, tmp_path: Path) -> None:
    folder = tmp_path / "of rows"
    folder.mkdir()
    (folder / "a.csv").write_text("id,Datum,Notiz,7\nx,2026-01-02 03:04:05,Ein Satz.,1\n")
    (folder / "dates.csv").write_text("Datum,Zahl\n2026-01-02,5\n")
    (folder / "by_id.jsonl").write_text('{"q1": {"text": "One."}, "q2": {"text": "Two."}}\n')
    (folder / "nested.jsonl").write_text('{"doc": {"body": "One.", "title": "A", "old": {"body": "Two."}}}\n')
    (folder / "pairs.jsonl").write_text('{"prompt": "Why?", "response": "Because of this."}\n')
    turns = [{"role": "user", "content": "Why?"}]
    (folder / "chat 1.jsonl").write_text(json.dumps({"messages": turns}) + "\n")

    init = corpusmill("init", "guesses", "--input", folder, "--data", tmp_path / "data")

    assert init.stdout.splitlines()[:3] == [
        "text is the column `Notiz` of a.csv (a guess): set `columns: {text: …}` for another one; the first line is "
        "read as the names of columns, but looks like data",
        "text is the column `q1.text` of by_id.jsonl (a guess): set `columns: {text: …}` for another one",
        "text is the column `response` of pairs.jsonl (a guess): set `columns: {text: …}` for another one; of `prompt` "
        "and `response` only this one is used: to train on both, write them as `messages` and read these with "
        "corpusmill nemotron normalize",
    ]
    assert f"nemotron normalize --dataset '{folder}' --split chat_1 --domain" in init.stderr
    assert f"{folder}: left out: dates.csv (no column contains text)" in init.stderr


@pytest.mark.parametrize(
    ("folders", "sources"),
    [
        (["Über Münster"], ["uber-munster"]),
        (["日本語"], ["mine"]),
        (["_drafts"], ["drafts"]),
        (["two\nlines"], ["two-lines"]),
        (["r" * 230], [f"{'r' * 100}-1888ad90"]),
        (["x/a", "y/a", "z/a-2"], ["a", "a-2", "a-2-2"]),
    ],
)
def test_init_names_sources_after_folders_of_any_name(
    corpusmill: Corpusmill, tmp_path: Path, folders: list[str], sources: list[str]
) -> None:
    for name in folders:
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "table.csv").write_text('"Notiz\n(kurz)"\nEin Satz.\n')
    inputs = [arg for name in folders for arg in ("--input", tmp_path / name)]

    init = corpusmill("init", "mine", *inputs, "--data", tmp_path / "data")

    assert init.returncode == 0, init.stderr
    assert init.stdout.startswith("text is the column `Notiz⏎(kurz)` of table.csv (a guess)")
    recipe = SYSTEMS.read_recipe(tmp_path / "data" / "recipes" / "mine.yaml")
    assert [source.source for source in recipe.sources] == sources  # type: ignore[attr-defined]
    assert [source.path for source in recipe.sources] == [str(tmp_path / name) for name in folders]  # type: ignore[attr-defined]
    assert {source.columns.text for source in recipe.sources} == {"Notiz\n(kurz)"}  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["123", "2026-01-01", "no"])
def test_init_writes_a_readable_recipe_if_yaml_reads_its_name_as_another_type(
    corpusmill: Corpusmill, mixed: Path, tmp_path: Path, name: str
) -> None:
    init = corpusmill("init", name, "--input", mixed, "--data", tmp_path)

    assert init.returncode == 0, init.stderr
    assert SYSTEMS.read_recipe(tmp_path / "recipes" / f"{name}.yaml").name == name
