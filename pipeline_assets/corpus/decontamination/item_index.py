"""The items of evaluation sets, read from their files, by their n-grams; and which documents hold enough of them.

Items with the same normalised words are one item, with several names. Memory: about 60 bytes for each n-gram, their
words with them; while it is made, twice as much. On disk it is an array a file, mapped into memory, so that all workers
of a machine share one copy.
"""

import functools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.decontamination.ngrams import (
    Found,
    NgramTable,
    Words,
    between,
    ngram_table,
    number_ngrams,
    only,
    propose,
    split_words,
    verify,
)
from pipeline_assets.corpus.decontamination.recipe import (
    CutRecipe,
    DecontaminationRecipe,
    EvaluationColumns,
    EvaluationRecipe,
    EvaluationSet,
)
from pipeline_assets.corpus.dedup.steps import is_first
from pipeline_assets.corpus.dedup.words import NormalizedBatch, normalize
from pipeline_assets.corpus.readers.column_recipe import LicensedColumns, another_column
from pipeline_assets.corpus.readers.columns import Fault, find_column
from pipeline_assets.corpus.readers.lines import format_row
from pipeline_assets.corpus.readers.local import LocalRecipe, piece_rows, plan_local
from pipeline_assets.corpus.readers.source_folder import SourceFile
from pipeline_assets.spine.durable import DurableFile
from pipeline_assets.spine.errors import IN_RECIPE, InputError, UsageError, key
from pipeline_assets.spine.stage import grouped_by_size
from pipeline_assets.spine.staging import WORK, OutputFile, Receipt, StagingView

_FOLDER = f"{WORK}/items"
_READ_ITEMS = 1024
_WHOLE_FILE = 1 << 62
_TEXT_FILE = EvaluationColumns(text=("text",), item="row", id=None)


class EvaluationItem(NamedTuple):
    """A text of an evaluation set; where each column is an item, the id ends with `:` and the column."""

    id: str
    text: str


def read_items(evaluation: EvaluationSet) -> Iterator[EvaluationItem]:
    """Every item, in the order of files and rows.

    Raises:
        UsageError: a column that isn't there, or holds no text.
        InputError: a file that is not as it was, or can't be read, or one of its rows: no item may be missing.
    """
    for file in evaluation.files():
        yield from _read_file(file, evaluation.recipe)


def _read_file(file: SourceFile, recipe: EvaluationRecipe) -> Iterator[EvaluationItem]:
    columns = recipe.columns or _TEXT_FILE
    names = [*columns.text, *([columns.id] if columns.id is not None else [])]
    missing, first_row = set(names), dict[str, Any]()
    for number, (place, row) in enumerate(_rows(file, recipe)):
        if isinstance(row, Fault):
            what = (
                f"{format_row(file.name, place, file)} can't be read ({row.reason}{row.detail and f': {row.detail}'})"
            )
            raise InputError(what, file.path, "correct the row: no item may be missing")
        first_row = first_row or row
        missing -= {name for name in missing if find_column(row, name) is not None}
        yield from _read_items(row, number, place, file, columns)
    for name in names if first_row else []:
        if name in missing:
            what = f"set {recipe.name} has no column `{name}`; its first row has {', '.join(first_row)}"
            raise UsageError(what, file.path, another_column("text" if name in columns.text else "id"))


def _rows(file: SourceFile, recipe: EvaluationRecipe) -> Iterator[tuple[int, dict[str, Any] | Fault]]:
    of_readers = None
    if recipe.columns is not None:
        of_readers = LicensedColumns(text=recipe.columns.text[0], id=recipe.columns.id, created_at=None, license=None)
    local = LocalRecipe(
        source=recipe.name,
        domain="evaluation",
        license_tag="unknown",
        files=recipe.files,
        columns=of_readers,
        text_unit=recipe.text_unit,
    )
    for piece in plan_local([file], local, _WHOLE_FILE):
        yield from piece_rows(piece, local)


def _read_items(
    row: dict[str, Any], number: int, place: int, file: SourceFile, columns: EvaluationColumns
) -> Iterator[EvaluationItem]:
    texts = {name: text for name in columns.text if (text := _text(row, name, place, file)) is not None}
    row_id = _value(row, columns.id) if columns.id is not None else None
    item_id = f"{file.name}:{number}" if row_id is None or row_id == "" else str(row_id)
    if columns.item == "row" or not texts:
        yield EvaluationItem(item_id, "\n".join(texts.values()))
    else:
        yield from (EvaluationItem(f"{item_id}:{name}", text) for name, text in texts.items())


def _text(row: dict[str, Any], name: str, place: int, file: SourceFile) -> str | None:
    """
    Raises:
        UsageError: the column holds something else than text.
    """
    value = _value(row, name)
    texts: Sequence[object] = value if isinstance(value, list) else [value]
    for text in texts:
        if text is not None and not isinstance(text, str):
            what = f"`{name}` of {format_row(file.name, place, file)} holds {type(text).__name__}, not text"
            raise UsageError(what, file.path, f"set {key('columns.text', IN_RECIPE)} to columns of text")
    return "\n".join(text for text in texts if isinstance(text, str)) if any(texts) else None


def _value(row: dict[str, Any], name: str) -> object:
    at = find_column(row, name)
    return None if at is None else at.value


class Items(NamedTuple):
    """Items, numbered in the order of sets, files and rows, and their names.

    Attributes:
        first_items: of each n-gram in `items`, and after the last their number; int64.
        items: those that have the n-gram, ascending; int32.
        ngrams: how many each item has; int32.
        needed: of how many a document is contaminated by the item; int32.
        first_names: of each item in `sets` and `id_ends`, and after the last their number; int64.
        sets: of each name, the evaluation set's number; int32.
        id_ends: of each name, where its id ends in `ids`; int64.
        ids: UTF-8, uint8.
    """

    first_items: NDArray[np.int64]
    items: NDArray[np.int32]
    ngrams: NDArray[np.int32]
    needed: NDArray[np.int32]
    first_names: NDArray[np.int64]
    sets: NDArray[np.int32]
    id_ends: NDArray[np.int64]
    ids: NDArray[np.uint8]


class ItemIndex(NamedTuple):
    """N-grams and the items that have them."""

    table: NgramTable
    items: Items


class _Name(NamedTuple):
    """An item's number, and what it is called in an evaluation set, given by number too."""

    item: int
    evaluation_set: int
    id: bytes


class _Gathered(NamedTuple):
    """Different items, by their normalised text and by number, and all their names."""

    texts: dict[bytes, int]
    hashes: list[NDArray[np.uint64]]
    names: list[_Name]


def write_index(evaluation: Sequence[EvaluationSet], recipe: DecontaminationRecipe, folder: StagingView) -> Receipt:
    """The index of all items of some sets.

    Files: its arrays. Counts: different n-grams, `ngrams` that are looked for and `common_ngrams`. Notes: `evaluation`,
    by set: `items` read; `repeated`, those whose words an earlier one has; `too_short` ones; `without_ngrams`, those
    that are not looked for as all their n-grams are common.

    Raises:
        UsageError: a column that isn't there, or holds no text.
        InputError: a file that is not as it was, or can't be read, a set without items or whose items are all too
            short; all n-grams are common.
    """
    gathered = _Gathered({}, [], [])
    counts = [_gather(one, number, recipe, gathered) for number, one in enumerate(evaluation)]
    text = np.frombuffer(b" ".join([*gathered.texts, b""]), np.uint8)
    begins = np.concatenate(([0], np.flatnonzero(text == ord(" ")) + 1))
    words = Words(text, begins, np.concatenate(gathered.hashes))
    item_words = np.array([len(hashes) for hashes in gathered.hashes], np.int64)
    places, sizes, owners = _item_ngrams(item_words, recipe.ngram_words)
    ngrams, firsts = number_ngrams(words, places, sizes)
    pairs = np.sort(ngrams * len(item_words) + owners)
    pair_ngrams, pair_items = np.divmod(pairs[is_first(pairs)], len(item_words))
    is_kept = np.bincount(pair_ngrams) <= recipe.max_items_per_ngram
    if not is_kept.any():
        what = f"every n-gram is in more than {key('max_items_per_ngram')} {recipe.max_items_per_ngram} items"
        where = f"evaluation sets {', '.join(one.name for one in evaluation)}"
        raise InputError(what, where, f"raise {key('max_items_per_ngram')}, or lower {key('ngram_words')}")
    is_looked_for = is_kept[pair_ngrams]
    names = sorted(gathered.names, key=lambda name: name.item)
    items = _items(pair_ngrams[is_looked_for], pair_items[is_looked_for], len(item_words), names, recipe)
    for name in names:
        counts[name.evaluation_set]["without_ngrams"] += int(items.ngrams[name.item] == 0)
    table = ngram_table(words, places[firsts[is_kept]], sizes[firsts[is_kept]])
    files = [_write(name, array, folder) for part in (table, items) for name, array in part._asdict().items()]
    notes = {"evaluation": {one.name: dict(of_set) for one, of_set in zip(evaluation, counts, strict=True)}}
    return Receipt(files, {"ngrams": int(is_kept.sum()), "common_ngrams": int((~is_kept).sum())}, notes)


def _gather(evaluation: EvaluationSet, number: int, recipe: DecontaminationRecipe, gathered: _Gathered) -> Counter[str]:
    """Reads a set; its counts."""
    counts = Counter({"items": 0, "repeated": 0, "too_short": 0, "without_ngrams": 0})
    longest = 0
    for items in grouped_by_size(read_items(evaluation), lambda item: 1, _READ_ITEMS):
        batch = normalize([item.text.encode() for item in items])
        spans = zip(batch.starts.tolist(), batch.stops.tolist(), strict=True)
        bounds = batch.first_words.tolist()
        for place, (item, (start, stop)) in enumerate(zip(items, spans, strict=True)):
            hashes = batch.word_hashes[bounds[place] : bounds[place + 1]]
            longest = max(longest, len(hashes))
            counts["items"] += 1
            if len(hashes) < recipe.min_item_words:
                counts["too_short"] += 1
                continue
            item_number = gathered.texts.setdefault(batch.text[start:stop].tobytes(), len(gathered.hashes))
            if item_number == len(gathered.hashes):
                gathered.hashes.append(hashes.copy())
            else:
                counts["repeated"] += 1
            gathered.names.append(_Name(item_number, number, item.id.encode()))
    if not counts["items"]:
        raise InputError("it has no items", f"evaluation set {evaluation.name}", "correct its files or columns")
    if counts["too_short"] == counts["items"]:
        what = f"all {counts['items']:,} items have fewer words than {key('min_item_words')} {recipe.min_item_words}"
        fix = f"lower {key('min_item_words')}, or leave the set out"
        raise InputError(f"{what} (the longest has {longest})", f"evaluation set {evaluation.name}", fix)
    return counts


def _item_ngrams(
    item_words: NDArray[np.int64], ngram_words: int
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]:
    """Of each n-gram of each item: its first word, its words, and the item."""
    ngrams = np.maximum(item_words - ngram_words + 1, 1)
    owners = np.repeat(np.arange(len(item_words)), ngrams)
    first_words, first_ngrams = np.cumsum(item_words) - item_words, np.cumsum(ngrams) - ngrams
    places = first_words[owners] + np.arange(len(owners)) - first_ngrams[owners]
    return places, np.minimum(item_words, ngram_words)[owners].astype(np.int32), owners


def _items(
    pair_ngrams: NDArray[np.int64],
    pair_items: NDArray[np.int64],
    count: int,
    names: Sequence[_Name],
    recipe: DecontaminationRecipe,
) -> Items:
    """
    Args:
        pair_ngrams, pair_items: which n-gram is of which item, sorted; numbers of n-grams may have gaps.
        names: of all items, in their order.
    """
    ngrams = np.bincount(pair_items, minlength=count)
    overlap = Fraction(recipe.min_item_overlap)
    return Items(
        first_items=np.append(np.flatnonzero(is_first(pair_ngrams)), len(pair_items)),
        items=pair_items.astype(np.int32),
        ngrams=ngrams.astype(np.int32),
        needed=(-(-overlap.numerator * ngrams // overlap.denominator)).astype(np.int32),
        first_names=np.searchsorted([name.item for name in names], np.arange(count + 1)),
        sets=np.array([name.evaluation_set for name in names], np.int32),
        id_ends=np.cumsum([len(name.id) for name in names]),
        ids=np.frombuffer(b"".join(name.id for name in names), np.uint8),
    )


def _write(name: str, array: NDArray[Any], folder: StagingView) -> OutputFile:
    path = f"{_FOLDER}/{name}.npy"
    with DurableFile(folder.path(path)) as file:
        np.save(file, array)
    return OutputFile.plain(path, len(array), file)


@functools.lru_cache(maxsize=1)
def load_index(building: Path, digests: tuple[str, ...]) -> ItemIndex:
    """The index; the last one loaded is kept for the life of the process.

    Args:
        digests: sha256 of the files that `write_index` wrote: the same folder may hold another index later.
    """

    def load(name: str) -> NDArray[Any]:
        return np.asarray(np.load(building / _FOLDER / f"{name}.npy", mmap_mode="r"))

    return ItemIndex(NgramTable(*map(load, NgramTable._fields)), Items(*map(load, Items._fields)))


class _CachedIndex(NamedTuple):
    """Items of which a document holds enough n-grams, ascending, and how many different ones; int64."""

    items: NDArray[np.int64]
    shared: NDArray[np.int64]


@dataclass(frozen=True)
class Contamination:
    """What is wrong with one document.

    Attributes:
        number: of the document in its batch.
        items: by which it is contaminated, ascending.
        best: the one of whose n-grams it holds most, as a fraction, the first of several.
        shared: how many different n-grams of that one it holds.
        first_word: at which one of these begins first.
        is_removed: of each word, whether it has to go: those in n-grams of the items, and what the recipe cuts besides.
    """

    number: int
    items: NDArray[np.int64]
    best: int
    shared: int
    first_word: int
    is_removed: NDArray[np.bool_]


def contaminations(batch: NormalizedBatch, index: ItemIndex, cut: CutRecipe | None) -> list[Contamination]:
    """The contaminated documents of a batch, in order."""
    proposed = propose(batch.word_hashes, batch.first_words, index.table)
    if not len(proposed.words):
        return []
    words, bounds = split_words(batch), batch.first_words
    found = verify(proposed, words, index.table)
    contaminated = list[Contamination]()
    for number in np.unique(np.searchsorted(bounds, found.words, side="right") - 1).tolist():
        first, stop = bounds[number : number + 2].tolist()
        own = slice(*np.searchsorted(found.words, (first, stop)).tolist())
        in_document = Found(found.words[own] - first, found.ngrams[own])
        if one := _contamination(number, between(words, first, stop), in_document, index, cut):
            contaminated.append(one)
    return contaminated


def _contamination(
    number: int, words: Words, found: Found, index: ItemIndex, cut: CutRecipe | None
) -> Contamination | None:
    own = _cached_index(found, index.items)
    if not len(own.items):
        return None
    place = int(np.argmax(own.shared / index.items.ngrams[own.items]))
    best, shared = int(own.items[place]), int(own.shared[place])
    first_word = int(found.words[_belong_to(found.ngrams, own.items[place : place + 1], index.items)][0])
    return Contamination(number, own.items, best, shared, first_word, _removed(words, found, own.items, index, cut))


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
        is_of_items = _belong_to(found.ngrams, items, index.items)
        first, sizes = found.words[is_of_items], index.table.sizes[found.ngrams[is_of_items]]
        steps = np.zeros(len(kept) + 1, np.int64)
        np.add.at(steps, np.maximum(first - margin, 0), 1)
        np.add.at(steps, np.minimum(first + sizes + margin, len(kept)), -1)
        is_removed[kept[np.cumsum(steps[:-1]) > 0]] = True
        if cut is None or not len(first):
            return is_removed
        left = only(words, ~is_removed)
        proposed = propose(left.hashes, np.array([0, len(left.hashes)]), index.table)
        found = verify(proposed, left, index.table)
        items = np.union1d(items, _cached_index(found, index.items).items)


def _cached_index(found: Found, items: Items) -> _CachedIndex:
    places, _ = _places(np.unique(found.ngrams), items)
    numbers, shared = np.unique(items.items[places].astype(np.int64), return_counts=True)
    is_enough = shared >= items.needed[numbers]
    return _CachedIndex(numbers[is_enough], shared[is_enough])


def _belong_to(ngrams: NDArray[np.int64], wanted: NDArray[np.int64], items: Items) -> NDArray[np.bool_]:
    """Which n-grams one of the wanted items has."""
    places, owners = _places(ngrams, items)
    is_wanted = np.isin(items.items[places], wanted)
    return np.bincount(owners[is_wanted], minlength=len(ngrams)) > 0


def _places(ngrams: NDArray[np.int64], items: Items) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The places in `items.items` of all items of n-grams, and which of the n-grams each is of."""
    counts = items.first_items[ngrams + 1] - items.first_items[ngrams]
    owners = np.repeat(np.arange(len(ngrams)), counts)
    return items.first_items[ngrams][owners] + np.arange(len(owners)) - (np.cumsum(counts) - counts)[owners], owners
