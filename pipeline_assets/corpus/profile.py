"""What a corpus holds, as numbers: documents, bytes, tokens and lengths by source, domain and licence.

The stage `profile` counts one Document shard; counts of shards add up, in any order, to those of the corpus. It notes
the documents' ids too, so that those of several sources can be compared.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np

from pipeline_assets.corpus.converted_shards import IDS
from pipeline_assets.corpus.doc_ids import IdsWriter
from pipeline_assets.corpus.document_shards import DocumentShard, fatal_row, read_documents
from pipeline_assets.corpus.tokens.o200k_harmony import Encoder, load_encoder
from pipeline_assets.spine.stage import Window
from pipeline_assets.spine.staging import Receipt, StagingView

LENGTH_BINS = 32
_BLOCK_BYTES = 4 << 20
K = TypeVar("K", "Group", str)


class _Row(msgspec.Struct, frozen=True):
    """The fields of a Document that are counted."""

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
    """What a group holds.

    Attributes:
        documents, characters, utf8_bytes, tokens: in all; tokens as the tokenizer gives them, no end of text.
        lengths: documents by length in tokens, bin k holding 2**k <= tokens < 2**(k + 1), and bin 0 also 0 tokens.
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
    """The counts of a shard, in its receipt's notes; its file is the ids, as `document` reads them.

    Raises:
        InputError: a line that is no Document, or that kills the process: it would be missing from the counts.
    """
    if window.poison_rows:
        raise fatal_row(min(window.poison_rows), "counts", shard.file)
    encoder = load_encoder(tokenizer_sha256, vocabulary)
    profiles: list[Profile] = []
    name, rows = f"{IDS}/{shard.name}", 0
    with IdsWriter(folder.path(name)) as ids:
        for documents, _ in read_documents(shard, window, _decoder, _BLOCK_BYTES):
            ids.add(document.doc_id for _, document in documents)
            texts: dict[Group, list[str]] = {}
            for _, one in documents:
                texts.setdefault(Group(one.source, one.domain, one.license_tag), []).append(one.text)
            profiles.append({group: _count(of_group, encoder) for group, of_group in texts.items()})
            rows += len(documents)
    file = ids.output(name)
    return Receipt([file], {"rows": rows, "documents": file.rows}, {"groups": to_json(merged(profiles))})


def merged(profiles: Iterable[Profile]) -> dict[Group, Counts]:
    """Profiles added up, largest group first, equal ones by name."""
    return _added_up(item for profile in profiles for item in profile.items())


def by(profile: Profile, field: str) -> dict[str, Counts]:
    """Counts by one field of the groups, `source`, `domain` or `license_tag`, largest first."""
    return _added_up((str(getattr(group, field)), counts) for group, counts in profile.items())


def total(profile: Profile) -> Counts:
    """All groups together."""
    return sum(profile.values(), Counts())


def _added_up(parts: Iterable[tuple[K, Counts]]) -> dict[K, Counts]:
    found: dict[K, Counts] = {}
    for key, counts in parts:
        found[key] = found.get(key, Counts()) + counts
    return dict(sorted(found.items(), key=lambda item: (-item[1].tokens, item[0])))


def to_json(profile: Profile) -> list[dict[str, Any]]:
    """A list of groups with their counts."""
    return [asdict(group) | asdict(counts) for group, counts in profile.items()]


def from_json(entries: Sequence[Mapping[str, Any]]) -> dict[Group, Counts]:
    """The inverse of `to_json`."""
    return {msgspec.convert(entry, Group): msgspec.convert(entry, Counts) for entry in entries}


def _count(texts: Sequence[str], encoder: Encoder) -> Counts:
    can_be_encoded = [text for text in texts if encoder.can_encode(text)]
    runs = encoder.encode(can_be_encoded)
    utf8_bytes = sum(len(text) if text.isascii() else len(text.encode("utf-8")) for text in texts)
    lengths = np.concatenate([runs.lengths, np.zeros(len(texts) - len(can_be_encoded), np.int32)])
    bins = np.bincount(np.log2(np.maximum(lengths, 1)).astype(np.int64), minlength=LENGTH_BINS).tolist()
    return Counts(len(texts), sum(map(len, texts)), utf8_bytes, int(runs.lengths.sum()), tuple(bins))
