"""Index of evaluation items by their n-grams.

Items with the same normalized words are one item with several names. The index takes about 60 bytes for each n-gram,
including its words, and twice as much while it is built. Each array is a file that workers map into memory and share.
"""

import functools
import hashlib
import io
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.decontamination.evaluation_items import read_items
from pipeline_assets.corpus.decontamination.ngrams import NgramTable, Words, ngram_table, number_ngrams
from pipeline_assets.corpus.decontamination.recipe import DecontaminationRecipe, EvaluationSet
from pipeline_assets.corpus.dedup.sorted_runs import is_first_in_group
from pipeline_assets.corpus.dedup.words import normalize
from pipeline_assets.corpus.formats.npy_header import read_npy_header
from pipeline_assets.spine.damage import BYTES_DIFFER, errors_as_damage
from pipeline_assets.spine.durable import DurableFile
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.stage import group_by_size
from pipeline_assets.spine.staging import WORK_FOLDER, OutputFile, Receipt, StagingView

_INDEX_FOLDER = f"{WORK_FOLDER}/items"
_BATCH_ITEMS = 1024
_HEADER_BYTES = 256  # more than the header of a one-dimensional array


class Items(NamedTuple):
    """Items and their names; items are numbered in the order of sets, files and rows.

    `items` lists, for one n-gram after the other, the numbers of the items that contain it, in ascending order.
    """

    first_items: NDArray[np.int64]  # position of each n-gram's first item in `items`, then the length of `items`
    items: NDArray[np.int32]
    ngrams: NDArray[np.int32]  # number of distinct n-grams of each item, without n-grams that are in too many items
    needed: NDArray[np.int32]  # for each item, the minimum number of these n-grams that makes a document contaminated
    first_names: NDArray[np.int64]  # position of each item's first name in `sets` and `id_ends`, then the total
    sets: NDArray[np.int32]  # index of each name's evaluation set
    id_ends: NDArray[np.int64]  # end of each name's id in `ids`
    ids: NDArray[np.uint8]  # all ids, joined, in UTF-8


class ItemIndex(NamedTuple):
    """N-grams and the items that have them."""

    table: NgramTable
    items: Items


class _ItemName(NamedTuple):
    """Name of an item: its evaluation set, and its id in UTF-8."""

    item_number: int
    set_number: int
    id: bytes


class _GatheredItems(NamedTuple):
    """Items with enough words, gathered from all evaluation sets."""

    number_by_text: dict[bytes, int]  # item number of each normalized text
    hashes: list[NDArray[np.uint64]]  # of the words of each item, by item number
    names: list[_ItemName]  # of all items, in the order in which they were read; an item may have several


def write_index(sets: Sequence[EvaluationSet], recipe: DecontaminationRecipe, folder: StagingView) -> Receipt:
    """Write the index of all items of one or more evaluation sets.

    The files are the arrays of the index. The count `ngrams` is the number of distinct n-grams to search for, and
    `common_ngrams` the number of n-grams in too many items. The note `evaluation` counts the items of each set:
    all as `items`, ignored ones as `too_short`, items with the words of an earlier item as `repeated`, and items whose
    n-grams are all common as `without_ngrams`.

    Raises:
        UsageError: A column is missing, or has values other than text.
        InputError: A file changed or cannot be read; a set has no items, or all are too short; all n-grams are common.
    """
    gathered = _GatheredItems({}, [], [])
    counts = [_gather_items(evaluation_set, number, recipe, gathered) for number, evaluation_set in enumerate(sets)]
    # Join all items as one text, with a space after each word.
    text = np.frombuffer(b" ".join([*gathered.number_by_text, b""]), np.uint8)
    begins = np.concatenate(([0], np.flatnonzero(text == ord(" ")) + 1))
    words = Words(text, begins, np.concatenate(gathered.hashes))
    item_word_counts = np.array([len(hashes) for hashes in gathered.hashes], np.int64)
    first_words, ngram_sizes, owners = _item_ngrams(item_word_counts, recipe.ngram_words)
    ngrams, firsts = number_ngrams(words, first_words, ngram_sizes)
    # A pair of n-gram and item is one number, `n-gram * items + item`, so a sort orders by n-gram, then by item. An
    # n-gram that an item has twice gives equal numbers; only the first remains.
    pairs = np.sort(ngrams * len(item_word_counts) + owners)
    pair_ngrams, pair_items = np.divmod(pairs[is_first_in_group(pairs)], len(item_word_counts))
    is_kept = np.bincount(pair_ngrams) <= recipe.max_items_per_ngram
    if not is_kept.any():
        what = f"every n-gram is in more than `max_items_per_ngram` {recipe.max_items_per_ngram} items"
        where = f"evaluation sets {', '.join(evaluation_set.name for evaluation_set in sets)}"
        raise InputError(what, where, "raise `max_items_per_ngram`, or lower `ngram_words`")
    is_searched = is_kept[pair_ngrams]
    items = _build_items(pair_ngrams[is_searched], pair_items[is_searched], gathered, Fraction(recipe.min_item_overlap))
    for name in gathered.names:
        counts[name.set_number]["without_ngrams"] += int(items.ngrams[name.item_number] == 0)
    table = ngram_table(words, first_words[firsts[is_kept]], ngram_sizes[firsts[is_kept]])
    files = [_write_array(name, array, folder) for part in (table, items) for name, array in part._asdict().items()]
    set_names = (evaluation_set.name for evaluation_set in sets)
    notes = {"evaluation": dict(zip(set_names, map(dict, counts), strict=True))}
    return Receipt(files, {"ngrams": int(is_kept.sum()), "common_ngrams": int((~is_kept).sum())}, notes)


def _gather_items(
    evaluation_set: EvaluationSet, set_number: int, recipe: DecontaminationRecipe, gathered: _GatheredItems
) -> Counter[str]:
    """Add a set's items to `gathered`, except short ones; return the set's counts.

    Raise InputError if the set has no items, or all are too short.
    """
    counts = Counter({"items": 0, "repeated": 0, "too_short": 0, "without_ngrams": 0})
    longest = 0
    for items in group_by_size(read_items(evaluation_set), lambda item: 1, _BATCH_ITEMS):
        batch = normalize([item.text.encode() for item in items])
        spans = zip(batch.starts.tolist(), batch.stops.tolist(), strict=True)
        bounds = batch.first_words.tolist()
        for position, (item, (start, stop)) in enumerate(zip(items, spans, strict=True)):
            hashes = batch.word_hashes[bounds[position] : bounds[position + 1]]
            longest = max(longest, len(hashes))
            counts["items"] += 1
            if len(hashes) < recipe.min_item_words:
                counts["too_short"] += 1
                continue
            item_number = gathered.number_by_text.setdefault(batch.text[start:stop].tobytes(), len(gathered.hashes))
            if item_number == len(gathered.hashes):
                gathered.hashes.append(hashes.copy())
            else:
                counts["repeated"] += 1
            gathered.names.append(_ItemName(item_number, set_number, item.id.encode()))
    if not counts["items"]:
        raise InputError("no items found", f"evaluation set {evaluation_set.name}", "correct its files or columns")
    if counts["too_short"] == counts["items"]:
        what = f"every item has fewer words than `min_item_words` {recipe.min_item_words}"
        what += f" (items: {counts['items']:,}, words of the longest: {longest:,})"
        fix = "lower `min_item_words`, or omit the set"
        raise InputError(what, f"evaluation set {evaluation_set.name}", fix)
    return counts


def _item_ngrams(
    item_word_counts: NDArray[np.int64], ngram_words: int
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]:
    """Return each n-gram's first word, number of words and item, sorted by item.

    First words are positions in the joined words of all items.
    """
    ngrams = np.maximum(item_word_counts - ngram_words + 1, 1)  # an item with fewer words is one n-gram
    owners = np.repeat(np.arange(len(item_word_counts)), ngrams)
    # A running sum minus an item's own count gives the item's first word, and its first n-gram.
    first_words, first_ngrams = np.cumsum(item_word_counts) - item_word_counts, np.cumsum(ngrams) - ngrams
    # N-gram k of an item begins at the item's word k; k is the n-gram's number minus the first number of the item.
    ngram_first_words = first_words[owners] + np.arange(len(owners)) - first_ngrams[owners]
    return ngram_first_words, np.minimum(item_word_counts, ngram_words)[owners].astype(np.int32), owners


def _build_items(
    pair_ngrams: NDArray[np.int64], pair_items: NDArray[np.int64], gathered: _GatheredItems, overlap: Fraction
) -> Items:
    """Build the arrays of items from sorted pairs of n-gram and item."""
    names, item_count = sorted(gathered.names, key=lambda name: name.item_number), len(gathered.hashes)
    ngrams = np.bincount(pair_items, minlength=item_count)
    return Items(
        first_items=np.append(np.flatnonzero(is_first_in_group(pair_ngrams)), len(pair_items)),
        items=pair_items.astype(np.int32),
        ngrams=ngrams.astype(np.int32),
        needed=(-(-overlap.numerator * ngrams // overlap.denominator)).astype(np.int32),  # overlap * ngrams, rounded up
        first_names=np.searchsorted([name.item_number for name in names], np.arange(item_count + 1)),
        sets=np.array([name.set_number for name in names], np.int32),
        id_ends=np.cumsum([len(name.id) for name in names]),
        ids=np.frombuffer(b"".join(name.id for name in names), np.uint8),
    )


def _write_array(name: str, array: NDArray[Any], folder: StagingView) -> OutputFile:
    path = f"{_INDEX_FOLDER}/{name}.npy"
    with DurableFile(folder.path(path)) as file:
        np.save(file, array)
    return OutputFile.uncompressed(path, len(array), file)


@functools.lru_cache(maxsize=1)
def load_index(folder: Path, digests: tuple[str, ...]) -> ItemIndex:
    """Map a build's index into memory and verify it; a process caches one index.

    `digests` are the hashes of the index files, in the order of the receipt of `write_index`. Raise RetryableError if a
    file's hash differs.
    """
    names = (*NgramTable._fields, *Items._fields)
    files = (folder / _INDEX_FOLDER / f"{name}.npy" for name in names)
    arrays = [_map_array(file, digest) for file, digest in zip(files, digests, strict=True)]
    table, items = arrays[: len(NgramTable._fields)], arrays[len(NgramTable._fields) :]
    return ItemIndex(NgramTable(*table), Items(*items))


def _map_array(path: Path, sha256: str) -> NDArray[Any]:
    with errors_as_damage(path, "array"):
        data = np.memmap(path, np.uint8, "r")
        if hashlib.sha256(data.data).hexdigest() != sha256:
            raise ValueError(BYTES_DIFFER)
        header = read_npy_header(io.BytesIO(data[:_HEADER_BYTES].tobytes()), path)
        return data[header.offset :].view(header.dtype)
