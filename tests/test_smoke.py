"""The smoke run: all of stage A on five small sources, under the names that are asked for, explained to the row."""

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
from command_results import DOCS, Corpusmill, Started, Typed, commands_of, refused
from held_runs import hold_at, wait_for

from pipeline_assets.corpus.formats.memmap import Segment, open_packed
from pipeline_assets.corpus.tokens.o200k_harmony import VOCABULARY_SHA256, load_encoder
from pipeline_assets.spine.lineage import Lineage

SOURCES = {"handbook", "wikipedia_en", "coffee.stackexchange.com", "notes", "papers"}
ASKED = (
    "dedup/deduped.jsonl.zst",
    "dedup/decisions.jsonl.zst",
    "packed/input_ids.mmap",
    "packed/meta.json",
    "report.json",
    *(f"normalized/{source}/rejects.jsonl.zst" for source in sorted(SOURCES)),
)
CORPUS, PACKED = (f"stage_a/stage_a_v1/{step}/stage_a_v1" for step in ("decontaminated", "packed"))


@pytest.fixture(scope="module")
def smoked(corpusmill: Corpusmill, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Typed]:
    """A folder as `corpusmill smoke` leaves it where there is no network, and what it said. Tests only read it."""
    folder = tmp_path_factory.mktemp("smoke")
    nowhere = {"HF_HUB_OFFLINE": "1", "HTTP_PROXY": "http://127.0.0.1:9", "ALL_PROXY": "http://127.0.0.1:9"}
    result = corpusmill("smoke", cwd=folder, env=nowhere)
    assert result.returncode == 0, result.stderr
    return folder / "out", result


@pytest.fixture(scope="module")
def out(smoked: tuple[Path, Typed]) -> Path:
    return smoked[0]


def lines(path: Path) -> list[Any]:
    """Of a file that is one zstd frame, as the simplest reader takes it."""
    with zstandard.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def digests(root: Path) -> dict[str, str]:
    lineage = Lineage(root)
    assert not lineage.manifest_errors
    return {folder.relative_to(root).as_posix(): one.digest for folder, one in lineage.manifests.items()}


def bytes_of(root: Path) -> dict[str, str]:
    """Hashes of what is left under the asked names, but for meta.json, which has a time in it."""
    below = [path for part in ("normalized", "dedup", "packed") for path in sorted((root / part).rglob("*"))]
    return {
        path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in [*below, root / "report.json"]
        if path.is_file() and path.name not in ("meta.json", "manifest.json")
    }


def test_every_asked_path_is_there(out: Path) -> None:
    assert [name for name in ASKED if not (out / name).is_file()] == []
    shards = {path.parts[-3] for path in out.glob("normalized/*/shards/*.jsonl.zst")}
    assert shards == SOURCES


def test_the_deduplicated_corpus_is_one_file_of_what_the_decisions_keep(out: Path) -> None:
    documents, decisions = lines(out / "dedup/deduped.jsonl.zst"), lines(out / "dedup/decisions.jsonl.zst")

    kept = [decision["doc_id"] for decision in decisions if decision["decision"] == "kept"]
    assert [document["doc_id"] for document in documents] == kept
    assert {document["source"] for document in documents} == SOURCES


def test_planted_copies_go_and_say_whose_they_are(out: Path) -> None:
    decisions = {decision["doc_id"]: decision for decision in lines(out / "dedup/decisions.jsonl.zst")}

    found = {doc_id: (one["decision"], one.get("duplicate_of")) for doc_id, one in decisions.items()}
    assert {doc_id: fate for doc_id, fate in found.items() if fate[0] != "kept"} == {
        "note-36": ("exact_duplicate", "wikipedia:en:3"),
        "note-37": ("exact_duplicate", "wikipedia:en:4"),
        "note-38": ("exact_duplicate", "wikipedia:en:6"),
        "note-39": ("near_duplicate", "wikipedia:en:10"),
        "note-40": ("near_duplicate", "wikipedia:en:11"),
    }


def test_planted_leaks_go_and_say_of_which_item_they_are(out: Path) -> None:
    evidence = lines(out / CORPUS / "contaminated.jsonl.zst")

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


def segments(out: Path) -> dict[str, tuple[int, int, Segment]]:
    """Of each source a segment of the packed set: (row, first token there, segment)."""
    packed, found = open_packed(out / "packed"), {}
    for row in range(len(packed)):
        first = 0
        for segment in packed.segments(row):
            found.setdefault(segment.source, (row, first, segment))
            first += segment.length
    return found


def test_every_source_is_in_the_packed_set_with_the_tokens_of_its_documents(out: Path) -> None:
    packed = open_packed(out / "packed")
    texts = {document["doc_id"]: document["text"] for document in lines(out / "dedup/deduped.jsonl.zst")}
    encoder = load_encoder(VOCABULARY_SHA256)

    found = segments(out)

    assert found.keys() == SOURCES
    for row, first, segment in found.values():
        whole = np.array([*encoder.encode([texts[segment.doc_id]]).ids, packed.meta.eod_id])
        assert np.array_equal(
            packed[row][first : first + segment.length], whole[segment.start : segment.start + segment.length]
        )


@pytest.mark.slow
def test_a_token_of_each_source_traces_to_its_source_row(out: Path, corpusmill: Corpusmill) -> None:
    texts = {document["doc_id"]: document["text"] for document in lines(out / "dedup/deduped.jsonl.zst")}

    for source, (row_of_set, first, segment) in segments(out).items():
        position = row_of_set * open_packed(out / "packed").meta.seq_len + first
        result = corpusmill("trace", out / PACKED, "--token", position, "--json")

        assert result.returncode == 0, result.stderr
        [found] = json.loads(result.stdout)
        assert (found["token"]["position"], found["doc_id"]) == (position, segment.doc_id)
        row = found["source"]
        assert texts[segment.doc_id].split()[:7] == words_at(out, source, row)[:7]


def words_at(out: Path, source: str, row: dict[str, Any]) -> list[str]:
    """The words of a source row, read without this project's readers."""
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
    commands = [words for words in commands_of(DOCS / "trace.md") if words[0] == "dropped"]
    assert len(commands) == 2

    for words in commands:
        listed = corpusmill(*(word.replace("data/demo", str(out)) for word in words))

        assert listed.returncode == 0, listed.stderr
        assert len(listed.stdout.splitlines()) > 2


def test_the_summary_names_every_step_path_and_next_command(smoked: tuple[Path, Typed], corpusmill: Corpusmill) -> None:
    out, result = smoked

    said = result.stdout.splitlines()
    steps = ["normalized", "filtered", "deduplicated", "decontaminated", "packed"]
    assert [line.split()[0] for line in said[:5]] == steps
    assert [
        name for name in ("out/normalized", *(f"out/{name}" for name in ASKED[:5])) if name not in result.stdout
    ] == []
    commands = [shlex.split(line)[1:] for line in said if line.startswith("  corpusmill ")]
    assert [words[0] for words in commands] == ["verify", "trace", "peek", "stage-a", "ui"]
    for words in commands[:-1]:
        again = corpusmill(*words, cwd=out.parent)
        assert again.returncode == 0, again.stderr


def test_a_second_run_builds_nothing_and_leaves_equal_bytes(out: Path, corpusmill: Corpusmill) -> None:
    before, sealed = bytes_of(out), digests(out)

    again = corpusmill("smoke", "--out-dir", out)

    assert again.returncode == 0, again.stderr
    assert "all artifacts are up to date" in again.stdout
    assert (bytes_of(out), digests(out)) == (before, sealed)


@pytest.mark.slow
def test_worker_processes_change_no_byte(out: Path, corpusmill: Corpusmill, tmp_path: Path) -> None:
    other = corpusmill("smoke", "--out-dir", tmp_path / "other", "--workers", 2)

    assert other.returncode == 0, other.stderr
    assert digests(tmp_path / "other") == digests(out)
    assert bytes_of(tmp_path / "other") == bytes_of(out)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("until", "held"),
    [("hub", "/stage_a_v1/raw/"), ("stage_a/stage_a_v1/filtered/notes/manifest.json", "/stage_a_v1/deduplicated/")],
)
def test_killed_it_goes_on_to_equal_digests(
    until: str, held: str, out: Path, started: Started, corpusmill: Corpusmill, tmp_path: Path
) -> None:
    process = started("smoke", "--out-dir", tmp_path / "killed", env=hold_at(held))
    wait_for(process, tmp_path / "killed", until)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()

    again = corpusmill("smoke", "--out-dir", tmp_path / "killed")

    assert again.returncode == 0, again.stderr
    assert digests(tmp_path / "killed") == digests(out)
    assert bytes_of(tmp_path / "killed") == bytes_of(out)


def test_what_was_removed_or_damaged_under_an_asked_name_is_put_back(out: Path, corpusmill: Corpusmill) -> None:
    before = bytes_of(out)
    (out / "report.json").unlink()
    (out / "dedup" / "deduped.jsonl.zst").write_bytes(b"cut off")
    (out / "normalized" / "notes" / "left.tmp").write_bytes(b"half")

    again = corpusmill("smoke", "--out-dir", out)

    assert again.returncode == 0, again.stderr
    assert bytes_of(out) == before


def test_a_file_or_a_folder_of_something_else_is_refused_and_left_alone(corpusmill: Corpusmill, tmp_path: Path) -> None:
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
