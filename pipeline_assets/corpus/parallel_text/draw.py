"""Draws a sample: k sentence pairs of a translation set in one pass, by one seed.

A pass can be cut anywhere: its cursor holds all that it knows. Where no row's fate depends on its text (no filters,
Algorithm L), rows are passed over unread.
"""

import datetime
import hashlib
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from types import MappingProxyType

import msgspec
import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.compiled import compiled
from pipeline_assets.corpus.document_shards import REJECTS_FILE
from pipeline_assets.corpus.formats.compression import write_rows
from pipeline_assets.corpus.parallel_text import sample
from pipeline_assets.corpus.parallel_text.pairs import SPLITS, Pair, Rows, Sides, TranslationFile, canonical, pair_uid
from pipeline_assets.corpus.readers.columns import Fault
from pipeline_assets.corpus.readers.lines import row_words
from pipeline_assets.corpus.sampling import Reservoir, new_reservoir
from pipeline_assets.corpus.spine import durable
from pipeline_assets.corpus.spine.engine import RunSettings
from pipeline_assets.corpus.spine.errors import InputError, UsageError, bare
from pipeline_assets.corpus.spine.ledger import Ledger, Reject, check_rejects
from pipeline_assets.corpus.spine.staging import WORK, Receipt, StagingDir
from pipeline_assets.corpus.spine.target import BuildResult
from pipeline_assets.corpus.spine.usage import Progress

_LEAST_SLOTS, _MIX, _SHIFT = 1 << 10, np.uint64(0x9E3779B97F4A7C15), np.uint64(20)
_CURSOR, _SEEN = "sample_cursor", "sample_seen"
_MOST_REJECTS = 10_000
_LIGHTEST, _HEAVIEST = 1e-9, 1e9
_CHUNK_ROWS, _SETTINGS = 1_000_000, RunSettings()


class SeenUids:
    """Which uids came before, by their first 64 bits: two pairs of a billion different ones are taken for equal with a
    chance of 1 in 37; of the 40 million of WMT14, 1 in 23,000. Memory: `stream_set_bytes`.
    """

    def __init__(self, rows: int = 0) -> None:
        self._slots = np.zeros(_slots_for(rows), np.uint64)
        self._held = 0

    def add(self, uid_bits: int) -> bool:
        """Whether this is the first time."""
        if 2 * (self._held + 1) > len(self._slots):
            former, self._slots = self._slots, np.zeros(2 * len(self._slots), np.uint64)
            _insert_all(self._slots, former)
        is_new = bool(_insert(self._slots, np.uint64(uid_bits or 1)))  # 0 is an empty slot
        self._held += is_new
        return is_new


def stream_set_bytes(rows: int) -> int:
    """Memory that a set of so many uids takes: 16 to 32 bytes a row; half more while it grows, if it wasn't told."""
    return 8 * _slots_for(rows)


def _slots_for(rows: int) -> int:
    return max(_LEAST_SLOTS, 1 << (2 * rows - 1).bit_length())


@compiled
def _insert(slots: NDArray[np.uint64], bits: np.uint64) -> bool:
    """Linear probing."""
    last = np.uint64(len(slots) - 1)
    place = ((bits * _MIX) >> _SHIFT) & last
    while slots[place] != 0:
        if slots[place] == bits:
            return False
        place = (place + np.uint64(1)) & last
    slots[place] = bits
    return True


@compiled
def _insert_all(slots: NDArray[np.uint64], former: NDArray[np.uint64]) -> None:
    for bits in former:
        if bits != 0:
            _insert(slots, bits)


class Cursor(msgspec.Struct):
    """Where a pass is: the next row of a file, the rows of the files before it, how often it stopped, and
    what became of all rows."""

    reservoir: Reservoir[Pair]
    file: int = 0
    row: int = 0
    rows_before: int = 0
    stops: int = 0
    dropped: dict[str, int] = {}
    rejects: list[Reject] = []

    @property
    def rows(self) -> int:
        return self.rows_before + self.row

    def ledger(self) -> Ledger:
        """Of the rows so far; those that are held come out."""
        rejected = Counter(reject.reason for reject in self.rejects)
        not_drawn = self.rows - len(self.reservoir.items) - sum(self.dropped.values()) - len(self.rejects)
        dropped = self.dropped | ({"not_drawn": not_drawn} if not_drawn else {})
        return Ledger(
            self.rows, len(self.reservoir.items), dict(sorted(dropped.items())), dict(sorted(rejected.items()))
        )


_decode = msgspec.json.Decoder(Cursor).decode


def new_cursor(recipe: sample.SampleRecipe) -> Cursor:
    """Before the first row."""
    return Cursor(new_reservoir(recipe.algorithm, recipe.k, recipe.seed))


def kept_cursor(building: StagingDir, recipe: sample.SampleRecipe, rows: int) -> tuple[Cursor, SeenUids]:
    """The pass as it was last kept; its beginning where it never was, or some of it is lost."""
    is_stream, last = recipe.duplicates == "stream", building.receipt(_CURSOR, "last")
    cursor, seen = new_cursor(recipe), SeenUids(rows if is_stream else 0)
    if last is None:
        return cursor, seen
    kept = _decode(building.path(last.files[0].path).read_bytes())
    parts = [building.receipt(_SEEN, f"{stop:06d}") for stop in range(kept.stops)] if is_stream else []
    if None in parts:
        return cursor, seen
    for part in filter(None, parts):
        for bits in np.fromfile(building.path(part.files[0].path), "<u8").tolist():
            seen.add(bits)
    return kept, seen


def keep_cursor(building: StagingDir, cursor: Cursor, bits: list[int], recipe: sample.SampleRecipe) -> None:
    """From now on a pass that is cut goes on from here.

    Args:
        bits: what the set of uids got since the last time.
    """
    name, before = f"{cursor.stops - 1:06d}", f"{cursor.stops - 2:06d}"
    if recipe.duplicates == "stream":
        file = building.write(f"{WORK}/{_SEEN}/{name}", np.array(bits, "<u8").tobytes())
        building.commit(_SEEN, name, Receipt([file], {}))
    building.commit(
        _CURSOR, "last", Receipt([building.write(f"{WORK}/{_CURSOR}/{name}", msgspec.json.encode(cursor))], {})
    )
    durable.remove(building.path(f"{WORK}/{_CURSOR}/{before}"))


def draw(
    files: Sequence[TranslationFile], recipe: sample.SampleRecipe, cursor: Cursor, seen: SeenUids, chunk_rows: int
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

    def __init__(self, recipe: sample.SampleRecipe, cursor: Cursor, seen: SeenUids) -> None:
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
        bits = int(pair_uid(self._recipe.languages, src, tgt)[:16], 16)
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


def write_sample(
    building: StagingDir,
    files: Sequence[TranslationFile],
    recipe: sample.SampleRecipe,
    source: sample.SampleSource,
    sampled_at: datetime.datetime,
    rows: int | None = None,
    chunk_rows: int = _CHUNK_ROWS,
    settings: RunSettings = _SETTINGS,
) -> BuildResult:
    """Both files, and the rejects. A pass that was cut goes on from where it was last kept, each `chunk_rows` rows.

    Args:
        files: in the order in which they are read; another order gives another sample.
        rows: of all files, if somebody knows; progress tells rows then, else files.
    Raises:
        UsageError, InputError: fewer than k pairs can be drawn; or as `draw`.
    """
    cursor, seen = kept_cursor(building, recipe, rows or 0)
    progress = Progress("sample", rows or len(files), "rows" if rows else "files", settings.log_every_s)
    done = cursor.rows if rows else cursor.file
    progress.add_done_before(done)
    for bits in draw(files, recipe, cursor, seen, chunk_rows):
        keep_cursor(building, cursor, bits, recipe)
        before, done = done, cursor.rows if rows else cursor.file
        progress.add(done - before)
    try:
        data, meta = _sampled(cursor, recipe, source, sampled_at, building.target)
    except InputError:
        building.discard()  # the pass has ended: nothing is left to go on with
        raise
    rejects = [asdict(reject) for reject in cursor.rejects]
    content = [
        replace(building.write(sample.MANIFEST, data), rows=recipe.k),
        write_rows(building.path(REJECTS_FILE), REJECTS_FILE, rejects, settings.zstd_level),
    ]
    counts = {"ledger": meta.ledger.to_json(), "pairs": dict(meta.split_sizes)}
    decisions = {"filters_sha256": meta.filters_sha256, "order": "split (train, val, test), then uid"}
    return BuildResult(content, counts, decisions, labels=[building.write(sample.MANIFEST_META, meta.to_bytes())])


def materialize(
    k: int = 120,
    seed: int = 42,
    splits: tuple[int, int, int] = (96, 12, 12),
    filters: Mapping[str, object] | None = MappingProxyType({}),
    *,
    files: Sequence[TranslationFile],
    languages: tuple[str, str],
    source: sample.SampleSource,
    folder: Path,
    replace: bool = False,
    **others: object,
) -> Path:
    """For notebooks: the manifest of a sample in a folder of its own, drawn at once.

    A sample is frozen: the request that it was drawn by returns it, and reads no file.

    Args:
        splits: parts for train, val and test.
        filters: None for none; else what differs from the usual ones.
        replace: Draw again, and replace the sample in the folder.
        others: keys of `SampleRecipe`: algorithm, duplicates, weight.
    Raises:
        UsageError, InputError: as `write_sample`; a value that no recipe may have; the folder has the sample of
            another request, or an edited one.
    """
    asked = {"k": k, "seed": seed, "filters": None if filters is None else dict(filters), **others}
    asked["languages"] = dict(zip(("src", "tgt"), languages, strict=True))
    asked["splits"] = dict(zip(SPLITS, splits, strict=True))
    recipe, manifest = sample.SampleRecipe.of(asked, "materialize"), folder / sample.MANIFEST
    if not replace and manifest.exists() and manifest.with_name(sample.MANIFEST_META).exists():
        differences = sample.read_sample(manifest).differences(recipe, source, [file.name for file in files])
        if differences:
            fix = "give another folder, or replace=True to draw the sample again"
            raise UsageError(f"the frozen sample differs: {'; '.join(differences)}", manifest, fix)
        return manifest
    cursor = new_cursor(recipe)
    for _ in draw(files, recipe, cursor, SeenUids(), _CHUNK_ROWS):
        pass
    data, meta = _sampled(cursor, recipe, source, datetime.datetime.now(datetime.UTC), folder)
    durable.make_folder(folder)
    durable.remove(folder / sample.MANIFEST_META)  # it comes last: a sample is whole, or none
    durable.write_durably(manifest, data)
    durable.write_durably(folder / sample.MANIFEST_META, meta.to_bytes())
    return manifest


def _sampled(
    cursor: Cursor, recipe: sample.SampleRecipe, source: sample.SampleSource, sampled_at: datetime.datetime, where: Path
) -> tuple[bytes, sample.SampleMeta]:
    """A sample whose pass has ended: the manifest, and what is told of it.

    Raises:
        InputError, UsageError: too many rejects; fewer than k pairs.
    """
    check_rejects(len(cursor.rejects), cursor.rows, recipe.max_reject_fraction, cursor.rejects, where, _words)
    ledger, held = cursor.ledger(), cursor.reservoir.items
    if len(held) < recipe.k:
        gone = ", ".join(f"{count:,} {reason}" for _, reason, count in ledger.fates()) or "none left out"
        what = f"it is {recipe.k:,}, and {cursor.rows:,} rows have {len(held):,} pairs to draw from ({gone})"
        raise UsageError(what, bare("k"), "ask for fewer, loosen the filters, or give more files")
    told = {"revision": source.revision, "seed": recipe.seed, "k": recipe.k, "filters_sha256": recipe.filters_sha256}
    lines = [
        msgspec.convert({**msgspec.structs.asdict(pair), "split": split, **told}, sample.SampledPair)
        for pair, split in zip(held, sample.assign_splits(held, recipe.splits, recipe.seed), strict=True)
    ]
    lines.sort(key=lambda line: (SPLITS.index(line.split), line.uid, line.file, line.row))
    data = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
    splits = [line.split for line in lines]
    meta = {
        **sample.request_meta(recipe, source),
        "rows_seen": cursor.rows,
        "ledger": ledger.to_json(),
        "split_sizes": {split: splits.count(split) for split in SPLITS},
        "manifest_sha256": hashlib.sha256(data).hexdigest(),
        "sampled_at": sampled_at.isoformat(timespec="seconds"),
    }
    return data, msgspec.convert(meta, sample.SampleMeta)


def _words(reject: Reject) -> str:
    return reject.told(row_words(reject.file, reject.row, None))
