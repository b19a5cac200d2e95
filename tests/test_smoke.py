"""`corpusmill smoke` runs stage A on five small sources, traceable to each row."""

import bz2
import hashlib
import json
import os
import shlex
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import zstandard
from command_results import DOCS, Corpusmill, Result, Started, read_commands, refused
from paused_runs import pause_at, wait_for

from pipeline_assets.corpus.formats.memmap import Segment, open_packed
from pipeline_assets.corpus.tokens.o200k_harmony import VOCABULARY_SHA256, load_encoder
from pipeline_assets.spine.lineage import Lineage

SOURCES = {"handbook", "wikipedia_en", "coffee.stackexchange.com", "notes", "papers"}
REQUIRED = (
    "dedup/deduped.jsonl.zst",
    "dedup/decisions.jsonl.zst",
    "packed/input_ids.mmap",
    "packed/meta.json",
    "report.json",
    *(f"normalized/{source}/rejects.jsonl.zst" for source in sorted(SOURCES)),
)
CORPUS, PACKED = (f"stage_a/stage_a_v1/{step}/stage_a_v1" for step in ("decontaminated", "packed"))


@pytest.fixture(scope="module")
def smoke_run(corpusmill: Corpusmill, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    """Run `corpusmill smoke` without a network; tests only read the folder."""
    folder = tmp_path_factory.mktemp("smoke")
    offline = {"HF_HUB_OFFLINE": "1", "HTTP_PROXY": "http://127.0.0.1:9", "ALL_PROXY": "http://127.0.0.1:9"}
    result = corpusmill("smoke", cwd=folder, env=offline)
    assert result.returncode == 0, result.stderr
    return folder / "out", result


@pytest.fixture(scope="module")
def out(smoke_run: tuple[Path, Result]) -> Path:
    return smoke_run[0]


def read_rows(path: Path) -> list[Any]:
    """Read a zstd file in a single frame with a plain reader."""
    with zstandard.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def read_digests(root: Path) -> dict[str, str]:
    lineage = Lineage(root)
    assert not lineage.manifest_errors
    return {folder.relative_to(root).as_posix(): manifest.digest for folder, manifest in lineage.manifests.items()}


def hash_files(root: Path) -> dict[str, str]:
    """Hash the required files, except meta.json, which contains a time."""
    paths = [path for part in ("normalized", "dedup", "packed") for path in sorted((root / part).rglob("*"))]
    return {
        path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in [*paths, root / "report.json"]
        if path.is_file() and path.name not in ("meta.json", "manifest.json")
    }


def test_every_required_file_exists(out: Path) -> None:
    assert [name for name in REQUIRED if not (out / name).is_file()] == []
    shards = {path.parts[-3] for path in out.glob("normalized/*/shards/*.jsonl.zst")}
    assert shards == SOURCES


def test_planted_copies_are_dropped_with_their_originals_and_other_documents_kept(out: Path) -> None:
    documents, decisions = read_rows(out / "dedup/deduped.jsonl.zst"), read_rows(out / "dedup/decisions.jsonl.zst")

    kept = [decision["doc_id"] for decision in decisions if decision["decision"] == "kept"]
    assert [document["doc_id"] for document in documents] == kept
    assert {document["source"] for document in documents} == SOURCES
    dropped = [decision for decision in decisions if decision["decision"] != "kept"]
    assert [(drop["doc_id"], drop["decision"], drop["duplicate_of"]) for drop in dropped] == [
        ("note-36", "exact_duplicate", "wikipedia:en:3"),
        ("note-37", "exact_duplicate", "wikipedia:en:4"),
        ("note-38", "exact_duplicate", "wikipedia:en:6"),
        ("note-39", "near_duplicate", "wikipedia:en:10"),
        ("note-40", "near_duplicate", "wikipedia:en:11"),
    ]


def test_planted_leaks_are_dropped_with_their_items(out: Path) -> None:
    evidence = read_rows(out / CORPUS / "contaminated.jsonl.zst")

    assert {(line["doc_id"], line["item"], line["action"]) for line in evidence} == {
        ("wikipedia:en:21", "q-0", "dropped"),
        ("10.5555/demo.12", "q-1", "dropped"),
    }


def test_every_source_loses_rows_for_a_reason(out: Path) -> None:
    report = json.loads((out / "report.json").read_bytes())

    reasons: dict[str, Counter[str]] = {source: Counter() for source in SOURCES}
    for ledger in report["ledgers"]:
        reasons[ledger["source"]].update(ledger["dropped"])
        reasons[ledger["source"]].update(ledger["rejected"])
    assert set(reasons["handbook"]) == {"int_score >= 3", "few_words", "duplicate_doc_id"}
    assert reasons["wikipedia_en"] == {"title_only": 4, "few_characters": 4}
    assert reasons["coffee.stackexchange.com"] == {"low_question_score": 24, "no_question": 2}
    assert reasons["notes"] == {"not_json": 1, "empty_text": 1, "refused_licence": 2}
    assert reasons["papers"] == {"boilerplate_lines": 5}


def find_segments(out: Path) -> dict[str, tuple[int, int, Segment]]:
    """Find a segment of each source in the packed set: row, first token, segment."""
    packed, found = open_packed(out / "packed"), {}
    for row in range(len(packed)):
        first = 0
        for segment in packed.segments(row):
            found.setdefault(segment.source, (row, first, segment))
            first += segment.length
    return found


def test_every_source_is_in_the_packed_set_with_the_tokens_of_its_documents(out: Path) -> None:
    packed = open_packed(out / "packed")
    texts = {document["doc_id"]: document["text"] for document in read_rows(out / "dedup/deduped.jsonl.zst")}
    encoder = load_encoder(VOCABULARY_SHA256)

    found = find_segments(out)

    assert found.keys() == SOURCES
    for row, first, segment in found.values():
        expected = np.array([*encoder.encode([texts[segment.doc_id]]).ids, packed.meta.eod_id])
        assert np.array_equal(
            packed[row][first : first + segment.length], expected[segment.start : segment.start + segment.length]
        )


@pytest.mark.slow
def test_a_token_of_each_source_traces_to_its_source_row(out: Path, corpusmill: Corpusmill) -> None:
    texts = {document["doc_id"]: document["text"] for document in read_rows(out / "dedup/deduped.jsonl.zst")}

    for source, (row_of_set, first, segment) in find_segments(out).items():
        position = row_of_set * open_packed(out / "packed").meta.seq_len + first
        result = corpusmill("trace", out / PACKED, "--token", position, "--json")

        assert result.returncode == 0, result.stderr
        [found] = json.loads(result.stdout)
        assert (found["token"]["position"], found["doc_id"]) == (position, segment.doc_id)
        row = found["source"]
        assert texts[segment.doc_id].split()[:7] == read_words(out, source, row)[:7]


def read_words(out: Path, source: str, row: dict[str, Any]) -> list[str]:
    """Read the words of a source row without this project's readers."""
    number = row["row"]
    match source:
        case "handbook":
            path = out / "hub" / "datasets" / row["dataset"] / row["path"]
            text = pq.read_table(path)["text"][number].as_py()
        case "papers":
            text = pq.read_table(out / "sources/papers" / Path(row["path"]).name)["body"][number]["text"].as_py()
        case "wikipedia_en":
            page = bz2.decompress((out / "sources/wikipedia/AA" / Path(row["path"]).name).read_bytes())[number:]
            text = page.decode().split("\n", 1)[1]
        case "notes" if row["path"].endswith(".txt"):
            text = (out / "sources/notes/texts" / Path(row["path"]).name).read_text()
        case "notes":
            line = (out / "sources/notes/notes.jsonl").read_bytes()[number:].split(b"\n", 1)[0]
            text = json.loads(line)["text"]
        case _:
            posts = (out / "sources" / source / "Posts.xml").read_text().splitlines()
            line = [line for line in posts if line.lstrip().startswith("<row ")][number]
            text = line.split('Title="', 1)[1].split('"', 1)[0]
    return str(text).split()


def test_commands_of_the_page_on_traces_list_dropped_rows(out: Path, corpusmill: Corpusmill) -> None:
    commands = [command for command in read_commands(DOCS / "trace.md") if command[0] == "dropped"]
    assert len(commands) == 2

    for command in commands:
        listed = corpusmill(*(arg.replace("data/demo", str(out)) for arg in command))

        assert listed.returncode == 0, listed.stderr
        assert len(listed.stdout.splitlines()) > 2


def test_the_summary_names_every_step_path_and_next_command(
    smoke_run: tuple[Path, Result], corpusmill: Corpusmill
) -> None:
    out, result = smoke_run

    printed = result.stdout.splitlines()
    steps = ["normalized", "filtered", "deduplicated", "decontaminated", "packed"]
    assert [line.split()[0] for line in printed[:5]] == steps
    assert [name for name in ("normalized", *REQUIRED[:5]) if f"out/{name}" not in result.stdout] == []
    commands = [shlex.split(line)[1:] for line in printed if line.startswith("  corpusmill ")]
    assert [command[0] for command in commands] == ["verify", "trace", "peek", "stage-a", "ui"]
    for command in commands[:-1]:
        shown = corpusmill(*command, cwd=out.parent)
        assert shown.returncode == 0, shown.stderr


def test_a_second_run_builds_nothing_and_leaves_equal_bytes(out: Path, corpusmill: Corpusmill) -> None:
    before, sealed = hash_files(out), read_digests(out)

    result = corpusmill("smoke", "--out-dir", out)

    assert result.returncode == 0, result.stderr
    assert "all artifacts are up to date" in result.stdout
    assert (hash_files(out), read_digests(out)) == (before, sealed)


@pytest.mark.slow
def test_worker_processes_change_no_byte(out: Path, corpusmill: Corpusmill, tmp_path: Path) -> None:
    other = corpusmill("smoke", "--out-dir", tmp_path / "other", "--workers", 2)

    assert other.returncode == 0, other.stderr
    assert read_digests(tmp_path / "other") == read_digests(out)
    assert hash_files(tmp_path / "other") == hash_files(out)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("until", "paused_at"),
    [("hub", "/stage_a_v1/raw/"), ("stage_a/stage_a_v1/filtered/notes/manifest.json", "/stage_a_v1/deduplicated/")],
)
def test_a_killed_run_continues_to_equal_digests(
    until: str, paused_at: str, out: Path, started: Started, corpusmill: Corpusmill, tmp_path: Path
) -> None:
    process = started("smoke", "--out-dir", tmp_path / "killed", env=pause_at(paused_at))
    wait_for(process, tmp_path / "killed", until)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()

    result = corpusmill("smoke", "--out-dir", tmp_path / "killed")

    assert result.returncode == 0, result.stderr
    assert read_digests(tmp_path / "killed") == read_digests(out)
    assert hash_files(tmp_path / "killed") == hash_files(out)


def test_removed_and_damaged_required_files_are_restored(out: Path, corpusmill: Corpusmill) -> None:
    before = hash_files(out)
    (out / "report.json").unlink()
    (out / "dedup" / "deduped.jsonl.zst").write_bytes(b"cut off")
    (out / "normalized" / "notes" / "left.tmp").write_bytes(b"half")

    result = corpusmill("smoke", "--out-dir", out)

    assert result.returncode == 0, result.stderr
    assert hash_files(out) == before


def test_a_file_and_an_unrelated_folder_are_refused_unchanged(corpusmill: Corpusmill, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("mine")

    assert refused(corpusmill("smoke", cwd=tmp_path)) == (
        "out: the folder contains thesis.tex, which is not from a smoke run; "
        "choose an empty or new folder with --out-dir"
    )
    assert refused(corpusmill("smoke", "--out-dir", "out/thesis.tex", cwd=tmp_path)) == (
        "out/thesis.tex: expected a folder, got a file; choose a folder with --out-dir"
    )
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["thesis.tex"]
