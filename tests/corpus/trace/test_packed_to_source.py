"""Tokens, rows and documents of a packed set back to the rows that they came from, and why one is not in it."""

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from stage_a_build import NO_COMMIT, build, local_source
from stage_a_sources import recipe_content, with_dedup, with_pack
from word_tokenizer import write_tokenizer

from pipeline_assets.corpus.document_fate import fates_of
from pipeline_assets.corpus.spine.artifact import Artifact, open_artifact
from pipeline_assets.corpus.spine.errors import InputError, UsageError
from pipeline_assets.corpus.tokens.families import load_tokenizer
from pipeline_assets.corpus.tokens.o200k_harmony import VOCABULARY_SHA256, load_encoder
from pipeline_assets.corpus.trace.packed_to_source import PackedLineage
from pipeline_assets.corpus.trace.peek import peek_packed
from pipeline_assets.corpus.trace.source_row import FileRow
from pipeline_assets.systems.stage_a import StageARecipe

LETTERS = [
    {"text": f"Dear friend, letter {n // 2} is of the river and of all the boats that go by.", "key": f"l-{n}"}
    for n in range(40)
]
PAGES = [{"text": f"日本語 is spoken in page {n}.", "key": f"p-{n}"} for n in range(6)]


def pack(folder: Path, **changes: object) -> Artifact:
    """Letters, of which every other one is a copy, and pages, packed: of the pages more than there are."""
    sources = [local_source(folder, "letters", LETTERS), local_source(folder, "pages", PAGES)]
    content = recipe_content(NO_COMMIT) | {"sources": sources}
    with_dedup(content)
    with_pack(content)
    content["pack"] |= {"weights": {"letters": "0.6", "pages": "0.4"}, "num_seqs": 4, **changes}
    return build(StageARecipe.model_validate(content), folder / "data")["stage_a/packed"]


def lineage_of(packed: Artifact, folder: Path) -> PackedLineage:
    return PackedLineage(packed, folder / "data")


def line_at(row: FileRow) -> dict[str, Any]:
    """The line of a file that begins at its row, which is bytes before it."""
    with open(row.path, "rb") as file:
        file.seek(row.row)
        line: dict[str, Any] = json.loads(file.readline())
        return line


@pytest.mark.parametrize("strategy", ["sequential", "best_fit"])
def test_every_token_is_one_of_the_line_that_it_is_traced_to_and_all_else_is_padding(
    tmp_path: Path, strategy: str
) -> None:
    packed, oracle = pack(tmp_path, strategy=strategy), load_encoder(VOCABULARY_SHA256).oracle
    lineage = lineage_of(packed, tmp_path)
    ids, padding = lineage.packed.input_ids.reshape(-1).tolist(), 0

    for position, token_id in enumerate(ids):
        try:
            found = lineage.trace_token(position)
        except UsageError as error:
            assert "is padding" in str(error)
            padding += 1
            continue
        assert found.token is not None
        assert isinstance(found.document.source, FileRow)
        line = line_at(found.document.source)
        assert line["key"] == found.document.doc_id
        expected = [*oracle.encode_ordinary(line["text"]), lineage.packed.meta.eod_id]
        assert (found.token.position, found.token.id) == (position, token_id)
        assert expected[found.token.number] == token_id
        assert found.token.is_end_of_document == (found.token.number == len(expected) - 1)
    assert padding == packed.manifest.identity.counts["padding_tokens"]


def test_the_segments_of_a_row_follow_one_another_and_a_peek_shows_their_texts(tmp_path: Path) -> None:
    packed = pack(tmp_path, strategy="sequential")

    for row in range(4):
        traced, seen = lineage_of(packed, tmp_path).trace_row(row), peek_packed(packed.folder, row)
        assert [one.column for one in traced] == [sum(one.tokens for one in traced[:n]) for n in range(len(traced))]
        assert [(one.doc_id, one.start, one.tokens) for one in seen.segments] == [
            (one.document.doc_id, one.start, one.tokens) for one in traced
        ]
        assert sum(one.tokens for one in traced) + seen.padding == 64
        for one, shown in zip(traced, seen.segments, strict=True):
            assert isinstance(one.document.source, FileRow)
            assert shown.text.removesuffix("<|endoftext|>") in line_at(one.document.source)["text"]


@pytest.mark.parametrize("strategy", ["sequential", "best_fit"])
def test_a_document_is_shown_with_each_epoch_that_it_is_in_and_every_row_that_has_some_of_it(
    tmp_path: Path, strategy: str
) -> None:
    lineage = lineage_of(pack(tmp_path, strategy=strategy, num_seqs=40, seq_len=8, boundaries=False), tmp_path)
    shown = []

    for page in PAGES:
        [found] = lineage.trace_document(page["key"])
        assert isinstance(found.document.source, FileRow)
        assert line_at(found.document.source)["key"] == page["key"]
        assert [draw.epoch for draw in found.draws] == list(range(len(found.draws)))
        assert sum(draw.packed_tokens for draw in found.draws) == sum(piece.tokens for piece in found.pieces)
        shown += [(one.row, one.column, page["key"], one.start, one.tokens) for one in found.pieces]
    traced = [(row, one) for row in range(40) for one in lineage.trace_row(row)]
    expected = [(row, one.column, one.document.doc_id, one.start, one.tokens) for row, one in traced]
    assert sorted(shown) == [one for one in expected if one[2].startswith("p-")]
    assert len({one[0] for one in shown if one[2] == "p-2"}) > 2


@pytest.mark.parametrize("below", ["data", "."])
def test_the_tokenizer_is_found_after_the_data_root_was_moved(tmp_path: Path, below: str) -> None:
    (tmp_path / "data").mkdir()
    path = write_tokenizer(tmp_path / below)
    pinned = {"family": "hf_tokenizer", "sha256": sha256(path.read_bytes()).hexdigest(), "end_of_document": "<end>"}
    where = path.name if below == "data" else str(path)
    content = recipe_content(NO_COMMIT) | {
        "sources": [local_source(tmp_path, "words", [{"text": f"w{n} w1", "key": f"w-{n}"} for n in range(20)])]
    }
    with_pack(content)
    content["pack"] |= {"num_seqs": 5, "seq_len": 8, "tokenizer": pinned, "tokenizer_path": where}
    build(StageARecipe.model_validate(content), tmp_path / "data")

    moved = (tmp_path / "data").rename(tmp_path / "moved")

    packed = open_artifact(moved / "stage_a" / "mixed" / "packed" / "mixed")
    token = PackedLineage(packed, moved).trace_token(1).token
    assert token is not None and token.text == "w1"
    assert peek_packed(packed.folder).segments[0].text.startswith("w")
    path = moved / path.name if below == "data" else path
    path.unlink()
    load_tokenizer.cache_clear()
    with pytest.raises(InputError, match="the tokenizer file can't be read") as error:
        peek_packed(packed.folder)
    assert error.value.where == str(path)


def test_what_is_not_there_is_refused_with_what_is(tmp_path: Path) -> None:
    lineage = lineage_of(pack(tmp_path), tmp_path)

    with pytest.raises(UsageError, match=r"there is no token 256; give 0 to 255"):
        lineage.trace_token(256)
    with pytest.raises(UsageError, match=r"there is no row 4; give 0 to 3"):
        lineage.trace_row(4)
    with pytest.raises(UsageError, match=r"no document with doc_id 'l-1' was drawn"):
        lineage.trace_document("l-1")


def test_a_set_whose_tokens_are_not_those_of_the_text_is_an_error(tmp_path: Path) -> None:
    packed = pack(tmp_path)
    path = packed.path("input_ids.mmap")
    tokens = bytearray(path.read_bytes())
    tokens[0] ^= 1
    path.chmod(0o644)
    path.write_bytes(tokens)

    lineage = lineage_of(packed, tmp_path)
    document = lineage.packed.segments(0)[0].doc_id
    for trace in (
        lambda: lineage.trace_token(0),
        lambda: lineage.trace_row(0),
        lambda: lineage.trace_document(document),
    ):
        with pytest.raises(InputError, match=rf"row 0 doesn't hold the tokens of document '{document}'"):
            trace()


def test_why_says_of_each_document_where_it_is_packed_or_why_not(tmp_path: Path) -> None:
    packed = pack(tmp_path, num_seqs=2)
    lineage = lineage_of(packed, tmp_path)
    in_rows = {one.document.doc_id for row in range(2) for one in lineage.trace_row(row)}

    for number in range(0, 40, 7):
        [fate] = fates_of(tmp_path / "data", f"l-{number}")
        if number % 2:
            assert not fate.packed  # an exact copy: no set could draw it
            assert fate.deduplicated[0][1].decision == "exact_duplicate"
        else:
            [of_set] = fate.packed
            assert (of_set.folder, of_set.reject) == (packed.folder, None)
            assert bool(of_set.draws) == (f"l-{number}" in in_rows)
            assert all(draw.doc_id == f"l-{number}" for draw in of_set.draws)
