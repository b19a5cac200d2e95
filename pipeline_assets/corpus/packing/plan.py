"""Plan of a packed set: draws and rows, computed from the lengths of documents.

The draws of all sources are packed in one seeded order; a rank is a position in it. A draw that the token budget cuts
is last. Only a few arrays of 4 bytes per draw are in memory. The results are files, which later stages memory-map.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.formats.checked_file import CheckedFile, count_values, map_values
from pipeline_assets.corpus.packing.encoded_corpus import EncodedShard, first_document_numbers
from pipeline_assets.corpus.packing.hashed_order import MAX_ITEMS, chunk_slices, hashed_order
from pipeline_assets.corpus.packing.mixture import Draws, Mixture, MixtureSource, gather_values
from pipeline_assets.corpus.packing.plan_format import (
    DRAWS_NOTE,
    PLAN_FOLDER,
    RECIPE_NOTE,
    DrawnSource,
    NumberedDraws,
    PlanFiles,
)
from pipeline_assets.corpus.packing.recipe import PackRecipe, ResolvedPack
from pipeline_assets.corpus.packing.strategies import best_fit_rows, sequential_rows
from pipeline_assets.corpus.packing.token_budget import row_counter, token_budget_for
from pipeline_assets.corpus.tokens.encode import DocumentTable
from pipeline_assets.spine.errors import RecipeKey, UsageError
from pipeline_assets.spine.files import file_sha256
from pipeline_assets.spine.stage import Window
from pipeline_assets.spine.staging import OutputFile, Receipt, StagingView


def number_draws(mixture: Mixture, draws: Draws) -> NumberedDraws:
    """Number all draws; raise UsageError if there are more than 2**32."""
    sources: list[DrawnSource] = []
    taken: list[NDArray[np.uint32]] = []
    cut, first_draw, first_taken = None, 0, 0
    for number, (source, source_draws) in enumerate(zip(mixture.sources, draws.source_draws, strict=True)):
        is_cut = draws.cut_source == number
        # Documents of the last epoch: those drawn whole, then the cut one, if it is of this source.
        order = mixture.epoch_order(number, source_draws.epochs)[: source_draws.next_epoch_documents + is_cut]
        stop, stop_taken = source.first_document + len(source.lengths), first_taken + len(order)
        epochs = source_draws.epochs
        sources.append(
            DrawnSource(source.name, source.first_document, stop, first_draw, epochs, first_taken, stop_taken)
        )
        last = order[-1:].copy()
        order.sort()
        taken.append(order)
        if is_cut:
            position = int(np.searchsorted(order, last[0]))  # of the cut document in the sorted order
            cut = first_draw + source_draws.epochs * sources[-1].document_count + position, draws.cut_tokens
        first_draw, first_taken = first_draw + sources[-1].draw_count, stop_taken
    if first_draw > MAX_ITEMS:
        what = f"packing is limited to {MAX_ITEMS:,} documents, got {first_draw:,}"
        raise UsageError(what, RecipeKey("pack.num_seqs"), "request fewer rows")
    return NumberedDraws(sources, np.concatenate(taken), cut)


def packed_order(numbered_draws: NumberedDraws, seed: int) -> NDArray[np.uint32]:
    """Return the numbers of draws in their packed order, shape (draws,)."""
    order = hashed_order(numbered_draws.draw_count, seed, "draws")
    if numbered_draws.cut is not None:
        position = int(np.flatnonzero(order == numbered_draws.cut[0])[0])
        order[position:] = np.roll(order[position:], -1)  # move the cut draw to the end
    return order


def replace_draws_by_documents(numbered_draws: NumberedDraws, draw_numbers: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Replace draw numbers, in place, with the documents' numbers in the corpus."""
    first_draws = np.array([source.first_draw for source in numbered_draws.sources])
    first_numbers = np.array([source.first_document for source in numbered_draws.sources])
    documents = np.array([source.document_count for source in numbered_draws.sources])
    whole_epoch_draws = np.array([source.epochs * source.document_count for source in numbered_draws.sources])
    first_taken = np.array([source.first_taken for source in numbered_draws.sources])
    for chunk in chunk_slices(len(draw_numbers)):
        # The source of a draw is the last that begins at or before it.
        source = np.searchsorted(first_draws, draw_numbers[chunk], side="right") - 1
        draw = draw_numbers[chunk] - first_draws[source]  # number of the draw in its source
        # Each whole epoch draws the documents in their order, so the remainder is the document's number in the source.
        numbers = first_numbers[source] + draw % documents[source]
        # Draws beyond the whole epochs are listed in `taken`; replace their numbers.
        partial = np.flatnonzero(draw >= whole_epoch_draws[source])
        owner = source[partial]
        in_epoch = draw[partial] - whole_epoch_draws[owner]
        numbers[partial] = first_numbers[owner] + numbered_draws.taken[first_taken[owner] + in_epoch]
        draw_numbers[chunk] = numbers
    return draw_numbers


_CHUNK_VALUES = 1 << 20


def write_plan(shards: Sequence[EncodedShard], window: Window, folder: StagingView, requested: PackRecipe) -> Receipt:
    """Write the plan of a packed set.

    The receipt has the files of `PlanFiles` and the counts `tokens` (without padding), `draws` and `segments`. Its note
    `drawn` is for `read_draws`; its note `settled` has the content of the `ResolvedPack`.
    """
    files, lengths = PlanFiles.from_folder(folder), document_lengths(shards)
    mixture, recipe = _resolve_recipe(shards, lengths, requested)
    order_file, ranked_file = (folder.path(f"{PLAN_FOLDER}/{name}") for name in ("order", "ranked"))
    # Without a requested number of rows, the caps alone limit the draws, even if they fill less than a row.
    is_free_best_fit = requested.num_seqs is None and requested.strategy == "best_fit"
    is_all = is_free_best_fit and mixture.largest_budget > 0
    budget = mixture.largest_budget if is_all else token_budget_for(mixture, recipe)
    numbered_draws = number_draws(mixture, mixture.draw(budget))
    del mixture
    _write_values(files.taken, [numbered_draws.taken])
    # The documents are read again below, since the order takes much memory.
    numbered_draws = replace(numbered_draws, taken=np.empty(0, np.uint32))
    draws = packed_order(numbered_draws, recipe.seed)
    _write_values(order_file, [draws])
    documents = replace_draws_by_documents(replace(numbered_draws, taken=_read_values(files.taken)), draws)
    in_order = gather_values(lengths, documents)
    del lengths
    if numbered_draws.cut is not None:
        in_order[-1] = numbered_draws.cut[1]
    _write_values(ranked_file, [documents])
    del draws, documents
    _write_row_files(in_order, numbered_draws, recipe, files, order_file)
    del in_order
    documents = _read_values(ranked_file)
    segments = _write_values(files.documents, (documents[ranks] for ranks in _read_chunks(files.documents, np.uint32)))
    counts = {"tokens": budget, "draws": numbered_draws.draw_count, "segments": segments}
    notes = {"sources": [asdict(source) for source in numbered_draws.sources], "cut": numbered_draws.cut}
    return Receipt(
        [_describe_file(path) for path in vars(files).values()],
        counts,
        {DRAWS_NOTE: notes, RECIPE_NOTE: recipe.content()},
    )


def _describe_file(path: Path) -> OutputFile:
    sha256 = file_sha256(path)
    return OutputFile(f"{PLAN_FOLDER}/{path.name}", 0, path.stat().st_size, sha256, sha256)


def document_lengths(shards: Sequence[EncodedShard]) -> NDArray[np.int32]:
    """Return the length of each document with its end token, shape (documents,)."""
    firsts = first_document_numbers(shards)
    lengths = np.empty(firsts[-1], np.int32)
    for shard, first in zip(shards, firsts.tolist(), strict=False):
        lengths[first : first + shard.documents] = DocumentTable(shard.document_file).tokens
    return lengths


def _resolve_recipe(
    shards: Sequence[EncodedShard], lengths: NDArray[np.int32], requested: PackRecipe
) -> tuple[Mixture, ResolvedPack]:
    """Return the mixture, and the recipe with weights and number of rows filled in."""
    sources: list[MixtureSource] = []
    stop = 0
    for name, source_shards in itertools.groupby(shards, lambda shard: shard.source):
        own = list(source_shards)
        first, stop = stop, stop + sum(shard.documents for shard in own)
        tokens, rejected = int(lengths[first:stop].sum(dtype=np.int64)), sum(shard.rejected for shard in own)
        cap = requested.max_epochs.cap(name)
        weight = cap * tokens if requested.weights is None else Fraction(requested.weights[name])
        sources.append(MixtureSource(name, weight, cap, first, lengths[first:stop], tokens, rejected))
    weights = requested.weights
    if weights is None:
        total = sum(source.weight for source in sources)
        sources = [replace(source, weight=source.weight / total) for source in sources]
        weights = {source.name: str(source.weight) for source in sources}
    mixture, num_seqs = Mixture(sources, requested.seed), requested.num_seqs
    if num_seqs is None:
        available = mixture.largest_budget
        if requested.strategy == "sequential":
            num_seqs = available // requested.seq_len
        else:
            num_seqs = row_counter(mixture, requested.seq_len)(available)
    # Sources without a weight are empty.
    caps = {name: cap for name, cap in requested.max_epochs.sources.items() if name in weights}
    resolved = {"weights": weights, "max_epochs": requested.max_epochs.content() | {"sources": caps}}
    return mixture, ResolvedPack.from_content({**requested.content(), **resolved, "num_seqs": max(num_seqs, 1)})


def _write_row_files(
    lengths: NDArray[np.int32], numbered_draws: NumberedDraws, recipe: ResolvedPack, files: PlanFiles, order_file: Path
) -> None:
    """Pack draws into rows, and write the files that describe the rows.

    `files.documents` first gets the rank of each segment's draw; `write_plan` later replaces ranks by document numbers.
    """
    first_rows, is_whole = np.empty(len(lengths), np.uint32), np.empty(len(lengths), bool)
    last_row, placed = -1, 0  # last row and number of segments written so far
    if recipe.strategy == "sequential":
        segment_blocks = sequential_rows(lengths, recipe.seq_len)
    else:
        segment_blocks = best_fit_rows(lengths, recipe.seq_len, recipe.num_seqs, recipe.seed)
    with (
        CheckedFile(files.row_starts) as row_starts,
        CheckedFile(files.documents) as ranks,
        CheckedFile(files.starts) as starts,
        CheckedFile(files.lengths) as pieces,
    ):
        for segments in segment_blocks:
            # A draw begins in the segment that starts at token 0 of its document.
            begins = segments.starts == 0
            beginning = segments.ranks[begins]
            first_rows[beginning] = segments.rows[begins]
            is_whole[beginning] = segments.lengths[begins] == lengths[beginning]
            # A row begins at the segment where the row number grows; no row is empty.
            is_first = np.diff(segments.rows, prepend=last_row) > 0
            row_starts.write((placed + np.flatnonzero(is_first)).data)
            last_row, placed = segments.rows[-1], placed + len(segments.rows)
            ranks.write(segments.ranks.astype(np.uint32).data)
            starts.write(segments.starts.data)
            pieces.write(segments.lengths.data)
        row_starts.write(np.int64(placed).data)
    if numbered_draws.cut is not None:
        is_whole[-1] = False
    _write_values(files.first_rows, [_order_by_number(first_rows, order_file)])
    _write_values(files.is_whole, [_order_by_number(is_whole, order_file)])


def _order_by_number(values_by_rank: NDArray[Any], order_file: Path) -> NDArray[Any]:
    """Sort values of draws by draw number.

    `values_by_rank` has the values in the packed order of the draws; `order_file` has the draws' numbers in this order.
    """
    values_by_number = np.empty_like(values_by_rank)
    first = 0
    for numbers in _read_chunks(order_file, np.uint32):
        values_by_number[numbers] = values_by_rank[first : first + len(numbers)]
        first += len(numbers)
    return values_by_number


def _write_values(path: Path, chunks: Iterable[NDArray[Any]]) -> int:
    """Write arrays to a file that `map_values` reads; return the number of values."""
    count = 0
    with CheckedFile(path) as file:
        for chunk in chunks:
            file.write(chunk.data)
            count += len(chunk)
    return count


def _read_values(path: Path) -> NDArray[np.uint32]:
    """Read all values of a file into a new array in memory."""
    values = np.empty(count_values(path, np.uint32), np.uint32)
    for number, chunk in enumerate(_read_chunks(path, np.uint32)):
        values[number * _CHUNK_VALUES :][: len(chunk)] = chunk
    return values


def _read_chunks(path: Path, dtype: type[np.generic]) -> Iterator[NDArray[Any]]:
    """Yield the values of a file in arrays of at most 1 Mi values."""
    count = count_values(path, dtype)
    for start in range(0, count, _CHUNK_VALUES):
        yield map_values(path, dtype, start, min(start + _CHUNK_VALUES, count))
