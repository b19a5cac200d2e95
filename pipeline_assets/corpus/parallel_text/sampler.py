"""k sentence pairs of a translation set, drawn in one pass, by one seed.

A pass can be cut anywhere: its cursor holds all that it knows. Where no row's fate depends on its text (no filters,
Algorithm L), rows are passed over unread.
"""

import itertools
from collections.abc import Iterator, Sequence

from pipeline_assets.corpus.parallel_text.cursor import Cursor
from pipeline_assets.corpus.parallel_text.pairs import Pair, canonical, pair_uid
from pipeline_assets.corpus.parallel_text.rows import Rows, Sides, TranslationFile
from pipeline_assets.corpus.parallel_text.sample_recipe import SampleRecipe
from pipeline_assets.corpus.parallel_text.seen_uids import SeenUids, uid_bits
from pipeline_assets.corpus.readers.columns import Fault
from pipeline_assets.corpus.spine.errors import InputError

_MOST_REJECTS = 10_000
_LIGHTEST, _HEAVIEST = 1e-9, 1e9


def draw(
    files: Sequence[TranslationFile], recipe: SampleRecipe, cursor: Cursor, seen: SeenUids, chunk_rows: int
) -> Iterator[list[int]]:
    """Moves the cursor over the files. How often it stops, `chunk_rows`, changes nothing of what is drawn.

    Yields:
        at each stop the bits that `seen` got since the last one.
    Raises:
        UsageError, InputError: as `Rows`; more than 10,000 rows can't be read.
    """
    judge = _Judge(recipe, cursor, seen)
    while cursor.file < len(files):
        rows, judge.file = Rows(files[cursor.file], recipe.languages, recipe.weight_column), files[cursor.file].name
        rows.skip(cursor.row)
        while _goes_on(rows, judge, cursor.row + chunk_rows):
            cursor.stops += 1
            yield judge.new_bits()
        cursor.file, cursor.row, cursor.rows_before = cursor.file + 1, 0, cursor.rows
        cursor.stops += 1
        yield judge.new_bits()


def _goes_on(rows: Rows, judge: "_Judge", stop: int) -> bool:
    """Whether the file may have a row of number `stop`; those before it have been judged."""
    cursor = judge.cursor
    while (left := stop - cursor.row) > 0:
        if judge.is_blind and (wanted := min(cursor.reservoir.gap, left)):
            passed = rows.skip(wanted)
            cursor.reservoir.gap -= passed
        else:
            wanted = 1 if judge.is_blind else left
            passed = judge.see(rows, wanted)
        cursor.row += passed
        if passed < wanted:
            return False
    return True


class _Judge:
    """Lets rows in.

    Attributes:
        file: whose rows come.
        is_blind: whether those that the reservoir passes over need not be looked at.
    """

    def __init__(self, recipe: SampleRecipe, cursor: Cursor, seen: SeenUids) -> None:
        self._recipe, self.cursor, self._seen, self._bits, self.file = recipe, cursor, seen, list[int](), ""
        self._uids = {pair.uid for pair in cursor.reservoir.items}
        self._looks = recipe.filters is not None or recipe.duplicates == "stream" or recipe.weight == "chars"
        self.is_blind = not self._looks and recipe.algorithm == "l"

    def new_bits(self) -> list[int]:
        """What `seen` got since this was asked last."""
        bits, self._bits = self._bits, []
        return bits

    def see(self, rows: Rows, most: int) -> int:
        """How many rows came. Each goes through this loop, which therefore asks local names."""
        recipe, reservoir, dropped = self._recipe, self.cursor.reservoir, self.cursor.dropped
        refuses = None if recipe.filters is None else recipe.filters.refuses
        looks, rule, is_stream = self._looks, recipe.weight, recipe.duplicates == "stream"
        came, gap, reservoir.gap = 0, reservoir.gap, 0
        for row in itertools.islice(rows, most):
            came += 1
            if isinstance(row, Fault):
                self._reject(row, rows.place)
                continue
            src, tgt, weight = row
            reason = None
            if not (isinstance(src, str) and isinstance(tgt, str)):
                reason = "missing_language"
            elif looks:
                src, tgt = canonical(src), canonical(tgt)
                reason = None if refuses is None else refuses(src, tgt)
            if rule is not None and reason is None:
                weight = len(src) + len(tgt) if rule == "chars" else weight
                is_one = isinstance(weight, int | float) and _LIGHTEST <= weight <= _HEAVIEST
                reason = None if is_one else "no_weight"
            if is_stream and reason is None and self._came_before(src, tgt):
                reason = "duplicate"
            if reason is None:
                if gap:
                    gap -= 1
                    continue
                if reservoir.is_turn(weight):
                    reason = self._enter(row, rows.place, weight)
                    gap, reservoir.gap = reservoir.gap, 0
            if reason is not None:
                dropped[reason] = dropped.get(reason, 0) + 1
        reservoir.gap = gap
        return came

    def _reject(self, fault: Fault, place: int) -> None:
        rejects = self.cursor.rejects
        rejects.append(fault.rejected(self.file, place))
        if len(rejects) > _MOST_REJECTS:
            what = f"more than {_MOST_REJECTS:,} rows can't be read; the first is {rejects[0]}"
            raise InputError(what, self.file, "look at those rows, or leave the file out")

    def _came_before(self, src: str, tgt: str) -> bool:
        bits = uid_bits(pair_uid(self._recipe.languages, src, tgt))
        is_new = self._seen.add(bits)
        if is_new:
            self._bits.append(bits)
        return not is_new

    def _enter(self, row: Sides, place: int, weight: float) -> str | None:
        """Takes in the row whose turn it is, or says why not."""
        uid = pair_uid(self._recipe.languages, canonical(row.src), canonical(row.tgt))
        if self._recipe.duplicates == "within" and uid in self._uids:
            self.cursor.reservoir.refuse()
            return "duplicate"
        left = self.cursor.reservoir.put(Pair(uid, row.src, row.tgt, self.file, place), weight)
        self._uids.add(uid)
        if left is not None and left.uid != uid:
            self._uids.discard(left.uid)
        return None
