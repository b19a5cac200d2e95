"""Jobs for tests of launchers: each waits for an instruction."""

import os
import signal
import time
from pathlib import Path

from pipeline_assets.corpus.scoring.launcher import ScoreJob
from pipeline_assets.corpus.scoring.score_shard import Scorer, score_shard
from pipeline_assets.spine.durable import DurableFile
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.stage import Window
from pipeline_assets.spine.staging import WORK_FOLDER, OutputFile, Receipt, StagingView


def job_of(name: str, told: Path, *rows: int) -> ScoreJob:
    """A job that does what a file of its name says, once that is there."""
    return ScoreJob(name, "pool.parquet", told / name, rows or (0,))


def tell(job: ScoreJob, what: str) -> None:
    """`write`, `refuse`, or `die` so many times and write then, such as `die 2`."""
    unfinished = job.pool_path.with_suffix(".unfinished")
    unfinished.write_text(what)
    unfinished.rename(job.pool_path)


def jobs_of(told: Path, **words: str | None) -> list[ScoreJob]:
    """Jobs by name, each with what it is to do; without a word it waits for one."""
    jobs = [job_of(name, told) for name in words]
    for job, word in zip(jobs, words.values(), strict=True):
        if word is not None:
            tell(job, word)
    return jobs


def calls_written(folder: StagingView) -> list[str]:
    """Jobs whose calls are written down."""
    return sorted(path.stem for path in folder.folder.rglob("score.calls/*.json"))


def do_as_told(job: ScoreJob, window: Window, folder: StagingView) -> Receipt:
    with open(_pids(job), "a", encoding="utf-8") as pids:
        pids.write(f"{os.getpid()}\n")
    while not job.pool_path.exists():
        time.sleep(0.002)
        if not job.pool_path.parent.exists():
            raise InputError("its test is over", job.name, "tell it what to do first")
    word, _, times = job.pool_path.read_text().partition(" ")
    if word == "refuse":
        raise InputError("it was told to", job.name, "tell it something else")
    if word == "die" and len(pids_of(job)) <= int(times):
        os.kill(os.getpid(), signal.SIGKILL)
    name = f"{WORK_FOLDER}/made/{job.name}"
    with DurableFile(folder.path(name)) as file:
        file.write(f"{job.row_numbers}".encode())
    rows = len(job.row_numbers)
    return Receipt([OutputFile.uncompressed(name, rows, file)], {"documents": rows}, {"gpu_seconds": 1.5})


def score_first_rows_last(job: ScoreJob, window: Window, folder: StagingView, scorer: Scorer, marker: Path) -> Receipt:
    """As `score_shard`; the shard of row 0 waits until that of row 39 is done."""
    if 0 in job.row_numbers and job.max_batch_rows is None:
        while not marker.exists():
            time.sleep(0.002)
    receipt = score_shard(job, window, folder, scorer)
    if 39 in job.row_numbers:
        marker.touch()
    return receipt


def pids_of(job: ScoreJob) -> list[int]:
    """The processes that began the job, in order."""
    return [int(line) for line in _pids(job).read_text().split()] if _pids(job).exists() else []


def _pids(job: ScoreJob) -> Path:
    return job.pool_path.with_suffix(".pids")
