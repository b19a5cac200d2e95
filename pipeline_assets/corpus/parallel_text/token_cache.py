"""Pairs as tokens: the model that encodes them, the files that hold them, memory-mapped, and how they are padded.

src.ids.npy, tgt.ids.npy          ids of all pairs in the manifest's order, one after the other, each closed by </s>
src.offsets.npy, tgt.offsets.npy  int64 (pairs + 1,): the first id of each pair, and the end
splits.npy, uids.npy              uint8 (pairs,), a place in `SPLITS`; S32 (pairs,)
<split>/tokens.npy, targets.npy, attn_mask.npy    where `seq_len` is fixed, see `Padded`: all of a split

Text is encoded in its canonical form (`pairs.canonical`), in which it was hashed. A sample fits in memory, as it did
when it was drawn.
"""

import hashlib
import io
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self, get_args

import msgspec
import numpy as np
import pydantic
from numpy.typing import NDArray

from pipeline_assets.corpus.parallel_text.pairs import SPLITS, Split, canonical
from pipeline_assets.corpus.parallel_text.sample import Sample, read_sample
from pipeline_assets.corpus.tokens.losses import MAX_UNKNOWN_FRACTION, Losses, LossLimit, MaxUnknownFraction, lost_text
from pipeline_assets.corpus.tokens.sentencepiece_model import SentencePieceModel, parse_sentencepiece
from pipeline_assets.corpus.tokens.tokenizer import Sha256, read_pinned
from pipeline_assets.corpus.tokens.trained_tokenizer import UnigramRecipe, VocabularyTooLargeError, train_unigram
from pipeline_assets.spine import durable
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.errors import InputError, UsageError, bare
from pipeline_assets.spine.files import MetadataFile, file_sha256, forbid_replacement
from pipeline_assets.spine.manifest import StageVersion, canonical_sha256
from pipeline_assets.spine.section import Option, Share
from pipeline_assets.spine.staging import StagingDir

ENCODE_STAGE = StageVersion("parallel_tokens", 1)
_STEP, NO_MODEL = 100, "give a SentencePiece .model"
logger = logging.getLogger("corpusmill")
ENCODE_META, MODEL = "ENCODE.meta.json", "spm.model"
ENCODE_FIX = "run `corpusmill parallel encode`"
_MEND = "remove it, and run its recipe again"
Side = Literal["src", "tgt", "pair"]
IGNORED = -100  # what losses of torch pass over
_NORMALIZATION = "NFKC and strip, then the model's own"


class EncodeRecipe(UnigramRecipe):
    """How a sample becomes ids.

    Attributes:
        vocab_size: pieces of a trained model, at most. Where the text allows fewer, it is as many as it allows, rounded
            down to a multiple of 100.
        model_sha256: of a model that is given; None trains one.
        seq_len: tokens of a pair, at most; a longer one is cut, see `cut_lengths`. None cuts none.
    """

    vocab_size: Annotated[int, Option("Pieces of a trained model, at most.")] = pydantic.Field(default=8000, ge=8)
    character_coverage: Share = "1"
    byte_fallback: bool = True
    model_sha256: Sha256 | None = None
    seq_len: Annotated[int | None, Option("Cut pairs to so many tokens, and pad.", default=None)] = pydantic.Field(
        default=None, ge=4
    )


def model_data(lines: Sequence[str], recipe: EncodeRecipe, given: Path | None) -> bytes:
    """Return the model file: the external one, or one trained on lines, those of both sides of the train split.

    Raises:
        UsageError: There is an external model and no pinned hash, or a hash and no model.
        InputError: The external model isn't the pinned one; or from `train_unigram`.
    """
    if (recipe.model_sha256 is None) != (given is None):
        fix = "give both the model's file and its sha256, or neither"
        raise UsageError("a model is given or pinned, and not both", bare("model_sha256"), fix)
    if recipe.model_sha256 is not None and given is not None:
        return read_pinned(given, recipe.model_sha256, "give the path of a SentencePiece .model file")
    try:
        return train_unigram(lines, recipe).model
    except VocabularyTooLargeError as error:
        pieces = error.most // _STEP * _STEP or error.most
        logger.info("the train split allows %d pieces, of %d: %d are trained", error.most, recipe.vocab_size, pieces)
        return train_unigram(lines, recipe.model_copy(update={"vocab_size": pieces})).model


def load_model(data: bytes, where: Path) -> SentencePieceModel:
    """The model, which must have a piece that ends a sequence. Raises InputError where it is none, or has none."""
    library = parse_sentencepiece(data, where)
    if library.eos_id() < 0:
        raise InputError("it has no piece that ends a sequence", where, "give a model that has </s>")
    return SentencePieceModel(library, library.eos_id())


def char_coverage(model: SentencePieceModel, texts: Sequence[str]) -> str:
    """Return the share of characters, without blanks, that have a piece of their own, as a decimal string."""
    counts = Counter(character for text in texts for character in text if not character.isspace())
    is_unknown, piece_id = model.library.is_unknown, model.library.piece_to_id
    known = sum(count for character, count in counts.items() if not is_unknown(piece_id(character)))
    return f"{known / max(counts.total(), 1):.6f}"


class EncodeSection(EncodeRecipe):
    """How a sample becomes ids, and where a model that is given lies.

    Attributes:
        model: absolute, or below the data root; changes no byte, since `model_sha256` says what it is.
        max_unknown_fraction: largest share of a side that the model may lose; changes no byte.
    """

    model: str | None = None
    max_unknown_fraction: MaxUnknownFraction = MAX_UNKNOWN_FRACTION

    @pydantic.model_validator(mode="after")
    def _is_pinned(self) -> Self:
        if (self.model is None) != (self.model_sha256 is None):
            raise ValueError("give both `model` and `model_sha256`, or neither: then one is trained")
        return self

    def cache_content(self) -> dict[str, Any]:
        """What bytes depend on: of a model that is given, nothing that would train one."""
        mine = {"model_sha256", "seq_len"} if self.model_sha256 else EncodeRecipe.model_fields.keys()
        return {key: value for key, value in self.content().items() if key in mine}


class EncodeMeta(msgspec.Struct, frozen=True, kw_only=True):
    """What ENCODE.meta.json says.

    Attributes:
        sha256: of the model, whose file is `spm_model`.
        vocab_size_asked: None of a model that was given.
        char_coverage: share of the sample's characters that are pieces of their own, a decimal string.
        experiment_id: of the manifest and of all that its ids depend on.
        seq_len: to which pairs are cut; None where they aren't.
        truncated: pairs that were cut, by split.
    """

    spm_model: str
    sha256: str
    vocab_size: int
    vocab_size_asked: int | None
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


class Padded(NamedTuple):
    """Sequences as a batch, each array of shape (batch, seq_len): all ids of a sequence but the last are tokens, all
    but the first are targets. A pair is one sequence, src </s> tgt </s>.

    Attributes:
        tokens: ids, then padding.
        targets: the id after each token; `IGNORED` where there is none.
        attn_mask: whether it is a token, and no padding.
    """

    tokens: NDArray[Any]
    targets: NDArray[Any]
    attn_mask: NDArray[Any]


def padded(sequences: Sequence[NDArray[Any]], seq_len: int, pad_id: int) -> Padded:
    """Sequences of at most seq_len + 1 ids."""
    tokens, targets = (np.full((len(sequences), seq_len), fill, np.int64) for fill in (pad_id, IGNORED))
    for row, ids in enumerate(sequences):
        tokens[row, : len(ids) - 1], targets[row, : len(ids) - 1] = ids[:-1], ids[1:]
    return Padded(tokens, targets, targets != IGNORED)


def without_source(batch: Padded, eos_id: int) -> NDArray[Any]:
    """Targets, ignored up to the </s> that closes the source side: the first target is the first token after it."""
    return np.where(np.cumsum(batch.tokens == eos_id, axis=1) > 0, batch.targets, IGNORED)


def causal(attn_mask: NDArray[Any]) -> NDArray[np.bool_]:
    """May a token attend to another? (batch, seq_len) → (batch, seq_len, seq_len): to itself and to tokens before it.
    Padding attends to the tokens before it, so that no softmax is over nothing.
    """
    masks: NDArray[np.bool_] = np.tri(attn_mask.shape[1], dtype=bool) & attn_mask[:, None, :]
    return masks


def write_cache(building: StagingDir, manifest: Path, recipe: EncodeRecipe, model: Path | None = None) -> BuildResult:
    """The files of a token cache.

    Args:
        model: where the recipe pins one.
    Raises:
        UsageError, InputError: from `read_sample`, `model_data` and `load_model`.
    """
    files, meta, losses = _encoded(read_sample(manifest), recipe, model)
    written = [replace(building.write(name, data), rows=sum(meta.pairs.values())) for name, data in files.items()]
    told = msgspec.to_builtins(meta)
    counts = {name: told.pop(name) for name in ("pairs", "tokens", "truncated")}
    return BuildResult(written, counts, told, provenance=lost_text(losses))


def encode(
    manifest_path: Path | str,
    spm_model: Path | str | None,
    out_dir: Path | str,
    *,
    max_unknown_fraction: str = MAX_UNKNOWN_FRACTION,
    **recipe: object,
) -> Path:
    """For notebooks: the cache of a sample in a folder of its own.

    Args:
        spm_model: None trains one. A cache that is there is made again by its own model only.
        max_unknown_fraction: largest share of a side that the model may lose; above 0.1 % it is logged.
        recipe: keys of `EncodeRecipe`.
    Raises:
        UsageError, InputError: as `write_cache`; or the model loses a larger share of a side.
    """
    out_dir, spm_model = Path(out_dir), None if spm_model is None else Path(spm_model)
    if spm_model is not None and not spm_model.is_file():
        raise UsageError("there is no such file", spm_model, NO_MODEL)
    if spm_model is not None and "model_sha256" not in recipe:
        is_there = (out_dir / ENCODE_META).exists()
        known = _META_FILE.read(out_dir / ENCODE_META).sha256 if is_there else file_sha256(spm_model)
        recipe["model_sha256"] = known
    files, _, losses = _encoded(
        read_sample(Path(manifest_path)), EncodeRecipe.from_mapping(recipe, "encode"), spm_model
    )
    verdict = LossLimit(max_unknown_fraction).evaluate_losses(losses)
    if not verdict.holds and not verdict.is_minor:
        raise InputError(verdict.because, out_dir, "or raise `max_unknown_fraction`")
    if not verdict.holds:
        logger.warning("%s: %s", out_dir, verdict.because)
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


def _encoded(
    sample: Sample, recipe: EncodeRecipe, model_file: Path | None
) -> tuple[dict[str, bytes], EncodeMeta, dict[str, Losses]]:
    """The files of a cache, the description last; the description; what is lost of each side."""
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
        arrays[f"{name}.ids"] = np.concatenate(sides[-1])
        arrays[f"{name}.offsets"] = np.append(0, np.cumsum(counts, dtype="<i8"))
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
        experiment_id=canonical_sha256({**made_by, "seq_len": recipe.seq_len})[:16],
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
    losses = {name: run.losses for name, run in zip(("src", "tgt"), runs, strict=True)}
    return {**files, ENCODE_META: msgspec.json.format(msgspec.json.encode(meta), indent=1) + b"\n"}, meta, losses


def _by_split(splits: NDArray[np.uint8]) -> dict[str, int]:
    return {split: int((splits == place).sum()) for place, split in enumerate(SPLITS)}


def _npy(array: NDArray[Any]) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, array, version=(1, 0), allow_pickle=False)
    return file.getvalue()
