"""State shared by the steps of a deduplication.

Each step writes files that the next one reads: sketches → exact copies → pairs → edges → decisions → documents. A task
of a step handles a shard of the corpus, or a key range of sorted runs.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline_assets.corpus.corpus_shard import CorpusShard
from pipeline_assets.corpus.dedup.bitmap import add_to_bitmap, empty_bitmap
from pipeline_assets.corpus.dedup.recipe import DedupRecipe
from pipeline_assets.corpus.dedup.signature_store import SeenStore
from pipeline_assets.corpus.dedup.sorted_runs import Runs, read_run
from pipeline_assets.corpus.formats.arrow_columns import to_numpy
from pipeline_assets.spine.engine import PROCESS_BYTES, RunSettings, StageRunner
from pipeline_assets.spine.staging import WORK_FOLDER, OutputFile, Receipt, StagingDir
from pipeline_assets.spine.task import Task

_MIN_WORKER_BYTES = 64 << 20


def worker_bytes(settings: RunSettings) -> int:
    """Return the memory for the data of one worker, in bytes: at least 64 MiB."""
    return max(settings.worker_bytes - PROCESS_BYTES, _MIN_WORKER_BYTES)


def min_tasks(settings: RunSettings) -> int:
    """Return the smallest number of tasks that keeps all workers busy in a step."""
    return 4 * settings.workers if settings.workers > 1 else 1


def files_in(receipts: Iterable[Receipt], folder: str = WORK_FOLDER) -> Runs:
    """Return the files in `folder` that are listed in receipts."""
    return [file for receipt in receipts for file in receipt.files if file.path.startswith(f"{folder}/")]


@dataclass(frozen=True)
class DedupRun:
    """Deduplication in progress; documents of stores precede documents of shards."""

    staging: StagingDir
    shards: Sequence[CorpusShard]
    recipe: DedupRecipe
    settings: RunSettings
    run_stage: StageRunner[Task]
    seen_stores: Sequence[SeenStore] = ()

    @property
    def document_count(self) -> int:
        """Number of documents in stores and shards, including poison rows."""
        return sum(store.document_count for store in self.seen_stores) + sum(shard.rows for shard in self.shards)

    def run_tasks(self, stage: str, tasks: Iterable[Task]) -> list[Receipt]:
        """Run the tasks of a stage, and return their receipts in the order of the tasks."""
        return list(self.run_stage(stage, list(tasks), self.staging))

    def read_run(self, run: OutputFile) -> pa.Table:
        """Memory-map a sorted run, which is a file of the staging directory."""
        return read_run(self.staging.path(run.path))

    def document_bitmap(self, runs: Runs, *columns: str) -> NDArray[np.uint8]:
        """Return a bitmap of the documents whose numbers or priorities are in `columns`."""
        bitmap = empty_bitmap(self.document_count)
        for run in runs:
            for column in self.read_run(run).select(columns).columns:
                add_to_bitmap(bitmap, to_numpy(column))
        return bitmap
