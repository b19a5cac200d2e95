"""Packing a corpus: its content, and settings that must not change its bytes."""

import hashlib
import json
from pathlib import Path

import pyarrow.parquet as pq
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
from stage_a_build import NO_COMMIT, build, local_source
from stage_a_sources import recipe_content, with_pack
from word_tokenizer import encode_words, write_tokenizer
from wrong_tokenizer import wrong_gigatoken

from pipeline_assets.build.rows.follow import follow_document
from pipeline_assets.build.rows.row_stores import RowStores, open_rows
from pipeline_assets.build.rows.trace import trace_token
from pipeline_assets.corpus.formats.memmap import BOUNDARIES_FILE, INDEX_FILE, INPUT_IDS_FILE, open_packed
from pipeline_assets.corpus.packing import boundaries, plan_format
from pipeline_assets.corpus.packing.summary import summarize_packed
from pipeline_assets.corpus.tokens.o200k_harmony import VOCABULARY_SHA256, load_encoder
from pipeline_assets.corpus.tokens.o200k_vocabulary import END_OF_TEXT
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.spine.lineage import Lineage
from pipeline_assets.systems.registry import SYSTEMS
from pipeline_assets.systems.stage_a import StageARecipe


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_workers_ranges_and_levels_do_not_change_the_digest(
    folder: Path, strategy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = write_tokenizer(folder)
    shards = write_shards(folder / "c", TWO_SOURCES, 5)
    rules = recipe(tokenizer, strategy=strategy, num_seqs=20)

    in_process = pack(folder / "here", shards, rules, tokenizer)
    one_worker = pack(folder / "one", shards, rules, tokenizer, RunSettings(1, zstd_level=9))
    monkeypatch.setattr(plan_format, "_RANGE_TOKENS", 50)
    monkeypatch.setattr(boundaries, "_CHUNK_ROWS", 7)
    two_workers = pack(folder / "two", shards, rules, tokenizer, RunSettings(2))

    assert one_worker.manifest.digest == two_workers.manifest.digest == in_process.manifest.digest
    assert len(open_packed(two_workers.folder).meta.index_frames) > 5
    assert [open_packed(two_workers.folder).segments(row) for row in range(20)] == [
        open_packed(in_process.folder).segments(row) for row in range(20)
    ]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_neither_shard_size_nor_the_order_of_weights_changes_rows(folder: Path, strategy: str) -> None:
    large_shards, small_shards = (
        pack_documents(folder / str(shard), TWO_SOURCES, shard, strategy=strategy, num_seqs=10, weights=weights)
        for shard, weights in ((100, {"a": "0.25", "b": "0.75"}), (2, {"b": "0.75", "a": "0.25"}))
    )

    def contents(result: Artifact) -> list[str]:
        return [
            file.content_sha256 for file in result.manifest.identity.files if file.path in (INPUT_IDS_FILE, INDEX_FILE)
        ]

    assert contents(large_shards) == contents(small_shards)


def test_without_stored_boundaries_they_are_read_from_the_index(folder: Path) -> None:
    with_boundaries, without = (
        pack_documents(folder / str(stored), TWO_SOURCES, num_seqs=9, strategy="best_fit", boundaries=stored)
        for stored in (True, False)
    )

    first, second = open_packed(with_boundaries.folder), open_packed(without.folder)
    assert (with_boundaries.folder / BOUNDARIES_FILE).exists() and not (without.folder / BOUNDARIES_FILE).exists()
    assert [first.boundaries(row).tolist() for row in range(9)] == [second.boundaries(row).tolist() for row in range(9)]


def test_the_shipped_tokenizer_packs_real_text_and_is_in_the_label(folder: Path) -> None:
    texts = ["Ein naïver Bär 🐻 sagt <|endoftext|>.", "", "日本語 " * 40, "a\u2028b"]
    documents = [Doc("a", f"doc-{number}", text) for number, text in enumerate(texts)]
    rules = recipe(None, weights={"a": "1"}, num_seqs=4)

    result = pack(folder, write_shards(folder / "c", documents, 2), rules, None)

    packed, oracle = open_packed(result.folder), load_encoder(VOCABULARY_SHA256).oracle
    check_tokens(packed, {doc.doc_id: [*oracle.encode_ordinary(doc.text), END_OF_TEXT] for doc in documents})
    assert (packed.meta.eod_id, packed.meta.pad_id, packed.meta.vocabulary_size) == (199_999, 199_999, 201_088)
    assert packed.meta.created_at == "2026-01-01T12:00:00+00:00"
    assert packed.meta.tokenizer_sha256 == VOCABULARY_SHA256
    assert packed.meta.tokenizer_path.endswith("o200k_base.tiktoken")
    assert json.loads((result.folder / "meta.json").read_text())["counts"] == result.manifest.identity.counts
    assert "meta.json" in [file.path for file in result.manifest.storage]
    assert "meta.json" not in [file.path for file in result.manifest.identity.files]


def test_if_the_fast_tokenizer_is_wrong_tiktoken_encodes_everything_again(folder: Path) -> None:
    # page-175 is spot-checked; page-5, in the shard before it, is wrong too but not checked.
    shards = write_shards(folder / "c", [Doc("a", "page-5", "It's a page"), Doc("a", "page-175", "It's a page")], 1)
    rules = recipe(None, weights={"a": "1"}, seq_len=4, num_seqs=2)
    right = pack(folder / "right", shards, rules, None, driver="tiktoken")

    with wrong_gigatoken():
        retried = pack(folder / "redone", shards, rules, None)

    assert retried.manifest.digest == right.manifest.digest
    assert retried.manifest.provenance["tokenizer_driver"] == ["tiktoken"]


def test_a_text_with_the_end_of_document_token_is_rejected(folder: Path) -> None:
    documents = [Doc("a", "good", "w1 w2"), Doc("a", "bad", "w1 <end> w2"), Doc("a", "too", "w3 w4 w5 w6")]

    result = pack_documents(folder, documents, weights={"a": "1"}, num_seqs=1)

    counts = result.manifest.identity.counts
    assert counts["ledger"] == {"in": 3, "out": 2, "dropped": {}, "rejected": {"special_tokens": 1}}
    assert sorted(open_packed(result.folder)[0].tolist()) == sorted(
        [*encode_words("w1 w2"), *encode_words("w3 w4 w5 w6")]
    )


def test_best_fit_fills_a_single_row_exactly(folder: Path) -> None:
    documents, rules = sized_documents("a", [5, 3]), {"weights": {"a": "1"}, "num_seqs": 1, "strategy": "best_fit"}

    full = pack_documents(folder / "8", documents, **rules)

    assert full.manifest.identity.counts["padding_tokens"] == 0
    with pytest.raises(UsageError, match=r"the available tokens do not fill a row of 9, or raise its max_epochs"):
        pack_documents(folder / "9", documents, seq_len=9, **rules)


@pytest.mark.parametrize(
    ("cap", "epochs"), [("0.5", "0.545455"), ("2.5", "2.545455"), ("1", "1.000000"), ("3", "3.000000")]
)
def test_a_cap_of_whole_epochs_is_exact_and_others_within_a_document(folder: Path, cap: str, epochs: str) -> None:
    documents = [*sized_documents("a", [8] * 11), *sized_documents("b", [8] * 40)]

    packed = pack_documents(folder, documents, seq_len=2, num_seqs=int(float(cap) * 88), caps={"a": cap, "b": "9"})

    assert packed.manifest.identity.counts["by_source"]["a"]["epochs"] == epochs


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_cut_documents_are_counted_longer_ones_included(folder: Path, strategy: str) -> None:
    documents = [*sized_documents("a", [5] * 16), *sized_documents("b", [5, 5, 20, 5, 5] * 2)]

    packed = pack_documents(folder, documents, strategy=strategy, num_seqs=18)

    summary = summarize_packed(packed)
    lines = pq.read_table(packed.path("documents.parquet")).to_pylist()
    for source in "ab":
        drawn = [line for line in lines if line["source"] == source]
        cut = [line for line in drawn if not line["is_whole"]]
        assert summary["by_source"][source]["cut_documents"] == len(cut)
        assert summary["by_source"][source]["cut_share"] == f"{len(cut) / len(drawn):.6f}"
    assert summary["cut_documents"] == sum(not line["is_whole"] for line in lines)
    assert summary["cut_share"] == f"{summary['cut_documents'] / len(lines):.6f}"
    assert summary["by_source"]["b"]["longer_than_a_row"] == sum(line["tokens"] == 20 for line in lines) > 0


def test_a_text_with_special_tokens_is_not_packed_and_its_trace_has_the_reason(tmp_path: Path) -> None:
    path = write_tokenizer(tmp_path)
    tokenizer = {"family": "hf_tokenizer", "end_of_document": "<end>"}
    tokenizer = {**tokenizer, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
    words = [{"text": f"w{n} w1 w2 w3", "key": f"w-{n}"} for n in range(9)]
    sources = [local_source(tmp_path, "words", [*words, {"text": "w4 <end> w5", "key": "bad"}])]
    content = recipe_content(NO_COMMIT) | {"sources": sources}
    with_pack(content)
    content["pack"] |= {"num_seqs": 5, "seq_len": 8, "tokenizer": tokenizer, "tokenizer_path": str(path)}

    packed = build(StageARecipe.model_validate(content), tmp_path / "data")["stage_a/packed"]

    [document_trace] = follow_document(RowStores(SYSTEMS.kinds, Lineage(tmp_path / "data")), "bad")
    packing = [fate.facts for _, fate in document_trace.downstream if "draws" in fate.facts]
    assert [(facts["draws"], facts["reject"]["reason"]) for facts in packing] == [([], "special_tokens")]
    token = trace_token(open_rows(packed.folder, SYSTEMS.kinds), 1).token
    assert token is not None
    assert (token.number, token.text, token.after.split()[:2]) == (1, "w1", ["w2", "w3"])
