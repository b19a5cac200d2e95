"""A folder of mixed files becomes packed rows, exports and a training loop.

Covers `init`, `run`, `recipes`, `export` and a notebook.
"""

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
import zstandard
from command_results import Corpusmill, refused

from corpusmill import open_folder
from pipeline_assets.build.rows.table_shard import DOCUMENT_SCHEMA
from pipeline_assets.corpus.normalize.drafts import FILE_DESCRIPTIONS, draft_sources
from pipeline_assets.corpus.normalize.sources import FileSource
from pipeline_assets.corpus.readers.source_folder import SourceFolder
from pipeline_assets.systems.registry import SYSTEMS

PROJECT = Path(__file__).parents[1]
WORDS = "One more line of plain words that nobody has written before, number"


def text(number: int) -> str:
    return " ".join(f"{WORDS} {number}." for _ in range(1 + number % 3)) + f"\n\nAnd a last line, {number}."


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write rows in three formats with two text columns, notes, and unreadable files."""
    folder = tmp_path_factory.mktemp("own") / "My Files"
    folder.mkdir()
    rows = [{"text": text(number), "doc_id": f"a-{number}", "id": number, "license": "MIT"} for number in range(30)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    more = [{"text": text(100 + number), "created_at": "2020-02-03"} for number in range(9)]
    (folder / "more.jsonl.gz").write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in more).encode()))
    table = pa.table({"body": [text(200 + number) for number in range(12)], "title": ["Of words"] * 12})
    pq.write_table(table, folder / "table.parquet")
    (folder / "deep").mkdir()
    for number in range(3):
        (folder / "deep" / f"note {number}.md").write_text(text(300 + number))
    (folder / "scan.djvu").write_bytes(b"AT&TFORM\0\0")
    (folder / "package.json").write_text('{\n  "name": "x"\n}\n')
    return folder


@pytest.fixture(scope="module")
def built(mixed: Path, corpusmill: Corpusmill, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the data root with `init` and `run`; tests only read it."""
    root = tmp_path_factory.mktemp("data")
    init = corpusmill("init", "mine", "--input", mixed, "--data", root)
    assert init.returncode == 0, init.stderr
    path = root / "recipes" / "mine.yaml"
    path.write_text(path.read_text().replace("seq_len: 2048", "seq_len: 64"))
    ran = corpusmill("run", "mine", "--data", root, "--workers", "0")
    assert ran.returncode == 0, ran.stderr
    return root


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

    assert init.returncode == 0, init.stderr
    stackexchange, wikipedia = yaml.safe_load((tmp_path / "recipes" / "both.yaml").read_text())["sources"]
    assert (stackexchange["kind"], stackexchange["host"], stackexchange["files"]) == (
        "stackexchange",
        "garden.stackexchange.com",
        ["Posts.xml"],
    )
    assert (wikipedia["kind"], wikipedia["dump_date"], wikipedia["language"]) == ("wikipedia", "2026-11-01", "en")


def test_digits_of_a_longer_number_in_a_path_are_not_a_dump_date(tmp_path: Path) -> None:
    pages = tmp_path / "job-720190230155" / "AA"
    pages.mkdir(parents=True)
    (pages / "wiki_00").write_text('<doc id="1" url="?curid=1" title="Soil">\nSoil\n\nSoil is soil.\n</doc>\n')

    [draft], _ = draft_sources(SourceFolder(pages.parent, ("**/*",)), "pages")

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

    [draft], _ = draft_sources(SourceFolder(tmp_path, ("**/*",)), "rows")

    assert draft.content["columns"] == columns
    assert ("licences that are no text, such as lists, are unknown" in draft.notes["columns"]) == (len(columns) == 2)


def test_init_refuses_a_url_and_names_the_recipe_key(corpusmill: Corpusmill, tmp_path: Path) -> None:
    assert refused(corpusmill("init", "notes", "--input", "s3://bucket/notes", "--data", tmp_path)) == (
        "s3://bucket/notes: only local files are read here; write this URL as the path of a source in a "
        "recipe (docs/object_stores.md), or copy the files"
    )


@pytest.mark.parametrize(("site", "kind"), [("wiktionary", "local"), ("wikipedia", "wikipedia")])
def test_json_lines_of_another_wiki_are_a_local_source(site: str, kind: str, tmp_path: Path) -> None:
    page = {"id": "1", "url": f"https://en.{site}.org/wiki?curid=1", "title": "Soil", "text": "Soil is soil."}
    (tmp_path / "wiki_00.jsonl").write_text(json.dumps(page) + "\n")

    [draft], _ = draft_sources(SourceFolder(tmp_path, ("**/*",)), "pages")

    assert draft.content["kind"] == kind


def test_init_knows_the_files_of_every_kind_of_source(corpusmill: Corpusmill, tmp_path: Path) -> None:
    sections = [section.model_fields["kind"].annotation for section in get_args(FileSource)]
    kinds = {kind for annotation in sections for kind in get_args(annotation)}
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "scan.djvu").write_bytes(b"AT&TFORM\0\0")

    refusal = refused(corpusmill("init", "none", "--input", tmp_path / "empty", "--data", tmp_path))

    assert FILE_DESCRIPTIONS.keys() == kinds, (
        "say in FILE_DESCRIPTIONS of corpus/normalize/drafts.py how its files are known and drafted"
    )
    endings = ".jsonl, .ndjson, .ndjsonl, .json, .parquet, .csv, .tsv, .txt, .md, .html, .htm, .ipynb, .docx, .pdf"
    assert FILE_DESCRIPTIONS["local"] == f"files that end with {endings}"
    assert (FILE_DESCRIPTIONS["stackexchange"], FILE_DESCRIPTIONS["wikipedia"]) == (
        "Posts.xml, a site's .7z",
        "output of wikiextractor",
    )
    assert refusal.endswith(
        f"(left out: scan.djvu (unknown format, binary)); expected {', '.join(FILE_DESCRIPTIONS.values())}"
    )


def test_init_explains_why_no_file_is_readable(corpusmill: Corpusmill, tmp_path: Path) -> None:
    folder = tmp_path / "broken"
    folder.mkdir()
    (folder / "cut.jsonl.gz").write_bytes(gzip.compress(b'{"text": "A few words."}\n' * 99)[:-9])
    (folder / "numbers.jsonl").write_text('{"foo": 1}\n')

    refusal = refused(corpusmill("init", "none", "--input", folder, "--data", tmp_path))

    reasons = "cut.jsonl.gz (the gzip stream is truncated), numbers.jsonl (no column contains text)"
    assert f"{folder}: no readable files in the folder (left out: {reasons}); expected " in refusal


def test_init_explains_omitted_files_and_reports_links_and_copies(corpusmill: Corpusmill, tmp_path: Path) -> None:
    folder = tmp_path / "odd"
    folder.mkdir()
    turns = [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "So."}]
    files: dict[str, bytes] = {
        "a.txt": b"A text.",
        "b.txt": b"A text.",
        "c.csv": b"id,text\n1,A row.\n",
        "chat.jsonl": json.dumps({"id": "1", "messages": turns}).encode(),
        "broken.docx": b"PK",
        "empty.md": b"",
        "latin 1.txt": "é".encode("latin-1"),
        "notutf.py": "é".encode("latin-1"),
        "nul.txt": b"A text.\0",
        "nested.jsonl": b'{"id": "a name", "doc": {"body": {"text": "Deep."}}}',
        "one.py": b"1",
        "table.xlsx": b"PK\x03\x04",
        "talk.json": b'[{"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]}]',
        "two.py": b"2",
        "utf16.txt": "A".encode("utf-16"),
        "utf32.txt": "A".encode("utf-32"),
    }
    for name, content in files.items():
        (folder / name).write_bytes(content)
    (folder / ".git").mkdir()
    (folder / ".git" / "HEAD").write_text("ref")
    (folder / ".env").write_text("A=1")
    for number in range(6):
        (folder / f"{number}.R").write_text("x")
    (folder / "old.tar.gz").write_bytes(gzip.compress(bytes(1024)))
    (folder / "old.zip").write_bytes(b"PK\5\6" + bytes(18))
    (folder / "link.html").symlink_to("a.txt")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "d.txt").write_text("Another text.")
    (folder / "linked").symlink_to(tmp_path / "other")

    init = corpusmill("init", "odd", "--input", folder, "--data", tmp_path / "data")

    chat = f"corpusmill nemotron normalize --dataset {folder} --split chat --domain chat_if --out-dir data"
    assert init.stderr.replace(f"{folder}: ", "").splitlines() == [
        "left out: 2 hidden files: .env, .git/ (files and folders whose names begin with a dot are not read)",
        "left out: 6 .r files, such as 0.R, 1.R, 2.R, 3.R, 4.R (unknown format; to read it as text, add `**/*.R` to "
        "`files`, and set `text_endings: [.r]`)",
        "left out: broken.docx (not_docx: BadZipFile)",
        f"left out: chat.jsonl (conversations in `messages`; read them with: {chat})",
        "left out: empty.md (empty)",
        "left out: latin 1.txt (not UTF-8; convert it, such as: iconv -f WINDOWS-1252 -t UTF-8 'latin 1.txt' "
        "-o 'latin 1.txt'.utf8.txt)",
        "left out: notutf.py (unknown format, not UTF-8)",
        "left out: nul.txt (NUL characters; remove them: tr -d '\\000' < nul.txt > nul.txt.text.txt)",
        "left out: old.tar.gz (unpack it: tar -xf old.tar.gz)",
        "left out: old.zip (unpack it: unzip old.zip)",
        "left out: 2 .py files: one.py, two.py (unknown format; to read it as text, add `**/*.py` to `files`, and set "
        "`text_endings: [.py]`)",
        "left out: table.xlsx (convert it: soffice --headless --convert-to csv table.xlsx)",
        f"left out: talk.json (conversations in `messages`; read them with: {chat.replace('chat ', 'talk ', 1)})",
        "left out: utf16.txt (UTF-16; convert it: iconv -f UTF-16 -t UTF-8 utf16.txt -o utf16.txt.utf8.txt)",
        "left out: utf32.txt (UTF-32; convert it: iconv -f UTF-32 -t UTF-8 utf32.txt -o utf32.txt.utf8.txt)",
        "links are followed: link.html, linked/d.txt",
        "copies, which `dedup` drops: b.txt equals a.txt, link.html equals a.txt",
    ]
    first, other = yaml.safe_load((tmp_path / "data" / "recipes" / "odd.yaml").read_text())["sources"]
    assert (first["source"], first["files"]) == ("odd", ["**/*.csv", "**/*.html", "**/*.txt"])
    assert first["exclude"] == ["latin 1.txt", "nul.txt", "utf16.txt", "utf32.txt"]
    assert (other["source"], other["columns"]) == ("odd-doc-body-text", {"text": "doc.body.text"})


def test_init_refuses_inputs_that_share_a_file(corpusmill: Corpusmill, tmp_path: Path) -> None:
    (tmp_path / "in" / "sub").mkdir(parents=True)
    (tmp_path / "in" / "sub" / "a.txt").write_text("One text.")
    inputs = ("--input", "in", "--input", "in/sub")

    refusal = refused(corpusmill("init", "twice", *inputs, "--data", "data", cwd=tmp_path))

    assert refusal == "in/sub: the file a.txt is also in in; pass each file in one --input"
    assert not (tmp_path / "data").exists()


def test_init_omits_dead_links_pipes_and_loops_and_run_reads_the_rest(corpusmill: Corpusmill, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.txt").write_text("A text of some words.")
    (folder / "dead.txt").symlink_to("gone")
    (folder / "self").symlink_to(".")
    os.mkfifo(folder / "pipe.txt")
    (folder / os.fsdecode(b"caf\xe9.txt")).write_text("A text in a file without a name in UTF-8.")

    init = corpusmill("init", "odd", "--input", folder, "--data", tmp_path)
    ran = corpusmill("run", "odd", "--data", tmp_path, "--workers", "0")

    reason = "a broken link, a link to a folder above it, or a pipe"
    assert init.stderr.replace(f"{folder}: left out: ", "").splitlines() == [
        "caf?.txt (a name that is not UTF-8; rename the file)",
        f"2 .txt files: dead.txt, pipe.txt ({reason})",
        f"self ({reason})",
    ]
    assert ran.returncode == 0 and "normalized/in  1 document\n" in ran.stdout


def test_init_omits_dumps_in_name_only_and_run_reads_the_rest(corpusmill: Corpusmill, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    files: dict[str, bytes] = {
        "backup.7z": b"7z\xbc\xaf\x27\x1c",
        "feed.7z": b"<html>",
        "nan.jsonl": b'{"text": "A text.", "score": NaN}\n' * 3,
        "posts.xml": b"<rss/>",
        "wiki_00": b'<doc id="1" url="?curid=1" title="Soil">\nSoil\n\n'
        + b"Soil is of many grains. " * 60
        + b"\n</doc>\n",
        "wiki_logo.png": b"\x89PNG\0\0",
        "wiki_notes.md": b"A note of some words.",
        "wiki_rows.jsonl": b'{"text": "A row of some words."}\n',
    }
    for name, content in files.items():
        (folder / name).write_bytes(content)

    init = corpusmill("init", "odd", "--input", folder, "--data", tmp_path)
    ran = corpusmill("run", "odd", "--data", tmp_path, "--workers", "0")

    no_site = "the path does not contain the site; set it, such as stackoverflow.com, or rename the file to <site>.7z"
    assert init.stderr.replace(f"{folder}: left out: ", "").splitlines() == [
        "nan.jsonl (no row can be read (not_json: JSON is malformed: invalid character (byte 29)))",
        "wiki_logo.png (unknown format, binary)",
        f"posts.xml ({no_site} or <site>/Posts.xml)",
        f"backup.7z ({no_site} or <site>/Posts.xml)",
        "feed.7z (not a 7z archive: the file begins with '<html>'; fetch it again)",
    ]
    wikipedia, local = yaml.safe_load((tmp_path / "recipes" / "odd.yaml").read_text())["sources"]
    assert (local["files"], local["exclude"]) == (["**/*.jsonl", "**/*.md"], ["nan.jsonl"])
    assert wikipedia["files"] == ["wiki_00"]
    assert "normalized/in  2 documents\n" in ran.stdout and "normalized/wikipedia  1 document\n" in ran.stdout


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


@pytest.mark.parametrize(("name", "input_path"), [("", "."), ("none", "")])
def test_init_refuses_an_empty_name_or_path(corpusmill: Corpusmill, tmp_path: Path, name: str, input_path: str) -> None:
    refused(corpusmill("init", name, "--input", input_path, "--data", tmp_path / "data", cwd=tmp_path))

    assert list(tmp_path.iterdir()) == []


def test_files_with_equal_row_numbers_lose_no_rows(corpusmill: Corpusmill, tmp_path: Path) -> None:
    root, files = tmp_path / "data", tmp_path / "files"
    files.mkdir()
    for name in ("a", "b"):
        rows = "".join(f"{number},Row {number} of {name}\n" for number in range(3))
        (files / f"{name}.csv").write_text(f"id,text\n{rows}")

    assert corpusmill("init", "mine", "--input", files, "--data", root).returncode == 0
    recipe = root / "recipes" / "mine.yaml"
    complete = corpusmill("run", "mine", "--data", root, "--workers", "0")
    recipe.write_text(recipe.read_text().replace("id: null, ", ""))
    incomplete = corpusmill("run", "mine", "--data", root, "--workers", "0", "--replace", "--strict")

    assert "different texts have the id 0" in recipe.read_text()
    assert "normalized/files  6 documents\n" in complete.stdout
    assert "rejected" not in complete.stderr
    assert "normalized/files  3 documents; other rows: 3 duplicate_doc_id\n" in incomplete.stdout
    assert incomplete.returncode == 1
    assert (
        "files: 3 of 6 rows were rejected, because their ids repeat; unless they are copies, "
        "set `columns.id` to another column, or to null for ids that are derived from the texts\n"
    ) in incomplete.stderr


def test_init_omits_an_id_column_with_repeated_ids(corpusmill: Corpusmill, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.jsonl").write_text('{"id": 1, "text": "One."}\n{"id": true, "text": "Two."}\n')
    init = corpusmill("init", "mine", "--input", tmp_path, "--print")
    assert yaml.safe_load(init.stdout)["sources"][0]["columns"] == {"text": "text"}


def test_a_small_folder_becomes_one_padded_row(corpusmill: Corpusmill, tmp_path: Path) -> None:
    (tmp_path / "few").mkdir()
    (tmp_path / "few" / "a.txt").write_text("A few words alone.")
    corpusmill("init", "few", "--input", tmp_path / "few", "--data", tmp_path / "data")

    planned = corpusmill("plan", "few", "--data", tmp_path / "data").stdout.splitlines()
    ran = corpusmill("run", "few", "--data", tmp_path / "data", "--workers", "0")

    assert ran.returncode == 0, ran.stderr
    assert "  less than one row is possible" in planned
    assert re.fullmatch(rf"  {tmp_path}/data: [\d.]+ [GTM]B free", planned[-1])  # the required size is unknown
    packed = open_folder(tmp_path / "data" / "stage_a" / "few" / "packed" / "few").packed()
    assert packed.input_ids.shape == (1, 2048)
    assert packed.meta.tokens == 6


def test_init_prints_guessed_text_columns(corpusmill: Corpusmill, tmp_path: Path) -> None:
    folder = tmp_path / "of rows"
    folder.mkdir()
    (folder / "a.csv").write_text("id,Datum,Notiz,7\nx,2026-01-02 03:04:05,Ein Satz.,1\n")
    (folder / "dates.csv").write_text("Datum,Zahl\n2026-01-02,5\n")
    (folder / "pairs.jsonl").write_text('{"prompt": "Why?", "response": "Because of this."}\n')
    turns = [{"role": "user", "content": "Why?"}]
    (folder / "chat 1.jsonl").write_text(json.dumps({"messages": turns}) + "\n")

    init = corpusmill("init", "guesses", "--input", folder, "--data", tmp_path / "data")

    assert init.stdout.splitlines()[:2] == [
        "text is the column `Notiz` of a.csv (a guess): set `columns: {text: …}` for another one; the first line is "
        "read as the names of columns, but looks like data",
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


@pytest.mark.parametrize("name", ["123", "2026-01-01", "no", "1.5"])
def test_init_writes_a_readable_recipe_if_yaml_reads_its_name_as_another_type(
    corpusmill: Corpusmill, mixed: Path, tmp_path: Path, name: str
) -> None:
    init = corpusmill("init", name, "--input", mixed, "--data", tmp_path)

    assert init.returncode == 0, init.stderr
    assert SYSTEMS.read_recipe(tmp_path / "recipes" / f"{name}.yaml").name == name


@pytest.mark.parametrize(
    ("name", "valid"), [("", "notes"), ("é", "e"), ("_x", "x"), ("mine.yaml", "mine"), ("語", "notes")]
)
def test_init_refuses_an_invalid_recipe_name(
    corpusmill: Corpusmill, mixed: Path, tmp_path: Path, name: str, valid: str
) -> None:
    refusal = refused(corpusmill("init", name, "--input", mixed, "--data", tmp_path))

    rule = "the recipe's name must be lower case, without blanks, accents and .yaml"
    assert refusal == f"init: {rule}, got {name!r}; write {valid}"


@pytest.mark.parametrize("hidden", [[], [".env"]])
def test_init_without_visible_files_names_no_keys(corpusmill: Corpusmill, tmp_path: Path, hidden: list[str]) -> None:
    (tmp_path / "none").mkdir()
    for name in hidden:
        (tmp_path / "none" / name).write_text("A=1")

    refusal = refused(corpusmill("init", "none", "--input", tmp_path / "none", "--data", tmp_path / "data"))

    why = " (left out: .env (files and folders whose names begin with a dot are not read))" if hidden else ""
    assert f"{tmp_path / 'none'}: no readable files in the folder{why}; expected Posts.xml" in refusal


def test_text_endings_without_files_are_refused(corpusmill: Corpusmill, mixed: Path, tmp_path: Path) -> None:
    corpusmill("init", "mine", "--input", mixed, "--data", tmp_path)
    path = tmp_path / "recipes" / "mine.yaml"
    path.write_text(path.read_text().replace("    domain:", "    text_endings: [.py]\n    domain:", 1))

    refusal = refused(corpusmill("plan", "mine", "--data", tmp_path))

    assert refusal.endswith(
        "no file of the source ends with .py; add the files to `files`, such as **/*.py, or remove `text_endings`"
    )


def test_init_replaces_no_recipe_and_reads_no_artifacts(corpusmill: Corpusmill, mixed: Path, built: Path) -> None:
    refusal = refused(corpusmill("init", "mine", "--input", mixed, "--data", built))
    assert refusal == (
        f"{built / 'recipes' / 'mine.yaml'}: the recipe exists; edit it (--print prints a new draft of "
        "the same files), or choose another name"
    )

    assert refused(corpusmill("init", "My Notes", "--input", mixed, "--data", built)) == (
        "init: the recipe's name must be lower case, without blanks, accents and .yaml, got 'My Notes'; write my-notes"
    )

    shipped = refused(corpusmill("init", "stage_a_v1", "--input", mixed, "--data", built))
    assert shipped == "stage_a_v1: a shipped recipe has this name; choose another name"
    before = (built / "recipes" / "mine.yaml").read_text()
    printed = corpusmill("init", "mine", "--input", mixed, "--data", built, "--print")
    assert printed.stdout == before.replace("seq_len: 64", "seq_len: 2048")
    assert (built / "recipes" / "mine.yaml").read_text() == before

    artifact_refusal = refused(corpusmill("init", "none", "--input", built / "stage_a", "--data", built))
    assert "no readable files in the folder" in artifact_refusal
    assert not (built / "recipes" / "none.yaml").exists()


def test_a_data_root_in_the_folder_is_not_read_by_a_second_run(corpusmill: Corpusmill, tmp_path: Path) -> None:
    (tmp_path / "notes.jsonl.zst").write_bytes(zstandard.compress(b'{"text": "A text."}\n'))
    (tmp_path / "notes.json").write_text(json.dumps([{"text": "Another text."}]))
    init = corpusmill("init", "mine", "--input", ".", cwd=tmp_path)
    first, again = (corpusmill("run", "mine", "--workers", "0", cwd=tmp_path) for _ in range(2))

    assert (init.returncode, first.returncode, again.returncode) == (0, 0, 0), again.stderr
    recipe = yaml.safe_load((tmp_path / "data" / "recipes" / "mine.yaml").read_text())
    assert (recipe["sources"][0]["files"], recipe["sources"][0]["exclude"]) == (
        ["**/*.json", "**/*.jsonl.zst"],
        ["data"],
    )
    assert "built" not in again.stdout


def test_a_copy_among_the_artifacts_of_its_data_root_is_refused(corpusmill: Corpusmill, built: Path) -> None:
    """The digest would lead to the copy, which lacks the files in its manifest."""
    folder = built / "stage_a" / "mine" / "deduplicated" / "mine"

    refusals = [
        refused(corpusmill("export", folder, "--to", to, "--out", built / out))
        for to, out in (("parquet", "stage_a/copies/mine"), ("jsonl", "corpora"), ("hf", "stage_a/../nemotron/mine"))
    ]

    assert all("a copy in this folder would be taken for its artifact; choose a folder" in text for text in refusals)
    assert not (built / "corpora").exists() and not (built / "stage_a" / "copies").exists()


def test_an_export_into_an_artifact_is_refused(corpusmill: Corpusmill, built: Path) -> None:
    folder = built / "stage_a" / "mine" / "deduplicated" / "mine"

    refusal = refused(corpusmill("export", folder, "--out", folder / "copy"))

    fix = "choose another output folder"
    assert refusal == f"{folder / 'copy'}: the folder is inside the sealed artifact {folder}; {fix}"
    assert not (folder / "copy").exists()


def test_a_recipe_of_init_packs_every_document(built: Path) -> None:
    packed = open_folder(built / "stage_a" / "mine" / "packed" / "mine")

    counts = packed.manifest.identity.counts
    assert counts["documents"] == 30 + 9 + 12 + 3
    assert {counted["epochs"] for counted in counts["by_source"].values()} == {"1.000000"}
    assert counts["tokens"] == sum(counted["text_tokens"] for counted in counts["by_source"].values())


def test_usual_columns_are_used_where_rows_have_them(built: Path) -> None:
    normalized = open_folder(built / "stage_a" / "mine" / "normalized" / "my-files")

    documents = {document.meta.source_file: document for document in normalized.documents()}

    rows = documents["rows.jsonl"]
    assert (rows.doc_id[:2], rows.license_tag, rows.meta.license_evidence) == ("a-", "mit", "row: license")
    assert documents["more.jsonl.gz"].created_at == "2020-02-03T00:00:00.000"
    assert len(documents["deep/note 0.md"].doc_id) == 64


def test_recipes_lists_existing_recipes_with_their_state(built: Path, corpusmill: Corpusmill) -> None:
    (built / "recipes" / "broken.yaml").write_text("system: stage_a\n")

    listed = corpusmill("recipes", "--data", built)

    lines = {line.split()[0]: line for line in listed.stdout.splitlines()}
    (built / "recipes" / "broken.yaml").unlink()
    assert (listed.returncode, listed.stderr) == (0, "")
    assert "9 current" in lines["mine"]
    assert "cannot be read" in lines["broken"]
    assert {"healing_text_v1", "stage_a_v1", "nemotron_v1"} <= lines.keys()


@pytest.mark.parametrize("system", ["healing", "stage_a", "nemotron", "stage2", "parallel_text"])
def test_the_json_schema_accepts_shipped_recipes_and_refuses_unknown_keys(system: str, corpusmill: Corpusmill) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    printed = corpusmill("recipes", "--schema", system)
    schema = json.loads(printed.stdout)
    shipped = [yaml.safe_load(path.read_text()) for path in (PROJECT / "manifests" / "recipes").glob("*.yaml")]
    recipes = [recipe for recipe in shipped if recipe["system"] == system]

    assert recipes
    for recipe in recipes:
        jsonschema.validate(recipe, schema)
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(recipe | {"sead": 1}, schema)


def test_load_dataset_reads_an_unchanged_export(built: Path, corpusmill: Corpusmill, tmp_path: Path) -> None:
    import datasets

    folder = built / "stage_a" / "mine" / "deduplicated" / "mine"
    expected = open_folder(folder).table().to_pylist()

    for to in ("parquet", "jsonl", "hf"):
        out = tmp_path / to
        result = corpusmill("export", folder, "--to", to, "--out", out)
        assert result.returncode == 0, result.stderr
        assert result.stdout.startswith(f"{out}: 54 rows in 2 files, ")
        read = datasets.load_dataset(str(out), split="train", cache_dir=str(tmp_path / "cache"))
        assert read.to_list() == expected
        card = (out / "README.md").read_text()
        assert "| `my-files` | `mit` | 30 |" in card
        assert open_folder(folder).manifest.digest in card
        assert (out / "manifest.json").read_bytes() == (folder / "manifest.json").read_bytes()


def test_exports_have_equal_bytes_and_replace_nothing(built: Path, corpusmill: Corpusmill, tmp_path: Path) -> None:
    folder = built / "stage_a" / "mine" / "filtered" / "my-files"
    for name in ("one", "two"):
        (tmp_path / ".one.building").mkdir(exist_ok=True)  # of a killed export
        corpusmill("export", folder, "--out", tmp_path / name)

    first, second = ({path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in ("one", "two"))

    assert first == second
    assert "folder already exists" in refused(corpusmill("export", folder, "--out", tmp_path / "one"))
    tokens = built / "stage_a" / "mine" / "packed" / "mine"
    assert "expected rows of text, got" in refused(corpusmill("export", tokens, "--out", tmp_path / "three"))


def test_a_notebook_reads_rows_and_traces_them_to_their_files(built: Path) -> None:
    corpus = open_folder(built / "stage_a" / "mine" / "deduplicated" / "mine")

    table, documents = corpus.table(), list(corpus.documents())

    assert table.schema == DOCUMENT_SCHEMA
    assert table["doc_id"].to_pylist() == [document.doc_id for document in documents]
    [match] = corpus.trace(doc_id="a-7")
    assert (match.text.source.file, match.text.part.text) == ("rows.jsonl", text(7))
    packed = open_folder(built / "stage_a" / "mine" / "packed" / "mine")
    [token] = packed.trace(token=0)
    assert token.token is not None and token.token.id == packed.packed()[0][0]
    assert repr(corpus).startswith("<stage_a/deduplicated ") and "54 documents" in repr(corpus)


def test_a_notebook_runs_a_recipe_and_trains_on_its_rows_without_dagster(built: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    shutil.copytree(built / "recipes", tmp_path / "recipes")
    code = (
        "import sys\n"
        "from corpusmill import run\n"
        f"made = run('mine', {str(tmp_path)!r}, workers=0)\n"
        "loaded = {'dagster', 'torch'} & set(sys.modules)\n"
        "from corpusmill import loader\n"
        "[packed] = made['stage_a/packed']\n"
        "rows = sum(len(tokens) for tokens, _, _ in loader(packed.folder, 4, seed=1))\n"
        "print(rows, packed.manifest.digest, *loaded)\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=PROJECT, check=True)

    packed = open_folder(built / "stage_a" / "mine" / "packed" / "mine")
    assert result.stdout.split() == [str(len(packed.packed())), packed.manifest.digest]
