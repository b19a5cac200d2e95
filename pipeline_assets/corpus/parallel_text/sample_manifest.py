"""A sample on disk: manifest.jsonl, a line a pair, and MANIFEST.meta.json, which tells how it was drawn.

Lines are sorted by split (train, val, test), then by uid. The second file has a time in it, so it is a label.
"""

import datetime
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from pipeline_assets.corpus.parallel_text.cursor import Cursor
from pipeline_assets.corpus.parallel_text.pairs import SPLITS, Pair, Split
from pipeline_assets.corpus.parallel_text.sample_recipe import SampleRecipe
from pipeline_assets.corpus.parallel_text.splits import assign_splits
from pipeline_assets.corpus.spine.errors import InputError, UsageError, bare
from pipeline_assets.corpus.spine.files import OwnFile
from pipeline_assets.corpus.spine.ledger import Ledger

MANIFEST, MANIFEST_META = "manifest.jsonl", "MANIFEST.meta.json"
_DRAW_AGAIN = "draw the sample: `corpusmill parallel sample`"


class SampledPair(Pair, frozen=True, kw_only=True):
    """A line of the manifest: a pair, its split, and what it was drawn by."""

    split: Split
    revision: str
    seed: int
    k: int
    filters_sha256: str


class SampleSource(msgspec.Struct, frozen=True, kw_only=True):
    """What is drawn from: splits of a hub dataset at a commit."""

    dataset: str
    revision: str
    splits: tuple[str, ...]


class SampleMeta(SampleSource, frozen=True, kw_only=True):
    """What MANIFEST.meta.json says.

    Attributes:
        src, tgt, k, …: as `SampleRecipe` has them.
        rows_seen: of the dataset, looked at or passed over; the ledger tells what became of them.
        split_sizes: pairs of the sample's own splits.
        manifest_sha256: of manifest.jsonl.
    """

    src: str
    tgt: str
    k: int
    seed: int
    algorithm: str
    filters: dict[str, int | bool] | None
    duplicates: str
    weight: str | None
    filters_sha256: str
    rows_seen: int
    ledger: Ledger
    split_sizes: dict[Split, int]
    manifest_sha256: str
    sampled_at: str

    def to_bytes(self) -> bytes:
        return msgspec.json.format(_encode(self), indent=1) + b"\n"


@dataclass(frozen=True)
class Sample:
    """A sample as it is read back."""

    meta: SampleMeta
    pairs: Sequence[SampledPair]


_META_FILE: OwnFile[SampleMeta] = OwnFile("description of a sample", 1 << 24, _DRAW_AGAIN, SampleMeta)
_line = msgspec.json.Decoder(SampledPair)
_encode = msgspec.json.Encoder().encode


def read_sample(manifest: Path) -> Sample:
    """The sample that a manifest.jsonl lists.

    Raises:
        InputError: it isn't there, or was edited since it was drawn.
    """
    try:
        data, meta = manifest.read_bytes(), _META_FILE.read(manifest.with_name(MANIFEST_META))
    except FileNotFoundError as error:
        raise InputError("there is no such file", error.filename, _DRAW_AGAIN) from None
    found = hashlib.sha256(data).hexdigest()
    if found != meta.manifest_sha256:
        what = f"it was edited since it was drawn: sha256 is {found}, {MANIFEST_META} says {meta.manifest_sha256}"
        raise InputError(what, manifest, f"restore it, or {_DRAW_AGAIN}")
    return Sample(meta, [_line.decode(line) for line in data.splitlines()])


def sampled(
    cursor: Cursor, recipe: SampleRecipe, source: SampleSource, sampled_at: datetime.datetime
) -> tuple[bytes, SampleMeta]:
    """A sample whose pass has ended: the manifest, and what is told of it. Raises UsageError for fewer than k pairs."""
    ledger, held = cursor.ledger(), cursor.reservoir.items
    if len(held) < recipe.k:
        gone = ", ".join(f"{count:,} {reason}" for _, reason, count in ledger.fates()) or "none left out"
        what = f"it is {recipe.k:,}, and {cursor.rows:,} rows have {len(held):,} pairs to draw from ({gone})"
        raise UsageError(what, bare("k"), "ask for fewer, loosen the filters, or give more files")
    told = {"revision": source.revision, "seed": recipe.seed, "k": recipe.k, "filters_sha256": recipe.filters_sha256}
    lines = [
        msgspec.convert({**msgspec.structs.asdict(pair), "split": split, **told}, SampledPair)
        for pair, split in zip(held, assign_splits(held, recipe.splits, recipe.seed), strict=True)
    ]
    lines.sort(key=lambda line: (SPLITS.index(line.split), line.uid, line.file, line.row))
    data = b"".join(_encode(line) + b"\n" for line in lines)
    splits = [line.split for line in lines]
    content: dict[str, Any] = recipe.content()
    meta = {
        **msgspec.structs.asdict(source),
        **content["languages"],
        **{name: content[name] for name in ("k", "seed", "algorithm", "filters", "duplicates", "weight")},
        "filters_sha256": recipe.filters_sha256,
        "rows_seen": cursor.rows,
        "ledger": ledger.to_json(),
        "split_sizes": {split: splits.count(split) for split in SPLITS},
        "manifest_sha256": hashlib.sha256(data).hexdigest(),
        "sampled_at": sampled_at.isoformat(timespec="seconds"),
    }
    return data, msgspec.convert(meta, SampleMeta)
