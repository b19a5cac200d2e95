"""Engine that runs a stage over shards, in this process or in workers.

Workers are processes of this machine, or of Ray. They affect neither the written bytes nor the order of receipts.
"""

import contextlib
import functools
import logging
from collections.abc import Callable, Collection, Generator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, TypeAlias

from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.fork_server import forking_starter
from pipeline_assets.spine.kept_work import KeptWork
from pipeline_assets.spine.pool import Pool
from pipeline_assets.spine.progress import Progress
from pipeline_assets.spine.ray_engine import ray_stage_runner
from pipeline_assets.spine.stage import WHOLE_SHARD, S, WarmUp, Work, no_warm_up, run_shard
from pipeline_assets.spine.staging import Receipt, StagingDir, StagingView
from pipeline_assets.spine.start_method import StartMethod, default_start_method
from pipeline_assets.spine.task_digest import task_digest
from pipeline_assets.spine.verified_reads import check_hashes
from pipeline_assets.spine.worker import Starter, Worker, serve, start_process

logger = logging.getLogger("corpusmill")

COMPRESSION_RATIO = 4  # bytes of text per byte of a compressed shard, roughly
PROCESS_BYTES = 200 << 20  # memory of a process without data: libraries, compiled code, tables
_LARGE_SHARD_MULTIPLE = 16  # multiple of `min_parallel_bytes`
EngineName: TypeAlias = Literal["local", "ray"]
_PROGRESS_COUNTS = ("documents", "tokens", "bytes")  # counts shown in progress lines


@dataclass(frozen=True)
class RunSettings:
    """Settings for speed, memory and storage that change no byte of content.

    Attributes:
        workers: Total number of worker processes; 0 runs shards in this process, where a poison row ends the build.
        start_method: How workers start, see `StartMethod`.
        max_growth_bytes: Memory growth after which a forked worker is replaced by a new fork, which again shares most
            memory with its parent.
        min_parallel_bytes: Compressed bytes below which a stage starts no workers, see `limit_workers`.
        progress_name: Name of the artifact in progress lines; empty if only one artifact is built.
        zstd_level: Compression level of text files.
        intermediate_zstd_level: Compression level of intermediate artifacts; None for `zstd_level`.
        engine: Engine of the workers: processes of this machine, or Ray.
        worker_bytes: Memory of one worker. Ray reserves it; deduplication writes data above this size to disk.
        faiss_gpu: Index of the GPU that faiss uses; None for the CPU.
        vocabulary: File of the o200k tokenizer; recipes pin its sha256. None for the shipped file.
        kept_work: Task results to reuse from the earlier version and to keep for the next version; None disables both.
    """

    workers: int = 0
    start_method: StartMethod = field(default_factory=default_start_method)
    log_every_s: float = 10.0
    max_growth_bytes: int = 192 << 20
    min_parallel_bytes: int = 0
    progress_name: str = ""
    zstd_level: int = 3
    intermediate_zstd_level: int | None = None
    fetch_threads: int = 8
    engine: EngineName = "local"
    worker_bytes: int = 1 << 30
    faiss_gpu: int | None = None
    vocabulary: Path | None = None
    kept_work: KeptWork | None = None

    def title(self, stage: str) -> str:
        return f"{stage} {self.progress_name}".rstrip()


def limit_workers(staging: StagingDir, settings: RunSettings, shard_sizes: Collection[int]) -> RunSettings:
    """Return `settings`, but without workers if the shards are too small to need any.

    Workers are kept if all shards except the largest have at least `min_parallel_bytes` in total. They are also kept if
    the largest shard far exceeds `min_parallel_bytes`, or if an earlier build failed, because workers isolate rows that
    crash a process. `shard_sizes` are compressed bytes: divide bytes of plain text by `COMPRESSION_RATIO`.
    """
    largest, limit = max(shard_sizes, default=0), settings.min_parallel_bytes
    is_small = sum(shard_sizes) - largest < limit and largest < _LARGE_SHARD_MULTIPLE * limit
    return replace(settings, workers=0) if is_small and not staging.has_partial_work else settings


StageRunner: TypeAlias = Callable[[str, Sequence[S], StagingView], Generator[Receipt]]
"""`run_stage` with its work and settings bound: takes the stage name, shards and folder, and yields receipts."""


def run_stage(
    stage: str,
    work: Work[S],
    shards: Sequence[S],
    staging: StagingView,
    settings: RunSettings,
    warm_up: WarmUp = no_warm_up,
) -> Generator[Receipt]:
    """Run a stage over shards, and yield their receipts in the order of `shards`.

    Receipts of finished shards are reused. Unfinished shards are run, and their receipts are committed under `stage`.
    `warm_up` loads the data that all shards share; spawned workers load it when they run their first shard.
    """
    return stage_runner(work, settings, warm_up)(stage, shards, staging)


def stage_runner(work: Work[S], settings: RunSettings, warm_up: WarmUp = no_warm_up) -> StageRunner[S]:
    """Return a function that runs several stages in the same workers.

    The workers load shared data once. `work` recognizes a stage by the type of its shards. Local workers stop when the
    last reference to the function is dropped.
    """
    runner: StageRunner[S] = functools.partial(_run_in_process, work, functools.cache(warm_up))
    if settings.workers > 0 and settings.engine == "ray":
        runner = ray_stage_runner(work, warm_up, settings.workers, settings.worker_bytes)
    elif settings.workers > 0:
        start: Starter = functools.partial(start_process, "spawn", serve, work)
        if settings.start_method == "forkserver":
            start = forking_starter(work, warm_up, settings.max_growth_bytes)
        runner = Pool[S](lambda: Worker(start()), settings.workers).run
    return functools.partial(run_unfinished_shards, settings=settings, runner=runner, work=work)


def _run_in_process(
    work: Work[S], warm_up_once: WarmUp, stage: str, shards: Sequence[S], staging: StagingView
) -> Generator[Receipt]:
    for shard in shards:
        warm_up_once()
        yield run_shard(work, shard, WHOLE_SHARD, staging, stage)


def run_unfinished_shards(
    stage: str,
    shards: Sequence[S],
    staging: StagingView,
    settings: RunSettings,
    runner: StageRunner[S],
    work: Work[S] | None = None,
) -> Generator[Receipt]:
    """Yield the receipts of `shards` in order; run unfinished ones with `runner`.

    With `settings.kept_work` and `work`, a shard also counts as finished if the artifact's earlier version kept the
    files of a task with the same `task_digest`. Raise ChangedFileError if a file that a shard reads has changed.
    """
    receipts = {shard.name: staging.read_receipt(stage, shard.name) for shard in shards}
    if len(receipts) < len(shards):
        raise ValueError(f"{stage}: shards must have unique names, got {[shard.name for shard in shards]}")
    finished = {name: receipt for name, receipt in receipts.items() if receipt is not None and _reads_match(receipt)}
    kept, digests = settings.kept_work, dict[str, str]()
    if kept is not None and work is not None:
        described = ((shard.name, task_digest(work, shard, staging.folder)) for shard in shards)
        digests = {name: digest for name, digest in described if digest is not None}
        for name in digests.keys() - finished.keys():
            if (receipt := kept.reuse(stage, name, digests[name], staging)) is not None:
                finished[name] = receipt
    missing = [shard for shard in shards if shard.name not in finished]
    if finished:
        logger.info("%s: %d of %d shards were finished earlier", settings.title(stage), len(finished), len(shards))
    progress = Progress(settings.title(stage), len(shards), "shards", settings.log_every_s)
    with contextlib.closing(runner(stage, missing, staging)) as fresh:
        for shard in shards:
            receipt = finished.get(shard.name) or next(fresh)
            check_hashes(receipt.reads)
            add = progress.add_earlier if shard.name in finished else progress.add
            add(1, {name: receipt.counts[name] for name in _PROGRESS_COUNTS if name in receipt.counts})
            if kept is not None and shard.name in digests:
                kept.add(stage, shard.name, digests[shard.name], receipt)
            yield receipt


def _reads_match(receipt: Receipt) -> bool:
    """Check whether the files that a finished shard read had their expected hashes."""
    try:
        check_hashes(receipt.reads)
    except InputError:
        return False
    return True
