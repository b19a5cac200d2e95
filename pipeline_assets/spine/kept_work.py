"""Finished tasks of a sealed artifact, kept for its next version.

The folder `.name.kept` next to the artifact `name` has `tasks.json`, which lists the tasks with digests and receipts.
It also contains those files of the tasks that are not part of the artifact. A task of the next version does not run
if a kept task has its stage, name and digest; instead, the files of the kept task are linked.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from pipeline_assets.spine import durable
from pipeline_assets.spine.files import file_sha256
from pipeline_assets.spine.kept_folder import KEPT_TASKS_FILE, kept_folder
from pipeline_assets.spine.manifest import is_inside_folder
from pipeline_assets.spine.metadata_file import REBUILD, MetadataFormat
from pipeline_assets.spine.staging import WORK_FOLDER, Receipt, StagingView, remove_unnamed


@dataclass(frozen=True)
class KeptTask:
    """Finished task of a stage, with its `task_digest` and encoded receipt."""

    stage: str
    name: str
    digest: str
    receipt: str


_TASKS_FORMAT: MetadataFormat[list[KeptTask]] = MetadataFormat("list of kept tasks", 1 << 30, REBUILD, list[KeptTask])


@dataclass(frozen=True)
class KeptWork:
    """Tasks of a build that are kept for the next version.

    `earlier_folder` is the artifact's earlier version, whose kept tasks are reused; None reuses no task.
    """

    earlier_folder: Path | None = None
    _tasks: dict[tuple[str, str], tuple[KeptTask, list[str]]] = field(default_factory=dict)  # with the paths of files
    _earlier_tasks: dict[tuple[str, str], KeptTask] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.earlier_folder is not None:
            tasks = _TASKS_FORMAT.read_valid(kept_folder(self.earlier_folder) / KEPT_TASKS_FILE) or ()
            self._earlier_tasks.update({(task.stage, task.name): task for task in tasks})

    def reuse(self, stage: str, task_name: str, digest: str, staging: StagingView) -> Receipt | None:
        """Link the files of the matching kept task, and return its receipt.

        Return None if no kept task matches, or if a file of the matching task is missing, changed or written by several
        shards. The caller then runs the task. The receipt is not committed, so a resumed build calls this method again.
        """
        task = self._earlier_tasks.get((stage, task_name))
        if task is None or task.digest != digest or self.earlier_folder is None:
            return None
        receipt = Receipt.from_bytes(task.receipt.encode())
        if receipt is None or not all(is_inside_folder(file.path) for file in receipt.files):
            return None
        sources = [(_kept_path(self.earlier_folder, file.path), file) for file in receipt.files]
        for source, file in sources:
            if file.start is not None or not source.is_file() or file_sha256(source) != file.sha256:
                return None
        for source, file in sources:
            durable.link(source, staging.path(file.path))
        return receipt

    def add(self, stage: str, task_name: str, digest: str, receipt: Receipt) -> None:
        """Mark a finished task to be kept."""
        task = KeptTask(stage, task_name, digest, receipt.to_bytes().decode())  # takes half the memory of the receipt
        self._tasks[stage, task_name] = task, [file.path for file in receipt.files]

    def discard(self, shards: Iterable[str], stages: Collection[str] = ()) -> None:
        """Unmark the tasks of `shards` and of `stages`, so that they are not kept.

        The tasks of a shard have the names `SHARD` and `SHARD.…`.
        """
        discarded = {*shards}
        for stage, name in [*self._tasks]:
            if stage in stages or name.partition(".")[0] in discarded:
                del self._tasks[stage, name]

    def write(self, staging: StagingView) -> None:
        """Write `tasks.json` into the work folder; remove files that no kept task wrote."""
        work = staging.path(f"{WORK_FOLDER}/{KEPT_TASKS_FILE}")
        kept = {path.removeprefix(f"{WORK_FOLDER}/") for _, paths in self._tasks.values() for path in paths}
        remove_unnamed(work.parent, kept, kept_entries=())
        durable.write_durably(work, msgspec.json.encode([task for task, _ in self._tasks.values()]))


def _kept_path(artifact_folder: Path, name: str) -> Path:
    in_work = name.removeprefix(f"{WORK_FOLDER}/")
    return artifact_folder / name if in_work == name else kept_folder(artifact_folder) / in_work
