"""Score shards, and where they are scored if not by worker processes of this machine."""

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
    """Score shard: some rows of a pool file. Its output is stored under `name`.

    Attributes:
        pool_file: name of the pool file in scores; its path is `file`.
        row_numbers: numbers of the rows in the file, ascending.
        batch_rows: maximum number of rows per batch; None for as many as fit.
    """

    name: str
    pool_file: str
    file: Path
    row_numbers: tuple[int, ...]
    batch_rows: int | None = None
    rows: int = 0  # a shard is scored whole


@dataclass(frozen=True)
class HubFileSet:
    """Files of a dataset or a model of a hub at a commit, by the names that users know them by."""

    name: str
    revision: str
    files: Mapping[str, HubFile]


@dataclass(frozen=True)
class ScoreWork:
    """What all score shards of a split have in common, for a launcher whose machines have nothing of it yet.

    Attributes:
        split: `dataset/split`.
        pools, model: as they were pinned; None of what lies in a folder here.
        model_digest: by which the model is known.
        rows: that are to be scored.
        text_bytes: of these, about.
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
        """Yield the receipts in the order of the jobs, each committed under `stage`: a `RunStage`."""

    def provenance(self) -> Mapping[str, Any]:
        """Return what a manifest records about the machines that ran the jobs."""


class RemoteLauncherFactory(Protocol):
    """Where score shards run if not here."""

    def describe_costs(self, works: Sequence[ScoreWork]) -> Iterator[str]:
        """Lines on what splits would take.

        Raises:
            UsageError: in the end, as `at`.
        """

    def open_launcher(self, work: ScoreWork, folder: StagingView) -> AbstractContextManager[Launcher]:
        """Its launcher for a split, whose results are put into a folder.

        Raises:
            UsageError: it can't do this work, or not for what it may cost.
        """
