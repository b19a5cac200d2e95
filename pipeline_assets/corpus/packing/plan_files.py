"""What there is before a row is written: the shards as runs of tokens, and the files of a plan, what is drawn of them
and which rows it makes; and what a packed set holds, its documents and its mixture beside the one that was asked for.

Documents of a corpus are numbered: sources by name, their shards, their rows. So are draws: sources, their epochs, and
in an epoch the documents. So of a shard the draws of one epoch have numbers in a row.
"""

import functools
import itertools
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.converted_shards import gather_lines
from pipeline_assets.corpus.corpus_shard import CorpusShard
from pipeline_assets.corpus.document_shards import REJECTS_FILE, DocumentShard
from pipeline_assets.corpus.formats.memmap import DOCUMENTS
from pipeline_assets.corpus.formats.parquet_rows import rows_with
from pipeline_assets.corpus.tokens.encode import DocumentTable, encode_shard, load_tables
from pipeline_assets.corpus.tokens.families import TokenizerFile, load_tokenizer
from pipeline_assets.corpus.tokens.losses import LOST_TEXT, NO_LOSSES, Losses, lost_text, read_lost_text
from pipeline_assets.spine.artifact import Artifact, Verdict
from pipeline_assets.spine.engine import RunSettings, RunStage, limit_workers, run_stages
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.lineage import Lineage
from pipeline_assets.spine.stage import Task, run_task
from pipeline_assets.spine.staging import WORK, OutputFile, Receipt, StagingDir, StagingView

_GROWTH_BYTES = 128 << 20  # a tokenizer's cache of words only grows: to start it afresh more often costs a fifth more


@dataclass(frozen=True)
class EncodedShard:
    """Token and document files of a text shard.

    Attributes:
        path: path of the text shard in its artifact.
        token_file: int32 ids, document after document, each followed by its end token.
        document_file: table of `documents` rows, see `DocumentTable`.
        rejected: number of texts that were not encoded.
    """

    source: str
    path: str
    token_file: Path
    document_file: Path
    documents: int
    rejected: int = 0

    @property
    def table(self) -> DocumentTable:
        """Table of the documents; 128 stay open, because each range of rows reads all."""
        written = self.document_file.stat()
        return _kept_open(self.document_file, written.st_ino, written.st_mtime_ns)


@functools.lru_cache(maxsize=128)
def _kept_open(path: Path, inode: int, modified_ns: int) -> DocumentTable:
    return DocumentTable(path)


@dataclass(frozen=True)
class EncodedCorpus:
    """Encoded shards in order, their receipts, and the runner of further stages."""

    shards: tuple[EncodedShard, ...]
    receipts: Sequence[Receipt]
    run: RunStage[Task]

    @property
    def provenance(self) -> Mapping[str, Any]:
        """Libraries that encoded the corpus, and the text that each source lost."""
        losses: dict[str, Losses] = {}
        for shard, receipt in zip(self.shards, self.receipts, strict=True):
            losses[shard.source] = losses.get(shard.source, NO_LOSSES) + Losses.from_counts(receipt.counts)
        return {"tokenizer_driver": sorted({str(one.notes["driver"]) for one in self.receipts}), **lost_text(losses)}

    def gather_rejects(self, building: StagingDir, zstd_level: int) -> OutputFile:
        """Write the rejects of all shards to one file."""
        return gather_lines(building, [receipt.files[2] for receipt in self.receipts], REJECTS_FILE, zstd_level)


def encoded_corpus(
    shards: Sequence[CorpusShard], tokenizer: TokenizerFile, building: StagingDir, settings: RunSettings
) -> EncodedCorpus:
    """Encode shards, in this order; the stages that follow run in the same workers.

    Raises:
        InputError: as `encode_shard` and `load_tokenizer`. OracleDisagrees: as `encode_shard`.
    """
    sizes = [shard.file.stat().st_size for shard in shards]
    settings = replace(limit_workers(building, settings, sizes), growth_bytes=_GROWTH_BYTES)
    to_encode = [
        DocumentShard(f"{number:05d}", f"{shard.source}/{shard.path}", shard.file, shard.rows)
        for number, shard in enumerate(shards)
    ]
    tasks = [
        Task.for_kernel(encode_shard, one, tokenizer=tokenizer, zstd_level=settings.zstd_level) for one in to_encode
    ]
    warm_up = functools.partial(load_tables, tokenizer, sum(shard.rows for shard in shards))
    run = run_stages(run_task, settings, warm_up)
    receipts = list(run(f"encode-{load_tokenizer(tokenizer).driver}", tasks, building))
    encoded = tuple(
        EncodedShard(
            shard.source,
            shard.path,
            building.path(receipt.files[0].path),
            building.path(receipt.files[1].path),
            receipt.counts["documents"],
            receipt.counts["rows"] - receipt.counts["documents"],
        )
        for shard, receipt in zip(shards, receipts, strict=True)
    )
    return EncodedCorpus(encoded, receipts, run)


def first_documents(shards: Sequence[EncodedShard]) -> NDArray[np.int64]:
    """The number of each shard's first document, and how many there are, shape (shards + 1,)."""
    return np.cumsum([0, *(shard.documents for shard in shards)], dtype=np.int64)


@dataclass(frozen=True)
class DrawnSource:
    """What was drawn of one source.

    Attributes:
        first_document, stop_document: numbers of its documents in the corpus.
        first_draw: the number of its first draw.
        epochs: how often all of it was drawn.
        first_taken, stop_taken: where `Drawn.taken` has the documents of its last epoch.
    """

    name: str
    first_document: int
    stop_document: int
    first_draw: int
    epochs: int
    first_taken: int
    stop_taken: int

    @property
    def documents(self) -> int:
        return self.stop_document - self.first_document

    @property
    def draws(self) -> int:
        return self.epochs * self.documents + self.stop_taken - self.first_taken


@dataclass(frozen=True)
class Drawn:
    """All draws.

    Attributes:
        taken: of each source the documents of its last epoch, ascending, numbered in the source; shape (taken,).
        cut: the draw whose document is cut, and the tokens that are left of it; None where none is.
    """

    sources: Sequence[DrawnSource]
    taken: NDArray[np.uint32]
    cut: tuple[int, int] | None

    @property
    def draws(self) -> int:
        return sum(source.draws for source in self.sources)


PLAN, DRAWN, SETTLED = f"{WORK}/plan", "drawn", "settled"


@dataclass(frozen=True)
class PlanFiles:
    """What a plan says, as raw files.

    Attributes:
        row_starts: the first segment of each row, and how many there are, int64 (rows + 1,).
        documents: of each segment, numbered in the corpus, uint32 (segments,).
        starts: of each segment its first token in the document, int32 (segments,).
        lengths: of each segment, int32 (segments,).
        first_rows: of each draw, by number, the row that it begins in, uint32 (draws,).
        is_whole: of each draw whether one row holds all of it, bool (draws,).
        taken: see `Drawn.taken`.
    """

    row_starts: Path
    documents: Path
    starts: Path
    lengths: Path
    first_rows: Path
    is_whole: Path
    taken: Path

    @classmethod
    def below(cls, folder: StagingView) -> "PlanFiles":
        """Of a build."""
        return cls(*(folder.path(f"{PLAN}/{field.name}") for field in fields(cls)))


def read_drawn(receipt: Receipt, files: PlanFiles) -> Drawn:
    """The draws of a plan."""
    notes = receipt.notes[DRAWN]
    sources = [DrawnSource(**source) for source in notes["sources"]]
    return Drawn(sources, mapped(files.taken, np.uint32), tuple(notes["cut"]) if notes["cut"] else None)


def mapped(path: Path, dtype: type[np.generic]) -> NDArray[Any]:
    """A raw file as an array; what isn't looked at isn't read."""
    return np.memmap(path, dtype, "r") if path.stat().st_size else np.empty(0, dtype)


_RANGE_TOKENS = 8 << 20
_SEGMENT_TOKENS = 32  # what a segment costs, in tokens: of memory while its line is made


@dataclass(frozen=True)
class RowRange:
    """The rows from `start` to before `stop`."""

    name: str
    start: int
    stop: int
    encoded: tuple[EncodedShard, ...]
    plan: PlanFiles
    rows: int = 0


def row_ranges(encoded: tuple[EncodedShard, ...], plan: PlanFiles, seq_len: int) -> list[RowRange]:
    """All rows in ranges of about 8 Mi tokens, fewer where documents are short; planned from the rows alone."""
    row_starts = mapped(plan.row_starts, np.int64)
    cost = np.arange(len(row_starts)) * seq_len + row_starts * _SEGMENT_TOKENS
    steps = np.arange(_RANGE_TOKENS, cost[-1], _RANGE_TOKENS)
    bounds = np.unique([0, *np.searchsorted(cost, steps), len(cost) - 1]).tolist()
    return [RowRange(f"{start:010d}", start, stop, encoded, plan) for start, stop in itertools.pairwise(bounds)]


def summarize_plan(packed: Artifact) -> dict[str, Any]:
    """Return the counts of a sealed set for its report.

    `cut_documents` are drawn documents of which no row holds all, `cut_share` their share of those drawn, in all and by
    source: they fit in a row and were cut, or they are longer than one. `license_tokens` has the most frequent first.
    """
    identity = packed.manifest.identity
    counts, rules = identity.counts, identity.recipe["pack"]
    by_source = {source: one | _cuts(one) for source, one in counts["by_source"].items()}
    license_tokens = sum((Counter(one["license_tokens"]) for one in by_source.values()), Counter[str]())
    cut_documents = sum(one["cut_documents"] for one in by_source.values())
    return {
        "strategy": rules["strategy"],
        "rows": counts["rows"],
        "seq_len": rules["seq_len"],
        **{name: counts[name] for name in ("documents", "tokens", "padding_tokens", "packing_efficiency")},
        "cut_documents": cut_documents,
        "cut_share": _share(cut_documents, counts["documents"]),
        "by_source": by_source,
        "license_tokens": dict(sorted(license_tokens.items(), key=lambda item: (-item[1], item[0]))),
        "rejected": identity.ledger.rejected,
        LOST_TEXT: packed.manifest.provenance.get(LOST_TEXT, {}),
    }


def _cuts(counts: Mapping[str, Any]) -> dict[str, int | str]:
    cut = counts["cut"] + counts["longer_than_a_row"]
    return {"cut_documents": cut, "cut_share": _share(cut, counts["drawn"])}


def _share(part: int, of: int) -> str:
    return f"{part / max(of, 1):.6f}"


DEDUPLICATED = "stage_a/deduplicated"
_TOLERANCE = Fraction(1, 10)  # of a weight


def shares_reached(packed: Artifact) -> Verdict:
    """The share of each source is within a tenth of its weight."""
    counts = packed.manifest.identity.counts
    off = []
    for source, one in counts["by_source"].items():
        asked, reached = Fraction(one["asked_share"]), Fraction(one["packed_tokens"], counts["tokens"])
        if abs(reached - asked) > _TOLERANCE * asked:
            why = _why(one, is_short=reached < asked)
            off.append(f"{source}: asked {float(asked):.2%}, reached {float(reached):.2%} ({why})")
    numbers = {source: one["share"] for source, one in counts["by_source"].items()}
    return Verdict(not off, "; ".join(off) or "each source is within a tenth of its weight", numbers)


def _why(counts: Mapping[str, Any], is_short: bool) -> str:
    """It is never the supply, nor a cap: where these don't give what is asked, nothing is packed. But documents are
    drawn whole, and one may be more than a source's share.
    """
    asked, mean = counts["asked_tokens"], counts["text_tokens"] // max(counts["documents"], 1)
    place = "its next document is longer than what is left" if is_short else "its last document goes beyond that"
    return f"its share is {asked:,} tokens, and {place}; they have {mean:,} on average"


@dataclass(frozen=True)
class DrawnLine:
    """A line: see `packing.rows`."""

    doc_id: str
    source: str
    shard: str
    row: int
    license_tag: str
    epoch: int
    tokens: int
    packed_tokens: int
    first_row: int
    is_whole: bool

    @property
    def describe(self) -> str:
        """Which epoch drew it, and how much of it is packed."""
        cut = "" if self.packed_tokens == self.tokens else f" of {self.tokens:,}"
        return f"in epoch {self.epoch}: {self.packed_tokens:,}{cut} tokens"

    @property
    def words(self) -> str:
        """Where the set has it."""
        where = f"in row {self.first_row:,}" if self.is_whole else f"of which the first is in row {self.first_row:,}"
        return f"drawn {self.describe} {where}"


def drawn_lines(packed: Artifact, doc_ids: Collection[str]) -> Iterator[DrawnLine]:
    """All lines of some documents, in the order of the file; one row group is in memory at a time."""
    return (DrawnLine(**line) for line in rows_with(packed.path(DOCUMENTS), "doc_id", doc_ids))


def deduplicated_before(corpus: Artifact, root: Path) -> Artifact | None:
    """The deduplicated corpus that a corpus was made from; None if there is none below the data root."""
    digests = [one["digest"] for one in corpus.manifest.identity.upstream if one["name"] == DEDUPLICATED]
    try:
        return Lineage(root).locate(digests[0]) if digests else None
    except InputError:
        return None


def preview_packed(packed: Artifact) -> list[dict[str, str]]:
    """What each source was asked for and gives."""
    lost = read_lost_text(packed.manifest) or {}
    return [
        {
            "source": source,
            "asked": f"{float(counts['asked_share']):.2%}",
            "of the tokens": f"{float(counts['share']):.2%}",
            "tokens": f"{counts['packed_tokens']:,}",
            "epochs": f"{float(counts['epochs']):.2f}",
            "text lost": f"{float(lost[source].fraction if source in lost else 0):.3%}",
        }
        for source, counts in packed.manifest.identity.counts["by_source"].items()
    ]
