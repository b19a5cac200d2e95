"""Profiles of corpora: documents, bytes and tokens by source, domain and licence.

The stage `profile` counts the documents of a shard, and the tokens of sampled documents. The profiles of all shards add
up, in any order, to the corpus's profile.
"""

import contextlib
import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from operator import add, sub
from typing import Any, TypeVar

import msgspec

from pipeline_assets.corpus.converted_shards import IDS_FOLDER
from pipeline_assets.corpus.doc_ids import IdsWriter
from pipeline_assets.corpus.document import utf8_size
from pipeline_assets.corpus.document_shards import DocumentShard, poison_row_error, read_documents
from pipeline_assets.corpus.token_sample import LENGTH_BINS, WEIGHT_ONE, SampleSums, SamplingRule, count_tokens, scale
from pipeline_assets.corpus.tokens.families import TokenizerFile, load_tokenizer
from pipeline_assets.corpus.tokens.tokenizer import Tokenizer
from pipeline_assets.spine.stage import Window
from pipeline_assets.spine.staging import Receipt, StagingView
from pipeline_assets.spine.typed_values import convert

_BLOCK_BYTES = 4 << 20
K = TypeVar("K", "DocumentGroup", str)


class _Row(msgspec.Struct, frozen=True, gc=False):
    """Document fields that the profile of a corpus depends on."""

    text: str
    doc_id: str
    source: str
    domain: str
    license_tag: str


_decoder = msgspec.json.Decoder(_Row)


@dataclass(frozen=True)
class ProfileShard(DocumentShard):
    """Document shard of one source, with the rule for the source's sample."""

    sampling: SamplingRule


@dataclass(frozen=True, order=True)
class DocumentGroup:
    """Documents that share source, domain and licence."""

    source: str
    domain: str
    license_tag: str


@dataclass(frozen=True)
class ProfileCounts:
    """Counts of a group of documents; tokens exclude end-of-document tokens.

    `lengths` counts documents by their number of tokens: bin k is for 2**k <= tokens < 2**(k + 1), bin 0 also for 0
    tokens. Before `estimate_tokens`, each bin is a sum of weights of sampled documents, and `tokens` is None.
    """

    documents: int = 0
    characters: int = 0
    utf8_bytes: int = 0
    tokens: int | None = 0
    lengths: tuple[int, ...] = (0,) * LENGTH_BINS
    sample: SampleSums = field(default_factory=SampleSums)

    def __add__(self, other: "ProfileCounts") -> "ProfileCounts":
        return ProfileCounts(
            self.documents + other.documents,
            self.characters + other.characters,
            self.utf8_bytes + other.utf8_bytes,
            None if self.tokens is None or other.tokens is None else self.tokens + other.tokens,
            tuple(map(add, self.lengths, other.lengths)),
            SampleSums(*map(add, self.sample, other.sample)),
        )

    @property
    def is_exact(self) -> bool:
        """True if the tokens of every document were counted."""
        return self.sample.weights == WEIGHT_ONE * self.documents


Profile = Mapping[DocumentGroup, ProfileCounts]


def profile_shard(
    shard: ProfileShard, window: Window, folder: StagingView, tokenizer: TokenizerFile | None, writes_ids: bool
) -> Receipt:
    """Count the documents of a shard; the receipt has the profile and the file of ids.

    Without a tokenizer, no tokens are counted; without `writes_ids`, no file is written. A poison row raises
    InputError, because it would be missing from the counts.
    """
    if window.poison_rows:
        raise poison_row_error(min(window.poison_rows), "counting", shard.file)
    encoder = None if tokenizer is None else load_tokenizer(tokenizer)
    profiles: list[Profile] = []
    name, rows = f"{IDS_FOLDER}/{shard.name}", 0
    with IdsWriter(folder.path(name)) if writes_ids else contextlib.nullcontext() as ids:
        for documents, _ in read_documents(shard, window, _decoder, _BLOCK_BYTES):
            if ids is not None:
                ids.add(document.doc_id for _, document in documents)
            groups = defaultdict[tuple[str, str, str], list[_Row]](list)
            for _, document in documents:
                groups[document.source, document.domain, document.license_tag].append(document)
            profiles.append(
                {DocumentGroup(*key): _count_group(group, shard.sampling, encoder) for key, group in groups.items()}
            )
            rows += len(documents)
    files = [] if ids is None else [ids.output(name)]
    return Receipt(files, {"rows": rows, "documents": rows}, {"groups": profile_to_json(merge_profiles(profiles))})


def join_profiles(receipts: Iterable[Receipt]) -> Profile:
    """Add up the profiles in receipts of `profile_shard`, and estimate the tokens."""
    return estimate_tokens(merge_profiles(profile_from_json(receipt.notes["groups"]) for receipt in receipts))


def estimate_tokens(profile: Profile) -> dict[DocumentGroup, ProfileCounts]:
    """Estimate each group's tokens and lengths from sampled documents.

    A group without sampled documents is estimated from the sample of its source.
    """
    sources, estimated = sum_profile_by(profile, "source"), dict[DocumentGroup, ProfileCounts]()
    for group, counts in profile.items():
        sampled = counts if counts.sample.weighted_bytes else sources[group.source]
        if sampled.sample.documents:
            tokens = scale(sampled.sample.weighted_tokens, sampled.sample.weighted_bytes, counts.utf8_bytes)
            # The sums are rounded, not the bins, so that the bins add up to all documents.
            weights = itertools.accumulate(sampled.lengths, initial=0)
            shorter = [scale(weight, sampled.sample.weights, counts.documents) for weight in weights]
            counts = replace(counts, tokens=tokens, lengths=tuple(map(sub, shorter[1:], shorter)))
        estimated[group] = counts
    return merge_profiles([estimated])


def merge_profiles(profiles: Iterable[Profile]) -> dict[DocumentGroup, ProfileCounts]:
    """Add up profiles; sort groups by tokens and bytes (both descending), then name."""
    return _sum_by_key(item for profile in profiles for item in profile.items())


def sum_profile_by(profile: Profile, field: str) -> dict[str, ProfileCounts]:
    """Add up counts by a field of `DocumentGroup`; sort as in `merge_profiles`."""
    return _sum_by_key((str(getattr(group, field)), counts) for group, counts in profile.items())


def sum_profile(profile: Profile) -> ProfileCounts:
    return sum(profile.values(), ProfileCounts())


def _sum_by_key(pairs: Iterable[tuple[K, ProfileCounts]]) -> dict[K, ProfileCounts]:
    sums: dict[K, ProfileCounts] = {}
    for key, counts in pairs:
        sums[key] = sums.get(key, ProfileCounts()) + counts
    return dict(sorted(sums.items(), key=lambda item: (-(item[1].tokens or 0), -item[1].utf8_bytes, item[0])))


def profile_to_json(profile: Profile) -> list[dict[str, Any]]:
    """Convert a profile to a list of groups with their counts."""
    return [asdict(group) | asdict(counts) for group, counts in profile.items()]


def profile_from_json(entries: Sequence[Mapping[str, Any]]) -> dict[DocumentGroup, ProfileCounts]:
    """Read a profile from a list that `profile_to_json` returned."""
    return {convert(entry, DocumentGroup): convert(entry, ProfileCounts) for entry in entries}


def _count_group(documents: Sequence[_Row], sampling: SamplingRule, tokenizer: Tokenizer | None) -> ProfileCounts:
    sizes = [utf8_size(document.text) for document in documents]
    counts = ProfileCounts(len(documents), sum(len(document.text) for document in documents), sum(sizes), None)
    if tokenizer is None:
        return counts
    weights = [sampling.weigh(document.doc_id, size) for document, size in zip(documents, sizes, strict=True)]
    sampled = [document.text for document, weight in zip(documents, weights, strict=True) if weight]
    sample, lengths = count_tokens(sampled, [*filter(None, weights)], sampling.rate, tokenizer)
    return replace(counts, lengths=tuple(lengths), sample=sample)
