"""The steps of a deduplication, each over files: sketches → exact copies → pairs → edges → decisions → documents.

What is worked on at a time are shards of the corpus, or ranges of what is sorted. Ranges depend on how much memory
there is; what they add up to doesn't.
"""

import contextlib
import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline_assets.corpus.dedup import candidates, sketches, verify
from pipeline_assets.corpus.dedup.candidates import (
    BLOCK_DOCUMENTS,
    PAIRS,
    find_copies,
    propose_neighbours,
    propose_pairs,
    searching_device,
)
from pipeline_assets.corpus.dedup.corpus_shard import CorpusShard
from pipeline_assets.corpus.dedup.order import (
    KeyRange,
    Runs,
    are_members,
    document_numbers,
    even_ranges,
    include,
    no_documents,
    ranges,
    rows_of,
    save,
    write_run,
)
from pipeline_assets.corpus.dedup.recipe import BinarySketchRecipe, DedupRecipe, NearRecipe
from pipeline_assets.corpus.dedup.resolution import (
    ExactCopies,
    LargeGroup,
    NearDuplicates,
    decide_shard,
    keep_documents,
    near_duplicates,
)
from pipeline_assets.corpus.dedup.seen import SeenRun, SeenStore
from pipeline_assets.corpus.dedup.sketches import BANDS, BITS, FATAL, HASHES, ID_HASHES, IDS, sketch_shard
from pipeline_assets.corpus.dedup.tasks import Task, do, parts, share_bytes
from pipeline_assets.corpus.dedup.verify import SETS, SetsFile, verify_pairs, write_sets
from pipeline_assets.corpus.doc_ids import first_repeat
from pipeline_assets.corpus.formats.parquet import mask, numbers, read_columns, truths
from pipeline_assets.corpus.spine.engine import RunSettings, RunStage, run_stages, settings_for
from pipeline_assets.corpus.spine.errors import InputError, UsageError, bare
from pipeline_assets.corpus.spine.staging import WORK, Receipt, StagingDir, total_counts


@dataclass(frozen=True)
class DedupRun:
    """One deduplication under way.

    Attributes:
        seen: stores whose documents come before those of the shards.
    """

    building: StagingDir
    shards: Sequence[CorpusShard]
    recipe: DedupRecipe
    settings: RunSettings
    run_stage: RunStage[Task]
    seen: Sequence[SeenStore] = ()

    @property
    def share_bytes(self) -> int:
        """What one worker may hold of the corpus."""
        return share_bytes(self.settings)

    @property
    def parts(self) -> int:
        """Into how many parts work is cut at least."""
        return parts(self.settings)

    @property
    def documents(self) -> int:
        """How many have a number: those seen before, and all of the shards, those that can't be read too."""
        return sum(store.documents for store in self.seen) + sum(shard.rows for shard in self.shards)

    def run(self, stage: str, tasks: Iterable[Task]) -> list[Receipt]:
        """A receipt of each task."""
        return list(self.run_stage(stage, list(tasks), self.building))

    def runs(self, receipts: Iterable[Receipt], area: str = WORK) -> Runs:
        """The runs below an area that receipts name."""
        files = (file.path for receipt in receipts for file in receipt.files)
        return tuple(self.building.path(path) for path in files if path.startswith(f"{area}/"))


@contextlib.contextmanager
def open_run(
    building: StagingDir,
    shards: Sequence[CorpusShard],
    recipe: DedupRecipe,
    settings: RunSettings,
    seen: Sequence[SeenStore] = (),
) -> Iterator[DedupRun]:
    """A deduplication of these shards; its workers end with the block."""
    settings = settings_for(building, settings, [shard.file.stat().st_size for shard in shards])
    with run_stages(do, settings, functools.partial(_load_kernels, recipe)) as run_stage:
        yield DedupRun(building, shards, recipe, settings, run_stage, seen)


def _load_kernels(recipe: DedupRecipe) -> None:
    sketches.load_kernels(recipe)
    if recipe.near is not None:
        candidates.load_kernels()
        verify.load_kernels()


_NEAR, _OF_FIRSTS = f"{WORK}/near", f"{WORK}/of_firsts.parquet"
_COPIES, _COMPARED = f"{WORK}/copies.set", f"{WORK}/compared.set"
_HASH_BYTES, _BAND_BYTES, _PAIR_BYTES = 250, 120, 250  # of memory for a row: as read, as sorted, as written
_SEEN_ROWS = 4  # as they are read, take no more than one that is sorted and paired
_SHINGLE_BYTES = 24  # in a set as it is read, and with others in one array
_SETS_SHARE = 2  # sets may have half of a worker's memory


def sketch_corpus(dedup: DedupRun) -> list[Receipt]:
    """Receipts of `sketch_shard`, one a shard.

    Raises:
        UsageError: no document has the quality column.
        InputError: a line that is no Document, or two documents with one id.
    """
    sketched = dedup.run("sketch", (Task.of(sketch_shard, shard, dedup.recipe) for shard in dedup.shards))
    counts, column = total_counts(sketched), dedup.recipe.quality_column
    if column is not None and counts["documents"] and not counts["with_quality"]:
        what, fix = f"no document has a `{column}`", "name a number that is in their meta"
        raise UsageError(what, bare("dedup.quality_column"), fix)
    _check_ids(dedup, sketched)
    return sketched


def _check_ids(dedup: DedupRun, sketched: Sequence[Receipt]) -> None:
    repeat = first_repeat(dedup.runs(sketched, ID_HASHES))
    if repeat is None:
        return
    runs = dedup.runs(sketched, IDS)
    doc_id = read_columns(runs[repeat.shard])["doc_id"][repeat.row]
    first, second, *_ = np.sort(np.concatenate([_documents_with(doc_id, run) for run in runs])).tolist()
    what = f"{doc_id} is the id of {_place(dedup, first)} and of {_place(dedup, second)}"
    raise InputError(what, dedup.building.target, "give every source ids of its own: normalise one again")


def _documents_with(doc_id: pa.Scalar, run: Path) -> NDArray[np.uint64]:
    import pyarrow.compute as pc

    table = read_columns(run)
    is_it = truths(pc.equal(table["doc_id"].combine_chunks(), doc_id))
    return document_numbers(numbers(table["order"])[is_it])


def _place(dedup: DedupRun, number: int) -> str:
    shard = next(shard for shard in reversed(dedup.shards) if shard.first_number <= number)
    return f"{shard.source}/{shard.path} row {number - shard.first_number}"


def find_exact(dedup: DedupRun, sketched: Sequence[Receipt]) -> ExactCopies:
    """All exact copies, out of the sketches of the corpus."""
    seen = tuple(store.hashes for store in dedup.seen)
    hashes = _even_ranges(dedup, dedup.runs(sketched, HASHES), seen, _HASH_BYTES)
    found = dedup.runs(dedup.run("exact", (Task.of(find_copies, one, seen) for one in hashes)))
    return ExactCopies(found, save(_documents_in(dedup, found, "number"), dedup.building.path(_COPIES)))


def _documents_in(dedup: DedupRun, runs: Runs, *columns: str) -> NDArray[np.uint8]:
    """The set of documents that stand in columns of runs."""
    members = no_documents(dedup.documents)
    for run in runs:
        for column in read_columns(run, list(columns)).columns:
            include(members, numbers(column))
    return members


def find_near(dedup: DedupRun, sketched: Sequence[Receipt], recipe: NearRecipe, exact: ExactCopies) -> NearDuplicates:
    """All near duplicates that bands or sketches propose, out of the sketches of the corpus and its texts."""
    if recipe.faiss is not None:
        tasks = _to_neighbours(dedup, dedup.runs(sketched, BITS), recipe.faiss, recipe.max_compared, exact)
    else:
        seen = tuple(store.bands for store in dedup.seen if store.bands is not None)
        bands = _even_ranges(dedup, dedup.runs(sketched, BANDS), seen, _BAND_BYTES)
        tasks = [Task.of(propose_pairs, one, seen, exact.copies, recipe.max_compared) for one in bands]
    proposed = dedup.run("propose", tasks)
    pairs = dedup.runs(proposed, PAIRS)
    compared = save(_documents_in(dedup, pairs, "later", "earlier"), dedup.building.path(_COMPARED))
    words = recipe.proposer.shingle_words
    written = dedup.run("shingle", (Task.of(write_sets, shard, compared, words, SETS) for shard in dedup.shards))
    edges = _verify(dedup, pairs, written, recipe)
    return resolve_clusters(dedup, dedup.runs(edges), exact, total_counts([*proposed, *written, *edges]))


def resolve_clusters(dedup: DedupRun, edges: Runs, exact: ExactCopies, counts: Mapping[str, int]) -> NearDuplicates:
    """Who goes, by the edges: runs of them in the order of their ranges; `counts` of how they came about."""
    dropped, firsts = no_documents(dedup.documents), _documents_in(dedup, exact.runs, "first")
    names, of_firsts = [], []
    for number, table in enumerate(near_duplicates(edges, dropped)):
        names.append(write_run(dedup.building, f"{_NEAR}/{number:05d}.parquet", table).path)
        of_firsts.append(table.filter(mask(are_members(numbers(table["number"]), firsts))))
    names.append(write_run(dedup.building, _OF_FIRSTS, pa.concat_tables(of_firsts).sort_by("number")).path)
    *runs, run_of_firsts = map(dedup.building.path, names)
    return NearDuplicates(tuple(runs), run_of_firsts, edges, counts)


def _to_neighbours(
    dedup: DedupRun, runs: Runs, recipe: BinarySketchRecipe, max_compared: int, exact: ExactCopies
) -> list[Task]:
    """Blocks of documents, each with all those before it."""
    seen = [
        block
        for store in dedup.seen
        if store.sketches is not None
        for block in ranges((store.sketches.path,), BLOCK_DOCUMENTS, store.sketches.first_number)
    ]
    own = ranges(runs, max(min(BLOCK_DOCUMENTS, rows_of(runs) // dedup.parts), 1))
    sources = None
    if dedup.recipe.scope == "per-source":
        sources = [span for store in dedup.seen for span in store.sources]
        sources += [(shard.first_number, shard.source) for shard in dedup.shards]
    device = searching_device(dedup.settings.faiss_gpu)
    rules = (exact.copies, sources, recipe, max_compared, device)
    return [Task.of(propose_neighbours, block, (*seen, *own[:number]), *rules) for number, block in enumerate(own)]


def _even_ranges(dedup: DedupRun, runs: Runs, seen: Sequence[SeenRun], row_bytes: int) -> list[KeyRange]:
    """Ranges that fit into memory. What was seen is read with them, and most of it left out at once."""
    rows = rows_of(runs) + rows_of(run.path for run in seen) // _SEEN_ROWS
    return even_ranges(runs, rows, dedup.share_bytes // row_bytes)


def _verify(dedup: DedupRun, pairs: Runs, written: Sequence[Receipt], recipe: NearRecipe) -> list[Receipt]:
    own = [SetsFile(0, *dedup.runs([receipt])) for receipt in written if receipt.files]
    sets = (*(file for store in dedup.seen for file in store.sets), *own)
    for_sets = dedup.share_bytes // _SETS_SHARE
    rules = (sets, recipe.threshold, for_sets // _SHINGLE_BYTES, recipe.max_compared if recipe.faiss else None)
    by_later = ranges(pairs, min(for_sets // _PAIR_BYTES, -(-rows_of(pairs) // dedup.parts)))
    return dedup.run("verify", (Task.of(verify_pairs, one, *rules) for one in by_later))


def write_decisions(
    dedup: DedupRun, sketched: Sequence[Receipt], exact: ExactCopies, near: NearDuplicates
) -> list[Receipt]:
    """Receipts of `decide_shard`, one a shard."""
    rules = (exact, near, tuple(dedup.seen), dedup.settings.zstd_level)
    ids = (dedup.runs([sketch], IDS) for sketch in sketched)
    of_shards = zip(dedup.shards, ids, strict=True)
    return dedup.run("decide", (Task.of(decide_shard, shard, own, *rules) for shard, own in of_shards))


def write_kept(
    dedup: DedupRun, sketched: Sequence[Receipt], decisions: Sequence[Receipt], groups: Sequence[LargeGroup]
) -> list[Receipt]:
    """Receipts of `keep_documents`, one a shard; samples are what is shown of groups."""
    samples = {number for group in groups for number in (group.kept, *group.members)}
    tasks = []
    for shard, sketch, decision in zip(dedup.shards, sketched, decisions, strict=True):
        rows = (number - shard.first_number for number in samples)
        sampled = frozenset(row for row in rows if 0 <= row < shard.rows)
        dropped, fatal = dedup.building.path(decision.files[1].path), frozenset(sketch.notes[FATAL])
        tasks.append(Task.of(keep_documents, shard, dropped, fatal, sampled, dedup.settings.zstd_level))
    return dedup.run("keep", tasks)
