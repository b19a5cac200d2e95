"""Decontamination of a corpus by dropping or cutting contaminated documents.

A document is contaminated if it contains enough n-grams of an evaluation item; `recipe` has the rules.
"""

import functools
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np

from pipeline_assets.corpus.converted_shards import REJECTS_FOLDER, concatenate_lines
from pipeline_assets.corpus.corpus_shard import CorpusShard, corpus_shards, sum_by_source
from pipeline_assets.corpus.decontamination import item_index
from pipeline_assets.corpus.decontamination.contamination import Contamination, find_contaminations
from pipeline_assets.corpus.decontamination.recipe import (
    CONTAMINATED_FILE,
    ContaminatedLine,
    DecontaminationRecipe,
    EvaluationSet,
)
from pipeline_assets.corpus.dedup.words import normalize
from pipeline_assets.corpus.document_lines import Line, decode_lines, read_lines
from pipeline_assets.corpus.document_shards import REJECTS_FILE, SHARDS_FOLDER
from pipeline_assets.corpus.formats.jsonl_zst import SUFFIX, JsonlZstWriter, write_rows
from pipeline_assets.corpus.partial_documents import RAW_DECODER, RawDocument, encode_with_text
from pipeline_assets.corpus.sealed_shards import link_if_equal
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.engine import RunSettings, limit_workers, run_stage
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.ledger import Ledger, count_rejects, dropped_key
from pipeline_assets.spine.rejects import Reject
from pipeline_assets.spine.stage import KILLED_WORKER, Window
from pipeline_assets.spine.staged_input import NOT_DIGESTED
from pipeline_assets.spine.staging import WORK_FOLDER, Receipt, StagingDir, StagingView, total_counts

_CONTAMINATED_FOLDER = f"{WORK_FOLDER}/contaminated"
_EXCERPT_CHARACTERS = 160
_STAGE, _INDEX_STAGE = "decontaminate", "index"
_WORD = re.compile(r"\w+")  # a word in the sense of `dedup.words`


@dataclass(frozen=True)
class DecontaminationRules:
    """Rules and index of a decontamination, for worker processes."""

    recipe: DecontaminationRecipe
    set_names: tuple[str, ...]  # of the evaluation sets, in the order of the index
    index_folder: Path = field(metadata=NOT_DIGESTED)
    index_digests: tuple[str, ...]  # hashes of the files of the index

    @property
    def index(self) -> item_index.ItemIndex:
        """Index of the items, which each process loads once."""
        return item_index.load_index(self.index_folder, self.index_digests)


def decontaminate_shard(
    shard: CorpusShard, window: Window, folder: StagingView, rules: DecontaminationRules, zstd_level: int
) -> Receipt:
    """Drop or cut the contaminated documents of one shard; copy the others unchanged.

    The files are the kept documents, in order (a link to the input shard if all are unchanged); a `ContaminatedLine`
    for each dropped or cut document, in order; and the rejects, which are poison rows.

    The receipt counts all rows as `rows`, kept documents as `documents` and their text as `bytes`. Cut documents count
    as `changed`, and the removed text as `cut/words` and `cut/bytes`. Other counts are `dropped/<reason>` and
    `rejected/<reason>`. `contaminated/<set>` counts the documents that contain items of a set; `cut_for/<set>` counts
    only the cut documents among these.
    """
    counts = Counter({"rows": 0, "documents": 0, "bytes": 0, "changed": 0})
    rejects: list[Reject] = []
    name = f"{shard.name}{SUFFIX}"
    kept_name, contaminated_name = f"{SHARDS_FOLDER}/{name}", f"{_CONTAMINATED_FOLDER}/{name}"
    with (
        JsonlZstWriter(folder.path(kept_name), zstd_level) as kept,
        JsonlZstWriter(folder.path(contaminated_name), zstd_level) as contaminated,
    ):
        for lines, poison_rows in read_lines(shard, window):
            counts["rows"] += len(lines) + len(poison_rows)
            rejects += [Reject(shard.path, row, KILLED_WORKER) for row in poison_rows]
            kept_lines, evidence = _decontaminate_block(lines, shard, rules, counts)
            counts["documents"] += len(kept_lines)
            kept.write_lines(b"".join(line + b"\n" for line in kept_lines), len(kept_lines))
            contaminated.write_rows(evidence)
    counts.update(count_rejects(rejects))
    rejects_name = f"{REJECTS_FOLDER}/{shard.name}{SUFFIX}"
    rejected = write_rows(folder.path(rejects_name), rejects_name, [reject.to_json() for reject in rejects], zstd_level)
    kept_file = link_if_equal(kept.output(kept_name), shard, folder)
    return Receipt([kept_file, contaminated.output(contaminated_name), rejected], dict(counts))


def load_decontamination(rules: DecontaminationRules) -> None:
    """Load the index and compiled code of `decontaminate_shard` into this process."""
    table, first = rules.index.table, int(rules.index.table.first_words[0])
    ngram = table.text[table.begins[first] : table.begins[first + int(table.sizes[0])]]
    find_contaminations(normalize([ngram.tobytes()]), rules.index, rules.recipe.cut)


def _decontaminate_block(
    lines: Sequence[Line], shard: CorpusShard, rules: DecontaminationRules, counts: Counter[str]
) -> tuple[list[bytes], list[ContaminatedLine]]:
    """Return the lines of kept documents, and the evidence on contaminated ones.

    Counts of these documents are added to `counts`, under the keys in the docstring of `decontaminate_shard`.
    """
    kept: list[bytes] = []
    contaminated: list[ContaminatedLine] = []
    documents = decode_lines(lines, shard, RAW_DECODER)
    texts = [document.text.encode() for document in documents]
    found = find_contaminations(normalize(texts), rules.index, rules.recipe.cut)
    contaminations = {contamination.document_index: contamination for contamination in found}
    for number, ((row, line), document, text) in enumerate(zip(lines, documents, texts, strict=True)):
        if number not in contaminations:
            kept.append(line)
            counts["bytes"] += len(text)
            continue
        evidence = _describe_contamination(row, document, contaminations[number], shard, rules)
        contaminated.append(evidence)
        counts.update(f"contaminated/{name}" for name in evidence.items)
        if evidence.action == "dropped":
            counts[dropped_key(evidence.reason)] += 1
            continue
        counts.update(f"cut_for/{name}" for name in evidence.items)
        remaining = _cut_spans(document.text, evidence.spans)
        kept.append(encode_with_text(document, remaining))
        size = len(remaining.encode())
        cut_words = int(contaminations[number].is_removed.sum())
        counts.update({"bytes": size, "changed": 1, "cut/words": cut_words, "cut/bytes": len(text) - size})
    return kept, contaminated


def _describe_contamination(
    row: int, document: RawDocument, contamination: Contamination, shard: CorpusShard, rules: DecontaminationRules
) -> ContaminatedLine:
    text, items, cut = document.text, rules.index.items, rules.recipe.cut
    words = [match.span() for match in _WORD.finditer(text)]
    # The mask, framed by False, changes at the start and after the end of each removed sequence, in turn.
    is_removed = np.concatenate(([False], contamination.is_removed, [False]))
    edges = np.flatnonzero(np.diff(is_removed.astype(np.int8))).tolist()
    spans = [(words[first][0], words[stop - 1][1]) for first, stop in zip(edges[::2], edges[1::2], strict=True)]
    start = words[contamination.first_word][0]
    end = next(end for _, end in spans if end > start)
    name, item_ngrams = int(items.first_names[contamination.best_item]), int(items.ngrams[contamination.best_item])
    id_start = int(items.id_ends[name - 1]) if name else 0
    few_left = cut is not None and np.count_nonzero(~contamination.is_removed) < cut.min_kept_words
    by_set = Counter(
        rules.set_names[number]
        for item in contamination.item_numbers.tolist()
        for number in items.sets[items.first_names[item] : items.first_names[item + 1]].tolist()
    )
    return ContaminatedLine(
        doc_id=document.doc_id,
        action="dropped" if cut is None or few_left else "cut",
        reason="few_words_left" if few_left else "contaminated",
        evaluation_set=rules.set_names[items.sets[name]],
        item=items.ids[id_start : int(items.id_ends[name])].tobytes().decode(),
        overlap=contamination.shared_ngrams / item_ngrams,
        shared_ngrams=contamination.shared_ngrams,
        item_ngrams=item_ngrams,
        items={name: by_set[name] for name in rules.set_names if name in by_set},
        spans=spans,
        excerpt=text[start : min(end, start + _EXCERPT_CHARACTERS)],
        source=shard.source,
        shard=shard.path,
        row=row,
    )


def _cut_spans(text: str, spans: Sequence[tuple[int, int]]) -> str:
    bounds = [0, *(edge for span in spans for edge in span), len(text)]
    return "".join(text[start:end] for start, end in list(pairwise(bounds))[::2])


def decontaminate_corpus(
    staging: StagingDir,
    sources: Mapping[str, Artifact],
    evaluation_sets: Sequence[EvaluationSet],
    recipe: DecontaminationRecipe,
    settings: RunSettings,
    may_be_empty: bool = False,
) -> BuildResult:
    """Drop or cut the documents that contain items of evaluation sets.

    `evaluation_sets` must not be empty. The files are the kept documents, a shard for each input shard;
    `contaminated.jsonl.zst`, a line for each document that was dropped or cut, in order; and rejects.

    Raises:
        UsageError: A column of an evaluation set is missing, or has values other than text.
        InputError: An evaluation file has changed or cannot be read; a set has no items, or all are too short; every
            n-gram is in too many items; all documents are dropped, unless `may_be_empty`; a line is not a Document.
    """
    prepared = _prepare_index(staging, evaluation_sets, recipe)
    names, digests = tuple(source.name for source in evaluation_sets), tuple(file.sha256 for file in prepared.files)
    rules = DecontaminationRules(recipe, names, staging.folder, digests)
    work = functools.partial(decontaminate_shard, rules=rules, zstd_level=settings.zstd_level)
    warm_up = functools.partial(load_decontamination, rules)
    shards = corpus_shards(sources)
    settings = limit_workers(staging, settings, [shard.file.stat().st_size for shard in shards])
    receipts = list(run_stage(_STAGE, work, [shard.unnumbered for shard in shards], staging, settings, warm_up))
    counts = total_counts(receipts)
    ledger = Ledger.from_counts(counts)
    if ledger.rows_in and not ledger.out and not may_be_empty:
        what = f"none of its {ledger.rows_in:,} documents is kept ({ledger.total_dropped:,} are contaminated)"
        raise InputError(what, staging.target, "remove an evaluation set, or raise `min_item_overlap`")
    gathered = [
        concatenate_lines(staging, [receipt.files[number] for receipt in receipts], name, settings.zstd_level)
        for number, name in ((1, CONTAMINATED_FILE), (2, REJECTS_FILE))
    ]
    evaluation = prepared.notes["evaluation"]
    summary = {
        "ledger": ledger.to_json(),
        "documents": ledger.out,
        "text_bytes": counts["bytes"],
        "changed_documents": counts["changed"],
        "changes": {name: count for name, count in counts.items() if name.startswith("cut/")},
        "by_source": sum_by_source(shards, (_source_counts(receipt.counts) for receipt in receipts)),
        "evaluation": {
            name: item_counts | _evaluation_set_counts(name, counts) for name, item_counts in evaluation.items()
        },
        **prepared.counts,
    }
    return BuildResult([*(receipt.files[0] for receipt in receipts), *gathered], summary, {})


def _prepare_index(staging: StagingDir, sets: Sequence[EvaluationSet], recipe: DecontaminationRecipe) -> Receipt:
    """Write the index unless an earlier run has written it, and return its receipt."""
    receipt = staging.read_receipt(_INDEX_STAGE, "items")
    if receipt is None:
        receipt = item_index.write_index(sets, recipe, staging)
        for evaluation_set in sets:
            evaluation_set.files()  # raise an error if a file changed while it was read
        staging.commit(_INDEX_STAGE, "items", receipt)
    return receipt


def _source_counts(counts: Mapping[str, int]) -> dict[str, int]:
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


def _evaluation_set_counts(set_name: str, counts: Mapping[str, int]) -> dict[str, int]:
    contaminated, cut = (counts.get(f"{what}/{set_name}", 0) for what in ("contaminated", "cut_for"))
    return {"contaminated_documents": contaminated, "dropped_documents": contaminated - cut, "cut_documents": cut}
