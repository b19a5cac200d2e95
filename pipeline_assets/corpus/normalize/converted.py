"""A source's shards, from the first pass to the content of its artifact: too many rejects, repeated ids, counts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pipeline_assets.corpus.document import DeriveId
from pipeline_assets.corpus.document_shards.ledger import check_documents, document_counts
from pipeline_assets.corpus.document_shards.publish import gather_rejects, publish, read_rejects
from pipeline_assets.corpus.readers.row_words import reject_words
from pipeline_assets.corpus.readers.source_files import SourceFile
from pipeline_assets.corpus.spine.building import Building, Receipt, total_counts
from pipeline_assets.corpus.spine.engine import EngineSettings, run_stage
from pipeline_assets.corpus.spine.errors import THE_RECIPE
from pipeline_assets.corpus.spine.manifest import StageVersion
from pipeline_assets.corpus.spine.rejects import check_rejects
from pipeline_assets.corpus.spine.stage import Shard, Work
from pipeline_assets.corpus.spine.target import Content

NORMALIZE_STAGE = StageVersion("normalize", 2)
S = TypeVar("S", bound=Shard)
_STAGE = "normalize"


@dataclass(frozen=True)
class NormalizeSettings:
    """Run settings: they change speed and storage, never content."""

    engine: EngineSettings
    zstd_level: int
    fetch_threads: int


@dataclass(frozen=True)
class Converted:
    """A source's shards before ids are compared.

    Attributes:
        shards: receipts by shard, in manifest order.
        derive_id: the rule for ids of rows without one.
        decisions: what reading settled.
        expected_rejects: reasons that say nothing of the data's quality.
        uncounted: counts of what never reached a shard.
        files: of which people are told the lines of rejects.
    """

    shards: Mapping[str, Receipt]
    derive_id: DeriveId
    decisions: Mapping[str, Any]
    expected_rejects: frozenset[str] = frozenset()
    uncounted: Mapping[str, int] = field(default_factory=dict)
    files: Sequence[SourceFile] = ()


def convert_shards(
    building: Building, work: Work[S], shards: Sequence[S], settings: NormalizeSettings
) -> dict[str, Receipt]:
    """Receipts of a source's shards, by name, in their order."""
    receipts = run_stage(_STAGE, work, shards, building, settings.engine)
    return {shard.name: receipt for shard, receipt in zip(shards, receipts, strict=True)}


def finish(building: Building, converted: Converted, max_reject_fraction: str, settings: NormalizeSettings) -> Content:
    """The source's Documents and rejects, and what the manifest says of them.

    Raises:
        InputError: too many rejects, NUL characters in more than 1 % of the documents, or no document at all.
    """
    receipts = list(converted.shards.values())
    counts = total_counts([*receipts, Receipt([], converted.uncounted)])
    prefix = "rejected/"
    rejected = sum(
        count
        for name, count in counts.items()
        if name.startswith(prefix) and name.removeprefix(prefix) not in converted.expected_rejects
    )
    shown = (one for one in read_rejects(building, receipts) if one.reason not in converted.expected_rejects)
    words = reject_words(converted.files)
    check_rejects(rejected, counts.get("rows", 0), max_reject_fraction, shown, building.target, words)
    published = publish(building, converted.shards, converted.derive_id, settings.engine, settings.zstd_level)
    counts = total_counts([*published, Receipt([], converted.uncounted)])
    check_documents(counts, building.target, f"look at the rejects, or correct the source in {THE_RECIPE}")
    pages = {"pages": counts["pages"]} if "pages" in counts else {}
    rejects = gather_rejects(building, receipts, published, settings.zstd_level)
    return Content(
        files=[*(receipt.files[0] for receipt in published), rejects],
        counts=document_counts(counts) | pages,
        decisions=converted.decisions,
    )
