"""Token caches: ids of canonical texts, cut once, byte for byte reproducible."""

import hashlib
import io
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st
from refusals import refusal

from pipeline_assets.corpus.parallel_text.batches import numpy_batches
from pipeline_assets.corpus.parallel_text.encode import encode, write_cache
from pipeline_assets.corpus.parallel_text.encode_recipe import EncodeRecipe
from pipeline_assets.corpus.parallel_text.padding import (
    IGNORED_TARGET,
    causal_mask,
    cut_lengths,
    mask_source,
    pad_sequences,
)
from pipeline_assets.corpus.parallel_text.pair_model import parse_model, read_or_train_model
from pipeline_assets.corpus.parallel_text.pairs import canonical_text
from pipeline_assets.corpus.parallel_text.sample import read_sample
from pipeline_assets.corpus.parallel_text.token_cache import open_cache
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.spine.opening import open_staging_dir

SPLITS = ("train", "val", "test")


@pytest.fixture(scope="module")
def fixed(manifest: Path, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    share, folder = np.float64(0.1), tmp_path_factory.mktemp("fixed")  # NumPy's numbers are accepted
    return encode(manifest, cache / "spm.model", folder, seq_len=np.int64(48), max_unknown_fraction=share)


def test_ids_are_canonical_texts_closed_by_an_end_token(manifest: Path, cache: Path) -> None:
    sample, opened = read_sample(manifest), open_cache(cache)
    model = sentencepiece.SentencePieceProcessor(model_file=str(cache / "spm.model"))

    assert len(opened.splits) == len(sample.pairs) == 120
    for row, pair in enumerate(sample.pairs):
        src, tgt = ([*model.encode(canonical_text(text)), model.eos_id()] for text in (pair.src_text, pair.tgt_text))
        assert opened.token_ids(row, "src").tolist() == src
        assert opened.token_ids(row, "tgt").tolist() == tgt
        assert opened.token_ids(row, "pair").tolist() == src + tgt
        assert SPLITS[opened.splits[row]] == pair.split
        assert opened.uids[row].decode() == pair.uid
    assert opened.lengths("pair").tolist() == [len(opened.token_ids(row, "pair")) for row in range(120)]


def test_the_metadata_names_everything_that_the_ids_depend_on(manifest: Path, cache: Path, fixed: Path) -> None:
    meta, fixed_meta = open_cache(cache).meta, open_cache(fixed).meta
    text = "".join(
        canonical_text(side) for pair in read_sample(manifest).pairs for side in (pair.src_text, pair.tgt_text)
    )

    assert meta.sha256 == hashlib.sha256((cache / "spm.model").read_bytes()).hexdigest()
    assert meta.manifest_sha256 == hashlib.sha256(manifest.read_bytes()).hexdigest()
    assert (meta.requested_vocab_size, meta.vocab_size % 100, meta.byte_fallback) == (8000, 0, True)
    assert 500 <= meta.vocab_size < 3000
    assert 0.99 < float(meta.char_coverage) <= 1 or "☃" not in text
    assert (meta.pairs, meta.truncated) == ({"train": 96, "val": 12, "test": 12}, {"train": 0, "val": 0, "test": 0})
    assert meta.experiment_id != fixed_meta.experiment_id
    assert (fixed_meta.sha256, fixed_meta.requested_vocab_size, fixed_meta.seq_len) == (meta.sha256, None, 48)


def test_encoding_again_gives_the_same_bytes(manifest: Path, cache: Path, tmp_path: Path) -> None:
    again = encode(manifest, None, tmp_path / "again")
    with open_staging_dir(tmp_path / "sealed", {}) as staging:
        content = write_cache(staging, manifest, EncodeRecipe(), tmp_path)
        sealed = {file.path: staging.path(file.path).read_bytes() for file in content.files}

    files = {path.relative_to(cache).as_posix(): path.read_bytes() for path in cache.rglob("*") if path.is_file()}
    assert {path.relative_to(again).as_posix(): path.read_bytes() for path in again.rglob("*.*")} == files == sealed
    assert content.counts["tokens"] == {side: len(open_cache(cache).ids[side]) for side in ("src", "tgt")}


def test_a_model_has_the_requested_vocabulary_size_if_the_text_allows(manifest: Path, tmp_path: Path) -> None:
    assert open_cache(encode(manifest, None, tmp_path, vocab_size=450)).meta.vocab_size == 450


def test_a_small_sample_of_many_characters_gets_a_smaller_vocabulary() -> None:
    """The text allows 274 pieces and needs 270, which no multiple of 100 meets."""
    texts = ["中文句子 没有 空格", "中文 句子", "没有空格 的 句子"]

    model = parse_model(read_or_train_model(texts, EncodeRecipe(), Path()), Path("spm.model"))

    assert model.vocabulary_size == 274


@given(st.lists(st.tuples(st.integers(1, 100), st.integers(1, 100)), min_size=1), st.integers(4, 64))
def test_a_cut_pair_fills_its_length_and_cuts_no_side_below_half(lengths: list[tuple[int, int]], seq_len: int) -> None:
    src, tgt = np.array(lengths).T

    kept_src, kept_tgt = cut_lengths(src, tgt, seq_len)

    assert (kept_src + kept_tgt == np.minimum(src + tgt, seq_len + 1)).all()
    assert (kept_src >= np.minimum(src, (seq_len + 1) // 2)).all()
    assert (kept_tgt >= np.minimum(tgt, (seq_len + 1) // 2)).all()


def test_fixed_arrays_are_cut_once_and_keep_both_ends(cache: Path, fixed: Path) -> None:
    whole, cut = open_cache(cache), open_cache(fixed)
    eos, was_cut = cut.meta.eos_id, whole.lengths("pair") > 49

    assert cut.lengths("pair").max() == 49
    assert cut.meta.truncated == {split: int(was_cut[cut.pair_numbers(split)].sum()) for split in SPLITS}
    assert sum(cut.meta.truncated.values()) > 10
    for row in range(120):
        for side in ("src", "tgt"):
            ids = cut.token_ids(row, side)
            assert ids[-1] == eos
            assert ids[:-1].tolist() == whole.token_ids(row, side)[: len(ids) - 1].tolist()
    for split in SPLITS:
        tokens, targets, mask = (np.load(fixed / split / f"{name}.npy") for name in ("tokens", "targets", "attn_mask"))
        expected = pad_sequences([cut.token_ids(row, "pair") for row in cut.pair_numbers(split)], 48, cut.meta.pad_id)
        assert tokens.shape == (len(cut.pair_numbers(split)), 48)
        assert (tokens == expected.tokens).all()
        assert (targets == expected.targets).all()
        assert (mask == expected.attn_mask).all()


def test_targets_are_the_next_tokens_and_may_ignore_the_source() -> None:
    end, batch = 2, pad_sequences([np.array([5, 6, 2, 7, 8, 2]), np.array([9, 2, 4, 2])], 6, 0)

    assert batch.tokens.tolist() == [[5, 6, 2, 7, 8, 0], [9, 2, 4, 0, 0, 0]]
    assert batch.targets.tolist() == [[6, 2, 7, 8, 2, IGNORED_TARGET], [2, 4, 2, *[IGNORED_TARGET] * 3]]
    assert mask_source(batch, end).tolist() == [
        [IGNORED_TARGET, IGNORED_TARGET, 7, 8, 2, IGNORED_TARGET],
        [IGNORED_TARGET, 4, 2, *[IGNORED_TARGET] * 3],
    ]


def test_masks_block_the_future_and_padding() -> None:
    mask = causal_mask(pad_sequences([np.array([5, 6, 2, 7]), np.array([9, 2])], 4, 0).attn_mask)

    assert mask[0].astype(int).tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 0]]
    assert mask[1].astype(int).tolist() == [[1, 0, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0]]


def test_numpy_batches_have_each_pair_once_by_seed_and_epoch(fixed: Path, cache: Path) -> None:
    rows = np.load(fixed / "train" / "tokens.npy").tolist()
    first, again, second = (
        [row for batch in numpy_batches(fixed, "train", 20, 3, epoch) for row in batch["tokens"].tolist()]
        for epoch in (0, 0, 1)
    )

    assert sorted(first) == sorted(rows) == sorted(second)
    assert first == again != second
    batch = next(numpy_batches(fixed, "val", 5, 3, ignore_source=True))
    assert batch["attn_mask"].shape == (5, 48, 48)
    assert (batch["targets"][:, 0] == IGNORED_TARGET).all()
    assert refusal(lambda: next(numpy_batches(cache, "train", 5, 3))) == (
        f"{cache}: pairs have no fixed length; run `corpusmill parallel encode` with --seq-len"
    )


def test_a_cache_without_an_array_of_a_split_is_damaged(fixed: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(fixed, tmp_path / "copy")
    (folder / "train" / "tokens.npy").unlink()

    line = refusal(lambda: next(numpy_batches(folder, "train", 5, 3)))

    assert line.startswith(f"{folder}: token cache is damaged (") and "train/tokens.npy" in line


def test_arguments_of_another_type_are_refused(manifest: Path, fixed: Path) -> None:
    batch = refusal(lambda: numpy_batches(fixed, "train", batch=True, seed=1), UsageError)
    masked = refusal(lambda: numpy_batches(fixed, "train", 8, seed=1, ignore_source="no"), UsageError)  # type: ignore[arg-type]

    assert batch == "batch: must be an integer, got True; correct it"
    assert masked == "ignore_source: must be True or False, got 'no'; correct it"
    assert refusal(lambda: encode(manifest, None, ""), UsageError) == "out_dir: must not be empty; correct it"
    assert refusal(lambda: open_cache(""), UsageError) == "folder: must not be empty; correct it"
    assert refusal(lambda: open_cache(fixed, manifest=""), UsageError) == "manifest: must not be empty; correct it"
    assert refusal(lambda: encode(manifest, None, manifest), UsageError) == (
        f"{manifest}: expected a folder, got a file; choose another folder"
    )
    assert refusal(lambda: encode(manifest.parent, None, fixed / "none")) == (
        f"{manifest.parent}: expected a file, got a folder; pass its manifest.jsonl"
    )


def test_a_model_with_another_hash_is_refused(manifest: Path, cache: Path, tmp_path: Path) -> None:
    encode(manifest, cache / "spm.model", tmp_path / "cache")
    other = encode(manifest, None, tmp_path / "other", vocab_size=450) / "spm.model"
    recorded, actual = (hashlib.sha256(path.read_bytes()).hexdigest() for path in (cache / "spm.model", other))

    assert refusal(lambda: encode(manifest, other, tmp_path / "cache")) == (
        f"{other}: sha256 is {actual}, pinned {recorded}; restore the file, or pin the hash of the intended file"
    )
    (tmp_path / "no.model").write_bytes(b"no model")
    assert "not a SentencePiece model" in refusal(lambda: encode(manifest, tmp_path / "no.model", tmp_path / "x"))


def test_a_hash_without_its_model_is_refused(manifest: Path, tmp_path: Path) -> None:
    assert refusal(lambda: encode(manifest, None, tmp_path / "cache", model_sha256="0" * 64), UsageError) == (
        "encode: only one of `model` and `model_sha256` is set; set both, or neither to train a model"
    )


@pytest.mark.parametrize(
    "keys",
    [{"vocab_size": 450}, {"byte_fallback": False}, {"character_coverage": "0.9"}, {"model": "other.model"}],
)
def test_keys_of_a_training_are_refused_with_a_model(
    keys: dict[str, Any], manifest: Path, cache: Path, tmp_path: Path
) -> None:
    line = refusal(lambda: encode(manifest, cache / "spm.model", tmp_path / "cache", **keys), UsageError)

    assert line == f"{min(keys)}: cannot be combined with spm_model; omit it"
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("limit", ["5%", 5, "1.5", 1.5])
def test_a_limit_that_is_no_share_is_refused_before_a_model_is_trained(
    manifest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: Any
) -> None:
    monkeypatch.setattr("pipeline_assets.corpus.parallel_text.encode._encode_sample", lambda *_: pytest.fail("trained"))
    line = refusal(lambda: encode(manifest, None, tmp_path / "cache", max_unknown_fraction=limit), UsageError)

    assert line.startswith("encode: `max_unknown_fraction` must be ") and f"got {limit!r}" in line
    assert not (tmp_path / "cache").exists()


def test_a_model_without_an_end_token_is_refused(manifest: Path, tmp_path: Path) -> None:
    """Without this check each side would end with -1, the last unsigned id."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["some words of a text", "more of them"]),
        model_writer=model,
        vocab_size=20,
        hard_vocab_limit=False,
        eos_id=-1,
        minloglevel=2,
    )
    (tmp_path / "endless.model").write_bytes(model.getvalue())

    assert refusal(lambda: encode(manifest, tmp_path / "endless.model", tmp_path / "cache")) == (
        f"{tmp_path / 'endless.model'}: the model has no piece that ends a sequence; use a model that has </s>"
    )


def test_too_few_pieces_are_named_by_the_key_of_the_recipe(manifest: Path, tmp_path: Path) -> None:
    message = refusal(lambda: encode(manifest, None, tmp_path / "cache", vocab_size=8))

    assert message.startswith("encode.vocab_size: must be >= ")
    assert message.endswith(" for the characters of this sample, got 8; raise it, or lower `character_coverage`")


def test_an_edited_manifest_is_not_encoded(manifest: Path, tmp_path: Path) -> None:
    for name in ("manifest.jsonl", "MANIFEST.meta.json"):
        (tmp_path / name).write_bytes((manifest.parent / name).read_bytes())
    (tmp_path / "manifest.jsonl").write_bytes(manifest.read_bytes().replace(b'"train"', b'"val"', 1))

    assert "sample was edited after the draw" in refusal(
        lambda: encode(tmp_path / "manifest.jsonl", None, tmp_path / "cache")
    )
    assert not (tmp_path / "cache").exists()


def test_a_cache_in_a_sealed_artifact_is_never_replaced(manifest: Path, cache: Path, tmp_path: Path) -> None:
    sealed = tmp_path / "token_cache"
    shutil.copytree(cache, sealed)
    (sealed / "manifest.json").touch()
    before = {path: path.read_bytes() for path in sealed.rglob("*.*")}

    message = refusal(lambda: encode(manifest, None, sealed, seq_len=8), UsageError)

    assert message == f"{sealed}: the folder is in the sealed artifact {sealed}; choose another folder"
    assert {path: path.read_bytes() for path in sealed.rglob("*.*")} == before


def test_a_cache_of_mixed_files_is_refused(manifest: Path, cache: Path, tmp_path: Path) -> None:
    fix = "run `corpusmill parallel encode`"
    assert refusal(lambda: open_cache(tmp_path / "none")) == f"{tmp_path / 'none'}: no token cache found; {fix}"
    assert not (tmp_path / "none").exists()
    other = encode(manifest, cache / "spm.model", tmp_path / "cache")
    (other / "src.offsets.npy").write_bytes((other / "tgt.offsets.npy").read_bytes())
    assert (
        refusal(lambda: open_cache(other))
        == f"{other}: token cache is inconsistent; remove it, and run its recipe again"
    )
    meta = json.loads((cache / "ENCODE.meta.json").read_bytes())
    assert refusal(lambda: open_cache(cache, "0" * 16)) == (
        f"{cache}: expected experiment {'0' * 16}, got {meta['experiment_id']}; {fix}"
    )
    (tmp_path / "manifest.jsonl").write_bytes(b"")
    assert "but the cache was encoded from" in refusal(lambda: open_cache(cache, manifest=tmp_path / "manifest.jsonl"))
    missing = refusal(lambda: open_cache(cache, manifest=tmp_path / "none.jsonl"))
    assert f"sha256 of {tmp_path / 'none.jsonl'} is missing, but the cache was encoded from " in missing


@pytest.mark.parametrize("edit", ["change", "remove"])
def test_a_cache_whose_model_was_edited_is_refused(manifest: Path, cache: Path, tmp_path: Path, edit: str) -> None:
    other = encode(manifest, cache / "spm.model", tmp_path / "cache")
    model = other / "spm.model"
    data, recorded = model.read_bytes(), json.loads((other / "ENCODE.meta.json").read_bytes())["sha256"]
    model.unlink()
    if edit == "change":
        model.write_bytes(data[:-1] + b"?")

    sha256 = hashlib.sha256(model.read_bytes()).hexdigest() if edit == "change" else "missing"
    assert refusal(lambda: open_cache(other)) == (
        f"{model}: sha256 of the model is {sha256}, but the ids were encoded by {recorded}; "
        "remove it, and run its recipe again"
    )
    assert open_cache(encode(manifest, cache / "spm.model", other)).meta.sha256 == recorded
