"""Token budget of a packed set, computed from its number of rows."""

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from pipeline_assets.corpus.packing.mixture import Mixture, bisect_largest_budget
from pipeline_assets.corpus.packing.recipe import ResolvedPack
from pipeline_assets.corpus.packing.strategies import count_best_fit_rows, count_pieces
from pipeline_assets.spine.errors import RecipeKey, UsageError


def token_budget_for(mixture: Mixture, recipe: ResolvedPack) -> int:
    """Return the number of tokens to draw for the recipe's number of rows.

    `sequential` fills all rows. For `best_fit`, bisection finds a budget that needs at most this number of rows.

    Raises:
        UsageError: The caps of the sources allow too few tokens for the rows.
    """
    capacity, available = recipe.num_seqs * recipe.seq_len, mixture.largest_budget
    if recipe.strategy == "sequential":
        if capacity <= available:
            return capacity
        raise _shortage_error(mixture, recipe, capacity, available // recipe.seq_len)
    count_rows = row_counter(mixture, recipe.seq_len)
    budget = bisect_largest_budget(min(capacity, available), lambda tokens: count_rows(tokens) <= recipe.num_seqs)
    possible = count_rows(available) if available >= recipe.seq_len else 0
    if budget == available and possible < recipe.num_seqs:
        requested = bisect_largest_budget(capacity, lambda tokens: count_rows(tokens) <= recipe.num_seqs)
        raise _shortage_error(mixture, recipe, requested, possible)
    return budget


def row_counter(mixture: Mixture, seq_len: int) -> Callable[[int], int]:
    """Return a function that counts the rows that `best_fit` needs for a token budget."""
    epoch_pieces = [count_pieces(source.lengths, seq_len) for source in mixture.sources]

    def count_rows(budget: int) -> int:
        draws = mixture.draw(budget)
        pieces = count_pieces(np.array([draws.cut_tokens], np.int32), seq_len)
        for number, drawn in enumerate(draws.source_draws):
            partial = mixture.epoch_lengths(number, drawn.epochs)[: drawn.next_epoch_documents]
            pieces += drawn.epochs * epoch_pieces[number] + count_pieces(partial, seq_len)
        return count_best_fit_rows(pieces, seq_len)

    return count_rows


def _shortage_error(mixture: Mixture, recipe: ResolvedPack, requested_tokens: int, possible_rows: int) -> UsageError:
    """Return an error, with fixes, that names the source whose tokens run out first.

    If the mixture has several sources, and all reach their caps at the same budget, the error names no source.
    """
    rows = "1 row needs" if recipe.num_seqs == 1 else f"{recipe.num_seqs:,} rows need"
    fixes = [f"request at most {possible_rows:,} rows"]
    if not possible_rows:
        fixes = [f"lower `pack.seq_len`: the available tokens do not fill a row of {recipe.seq_len:,}"]
    available, is_only = sum(source.max_tokens for source in mixture.sources), len(mixture.sources) == 1
    # Without weights in the recipe, a higher cap of one source would also raise its weight.
    if not is_only and len({source.max_tokens / source.weight for source in mixture.sources}) == 1:
        factor = _format_decimal(Fraction(requested_tokens) / available, 3, rounds_up=True)
        what = f"{rows} {requested_tokens:,} tokens, but the caps of all sources allow {int(available):,}"
        fix = f"{fixes[0]}, or multiply every cap in `max_epochs` by {factor}"
        return UsageError(what, RecipeKey("pack.num_seqs"), fix)
    source = min(mixture.sources, key=lambda source: source.max_tokens / source.weight)
    needed = math.ceil(source.weight * requested_tokens)
    epochs = _format_decimal(Fraction(needed, source.tokens), 3, rounds_up=True)
    cap = recipe.max_epochs.sources.get(source.name, recipe.max_epochs.every_source)
    texts = source.rejected + len(source.lengths)
    rejected = f" ({source.rejected:,} of its {texts:,} texts cannot be encoded)" if source.rejected else ""
    what = (
        f"{rows} {needed:,} tokens of {source.name}, which has {source.tokens:,}{rejected}: "
        f"{epochs} epochs, but its max_epochs is {cap}"
    )
    if available >= requested_tokens and not is_only:
        fixes.append(f"lower its weight to at most {_round_down(source.max_tokens / requested_tokens)} of the sum")
    elif available >= recipe.seq_len and not is_only and not possible_rows:
        fixes.append("lower its weight and request fewer rows")
    return UsageError(what, RecipeKey("pack.num_seqs"), ", or ".join([*fixes, "raise its max_epochs"]))


def _round_down(value: Fraction) -> str:
    """Round a positive value down to a decimal with enough places to be above 0."""
    places = 6
    while (short := _format_decimal(value, places)) == "0":
        places += 3
    return short


def _format_decimal(value: Fraction, places: int, rounds_up: bool = False) -> str:
    """Format a value with up to `places` decimals, rounded down, or up if `rounds_up`."""
    scaled = value * 10**places
    whole, part = divmod(-int(-scaled // 1) if rounds_up else int(scaled), 10**places)
    return f"{whole:,}.{part:0{places}}".rstrip("0").rstrip(".")
