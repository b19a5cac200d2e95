"""Pairs as tokens: the model that encodes them, the files that hold them, memory-mapped, and how they are padded.

src.ids.npy, tgt.ids.npy          ids of all pairs in the manifest's order, one after the other, each closed by </s>
src.offsets.npy, tgt.offsets.npy  int64 (pairs + 1,): the first id of each pair, and the end
splits.npy, uids.npy              uint8 (pairs,), a place in `SPLITS`; S32 (pairs,)
<split>/tokens.npy, targets.npy, attn_mask.npy    where `seq_len` is fixed, see `PaddedBatch`: all of a split

Text is encoded in its canonical form (`pairs.canonical`), in which it was hashed. A sample fits in memory, as it did
when it was drawn.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec
import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.parallel_text.pairs import SPLITS, Split
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.files import file_sha256
from pipeline_assets.spine.metadata_file import MetadataFile
from pipeline_assets.spine.pinned_folder import forbid_replacement

logger = logging.getLogger("corpusmill")
ENCODE_META, MODEL = "ENCODE.meta.json", "spm.model"
ENCODE_FIX = "run `corpusmill parallel encode`"
_MEND = "remove it, and run its recipe again"
Side = Literal["src", "tgt", "pair"]


class EncodeMeta(msgspec.Struct, frozen=True, kw_only=True):
    """What ENCODE.meta.json says.

    Attributes:
        sha256: of the model, whose file is `spm_model`.
        requested_vocab_size: None of a model that was given.
        char_coverage: share of the sample's characters that are pieces of their own, a decimal string.
        experiment_id: of the manifest and of all that its ids depend on.
        seq_len: to which pairs are cut; None where they aren't.
        truncated: pairs that were cut, by split.
    """

    spm_model: str
    sha256: str
    vocab_size: int
    requested_vocab_size: int | None = msgspec.field(name="vocab_size_asked")
    char_coverage: str
    byte_fallback: bool
    normalization: str
    manifest_sha256: str
    experiment_id: str
    src: str
    tgt: str
    seq_len: int | None
    truncated: dict[str, int]
    pairs: dict[str, int]
    tokens: dict[str, int]
    eos_id: int
    pad_id: int
    dtype: str


@dataclass(frozen=True)
class TokenCache:
    """A cache, open. Pickled it is its folder and experiment id, and opened again elsewhere."""

    folder: Path
    meta: EncodeMeta
    ids: dict[str, NDArray[Any]]
    offsets: dict[str, NDArray[np.int64]]
    splits: NDArray[np.uint8]
    uids: NDArray[np.bytes_]

    def __reduce__(self) -> tuple[Callable[[Path, str], "TokenCache"], tuple[Path, str]]:
        return open_cache, (self.folder, self.meta.experiment_id)

    def rows(self, split: Split | None) -> NDArray[np.int64]:
        """Numbers of the pairs of a split, or of all. Raises ValueError where there is no such split."""
        if split not in (None, *SPLITS):
            raise ValueError(f"split is {split!r}: give one of {', '.join(SPLITS)}")
        return np.arange(len(self.splits)) if split is None else np.flatnonzero(self.splits == SPLITS.index(split))

    def lengths(self, side: Side) -> NDArray[np.int64]:
        """Tokens of each pair of the cache, </s> among them."""
        return sum((np.diff(self.offsets[one]) for one in _sides(side)), np.zeros(len(self.splits), np.int64))

    def row(self, number: int, side: Side) -> NDArray[Any]:
        """The ids of a pair; those of one side are a view."""
        ids = [self.ids[one][slice(*self.offsets[one][number : number + 2])] for one in _sides(side)]
        return np.concatenate(ids) if len(ids) > 1 else ids[0]


def _sides(side: Side) -> Sequence[str]:
    if side not in get_args(Side):
        raise ValueError(f"side is {side!r}: give one of {', '.join(get_args(Side))}")
    return ("src", "tgt") if side == "pair" else (side,)


_META_FILE: MetadataFile[EncodeMeta] = MetadataFile("description of a token cache", 1 << 20, ENCODE_FIX, EncodeMeta)


def open_cache(folder: Path | str, experiment_id: str | None = None, manifest: Path | str | None = None) -> TokenCache:
    """Open the cache in a folder; no id is read. Its model must be the one that encoded the ids.

    Args:
        experiment_id, manifest: What it must have been made by and of; None for any.
    Raises:
        InputError: There is none, its files don't fit together, or it is another.
        RetryableError: Another cache took its place meanwhile.
    """
    folder = Path(folder)
    with forbid_replacement(folder):
        cache = _read_cache(folder)
        meta, model = cache.meta, folder / MODEL
        sha256 = file_sha256(model) if model.is_file() else "missing"
        if sha256 != meta.sha256:
            what = f"sha256 of the model is {sha256}, of the one that encoded the ids {meta.sha256}"
            raise InputError(what, model, _MEND)
        if experiment_id not in (None, meta.experiment_id):
            what = f"it is of experiment {meta.experiment_id}, asked for {experiment_id}"
            raise InputError(what, folder, ENCODE_FIX)
        if manifest is not None and (found := file_sha256(Path(manifest))) != meta.manifest_sha256:
            what = f"it was encoded of a manifest of sha256 {meta.manifest_sha256}, that of {manifest} is {found}"
            raise InputError(what, folder, ENCODE_FIX)
        return cache


def _read_cache(folder: Path) -> TokenCache:
    try:
        meta = _META_FILE.read(folder / ENCODE_META)
        ids, offsets = (
            {side: np.load(folder / f"{side}.{kind}.npy", mmap_mode="r") for side in ("src", "tgt")}
            for kind in ("ids", "offsets")
        )
        splits, uids = (np.load(folder / f"{name}.npy") for name in ("splits", "uids"))
    except (OSError, ValueError) as error:
        if not (folder / ENCODE_META).exists():
            raise InputError("there is no token cache here", folder, ENCODE_FIX) from None
        raise InputError(f"its files are damaged ({error})", folder, _MEND) from None
    pairs = sum(meta.pairs.values())
    sizes = {pairs, len(splits), len(uids), *(len(offsets[side]) - 1 for side in offsets)}
    if len(sizes) > 1 or any({len(ids[side]), meta.tokens[side]} != {offsets[side][-1]} for side in ids):
        raise InputError("its files don't fit together", folder, _MEND)
    return TokenCache(folder, meta, ids, offsets, splits, uids)
