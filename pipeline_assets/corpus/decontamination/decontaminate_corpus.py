"""Decontaminates a corpus: Document shards → those without items of evaluation sets, and a line for each that had some.

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
from pipeline_assets.corpus.decontamination.evaluation_set import EvaluationSet, hashed
from pipeline_assets.corpus.decontamination.evidence import CONTAMINATED_FILE
from pipeline_assets.corpus.decontamination.index_file import index_files, write_index
from pipeline_assets.corpus.decontamination.item_index import index_items
from pipeline_assets.corpus.decontamination.recipe import DecontaminationRecipe
from pipeline_assets.corpus.dedup.corpus_shard import CorpusShard
from pipeline_assets.corpus.document_shards.gathered import gather_lines
from pipeline_assets.corpus.document_shards.ledger import ledger
from pipeline_assets.corpus.document_shards.publish import REJECTS_FILE, SHARDS, shard_rows
from pipeline_assets.corpus.formats.jsonl_zst import SUFFIX
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.building import Building, Receipt, total_counts
from pipeline_assets.corpus.spine.engine import EngineSettings, run_stage
from pipeline_assets.corpus.spine.errors import InputError, Obstacle, UsageError
from pipeline_assets.corpus.spine.target import Content

_STAGE, _INDEX = "decontaminate", "index"


def decontaminate_corpus(
    building: Building,
    corpus: Artifact,
    evaluation: Sequence[EvaluationSet],
    recipe: DecontaminationRecipe,
    engine: EngineSettings,
    zstd_level: int,
) -> Content:
    """The documents of a corpus, shard by shard under the same names, without those that are contaminated or what they
    hold of items. Inputs from outside: every evaluation file, by its hash.

    Raises:
        UsageError: no set, or two of one name; a file or column that isn't there, or a column without text.
        InputError: an evaluation file that can't be read, a set without items or whose items are all too short; nothing
            of the corpus is kept; a line that is no Document.
    """
    inputs = _hashed(evaluation)
    prepared = _prepared(building, evaluation, recipe, inputs)
    files = index_files(building, list(prepared.files))
    rules = Decontamination(recipe, tuple(one.name for one in evaluation), files)
    work = functools.partial(decontaminate_shard, rules=rules, zstd_level=zstd_level)
    warm_up = functools.partial(load_decontamination, rules)
    receipts = list(run_stage(_STAGE, work, _shards(corpus), building, engine, warm_up))
    counts = total_counts(receipts)
    if not counts.get("documents"):
        dropped = sum(count for name, count in counts.items() if name.startswith("dropped/"))
        what = f"none of its {counts.get('rows', 0):,} documents is kept ({dropped:,} are contaminated)"
        raise InputError(what, corpus.manifest.name, "leave an evaluation set out, or ask for more overlap")
    gathered = [
        gather_lines(building, [receipt.files[number] for receipt in receipts], name, zstd_level)
        for number, name in ((1, CONTAMINATED_FILE), (2, REJECTS_FILE))
    ]
    return Content(
        files=[*(receipt.files[0] for receipt in receipts), *gathered],
        counts=_manifest_counts(counts, prepared),
        decisions={},
        outside=inputs,
    )


def _hashed(evaluation: Sequence[EvaluationSet]) -> list[dict[str, object]]:
    names = [one.name for one in evaluation]
    if not names:
        raise UsageError("there are no evaluation sets", "evaluation", "give one, or don't decontaminate")
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"there are two sets `{name}`", "evaluation", "give each a name of its own")
    return [entry for one in evaluation for entry in hashed(one)]


def _prepared(
    building: Building, evaluation: Sequence[EvaluationSet], recipe: DecontaminationRecipe, inputs: Sequence[Any]
) -> Receipt:
    """The index: its files; counts of n-grams; notes: `inputs` that it was made from, counts by `evaluation` set."""
    receipt = building.receipt(_INDEX, "items")
    if receipt is None:
        indexed = index_items(evaluation, recipe)
        if _hashed(evaluation) != inputs:
            raise Obstacle("evaluation files changed while they were read", building.target, "run again")
        counts = {"ngrams": indexed.ngrams, "common_ngrams": indexed.common_ngrams}
        notes = {"inputs": inputs, "evaluation": {name: dict(of) for name, of in indexed.counts.items()}}
        receipt = Receipt(write_index(indexed.index, building), counts, notes)
        building.commit(_INDEX, "items", receipt)
    if receipt.notes["inputs"] != inputs:
        fix = "give back the files, or remove that folder and run again"
        raise Obstacle("the evaluation files are not those that this build began with", building.folder, fix)
    return receipt


def _shards(corpus: Artifact) -> list[CorpusShard]:
    shards = []
    first = 0
    for path, rows in shard_rows(corpus).items():
        name = path.removeprefix(f"{SHARDS}/").removesuffix(SUFFIX)
        shards.append(CorpusShard(name, corpus.manifest.name, 0, path, corpus.path(path), rows, first))
        first += rows
    return shards


def _manifest_counts(counts: Mapping[str, int], prepared: Receipt) -> dict[str, Any]:
    return {
        "ledger": ledger(counts),
        "documents": counts["documents"],
        "text_bytes": counts["bytes"],
        "changed_documents": counts["changed"],
        "changes": {name: count for name, count in counts.items() if name.startswith("cut/")},
        "evaluation": {
            name: {**of_items, "contaminated_documents": counts.get(f"contaminated/{name}", 0)}
            for name, of_items in prepared.notes["evaluation"].items()
        },
        **prepared.counts,
    }
