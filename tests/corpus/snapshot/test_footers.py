"""Footers: read once, ahead where they are surely needed, and not kept."""

import pickle
from collections.abc import Callable

import pyarrow as pa
import pytest
from faulty_hub import FaultyHub
from refusals import refusal

from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.snapshot.plan import plan_snapshot
from pipeline_assets.corpus.snapshot.recipe import SnapshotRecipe
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.systems.healing import HealingRecipe

Recipe = Callable[..., SnapshotRecipe]


def scored_pages(rows: int, file: int) -> pa.Table:
    texts = [f"{file} {row} " + "text " * 400 for row in range(rows)]
    return pa.table({"text": texts, "id": [f"page-{row}" for row in range(rows)], "score": [3] * rows})


@pytest.fixture
def published(publish: Callable[..., str], healing_recipe: Callable[..., HealingRecipe]) -> Recipe:
    """Return a function that publishes scored files and returns the snapshot's recipe."""

    def write(files: int, rows: int, rows_per_group: int = 50, **changes: object) -> SnapshotRecipe:
        tables = {f"{number:02d}.parquet": scored_pages(rows, number) for number in range(files)}
        return healing_recipe(publish(tables, rows_per_group), changes).snapshot

    return write


def list_sent_files(hub: FaultyHub) -> list[str]:
    """List the files whose bytes were sent, sorted, repeated if sent twice."""
    names = (request.path.rsplit("/", 1)[1] for request in hub.requests if request.bytes_sent)
    return sorted(name for name in names if name.endswith(".parquet"))


@pytest.mark.parametrize("threads", [1, 8])
def test_a_draw_reads_no_needless_footer(published: Recipe, hub_files: HubFiles, hub: FaultyHub, threads: int) -> None:
    recipe = published(files=20, rows=20, rows_per_group=10, amount={"documents": 95})

    plan = plan_snapshot(hub_files, recipe, RunSettings(fetch_threads=threads))

    assert len(plan.pieces) == 10
    assert list_sent_files(hub) == sorted(plan.tails) == sorted(piece.group.file.path for piece in plan.pieces)


def test_a_plan_contains_tails_and_no_footers(published: Recipe, hub_files: HubFiles) -> None:
    recipe = published(files=3, rows=400, rows_per_group=1, amount={"documents": 3})

    plan = plan_snapshot(hub_files, recipe, RunSettings(fetch_threads=1))

    footer_bytes = sum(span.stop - span.start for tail in plan.tails.values() for span in tail.spans)
    assert [tail.row_groups for tail in plan.tails.values()] == [400, 400, 400]
    assert len(pickle.dumps(plan)) < 5_000 < footer_bytes


def test_errors_name_the_first_file_in_draw_order(published: Recipe, hub_files: HubFiles) -> None:
    recipe = published(files=6, rows=5, columns={"text": "text", "id": "key", "created_at": None})

    settings = (RunSettings(fetch_threads=threads) for threads in (1, 8))
    first, parallel = (refusal(lambda s=s: plan_snapshot(hub_files, recipe, s)) for s in settings)

    assert first == parallel
    assert ": column `key` not found; the columns are text, id, score; " in first
