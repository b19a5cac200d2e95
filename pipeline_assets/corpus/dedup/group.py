"""A group of duplicates: the document that stays and all that went for it, with their texts."""

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline_assets.corpus.dedup.decision import DEDUP_STAGE, Decision, read_decisions
from pipeline_assets.corpus.document import Document
from pipeline_assets.corpus.spine.artifact import Artifact, open_artifact
from pipeline_assets.corpus.spine.lineage import locate, sealed_manifests
from pipeline_assets.corpus.trace.snapshot_rows import read_document

_pieces = re.compile(r"\w+|[^\w\s]+|\s+")


@dataclass(frozen=True)
class Group:
    """Documents of one deduplicated corpus.

    Attributes:
        kept: the one that stays.
        gone: those that went for it, in the order of the corpus.
    """

    corpus: Artifact
    kept: Decision
    gone: Sequence[Decision]


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
                yield _group(corpus, own.duplicate_of or own.doc_id)


def _group(corpus: Artifact, kept_id: str) -> Group:
    members = [one for one in read_decisions(corpus) if kept_id in (one.doc_id, one.duplicate_of)]
    [kept] = (one for one in members if one.doc_id == kept_id)
    return Group(corpus, kept, [one for one in members if one is not kept])


def document_of(root: Path, corpus: Artifact, decision: Decision) -> Document:
    """The document itself, from the source that was deduplicated.

    Raises:
        InputError: that source is gone.
    """
    [digest] = (
        entry["digest"]
        for entry in corpus.manifest.identity.upstream
        if entry["name"].partition("/")[2].partition("/")[2] == decision.source
    )
    return read_document(locate(root, digest).path(decision.shard), decision.row)


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
