"""What deduplication decided of a document, as it is written down and read again, alone or with its duplicates."""

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import msgspec

from pipeline_assets.corpus.document import Document
from pipeline_assets.corpus.formats.jsonl_zst import SUFFIX, read_structs
from pipeline_assets.spine.artifact import Artifact, open_artifact
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.files import REBUILD, MetadataFile
from pipeline_assets.spine.lineage import Lineage
from pipeline_assets.spine.manifest import StageVersion

DEDUP_STAGE, SIGNATURES_STAGE = StageVersion("dedup", 3), StageVersion("signatures", 3)
RULE = f"{DEDUP_STAGE.name}/{DEDUP_STAGE.version}"
DECISIONS_FILE, EDGES_FILE, GROUPS_FILE = f"decisions{SUFFIX}", "edges.parquet", "groups.json"
Outcome = Literal["kept", "exact_duplicate", "near_duplicate"]


class Decision(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of a document.

    Attributes:
        rule: name and version of the rule.
        shard, row: its place in its source.
        duplicate_of: the document that stays in its place, which is itself kept.
        similarity: Jaccard similarity of their sets of shingles; 1 for exact duplicates.
        containment: the share of its own shingles that the other one has.
        copy_of: the first document with the same normalised text, where that is another one.
        seen_in: the signature store that `duplicate_of` stands in; None where it is one of this corpus.
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


class Sample(msgspec.Struct, frozen=True, omit_defaults=True):
    """A document of a group, and how its text begins; of one in a signature store no text is there."""

    doc_id: str
    source: str
    beginning: str
    seen_in: str | None = None


class Group(msgspec.Struct, frozen=True):
    """One of the largest groups: what stays, how many documents went for it, the first of those."""

    dropped: int = msgspec.field(name="gone")
    kept: Sample
    samples: tuple[Sample, ...]


_GROUPS_FILE = MetadataFile("list of groups", 256 << 20, REBUILD, tuple[Group, ...])


def read_groups(deduplicated: Artifact) -> tuple[Group, ...]:
    """The largest groups, the largest first."""
    return _GROUPS_FILE.read(deduplicated.path(GROUPS_FILE))


def read_decisions(deduplicated: Artifact) -> Iterator[Decision]:
    """A decision for each document, in the order of the corpus."""
    yield from read_structs(deduplicated.path(DECISIONS_FILE), Decision)


def compared_inputs(deduplicated: Artifact) -> tuple[dict[str, str], dict[str, str]]:
    """Digests of the sources of a deduplicated corpus, and of the signature stores of what was seen before; by name."""
    sources, stores = dict[str, str](), dict[str, str]()
    for entry in deduplicated.manifest.identity.upstream:
        _, kind, name = entry["name"].split("/", 2)
        (stores if kind == SIGNATURES_STAGE.name else sources)[name] = entry["digest"]
    return sources, stores


_word = re.compile(r"\w+")


class Member(NamedTuple):
    """A document of a group: what was decided of it in a deduplicated corpus."""

    corpus: Artifact
    decision: Decision


@dataclass(frozen=True)
class DocumentGroup:
    """Documents of one deduplicated corpus.

    Attributes:
        kept_id: the one that stays.
        seen_in: the signature store that it was seen in before; None where it is one of this corpus.
        kept: what was decided of it, in an earlier corpus where it was seen before; None where that isn't here.
        dropped: those that went for it, in the order of the corpus.
    """

    corpus: Artifact
    kept_id: str
    seen_in: str | None
    kept: Member | None
    dropped: Sequence[Member]


def groups_with_document(lineage: Lineage, doc_id: str) -> Iterator[DocumentGroup]:
    """The group of a document in every deduplicated corpus below a data root that has it.

    Raises:
        InputError: a corpus there is damaged.
    """
    for folder, one in lineage.sealed.items():
        if one.identity.stage.name == DEDUP_STAGE.name:
            corpus = open_artifact(folder)
            own = next((one for one in read_decisions(corpus) if one.doc_id == doc_id), None)
            if own is not None:
                yield _group(lineage, corpus, own.duplicate_of or own.doc_id, own.seen_in)


def _group(lineage: Lineage, corpus: Artifact, kept_id: str, seen_in: str | None) -> DocumentGroup:
    home = corpus if seen_in is None else _seen_corpus(lineage, corpus, seen_in)
    kept = None
    if home is not None:
        kept = Member(home, next(one for one in read_decisions(home) if one.doc_id == kept_id))
    gone = (one for one in read_decisions(corpus) if (one.duplicate_of, one.seen_in) == (kept_id, seen_in))
    return DocumentGroup(corpus, kept_id, seen_in, kept, [Member(corpus, one) for one in gone])


def _seen_corpus(lineage: Lineage, corpus: Artifact, name: str) -> Artifact | None:
    """The corpus whose signatures are in a store that this one was deduplicated against; None where it isn't here."""
    _, stores = compared_inputs(corpus)
    try:
        [made_from] = lineage.locate(stores[name]).manifest.identity.upstream
        return lineage.locate(made_from["digest"])
    except InputError:
        return None


def read_document(lineage: Lineage, member: Member) -> Document:
    """The document itself, from the source that was deduplicated.

    Raises:
        InputError: that source is gone.
    """
    from pipeline_assets.corpus.formats.jsonl_zst import read_line

    sources, _ = compared_inputs(member.corpus)
    source = lineage.locate(sources[member.decision.source])
    return read_line(source.path(member.decision.shard), member.decision.row, Document)


def word_diff(old: str, new: str, context: int = 6) -> Iterator[str]:
    """What makes two texts differ by their normalised words, in stretches as they were written: `[-gone-]`, `{+new+}`,
    `[-gone-]{+new+}`; of equal ones, written as in the new text, `context` words beside what differs.
    """
    before, after = (list(_word.finditer(text)) for text in (old, new))
    # As `words.normalize` has them.
    old_keys, new_keys = (["".join(one.lower()[0] for one in word[0]) for word in words] for words in (before, after))
    opcodes = difflib.SequenceMatcher(None, old_keys, new_keys, autojunk=False).get_opcodes()
    for kind, a, a_stop, b, b_stop in opcodes:
        if kind == "equal":
            head, tail = context * (b > 0 or a > 0), context * (b_stop < len(after) or a_stop < len(before))
            yield from _shortened(new, after, b, b_stop, head, tail)
        else:
            gone, added = _written(old, before, a, a_stop), _written(new, after, b, b_stop)
            yield f"[-{gone}-]" * bool(gone) + f"{{+{added}+}}" * bool(added)


def _shortened(text: str, words: Sequence[re.Match[str]], start: int, stop: int, head: int, tail: int) -> Iterator[str]:
    """Equal words, of which those between the first `head` and the last `tail` are counted if they are several."""
    left_out = stop - start - head - tail
    if left_out <= 1:
        yield _written(text, words, start, stop)
        return
    pieces = (_written(text, words, start, start + head), f"… {left_out:,} equal words …")
    yield from filter(None, (*pieces, _written(text, words, stop - tail, stop)))


def _written(text: str, words: Sequence[re.Match[str]], start: int, stop: int) -> str:
    """Words with what stands between them and behind the last, as far as the next one."""
    if start == stop:
        return ""
    end = words[stop].start() if stop < len(words) else len(text)
    return text[words[start].start() : end].rstrip()
