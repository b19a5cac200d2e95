"""Runs a stage over shards, in this process or in worker processes: the same receipts in the same order, the same
bytes.
"""

import functools
import logging
from collections.abc import Callable, Collection, Generator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.files import check_hashes
from pipeline_assets.spine.fork_server import StartMethod, default_start_method, starter
from pipeline_assets.spine.pool import Pool
from pipeline_assets.spine.progress import Progress
from pipeline_assets.spine.stage import WHOLE, S, WarmUp, Work, no_warm_up, run_shard
from pipeline_assets.spine.staging import Receipt, StagingDir, StagingView

logger = logging.getLogger("corpusmill")

TIMES_PACKED = 4  # bytes of text to a byte of a compressed shard, about
_LARGE_SHARD = 16  # times as much as workers must take away
_SHOWN = ("documents", "tokens", "bytes")  # the counts of a receipt that progress lines show


@dataclass(frozen=True)
class RunSettings:
    """How work is done: speed, memory and storage, never a byte of content.

    Attributes:
        workers: worker processes; 0 runs in this process, where a row that kills its worker kills the build.
        start_method: how workers start, see `StartMethod`.
        log_every_s: seconds between progress lines.
        growth_bytes: a forked worker that holds so much more memory than at its start makes room for a fresh one. A
            fork costs milliseconds, and shares what its forerunner had a copy of.
        inline_bytes: with fewer bytes of shards beside the largest one, this process does all: see `limit_workers`.
        subject: what is built, named in progress lines; empty where there is one thing only.
        zstd_level: compression of text shards.
        fetch_threads: downloads at a time.
        memory_bytes: what deduplication may take, all processes together; it spills what is beyond.
        faiss_gpu: the GPU that faiss is to search on; None for the CPU.
        vocabulary: file of the o200k tokenizer, whose sha256 recipes pin; None for the file of this program.
    """

    workers: int = 0
    start_method: StartMethod = field(default_factory=default_start_method)
    log_every_s: float = 10.0
    growth_bytes: int = 192 << 20
    inline_bytes: int = 0
    subject: str = ""
    zstd_level: int = 3
    fetch_threads: int = 8
    memory_bytes: int = 2 << 30
    faiss_gpu: int | None = None
    vocabulary: Path | None = None

    def title(self, stage: str) -> str:
        """How progress lines call the work of a stage."""
        return f"{stage} {self.subject}".rstrip()


def limit_workers(building: StagingDir, settings: RunSettings, sizes: Collection[int]) -> RunSettings:
    """The settings, without workers where to start them takes longer than they save: what others work on beside the
    largest shard. Beside one alone that is nothing: there workers only find the row that kills, which is worth their
    start where the shard is large.

    A row that kills its worker kills such a build. The next one finds the folder begun, and the row by workers. Sizes
    are the bytes of each shard, compressed; of text, divide by `TIMES_PACKED`.
    """
    largest = max(sizes, default=0)
    is_small = sum(sizes) - largest < settings.inline_bytes and largest < _LARGE_SHARD * settings.inline_bytes
    return replace(settings, workers=0) if is_small and not building.has_partial_work else settings


RunStage: TypeAlias = Callable[[str, Sequence[S], StagingView], Generator[Receipt]]
"""Receipts of a stage in the order of its shards, by work and with settings that are given already: see `run_stage`."""


def run_stage(
    stage: str,
    work: Work[S],
    shards: Sequence[S],
    folder: StagingView,
    settings: RunSettings,
    warm_up: WarmUp = no_warm_up,
) -> Generator[Receipt]:
    """Receipts in the order of `shards`; finished shards are adopted, the rest are run and committed under `stage`.

    The caller may stop early: shards beyond the last receipt taken may have been run, and their files are swept.
    `warm_up` loads what every shard needs, once: in the process that workers are forked from, or in this one if it runs
    the shards. Spawned workers load with their first shard.

    Raises InputError: from the stage, a file that a shard read is not as it was promised to the build, or a worker that
    dies whatever rows it is given.
    """
    return run_stages(work, settings, warm_up)(stage, shards, folder)


def run_stages(work: Work[S], settings: RunSettings, warm_up: WarmUp = no_warm_up) -> RunStage[S]:
    """What runs several stages by one work, which tells them apart by their shards: what workers load is loaded once.
    Errors as of `run_stage`.
    """
    run_missing = _run_here(work, warm_up) if settings.workers == 0 else _run_in_workers(work, settings, warm_up)
    return functools.partial(adopt_finished_shards, settings=settings, run_missing=run_missing)


def _run_here(work: Work[S], warm_up: WarmUp) -> RunStage[S]:
    warm_up_once = functools.cache(warm_up)

    def run(stage: str, shards: Sequence[S], folder: StagingView) -> Generator[Receipt]:
        for shard in shards:
            warm_up_once()
            yield run_shard(work, shard, WHOLE, folder, stage)

    return run


def _run_in_workers(work: Work[S], settings: RunSettings, warm_up: WarmUp) -> RunStage[S]:
    start = starter(settings.start_method, work, warm_up, settings.growth_bytes)
    return lambda stage, shards, folder: Pool[S](stage, start, folder, settings.workers).run(shards)


def adopt_finished_shards(
    stage: str, shards: Sequence[S], folder: StagingView, settings: RunSettings, run_missing: RunStage[S]
) -> Generator[Receipt]:
    """Receipts in the order of `shards`: those of finished shards, and of the rest as `run_missing` gives them. Errors
    as of `run_stage`.
    """
    found = {shard.name: folder.receipt(stage, shard.name) for shard in shards}
    finished = {name: receipt for name, receipt in found.items() if receipt is not None and _reads_match(receipt)}
    missing = [shard for shard in shards if shard.name not in finished]
    if finished:
        logger.info("%s: %d of %d shards were finished before", settings.title(stage), len(finished), len(shards))
    progress = Progress(settings.title(stage), len(shards), "shards", settings.log_every_s)
    fresh = run_missing(stage, missing, folder)
    try:
        for shard in shards:
            receipt = finished.get(shard.name) or next(fresh)
            check_hashes(receipt.reads)
            add = progress.add_finished if shard.name in finished else progress.add
            add(1, {name: receipt.counts[name] for name in _SHOWN if name in receipt.counts})
            yield receipt
    finally:
        fresh.close()


def _reads_match(receipt: Receipt) -> bool:
    """Whether what a finished shard was made of is what the build was promised; else it is run again."""
    try:
        check_hashes(receipt.reads)
    except InputError:
        return False
    return True
