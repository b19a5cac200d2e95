"""Decontaminates a corpus of several sources: their Document shards → those without items of evaluation sets, and a
line for each document that had some.

A document that holds enough of an item's n-grams goes, or the words that are the item's do. A build that was killed
goes on where it was.
"""

import functools
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.decontamination.evaluation_set import EvaluationSet
from pipeline_assets.corpus.decontamination.evidence import CONTAMINATED_FILE, ContaminatedLine
from pipeline_assets.corpus.decontamination.item_index import (
    IndexFiles,
    ItemIndex,
    Items,
    index_files,
    index_items,
    load_index,
    write_index,
)
from pipeline_assets.corpus.decontamination.ngrams import Found, Words, between, only, propose, verify, words_of
from pipeline_assets.corpus.decontamination.recipe import CutRecipe, DecontaminationRecipe
from pipeline_assets.corpus.dedup.corpus_shard import (
    CorpusShard,
    DocumentFields,
    corpus_shards,
    line_blocks,
    read_fields,
)
from pipeline_assets.corpus.dedup.words import NormalizedBatch, normalize
from pipeline_assets.corpus.document import with_text
from pipeline_assets.corpus.document_shards import REJECTS_FILE, SHARDS, gather_lines
from pipeline_assets.corpus.formats.jsonl_zst import SUFFIX, JsonlZstWriter, write_rows
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.engine import RunSettings, run_stage, settings_for
from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.spine.ledger import Ledger, Reject, count_rejects, dropped_key
from pipeline_assets.corpus.spine.sealing import WORK
from pipeline_assets.corpus.spine.staging import BuildFolder, Receipt, StagingDir, total_counts
from pipeline_assets.corpus.spine.target import BuildResult
from pipeline_assets.corpus.spine.worker import KILLED_WORKER, Window


class _Pairs(NamedTuple):
    """Documents and items of which they hold n-grams, sorted; how many different ones; int64."""

    documents: NDArray[np.int64]
    items: NDArray[np.int64]
    shared: NDArray[np.int64]


@dataclass(frozen=True)
class Contamination:
    """What is wrong with one document.

    Attributes:
        number: of the document in its batch.
        items: by which it is contaminated, ascending.
        shared: how many different n-grams of each it holds.
        best: the item of whose n-grams it holds most, as a fraction, the first of several; its place in `items`.
        first_word: at which an n-gram of that one begins first.
        is_removed: of each word, whether it has to go: those in n-grams of the items, and what the recipe cuts besides.
    """

    number: int
    items: NDArray[np.int64]
    shared: NDArray[np.int64]
    best: int
    first_word: int
    is_removed: NDArray[np.bool_]


def contaminations(batch: NormalizedBatch, index: ItemIndex, cut: CutRecipe | None) -> list[Contamination]:
    """The contaminated documents of a batch, in order."""
    found = propose(batch.word_hashes, batch.first_words, index.table)
    if not len(found.words):
        return []
    words = words_of(batch)
    pairs = _contaminated(verify(found, words, index.table), batch.first_words, index.items)
    bounds = batch.first_words.tolist()
    return [
        _contamination(number, between(words, bounds[number], bounds[number + 1]), index, cut)
        for number in np.unique(pairs.documents).tolist()
    ]


def _contamination(number: int, words: Words, index: ItemIndex, cut: CutRecipe | None) -> Contamination:
    found = _search(words, index)
    own = _contaminated(found, _as_one(words), index.items)
    best = int(np.argmax(own.shared / index.items.ngrams[own.items]))
    is_of_best = _are_of(found.ngrams, own.items[best : best + 1], index.items)
    is_removed = _removed(words, found, own.items, index, cut)
    return Contamination(number, own.items, own.shared, best, int(found.words[is_of_best][0]), is_removed)


def _removed(
    words: Words, found: Found, items: NDArray[np.int64], index: ItemIndex, cut: CutRecipe | None
) -> NDArray[np.bool_]:
    """Which words have to go.

    What stood on both sides of a cut stands side by side afterwards, and may make an n-gram there. So it is searched
    and cut again, until nothing of any item is found by which the text was contaminated at any time.
    """
    is_removed = np.zeros(len(words.hashes), bool)
    margin = 0 if cut is None else cut.margin_words
    while True:
        kept = np.flatnonzero(~is_removed)
        is_of_items = _are_of(found.ngrams, items, index.items)
        first, sizes = found.words[is_of_items], index.table.sizes[found.ngrams[is_of_items]]
        steps = np.zeros(len(kept) + 1, np.int64)
        np.add.at(steps, np.maximum(first - margin, 0), 1)
        np.add.at(steps, np.minimum(first + sizes + margin, len(kept)), -1)
        is_removed[kept[np.cumsum(steps[:-1]) > 0]] = True
        if cut is None or not len(first):
            return is_removed
        left = only(words, ~is_removed)
        found = _search(left, index)
        items = np.union1d(items, _contaminated(found, _as_one(left), index.items).items)


def _as_one(words: Words) -> NDArray[np.int64]:
    """The bounds of a batch of one document."""
    return np.array([0, len(words.hashes)], np.int64)


def _search(words: Words, index: ItemIndex) -> Found:
    return verify(propose(words.hashes, _as_one(words), index.table), words, index.table)


def _contaminated(found: Found, first_words: NDArray[np.int64], items: Items) -> _Pairs:
    """Documents that hold enough of items."""
    documents = np.searchsorted(first_words, found.words, side="right") - 1
    count = len(items.first_items) - 1
    documents, ngrams = np.divmod(np.unique(documents * count + found.ngrams), count)
    places, owners = _places(ngrams, items)
    pairs, shared = np.unique(documents[owners] * len(items.ngrams) + items.items[places], return_counts=True)
    documents, numbers = np.divmod(pairs, len(items.ngrams))
    is_enough = shared >= items.needed[numbers]
    return _Pairs(documents[is_enough], numbers[is_enough], shared[is_enough])


def _are_of(ngrams: NDArray[np.int64], wanted: NDArray[np.int64], items: Items) -> NDArray[np.bool_]:
    """Which n-grams one of the wanted items has."""
    places, owners = _places(ngrams, items)
    is_wanted = np.isin(items.items[places], wanted)
    return np.bincount(owners[is_wanted], minlength=len(ngrams)) > 0


def _places(ngrams: NDArray[np.int64], items: Items) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The places in `items.items` of all items of n-grams, and which of the n-grams each is of."""
    counts = items.first_items[ngrams + 1] - items.first_items[ngrams]
    owners = np.repeat(np.arange(len(ngrams)), counts)
    return items.first_items[ngrams][owners] + np.arange(len(owners)) - (np.cumsum(counts) - counts)[owners], owners


CONTAMINATED = f"{WORK}/contaminated"
REJECTS = f"{WORK}/rejects"
_EXCERPT_CHARACTERS = 160
_WORD = re.compile(r"\w+")  # the words of `dedup.words`
_encoder = msgspec.json.Encoder()


@dataclass(frozen=True)
class Decontamination:
    """What decides what becomes of documents: picklable, since the index is loaded where it is used.

    Attributes:
        sets: names of the evaluation sets, in the order of the index.
    """

    recipe: DecontaminationRecipe
    sets: tuple[str, ...]
    index: IndexFiles


class _Row(NamedTuple):
    """A line of the shard: its number, its bytes without the line feed, and what is read of it."""

    number: int
    line: bytes
    document: DocumentFields


@dataclass
class _Fates:
    """What becomes of the documents of a block."""

    kept: list[bytes] = field(default_factory=list)
    contaminated: list[ContaminatedLine] = field(default_factory=list)


def decontaminate_shard(
    shard: CorpusShard, window: Window, folder: BuildFolder, rules: Decontamination, zstd_level: int
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
    index = load_index(rules.index)
    kept_name, contaminated_name = f"{SHARDS}/{shard.name}{SUFFIX}", f"{CONTAMINATED}/{shard.name}{SUFFIX}"
    with (
        JsonlZstWriter(folder.path(kept_name), zstd_level) as kept,
        JsonlZstWriter(folder.path(contaminated_name), zstd_level) as contaminated,
    ):
        for lines in line_blocks(shard, window):
            rejects += [Reject(shard.path, row, KILLED_WORKER) for row, line in lines if line is None]
            rows = [_Row(row, line, read_fields(line, shard, row)) for row, line in lines if line is not None]
            fates = _decontaminate(rows, shard, rules, index, counts)
            counts["rows"] += len(lines)
            counts["documents"] += len(fates.kept)
            _write(kept, fates.kept)
            _write(contaminated, [_encoder.encode(line) for line in fates.contaminated])
    counts.update(count_rejects(rejects))
    rejects_name = f"{REJECTS}/{shard.name}{SUFFIX}"
    rejected = write_rows(folder.path(rejects_name), rejects_name, [reject.to_json() for reject in rejects], zstd_level)
    return Receipt([kept.output(kept_name), contaminated.output(contaminated_name), rejected], dict(counts))


def load_decontamination(rules: Decontamination) -> None:
    """Loads what `decontaminate_shard` keeps for the life of its process: the index, tables, and compiled code."""
    index = load_index(rules.index)
    table, first = index.table, int(index.table.first_words[0])
    ngram = table.text[table.begins[first] : table.begins[first + int(table.sizes[0])]]
    contaminations(normalize([ngram.tobytes()]), index, rules.recipe.cut)


def _decontaminate(
    rows: Sequence[_Row], shard: CorpusShard, rules: Decontamination, index: ItemIndex, counts: Counter[str]
) -> _Fates:
    texts = [row.document.text.encode() for row in rows]
    found = {one.number: one for one in contaminations(normalize(texts), index, rules.recipe.cut)}
    fates = _Fates()
    for number, (row, text) in enumerate(zip(rows, texts, strict=True)):
        if number not in found:
            fates.kept.append(row.line)
            counts["bytes"] += len(text)
            continue
        evidence = _evidence(row, found[number], shard, rules, index)
        fates.contaminated.append(evidence)
        counts.update(f"contaminated/{name}" for name in evidence.items)
        if evidence.action == "dropped":
            counts[dropped_key(evidence.reason)] += 1
            continue
        counts.update(f"cut_for/{name}" for name in evidence.items)
        left = _without(row.document.text, evidence.spans)
        fates.kept.append(with_text(row.line, left))
        size = len(left.encode())
        changes = {"changed": 1, "cut/words": int(found[number].is_removed.sum()), "cut/bytes": len(text) - size}
        counts.update({"bytes": size, **changes})
    return fates


def _evidence(
    row: _Row, found: Contamination, shard: CorpusShard, rules: Decontamination, index: ItemIndex
) -> ContaminatedLine:
    text, items, cut = row.document.text, index.items, rules.recipe.cut
    words = [match.span() for match in _WORD.finditer(text)]
    edges = np.flatnonzero(np.diff(np.concatenate(([False], found.is_removed, [False])).astype(np.int8))).tolist()
    spans = [(words[first][0], words[stop - 1][1]) for first, stop in zip(edges[::2], edges[1::2], strict=True)]
    start = words[found.first_word][0]
    end = next(end for _, end in spans if end > start)
    best, shared = int(found.items[found.best]), int(found.shared[found.best])
    name = int(items.first_names[best])
    few_left = cut is not None and np.count_nonzero(~found.is_removed) < cut.min_kept_words
    by_set = Counter(
        rules.sets[number]
        for item in found.items.tolist()
        for number in items.sets[items.first_names[item] : items.first_names[item + 1]].tolist()
    )
    return ContaminatedLine(
        doc_id=row.document.doc_id,
        action="dropped" if cut is None or few_left else "cut",
        reason="few_words_left" if few_left else "contaminated",
        evaluation_set=rules.sets[items.sets[name]],
        item=_id(name, index),
        overlap=shared / int(items.ngrams[best]),
        shared_ngrams=shared,
        item_ngrams=int(items.ngrams[best]),
        items={name: by_set[name] for name in rules.sets if name in by_set},
        spans=spans,
        excerpt=text[start : min(end, start + _EXCERPT_CHARACTERS)],
        source=shard.source,
        shard=shard.path,
        row=row.number,
    )


def _id(name: int, index: ItemIndex) -> str:
    start = int(index.items.id_ends[name - 1]) if name else 0
    return index.items.ids[start : int(index.items.id_ends[name])].tobytes().decode()


def _without(text: str, spans: Sequence[tuple[int, int]]) -> str:
    bounds = [0, *(edge for span in spans for edge in span), len(text)]
    return "".join(text[start:end] for start, end in list(pairwise(bounds))[::2])


def _write(writer: JsonlZstWriter, lines: Sequence[bytes]) -> None:
    if lines:
        writer.write_lines(b"\n".join([*lines, b""]), len(lines))


_STAGE, _INDEX = "decontaminate", "index"


def decontaminate_corpus(
    building: StagingDir,
    sources: Mapping[str, Artifact],
    evaluation: Sequence[EvaluationSet],
    recipe: DecontaminationRecipe,
    settings: RunSettings,
) -> BuildResult:
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
    work = functools.partial(decontaminate_shard, rules=rules, zstd_level=settings.zstd_level)
    warm_up = functools.partial(load_decontamination, rules)
    shards = corpus_shards(sources)
    settings = settings_for(building, settings, sum(shard.file.stat().st_size for shard in shards))
    receipts = list(run_stage(_STAGE, work, shards, building, settings, warm_up))
    counts = total_counts(receipts)
    if not counts.get("documents"):
        contaminated = Ledger.of(counts).all_dropped
        what = f"none of its {counts.get('rows', 0):,} documents is kept ({contaminated:,} are contaminated)"
        raise InputError(what, building.target, "leave an evaluation set out, or ask for more overlap")
    gathered = [
        gather_lines(building, [receipt.files[number] for receipt in receipts], name, settings.zstd_level)
        for number, name in ((1, CONTAMINATED_FILE), (2, REJECTS_FILE))
    ]
    return BuildResult(
        files=[*(receipt.files[0] for receipt in receipts), *gathered],
        counts=_manifest_counts(counts, _by_source(shards, receipts), prepared),
        decisions={},
    )


def _prepared(building: StagingDir, evaluation: Sequence[EvaluationSet], recipe: DecontaminationRecipe) -> Receipt:
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


def _by_source(shards: Sequence[CorpusShard], receipts: Sequence[Receipt]) -> dict[str, dict[str, int]]:
    by_source: dict[str, dict[str, int]] = {}
    for source in dict.fromkeys(shard.source for shard in shards):
        own = (receipt for shard, receipt in zip(shards, receipts, strict=True) if shard.source == source)
        counts = total_counts(own)
        by_source[source] = {
            "in": counts["rows"],
            "out": counts["documents"],
            "dropped": Ledger.of(counts).all_dropped,
            "rejected": Ledger.of(counts).all_rejected,
            "cut": counts["changed"],
            "text_bytes": counts["bytes"],
            "shards": sum(shard.source == source for shard in shards),
        }
    return by_source


def _manifest_counts(
    counts: Mapping[str, int], by_source: Mapping[str, Mapping[str, int]], prepared: Receipt
) -> dict[str, Any]:
    return {
        "ledger": Ledger.of(counts).to_json(),
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
