"""What a corpus holds, as numbers: documents, bytes, tokens and lengths by source, domain and licence.

The stage `profile` counts one Document shard; counts of shards add up, in any order, to those of the corpus. It notes
the documents' ids too, so that those of several sources can be compared.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.doc_ids import IdsWriter
from pipeline_assets.corpus.formats.jsonl_zst import count_lines, read_line_blocks
from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.spine.sealing import WORK
from pipeline_assets.corpus.spine.staging import BuildFolder, Receipt
from pipeline_assets.corpus.spine.worker import WHOLE, Window
from pipeline_assets.corpus.tokens.encode import cached_encoder
from pipeline_assets.corpus.tokens.o200k_harmony import Encoder

LENGTH_BINS = 32
IDS = f"{WORK}/ids"
_BLOCK_BYTES = 4 << 20


class _Row(msgspec.Struct, frozen=True):
    """The fields of a Document that are counted."""

    text: str
    doc_id: str
    source: str
    domain: str
    license_tag: str


_decoder = msgspec.json.Decoder(_Row)


@dataclass(frozen=True)
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

    documents: int
    characters: int
    utf8_bytes: int
    tokens: int
    lengths: tuple[int, ...]

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(
            self.documents + other.documents,
            self.characters + other.characters,
            self.utf8_bytes + other.utf8_bytes,
            self.tokens + other.tokens,
            tuple(mine + theirs for mine, theirs in zip(self.lengths, other.lengths, strict=True)),
        )


Profile = Mapping[Group, Counts]
EMPTY = Counts(0, 0, 0, 0, (0,) * LENGTH_BINS)


@dataclass(frozen=True)
class ProfileShard:
    """One Document shard to be counted."""

    name: str
    file: Path
    rows: int


def profile_shard(shard: ProfileShard, window: Window, folder: BuildFolder, tokenizer_sha256: str) -> Receipt:
    """The counts of a shard, in its receipt's notes; its file is the ids, as `doc_ids` reads them.

    Raises:
        InputError: a line that is no Document.
    """
    groups: dict[Group, Counts] = {}
    name, rows = f"{IDS}/{shard.name}", 0
    with IdsWriter(folder.path(name)) as ids:
        for block in read_line_blocks(shard.file, _BLOCK_BYTES):
            documents = _rows(block, rows, shard.file, window)
            ids.add(document.doc_id for document in documents)
            for group, texts in _by_group(documents).items():
                groups[group] = groups.get(group, EMPTY) + _count(texts, cached_encoder(tokenizer_sha256, "gigatoken"))
            rows += count_lines(block)
    file = ids.output(name)
    return Receipt([file], {"rows": rows, "documents": file.rows}, {"groups": to_json(groups)})


def merged(profiles: Iterable[Profile]) -> dict[Group, Counts]:
    """Profiles added up, largest group first, equal ones by name."""
    total: dict[Group, Counts] = {}
    for profile in profiles:
        for group, counts in profile.items():
            total[group] = total.get(group, EMPTY) + counts
    order = sorted(total, key=lambda group: (-total[group].tokens, group.source, group.domain, group.license_tag))
    return {group: total[group] for group in order}


def by(profile: Profile, field: str) -> dict[str, Counts]:
    """Counts by one field of the groups, `source`, `domain` or `license_tag`, largest first."""
    total: dict[str, Counts] = {}
    for group, counts in profile.items():
        value = str(getattr(group, field))
        total[value] = total.get(value, EMPTY) + counts
    return dict(sorted(total.items(), key=lambda item: (-item[1].tokens, item[0])))


def to_json(profile: Profile) -> list[dict[str, Any]]:
    """A list of groups with their counts."""
    return [{**asdict(group), **asdict(counts), "lengths": list(counts.lengths)} for group, counts in profile.items()]


def from_json(entries: Sequence[Mapping[str, Any]]) -> dict[Group, Counts]:
    """The inverse of `to_json`."""
    return {
        Group(entry["source"], entry["domain"], entry["license_tag"]): Counts(
            entry["documents"], entry["characters"], entry["utf8_bytes"], entry["tokens"], tuple(entry["lengths"])
        )
        for entry in entries
    }


def load_tokenizer(tokenizer_sha256: str) -> None:
    """Loads what `profile_shard` keeps for the life of its process."""
    cached_encoder(tokenizer_sha256, "gigatoken").encode(["the first text builds the tables"])


def _rows(block: bytes, first: int, file: Path, window: Window) -> list[_Row]:
    if window == WHOLE:
        try:
            return _decoder.decode_lines(block)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InputError(f"a line near row {first} is no Document ({error})", file, "verify the corpus") from None
    lines = window.of(block.splitlines(), first)
    return [_decoder.decode(line) for row, line in lines if row not in window.fatal]


def _by_group(rows: Iterable[_Row]) -> dict[Group, list[str]]:
    texts: dict[Group, list[str]] = {}
    for row in rows:
        texts.setdefault(Group(row.source, row.domain, row.license_tag), []).append(row.text)
    return texts


def _count(texts: Sequence[str], encoder: Encoder) -> Counts:
    can_be_encoded = [text for text in texts if encoder.can_encode(text)]
    runs = encoder.encode(can_be_encoded)
    utf8_bytes = sum(len(text) if text.isascii() else len(text.encode("utf-8")) for text in texts)
    lengths = np.concatenate([runs.lengths, np.zeros(len(texts) - len(can_be_encoded), np.int32)])
    return Counts(len(texts), sum(map(len, texts)), utf8_bytes, int(runs.lengths.sum()), _histogram(lengths))


def _histogram(lengths: NDArray[np.int32]) -> tuple[int, ...]:
    bins = np.log2(np.maximum(lengths, 1)).astype(np.int64)
    return tuple(np.bincount(bins, minlength=LENGTH_BINS).tolist())
