"""Deduplication of corpora of a few documents."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from document_corpus import seal_corpus
from hypothesis import strategies as st
from plain_dedup import PlainDecision, PlainDocument, decide

from pipeline_assets.build.build_target import build_target
from pipeline_assets.build.systems import unknown_kind
from pipeline_assets.build.target import Target
from pipeline_assets.corpus.dedup.decision import DEDUP_STAGE, SIGNATURES_STAGE, Decision, read_decisions
from pipeline_assets.corpus.dedup.dedup_corpus import dedup_corpus
from pipeline_assets.corpus.dedup.recipe import DedupRecipe
from pipeline_assets.corpus.dedup.sign_corpus import sign_corpus
from pipeline_assets.corpus.document import Document, Meta
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.engine import RunSettings

INLINE = RunSettings()
SMALL_SHARES = RunSettings(2, worker_bytes=0)  # see the fixture `small_shares`


def recipe(**changes: Any) -> DedupRecipe:
    """Build the recipe with some keys changed, of `near` and `minhash` as well."""
    minhash: dict[str, Any] = {"shingle_words": 5, "permutations": 112, "bands": 14, "rows": 8, "seed": 1}
    near: dict[str, Any] = {"threshold": "0.7", "max_compared": 100}
    top: dict[str, Any] = {"mode": "both", "scope": "global", "selection": "first"}
    for name, value in changes.items():
        next(section for section in (minhash, near, top) if name in section or section is top)[name] = value
    proposer = {"faiss": top.pop("faiss")} if top.get("faiss") else {"minhash": minhash}
    section = {} if top["mode"] == "exact" else {"near": near | proposer}
    return DedupRecipe.model_validate(top | section)


def thorough(**changes: Any) -> DedupRecipe:
    """Build a recipe whose bands propose every pair near or above its threshold."""
    return recipe(**{"permutations": 256, "bands": 256, "rows": 1, "max_compared": 10_000} | changes)


def by_faiss(**changes: Any) -> DedupRecipe:
    """Build a recipe for which faiss proposes every pair near its threshold."""
    words = changes.pop("shingle_words", 5)
    sketches = {"shingle_words": words, "bits": 256, "max_distance": 127, "seed": 1}
    return recipe(**{"max_compared": 10_000, "faiss": sketches} | changes)


def write_corpus(folder: Path, documents: Sequence[PlainDocument], shard_documents: int) -> dict[str, Artifact]:
    """Seal a corpus for each source, in the order in which sources occur."""
    corpora = {}
    for source in dict.fromkeys(document.source for document in documents):
        own = [_document(document) for document in documents if document.source == source]
        corpora[source] = seal_corpus(folder, source, own, shard_documents)
    return corpora


def _document(plain: PlainDocument) -> Document:
    meta = Meta.from_mapping("a.jsonl", 0, {} if plain.quality is None else {"score": plain.quality})
    return Document(plain.text, plain.source, "notes", plain.doc_id, "cc0-1.0", "", meta)


def deduplicate(
    folder: Path,
    sources: Mapping[str, Artifact],
    rules: DedupRecipe,
    settings: RunSettings = INLINE,
    **seen: Artifact,
) -> Artifact:
    """Build the deduplicated corpus; `seen` are signature stores."""
    content = {"dedup": rules.content(), "sources": list(sources)}
    target = Target(unknown_kind("made/deduplicated", DEDUP_STAGE), "result", Path("result"), content)
    return build_target(
        target, folder, lambda building: dedup_corpus(building, sources, rules, settings, seen), False, {}
    )


def sign(folder: Path, deduplicated: Artifact, rules: DedupRecipe, settings: RunSettings = INLINE) -> Artifact:
    """Seal the signature store of a deduplicated corpus."""
    content = {"signatures": rules.signature_keys()}
    target = Target(unknown_kind("made/signatures", SIGNATURES_STAGE), "store", Path("store"), content)
    return build_target(
        target, folder, lambda building: sign_corpus(building, deduplicated, rules, settings), False, {}
    )


def list_decisions(result: Artifact) -> list[Decision]:
    return list(read_decisions(result))


@st.composite
def recipes(draw: st.DrawFn, selections: Sequence[str] = ("first", "longest", "quality")) -> DedupRecipe:
    """Draw recipes that propose every pair near or above their threshold."""
    selection = draw(st.sampled_from(selections))
    return draw(st.sampled_from([thorough, by_faiss]))(
        mode=draw(st.sampled_from(["exact", "near", "both"])),
        scope=draw(st.sampled_from(["global", "per-source"])),
        selection=selection,
        quality_column="score" if selection == "quality" else None,
        threshold=draw(st.sampled_from(["0.4", "0.7", "1"])),
        shingle_words=draw(st.integers(1, 4)),
    )


def plain_decisions(
    documents: Sequence[PlainDocument], rules: DedupRecipe, seen: Sequence[PlainDocument] = ()
) -> list[PlainDecision]:
    """Decide by the plain rule, with the values of the same recipe."""
    threshold, n = (rules.near.threshold, rules.near.proposer.shingle_words) if rules.near else ("1", 1)
    return decide(
        documents,
        mode=rules.mode,
        scope=rules.scope,
        selection=rules.selection,
        threshold=Fraction(threshold),
        n=n,
        seen=seen,
    )
