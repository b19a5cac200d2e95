"""Decontaminates a corpus of several sources: their Document shards → those without items of evaluation sets, and a
line for each document that had some.

A document that holds enough of an item's n-grams goes, or the words that are the item's do. A build that was killed
goes on where it was.
"""

import functools
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np

from pipeline_assets.corpus.converted_shards import REJECTS, gather_lines
from pipeline_assets.corpus.corpus_shard import CorpusShard, add_by_source, corpus_shards
from pipeline_assets.corpus.decontamination import item_index
from pipeline_assets.corpus.decontamination.recipe import (
    CONTAMINATED_FILE,
    ContaminatedLine,
    DecontaminationRecipe,
    EvaluationSet,
)
from pipeline_assets.corpus.dedup.words import normalize
from pipeline_assets.corpus.document import RAW_DOCUMENTS, RawDocument, with_text
from pipeline_assets.corpus.document_shards import REJECTS_FILE, SHARDS, Line, decode, read_lines
from pipeline_assets.corpus.formats.jsonl_zst import SUFFIX, JsonlZstWriter, write_rows
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.engine import RunSettings, limit_workers, run_stage
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.ledger import Ledger, Reject, count_rejects, dropped_key
from pipeline_assets.spine.stage import KILLED_WORKER, Window
from pipeline_assets.spine.staging import WORK, Receipt, StagingDir, StagingView, total_counts

CONTAMINATED = f"{WORK}/contaminated"
_EXCERPT_CHARACTERS = 160
_WORD = re.compile(r"\w+")  # the words of `dedup.words`
_encoder = msgspec.json.Encoder()


@dataclass(frozen=True)
class Decontamination:
    """What decides what becomes of documents: picklable, since the index is loaded where it is used.

    Attributes:
        sets: names of the evaluation sets, in the order of the index.
        building, digests: of the index, as `load_index` takes them.
    """

    recipe: DecontaminationRecipe
    sets: tuple[str, ...]
    building: Path
    digests: tuple[str, ...]


def decontaminate_shard(
    shard: CorpusShard, window: Window, folder: StagingView, rules: Decontamination, zstd_level: int
) -> Receipt:
    """The shard's documents, in order; one that isn't contaminated keeps its bytes.

    Files, in this order: the documents; a `ContaminatedLine` for each that was dropped or cut, in order; rejects.
    Counts: `rows` read, `documents` and `bytes` of text kept, `changed` documents, `cut/words` and `cut/bytes` out of
    those, `dropped/<reason>`, `contaminated/<evaluation set>` documents and of them `cut_for/<evaluation set>`,
    `rejected/<reason>`.

    Raises:
        InputError: a line that is no Document.
    """
    counts = Counter({"rows": 0, "documents": 0, "bytes": 0, "changed": 0})
    rejects: list[Reject] = []
    index = item_index.load_index(rules.building, rules.digests)
    kept_name, contaminated_name = f"{SHARDS}/{shard.name}{SUFFIX}", f"{CONTAMINATED}/{shard.name}{SUFFIX}"
    with (
        JsonlZstWriter(folder.path(kept_name), zstd_level) as kept,
        JsonlZstWriter(folder.path(contaminated_name), zstd_level) as contaminated,
    ):
        for lines, fatal in read_lines(shard, window):
            counts["rows"] += len(lines) + len(fatal)
            rejects += [Reject(shard.path, row, KILLED_WORKER) for row in fatal]
            left, evidence = _decontaminated(lines, shard, rules, index, counts)
            counts["documents"] += len(left)
            kept.write_lines(b"".join(line + b"\n" for line in left), len(left))
            contaminated.write_lines(_encoder.encode_lines(evidence), len(evidence))
    counts.update(count_rejects(rejects))
    rejects_name = f"{REJECTS}/{shard.name}{SUFFIX}"
    rejected = write_rows(folder.path(rejects_name), rejects_name, [reject.to_json() for reject in rejects], zstd_level)
    return Receipt([kept.output(kept_name), contaminated.output(contaminated_name), rejected], dict(counts))


def load_decontamination(rules: Decontamination) -> None:
    """Loads what `decontaminate_shard` keeps for the life of its process: the index, tables, and compiled code."""
    index = item_index.load_index(rules.building, rules.digests)
    table, first = index.table, int(index.table.first_words[0])
    ngram = table.text[table.begins[first] : table.begins[first + int(table.sizes[0])]]
    item_index.contaminations(normalize([ngram.tobytes()]), index, rules.recipe.cut)


def _decontaminated(
    lines: Sequence[Line],
    shard: CorpusShard,
    rules: Decontamination,
    index: item_index.ItemIndex,
    counts: Counter[str],
) -> tuple[list[bytes], list[ContaminatedLine]]:
    """Of a block, the lines of documents that stay, and what is said of the contaminated ones."""
    kept: list[bytes] = []
    contaminated: list[ContaminatedLine] = []
    documents = decode(lines, shard, RAW_DOCUMENTS)
    texts = [document.text.encode() for document in documents]
    found = {one.number: one for one in item_index.contaminations(normalize(texts), index, rules.recipe.cut)}
    for number, ((row, line), document, text) in enumerate(zip(lines, documents, texts, strict=True)):
        if number not in found:
            kept.append(line)
            counts["bytes"] += len(text)
            continue
        evidence = _evidence(row, document, found[number], shard, rules, index)
        contaminated.append(evidence)
        counts.update(f"contaminated/{name}" for name in evidence.items)
        if evidence.action == "dropped":
            counts[dropped_key(evidence.reason)] += 1
            continue
        counts.update(f"cut_for/{name}" for name in evidence.items)
        left = _without(document.text, evidence.spans)
        kept.append(with_text(document, left))
        size = len(left.encode())
        changes = {"changed": 1, "cut/words": int(found[number].is_removed.sum()), "cut/bytes": len(text) - size}
        counts.update({"bytes": size, **changes})
    return kept, contaminated


def _evidence(
    row: int,
    document: RawDocument,
    found: item_index.Contamination,
    shard: CorpusShard,
    rules: Decontamination,
    index: item_index.ItemIndex,
) -> ContaminatedLine:
    text, items, cut = document.text, index.items, rules.recipe.cut
    words = [match.span() for match in _WORD.finditer(text)]
    edges = np.flatnonzero(np.diff(np.concatenate(([False], found.is_removed, [False])).astype(np.int8))).tolist()
    spans = [(words[first][0], words[stop - 1][1]) for first, stop in zip(edges[::2], edges[1::2], strict=True)]
    start = words[found.first_word][0]
    end = next(end for _, end in spans if end > start)
    name, item_ngrams = int(items.first_names[found.best]), int(items.ngrams[found.best])
    id_start = int(items.id_ends[name - 1]) if name else 0
    few_left = cut is not None and np.count_nonzero(~found.is_removed) < cut.min_kept_words
    by_set = Counter(
        rules.sets[number]
        for item in found.items.tolist()
        for number in items.sets[items.first_names[item] : items.first_names[item + 1]].tolist()
    )
    return ContaminatedLine(
        doc_id=document.doc_id,
        action="dropped" if cut is None or few_left else "cut",
        reason="few_words_left" if few_left else "contaminated",
        evaluation_set=rules.sets[items.sets[name]],
        item=items.ids[id_start : int(items.id_ends[name])].tobytes().decode(),
        overlap=found.shared / item_ngrams,
        shared_ngrams=found.shared,
        item_ngrams=item_ngrams,
        items={name: by_set[name] for name in rules.sets if name in by_set},
        spans=spans,
        excerpt=text[start : min(end, start + _EXCERPT_CHARACTERS)],
        source=shard.source,
        shard=shard.path,
        row=row,
    )


def _without(text: str, spans: Sequence[tuple[int, int]]) -> str:
    bounds = [0, *(edge for span in spans for edge in span), len(text)]
    return "".join(text[start:end] for start, end in list(pairwise(bounds))[::2])


_STAGE, _INDEX = "decontaminate", "index"


def decontaminate_corpus(
    building: StagingDir,
    sources: Mapping[str, Artifact],
    evaluation: Sequence[EvaluationSet],
    recipe: DecontaminationRecipe,
    settings: RunSettings,
    may_be_empty: bool = False,
) -> BuildResult:
    """Files: the documents of all sources, a shard of each shard, without those that are contaminated or what they hold
    of items; `contaminated.jsonl.zst`, a line for each of these, in order; rejects.

    Args:
        sources: corpora by source; a deduplicated one holds several, which the names of its shards tell.
        evaluation: at least one set, no two of one name.
        may_be_empty: whether it is no error that no document is kept.
    Raises:
        UsageError: a column that isn't there, or holds no text.
        InputError: an evaluation file that is not as it was, or can't be read, a set without items or whose items are
            all too short; nothing of the corpus is kept; a line that is no Document.
    """
    prepared = _prepared(building, evaluation, recipe)
    names, digests = tuple(one.name for one in evaluation), tuple(file.sha256 for file in prepared.files)
    rules = Decontamination(recipe, names, building.folder, digests)
    work = functools.partial(decontaminate_shard, rules=rules, zstd_level=settings.zstd_level)
    warm_up = functools.partial(load_decontamination, rules)
    shards = corpus_shards(sources)
    settings = limit_workers(building, settings, [shard.file.stat().st_size for shard in shards])
    receipts = list(run_stage(_STAGE, work, shards, building, settings, warm_up))
    counts = total_counts(receipts)
    ledger = Ledger.from_counts(counts)
    if not ledger.out and not may_be_empty:
        what = f"none of its {ledger.rows_in:,} documents is kept ({ledger.total_dropped:,} are contaminated)"
        raise InputError(what, building.target, "leave an evaluation set out, or ask for more overlap")
    gathered = [
        gather_lines(building, [receipt.files[number] for receipt in receipts], name, settings.zstd_level)
        for number, name in ((1, CONTAMINATED_FILE), (2, REJECTS_FILE))
    ]
    told = {
        "ledger": ledger.to_json(),
        "documents": ledger.out,
        "text_bytes": counts["bytes"],
        "changed_documents": counts["changed"],
        "changes": {name: count for name, count in counts.items() if name.startswith("cut/")},
        "by_source": add_by_source(shards, (_decontaminate_source(receipt.counts) for receipt in receipts)),
        "evaluation": {
            name: of_items | _decontaminate_documents(name, counts)
            for name, of_items in prepared.notes["evaluation"].items()
        },
        **prepared.counts,
    }
    return BuildResult([*(receipt.files[0] for receipt in receipts), *gathered], told, {})


def _prepared(building: StagingDir, evaluation: Sequence[EvaluationSet], recipe: DecontaminationRecipe) -> Receipt:
    """The receipt of the index, which is made unless it is there."""
    receipt = building.receipt(_INDEX, "items")
    if receipt is None:
        receipt = item_index.write_index(evaluation, recipe, building)
        for one in evaluation:
            one.files()  # else they were written to while they were read
        building.commit(_INDEX, "items", receipt)
    return receipt


def _decontaminate_source(counts: Mapping[str, int]) -> dict[str, int]:
    ledger = Ledger.from_counts(counts)
    return {
        "in": ledger.rows_in,
        "out": ledger.out,
        "dropped": ledger.total_dropped,
        "rejected": ledger.total_rejected,
        "cut": counts["changed"],
        "text_bytes": counts["bytes"],
        "shards": 1,
    }


def _decontaminate_documents(evaluation_set: str, counts: Mapping[str, int]) -> dict[str, int]:
    contaminated, cut = (counts.get(f"{what}/{evaluation_set}", 0) for what in ("contaminated", "cut_for"))
    return {"contaminated_documents": contaminated, "dropped_documents": contaminated - cut, "cut_documents": cut}
