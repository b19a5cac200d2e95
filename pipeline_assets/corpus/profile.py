"""Profiles of corpora: documents, bytes and tokens by source, domain and licence.

The stage `profile` counts the documents of a shard, and writes their ids, which the report compares between sources.
The profiles of all shards, added up in any order, are the profile of the corpus.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np

from pipeline_assets.corpus.converted_shards import IDS
from pipeline_assets.corpus.doc_ids import IdsWriter
from pipeline_assets.corpus.document_shards import DocumentShard, poison_row_error, read_documents
from pipeline_assets.corpus.tokens.o200k_harmony import HarmonyEncoder, load_encoder
from pipeline_assets.spine.stage import Window
from pipeline_assets.spine.staging import Receipt, StagingView

LENGTH_BINS = 32
_BLOCK_BYTES = 4 << 20
K = TypeVar("K", "Group", str)


class _Row(msgspec.Struct, frozen=True):
    """Fields of a Document that are counted."""

    text: str
    doc_id: str
    source: str
    domain: str
    license_tag: str


_decoder = msgspec.json.Decoder(_Row)


@dataclass(frozen=True, order=True)
class Group:
    """Documents that share source, domain and licence."""

    source: str
    domain: str
    license_tag: str


@dataclass(frozen=True)
class Counts:
    """Counts of a group of documents; tokens exclude the end of text.

    `lengths` counts documents by tokens: bin k has 2**k <= tokens < 2**(k + 1), and bin 0 also documents of 0 tokens.
    """

    documents: int = 0
    characters: int = 0
    utf8_bytes: int = 0
    tokens: int = 0
    lengths: tuple[int, ...] = (0,) * LENGTH_BINS

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(
            self.documents + other.documents,
            self.characters + other.characters,
            self.utf8_bytes + other.utf8_bytes,
            self.tokens + other.tokens,
            tuple(mine + theirs for mine, theirs in zip(self.lengths, other.lengths, strict=True)),
        )


Profile = Mapping[Group, Counts]


def profile_shard(
    shard: DocumentShard,
    window: Window,
    folder: StagingView,
    tokenizer_sha256: str,
    vocabulary: Path | None = None,
) -> Receipt:
    """Count the documents of a shard; the receipt has the profile and the file of ids."""
    if window.poison_rows:  # it would be missing from the counts
        raise poison_row_error(min(window.poison_rows), "counting", shard.file)
    encoder = load_encoder(tokenizer_sha256, vocabulary)
    profiles: list[Profile] = []
    name, rows = f"{IDS}/{shard.name}", 0
    with IdsWriter(folder.path(name)) as ids:
        for documents, _ in read_documents(shard, window, _decoder, _BLOCK_BYTES):
            ids.add(document.doc_id for _, document in documents)
            texts: dict[Group, list[str]] = {}
            for _, document in documents:
                group = Group(document.source, document.domain, document.license_tag)
                texts.setdefault(group, []).append(document.text)
            profiles.append({group: _count(group_texts, encoder) for group, group_texts in texts.items()})
            rows += len(documents)
    file = ids.output(name)
    return Receipt([file], {"rows": rows, "documents": file.rows}, {"groups": to_json(merge(profiles))})


def merge(profiles: Iterable[Profile]) -> dict[Group, Counts]:
    """Add up profiles; groups are sorted by falling tokens, then by their names."""
    return _sum_by_key(item for profile in profiles for item in profile.items())


def sum_by(profile: Profile, field: str) -> dict[str, Counts]:
    """Add up counts by `source`, `domain` or `license_tag`, in the order of `merge`."""
    return _sum_by_key((str(getattr(group, field)), counts) for group, counts in profile.items())


def sum_all(profile: Profile) -> Counts:
    return sum(profile.values(), Counts())


def _sum_by_key(parts: Iterable[tuple[K, Counts]]) -> dict[K, Counts]:
    sums: dict[K, Counts] = {}
    for key, counts in parts:
        sums[key] = sums.get(key, Counts()) + counts
    return dict(sorted(sums.items(), key=lambda item: (-item[1].tokens, item[0])))


def to_json(profile: Profile) -> list[dict[str, Any]]:
    """Convert a profile to a list of groups with their counts."""
    return [asdict(group) | asdict(counts) for group, counts in profile.items()]


def from_json(entries: Sequence[Mapping[str, Any]]) -> dict[Group, Counts]:
    """Read a profile from the list of `to_json`."""
    return {msgspec.convert(entry, Group): msgspec.convert(entry, Counts) for entry in entries}


def _count(texts: Sequence[str], encoder: HarmonyEncoder) -> Counts:
    can_be_encoded = [text for text in texts if encoder.can_encode(text)]
    runs = encoder.encode(can_be_encoded)
    utf8_bytes = sum(len(text) if text.isascii() else len(text.encode("utf-8")) for text in texts)
    lengths = np.concatenate([runs.lengths, np.zeros(len(texts) - len(can_be_encoded), np.int32)])
    bins = np.bincount(np.log2(np.maximum(lengths, 1)).astype(np.int64), minlength=LENGTH_BINS).tolist()
    return Counts(len(texts), sum(map(len, texts)), utf8_bytes, int(runs.lengths.sum()), tuple(bins))
