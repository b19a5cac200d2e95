"""The token cache of a sample: each pair as ids, cut once, to the same bytes each time.

Text is encoded in its canonical form (`pairs.canonical`), in which it was hashed. A sample fits in memory, as it did
when it was drawn.
"""

import hashlib
import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.parallel_text.padding import padded
from pipeline_assets.corpus.parallel_text.pair_model import (
    NO_MODEL,
    EncodeRecipe,
    char_coverage,
    load_model,
    model_data,
)
from pipeline_assets.corpus.parallel_text.pairs import SPLITS, canonical
from pipeline_assets.corpus.parallel_text.sample_manifest import Sample, read_sample
from pipeline_assets.corpus.parallel_text.token_cache import ENCODE_META, MODEL, EncodeMeta, open_cache
from pipeline_assets.corpus.spine import durable
from pipeline_assets.corpus.spine.errors import UsageError
from pipeline_assets.corpus.spine.files import file_sha256
from pipeline_assets.corpus.spine.manifest import sha256_of
from pipeline_assets.corpus.spine.staging import StagingDir
from pipeline_assets.corpus.spine.target import BuildResult

_NORMALIZATION = "NFKC and strip, then the model's own"


def write_cache(building: StagingDir, manifest: Path, recipe: EncodeRecipe, model: Path | None = None) -> BuildResult:
    """The files of a token cache.

    Args:
        model: where the recipe pins one.
    Raises:
        UsageError, InputError: from `read_sample`, `model_data` and `load_model`.
    """
    files, meta = _encoded(read_sample(manifest), recipe, model)
    written = [replace(building.write(name, data), rows=sum(meta.pairs.values())) for name, data in files.items()]
    told = msgspec.to_builtins(meta)
    counts = {name: told.pop(name) for name in ("pairs", "tokens", "truncated")}
    return BuildResult(written, counts, told)


def encode(manifest_path: Path | str, spm_model: Path | str | None, out_dir: Path | str, **recipe: object) -> Path:
    """For notebooks: the cache of a sample in a folder of its own.

    Args:
        spm_model: None trains one. A cache that is there is made again by its own model only.
        recipe: keys of `EncodeRecipe`.
    Raises:
        UsageError, InputError: as `write_cache`.
    """
    out_dir, spm_model = Path(out_dir), None if spm_model is None else Path(spm_model)
    if spm_model is not None and not spm_model.is_file():
        raise UsageError("there is no such file", spm_model, NO_MODEL)
    if spm_model is not None and "model_sha256" not in recipe:
        is_there = (out_dir / ENCODE_META).exists()
        recipe["model_sha256"] = open_cache(out_dir).meta.sha256 if is_there else file_sha256(spm_model)
    files, _ = _encoded(read_sample(Path(manifest_path)), EncodeRecipe.of(recipe, "encode"), spm_model)
    durable.remove(out_dir / ENCODE_META)  # it comes last: a cache is whole, or none
    for name, data in files.items():
        durable.make_folder((out_dir / name).parent)
        durable.write_durably(out_dir / name, data)
    return out_dir


def cut_lengths(src: NDArray[Any], tgt: NDArray[Any], seq_len: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """What stays of the sides of pairs, so that each has at most seq_len + 1 ids, of which seq_len are tokens and the
    last is a target alone. Neither side is cut below half of that to make room for the other.
    """
    room = seq_len + 1
    kept = np.where(src + tgt > room, np.minimum(src, np.maximum(room // 2, room - tgt)), src)
    return kept, np.minimum(tgt, room - kept)


def _encoded(sample: Sample, recipe: EncodeRecipe, model_file: Path | None) -> tuple[dict[str, bytes], EncodeMeta]:
    """The files of a cache, the description last."""
    src, tgt = ([canonical(getattr(pair, side)) for pair in sample.pairs] for side in ("src_text", "tgt_text"))
    splits = np.array([SPLITS.index(pair.split) for pair in sample.pairs], np.uint8)
    lines = [side[row] for side in (src, tgt) for row in np.flatnonzero(splits == SPLITS.index("train"))]
    data = model_data(lines, recipe, model_file)
    model = load_model(data, model_file or Path(MODEL))
    eos, dtype = model.end_of_document, np.dtype("<u2" if model.vocabulary_size <= 1 << 16 else "<i4")
    runs = [model.encode(side).closed_by(eos) for side in (src, tgt)]
    lengths = np.array([one.lengths for one in runs])
    kept = lengths if recipe.seq_len is None else np.array(cut_lengths(lengths[0], lengths[1], recipe.seq_len))
    arrays: dict[str, NDArray[Any]] = {"splits": splits, "uids": np.array([pair.uid for pair in sample.pairs], "S")}
    sides = []
    for name, run, counts in zip(("src", "tgt"), runs, kept, strict=True):
        sides.append([np.append(ids[: n - 1], eos).astype(dtype) for ids, n in zip(run.each(), counts, strict=True)])
        arrays |= {
            f"{name}.ids": np.concatenate(sides[-1]),
            f"{name}.offsets": np.append(0, np.cumsum(counts, dtype="<i8")),
        }
    for split in SPLITS if recipe.seq_len is not None else ():
        pairs = [np.append(sides[0][row], sides[1][row]) for row in np.flatnonzero(splits == SPLITS.index(split))]
        tokens, targets, attn_mask = padded(pairs, recipe.seq_len or 0, model.padding)
        arrays |= {f"{split}/tokens": tokens.astype("<i4"), f"{split}/targets": targets.astype("<i4")}
        arrays[f"{split}/attn_mask"] = attn_mask
    made_by = {"manifest_sha256": sample.meta.manifest_sha256, "normalization": _NORMALIZATION}
    made_by["sha256"] = hashlib.sha256(data).hexdigest()
    meta = EncodeMeta(
        **made_by,
        spm_model=MODEL,
        vocab_size=model.vocabulary_size,
        vocab_size_asked=recipe.vocab_size if model_file is None else None,
        char_coverage=char_coverage(model, [*src, *tgt]),
        byte_fallback=any(map(model.library.is_byte, range(model.vocabulary_size))),
        experiment_id=sha256_of({**made_by, "seq_len": recipe.seq_len})[:16],
        src=sample.meta.src,
        tgt=sample.meta.tgt,
        seq_len=recipe.seq_len,
        truncated=_by_split(splits[(kept < lengths).any(axis=0)]),
        pairs=_by_split(splits),
        tokens={"src": int(kept[0].sum()), "tgt": int(kept[1].sum())},
        eos_id=eos,
        pad_id=model.padding,
        dtype=dtype.name,
    )
    files = {MODEL: data, **{f"{name}.npy": _npy(array) for name, array in arrays.items()}}
    return {**files, ENCODE_META: msgspec.json.format(msgspec.json.encode(meta), indent=1) + b"\n"}, meta


def _by_split(splits: NDArray[np.uint8]) -> dict[str, int]:
    return {split: int((splits == place).sum()) for place, split in enumerate(SPLITS)}


def _npy(array: NDArray[Any]) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, array, version=(1, 0), allow_pickle=False)
    return file.getvalue()
