"""`corpusmill trace` and `peek` on corpora, to source rows and back."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from command_results import Corpusmill, Result, only_line, refused
from stage_a_build import step
from stage_a_sources import SITES, SOURCES

from pipeline_assets.corpus.formats.jsonl_zst import read_line_blocks
from pipeline_assets.spine.artifact import open_artifact


def read_documents(corpus: Path) -> list[tuple[str, int, dict[str, Any]]]:
    """List (shard, row in the shard, document) in manifest order."""
    files = [file.path for file in open_artifact(corpus).manifest.identity.files if file.path.startswith("shards/")]
    return [
        (path, row, json.loads(line))
        for path in files
        for row, line in enumerate(b"".join(read_line_blocks(corpus / path)).splitlines())
    ]


def read_commit(root: Path) -> str:
    return str(open_artifact(step(root, "raw", "pages")).manifest.identity.recipe["revision"])


@pytest.mark.parametrize(("source", "kind"), [*((source, "filtered") for source in SOURCES), ("notes", "normalized")])
def test_a_document_is_traced_to_its_row_and_the_row_back_to_the_document(
    corpusmill: Corpusmill, stage_a_root: Path, source: str, kind: str
) -> None:
    corpus = step(stage_a_root, kind, source)
    documents = read_documents(corpus)
    number = len(documents) * 2 // 3
    shard, row, document = documents[number]

    traced = json.loads(corpusmill("trace", corpus, "--row", number, "--json").stdout)
    by_id = json.loads(corpusmill("trace", corpus, "--doc-id", document["doc_id"], "--json").stdout)
    back = corpusmill("trace", "--source", traced["source"]["name"], "--data", stage_a_root, "--json")

    assert by_id == traced
    assert (traced["doc_id"], traced["shard"], traced["shard_row"]) == (document["doc_id"], shard, row)
    assert traced["source"]["row"] == document["meta"]["source_row"]
    assert (traced["license_tag"], traced["license_evidence"]) == (
        document["license_tag"],
        document["meta"]["license_evidence"],
    )
    assert document["text"].startswith(traced["beginning"])
    entries = open_artifact(step(stage_a_root, "raw", source)).manifest.identity.inputs
    assert traced["source_digest"] in [entry["digest"] for entry in entries]
    [fate] = json.loads(back.stdout)["corpora"]
    assert (fate["folder"], fate["outcome"]) == (str(step(stage_a_root, "normalized", source)), "document")
    assert fate["doc_id"] == document["doc_id"]
    [filtered] = fate["filtered"]
    assert filtered["folder"] == str(step(stage_a_root, "filtered", source))
    if kind == "filtered":
        assert (filtered["outcome"], filtered["shard"], filtered["shard_row"]) == ("kept", shard, row)


def test_output_for_a_hub_source_has_repo_commit_path_and_row(corpusmill: Corpusmill, stage_a_root: Path) -> None:
    corpus, commit = step(stage_a_root, "filtered", "pages"), read_commit(stage_a_root)
    [(shard, row, document)] = [entry for entry in read_documents(corpus) if entry[2]["doc_id"] == "page-118"]

    lines = corpusmill("trace", corpus, "--doc-id", "page-118").stdout.splitlines()

    digest = open_artifact(step(stage_a_root, "raw", "pages")).manifest.identity.inputs[1]["digest"]
    assert lines == [
        "document  page-118",
        f"shard     {corpus}/{shard} row {row}",
        f"source    maker/pages@{commit}:data/1.parquet#58",
        f"          {digest}",
        "licence   odc-by (recipe)",
        f"text      {document['text'][:160]}",
    ]


def test_a_local_row_is_named_by_line_and_byte_and_found_by_both(corpusmill: Corpusmill, stage_a_root: Path) -> None:
    corpus, path = step(stage_a_root, "filtered", "notes"), stage_a_root / "sources" / "notes" / "1.jsonl"

    def trace_back(source: str) -> Result:
        return corpusmill("trace", "--source", source, "--data", stage_a_root, cwd=stage_a_root / "sources")

    lines = corpusmill("trace", corpus, "--doc-id", "note-30").stdout.splitlines()
    by_line, beyond = trace_back(f"{path}:11"), trace_back(f"{path}:100000")

    assert lines[2] == f"source    {path}#2118"
    assert lines[4:6] == ["          line 11 (byte 2,118)", "licence   mit (row: license)"]
    assert json.loads(path.read_bytes()[2118:].splitlines()[0])["key"] == "note-30"
    assert by_line.stdout.splitlines()[0] == f"{path}#2118" and "document  note-30\n" in by_line.stdout
    assert by_line.stdout == trace_back(f"{path}#2118").stdout == trace_back("notes/1.jsonl#2118").stdout
    assert beyond.returncode == 2 and "line 100,000 not found; the file has " in only_line(beyond)


def test_lines_of_a_changed_file_are_refused(corpusmill: Corpusmill, notes_root: Path) -> None:
    corpus, root = step(notes_root, "filtered", "notes"), ("--data", notes_root)
    path = notes_root / "sources" / "notes" / "0.jsonl"
    path.write_bytes(b'{"text": "Another line."}\n' + path.read_bytes())

    row = corpusmill("trace", corpus, "--row", 3, *root)
    line = corpusmill("trace", "--source", f"{path}:4", *root)

    assert "of the file that was read; it has changed since" in row.stdout
    assert line.returncode == 1
    assert "file changed after it was read; its line numbers are no longer valid" in only_line(line)


def test_a_thread_and_its_answers_are_traced_to_each_other(corpusmill: Corpusmill, stage_a_root: Path) -> None:
    site, thread = "coffee.stackexchange.com", "stackexchange:coffee.stackexchange.com:4"
    corpus, path = step(stage_a_root, "filtered", site), stage_a_root / "sources" / "sites" / site / "Posts.xml"

    lines = corpusmill("trace", corpus, "--doc-id", thread).stdout.splitlines()
    back = corpusmill("trace", "--source", f"{path}#5", "--data", stage_a_root).stdout.splitlines()

    rows = path.read_text(encoding="utf-8").splitlines()[2:]
    printed = [line.split()[1] for line in lines if line.startswith(("source", "answer"))]
    assert printed == [f"{path}#{row}" for row in (3, 5, 4)]  # the accepted answer comes first
    assert [f'Id="{post}"' in rows[row] for row, post in ((3, 4), (5, 6), (4, 5))] == [True] * 3
    assert lines[-2] == "licence   cc-by-sa-2.5 (date: 2011-03-04)"
    assert back[1:3] == [
        f"corpus    {step(stage_a_root, 'normalized', site)}",
        f"document  {thread}, which contains it as an answer",
    ]


def test_rows_without_document_have_a_reason(corpusmill: Corpusmill, stage_a_root: Path) -> None:
    sources = stage_a_root / "sources"
    hub = f"maker/pages@{read_commit(stage_a_root)}:data"
    wiki = sources / "wikipedia" / "AA" / "wiki_00"
    posts = sources / "sites" / "beer.stackexchange.com" / "Posts.xml"
    title_only = wiki.read_bytes().index(b'<doc id="4"')
    cases = {
        f"{hub}/0.parquet#5": "rejected: no_text (null)",
        f"{hub}/0.parquet#7": "rejected: duplicate_doc_id (page-0)",
        f"{hub}/0.parquet#9": "dropped: by `score >= 3`",
        f"{hub}/1.parquet#60": "not read: rows read of the file: 0 to 59",
        f"{wiki}#{title_only}": "rejected: title_only (Page 4)",
        f"{wiki}#{title_only + 1}": "no row begins there; "
        "`source_row` names a row, in files of lines by the bytes before it",
        f"{posts}#0": "dropped: by `low_question_score`",
        f"{posts}#72": "rejected: no_question (question 73 is not in the file, or rejected)",
        f"{posts}#74": "no row: the source has 74 rows",
    }

    for source, reason in cases.items():
        first, corpus, message = corpusmill("trace", "--source", source, "--data", stage_a_root).stdout.splitlines()
        assert (first, message) == (source, f"          {reason}")
        assert corpus.startswith("corpus    ")


def test_a_document_dropped_by_a_filter_has_the_reason(corpusmill: Corpusmill, stage_a_root: Path) -> None:
    normalized, filtered = (step(stage_a_root, kind, "notes") for kind in ("normalized", "filtered"))
    traced = json.loads(corpusmill("trace", normalized, "--doc-id", "note-4", "--json").stdout)

    back = corpusmill("trace", "--source", traced["source"]["name"], "--data", stage_a_root)
    dropped = corpusmill("trace", filtered, "--doc-id", "note-4")

    assert back.stdout.splitlines()[-1] == f"filtered  {filtered}: dropped: refused_licence proprietary"
    assert refused(dropped, 2) == (
        f"{filtered}: document 'note-4' was dropped here: refused_licence proprietary; trace it in the upstream corpus"
    )


def test_wrong_use_is_one_line(corpusmill: Corpusmill, stage_a_root: Path) -> None:
    raw, corpus = (step(stage_a_root, kind, "notes") for kind in ("raw", "normalized"))
    documents, sources = len(read_documents(corpus)), stage_a_root / "sources"
    no_tokens = f"{corpus}: artifact contains documents, not tokens; use --row"
    cases: list[tuple[list[object], str]] = [
        (["trace", corpus, "--token", 0], no_tokens),
        (["peek", corpus, "--token", 0], no_tokens),
        (["trace", corpus, "--row", documents], f"{corpus}: row {documents} not found; choose 0 to {documents - 1}"),
        (
            ["trace", raw, "--row", 0],
            f"{raw}: stage_a/raw has no rows of text or tokens; "
            "choose a folder of documents, a packed set, or a split, such as megatron/<name>/train",
        ),
    ]

    unknown = corpusmill("trace", "--source", "/nowhere/x.jsonl#3", "--data", stage_a_root)

    folders = ("notes", *(f"sites/{site}" for site in SITES), "wikipedia")
    known = ", ".join([*(f"{sources}/{folder}" for folder in folders), f"maker/pages@{read_commit(stage_a_root)}"])
    assert refused(unknown) == (
        f"/nowhere/x.jsonl: no source below {stage_a_root} lists this file; known sources: {known}"
    )
    for args, line in cases:
        assert refused(corpusmill(*args)) == line


def test_unbuilt_documents_and_a_missing_upstream_are_reported(corpusmill: Corpusmill, notes_root: Path) -> None:
    normalized, filtered, raw = (step(notes_root, kind, "notes") for kind in ("normalized", "filtered", "raw"))
    path = notes_root / "sources" / "notes" / "0.jsonl"
    digest = open_artifact(raw).manifest.digest
    shutil.rmtree(normalized)

    unbuilt = corpusmill("trace", "--source", f"{path}#0", "--data", notes_root)
    shutil.rmtree(raw)
    missing = corpusmill("trace", filtered, "--row", 0)

    assert refused(unbuilt, 1) == (
        f"{path}: {raw} lists this file, but no documents were built from it yet; "
        "build its recipe with `corpusmill run`"
    )
    assert digest not in missing.stderr
    assert refused(missing, 1).startswith(f"{notes_root}: no artifact with digest sha256:")
