"""The stage `decontaminate`: a Document shard → its documents without what they hold of evaluation sets."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import msgspec
import numpy as np

from pipeline_assets.corpus.decontamination.contamination import Contamination, contaminations
from pipeline_assets.corpus.decontamination.evidence import ContaminatedLine
from pipeline_assets.corpus.decontamination.index_file import IndexFiles, load_index
from pipeline_assets.corpus.decontamination.item_index import ItemIndex
from pipeline_assets.corpus.decontamination.recipe import DecontaminationRecipe
from pipeline_assets.corpus.dedup.corpus_shard import CorpusShard, DocumentFields, line_blocks, read_fields
from pipeline_assets.corpus.dedup.words import normalize
from pipeline_assets.corpus.document_shards import SHARDS, with_text
from pipeline_assets.corpus.formats.jsonl_zst import SUFFIX, JsonlZstWriter, write_rows
from pipeline_assets.corpus.spine.building import BuildFolder, Receipt
from pipeline_assets.corpus.spine.rejects import Reject
from pipeline_assets.corpus.spine.sealing import WORK
from pipeline_assets.corpus.spine.stage import KILLED_WORKER, Window

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
    for reject in rejects:
        counts[f"rejected/{reject.reason}"] += 1
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
            counts[f"dropped/{evidence.reason}"] += 1
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
