"""A group of duplicates: the document that stays and all that went for it, with their texts."""

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pipeline_assets.corpus.dedup.decision import DEDUP_STAGE, Decision, compared_inputs, read_decisions
from pipeline_assets.corpus.document import Document
from pipeline_assets.corpus.spine.artifact import Artifact, open_artifact
from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.spine.lineage import locate, sealed_manifests
from pipeline_assets.corpus.trace.snapshot_rows import read_document

_pieces = re.compile(r"\w+|[^\w\s]+|\s+")


class Member(NamedTuple):
    """A document of a group: what was decided of it in a deduplicated corpus."""

    corpus: Artifact
    decision: Decision


@dataclass(frozen=True)
class Group:
    """Documents of one deduplicated corpus.

    Attributes:
        kept_id: the one that stays.
        seen_in: the signature store that it was seen in before; None where it is one of this corpus.
        kept: what was decided of it, in an earlier corpus where it was seen before; None where that isn't here.
        gone: those that went for it, in the order of the corpus.
    """

    corpus: Artifact
    kept_id: str
    seen_in: str | None
    kept: Member | None
    gone: Sequence[Member]


def groups_of(root: Path, doc_id: str) -> Iterator[Group]:
    """The group of a document in every deduplicated corpus below a data root that has it.

    Raises:
        InputError: a corpus there is damaged.
    """
    manifests, _ = sealed_manifests(root)
    for folder, manifest in manifests.items():
        if manifest.identity.stage.name == DEDUP_STAGE.name:
            corpus = open_artifact(folder)
            own = next((one for one in read_decisions(corpus) if one.doc_id == doc_id), None)
            if own is not None:
                yield _group(root, corpus, own.duplicate_of or own.doc_id, own.seen_in)


def _group(root: Path, corpus: Artifact, kept_id: str, seen_in: str | None) -> Group:
    home = corpus if seen_in is None else _seen_corpus(root, corpus, seen_in)
    kept = None
    if home is not None:
        kept = Member(home, next(one for one in read_decisions(home) if one.doc_id == kept_id))
    gone = (one for one in read_decisions(corpus) if (one.duplicate_of, one.seen_in) == (kept_id, seen_in))
    return Group(corpus, kept_id, seen_in, kept, [Member(corpus, one) for one in gone])


def _seen_corpus(root: Path, corpus: Artifact, name: str) -> Artifact | None:
    """The corpus whose signatures are in a store that this one was deduplicated against; None where it isn't here."""
    _, stores = compared_inputs(corpus)
    try:
        [made_from] = locate(root, stores[name]).manifest.identity.upstream
        return locate(root, made_from["digest"])
    except InputError:
        return None


def document_of(root: Path, member: Member) -> Document:
    """The document itself, from the source that was deduplicated.

    Raises:
        InputError: that source is gone.
    """
    sources, _ = compared_inputs(member.corpus)
    source = locate(root, sources[member.decision.source])
    return read_document(source.path(member.decision.shard), member.decision.row)


def word_diff(old: str, new: str, context: int = 6) -> Iterator[str]:
    """What makes two texts differ, in pieces: `[-gone-]`, `{+new+}`, what is alike; of that the middle of more than two
    times `context` words is left out.
    """
    before, after = _pieces.findall(old), _pieces.findall(new)
    for kind, a, a_stop, b, b_stop in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if kind == "equal":
            yield _shortened(before[a:a_stop], context)
            continue
        if a < a_stop:
            yield f"[-{''.join(before[a:a_stop])}-]"
        if b < b_stop:
            yield f"{{+{''.join(after[b:b_stop])}+}}"


def _shortened(pieces: Sequence[str], context: int) -> str:
    words = [place for place, piece in enumerate(pieces) if piece[0].isalnum()]
    if len(words) <= 2 * context + 1:
        return "".join(pieces)
    head, tail = "".join(pieces[: words[context]]), "".join(pieces[words[-context - 1] + 1 :])
    return f"{head}… {len(words) - 2 * context:,} words alike …{tail}"
