"""Encoding of a sample into the files of a token cache."""

import hashlib
import io
import itertools
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.parallel_text.encode_recipe import TRAINING_KEYS, EncodeRecipe
from pipeline_assets.corpus.parallel_text.padding import cut_lengths, pad_sequences
from pipeline_assets.corpus.parallel_text.pair_model import MODEL_HINT, char_coverage, parse_model, read_or_train_model
from pipeline_assets.corpus.parallel_text.pairs import SPLITS, canonical_text
from pipeline_assets.corpus.parallel_text.sample import Sample, check_notebook_folder, read_sample
from pipeline_assets.corpus.parallel_text.token_cache import ENCODE_META_FILE, META_FORMAT, MODEL_FILE, EncodeMeta
from pipeline_assets.corpus.tokens.loss_limit import LossLimit
from pipeline_assets.corpus.tokens.losses import Losses, losses_to_provenance
from pipeline_assets.spine import durable
from pipeline_assets.spine.argument_types import check_arguments, plain_integers
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.errors import InputError, UsageError
from pipeline_assets.spine.files import file_sha256
from pipeline_assets.spine.manifest import canonical_sha256
from pipeline_assets.spine.staging import StagingDir

logger = logging.getLogger("corpusmill")
_NORMALIZATION = "NFKC and strip, then the model's own"


def write_cache(staging: StagingDir, manifest_path: Path, recipe: EncodeRecipe, root: Path) -> BuildResult:
    """Encode a sample; a relative path of an external model starts from `root`."""
    files, meta, losses = _encode_sample(read_sample(manifest_path), recipe, root)
    written = [replace(staging.write(name, data), rows=sum(meta.pairs.values())) for name, data in files.items()]
    decisions = msgspec.to_builtins(meta)
    counts = {name: decisions.pop(name) for name in ("pairs", "tokens", "truncated")}
    return BuildResult(written, counts, decisions, provenance=losses_to_provenance(losses))


@check_arguments
def encode(manifest_path: Path | str, spm_model: Path | str | None, out_dir: Path | str, **recipe: object) -> Path:
    """Encode a sample into a folder outside any data root, for notebooks.

    Args:
        manifest_path: Path of the sample's manifest.jsonl.
        spm_model: Path of a SentencePiece model; None trains one. If `out_dir` already has a cache and no
            `model_sha256` is set, the model must equal the cache's model.
        out_dir: Folder of the cache. The function returns its path.
        recipe: Keys of `EncodeRecipe`; with `spm_model`, neither `model` nor those of a training. Losses above 0.1 % of
            a side's characters are logged, those above `max_unknown_fraction` are an error.

    Raises:
        InputError: The model, the recipe or the sample is missing or invalid, the model loses too much text, or the
            folder is in a sealed artifact.
    """
    out_dir, spm_model = Path(out_dir), None if spm_model is None else Path(spm_model)
    check_notebook_folder(out_dir)
    if spm_model is not None:
        if not spm_model.is_file():
            raise UsageError("file not found", spm_model, MODEL_HINT)
        if unused := [key for key in (*TRAINING_KEYS, "model") if key in recipe]:
            raise UsageError("cannot be combined with spm_model", unused[0], "omit it")
        recipe["model"] = str(spm_model)
        if "model_sha256" not in recipe:
            exists = (out_dir / ENCODE_META_FILE).exists()
            sha256 = META_FORMAT.read(out_dir / ENCODE_META_FILE).sha256 if exists else file_sha256(spm_model)
            recipe["model_sha256"] = sha256
    section = EncodeRecipe.from_mapping(plain_integers(recipe), "encode")
    files, _, losses = _encode_sample(read_sample(Path(manifest_path)), section, Path())
    verdict = LossLimit(section.max_unknown_fraction).evaluate_losses(losses)
    if not verdict.passed and not verdict.is_minor:
        raise InputError(verdict.because, out_dir, "or raise `max_unknown_fraction`")
    if not verdict.passed:
        logger.warning("%s: %s", out_dir, verdict.because)
    durable.remove(out_dir / ENCODE_META_FILE)  # written last, so a cache with metadata is complete
    for name, data in files.items():
        durable.make_folder((out_dir / name).parent)
        durable.write_durably(out_dir / name, data)
    return out_dir


def _encode_sample(
    sample: Sample, recipe: EncodeRecipe, root: Path
) -> tuple[dict[str, bytes], EncodeMeta, dict[str, Losses]]:
    """Return the files of a cache (metadata last), its metadata, and losses by side."""
    sides = {side: [canonical_text(getattr(pair, f"{side}_text")) for pair in sample.pairs] for side in ("src", "tgt")}
    splits = np.array([SPLITS.index(pair.split) for pair in sample.pairs], np.uint8)
    rows_by_split = {split: np.flatnonzero(splits == number) for number, split in enumerate(SPLITS)}
    lines = [texts[row] for texts in sides.values() for row in rows_by_split["train"]]
    data = read_or_train_model(lines, recipe, root)
    model = parse_model(data, root / (recipe.model or MODEL_FILE))
    eos, dtype = model.end_of_document_id, np.dtype("<u2" if model.vocabulary_size <= 1 << 16 else "<i4")
    runs = {side: model.encode(texts).with_ends(eos) for side, texts in sides.items()}
    lengths = np.array([run.lengths for run in runs.values()])
    kept = lengths if recipe.seq_len is None else np.array(cut_lengths(lengths[0], lengths[1], recipe.seq_len))
    arrays: dict[str, NDArray[Any]] = {"splits": splits, "uids": np.array([pair.uid for pair in sample.pairs], "S")}
    cut = []
    for (side, run), counts in zip(runs.items(), kept, strict=True):
        cut.append([np.append(ids[: n - 1], eos).astype(dtype) for ids, n in zip(run.split(), counts, strict=True)])
        arrays[f"{side}.ids"] = np.concatenate(cut[-1])
        arrays[f"{side}.offsets"] = np.append(0, np.cumsum(counts, dtype="<i8"))
    if recipe.seq_len is not None:
        pairs = [np.append(src, tgt) for src, tgt in zip(*cut, strict=True)]
        for split, rows in rows_by_split.items():
            batch = pad_sequences([pairs[row] for row in rows], recipe.seq_len, model.padding_id)
            arrays |= {f"{split}/tokens": batch.tokens.astype("<i4"), f"{split}/targets": batch.targets.astype("<i4")}
            arrays[f"{split}/attn_mask"] = batch.attn_mask
    experiment = {"manifest_sha256": sample.meta.manifest_sha256, "normalization": _NORMALIZATION}
    experiment["sha256"] = hashlib.sha256(data).hexdigest()
    meta = EncodeMeta(
        **experiment,
        spm_model=MODEL_FILE,
        vocab_size=model.vocabulary_size,
        requested_vocab_size=recipe.vocab_size if recipe.model is None else None,
        char_coverage=char_coverage(model, itertools.chain(*sides.values())),
        byte_fallback=any(map(model.processor.is_byte, range(model.vocabulary_size))),
        experiment_id=canonical_sha256({**experiment, "seq_len": recipe.seq_len})[:16],
        src=sample.meta.src,
        tgt=sample.meta.tgt,
        seq_len=recipe.seq_len,
        truncated={split: int((kept < lengths)[:, rows].any(axis=0).sum()) for split, rows in rows_by_split.items()},
        pairs={split: len(rows) for split, rows in rows_by_split.items()},
        tokens={side: int(counts.sum()) for side, counts in zip(sides, kept, strict=True)},
        eos_id=eos,
        pad_id=model.padding_id,
        dtype=dtype.name,
    )
    files = {MODEL_FILE: data, **{f"{name}.npy": _to_npy(array) for name, array in arrays.items()}}
    losses = {side: run.losses for side, run in runs.items()}
    return {**files, ENCODE_META_FILE: msgspec.json.format(msgspec.json.encode(meta), indent=1) + b"\n"}, meta, losses


def _to_npy(array: NDArray[Any]) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, array, version=(1, 0), allow_pickle=False)
    return file.getvalue()
