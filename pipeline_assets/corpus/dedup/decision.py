"""Decisions on documents of a deduplicated corpus, with groups and text diffs."""

import difflib
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import msgspec

from pipeline_assets.corpus.document import Document
from pipeline_assets.corpus.formats.jsonl_zst import SUFFIX, read_line_blocks, read_structs
from pipeline_assets.spine.artifact import Artifact, open_artifact
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.lineage import Lineage
from pipeline_assets.spine.manifest import StageVersion
from pipeline_assets.spine.metadata_file import REBUILD, MetadataFormat

DEDUP_STAGE, SIGNATURES_STAGE = StageVersion("dedup", 3), StageVersion("signatures", 3)
DECISION_RULE = f"{DEDUP_STAGE.name}/{DEDUP_STAGE.version}"
DECISIONS_FILE, EDGES_FILE, GROUPS_FILE = f"decisions{SUFFIX}", "edges.parquet", "groups.json"
Outcome = Literal["kept", "exact_duplicate", "near_duplicate"]


class Decision(msgspec.Struct, frozen=True, omit_defaults=True):
    """Decision on one document.

    Attributes:
        decision: `kept`, or the reason code of a dropped document.
        rule: Name and version of the stage that decided.
        shard: Path of the document's shard in the source's artifact.
        row: Row number of the document in this shard, from 0.
        duplicate_of: Id of the kept document that this one duplicates; None if this one is kept.
        similarity: Jaccard similarity of both documents' shingles, 1 for exact duplicates; None if this one is kept.
        containment: Share of this document's shingles that the kept document also has; None if this one is kept.
        copy_of: Id of the original with the same normalized text; None if this document is not an exact copy.
        seen_in: Signature store that contains `duplicate_of`; None if no store does.
    """

    doc_id: str
    source: str
    decision: Outcome
    rule: str
    shard: str
    row: int
    duplicate_of: str | None = None
    similarity: float | None = None
    containment: float | None = None
    copy_of: str | None = None
    seen_in: str | None = None


_decoder = msgspec.json.Decoder(Decision)


class GroupExample(msgspec.Struct, frozen=True, omit_defaults=True):
    """Example document of a group of duplicates.

    Attributes:
        beginning: First characters of the text; empty for a document of a signature store.
        seen_in: Signature store that contains the document; None if this corpus contains it.
    """

    doc_id: str
    source: str
    beginning: str
    seen_in: str | None = None


class DuplicateGroup(msgspec.Struct, frozen=True):
    """Group of duplicates.

    Attributes:
        dropped: Number of dropped documents.
        samples: First few dropped documents.
    """

    dropped: int = msgspec.field(name="gone")
    kept: GroupExample
    samples: tuple[GroupExample, ...]


_GROUPS_FORMAT = MetadataFormat("list of groups", 256 << 20, REBUILD, tuple[DuplicateGroup, ...])


def read_groups(deduplicated: Artifact) -> tuple[DuplicateGroup, ...]:
    """Read the largest groups of duplicates, the largest first."""
    return _GROUPS_FORMAT.read(deduplicated.path(GROUPS_FILE))


def read_decisions(deduplicated: Artifact) -> Iterator[Decision]:
    """Yield the decision on each document of the input corpus, in corpus order."""
    yield from read_structs(deduplicated.path(DECISIONS_FILE), Decision)


def find_decisions(deduplicated: Artifact, **values: Collection[str]) -> Iterator[Decision]:
    """Yield the decisions that match any argument, such as `doc_id=["a", "b"]`.

    An argument maps a field to its accepted values. A decision that matches two arguments is yielded twice.
    """
    pairs = [(key, msgspec.json.encode(value)) for key, texts in values.items() for value in texts]
    pattern = re.compile(b"|".join(re.escape(b'"%s":%s' % (key.encode(), value)) + b"[,}]" for key, value in pairs))
    for block in read_line_blocks(deduplicated.path(DECISIONS_FILE)) if pairs else ():
        for match in pattern.finditer(block):
            line = block[block.rfind(b"\n", 0, match.start()) + 1 : block.find(b"\n", match.end())]
            yield _decoder.decode(line)


def input_digests(deduplicated: Artifact) -> tuple[dict[str, str], dict[str, str]]:
    """Return the digests of sources by name, and of signature stores by name."""
    sources, stores = dict[str, str](), dict[str, str]()
    for entry in deduplicated.manifest.identity.upstream:
        _, kind, name = entry["name"].split("/", 2)
        (stores if kind == SIGNATURES_STAGE.name else sources)[name] = entry["digest"]
    return sources, stores


_WORD = re.compile(r"\w+")


class GroupMember(NamedTuple):
    """Document of a group: its decision, and the deduplicated corpus of the decision."""

    corpus: Artifact
    decision: Decision


@dataclass(frozen=True)
class DocumentGroup:
    """Group of duplicates in one deduplicated corpus.

    Attributes:
        seen_in: Signature store that contains the kept document; None if this corpus contains it.
        kept: Kept document; None if it is in a signature store, and the store or the store's corpus is missing.
        dropped: Dropped documents, in the order of the corpus.
    """

    corpus: Artifact
    kept_id: str
    seen_in: str | None
    kept: GroupMember | None
    dropped: Sequence[GroupMember]


def groups_with_document(lineage: Lineage, doc_id: str) -> Iterator[DocumentGroup]:
    """Yield the group of `doc_id` in each deduplicated corpus that kept or dropped it."""
    for folder, manifest in lineage.manifests.items():
        if manifest.identity.stage.name == DEDUP_STAGE.name:
            corpus = open_artifact(folder)
            decision = next((decision for decision in read_decisions(corpus) if decision.doc_id == doc_id), None)
            if decision is not None:
                yield _build_group(lineage, corpus, decision.duplicate_of or decision.doc_id, decision.seen_in)


def _build_group(lineage: Lineage, corpus: Artifact, kept_id: str, seen_in: str | None) -> DocumentGroup:
    owner = corpus if seen_in is None else _find_seen_corpus(lineage, corpus, seen_in)
    kept = None if owner is None else GroupMember(owner, next(find_decisions(owner, doc_id=[kept_id])))
    dropped = [
        GroupMember(corpus, decision)
        for decision in find_decisions(corpus, duplicate_of=[kept_id])
        if decision.seen_in == seen_in
    ]
    return DocumentGroup(corpus, kept_id, seen_in, kept, dropped)


def _find_seen_corpus(lineage: Lineage, corpus: Artifact, store_name: str) -> Artifact | None:
    """Return a signature store's corpus; None if the store or its corpus is missing."""
    _, stores = input_digests(corpus)
    try:
        store = lineage.open_by_digest(stores[store_name], corpus.manifest.name).manifest
        [signed] = store.identity.upstream
        return lineage.open_by_digest(signed["digest"], store.name)
    except InputError:
        return None


def read_document(lineage: Lineage, member: GroupMember) -> Document:
    """Read a document from its source; raise InputError if the source is missing."""
    from pipeline_assets.corpus.formats.jsonl_rows import read_line

    sources, _ = input_digests(member.corpus)
    source = lineage.open_by_digest(sources[member.decision.source], member.corpus.manifest.name)
    return read_line(source.path(member.decision.shard), member.decision.row, Document)


class Passage(NamedTuple):
    """Passage of two texts; `is_equal` is True if the normalized words are equal."""

    kept: str
    dropped: str
    is_equal: bool


def compare_words(kept: str, dropped: str, context_words: int) -> Iterator[Passage]:
    """Yield the passages of two texts, compared by their normalized words.

    Up to `context_words` equal words are kept on each side of a difference. Between them, two or more further
    equal words are replaced by their count.
    """
    a_words, b_words = (list(_WORD.finditer(text)) for text in (kept, dropped))
    # Lower each character as `words.normalize` does.
    a_keys, b_keys = (["".join(char.lower()[0] for char in word[0]) for word in words] for words in (a_words, b_words))
    opcodes = difflib.SequenceMatcher(None, a_keys, b_keys, autojunk=False).get_opcodes()
    for kind, a, a_stop, b, b_stop in opcodes:
        if kind == "equal":
            head_words = context_words * (b > 0 or a > 0)
            tail_words = context_words * (b_stop < len(b_words) or a_stop < len(a_words))
            kept_side = _shorten(kept, a_words, a, a_stop, head_words, tail_words)
            dropped_side = _shorten(dropped, b_words, b, b_stop, head_words, tail_words)
            yield from (Passage(*pieces, True) for pieces in zip(kept_side, dropped_side, strict=True))
        else:
            yield Passage(_original_text(kept, a_words, a, a_stop), _original_text(dropped, b_words, b, b_stop), False)


def word_diff(kept: str, dropped: str, context_words: int = 6) -> Iterator[str]:
    """Yield equal passages as in `dropped`, and differences as `[-kept-]{+dropped+}`."""
    for removed, added, is_equal in compare_words(kept, dropped, context_words):
        yield added if is_equal else f"[-{removed}-]" * bool(removed) + f"{{+{added}+}}" * bool(added)


def _shorten(
    text: str, words: Sequence[re.Match[str]], start: int, stop: int, head_words: int, tail_words: int
) -> Iterator[str]:
    """Yield the beginning and the end of `words[start:stop]`.

    These are the first `head_words` and the last `tail_words` words, with the count of omitted words between them. If
    fewer than two words would be omitted, all words are one passage.
    """
    omitted = stop - start - head_words - tail_words
    if omitted <= 1:
        yield _original_text(text, words, start, stop)
        return
    pieces = (_original_text(text, words, start, start + head_words), f"… {omitted:,} equal words …")
    yield from filter(None, (*pieces, _original_text(text, words, stop - tail_words, stop)))


def _original_text(text: str, words: Sequence[re.Match[str]], start: int, stop: int) -> str:
    """Return `words[start:stop]` as written, with punctuation up to the next word."""
    if start == stop:
        return ""
    end = words[stop].start() if stop < len(words) else len(text)
    return text[words[start].start() : end].rstrip()
