"""Interface of launchers, which run scoring jobs on other machines."""

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pipeline_assets.corpus.readers.hub_listing import HubFile
from pipeline_assets.corpus.scoring.recipe import ScoringRecipe
from pipeline_assets.spine.staging import Receipt, StagingView


@dataclass(frozen=True)
class ScoreJob:
    """Shard to score in one task: some rows of a pool file."""

    name: str  # of the shard's output
    pool_file: str  # name of the pool file, as in `scores.parquet`
    pool_path: Path
    row_numbers: tuple[int, ...]  # in the file, ascending
    max_batch_rows: int | None = None  # None if only the recipe's `batch_tokens` limits a batch
    rows: int = 0  # so the engine does not search the shard for poison rows


@dataclass(frozen=True)
class HubFileSet:
    """Files of a hub dataset or model at a commit, by their paths in the repository."""

    repo: str
    revision: str
    files: Mapping[str, HubFile]


@dataclass(frozen=True)
class ScoreWork:
    """Common inputs of a split's score shards, for scoring on other machines."""

    split: str  # `dataset/split`
    recipe: ScoringRecipe
    pool_files: HubFileSet | None  # None for pools in a local folder
    model_files: HubFileSet | None  # None for a model in a local folder
    model_digest: str
    rows: int  # to score
    text_bytes: int  # approximate size of the texts of these rows


class Launcher(Protocol):
    """Runner of a split's scoring jobs on other machines, one job per score shard."""

    def run(self, stage: str, jobs: Sequence[ScoreJob], folder: StagingView) -> Generator[Receipt]:
        """Run jobs, store their receipts under `stage`, and yield receipts in job order."""

    def provenance(self) -> Mapping[str, Any]:
        """Return facts about the machines, for the provenance in a manifest."""


class RemoteLauncherFactory(Protocol):
    """Factory of launchers that run score shards on other machines."""

    def describe_costs(self, splits: Sequence[ScoreWork]) -> Iterator[str]:
        """Yield lines that estimate the work and cost of splits.

        After the last line, `UsageError` is raised if a split cannot run or exceeds a cost limit.
        """

    def open_launcher(self, work: ScoreWork, folder: StagingView) -> AbstractContextManager[Launcher]:
        """Open a launcher that scores a split and stores the results in a folder."""
