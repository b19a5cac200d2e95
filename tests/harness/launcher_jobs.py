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


def build_job(name: str, instructions: Path, *rows: int) -> ScoreJob:
    """Build a job that follows the instruction in a file of its name."""
    return ScoreJob(name, "pool.parquet", instructions / name, rows or (0,))


def instruct(job: ScoreJob, what: str) -> None:
    """Write a job's instruction: `write`, `refuse`, or `die N`, then write."""
    unfinished = job.pool_path.with_suffix(".unfinished")
    unfinished.write_text(what)
    unfinished.rename(job.pool_path)


def build_jobs(instructions: Path, **words: str | None) -> list[ScoreJob]:
    """Build jobs by name with instructions; None leaves a job waiting."""
    jobs = [build_job(name, instructions) for name in words]
    for job, word in zip(jobs, words.values(), strict=True):
        if word is not None:
            instruct(job, word)
    return jobs


def calls_written(folder: StagingView) -> list[str]:
    """List the jobs with a recorded call."""
    return sorted(path.stem for path in folder.folder.rglob("score.calls/*.json"))


def follow_instruction(job: ScoreJob, window: Window, folder: StagingView) -> Receipt:
    with open(_pids(job), "a", encoding="utf-8") as pids:
        pids.write(f"{os.getpid()}\n")
    while not job.pool_path.exists():
        time.sleep(0.002)
        if not job.pool_path.parent.exists():
            raise InputError("its test is over", job.name, "tell it what to do first")
    word, _, times = job.pool_path.read_text().partition(" ")
    if word == "refuse":
        raise InputError("it was told to", job.name, "tell it something else")
    if word == "die" and len(read_pids(job)) <= int(times):
        os.kill(os.getpid(), signal.SIGKILL)
    name = f"{WORK_FOLDER}/made/{job.name}"
    with DurableFile(folder.path(name)) as file:
        file.write(f"{job.row_numbers}".encode())
    rows = len(job.row_numbers)
    return Receipt([OutputFile.uncompressed(name, rows, file)], {"documents": rows}, {"gpu_seconds": 1.5})


def score_first_rows_last(job: ScoreJob, window: Window, folder: StagingView, scorer: Scorer, marker: Path) -> Receipt:
    """Score a shard; the one with row 0 waits for the one with row 39."""
    if 0 in job.row_numbers and job.max_batch_rows is None:
        while not marker.exists():
            time.sleep(0.002)
    receipt = score_shard(job, window, folder, scorer)
    if 39 in job.row_numbers:
        marker.touch()
    return receipt


def read_pids(job: ScoreJob) -> list[int]:
    """List the processes that started the job, in order."""
    return [int(line) for line in _pids(job).read_text().split()] if _pids(job).exists() else []


def _pids(job: ScoreJob) -> Path:
    return job.pool_path.with_suffix(".pids")
