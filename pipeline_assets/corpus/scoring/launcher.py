"""Score shards and the interface of launchers that run them on other machines."""

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
    """Score shard: some rows of a pool file, whose scores are stored under `name`.

    Attributes:
        pool_file: Name of the pool file in scores; its path is `file`.
        row_numbers: Numbers of the rows in the file, ascending.
        batch_rows: Maximum number of rows per batch; None for as many as fit.
        rows: 0, because a shard is scored whole.
    """

    name: str
    pool_file: str
    file: Path
    row_numbers: tuple[int, ...]
    batch_rows: int | None = None
    rows: int = 0


@dataclass(frozen=True)
class HubFileSet:
    """Files of a hub dataset or model at a commit, by the names shown to users."""

    name: str
    revision: str
    files: Mapping[str, HubFile]


@dataclass(frozen=True)
class ScoreWork:
    """Facts that all score shards of a split share, for a launcher on other machines.

    Attributes:
        split: `dataset/split`.
        pools: Pinned pool files of a hub; None for pools in a local folder.
        model: Pinned model files of a hub; None for a model in a local folder.
        text_bytes: Approximate size of the texts of the rows in bytes.
    """

    split: str
    recipe: ScoringRecipe
    pools: HubFileSet | None
    model: HubFileSet | None
    model_digest: str
    rows: int
    text_bytes: int


class Launcher(Protocol):
    """Runner of the score shards of a split on other machines."""

    def run(self, stage: str, jobs: Sequence[ScoreJob], folder: StagingView) -> Generator[Receipt]:
        """Yield the receipts in job order, each committed under `stage`."""

    def provenance(self) -> Mapping[str, Any]:
        """Return the facts about the machines that a manifest records."""


class RemoteLauncherFactory(Protocol):
    """Factory of launchers that run score shards on other machines."""

    def describe_costs(self, works: Sequence[ScoreWork]) -> Iterator[str]:
        """Yield lines that estimate the work and cost of splits.

        A split that cannot run or exceeds a cost limit raises `UsageError` after the last line.
        """

    def open_launcher(self, work: ScoreWork, folder: StagingView) -> AbstractContextManager[Launcher]:
        """Open a launcher for a split, which stores its results in a folder."""
