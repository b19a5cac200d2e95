"""Filters a corpus: Document shards → those that are kept, and a line for each document that is not."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pipeline_assets.corpus.document_shards import REJECTS_FILE, SHARDS, gather_lines, ledger
from pipeline_assets.corpus.filters.dropped import DROPPED_FILE
from pipeline_assets.corpus.filters.filter_shard import FilterShard, filter_shard, load_filters
from pipeline_assets.corpus.filters.recipe import FilterRecipe
from pipeline_assets.corpus.formats.jsonl_zst import SUFFIX
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.building import Building, total_counts
from pipeline_assets.corpus.spine.engine import EngineSettings, run_stage
from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.spine.target import Content

_CHANGES = ("masked/", "removed/", "removed_lines/")


@dataclass(frozen=True)
class CorpusFilter:
    """What decides which documents are kept."""

    filters: FilterRecipe
    refused_licences: frozenset[str]


def filter_corpus(
    building: Building, corpus: Artifact, rules: CorpusFilter, engine: EngineSettings, zstd_level: int
) -> Content:
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
        filter_shard, recipe=rules.filters, zstd_level=zstd_level, refused_licences=rules.refused_licences
    )
    warm_up = functools.partial(load_filters, rules.filters)
    receipts = list(run_stage("filter", work, shards, building, engine, warm_up))
    counts = total_counts(receipts)
    if not counts.get("documents"):
        raise InputError(_nothing_left(counts), corpus.manifest.name, "loosen its filters, or leave the source out")
    dropped = gather_lines(building, [receipt.files[1] for receipt in receipts], DROPPED_FILE, zstd_level)
    rejects = gather_lines(building, [receipt.files[2] for receipt in receipts], REJECTS_FILE, zstd_level)
    return Content(
        files=[*(receipt.files[0] for receipt in receipts), dropped, rejects],
        counts=_manifest_counts(counts),
        decisions={},
    )


def _manifest_counts(counts: Mapping[str, int]) -> dict[str, Any]:
    return {
        "ledger": ledger(counts),
        "documents": counts["documents"],
        "text_bytes": counts["bytes"],
        "changed_documents": counts.get("changed", 0),
        "changes": {name: count for name, count in counts.items() if name.startswith(_CHANGES)},
    }


def _nothing_left(counts: Mapping[str, int]) -> str:
    prefix = "dropped/"
    reasons = sorted(
        ((count, name.removeprefix(prefix)) for name, count in counts.items() if name.startswith(prefix)), reverse=True
    )
    words = ", ".join(f"{count:,} {reason}" for count, reason in reasons[:5])
    return f"none of its {counts.get('rows', 0):,} documents is kept ({words or 'it is empty'})"
