"""Token cache of a sample, read as memory-mapped arrays.

src.ids.npy, tgt.ids.npy          ids of all pairs in the sample's order, concatenated; each side ends with </s>
src.offsets.npy, tgt.offsets.npy  int64 (pairs + 1,): position of each pair's first id, and the total
splits.npy                        uint8 (pairs,): index of each pair's split in `SPLITS`
uids.npy                          S32 (pairs,): uid of each pair
<split>/tokens.npy, targets.npy, attn_mask.npy    only with a fixed `seq_len`: all pairs of a split as a `PaddedBatch`

The ids encode `pairs.canonical_text`, the form in which texts are hashed.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec
import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.formats.npy_header import map_npy
from pipeline_assets.corpus.parallel_text.encode_recipe import MIN_SEQ_LEN
from pipeline_assets.corpus.parallel_text.pairs import SPLITS, Split
from pipeline_assets.spine.argument_types import check_arguments
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.files import file_sha256
from pipeline_assets.spine.metadata_file import MetadataFormat
from pipeline_assets.spine.replacement import forbid_replacement, replaced_error

ENCODE_META_FILE, MODEL_FILE = "ENCODE.meta.json", "spm.model"
ENCODE_FIX = "run `corpusmill parallel encode`"
_REBUILD_HINT = "remove it, and run its recipe again"
Side = Literal["src", "tgt", "pair"]


class EncodeMeta(msgspec.Struct, frozen=True, kw_only=True):
    """Content of ENCODE.meta.json."""

    spm_model: str  # file name of the SentencePiece model
    sha256: str  # of the SentencePiece model
    vocab_size: int
    requested_vocab_size: int | None = msgspec.field(name="vocab_size_asked")  # None for an external model
    char_coverage: str  # share of the sample's characters, without whitespace, that are pieces; a decimal string
    byte_fallback: bool
    normalization: str
    manifest_sha256: str
    experiment_id: str  # hash of the sample and of everything that the ids depend on
    src: str
    tgt: str
    seq_len: int | None  # maximum tokens of a pair; None if pairs are not cut
    truncated: dict[str, int]  # number of cut pairs, by split
    pairs: dict[str, int]  # number of all pairs, by split
    tokens: dict[str, int]  # number of ids, by side
    eos_id: int
    pad_id: int
    dtype: str


@dataclass(frozen=True)
class TokenCache:
    """Opened token cache, with the ids and offsets of both sides, `src` and `tgt`.

    A pickled cache has only its folder and experiment id. Unpickling, as in a loader's worker, opens the folder again,
    or raises RetryableError if the folder has another cache. Methods raise ValueError for an unknown split or side.
    """

    folder: Path
    meta: EncodeMeta
    ids: dict[str, NDArray[Any]]
    offsets: dict[str, NDArray[np.int64]]
    splits: NDArray[np.uint8]
    uids: NDArray[np.bytes_]

    def __reduce__(self) -> tuple[Callable[[Path, str], "TokenCache"], tuple[Path, str]]:
        return _reopen_cache, (self.folder, self.meta.experiment_id)

    def pair_numbers(self, split: Split | None) -> NDArray[np.int64]:
        """Return a split's pair numbers, ascending (None: all pairs); shape (pairs,)."""
        if split not in (None, *SPLITS):
            raise ValueError(f"split must be one of {', '.join(SPLITS)}, got {split!r}")
        return np.arange(len(self.splits)) if split is None else np.flatnonzero(self.splits == SPLITS.index(split))

    def lengths(self, side: Side) -> NDArray[np.int64]:
        """Return the number of ids of each pair on `side`, with </s>; shape (pairs,).

        For the side `pair`, the ids of both sides are counted.
        """
        return sum((np.diff(self.offsets[name]) for name in _side_names(side)), np.zeros(len(self.splits), np.int64))

    def token_ids(self, pair_number: int, side: Side) -> NDArray[Any]:
        """Return a pair's ids, uint16 or int32; the ids of a single side are a view."""
        ids = [self.ids[name][slice(*self.offsets[name][pair_number : pair_number + 2])] for name in _side_names(side)]
        return np.concatenate(ids) if len(ids) > 1 else ids[0]


def _side_names(side: Side) -> Sequence[str]:
    if side not in get_args(Side):
        raise ValueError(f"side must be one of {', '.join(get_args(Side))}, got {side!r}")
    return ("src", "tgt") if side == "pair" else (side,)


META_FORMAT = MetadataFormat("description of a token cache", 1 << 20, ENCODE_FIX, EncodeMeta)


def long_pair_fix(longest: int, seq_len: int) -> str:
    """Return the advice for a cache whose longest pair exceeds a loader's `seq_len`."""
    if seq_len < MIN_SEQ_LEN:
        return f"set seq_len to {longest} or more"
    return f"run `corpusmill parallel encode --seq-len {seq_len}`, which cuts pairs"


@check_arguments
def open_cache(folder: Path | str, experiment_id: str | None = None, manifest: Path | str | None = None) -> TokenCache:
    """Open a token cache; check array sizes and the model's hash, but no token ids.

    Args:
        folder: Folder of the cache.
        experiment_id: Expected experiment id; None for any.
        manifest: Path of the expected sample's manifest.jsonl; None for any.

    Raises:
        InputError: The cache is missing, damaged, or not the expected one.
        RetryableError: The cache was replaced while it was opened.
    """
    folder = Path(folder).absolute()
    with forbid_replacement(folder):
        cache = _read_cache(folder)
        meta, model = cache.meta, folder / MODEL_FILE
        sha256 = _sha256_or_missing(model)
        if sha256 != meta.sha256:
            what = f"sha256 of the model is {sha256}, but the ids were encoded by {meta.sha256}"
            raise InputError(what, model, _REBUILD_HINT)
        if experiment_id not in (None, meta.experiment_id):
            what = f"expected experiment {experiment_id}, got {meta.experiment_id}"
            raise InputError(what, folder, ENCODE_FIX)
        if manifest is not None and (found := _sha256_or_missing(Path(manifest))) != meta.manifest_sha256:
            what = f"sha256 of {manifest} is {found}, but the cache was encoded from {meta.manifest_sha256}"
            raise InputError(what, folder, ENCODE_FIX)
        return cache


def _reopen_cache(folder: Path, experiment_id: str) -> TokenCache:
    cache = open_cache(folder)
    if cache.meta.experiment_id != experiment_id:
        raise replaced_error(folder, "open the cache again")
    return cache


def _sha256_or_missing(path: Path) -> str:
    return file_sha256(path) if path.is_file() else "missing"


@contextlib.contextmanager
def unreadable_as_damage(folder: Path | str) -> Iterator[None]:
    """Convert OSErrors and ValueErrors of a block that reads a cache to InputErrors."""
    try:
        yield
    except (OSError, ValueError) as error:
        if not (Path(folder) / ENCODE_META_FILE).exists():
            raise InputError("no token cache found", folder, ENCODE_FIX) from None
        raise InputError(f"token cache is damaged ({error})", folder, _REBUILD_HINT) from None


def _read_cache(folder: Path) -> TokenCache:
    with unreadable_as_damage(folder):
        meta = META_FORMAT.read(folder / ENCODE_META_FILE)
        ids, offsets = (
            {side: map_npy(folder / f"{side}.{kind}.npy") for side in ("src", "tgt")} for kind in ("ids", "offsets")
        )
        splits, uids = (map_npy(folder / f"{name}.npy") for name in ("splits", "uids"))
    pairs = sum(meta.pairs.values())
    sizes = {pairs, len(splits), len(uids), *(len(offsets[side]) - 1 for side in offsets)}
    if len(sizes) > 1 or any({len(ids[side]), meta.tokens[side]} != {offsets[side][-1]} for side in ids):
        raise InputError("token cache is inconsistent", folder, _REBUILD_HINT)
    return TokenCache(folder, meta, ids, offsets, splits, uids)
