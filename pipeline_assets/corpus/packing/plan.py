"""The stage `plan`: from the lengths of documents alone, what is drawn and where in the packed set it lies.

In memory are a few arrays of 4 bytes a draw at a time; what is decided goes to files, which later stages map. Draws are
packed in a seeded order over all sources; the document that the budget cuts comes last.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.packing import plan_files
from pipeline_assets.corpus.packing.mixture import (
    MAX_ITEMS,
    Draws,
    Mixture,
    SourceText,
    bisect_largest,
    chunks,
    gather,
    hashed_order,
)
from pipeline_assets.corpus.packing.recipe import PackRecipe, ResolvedPack
from pipeline_assets.corpus.packing.strategies import best_fit_rows, count_pieces, rows_needed, sequential_rows
from pipeline_assets.corpus.tokens.encode import DocumentTable
from pipeline_assets.spine.durable import DurableFile
from pipeline_assets.spine.errors import UsageError, bare, key
from pipeline_assets.spine.files import file_sha256
from pipeline_assets.spine.stage import Window
from pipeline_assets.spine.staging import OutputFile, Receipt, StagingView


def number_draws(mixture: Mixture, draws: Draws) -> plan_files.Drawn:
    """
    Raises:
        UsageError: there are more than can be numbered.
    """
    sources: list[plan_files.DrawnSource] = []
    taken: list[NDArray[np.uint32]] = []
    cut, first_draw, first_taken = None, 0, 0
    for number, (source, drawn) in enumerate(zip(mixture.sources, draws.source_draws, strict=True)):
        is_cut = draws.cut is not None and draws.cut.source == number
        order = mixture.order(number, drawn.epochs)[: drawn.partial + is_cut]
        stop, stop_taken = source.first + len(source.lengths), first_taken + len(order)
        sources.append(
            plan_files.DrawnSource(source.name, source.first, stop, first_draw, drawn.epochs, first_taken, stop_taken)
        )
        last = order[-1:].copy()
        order.sort()
        taken.append(order)
        if draws.cut is not None and is_cut:
            in_last_epoch = int(np.searchsorted(order, last[0]))
            cut = first_draw + drawn.epochs * sources[-1].documents + in_last_epoch, draws.cut.tokens
        first_draw, first_taken = first_draw + sources[-1].draws, stop_taken
    if first_draw > MAX_ITEMS:
        raise UsageError(
            f"{first_draw:,} documents are drawn", bare("pack.num_seqs"), f"pack at most {MAX_ITEMS:,} at a time"
        )
    return plan_files.Drawn(sources, np.concatenate(taken), cut)


def packed_order(drawn: plan_files.Drawn, seed: int) -> NDArray[np.uint32]:
    """The numbers of draws, in the order in which they are packed, shape (draws,)."""
    order = hashed_order(drawn.draws, seed, "draws")
    if drawn.cut is not None:
        place = int(np.flatnonzero(order == drawn.cut[0])[0])
        order[place:] = np.roll(order[place:], -1)
    return order


def drawn_documents(drawn: plan_files.Drawn, draws: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """The documents that were drawn, numbered in the corpus; in the place of the draws, which are lost."""
    first_draws = np.array([one.first_draw for one in drawn.sources])
    first_documents = np.array([one.first_document for one in drawn.sources])
    documents = np.array([one.documents for one in drawn.sources])
    in_epochs = np.array([one.epochs * one.documents for one in drawn.sources])
    first_taken = np.array([one.first_taken for one in drawn.sources])
    for chunk in chunks(len(draws)):
        source = np.searchsorted(first_draws, draws[chunk], side="right") - 1
        draw = draws[chunk] - first_draws[source]
        found = first_documents[source] + draw % documents[source]
        beyond = np.flatnonzero(draw >= in_epochs[source])  # the whole epochs: of the last one's prefix
        of = source[beyond]
        found[beyond] = first_documents[of] + drawn.taken[first_taken[of] + draw[beyond] - in_epochs[of]]
        draws[chunk] = found
    return draws


_CHUNK = 1 << 20


def plan_rows(
    encoded: Sequence[plan_files.EncodedShard], window: Window, folder: StagingView, asked: PackRecipe
) -> Receipt:
    """Files: those of `PlanFiles`. Counts: `tokens` that are placed, `draws`, `segments`. Notes: `settled`, see
    `read_drawn`.

    Raises:
        UsageError: there is not enough of a source.
    """
    files, lengths = plan_files.PlanFiles.below(folder), document_lengths(encoded)
    mixture, recipe = _resolve(encoded, lengths, asked)
    order, ranked = (folder.path(f"{plan_files.PLAN}/{name}") for name in ("order", "ranked"))
    # All of it may fill less than a row; who asks for rows by number wants full ones.
    is_all = asked.num_seqs is None and asked.strategy == "best_fit"
    budget = mixture.largest_budget if is_all else token_budget_for(mixture, recipe)
    drawn = number_draws(mixture, mixture.draws(budget))
    del mixture
    _write(files.taken, [drawn.taken])
    draws = packed_order(drawn, recipe.seed)
    _write(order, [draws])
    documents = drawn_documents(drawn, draws)
    drawn = replace(drawn, taken=plan_files.mapped(files.taken, np.uint32))
    in_order = gather(lengths, documents)
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
    told = {plan_files.DRAWN: notes, plan_files.SETTLED: recipe.content()}
    return Receipt([_listed(path) for path in vars(files).values()], counts, told)


def _listed(path: Path) -> OutputFile:
    sha256 = file_sha256(path)
    return OutputFile(f"{plan_files.PLAN}/{path.name}", 0, path.stat().st_size, sha256, sha256)


def document_lengths(shards: Sequence[plan_files.EncodedShard]) -> NDArray[np.int32]:
    """Tokens of each document with its end, shape (documents,): 4 bytes a document."""
    firsts = plan_files.first_documents(shards)
    lengths = np.empty(firsts[-1], np.int32)
    for shard, first in zip(shards, firsts.tolist(), strict=False):
        lengths[first : first + shard.documents] = DocumentTable(shard.document_file).tokens
    return lengths


def _resolve(
    shards: Sequence[plan_files.EncodedShard], lengths: NDArray[np.int32], asked: PackRecipe
) -> tuple[Mixture, ResolvedPack]:
    """What is drawn from, and the recipe with the weights and rows that it leaves to what there is."""
    texts: list[SourceText] = []
    stop = 0
    for name, of_source in itertools.groupby(shards, lambda shard: shard.source):
        own = list(of_source)
        first, stop = stop, stop + sum(shard.documents for shard in own)
        tokens, rejected = int(lengths[first:stop].sum(dtype=np.int64)), sum(shard.rejected for shard in own)
        cap = asked.max_epochs.cap(name)
        weight = cap * tokens if asked.weights is None else Fraction(asked.weights[name])
        texts.append(SourceText(name, weight, cap, first, lengths[first:stop], tokens, rejected))
    weights = asked.weights
    if weights is None:
        most = sum(text.weight for text in texts)
        texts = [replace(text, weight=text.weight / most) for text in texts]
        weights = {text.name: str(text.weight) for text in texts}
    mixture, num_seqs = Mixture(texts, asked.seed), asked.num_seqs
    if num_seqs is None:
        there = mixture.largest_budget
        is_sequential = asked.strategy == "sequential"
        num_seqs = there // asked.seq_len if is_sequential else _source_rows(mixture, asked.seq_len)(there)
    return mixture, ResolvedPack.from_content({**asked.content(), "weights": weights, "num_seqs": max(num_seqs, 1)})


def _place(
    lengths: NDArray[np.int32], drawn: plan_files.Drawn, recipe: ResolvedPack, files: plan_files.PlanFiles, order: Path
) -> None:
    """Writes all that tells of rows, but for `documents`: there the ranks of draws stand."""
    first_rows, is_whole = np.empty(len(lengths), np.uint32), np.empty(len(lengths), bool)
    last_row, placed = -1, 0
    if recipe.strategy == "sequential":
        in_rows = sequential_rows(lengths, recipe.seq_len)
    else:
        in_rows = best_fit_rows(lengths, recipe.seq_len, recipe.num_seqs, recipe.seed)
    with (
        DurableFile(files.row_starts) as row_starts,
        DurableFile(files.documents) as ranks,
        DurableFile(files.starts) as starts,
        DurableFile(files.lengths) as pieces,
    ):
        for segments in in_rows:
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


def token_budget_for(mixture: Mixture, recipe: ResolvedPack) -> int:
    """Tokens that are drawn: for `sequential` as many as the rows hold; for `best_fit` the most that bisection finds to
    take no more rows.

    Raises:
        UsageError: a source would have to be taken more often than its cap allows (says what would do), or all that may
            be drawn doesn't fill one row.
    """
    room, there = recipe.num_seqs * recipe.seq_len, mixture.largest_budget
    if recipe.strategy == "sequential":
        if room <= there:
            return room
        raise _shortage_error(mixture, recipe, room, there // recipe.seq_len)
    rows_of = _source_rows(mixture, recipe.seq_len)
    budget = bisect_largest(min(room, there), lambda tokens: rows_of(tokens) <= recipe.num_seqs)
    possible = rows_of(there) if there >= recipe.seq_len else 0
    if budget == there and possible < recipe.num_seqs:
        asked = bisect_largest(room, lambda tokens: rows_of(tokens) <= recipe.num_seqs)
        raise _shortage_error(mixture, recipe, asked, possible)
    return budget


def _source_rows(mixture: Mixture, seq_len: int) -> Callable[[int], int]:
    """Return what tells how many rows best fit makes of a budget."""
    of_epoch = [count_pieces(source.lengths, seq_len) for source in mixture.sources]

    def count_rows(budget: int) -> int:
        draws = mixture.draws(budget)
        pieces = count_pieces(np.array([draws.cut.tokens] if draws.cut else [], np.int32), seq_len)
        for number, drawn in enumerate(draws.source_draws):
            partial = mixture.in_order(number, drawn.epochs)[: drawn.partial]
            pieces += drawn.epochs * of_epoch[number] + count_pieces(partial, seq_len)
        return rows_needed(pieces, seq_len)

    return count_rows


def _shortage_error(mixture: Mixture, recipe: ResolvedPack, asked: int, possible: int) -> UsageError:
    """
    Args:
        asked: tokens that fill the rows.
        possible: rows that there are tokens for.
    """
    source = min(mixture.sources, key=lambda source: source.most / source.weight)
    of_it = math.ceil(source.weight * asked)
    epochs = _decimal(Fraction(of_it, source.tokens), 3, up=True)
    cap = recipe.max_epochs.sources.get(source.name, recipe.max_epochs.every_source)
    rows = "1 row takes" if recipe.num_seqs == 1 else f"{recipe.num_seqs:,} rows take"
    what = (
        f"{rows} {of_it:,} tokens of {source.name}, which has {source.tokens:,}{_without_rejected(source)}: "
        f"{epochs} epochs, and its cap is {cap}"
    )
    fixes = [f"ask for {possible:,} rows at most"]
    if not possible:
        shorter = f"make rows shorter by {key('pack.seq_len')}"
        fixes = [f"{shorter}: what may be drawn doesn't fill one of {recipe.seq_len:,}"]
    there, is_only = sum(one.most for one in mixture.sources), len(mixture.sources) == 1
    if there >= asked and not is_only:
        fixes.append(f"give it a weight of {_round_down(source.most / asked)} at most")
    elif there >= recipe.seq_len and not is_only and not possible:
        fixes.append("give it a lower weight and ask for fewer rows")
    return UsageError(what, bare("pack.num_seqs"), ", or ".join([*fixes, "raise its max_epochs"]))


def _without_rejected(source: SourceText) -> str:
    """What a source has not, though it was given: nobody looks for it in a file of rejects."""
    if not source.rejected:
        return ""
    return f" ({source.rejected:,} of its {source.rejected + len(source.lengths):,} texts can't be encoded)"


def _round_down(value: Fraction) -> str:
    """The value, above 0, as a decimal, rounded down, but not to 0."""
    places = 6
    while (short := _decimal(value, places)) == "0":
        places += 3
    return short


def _decimal(value: Fraction, places: int, up: bool = False) -> str:
    """The value as a decimal, rounded down, or up."""
    scaled = value * 10**places
    whole, part = divmod(-int(-scaled // 1) if up else int(scaled), 10**places)
    return f"{whole:,}.{part:0{places}}".rstrip("0").rstrip(".")
