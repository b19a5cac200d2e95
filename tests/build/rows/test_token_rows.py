"""Traces from tokens, rows and documents of a packed set to source rows."""

import functools
import json
import shutil
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from forgery import overwrite
from stage_a_build import NO_COMMIT, build, local_source
from stage_a_sources import recipe_content, with_dedup, with_pack
from word_tokenizer import write_tokenizer

from pipeline_assets.build.rows.follow import follow_document
from pipeline_assets.build.rows.row_stores import RowStores, open_rows
from pipeline_assets.build.rows.source_row import LocalRow
from pipeline_assets.build.rows.token_rows import PackedRows
from pipeline_assets.build.rows.trace import TracedRow, trace_id, trace_row, trace_token
from pipeline_assets.corpus.tokens.families import load_tokenizer
from pipeline_assets.corpus.tokens.o200k_harmony import VOCABULARY_SHA256, load_encoder
from pipeline_assets.spine.artifact import Artifact, open_artifact
from pipeline_assets.spine.errors import InputError, UsageError
from pipeline_assets.spine.lineage import Lineage
from pipeline_assets.systems.registry import SYSTEMS
from pipeline_assets.systems.stage_a import StageARecipe

LETTERS = [
    {"text": f"Dear friend, letter {n // 2} is of the river and of all the boats that go by.", "key": f"l-{n}"}
    for n in range(40)
]
Pack = Callable[..., Artifact]
PAGES = [{"text": f"日本語 is spoken in page {n}.", "key": f"p-{n}"} for n in range(6)]


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Pack:
    """Pack letters, every second one a copy, and pages, more than exist."""

    @functools.cache
    def packed(**changes: object) -> Artifact:
        folder = tmp_path_factory.mktemp("packed")
        sources = [local_source(folder, "letters", LETTERS), local_source(folder, "pages", PAGES)]
        content = recipe_content(NO_COMMIT) | {"sources": sources}
        with_dedup(content)
        with_pack(content)
        content["pack"] |= {"weights": {"letters": "0.6", "pages": "0.4"}, "num_seqs": 4, **changes}
        return build(StageARecipe.model_validate(content), folder / "data")["stage_a/packed"]

    return packed


def open_packed_rows(packed: Path) -> PackedRows:
    store = open_rows(packed, SYSTEMS.kinds, Lineage(packed.parents[3]))
    assert isinstance(store, PackedRows)
    return store


def read_source_line(traced: TracedRow) -> dict[str, Any]:
    """Read the line that begins at the byte offset of a traced row."""
    [row] = traced.text.source.rows
    assert isinstance(row, LocalRow)
    with open(row.path, "rb") as file:
        file.seek(row.row)
        line: dict[str, Any] = json.loads(file.readline())
        return line


@pytest.mark.parametrize("strategy", ["sequential", "best_fit"])
def test_every_token_is_in_the_line_that_it_is_traced_to_or_is_padding(pack: Pack, strategy: str) -> None:
    packed, oracle = pack(strategy=strategy), load_encoder(VOCABULARY_SHA256).oracle
    store = open_packed_rows(packed.folder)
    ids, padding = store.opened.input_ids.reshape(-1).tolist(), 0

    for position, token_id in enumerate(ids):
        try:
            traced = trace_token(store, position)
        except UsageError as error:
            assert "is padding" in str(error)
            padding += 1
            continue
        line = read_source_line(traced)
        assert line["key"] == traced.text.part.id
        expected = [*oracle.encode_ordinary(line["text"]), store.opened.meta.eod_id]
        assert (traced.token.position, traced.token.id) == (position, token_id)
        assert expected[traced.token.number] == token_id
        assert traced.token.is_end_of_document == (traced.token.number == len(expected) - 1)
    assert padding == packed.manifest.identity.counts["padding_tokens"]


def test_segments_of_a_row_are_contiguous_and_peek_shows_their_texts(pack: Pack) -> None:
    store = open_packed_rows(pack(strategy="sequential").folder)

    for row in range(4):
        traced, preview = trace_row(store, row), store.row_at(row)
        parts = [part for document in traced for _, part in document.row_parts]
        assert [part.column for part in parts] == [sum(part.tokens for part in parts[:n]) for n in range(len(parts))]
        assert preview.parts == tuple(parts)
        assert sum(part.tokens for part in parts) + preview.padding == 64
        for document, part in zip(traced, parts, strict=True):
            assert part.text.removesuffix("<|endoftext|>") in read_source_line(document)["text"]


@pytest.mark.parametrize("strategy", ["sequential", "best_fit"])
def test_trace_of_a_document_lists_all_its_epochs_and_rows(pack: Pack, strategy: str) -> None:
    packed = pack(strategy=strategy, num_seqs=40, seq_len=8, boundaries=False)
    store = open_packed_rows(packed.folder)
    placements = []

    for page in PAGES:
        [trace] = trace_id(store, page["key"])
        assert read_source_line(trace)["key"] == page["key"]
        draws = trace.facts["draws"]
        assert [draw["epoch"] for draw in draws] == list(range(len(draws)))
        assert sum(draw["packed_tokens"] for draw in draws) == sum(part.tokens for _, part in trace.row_parts)
        placements += [(row.number, part.column, page["key"], part.start, part.tokens) for row, part in trace.row_parts]
    parts = [(row, part) for row in range(40) for part in store.row_at(row).parts]
    expected = [(row, part.column, part.id, part.start, part.tokens) for row, part in parts]
    assert sorted(placements) == [placement for placement in expected if placement[2].startswith("p-")]
    assert len({placement[0] for placement in placements if placement[2] == "p-2"}) > 2


@pytest.mark.parametrize("tokenizer_folder", ["data", "."])
def test_the_tokenizer_is_found_after_the_data_root_was_moved(tmp_path: Path, tokenizer_folder: str) -> None:
    (tmp_path / "data").mkdir()
    path = write_tokenizer(tmp_path / tokenizer_folder)
    pinned = {"family": "hf_tokenizer", "sha256": sha256(path.read_bytes()).hexdigest(), "end_of_document": "<end>"}
    tokenizer_path = path.name if tokenizer_folder == "data" else str(path)
    content = recipe_content(NO_COMMIT) | {
        "sources": [local_source(tmp_path, "words", [{"text": f"w{n} w1", "key": f"w-{n}"} for n in range(20)])]
    }
    with_pack(content)
    content["pack"] |= {"num_seqs": 5, "seq_len": 8, "tokenizer": pinned, "tokenizer_path": tokenizer_path}
    build(StageARecipe.model_validate(content), tmp_path / "data")

    moved = (tmp_path / "data").rename(tmp_path / "moved")

    packed = moved / "stage_a" / "mixed" / "packed" / "mixed"
    token = trace_token(open_packed_rows(packed), 1).token
    assert token is not None and token.text == "w1"
    assert open_rows(packed, SYSTEMS.kinds).row_at(0).parts[0].text.startswith("w")
    path = moved / path.name if tokenizer_folder == "data" else path
    path.unlink()
    load_tokenizer.cache_clear()
    with pytest.raises(InputError, match="cannot read the tokenizer file") as error:
        open_rows(packed, SYSTEMS.kinds).row_at(0)
    assert error.value.where == str(path)


def test_missing_tokens_rows_and_documents_are_refused(pack: Pack) -> None:
    store = open_packed_rows(pack(strategy="sequential").folder)

    with pytest.raises(UsageError, match=r"token 256 not found; choose 0 to 255"):
        trace_token(store, 256)
    with pytest.raises(UsageError, match=r"row 4 not found; choose 0 to 3"):
        trace_row(store, 4)
    with pytest.raises(UsageError, match=r"no segment has the doc_id 'l-1'"):
        trace_id(store, "l-1")


def test_tokens_that_differ_from_the_text_are_an_error(pack: Pack, tmp_path: Path) -> None:
    sealed = pack(strategy="best_fit").folder
    shutil.copytree(sealed.parents[3], tmp_path / "data")
    packed = open_artifact(tmp_path / "data" / sealed.relative_to(sealed.parents[3]))
    path = packed.path("input_ids.mmap")
    tokens = bytearray(path.read_bytes())
    tokens[0] ^= 1
    overwrite(path, bytes(tokens))

    store = open_packed_rows(packed.folder)
    document = store.opened.segments(0)[0].doc_id
    for trace in (lambda: trace_token(store, 0), lambda: trace_row(store, 0), lambda: trace_id(store, document)):
        with pytest.raises(InputError, match=rf"row 0 differs from the tokens of document '{document}'"):
            trace()


def test_document_is_followed_to_its_rows_or_to_its_drop_reason(pack: Pack) -> None:
    packed = pack(num_seqs=2)
    store, lineage = open_packed_rows(packed.folder), Lineage(packed.folder.parents[3])
    in_rows = {part.id for row in range(2) for part in store.row_at(row).parts}

    for number in range(0, 40, 7):
        [followed] = follow_document(RowStores(SYSTEMS.kinds, lineage), f"l-{number}")
        fates = {row_store.display_names.json_key: fate for row_store, fate in followed.downstream}
        if number % 2:
            assert fates["deduplicated"].outcome == "exact_duplicate"
            assert "packed" not in fates  # no set could draw it
        else:
            packed_fate = fates["packed"]
            assert (packed_fate.artifact.folder, packed_fate.facts["reject"]) == (packed.folder, None)
            assert bool(packed_fate.facts["draws"]) == (f"l-{number}" in in_rows)
            assert all(draw["doc_id"] == f"l-{number}" for draw in packed_fate.facts["draws"])
