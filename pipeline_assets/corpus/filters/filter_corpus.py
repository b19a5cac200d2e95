"""The stage `filter`: Documents → those that are kept, and a line for each that is not."""

import contextlib
import functools
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from pipeline_assets.corpus.document import columns_of
from pipeline_assets.corpus.document_shards import REJECTS_FILE, SHARDS, gather_lines, with_text
from pipeline_assets.corpus.filters.column_rules import Candidate, ColumnRule, Measurement
from pipeline_assets.corpus.filters.dropped import DROPPED_FILE
from pipeline_assets.corpus.filters.judge import apply_filters, judge
from pipeline_assets.corpus.filters.recipe import FilterRecipe
from pipeline_assets.corpus.formats.jsonl_zst import SUFFIX, JsonlZstWriter, read_line_blocks, write_rows
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.engine import RunSettings, run_stage, settings_for
from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.spine.ledger import Ledger, Reject, count_rejects, dropped_key
from pipeline_assets.corpus.spine.sealing import WORK
from pipeline_assets.corpus.spine.staging import BuildFolder, Receipt, StagingDir, total_counts
from pipeline_assets.corpus.spine.target import BuildResult
from pipeline_assets.corpus.spine.worker import KILLED_WORKER, WHOLE, Window

FILTERED = "shards"
DROPPED = f"{WORK}/dropped"
REJECTS = f"{WORK}/rejects"
REFUSED_LICENCE = "refused_licence"
_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True)
class FilterShard:
    """One Document shard: `name` of the output, `path` in the corpus, `file` on disk, its rows."""

    name: str
    path: str
    file: Path
    rows: int


class _Line(msgspec.Struct, frozen=True):
    """What filtering reads of a Document; decoding skips the rest."""

    text: str
    doc_id: str
    license_tag: str
    meta: msgspec.Raw


_reader = msgspec.json.Decoder(_Line)
_encoder = msgspec.json.Encoder()


class _Row(NamedTuple):
    """A line of the shard: its number, its bytes without the line feed, and the document; None if it is fatal."""

    number: int
    line: bytes
    document: _Line | None


def filter_shard(
    shard: FilterShard,
    window: Window,
    folder: BuildFolder,
    recipe: FilterRecipe,
    zstd_level: int,
    refused_licences: frozenset[str] = frozenset(),
) -> Receipt:
    """The shard's documents that no filter drops, in order; a document that nothing changes keeps its bytes.

    Files, in this order: the kept documents; a line for each dropped one: `doc_id`, `reason`, the `value` that was
    measured, the `threshold` it is beyond (null where there is none), `shard` and `row`, in order; rejects.
    Counts: `rows` read, `documents` and `bytes` of text kept, `changed` documents, `dropped/<reason>`, `masked/email`
    and `masked/ip`, `removed_lines/<reason>`, `removed/<what>`, `rejected/<reason>`; what is removed or masked is
    counted in kept documents.

    Args:
        refused_licences: tags whose documents are dropped before any filter is asked, `refused_licence`.
    Raises:
        InputError: a line that is no Document.
        UsageError: a rule over a column that a document doesn't have, or can't be compared.
    """
    counts = Counter({"rows": 0, "documents": 0, "bytes": 0, "changed": 0})
    rejects: list[Reject] = []
    kept_name, dropped_name = f"{FILTERED}/{shard.name}{SUFFIX}", f"{DROPPED}/{shard.name}{SUFFIX}"
    first_row = 0
    with (
        JsonlZstWriter(folder.path(kept_name), zstd_level) as kept,
        JsonlZstWriter(folder.path(dropped_name), zstd_level) as dropped,
    ):
        for block in read_line_blocks(shard.file, _BLOCK_BYTES):
            lines = block.removesuffix(b"\n").split(b"\n")
            rows = list(_rows(block, lines, shard.file, first_row, window))
            first_row += len(lines)
            counts["rows"] += len(rows)
            rejects += [Reject(shard.path, row.number, KILLED_WORKER) for row in rows if row.document is None]
            read = [row for row in rows if row.document is not None]
            _filter_rows(read, shard, recipe, refused_licences, kept, dropped, counts)
    counts.update(count_rejects(rejects))
    rejects_name = f"{REJECTS}/{shard.name}{SUFFIX}"
    rejected = write_rows(folder.path(rejects_name), rejects_name, [reject.to_json() for reject in rejects], zstd_level)
    return Receipt([kept.output(kept_name), dropped.output(dropped_name), rejected], dict(counts))


def load_filters(recipe: FilterRecipe) -> None:
    """Loads what `filter_shard` keeps for the life of its process: tables, and compiled code, once on this machine."""
    columns = {ColumnRule.parse(rule).column: None for rule in recipe.rules}
    judge("Some text. mail@example.com 8.8.8.8 [1]", columns, recipe)
    apply_filters([Candidate(b"Some text.", columns)], recipe)


def _rows(block: bytes, lines: Sequence[bytes], file: Path, first_row: int, window: Window) -> Iterator[_Row]:
    """The block's lines in the window, read; fatal ones unread.

    Raises:
        InputError: a line that is no Document (says which).
    """
    if window == WHOLE:
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):  # found again below, with its row
            documents = _reader.decode_lines(block)
            if len(documents) == len(lines):
                yield from map(_Row, itertools.count(first_row), lines, documents)
                return
    for number, line in window.of(lines, first_row):
        yield _Row(number, line, None if number in window.fatal else _read(line, file, number))


def _read(line: bytes, file: Path, row: int) -> _Line:
    try:
        return _reader.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"row {row} is no Document ({error})", file, "verify the corpus, then rebuild it") from None


def _filter_rows(
    rows: Sequence[_Row],
    shard: FilterShard,
    recipe: FilterRecipe,
    refused_licences: frozenset[str],
    kept: JsonlZstWriter,
    dropped: JsonlZstWriter,
    counts: Counter[str],
) -> None:
    documents = [row.document for row in rows if row.document is not None]
    reads_meta = bool(recipe.rules) or recipe.wikipedia is not None
    candidates = [
        Candidate(document.text.encode(), columns_of(document.meta, shard.file) if reads_meta else {})
        for document in documents
    ]
    texts = [candidate.text for candidate in candidates]
    for document, candidate in zip(documents, candidates, strict=True):
        if document.license_tag in refused_licences:
            candidate.fail(Measurement(REFUSED_LICENCE, document.license_tag, None, is_failed=True))
    apply_filters([candidate for candidate in candidates if candidate.failure is None], recipe)
    kept_lines: list[bytes] = []
    dropped_lines: list[bytes] = []
    for row, document, text, candidate in zip(rows, documents, texts, candidates, strict=True):
        if candidate.failure is not None:
            dropped_lines.append(_ledger_line(document.doc_id, candidate.failure, shard.path, row.number))
            counts[dropped_key(candidate.failure.reason)] += 1
            continue
        is_changed = candidate.text != text
        kept_lines.append(with_text(row.line, candidate.text.decode()) if is_changed else row.line)
        for name, changes in candidate.changes.items():
            counts[name] += changes
        counts["changed"] += is_changed
        counts["bytes"] += len(candidate.text)
    counts["documents"] += len(kept_lines)
    for writer, lines in ((kept, kept_lines), (dropped, dropped_lines)):
        if lines:
            writer.write_lines(b"\n".join([*lines, b""]), len(lines))


def _ledger_line(doc_id: str, failure: Measurement, shard: str, row: int) -> bytes:
    line = {"doc_id": doc_id, "reason": failure.reason, "value": failure.value, "threshold": failure.limit}
    return _encoder.encode({**line, "shard": shard, "row": row})


_CHANGES = ("masked/", "removed/", "removed_lines/")


@dataclass(frozen=True)
class CorpusFilter:
    """What decides which documents are kept."""

    filters: FilterRecipe
    refused_licences: frozenset[str]


def filter_corpus(building: StagingDir, corpus: Artifact, rules: CorpusFilter, settings: RunSettings) -> BuildResult:
    """The documents of a corpus that no filter drops, shard by shard under the same names.

    Raises:
        UsageError: a rule over a column that a document doesn't have.
        InputError: nothing is kept (says what was dropped for what), or a line that is no Document.
    """
    shards = [
        FilterShard(
            file.path.removeprefix(f"{SHARDS}/").removesuffix(SUFFIX), file.path, corpus.path(file.path), file.rows
        )
        for file in corpus.manifest.identity.files
        if file.path.startswith(f"{SHARDS}/")
    ]
    work = functools.partial(
        filter_shard, recipe=rules.filters, zstd_level=settings.zstd_level, refused_licences=rules.refused_licences
    )
    warm_up = functools.partial(load_filters, rules.filters)
    settings = settings_for(building, settings, sum(shard.file.stat().st_size for shard in shards))
    receipts = list(run_stage("filter", work, shards, building, settings, warm_up))
    counts = total_counts(receipts)
    if not counts.get("documents"):
        raise InputError(_nothing_left(counts), corpus.manifest.name, "loosen its filters, or leave the source out")
    dropped = gather_lines(building, [receipt.files[1] for receipt in receipts], DROPPED_FILE, settings.zstd_level)
    rejects = gather_lines(building, [receipt.files[2] for receipt in receipts], REJECTS_FILE, settings.zstd_level)
    return BuildResult(
        files=[*(receipt.files[0] for receipt in receipts), dropped, rejects],
        counts=_manifest_counts(counts),
        decisions={},
    )


def _manifest_counts(counts: Mapping[str, int]) -> dict[str, Any]:
    return {
        "ledger": Ledger.of(counts).to_json(),
        "documents": counts["documents"],
        "text_bytes": counts["bytes"],
        "changed_documents": counts.get("changed", 0),
        "changes": {name: count for name, count in counts.items() if name.startswith(_CHANGES)},
    }


def _nothing_left(counts: Mapping[str, int]) -> str:
    reasons = sorted(((count, reason) for reason, count in Ledger.of(counts).dropped.items()), reverse=True)
    words = ", ".join(f"{count:,} {reason}" for count, reason in reasons[:5])
    return f"none of its {counts.get('rows', 0):,} documents is kept ({words or 'it is empty'})"
