"""How many tokens fill the rows that a recipe asks for, within what there is of each source."""

import math
from fractions import Fraction

import numpy as np

from pipeline_assets.corpus.packing.best_fit import count_pieces, rows_needed
from pipeline_assets.corpus.packing.mixture import Draws, Mixture, SourceText, largest
from pipeline_assets.corpus.packing.recipe import PackRecipe
from pipeline_assets.corpus.spine.errors import UsageError, bare


def budget_of(mixture: Mixture, recipe: PackRecipe) -> int:
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
        raise _not_enough(mixture, recipe, room, there // recipe.seq_len)
    rows = _Rows(mixture, recipe.seq_len)
    budget = largest(min(room, there), lambda tokens: rows.of(tokens) <= recipe.num_seqs)
    possible = rows.of(there) if there >= recipe.seq_len else 0
    if budget == there and possible < recipe.num_seqs:
        asked = largest(room, lambda tokens: rows.of(tokens) <= recipe.num_seqs)
        raise _not_enough(mixture, recipe, asked, possible)
    return budget


class _Rows:
    """How many rows best fit makes of a budget."""

    def __init__(self, mixture: Mixture, seq_len: int) -> None:
        self._mixture, self._seq_len = mixture, seq_len
        self._of_epoch = [count_pieces(source.lengths, seq_len) for source in mixture.sources]

    def of(self, budget: int) -> int:
        return rows_needed(self._pieces(self._mixture.draws(budget)), self._seq_len)

    def _pieces(self, draws: Draws) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        cut = np.array([draws.cut.tokens] if draws.cut else [], np.int32)
        pieces = count_pieces(cut, self._seq_len)
        for number, drawn in enumerate(draws.of):
            partial = self._mixture.in_order(number, drawn.epochs)[: drawn.partial]
            pieces += drawn.epochs * self._of_epoch[number] + count_pieces(partial, self._seq_len)
        return pieces


def _not_enough(mixture: Mixture, recipe: PackRecipe, asked: int, possible: int) -> UsageError:
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
        fixes = [f"make rows shorter: what may be drawn doesn't fill one of {recipe.seq_len:,}"]
    there, is_only = sum(one.most for one in mixture.sources), len(mixture.sources) == 1
    if there >= asked and not is_only:
        fixes.append(f"give it a weight of {_short(source.most / asked)} at most")
    elif there >= recipe.seq_len and not is_only and not possible:
        fixes.append("give it a lower weight and ask for fewer rows")
    return UsageError(what, bare("pack.num_seqs"), ", or ".join([*fixes, "raise its max_epochs"]))


def _without_rejected(source: SourceText) -> str:
    """What a source has not, though it was given: nobody looks for it in a file of rejects."""
    if not source.rejected:
        return ""
    return f" ({source.rejected:,} of its {source.rejected + len(source.lengths):,} texts can't be encoded)"


def _short(value: Fraction) -> str:
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
