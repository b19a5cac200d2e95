"""The stage `plan`: from the lengths of documents alone, what is drawn and where in the packed set it lies.

In memory are a few arrays of 4 bytes a draw at a time; what is decided goes to files, which later stages map.
"""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.packing.best_fit_rows import best_fit_rows
from pipeline_assets.corpus.packing.budget import budget_of
from pipeline_assets.corpus.packing.corpus_lengths import document_lengths, source_ranges
from pipeline_assets.corpus.packing.draw_order import documents_of, number_draws, packed_order
from pipeline_assets.corpus.packing.drawn import Drawn
from pipeline_assets.corpus.packing.mixture import Mixture, SourceText, taken_from
from pipeline_assets.corpus.packing.plan_files import DRAWN, PLAN, PlanFiles, PlannedCorpus, mapped
from pipeline_assets.corpus.packing.recipe import PackRecipe
from pipeline_assets.corpus.packing.segments import Segments
from pipeline_assets.corpus.packing.sequential import sequential_rows
from pipeline_assets.corpus.spine.building import BuildFolder, OutputFile, Receipt
from pipeline_assets.corpus.spine.durable import DurableFile
from pipeline_assets.corpus.spine.hashes import file_sha256
from pipeline_assets.corpus.spine.stage import Window

_CHUNK = 1 << 20


def plan_rows(shard: PlannedCorpus, window: Window, folder: BuildFolder, recipe: PackRecipe) -> Receipt:
    """Files: those of `PlanFiles`. Counts: `tokens` that are placed, `draws`, `segments`. Notes: `drawn`, see
    `drawn_of`.

    Raises:
        UsageError: there is not enough of a source.
    """
    files = PlanFiles.below(folder)
    order, ranked = (folder.path(f"{PLAN}/{name}") for name in ("order", "ranked"))
    lengths = document_lengths(shard.encoded)
    drawn, budget = _draw(shard, lengths, recipe)
    _write(files.taken, [drawn.taken])
    draws = packed_order(drawn, recipe.seed)
    _write(order, [draws])
    documents = documents_of(drawn, draws)
    drawn = replace(drawn, taken=mapped(files.taken, np.uint32))
    in_order = taken_from(lengths, documents)
    del lengths
    if drawn.cut is not None:
        in_order[-1] = drawn.cut[1]
    _write(ranked, [documents])
    del draws, documents
    _place(in_order, drawn, recipe, files, order)
    del in_order
    documents = np.fromfile(ranked, np.uint32)
    segments = _write(files.documents, (documents[ranks] for ranks in _chunks(files.documents, np.uint32)))
    counts = {"tokens": budget, "draws": drawn.draws, "segments": segments}
    notes = {"sources": [asdict(source) for source in drawn.sources], "cut": drawn.cut}
    return Receipt([_listed(path) for path in vars(files).values()], counts, {DRAWN: notes})


def _listed(path: Path) -> OutputFile:
    sha256 = file_sha256(path)
    return OutputFile(f"{PLAN}/{path.name}", 0, path.stat().st_size, sha256, sha256)


def _draw(shard: PlannedCorpus, lengths: NDArray[np.int32], recipe: PackRecipe) -> tuple[Drawn, int]:
    """What is drawn, and the tokens that it has."""
    ranges = source_ranges(shard.encoded)
    texts = [
        SourceText(
            one.name,
            Fraction(recipe.weights[one.name]),
            recipe.max_epochs.cap(one.name),
            lengths[one.first : one.stop],
            int(lengths[one.first : one.stop].sum(dtype=np.int64)),
            one.rejected,
        )
        for one in ranges
    ]
    mixture = Mixture(texts, recipe.seed)
    budget = budget_of(mixture, recipe)
    return number_draws(mixture, ranges, mixture.draws(budget)), budget


def _place(lengths: NDArray[np.int32], drawn: Drawn, recipe: PackRecipe, files: PlanFiles, order: Path) -> None:
    """Writes all that tells of rows, but for `documents`: there the ranks of draws stand."""
    first_rows, is_whole = np.empty(len(lengths), np.uint32), np.empty(len(lengths), bool)
    last_row, placed = -1, 0
    with (
        DurableFile(files.row_starts) as row_starts,
        DurableFile(files.documents) as ranks,
        DurableFile(files.starts) as starts,
        DurableFile(files.lengths) as pieces,
    ):
        for segments in _rows(lengths, recipe):
            begins = segments.starts == 0
            beginning = segments.ranks[begins]
            first_rows[beginning] = segments.rows[begins]
            is_whole[beginning] = segments.lengths[begins] == lengths[beginning]
            is_first = np.diff(segments.rows, prepend=last_row) > 0  # no row is empty
            row_starts.write((placed + np.flatnonzero(is_first)).data)
            last_row, placed = segments.rows[-1], placed + len(segments.rows)
            ranks.write(segments.ranks.astype(np.uint32).data)
            starts.write(segments.starts.data)
            pieces.write(segments.lengths.data)
        row_starts.write(np.int64(placed).data)
    if drawn.cut is not None:
        is_whole[-1] = False
    _write(files.first_rows, [_by_number(first_rows, order)])
    _write(files.is_whole, [_by_number(is_whole, order)])


def _rows(lengths: NDArray[np.int32], recipe: PackRecipe) -> Iterator[Segments]:
    if recipe.strategy == "sequential":
        return sequential_rows(lengths, recipe.seq_len)
    return best_fit_rows(lengths, recipe.seq_len, recipe.num_seqs, recipe.seed)


def _by_number(by_rank: NDArray[Any], order: Path) -> NDArray[Any]:
    """Of draws in their packed order → by their numbers."""
    by_number = np.empty_like(by_rank)
    first = 0
    for numbers in _chunks(order, np.uint32):
        by_number[numbers] = by_rank[first : first + len(numbers)]
        first += len(numbers)
    return by_number


def _write(path: Path, chunks: Iterable[NDArray[Any]]) -> int:
    """How many values there are."""
    count = 0
    with DurableFile(path) as file:
        for chunk in chunks:
            file.write(chunk.data)
            count += len(chunk)
    return count


def _chunks(path: Path, dtype: type[np.generic]) -> Iterator[NDArray[Any]]:
    """A raw file, read in pieces that aren't kept."""
    with open(path, "rb") as file:
        while len(chunk := np.fromfile(file, dtype, _CHUNK)):
            yield chunk
