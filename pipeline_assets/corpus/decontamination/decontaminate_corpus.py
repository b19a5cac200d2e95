"""Decontaminates a corpus of several sources: their Document shards → those without items of evaluation sets, and a
line for each document that had some.

A build that was killed goes on where it was.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from pipeline_assets.corpus.decontamination.decontaminate_shard import (
    Decontamination,
    decontaminate_shard,
    load_decontamination,
)
from pipeline_assets.corpus.decontamination.evaluation_set import EvaluationSet
from pipeline_assets.corpus.decontamination.evidence import CONTAMINATED_FILE
from pipeline_assets.corpus.decontamination.index_file import index_files, write_index
from pipeline_assets.corpus.decontamination.item_index import index_items
from pipeline_assets.corpus.decontamination.recipe import DecontaminationRecipe
from pipeline_assets.corpus.dedup.corpus_shard import CorpusShard, corpus_shards
from pipeline_assets.corpus.document_shards.gathered import gather_lines
from pipeline_assets.corpus.document_shards.ledger import ledger
from pipeline_assets.corpus.document_shards.publish import REJECTS_FILE
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.building import Building, Receipt, total_counts
from pipeline_assets.corpus.spine.engine import EngineSettings, run_stage, settings_for
from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.spine.target import Content

_STAGE, _INDEX = "decontaminate", "index"


def decontaminate_corpus(
    building: Building,
    sources: Mapping[str, Artifact],
    evaluation: Sequence[EvaluationSet],
    recipe: DecontaminationRecipe,
    engine: EngineSettings,
    zstd_level: int,
) -> Content:
    """Files: the documents of all sources, a shard of each shard, without those that are contaminated or what they hold
    of items; `contaminated.jsonl.zst`, a line for each of these, in order; rejects.

    Args:
        sources: corpora by source; a deduplicated one holds several, which the names of its shards tell.
        evaluation: at least one set, no two of one name.
    Raises:
        UsageError: a column that isn't there, or holds no text.
        InputError: an evaluation file that is not as it was, or can't be read, a set without items or whose items are
            all too short; nothing of the corpus is kept; a line that is no Document.
    """
    prepared = _prepared(building, evaluation, recipe)
    files = index_files(building, list(prepared.files))
    rules = Decontamination(recipe, tuple(one.name for one in evaluation), files)
    work = functools.partial(decontaminate_shard, rules=rules, zstd_level=zstd_level)
    warm_up = functools.partial(load_decontamination, rules)
    shards = corpus_shards(sources)
    engine = settings_for(building, engine, sum(shard.file.stat().st_size for shard in shards))
    receipts = list(run_stage(_STAGE, work, shards, building, engine, warm_up))
    counts = total_counts(receipts)
    if not counts.get("documents"):
        contaminated = _sum("dropped/", counts)
        what = f"none of its {counts.get('rows', 0):,} documents is kept ({contaminated:,} are contaminated)"
        raise InputError(what, building.target, "leave an evaluation set out, or ask for more overlap")
    gathered = [
        gather_lines(building, [receipt.files[number] for receipt in receipts], name, zstd_level)
        for number, name in ((1, CONTAMINATED_FILE), (2, REJECTS_FILE))
    ]
    return Content(
        files=[*(receipt.files[0] for receipt in receipts), *gathered],
        counts=_manifest_counts(counts, _by_source(shards, receipts), prepared),
        decisions={},
    )


def _prepared(building: Building, evaluation: Sequence[EvaluationSet], recipe: DecontaminationRecipe) -> Receipt:
    """The index: its files; counts of n-grams; notes: counts by `evaluation` set."""
    receipt = building.receipt(_INDEX, "items")
    if receipt is None:
        indexed = index_items(evaluation, recipe)
        for one in evaluation:
            one.files()  # else they were written to while they were read
        counts = {"ngrams": indexed.ngrams, "common_ngrams": indexed.common_ngrams}
        notes = {"evaluation": {name: dict(of) for name, of in indexed.counts.items()}}
        receipt = Receipt(write_index(indexed.index, building), counts, notes)
        building.commit(_INDEX, "items", receipt)
    return receipt


def _sum(prefix: str, counts: Mapping[str, int]) -> int:
    return sum(count for name, count in counts.items() if name.startswith(prefix))


def _by_source(shards: Sequence[CorpusShard], receipts: Sequence[Receipt]) -> dict[str, dict[str, int]]:
    by_source: dict[str, dict[str, int]] = {}
    for source in dict.fromkeys(shard.source for shard in shards):
        own = (receipt for shard, receipt in zip(shards, receipts, strict=True) if shard.source == source)
        counts = total_counts(own)
        by_source[source] = {
            "in": counts["rows"],
            "out": counts["documents"],
            "dropped": _sum("dropped/", counts),
            "rejected": _sum("rejected/", counts),
            "cut": counts["changed"],
            "text_bytes": counts["bytes"],
            "shards": sum(shard.source == source for shard in shards),
        }
    return by_source


def _manifest_counts(
    counts: Mapping[str, int], by_source: Mapping[str, Mapping[str, int]], prepared: Receipt
) -> dict[str, Any]:
    return {
        "ledger": ledger(counts),
        "documents": counts["documents"],
        "text_bytes": counts["bytes"],
        "changed_documents": counts["changed"],
        "changes": {name: count for name, count in counts.items() if name.startswith("cut/")},
        "by_source": by_source,
        "evaluation": {
            name: of_items | _of_documents(name, counts) for name, of_items in prepared.notes["evaluation"].items()
        },
        **prepared.counts,
    }


def _of_documents(evaluation_set: str, counts: Mapping[str, int]) -> dict[str, int]:
    contaminated, cut = (counts.get(f"{what}/{evaluation_set}", 0) for what in ("contaminated", "cut_for"))
    return {"contaminated_documents": contaminated, "dropped_documents": contaminated - cut, "cut_documents": cut}
