"""What may not change a packed set, what it is made of, and what cannot be packed."""

import hashlib
import itertools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gigatoken
import pyarrow.parquet as pq
import pytest
from numbered_pages import pages
from pack_build import (
    Made,
    check_tokens,
    documents_of,
    pack,
    recipe,
    write_shards,
)
from stage_a_build import NO_COMMIT, build, local_source
from stage_a_sources import recipe_content, with_pack
from word_tokenizer import ids_of, write_tokenizer

from pipeline_assets.corpus.dedup.corpus_shard import corpus_shards
from pipeline_assets.corpus.document_fate import fates_of
from pipeline_assets.corpus.formats.memmap import BOUNDARIES, INDEX, INPUT_IDS, open_packed
from pipeline_assets.corpus.packing import row_ranges
from pipeline_assets.corpus.packing.summary import summary_of
from pipeline_assets.corpus.recipes.stage_a import StageARecipe
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.engine import EngineSettings
from pipeline_assets.corpus.spine.errors import InputError, Obstacle, UsageError
from pipeline_assets.corpus.tokens.families import load_tokenizer
from pipeline_assets.corpus.tokens.o200k_harmony import END_OF_TEXT, VOCABULARY_SHA256, load_encoder
from pipeline_assets.corpus.trace.packed_to_source import PackedLineage

TWO_SOURCES = [*documents_of("a", [3, 5, 20, 4, 2, 9] * 4), *documents_of("b", [4, 4, 4, 7, 30] * 4)]
STRATEGIES = ["sequential", "best_fit"]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_workers_ranges_and_levels_change_no_byte_that_counts(
    folder: Path, strategy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = write_tokenizer(folder)
    shards = write_shards(folder / "c", TWO_SOURCES, 5)
    rules = recipe(tokenizer, strategy=strategy, num_seqs=20)

    here = pack(folder / "here", shards, rules, tokenizer)
    one = pack(folder / "one", shards, rules, tokenizer, EngineSettings(1, "fork"), zstd_level=9)
    monkeypatch.setattr(row_ranges, "_RANGE_TOKENS", 50)
    two = pack(folder / "two", shards, rules, tokenizer, EngineSettings(2, "fork"))

    assert one.manifest.digest == two.manifest.digest == here.manifest.digest
    assert len(open_packed(two.folder).meta.index_frames) > 5
    assert [open_packed(two.folder).segments(row) for row in range(20)] == [
        open_packed(here.folder).segments(row) for row in range(20)
    ]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_neither_shards_nor_the_order_of_a_recipe_change_rows(folder: Path, strategy: str) -> None:
    tokenizer = write_tokenizer(folder)
    weights = {"a": "0.25", "b": "0.75"}

    one = pack(
        folder / "one",
        write_shards(folder / "c", TWO_SOURCES, 100),
        recipe(tokenizer, strategy=strategy, num_seqs=10, weights=weights),
        tokenizer,
    )
    many = pack(
        folder / "many",
        write_shards(folder / "d", TWO_SOURCES, 2),
        recipe(tokenizer, strategy=strategy, num_seqs=10, weights=dict(reversed(weights.items()))),
        tokenizer,
    )

    def contents(result: Artifact) -> list[str]:
        return [one.content_sha256 for one in result.manifest.identity.files if one.path in (INPUT_IDS, INDEX)]

    assert contents(one) == contents(many)


def test_another_seed_draws_other_documents_in_another_order(folder: Path) -> None:
    tokenizer = write_tokenizer(folder)
    shards = write_shards(folder / "c", TWO_SOURCES, 100)

    packed = [
        open_packed(pack(folder / str(seed), shards, recipe(tokenizer, seed=seed, num_seqs=5), tokenizer).folder)
        for seed in (1, 2)
    ]

    assert packed[0].input_ids.tolist() != packed[1].input_ids.tolist()


def test_sources_lie_mixed_and_not_in_lumps(folder: Path) -> None:
    tokenizer = write_tokenizer(folder)
    shards = write_shards(folder / "c", [*documents_of("a", [8] * 200), *documents_of("b", [8] * 200)], 100)

    packed = open_packed(pack(folder, shards, recipe(tokenizer, num_seqs=400), tokenizer).folder)

    sources = [packed.segments(row)[0].source for row in range(400)]
    changes = sum(one != other for one, other in itertools.pairwise(sources))
    assert 160 < changes < 240  # of 399, as by tossing a coin


def test_an_epoch_is_over_before_a_document_comes_again(folder: Path) -> None:
    tokenizer = write_tokenizer(folder)
    shards = write_shards(folder / "c", documents_of("a", [4] * 10), 3)

    result = pack(folder, shards, recipe(tokenizer, weights={"a": "1"}, num_seqs=13, max_epochs="2.6"), tokenizer)

    lines = pq.read_table(result.path("documents.parquet")).to_pylist()
    drawn = [line["doc_id"] for line in lines]
    assert len(lines) == 26
    assert [sum(line["epoch"] == epoch for line in lines) for epoch in range(3)] == [10, 10, 6]
    assert {drawn.count(doc_id) for doc_id in drawn} == {2, 3}
    assert result.manifest.identity.counts["by_source"]["a"]["epochs"] == "2.600000"


def test_without_boundaries_they_are_read_from_the_index(folder: Path) -> None:
    tokenizer = write_tokenizer(folder)
    shards = write_shards(folder / "c", TWO_SOURCES, 5)

    with_them = pack(folder / "with", shards, recipe(tokenizer, num_seqs=9, strategy="best_fit"), tokenizer)
    without = pack(
        folder / "without", shards, recipe(tokenizer, num_seqs=9, strategy="best_fit", boundaries=False), tokenizer
    )

    one, other = open_packed(with_them.folder), open_packed(without.folder)
    assert (with_them.folder / BOUNDARIES).exists() and not (without.folder / BOUNDARIES).exists()
    assert [one.boundaries(row).tolist() for row in range(9)] == [other.boundaries(row).tolist() for row in range(9)]


def test_the_shipped_tokenizer_packs_real_text_and_the_label_tells_of_it(folder: Path) -> None:
    texts = ["Ein naïver Bär 🐻 sagt <|endoftext|>.", "", "日本語 " * 40, "a\u2028b"]
    documents = [Made("a", f"doc-{number}", text) for number, text in enumerate(texts)]
    rules = recipe(None, weights={"a": "1"}, num_seqs=4)

    result = pack(folder, write_shards(folder / "c", documents, 2), rules, None)

    packed, oracle = open_packed(result.folder), load_encoder(VOCABULARY_SHA256).oracle
    check_tokens(packed, {one.doc_id: [*oracle.encode_ordinary(one.text), END_OF_TEXT] for one in documents})
    assert (packed.meta.eod_id, packed.meta.pad_id, packed.meta.vocabulary_size) == (199_999, 199_999, 201_088)
    assert packed.meta.created_at == "2026-01-01T12:00:00+00:00"
    assert packed.meta.tokenizer_sha256 == VOCABULARY_SHA256
    assert packed.meta.tokenizer_path.endswith("o200k_base.tiktoken")
    assert "meta.json" in [file.path for file in result.manifest.storage]
    assert "meta.json" not in [file.path for file in result.manifest.identity.files]


class WrongTokenizer:
    """gigatoken with the splits of cl100k, which part a contraction from its word."""

    @staticmethod
    def from_tiktoken(vocabulary: Path, pretokenizer: str, special_tokens: dict[str, int]) -> gigatoken.Tokenizer:
        return TOKENIZER.from_tiktoken(vocabulary, pretokenizer="cl100k", special_tokens=special_tokens)


TOKENIZER = gigatoken.Tokenizer


def test_when_the_fast_tokenizer_is_wrong_everything_is_encoded_again_by_tiktoken(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # page-175 is spot-checked; page-5, in the shard before it, is wrong too and nobody looks at it.
    shards = write_shards(folder / "c", [Made("a", "page-5", "It's a page"), Made("a", "page-175", "It's a page")], 1)
    rules = recipe(None, weights={"a": "1"}, seq_len=4, num_seqs=2)
    right = pack(folder / "right", shards, rules, None, driver="tiktoken")

    monkeypatch.setattr(gigatoken, "Tokenizer", WrongTokenizer)
    load_tokenizer.cache_clear()
    redone = pack(folder / "redone", shards, rules, None)
    load_tokenizer.cache_clear()

    assert redone.manifest.digest == right.manifest.digest
    assert redone.manifest.provenance["tokenizer_driver"] == ["tiktoken"]


def test_a_text_that_gives_the_end_of_a_document_is_rejected_and_counted(folder: Path) -> None:
    tokenizer = write_tokenizer(folder)
    documents = [Made("a", "good", "w1 w2"), Made("a", "bad", "w1 <end> w2"), Made("a", "too", "w3 w4 w5 w6")]
    rules = recipe(tokenizer, weights={"a": "1"}, num_seqs=1)

    result = pack(folder, write_shards(folder / "c", documents, 9), rules, tokenizer)

    counts = result.manifest.identity.counts
    assert counts["ledger"] == {"in": 3, "out": 2, "dropped": {}, "rejected": {"special_tokens": 1}}
    assert sorted(open_packed(result.folder)[0].tolist()) == sorted([*ids_of("w1 w2"), *ids_of("w3 w4 w5 w6")])


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        (
            {"num_seqs": 30},
            "num_seqs: 30 rows take 120 tokens of b, which has 106: 1.133 epochs, and its cap is 1; "
            "ask for 26 rows at most, or give it a weight of 0.441666 at most, or raise its max_epochs",
        ),
        (
            {"num_seqs": 40},  # of all sources there are tokens for 34: no weights would do
            "num_seqs: 40 rows take 160 tokens of b, which has 106: 1.51 epochs, and its cap is 1; "
            "ask for 26 rows at most, or raise its max_epochs",
        ),
        (
            {"num_seqs": 30, "strategy": "best_fit"},
            "num_seqs: 30 rows take 120 tokens of b, which has 106: 1.133 epochs, and its cap is 1; "
            "ask for 27 rows at most, or give it a weight of 0.441666 at most, or raise its max_epochs",
        ),
        *(
            (
                {"num_seqs": 1, "seq_len": 1000, "strategy": strategy},
                "num_seqs: 1 row takes 500 tokens of b, which has 106: 4.717 epochs, and its cap is 1; "
                "make rows shorter: what may be drawn doesn't fill one of 1,000, or raise its max_epochs",
            )
            for strategy in STRATEGIES
        ),
        *(
            (
                {"num_seqs": 1, "seq_len": 250, "strategy": strategy},
                "num_seqs: 1 row takes 125 tokens of b, which has 106: 1.18 epochs, and its cap is 1; "
                "make rows shorter: what may be drawn doesn't fill one of 250, or give it a weight of 0.424 at most, "
                "or raise its max_epochs",
            )
            for strategy in STRATEGIES
        ),
        (
            {"num_seqs": 9, "seq_len": 250},
            "num_seqs: 9 rows take 1,125 tokens of b, which has 106: 10.614 epochs, and its cap is 1; "
            "make rows shorter: what may be drawn doesn't fill one of 250, "
            "or give it a lower weight and ask for fewer rows, or raise its max_epochs",
        ),
        *(
            (
                {"caps": {"a": "0.0001"}, "strategy": strategy},
                "num_seqs: 2 rows take 8 tokens of a, which has 172: 0.047 epochs, and its cap is 0.0001; "
                "make rows shorter: what may be drawn doesn't fill one of 8, or give it a weight of 0.001075 at most, "
                "or raise its max_epochs",
            )
            for strategy in STRATEGIES
        ),
        (
            {"weights": {"a": "0.5", "bb": "0.5"}},
            "weights: there is no source bb; did you mean b?",
        ),
        ({"weights": {"a": "1"}}, "weights: the source b has no weight; give it one, or pack a corpus without it"),
    ],
)
def test_what_cannot_be_packed_is_said_in_one_line(folder: Path, changes: dict[str, Any], complaint: str) -> None:
    tokenizer = write_tokenizer(folder)
    documents = [*documents_of("a", [3, 5, 20, 4, 2, 9] * 4), *documents_of("b", [4, 4, 4, 7, 34] * 2)]

    with pytest.raises(UsageError) as error:
        pack(folder, write_shards(folder / "c", documents, 5), recipe(tokenizer, **changes), tokenizer)

    assert str(error.value) == complaint


def test_of_a_single_source_no_weight_is_proposed_and_texts_that_were_rejected_are_told(folder: Path) -> None:
    tokenizer = write_tokenizer(folder)
    documents = [*documents_of("a", [5] * 9), Made("a", "bad", "<end>"), Made("a", "too", "w1 <end>")]
    rules = recipe(tokenizer, weights={"a": "1"}, num_seqs=6, max_epochs="1.0")

    with pytest.raises(UsageError) as error:
        pack(folder, write_shards(folder / "c", documents, 4), rules, tokenizer)

    assert str(error.value) == (
        "num_seqs: 6 rows take 48 tokens of a, which has 45 (2 of its 11 texts can't be encoded): "
        "1.067 epochs, and its cap is 1.0; ask for 5 rows at most, or raise its max_epochs"
    )


def test_a_set_that_one_row_could_not_hold_less_of_is_packed_by_best_fit(folder: Path) -> None:
    tokenizer = write_tokenizer(folder)
    shards = write_shards(folder / "c", documents_of("a", [5, 3]), 4)

    full = pack(folder / "8", shards, recipe(tokenizer, weights={"a": "1"}, num_seqs=1, strategy="best_fit"), tokenizer)
    rules = recipe(tokenizer, weights={"a": "1"}, num_seqs=1, strategy="best_fit", seq_len=9)

    assert full.manifest.identity.counts["padding_tokens"] == 0
    with pytest.raises(UsageError, match=r"what may be drawn doesn't fill one of 9, or raise its max_epochs"):
        pack(folder / "9", shards, rules, tokenizer)


@pytest.mark.parametrize(
    ("cap", "epochs"), [("0.5", "0.545455"), ("2.5", "2.545455"), ("1", "1.000000"), ("3", "3.000000")]
)
def test_a_cap_of_whole_epochs_is_kept_and_another_exceeded_by_less_than_a_document(
    folder: Path, cap: str, epochs: str
) -> None:
    tokenizer = write_tokenizer(folder)
    shards = write_shards(folder / "c", [*documents_of("a", [8] * 11), *documents_of("b", [8] * 40)], 5)
    rules = recipe(tokenizer, seq_len=2, num_seqs=int(float(cap) * 88), caps={"a": cap, "b": "9"})

    packed = pack(folder, shards, rules, tokenizer)

    assert packed.manifest.identity.counts["by_source"]["a"]["epochs"] == epochs


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_what_an_error_proposes_works_and_one_row_more_does_not(folder: Path, strategy: str) -> None:
    tokenizer = write_tokenizer(folder)
    shards = write_shards(folder / "c", TWO_SOURCES, 5)
    with pytest.raises(UsageError) as error:
        pack(folder, shards, recipe(tokenizer, strategy=strategy, num_seqs=1000), tokenizer)
    rows = int(error.value.fix.split()[2])

    result = pack(folder, shards, recipe(tokenizer, strategy=strategy, num_seqs=rows), tokenizer)

    assert len(open_packed(result.folder)) == rows
    with pytest.raises(UsageError):
        pack(folder / "more", shards, recipe(tokenizer, strategy=strategy, num_seqs=rows + 1), tokenizer)


def test_a_source_without_a_document_is_named(folder: Path) -> None:
    tokenizer = write_tokenizer(folder)
    documents = [*documents_of("a", [5] * 9), Made("b", "bad", "<end>")]

    with pytest.raises(UsageError) as error:
        pack(folder, write_shards(folder / "c", documents, 5), recipe(tokenizer), tokenizer)

    assert str(error.value) == (
        "weights: no document of b can be encoded: 1 special_tokens; "
        "give neither the source nor a weight of it, or another tokenizer"
    )


def test_a_source_that_lacks_less_than_a_token_lacks_one(folder: Path) -> None:
    tokenizer = write_tokenizer(folder)
    shards = write_shards(folder / "c", [*documents_of("a", [400]), *documents_of("b", [124])], 5)
    rules = recipe(tokenizer, weights={"a": "0.8445", "b": "0.1555"}, num_seqs=100, seq_len=8, caps={"a": "5"})

    with pytest.raises(UsageError, match=r"take 125 tokens of b, which has 124: 1.009 epochs, and its cap is 1;"):
        pack(folder, shards, rules, tokenizer)


def test_the_largest_weight_of_a_small_source_is_not_rounded_to_nothing(folder: Path) -> None:
    tokenizer = write_tokenizer(folder)
    shards = write_shards(folder / "c", [*documents_of("a", [400]), *documents_of("b", [4])], 5)
    rules = recipe(tokenizer, weights={"a": "0.1", "b": "0.9"}, num_seqs=4 * 10**6, seq_len=2, caps={"a": "99999"})

    with pytest.raises(UsageError, match=r"1,800,000 epochs, .* or give it a weight of 0.0000005 at most") as error:
        pack(folder, shards, rules, tokenizer)

    assert error.value.where == "num_seqs"


def test_rows_that_the_disk_cannot_hold_are_refused_before_a_text_is_encoded(folder: Path) -> None:
    tokenizer = write_tokenizer(folder)
    rules = recipe(tokenizer, num_seqs=(1 << 31) - 1, seq_len=1 << 20)

    with pytest.raises(UsageError) as error:
        pack(folder, write_shards(folder / "c", TWO_SOURCES, 5), rules, tokenizer)

    assert error.value.where == str(folder / "packed")
    assert error.value.what.startswith("2,147,483,647 rows of 1,048,576 take 9,007,199,250,546,688 bytes, and ")
    assert error.value.fix == "ask for fewer rows by `num_seqs`, or give a folder on a larger disk"
    assert list(folder.glob("packed*/.receipts/*")) == []


def test_as_many_rows_as_the_bytes_of_a_text_may_give_are_packed_and_one_more_is_refused_at_once(
    tmp_path: Path,
) -> None:
    content = recipe_content(NO_COMMIT) | {
        "sources": [local_source(tmp_path, "notes", [{"text": "a", "key": str(number)} for number in range(20)])]
    }
    with_pack(content)
    content["pack"] |= {"strategy": "sequential", "seq_len": 8, "max_epochs": {"every_source": "1"}, "num_seqs": 6}
    root = tmp_path / "data"

    with pytest.raises(UsageError) as error:
        build(StageARecipe.model_validate(content), root)
    content["pack"]["num_seqs"] = 5
    packed = build(StageARecipe.model_validate(content), root)["stage_a/packed"]

    assert str(error.value) == (
        "num_seqs: 6 rows take 48 tokens of notes or more, whose text has 20 bytes, and its cap of epochs is 1; "
        "ask for fewer rows"
    )
    assert packed.manifest.identity.counts["by_source"]["notes"]["epochs"] == "1.000000"


def test_rows_beyond_the_free_part_of_the_disk_may_be_written_once_there_is_room(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = write_tokenizer(folder)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**9, 10**9 - 640, 640))
    rules = recipe(tokenizer, num_seqs=21, seq_len=8)

    with pytest.raises(Obstacle) as error:
        pack(folder, write_shards(folder / "c", TWO_SOURCES, 5), rules, tokenizer)

    assert str(error.value) == (
        f"{folder / 'packed'}: 21 rows of 8 take 672 bytes, and 640 are free; "
        "free some, ask for fewer rows by `num_seqs`, or give a folder on a larger disk"
    )


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_document_that_no_row_holds_all_of_is_cut_longer_ones_too(folder: Path, strategy: str) -> None:
    tokenizer = write_tokenizer(folder)
    shards = write_shards(folder / "c", [*documents_of("a", [5] * 16), *documents_of("b", [5, 5, 20, 5, 5] * 2)], 5)
    rules = recipe(tokenizer, strategy=strategy, num_seqs=18)

    packed = pack(folder, shards, rules, tokenizer)

    told = summary_of(packed)
    lines = pq.read_table(packed.path("documents.parquet")).to_pylist()
    for source in "ab":
        drawn = [line for line in lines if line["source"] == source]
        cut = [line for line in drawn if not line["is_whole"]]
        assert told.by_source[source]["cut_documents"] == len(cut)
        assert told.by_source[source]["cut_share"] == f"{len(cut) / len(drawn):.6f}"
    assert told.cut_documents == sum(not line["is_whole"] for line in lines)
    assert told.cut_share == f"{told.cut_documents / len(lines):.6f}"
    assert told.by_source["b"]["longer_than_a_row"] == sum(line["tokens"] == 20 for line in lines) > 0


def test_a_line_that_is_no_document_is_named(folder: Path) -> None:
    tokenizer = write_tokenizer(folder)
    [shard] = write_shards(folder / "c", documents_of("a", [5] * 3), 5)
    shard.file.write_bytes(shard.file.read_bytes()[:-6])

    with pytest.raises(InputError, match="the zstd stream is cut off"):
        pack(folder, [shard], recipe(tokenizer, weights={"a": "1"}), tokenizer)


def test_the_shards_of_corpora_are_theirs_under_the_names_that_they_are_given(take: Callable[..., Artifact]) -> None:
    corpus = take({"a.parquet": pages({f"page-{number}": "text" for number in range(20)})}, 10, shard_text_bytes=1)

    shards = corpus_shards({"pages": corpus})

    assert [(one.source, one.path, one.rows) for one in shards] == [
        ("pages", "shards/00000.jsonl.zst", 10),
        ("pages", "shards/00001.jsonl.zst", 10),
    ]
    assert all(one.file.is_file() for one in shards)


def test_a_text_that_the_tokenizer_can_not_hold_is_not_packed_and_why_says_so(tmp_path: Path) -> None:
    path = write_tokenizer(tmp_path)
    of_words = {"family": "hf_tokenizer", "end_of_document": "<end>"}
    tokenizer = {**of_words, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
    words = [{"text": f"w{n} w1 w2 w3", "key": f"w-{n}"} for n in range(9)]
    sources = [local_source(tmp_path, "words", [*words, {"text": "w4 <end> w5", "key": "bad"}])]
    content = recipe_content(NO_COMMIT) | {"sources": sources}
    with_pack(content)
    content["pack"] |= {"num_seqs": 5, "seq_len": 8, "tokenizer": tokenizer, "tokenizer_path": str(path)}

    packed = build(StageARecipe.model_validate(content), tmp_path / "data")["stage_a/packed"]

    [fate] = fates_of(tmp_path / "data", "bad")
    assert [(one.draws, one.reject and one.reject.reason) for one in fate.packed] == [((), "special_tokens")]
    token = PackedLineage(packed, tmp_path / "data").trace_token(1).token
    assert token is not None
    assert (token.number, token.text, token.after.split()[:2]) == (1, "w1", ["w2", "w3"])
