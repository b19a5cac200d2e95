"""A corpus as token shards: one token stream, cut into rows."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import zstandard
from encoded_shards import write_encoded
from hypothesis import given
from hypothesis import strategies as st
from pack_build import Doc, license_for
from refusals import refusal
from shards_build import by_model, manual, shard_documents
from word_tokenizer import write_tokenizer
from wrong_tokenizer import wrong_gigatoken

from pipeline_assets.build.rows.row_values import Part
from pipeline_assets.build.rows.token_rows import TokenShardRows
from pipeline_assets.corpus.corpus_shard import CorpusShard
from pipeline_assets.corpus.packing.encoded_corpus import EncodedCorpus, EncodedShard
from pipeline_assets.corpus.shards.recipe import ShardsRecipe
from pipeline_assets.corpus.shards.shard_corpus import (
    TokenRange,
    TokenShardPlan,
    plan_token_shards,
    shard_corpus,
    write_shard,
)
from pipeline_assets.corpus.tokens.families import TokenizerFile, load_tokenizer
from pipeline_assets.corpus.tokens.o200k_harmony import VOCABULARY_SHA256, HarmonyRecipe, load_encoder
from pipeline_assets.corpus.tokens.o200k_vocabulary import END_OF_TEXT
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.spine.errors import InputError, UsageError
from pipeline_assets.spine.lineage import Lineage
from pipeline_assets.spine.opening import open_staging_dir
from pipeline_assets.spine.stage import WHOLE_SHARD
from pipeline_assets.spine.staging import Receipt, StagingView

SHIPPED = TokenizerFile(HarmonyRecipe())


def encode_stream(documents: list[Doc], tokenizer: TokenizerFile) -> list[int]:
    """Encode all documents, one by one, each with its end."""
    library = load_tokenizer(tokenizer)
    return [
        token for doc in documents for token in [*library.encode([doc.text]).ids.tolist(), library.end_of_document_id]
    ]


def read_rows(shards: Artifact) -> np.ndarray:
    """Read all rows with NumPy alone."""
    files = [file.path for file in shards.manifest.identity.files if file.path.endswith(".npy")]
    return np.concatenate([np.load(shards.folder / path) for path in files])


@pytest.mark.parametrize("rows_per_shard", [1, 5, 10_000])
def test_rows_are_consecutive_documents(folder: Path, texts: list[str], model: Path, rows_per_shard: int) -> None:
    documents, tokenizer = manual(texts[:40]), by_model(model)

    artifact = shard_documents(folder, documents, tokenizer, rows_per_shard=rows_per_shard)

    stream, rows = encode_stream(documents, tokenizer), read_rows(artifact)
    assert rows.dtype == np.uint16
    assert rows.reshape(-1).tolist() == stream[: len(stream) // 16 * 16]
    sizes = [file.rows for file in artifact.manifest.identity.files if file.path.endswith(".npy")]
    assert set(sizes[:-1]) <= {rows_per_shard} and 0 < sizes[-1] <= rows_per_shard
    header = (artifact.folder / "shard_00000.npy").read_bytes()[:80]
    assert header[:8] == b"\x93NUMPY\x01\x00"
    assert b"'fortran_order': False" in header


def test_the_table_has_document_starts_and_the_ledger_fates(folder: Path, texts: list[str], model: Path) -> None:
    documents, tokenizer = manual(texts[:30]), by_model(model)

    lengths = [len(encode_stream([doc], tokenizer)) for doc in documents]
    starts = [sum(lengths[:number]) for number in range(30)]
    stop = starts[25] + 1  # of one row, in which the document 25 has a token
    kept = range(26)

    artifact = shard_documents(folder, documents, tokenizer, seq_len=stop)

    lines = pq.read_table(artifact.path("documents.parquet")).to_pylist()
    assert lines == [
        {
            "doc_id": f"manual-{number}",
            "source": "manual",
            "shard": f"shards/{number // 7:05d}.jsonl.zst",
            "row": number % 7,
            "license_tag": license_for(f"manual-{number}"),
            "start": starts[number],
            "tokens": lengths[number],
        }
        for number in kept
    ]
    licences = Counter[str]()
    for number in kept:
        licences[license_for(f"manual-{number}")] += min(lengths[number], stop - starts[number])
    counts = artifact.manifest.identity.counts
    assert counts == {
        "ledger": {"in": 30, "out": 26, "dropped": {"in_remainder": 4}, "rejected": {}},
        "documents": 26,
        "tokens": stop,
        "sequences": 1,
        "shards": 1,
        "cut_documents": 1,
        "remainder_tokens": sum(lengths) - stop,
        "text_bytes": sum(len(doc.text.encode()) for doc in documents),
        "license_tokens": dict(licences),
    }
    assert artifact.manifest.identity.ledger.adds_up


def test_a_stream_that_ends_with_a_row_drops_nothing(folder: Path) -> None:
    documents = [Doc("a", f"a-{number}", "w1 w2 w3") for number in range(4)]

    artifact = shard_documents(folder, documents, open_word_tokenizer(folder), seq_len=8)

    counts = artifact.manifest.identity.counts
    assert (counts["sequences"], counts["remainder_tokens"], counts["cut_documents"]) == (2, 0, 0)
    assert counts["ledger"]["dropped"] == {}


def open_word_tokenizer(folder: Path) -> TokenizerFile:
    from pack_build import recipe

    path = write_tokenizer(folder)
    return TokenizerFile(recipe(path).tokenizer, path)


def test_a_large_vocabulary_takes_int32(folder: Path) -> None:
    documents = [
        Doc("a", f"doc-{n}", text) for n, text in enumerate(["Ein naïver Bär 🐻 <|endoftext|>", "", "日本語 " * 9])
    ]

    artifact = shard_documents(folder, documents, SHIPPED, seq_len=4)

    oracle = load_encoder(VOCABULARY_SHA256).oracle
    stream = [token for doc in documents for token in [*oracle.encode_ordinary(doc.text), END_OF_TEXT]]
    assert read_rows(artifact).dtype == np.int32
    assert read_rows(artifact).reshape(-1).tolist() == stream[: len(stream) // 4 * 4]
    assert artifact.manifest.identity.decisions == {
        "dtype": "int32",
        "seq_len": 4,
        "end_of_document": END_OF_TEXT,
        "vocabulary_size": 201_088,
        "tokenizer_sha256": VOCABULARY_SHA256,
        "tokenizer": {"family": "o200k_harmony", "sha256": VOCABULARY_SHA256},
    }


def test_a_text_that_cannot_be_encoded_is_rejected(folder: Path) -> None:
    documents = [Doc("a", "a-0", "One two three"), Doc("a", "blank", " " * 1_000_000), Doc("a", "a-2", "Four five")]

    artifact = shard_documents(folder, documents, SHIPPED, seq_len=3)

    ledger = artifact.manifest.identity.ledger
    assert (ledger.rows_in, ledger.out, ledger.rejected) == (3, 2, {"blanks": 1})
    rows = TokenShardRows(artifact, Lineage(folder))
    fates = [
        rows.fate(Part(doc.doc_id, "a", "shards/00000.jsonl.zst", number, "")) for number, doc in enumerate(documents)
    ]
    assert [fate.outcome for fate in fates] == ["in_rows", "rejected", "in_rows"]
    assert fates[1].detail.startswith("blanks (a million blanks")


def test_uint16_for_a_large_vocabulary_is_refused_before_a_text_is_read(folder: Path) -> None:
    shard = CorpusShard("a-0", "shards/0.jsonl.zst", folder / "gone", 1, "a", 0)
    staging = StagingView(folder)

    line = refusal(
        lambda: shard_corpus(staging, [shard], ShardsRecipe(dtype="uint16"), SHIPPED, RunSettings()), UsageError
    )

    assert line == (
        "shards.dtype: uint16 allows only ids below 65,536, and the vocabulary has 201,088; remove it, or set int32"
    )


def test_too_little_text_for_a_row_is_refused_with_its_token_count(folder: Path) -> None:
    documents = [Doc("a", "a-0", "w1 w2 w3")]

    line = refusal(lambda: shard_documents(folder, documents, open_word_tokenizer(folder), seq_len=8), UsageError)

    assert line == (
        "shards.seq_len: must be at most 4, the number of tokens of a, got 8; "
        "add text, set shorter rows, or remove the source"
    )


def test_a_source_without_documents_is_named(folder: Path) -> None:
    (folder / "empty.jsonl.zst").write_bytes(zstandard.compress(b""))
    shard = CorpusShard("a-0", "shards/0.jsonl.zst", folder / "empty.jsonl.zst", 0, "a", 0)

    with open_staging_dir(folder / "shards", {}) as staging:
        line = refusal(
            lambda: shard_corpus(staging, [shard], ShardsRecipe(), open_word_tokenizer(folder), RunSettings()),
            UsageError,
        )

    assert line == (
        "shards.sources: a has no documents to encode; "
        "add documents that `filters` and `dedup` keep, or remove a from this section"
    )


def test_an_id_beyond_the_vocabulary_is_refused_with_the_tokenizer(folder: Path) -> None:
    tokenizer = open_word_tokenizer(folder)
    shard = TokenShardPlan("00000", (1, 4), (TokenRange(write_encoded(folder, [[2, 3, 77_000, 1]]), 0, 4),))

    line = refusal(lambda: write_shard(shard, tokenizer, "uint16", WHOLE_SHARD, StagingView(folder)), InputError)

    assert line == (
        f"{tokenizer.explicit_path}: tokenizer returned id 77,000, but its vocabulary has 52; "
        "use a tokenizer whose ids are all in its vocabulary"
    )
    assert not (folder / "shard_00000.npy").exists()


def test_a_shard_without_documents_between_others_changes_no_row(folder: Path) -> None:
    shards = [[[5, 6, 7]], [], [[8, 9], [10]]]
    encoded = tuple(write_encoded(folder / str(number), documents) for number, documents in enumerate(shards))
    receipts = [Receipt([], {"tokens": tokens}) for tokens in (3, 0, 3)]
    corpus = EncodedCorpus(encoded, receipts, lambda *_: iter(()))

    [shard] = plan_token_shards(corpus, 3, ShardsRecipe(seq_len=2))
    write_shard(shard, open_word_tokenizer(folder), "uint16", WHOLE_SHARD, StagingView(folder))

    assert np.load(folder / "shard_00000.npy").tolist() == [[5, 6], [7, 8], [9, 10]]


def test_workers_compression_levels_and_document_shards_change_no_row(
    folder: Path, texts: list[str], model: Path
) -> None:
    documents, tokenizer = manual(texts[:60]), by_model(model)
    ways = [RunSettings(), RunSettings(1, zstd_level=9), RunSettings(2), RunSettings(2, "spawn")]

    first, *others = (
        shard_documents(folder / str(number), documents, tokenizer, settings) for number, settings in enumerate(ways)
    )
    small, large = (shard_documents(folder / str(size), documents, tokenizer, shard_size=size) for size in (3, 100))

    assert {other.manifest.digest for other in others} == {first.manifest.digest}
    assert read_rows(small).tolist() == read_rows(large).tolist() == read_rows(first).tolist()


def test_a_wrong_fast_tokenizer_is_replaced_by_tiktoken_for_all_documents(folder: Path) -> None:
    # page-175 is spot-checked; page-5, in the shard before it, is wrong too but not checked.
    documents = [Doc("a", "page-5", "It's a page"), Doc("a", "page-175", "It's a page")]
    right = shard_documents(folder / "right", documents, replace(SHIPPED, driver="tiktoken"), seq_len=4, shard_size=1)

    with wrong_gigatoken():
        artifact = shard_documents(folder / "found", documents, SHIPPED, seq_len=4, shard_size=1)

    assert artifact.manifest.digest == right.manifest.digest
    assert artifact.manifest.provenance["tokenizer_driver"] == ["tiktoken"]


@given(st.lists(st.integers(0, 30), min_size=1, max_size=8), st.integers(2, 9), st.integers(1, 4))
def test_the_pieces_of_shards_are_the_consecutive_runs(lengths: list[int], seq_len: int, per: int) -> None:
    runs = tuple(EncodedShard("a", str(n), Path(str(n)), Path("x"), 1) for n in range(len(lengths)))
    receipts = [Receipt([], {"tokens": length}) for length in lengths]
    rows = sum(lengths) // seq_len

    shards = plan_token_shards(
        EncodedCorpus(runs, receipts, lambda *_: iter(())), rows, ShardsRecipe(seq_len=seq_len, rows_per_shard=per)
    )

    stream = [(str(run), token) for run, length in enumerate(lengths) for token in range(length)]
    dealt = [
        [(piece.shard.corpus_path, token) for piece in shard.token_ranges for token in range(piece.start, piece.stop)]
        for shard in shards
    ]
    assert [len(tokens) for tokens in dealt] == [shard.shape[0] * seq_len for shard in shards]
    assert [token for tokens in dealt for token in tokens] == stream[: rows * seq_len]
    assert all(piece.start < piece.stop for shard in shards for piece in shard.token_ranges)
    assert [shard.shape[0] for shard in shards[:-1]] == [per] * (len(shards) - 1)
