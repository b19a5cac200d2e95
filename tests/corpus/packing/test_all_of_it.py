"""What a recipe leaves to the corpus: weights by what sources have, and as many rows as there are tokens for."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pack_build import (
    STRATEGIES,
    TWO_SOURCES,
    Made,
    check_tokens,
    documents_of,
    pack,
    pack_documents,
    recipe,
    write_shards,
)
from refusals import refusal
from word_tokenizer import ids_of, write_tokenizer

from pipeline_assets.corpus.formats.jsonl_zst import JsonlZstWriter
from pipeline_assets.corpus.formats.memmap import open_packed
from pipeline_assets.spine.errors import UsageError

ALL = {"weights": None, "num_seqs": None}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_document_is_packed_once_and_no_row_is_empty(folder: Path, strategy: str) -> None:
    made = pack_documents(folder, TWO_SOURCES, strategy=strategy, **ALL)

    packed, counts = open_packed(made.folder), made.manifest.identity.counts
    tokens = sum(len(one.text.split()) + 1 for one in TWO_SOURCES)
    fitting = tokens // 8 * 8 if strategy == "sequential" else tokens
    assert (counts["tokens"], counts["rows"]) == (fitting, len(packed))
    placed = [one for row in range(len(packed)) for one in packed.segments(row)]
    if strategy == "best_fit":
        assert sum(one.length for one in placed) == tokens
        assert {one.doc_id for one in placed} == {one.doc_id for one in TWO_SOURCES}
    assert all(packed.segments(row) for row in range(len(packed)))
    check_tokens(packed, {one.doc_id: ids_of(one.text) for one in TWO_SOURCES})


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_recipe_that_says_the_same_makes_the_same_bytes(folder: Path, strategy: str) -> None:
    documents = [*documents_of("a", [3, 5, 20, 4]), *documents_of("b", [7, 9, 16])]  # 32 tokens each
    left = pack_documents(folder, documents, strategy=strategy, **ALL)
    rows, content = len(open_packed(left.folder)), {file.path: file for file in left.manifest.identity.files}

    said = pack_documents(
        folder / "said", documents, strategy=strategy, num_seqs=rows, weights={"a": "0.5", "b": "0.5"}
    )

    of_said = {file.path: file for file in said.manifest.identity.files}
    assert of_said == content
    assert said.manifest.identity.counts["by_source"]["a"]["asked_share"] == "0.5"
    assert left.manifest.identity.counts["by_source"]["a"]["asked_share"] == "0.500000"


@pytest.mark.parametrize(
    ("of_a", "of_b", "changes", "tokens"),
    [
        pytest.param(4, 20, {"num_seqs": None}, {"a": 32, "b": 32}, id="weights: as many rows as the scarcer allows"),
        pytest.param(10, 30, {"num_seqs": 20, "weights": None}, {"a": 40, "b": 120}, id="rows: what sources have"),
        pytest.param(10, 10, {"caps": {"b": "3"}, **ALL}, {"a": 80, "b": 240}, id="with a cap of epochs"),
    ],
)
def test_what_is_left_out_is_settled_by_what_sources_have(
    folder: Path, of_a: int, of_b: int, changes: dict[str, Any], tokens: dict[str, int]
) -> None:
    documents = [*documents_of("a", [8] * of_a), *documents_of("b", [8] * of_b)]

    counts = pack_documents(folder, documents, **changes).manifest.identity.counts

    assert counts["rows"] == sum(tokens.values()) // 8
    assert {name: one["packed_tokens"] for name, one in counts["by_source"].items()} == tokens


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_cap_of_a_source_that_lost_all_documents_is_of_no_matter(folder: Path, strategy: str) -> None:
    tokenizer = write_tokenizer(folder)
    [kept] = write_shards(folder / "corpus", documents_of("a", [8] * 5), 5)
    emptied = replace(write_shards(folder / "corpus", [Made("b", "b-0", "w1")], 5)[0], rows=0)
    with JsonlZstWriter(emptied.file, 3) as writer:
        writer.write_lines(b"", 0)
    rules = recipe(tokenizer, strategy=strategy, caps={"b": "2"}, **ALL)

    counts = pack(folder, [kept, emptied], rules, tokenizer).manifest.identity.counts

    assert (counts["tokens"], counts["rows"], list(counts["by_source"])) == (40, 5, ["a"])


def test_a_cap_of_an_unknown_source_is_refused_without_weights_too(folder: Path) -> None:
    documents = [*documents_of("notes", [8] * 5), *documents_of("web", [8] * 5)]

    assert refusal(lambda: pack_documents(folder, documents, caps={"note": "2"}, **ALL), UsageError) == (
        "pack.max_epochs: source note not found; did you mean notes?"
    )


def test_a_corpus_that_fills_no_row_is_refused(folder: Path) -> None:
    assert refusal(lambda: pack_documents(folder, documents_of("a", [3]), **ALL), UsageError).startswith(
        "pack.num_seqs: 1 row needs 8 tokens of a, which has 3: 2.667 epochs, but its cap is 1; "
        "lower `pack.seq_len`: the available tokens do not fill a row of 8"
    )


def test_a_row_that_is_not_full_is_padded_where_all_is_packed(folder: Path) -> None:
    packed = open_packed(pack_documents(folder, documents_of("a", [3]), strategy="best_fit", **ALL).folder)

    assert packed.input_ids.shape == (1, 8)
    assert packed.input_ids[0].tolist()[3:] == [packed.meta.pad_id] * 5


def test_a_corpus_without_documents_is_refused(folder: Path) -> None:
    with pytest.raises(UsageError, match="no documents to pack"):
        pack_documents(folder, [], **ALL)
