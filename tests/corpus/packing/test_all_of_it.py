"""What a recipe leaves to the corpus: weights by what sources have, and as many rows as there are tokens for."""

from pathlib import Path

import pytest
from pack_build import STRATEGIES, TWO_SOURCES, Made, check_tokens, documents_of, pack, recipe, write_shards
from word_tokenizer import write_tokenizer

from pipeline_assets.corpus.formats.memmap import open_packed
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.errors import UsageError

ALL = {"weights": None, "num_seqs": None}


def packed_of(folder: Path, documents: list[Made], **changes: object) -> Artifact:
    folder.mkdir(exist_ok=True)
    tokenizer = write_tokenizer(folder)
    return pack(folder, write_shards(folder / "c", documents, 5), recipe(tokenizer, **changes), tokenizer)


def lengths(documents: list[Made]) -> dict[str, int]:
    return {one.doc_id: len(one.text.split()) + 1 for one in documents}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_document_is_packed_once_and_no_row_is_empty(folder: Path, strategy: str) -> None:
    made = packed_of(folder, TWO_SOURCES, strategy=strategy, **ALL)

    packed, counts = open_packed(made.folder), made.manifest.identity.counts
    tokens = sum(lengths(TWO_SOURCES).values())
    fitting = tokens // 8 * 8 if strategy == "sequential" else tokens
    assert (counts["tokens"], counts["rows"]) == (fitting, len(packed))
    placed = [one for row in range(len(packed)) for one in packed.segments(row)]
    if strategy == "best_fit":
        assert sum(one.length for one in placed) == tokens
        assert {one.doc_id for one in placed} == {one.doc_id for one in TWO_SOURCES}
    assert all(packed.segments(row) for row in range(len(packed)))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_recipe_that_says_the_same_makes_the_same_bytes(folder: Path, strategy: str) -> None:
    documents = [*documents_of("a", [3, 5, 20, 4]), *documents_of("b", [7, 9, 16])]  # 32 tokens each
    left = packed_of(folder, documents, strategy=strategy, **ALL)
    rows, content = len(open_packed(left.folder)), {file.path: file for file in left.manifest.identity.files}

    said = packed_of(folder / "said", documents, strategy=strategy, num_seqs=rows, weights={"a": "0.5", "b": "0.5"})

    of_said = {file.path: file for file in said.manifest.identity.files}
    assert of_said == content
    assert said.manifest.identity.counts["by_source"]["a"]["asked_share"] == "0.5"
    assert left.manifest.identity.counts["by_source"]["a"]["asked_share"] == "0.500000"


def test_weights_alone_ask_for_as_many_rows_as_the_scarcer_source_allows(folder: Path) -> None:
    documents = [*documents_of("a", [8] * 4), *documents_of("b", [8] * 20)]

    made = packed_of(folder, documents, num_seqs=None)

    assert made.manifest.identity.counts["rows"] == 8
    assert {name: one["packed_tokens"] for name, one in made.manifest.identity.counts["by_source"].items()} == {
        "a": 32,
        "b": 32,
    }


def test_rows_alone_are_drawn_in_proportion_to_what_sources_have(folder: Path) -> None:
    documents = [*documents_of("a", [8] * 10), *documents_of("b", [8] * 30)]

    made = packed_of(folder, documents, num_seqs=20, weights=None)

    by_source = made.manifest.identity.counts["by_source"]
    assert {name: one["packed_tokens"] for name, one in by_source.items()} == {"a": 40, "b": 120}


def test_a_cap_of_epochs_is_part_of_what_a_source_has(folder: Path) -> None:
    documents = [*documents_of("a", [8] * 10), *documents_of("b", [8] * 10)]

    made = packed_of(folder, documents, caps={"b": "3"}, **ALL)

    by_source = made.manifest.identity.counts["by_source"]
    assert {name: one["epochs"] for name, one in by_source.items()} == {"a": "1.000000", "b": "3.000000"}


def test_a_corpus_that_fills_no_row_is_refused(folder: Path) -> None:
    with pytest.raises(UsageError) as refused:
        packed_of(folder, documents_of("a", [3]), **ALL)

    assert refused.value.what == "1 row takes 8 tokens of a, which has 3: 2.667 epochs, and its cap is 1"
    assert refused.value.fix.startswith("make rows shorter by `pack.seq_len`: what may be drawn doesn't fill one of 8")


def test_a_row_that_is_not_full_is_padded_where_all_is_packed(folder: Path) -> None:
    packed = open_packed(packed_of(folder, documents_of("a", [3]), strategy="best_fit", **ALL).folder)

    assert packed.input_ids.shape == (1, 8)
    assert packed.input_ids[0].tolist()[3:] == [packed.meta.pad_id] * 5


def test_a_corpus_without_documents_is_refused(folder: Path) -> None:
    tokenizer = write_tokenizer(folder)

    with pytest.raises(UsageError, match="there is no document"):
        pack(folder, [], recipe(tokenizer, **ALL), tokenizer)


def test_what_is_packed_is_what_was_written(folder: Path) -> None:
    made = packed_of(folder, TWO_SOURCES, strategy="best_fit", **ALL)
    tokenizer = made.folder.parent / "tokenizer.json"
    import tokenizers

    library = tokenizers.Tokenizer.from_file(str(tokenizer))
    end = library.token_to_id("<end>")
    check_tokens(open_packed(made.folder), {one.doc_id: [*library.encode(one.text).ids, end] for one in TWO_SOURCES})
