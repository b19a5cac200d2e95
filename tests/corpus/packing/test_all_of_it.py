"""Recipes without weights or rows: both follow from the tokens of the sources."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pack_build import (
    STRATEGIES,
    TWO_SOURCES,
    Doc,
    check_tokens,
    pack,
    pack_documents,
    recipe,
    sized_documents,
    write_shards,
)
from refusals import refusal
from word_tokenizer import encode_words, write_tokenizer

from pipeline_assets.corpus.formats.jsonl_zst import JsonlZstWriter
from pipeline_assets.corpus.formats.memmap import open_packed
from pipeline_assets.spine.errors import UsageError

ALL = {"weights": None, "num_seqs": None}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_document_is_packed_once_and_no_row_is_empty(folder: Path, strategy: str) -> None:
    artifact = pack_documents(folder, TWO_SOURCES, strategy=strategy, **ALL)

    packed, counts = open_packed(artifact.folder), artifact.manifest.identity.counts
    tokens = sum(len(doc.text.split()) + 1 for doc in TWO_SOURCES)
    fitting = tokens // 8 * 8 if strategy == "sequential" else tokens
    assert (counts["tokens"], counts["rows"]) == (fitting, len(packed))
    segments = [segment for row in range(len(packed)) for segment in packed.segments(row)]
    if strategy == "best_fit":
        assert sum(segment.length for segment in segments) == tokens
        assert {segment.doc_id for segment in segments} == {doc.doc_id for doc in TWO_SOURCES}
    assert all(packed.segments(row) for row in range(len(packed)))
    check_tokens(packed, {doc.doc_id: encode_words(doc.text) for doc in TWO_SOURCES})


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_explicit_and_implicit_settings_give_the_same_bytes(folder: Path, strategy: str) -> None:
    documents = [*sized_documents("a", [3, 5, 20, 4]), *sized_documents("b", [7, 9, 16])]  # 32 tokens each
    implicit = pack_documents(folder, documents, strategy=strategy, **ALL)
    rows, files = len(open_packed(implicit.folder)), {file.path: file for file in implicit.manifest.identity.files}

    explicit = pack_documents(
        folder / "said", documents, strategy=strategy, num_seqs=rows, weights={"b": "0.5", "a": "0.5"}
    )

    explicit_files = {file.path: file for file in explicit.manifest.identity.files}
    assert explicit_files == files
    assert explicit.manifest.identity.counts["by_source"]["a"]["asked_share"] == "0.5"
    assert implicit.manifest.identity.counts["by_source"]["a"]["asked_share"] == "0.500000"


@pytest.mark.parametrize(
    ("rows_a", "rows_b", "changes", "tokens"),
    [
        pytest.param(4, 20, {"num_seqs": None}, {"a": 32, "b": 32}, id="weights: as many rows as the scarcer allows"),
        pytest.param(10, 30, {"num_seqs": 20, "weights": None}, {"a": 40, "b": 120}, id="rows: what sources have"),
        pytest.param(10, 10, {"caps": {"b": "3"}, **ALL}, {"a": 80, "b": 240}, id="with a cap of epochs"),
    ],
)
def test_missing_settings_follow_from_the_sources(
    folder: Path, rows_a: int, rows_b: int, changes: dict[str, Any], tokens: dict[str, int]
) -> None:
    documents = [*sized_documents("a", [8] * rows_a), *sized_documents("b", [8] * rows_b)]

    counts = pack_documents(folder, documents, **changes).manifest.identity.counts

    assert counts["rows"] == sum(tokens.values()) // 8
    assert {name: source["packed_tokens"] for name, source in counts["by_source"].items()} == tokens


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_cap_of_an_emptied_source_is_ignored(folder: Path, strategy: str) -> None:
    tokenizer = write_tokenizer(folder)
    [kept] = write_shards(folder / "corpus", sized_documents("a", [8] * 5), 5)
    emptied = replace(write_shards(folder / "corpus", [Doc("b", "b-0", "w1")], 5)[0], rows=0)
    with JsonlZstWriter(emptied.file, 3) as writer:
        writer.write_lines(b"", 0)
    rules = recipe(tokenizer, strategy=strategy, caps={"b": "2"}, **ALL)

    counts = pack(folder, [kept, emptied], rules, tokenizer).manifest.identity.counts

    assert (counts["tokens"], counts["rows"], list(counts["by_source"])) == (40, 5, ["a"])


def test_a_cap_of_an_unknown_source_is_refused_without_weights(folder: Path) -> None:
    documents = [*sized_documents("notes", [8] * 5), *sized_documents("web", [8] * 5)]

    assert refusal(lambda: pack_documents(folder, documents, caps={"note": "2"}, **ALL), UsageError) == (
        "pack.max_epochs: source note not found; did you mean notes?"
    )


def test_a_corpus_too_small_for_a_row_is_refused(folder: Path) -> None:
    assert refusal(lambda: pack_documents(folder, sized_documents("a", [3]), **ALL), UsageError).startswith(
        "pack.num_seqs: 1 row needs 8 tokens of a, which has 3: 2.667 epochs, but its max_epochs is 1; "
        "lower `pack.seq_len`: the available tokens do not fill a row of 8"
    )


def test_a_corpus_without_documents_is_refused(folder: Path) -> None:
    with pytest.raises(UsageError, match="no documents to pack"):
        pack_documents(folder, [], **ALL)
