"""A sample on disk: manifest.jsonl, a line a pair, and MANIFEST.meta.json, which tells how it was drawn.

Lines are sorted by split (train, val, test), then by uid. The second file has a time in it, so it is a label.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from pipeline_assets.corpus.parallel_text.pairs import Pair, Split
from pipeline_assets.corpus.spine.errors import InputError
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
        return msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n"


@dataclass(frozen=True)
class Sample:
    """A sample as it is read back."""

    meta: SampleMeta
    pairs: Sequence[SampledPair]


_META_FILE: OwnFile[SampleMeta] = OwnFile("description of a sample", 1 << 24, _DRAW_AGAIN, SampleMeta)
_line = msgspec.json.Decoder(SampledPair)


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
