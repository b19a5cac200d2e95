"""The items of evaluation sets by their n-grams: what documents are searched for.

Items with the same normalised words are one item, with several names. Memory: about 60 bytes for each n-gram, their
words with them; while it is made, twice as much. On disk it is an array a file, mapped into memory, so that all workers
of a machine share one copy.
"""

import functools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.decontamination.evaluation_set import EvaluationItem, EvaluationSet, read_items
from pipeline_assets.corpus.decontamination.ngrams import NgramTable, Words, ngram_table, number_ngrams
from pipeline_assets.corpus.decontamination.recipe import DecontaminationRecipe
from pipeline_assets.corpus.dedup.words import normalize
from pipeline_assets.corpus.spine.durable import DurableFile
from pipeline_assets.corpus.spine.errors import InputError, key
from pipeline_assets.corpus.spine.sealing import WORK
from pipeline_assets.corpus.spine.staging import BuildFolder, OutputFile

_READ_ITEMS = 1024


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


@dataclass(frozen=True)
class IndexedItems:
    """The index, and what it was made of.

    Attributes:
        counts: by evaluation set: `items` read; `repeated`, those whose words an earlier one has; `too_short` ones;
            `without_ngrams`, those that are not looked for as all their n-grams are common.
        ngrams, common_ngrams: different ones, looked for and not.
    """

    index: ItemIndex
    counts: Mapping[str, Mapping[str, int]]
    ngrams: int
    common_ngrams: int


@dataclass
class _Gathered:
    """Different items, and all their names."""

    texts: dict[bytes, int] = field(default_factory=dict)
    hashes: list[NDArray[np.uint64]] = field(default_factory=list)
    name_items: list[int] = field(default_factory=list)
    name_sets: list[int] = field(default_factory=list)
    name_ids: list[bytes] = field(default_factory=list)


def index_items(evaluation: Sequence[EvaluationSet], recipe: DecontaminationRecipe) -> IndexedItems:
    """The index of all items of some sets.

    Raises:
        UsageError: a column that isn't there, or holds no text.
        InputError: a file that is not as it was, or can't be read, a set without items or whose items are all too
            short; all n-grams are common.
    """
    gathered = _Gathered()
    counts = {one.name: _gather(one, number, recipe, gathered) for number, one in enumerate(evaluation)}
    text = np.frombuffer(b" ".join([*gathered.texts, b""]), np.uint8)
    begins = np.concatenate(([0], np.flatnonzero(text == ord(" ")) + 1))
    words = Words(text, begins, np.concatenate(gathered.hashes))
    item_words = np.array([len(hashes) for hashes in gathered.hashes], np.int64)
    places, sizes, owners = _ngrams_of(item_words, recipe.ngram_words)
    numbered = number_ngrams(words, places, sizes)
    pairs = np.sort(numbered.ngrams.astype(np.int64) * len(item_words) + owners)
    pair_ngrams, pair_items = np.divmod(pairs[_is_first(pairs)], len(item_words))
    is_kept = np.bincount(pair_ngrams) <= recipe.max_items_per_ngram
    if not is_kept.any():
        what = f"every n-gram is in more than {key('max_items_per_ngram')} {recipe.max_items_per_ngram} items"
        raise InputError(what, _names(evaluation), f"raise {key('max_items_per_ngram')}, or lower {key('ngram_words')}")
    is_looked_for = is_kept[pair_ngrams]
    items = _items(pair_ngrams[is_looked_for], pair_items[is_looked_for], len(item_words), gathered, recipe)
    for evaluation_set, number in zip(gathered.name_sets, gathered.name_items, strict=True):
        counts[evaluation[evaluation_set].name]["without_ngrams"] += int(items.ngrams[number] == 0)
    index = ItemIndex(ngram_table(words, numbered, is_kept), items)
    return IndexedItems(index, counts, int(is_kept.sum()), int((~is_kept).sum()))


def _gather(evaluation: EvaluationSet, number: int, recipe: DecontaminationRecipe, gathered: _Gathered) -> Counter[str]:
    """Reads a set; its counts.

    Raises: as `index_items`.
    """
    counts = Counter({"items": 0, "repeated": 0, "too_short": 0, "without_ngrams": 0})
    longest = 0
    for items in _batches(read_items(evaluation)):
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
            gathered.name_items.append(item_number)
            gathered.name_sets.append(number)
            gathered.name_ids.append(item.id.encode())
    if not counts["items"]:
        raise InputError("it has no items", f"evaluation set {evaluation.name}", "correct its files or columns")
    if counts["too_short"] == counts["items"]:
        what = f"all {counts['items']:,} items have fewer words than {key('min_item_words')} {recipe.min_item_words}"
        fix = f"lower {key('min_item_words')}, or leave the set out"
        raise InputError(f"{what} (the longest has {longest})", f"evaluation set {evaluation.name}", fix)
    return counts


def _batches(items: Iterator[EvaluationItem]) -> Iterator[list[EvaluationItem]]:
    while batch := list(islice(items, _READ_ITEMS)):
        yield batch


def _ngrams_of(
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
    gathered: _Gathered,
    recipe: DecontaminationRecipe,
) -> Items:
    """
    Args:
        pair_ngrams, pair_items: which n-gram is of which item, sorted; numbers of n-grams may have gaps.
    """
    ngrams = np.bincount(pair_items, minlength=count)
    overlap = Fraction(recipe.min_item_overlap)
    order = np.argsort(gathered.name_items, kind="stable")
    names = np.bincount(gathered.name_items, minlength=count)
    ids = [gathered.name_ids[name] for name in order.tolist()]
    return Items(
        first_items=np.append(np.flatnonzero(_is_first(pair_ngrams)), len(pair_items)),
        items=pair_items.astype(np.int32),
        ngrams=ngrams.astype(np.int32),
        needed=(-(-overlap.numerator * ngrams // overlap.denominator)).astype(np.int32),
        first_names=np.concatenate(([0], np.cumsum(names))),
        sets=np.array(gathered.name_sets, np.int32)[order],
        id_ends=np.cumsum([len(one) for one in ids]),
        ids=np.frombuffer(b"".join(ids), np.uint8),
    )


def _is_first(ascending: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which numbers are no repetition of the one before; np.unique, which hashes first, takes eight times as long."""
    return np.concatenate(([True], ascending[1:] != ascending[:-1]))


def _names(evaluation: Sequence[EvaluationSet]) -> str:
    return f"evaluation sets {', '.join(one.name for one in evaluation)}"


_FOLDER = f"{WORK}/items"


@dataclass(frozen=True)
class IndexFiles:
    """Where an index lies, and the sha256 of its files: the same folder may hold another one later."""

    folder: Path
    digests: tuple[str, ...]


def write_index(index: ItemIndex, folder: BuildFolder) -> list[OutputFile]:
    """The files of an index."""
    return [_write(name, array, folder) for part in index for name, array in part._asdict().items()]


def index_files(folder: BuildFolder, files: list[OutputFile]) -> IndexFiles:
    """Where `write_index` put them."""
    return IndexFiles(folder.path(_FOLDER), tuple(file.sha256 for file in files))


@functools.lru_cache(maxsize=1)
def load_index(files: IndexFiles) -> ItemIndex:
    """The index; the last one loaded is kept for the life of the process."""
    return ItemIndex(
        NgramTable(*(_load(name, files.folder) for name in NgramTable._fields)),
        Items(*(_load(name, files.folder) for name in Items._fields)),
    )


def _write(name: str, array: NDArray[Any], folder: BuildFolder) -> OutputFile:
    path = f"{_FOLDER}/{name}.npy"
    with DurableFile(folder.path(path)) as file:
        np.save(file, array)
    return OutputFile.plain(path, len(array), file)


def _load(name: str, folder: Path) -> NDArray[Any]:
    return np.asarray(np.load(folder / f"{name}.npy", mmap_mode="r"))
