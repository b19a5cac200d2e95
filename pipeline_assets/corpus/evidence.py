"""Evidence for a report: row counts, samples of dropped rows and near duplicates.

Rows are drawn by seeded hashes of their positions. Rows at the start of a few shards are preferred, so that few rows
are read. Other rows are drawn only for those drop reasons that are rare among the preferred rows.
"""

import bisect
import functools
import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pipeline_assets.corpus.dedup.decision import Passage, compare_words, find_decisions
from pipeline_assets.corpus.document import Document
from pipeline_assets.corpus.dropped_rows import DroppedRow, dropped_rows
from pipeline_assets.corpus.formats.jsonl_rows import read_chosen_lines
from pipeline_assets.corpus.readers.row_positions import format_row_position
from pipeline_assets.spine.artifact import Artifact

SEED = 0
_MAX_EXAMPLES, _MAX_PAIRS = 3, 5  # examples per reason and source; pairs of near duplicates
_EXAMPLE_CHARACTERS = 400
_STRIPE_ROWS = 4096  # rows in a shard's first stripe are drawn before rows of later stripes
_COMPARED_CHARACTERS, _CHARACTERS_BEFORE = 3_000, 300  # per text; before the first difference
_CONTEXT_WORDS = 12
T = TypeVar("T")


@dataclass(frozen=True)
class Example:
    """Example of a dropped document or rejected row."""

    doc_id: str  # empty, like the text, if the row did not become a document
    measured: str  # `detail` of the `DroppedRow`, such as the measurement of a filter
    text: str  # start of the document's text
    place: str  # file and position of the row in the source


def draw_by_reason(rows: Iterable[tuple[str, str, int, T]], max_items: int) -> dict[str, list[T]]:
    """Draw up to `max_items` items per reason, from tuples (reason, file, row, item)."""
    drawn: dict[str, list[tuple[tuple[bytes, int, bytes], T]]] = {}
    for reason, file, row, item in rows:
        order = _seeded_hash(file), row // _STRIPE_ROWS, _seeded_hash(f"{file}\0{row}")
        lowest = drawn.setdefault(reason, [])
        if len(lowest) < max_items or order < lowest[-1][0]:
            bisect.insort(lowest, (order, item), key=lambda entry: entry[0])
            del lowest[max_items:]
    return {reason: [item for _, item in lowest] for reason, lowest in sorted(drawn.items())}


@functools.lru_cache(maxsize=1024)  # rows of a file follow each other
def _seeded_hash(text: str) -> bytes:
    return hashlib.sha256(f"{SEED}\0{text}".encode()).digest()


def draw_examples(artifact: Artifact, normalized: Artifact) -> dict[str, list[Example]]:
    """Draw up to three of an artifact's dropped and rejected rows for each reason.

    `normalized` is the normalized corpus of a source; `artifact` is either `normalized` or the corpus filtered from it.
    """
    drawn = draw_by_reason(((row.reason, row.file, row.row, row) for row in dropped_rows(artifact)), _MAX_EXAMPLES)
    is_filtered, is_hub = artifact is not normalized, normalized.manifest.identity.recipe.get("kind") == "hub"
    positions = [(normalized.path(row.file), row.row) for rows in drawn.values() for row in rows if is_filtered]
    documents = read_chosen_lines(positions, Document)

    def example(row: DroppedRow) -> Example:
        file, number, doc_id, text = row.file, row.row, "", ""
        if is_filtered:
            document = documents[normalized.path(file), number]
            meta, doc_id, text = document.meta, document.doc_id, document.text
            file, number = meta.source_file, meta.source_row
        place = f"row {number:,}" if is_hub else format_row_position(file, number, None)
        return Example(doc_id, row.detail, text[:_EXAMPLE_CHARACTERS], f"{file} {place}")

    return {reason: [example(row) for row in rows] for reason, rows in drawn.items()}


def draw_near_duplicates(deduplicated: Artifact, sources: Mapping[str, Artifact]) -> list[dict[str, Any]]:
    """Draw up to five near duplicates, and compare each with its kept document.

    `sources` maps each source to its corpus before deduplication. A duplicate of a document in an earlier corpus is
    omitted, because signature stores have no text.
    """
    near = (entry for entry in find_decisions(deduplicated, decision=["near_duplicate"]) if not entry.seen_in)
    rows = (("", f"{entry.source}/{entry.shard}", entry.row, entry) for entry in near)
    drawn = draw_by_reason(rows, _MAX_PAIRS).get("", [])
    kept_ids = {entry.duplicate_of or "" for entry in drawn}
    kept = {entry.doc_id: entry for entry in find_decisions(deduplicated, doc_id=kept_ids)}
    pairs = [(kept[entry.duplicate_of or ""], entry) for entry in drawn]
    positions = {entry: (sources[entry.source].path(entry.shard), entry.row) for pair in pairs for entry in pair}
    documents = read_chosen_lines(positions.values(), Document)
    texts = {entry: documents[position].text for entry, position in positions.items()}
    return [
        {
            "kept": {"doc_id": old.doc_id, "source": old.source},
            "dropped": {"doc_id": new.doc_id, "source": new.source},
            "similarity": new.similarity,
            "passages": [passage._asdict() for passage in _compare_texts(texts[old], texts[new])],
        }
        for old, new in pairs
    ]


def _compare_texts(kept: str, dropped: str) -> list[Passage]:
    """Compare two texts by passages, starting shortly before the first difference."""
    pairs = enumerate(zip(kept, dropped, strict=False))
    first = next((place for place, (a, b) in pairs if a != b), min(len(kept), len(dropped)))
    start = max(first - _CHARACTERS_BEFORE, 0)
    stop, omitted = start + _COMPARED_CHARACTERS, Passage("…", "…", True)
    passages = list(compare_words(kept[start:stop], dropped[start:stop], _CONTEXT_WORDS))
    is_cut = max(len(kept), len(dropped)) > stop
    if is_cut and passages and not passages[-1].is_equal:  # the texts end at different words
        passages.pop()
    return [omitted] * (start > 0) + passages + [omitted] * is_cut


def count_funnel(artifacts_by_step: Mapping[str, Sequence[Artifact | None]]) -> list[dict[str, Any]]:
    """Count the source rows, then each step's remaining rows and lost rows by reason.

    `artifacts_by_step` maps each step's name to its artifacts. A step with no artifacts, or only None, is omitted.
    """
    funnel: list[dict[str, Any]] = []
    for step, artifacts in artifacts_by_step.items():
        ledgers = [artifact.manifest.identity.ledger for artifact in artifacts if artifact is not None]
        lost = Counter[str]()
        for fate, reason, count in (outcome for ledger in ledgers for outcome in ledger.other_outcomes()):
            lost[reason or fate] += count
        if not funnel:
            rows = sum(ledger.rows_in for ledger in ledgers)
            funnel.append({"stage": "rows of the sources", "lost": {}, "rows": rows})
        if ledgers:
            funnel.append({"stage": step, "lost": dict(lost), "rows": funnel[-1]["rows"] - lost.total()})
    return funnel
