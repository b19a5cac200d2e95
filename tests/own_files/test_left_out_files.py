"""Files that `init` leaves out of a recipe, with the reason for each."""

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from command_results import Corpusmill, refused
from pyarrow import feather, orc


def test_init_explains_why_no_file_is_readable(corpusmill: Corpusmill, tmp_path: Path) -> None:
    folder = tmp_path / "broken"
    folder.mkdir()
    (folder / "cut.jsonl.gz").write_bytes(gzip.compress(b'{"text": "A few words."}\n' * 99)[:-9])
    (folder / "late.jsonl").write_text('{"foo": 1}\n' * 20 + '{"text": "A few words."}\n')
    (folder / "numbers.jsonl").write_text('{"foo": 1}\n')

    refusal = refused(corpusmill("init", "none", "--input", folder, "--data", tmp_path))

    reasons = "cut.jsonl.gz (the gzip stream is truncated), late.jsonl (no column contains text in the first 20 rows)"
    reasons += ", numbers.jsonl (no column contains text)"
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
    (folder / "-old.zip").write_bytes(b"PK\5\6" + bytes(18))
    (folder / "link.html").symlink_to("a.txt")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "d.txt").write_text("Another text.")
    (folder / "linked").symlink_to(tmp_path / "other")

    init = corpusmill("init", "odd", "--input", folder, "--data", tmp_path / "a FILE")

    normalize = f"corpusmill nemotron normalize --dataset {folder} --split chat"
    chat = f"{normalize} --domain chat_if --out-dir '{tmp_path / 'a FILE'}'"
    assert init.stderr.replace(f"{folder}: ", "").splitlines() == [
        "left out: 2 hidden files: .env, .git/ (files and folders whose names begin with a dot are not read)",
        f"left out: -old.zip (unpack it: unzip {folder}/-old.zip -d {folder})",
        "left out: 6 .r files, such as 0.R, 1.R, 2.R, 3.R, 4.R (unknown format; to read it as text, add `**/*.R` to "
        "`files`, and set `text_endings: [.r]`)",
        "left out: broken.docx (not_docx: BadZipFile)",
        f"left out: chat.jsonl (conversations in `messages`; read them with: {chat})",
        "left out: empty.md (empty)",
        "left out: latin 1.txt (not UTF-8; convert it, such as: iconv -f WINDOWS-1252 -t UTF-8 "
        f"'{folder}/latin 1.txt' -o '{folder}/latin 1.txt'.utf8.txt)",
        "left out: notutf.py (unknown format, not UTF-8)",
        "left out: nul.txt (NUL characters; remove them: "
        f"tr -d '\\000' < {folder}/nul.txt > {folder}/nul.txt.text.txt)",
        f"left out: old.tar.gz (unpack it: tar -xf {folder}/old.tar.gz -C {folder})",
        "left out: 2 .py files: one.py, two.py (unknown format; to read it as text, add `**/*.py` to `files`, and set "
        "`text_endings: [.py]`)",
        f"left out: table.xlsx (convert it: soffice --headless --outdir {folder} --convert-to csv {folder}/table.xlsx)",
        f"left out: talk.json (conversations in `messages`; read them with: {chat.replace('chat ', 'talk ', 1)})",
        "left out: utf16.txt (UTF-16; convert it: "
        f"iconv -f UTF-16 -t UTF-8 {folder}/utf16.txt -o {folder}/utf16.txt.utf8.txt)",
        "left out: utf32.txt (UTF-32; convert it: "
        f"iconv -f UTF-32 -t UTF-8 {folder}/utf32.txt -o {folder}/utf32.txt.utf8.txt)",
        "links are followed: link.html, linked/d.txt",
        "copies, which `dedup` drops: b.txt equals a.txt, link.html equals a.txt",
    ]
    first, other = yaml.safe_load((tmp_path / "a FILE" / "recipes" / "odd.yaml").read_text())["sources"]
    assert (first["source"], first["files"]) == ("odd", ["**/*.csv", "**/*.html", "**/*.txt"])
    assert first["exclude"] == ["latin 1.txt", "nul.txt", "utf16.txt", "utf32.txt"]
    assert (other["source"], other["columns"]) == ("odd-doc-body-text", {"text": "doc.body.text"})


def test_printed_commands_work_in_any_folder_and_decompress_first(corpusmill: Corpusmill, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.txt").write_text("A text.")
    (folder / "latin.txt.gz").write_bytes(gzip.compress("é".encode("latin-1")))
    (folder / "nul.txt.gz").write_bytes(gzip.compress(b"A text.\0"))
    (folder / "old.doc.gz").write_bytes(gzip.compress(b"a"))
    (folder / "torn.txt.gz").write_bytes(b"\x8b\xe9")

    lines = corpusmill("init", "odd", "--input", folder, "--data", tmp_path).stderr
    for command in re.findall(r": (gzip [^)]+)\)", lines):
        subprocess.run(command, shell=True, check=True, cwd=tmp_path)

    assert (folder / "latin.txt.gz.utf8.txt").read_text("utf-8") == "é"
    assert (folder / "nul.txt.gz.text.txt").read_bytes() == b"A text."
    assert (folder / "old.doc.gz.doc").read_bytes() == b"a"
    assert "torn.txt.gz (neither compressed nor UTF-8; fetch it again)" in lines


def test_printed_commands_convert_files_of_arrow_to_parquet(corpusmill: Corpusmill, tmp_path: Path) -> None:
    folder, table = tmp_path / "in", pa.table({"text": ["A text of some words."]})
    folder.mkdir()
    feather.write_feather(table, folder / "f.feather")
    feather.write_feather(table, folder / "file.arrow")
    orc.write_table(table, folder / "o.orc")
    with pa.ipc.new_stream(folder / "data-00000-of-00001.arrow", table.schema) as stream:  # as `save_to_disk` writes
        stream.write_table(table)

    lines = refused(corpusmill("init", "odd", "--input", folder, "--data", tmp_path))
    lines += corpusmill("init", "odd", "--input", folder / "[f-o]*", "--data", tmp_path).stderr
    for command in {*re.findall(r"convert it: python (-c '[^']+' [^ )]+)", lines)}:
        subprocess.run(f"{sys.executable} {command}", shell=True, check=True)

    converted = sorted(folder.glob("*.parquet"))
    assert [path.name for path in converted] == [
        "data-00000-of-00001.arrow.parquet",
        "f.feather.parquet",
        "file.arrow.parquet",
        "o.orc.parquet",
    ]
    assert all(pq.read_table(path).to_pylist() == table.to_pylist() for path in converted)


def test_init_prints_commands_that_convert_conversations_and_rows(corpusmill: Corpusmill, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    turns = [{"from": "human", "value": "Why?"}, {"from": "gpt", "value": "So."}, {"from": "tool", "value": "3"}]
    nodes = {
        "a": ("root", "user", ["Why?"]),
        "b": ("a", "assistant", ["Old."]),
        "c": ("a", "assistant", ["New", {}, "s"]),
    }
    tree: dict[str, Any] = {"root": {"parent": None, "message": None}}
    for node, (parent, role, parts) in nodes.items():
        tree[node] = {"parent": parent, "message": {"author": {"role": role}, "content": {"parts": parts}}}
    (folder / "a.txt").write_text("A text.")
    (folder / "chat.jsonl.gz").write_bytes(gzip.compress(json.dumps({"id": "x", "the turns": turns}).encode()))
    (folder / "export.json").write_text(json.dumps([{"title": "T", "current_node": "c", "mapping": tree}]))
    (folder / "rows.json").write_text(json.dumps({"the rows": [{"text": "A text of some words."}]}))

    lines = corpusmill("init", "odd", "--input", folder, "--data", tmp_path).stderr
    commands = re.findall(r"(?:as lines|`init` again): (.*\.jsonl)\)", lines)
    assert len(commands) == 3
    if shutil.which("jq") is None:
        pytest.skip("jq is not installed")
    for command in commands:
        subprocess.run(command, shell=True, check=True)

    question = {"role": "user", "content": "Why?"}
    assert {path.name: json.loads(path.read_text()) for path in folder.glob("*.*.jsonl")} == {
        "chat.jsonl.gz.jsonl": {
            "id": "x",
            "messages": [question, {"role": "assistant", "content": "So."}, {"role": "tool", "content": "3"}],
        },
        "export.json.jsonl": {"title": "T", "messages": [question, {"role": "assistant", "content": "New\ns"}]},
        "rows.json.jsonl": {"text": "A text of some words."},
    }


def test_init_omits_dead_links_pipes_and_loops_and_run_reads_the_rest(corpusmill: Corpusmill, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.txt").write_text("A text of some words.")
    (folder / "dead.txt").symlink_to("gone")
    (folder / "self").symlink_to(".")
    os.mkfifo(folder / "pipe.txt")
    (folder / os.fsdecode(b"caf\xe9.txt")).write_text("A text in a file without a name in UTF-8.")
    (folder / "cafe.txt").write_text("Another text, of a name in UTF-8.")

    init = corpusmill("init", "odd", "--input", folder, "--data", tmp_path)
    ran = corpusmill("run", "odd", "--data", tmp_path, "--workers", "0")

    reason = "a broken link, a link to a folder above it, or a pipe"
    assert init.stderr.replace(f"{folder}: left out: ", "").splitlines() == [
        "caf\ufffd.txt (a name that is not UTF-8; rename the file)",
        f"2 .txt files: dead.txt, pipe.txt ({reason})",
        f"self ({reason})",
    ]
    assert ran.returncode == 0 and "normalized/in  2 documents\n" in ran.stdout


def test_a_pattern_ends_at_links_that_loop_and_in_folders_nested_too_deep(
    corpusmill: Corpusmill, tmp_path: Path
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.txt").write_text("A text of some words.")
    for name in ("one", "two"):  # `glob` would follow 2 ** 40 paths
        (folder / name).symlink_to(".")
    (tmp_path / "deep" / "/".join("d" * 401)).mkdir(parents=True)

    looped = corpusmill("init", "odd", "--input", folder / "**" / "*.txt", "--data", tmp_path)
    lines = {
        refused(corpusmill("init", "deep", "--input", path, "--data", tmp_path)).replace(str(tmp_path), "")
        for path in (tmp_path / "deep", tmp_path / "deep" / "**" / "*.txt")
    }

    assert (looped.returncode, looped.stderr) == (0, "")  # the pattern matches no link
    fix = "move the inner folders up, or out of this folder"
    assert lines == {f"/deep: folders are nested more than 400 levels deep; {fix}"}


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


def test_init_without_visible_files_names_no_keys(corpusmill: Corpusmill, tmp_path: Path) -> None:
    folder = tmp_path / "none"
    folder.mkdir()
    hidden = " (left out: .env (files and folders whose names begin with a dot are not read))"

    for why in ("", hidden):
        refusal = refused(corpusmill("init", "none", "--input", folder, "--data", tmp_path / "data"))
        assert f"{folder}: no readable files in the folder{why}; expected Posts.xml" in refusal
        (folder / ".env").write_text("A=1")
