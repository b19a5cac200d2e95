"""Requests of a plan to the hub: the exact bytes, except those in the cache."""

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from faulty_hub import FaultyHub
from numbered_pages import large_pages

from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.snapshot.fetch import FetchedPiece, bytes_to_fetch, fetch_pieces, file_requests, plan_shards
from pipeline_assets.corpus.snapshot.plan import SnapshotPlan, plan_snapshot
from pipeline_assets.corpus.snapshot.recipe import SnapshotRecipe
from pipeline_assets.spine import durable
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.systems.healing import HealingRecipe


@dataclass
class PlannedSample:
    """A plan, and the cost of its bytes."""

    hub: FaultyHub
    files: HubFiles
    recipe: SnapshotRecipe
    plan: SnapshotPlan

    def missing_bytes(self) -> int:
        return bytes_to_fetch(self.files, self.recipe, self.plan)

    def fetch(self, threads: int = 4) -> list[FetchedPiece]:
        return fetch_pieces(self.files, self.recipe, self.plan, RunSettings(fetch_threads=threads))

    def sent_bytes(self) -> int:
        return sum(request.bytes_sent for request in self.hub.requests)


@pytest.fixture
def plan_sample(
    publish: Callable[..., str], healing_recipe: Callable[..., HealingRecipe], hub_files: HubFiles, hub: FaultyHub
) -> Callable[..., PlannedSample]:
    """Plan a sample of files of rows in groups; forget the requests of the plan."""

    def plan(files: int = 4, rows: int = 500, rows_per_group: int = 50, **changes: object) -> PlannedSample:
        tables = {f"{number}.parquet": large_pages(1000 * number, rows) for number in range(files)}
        recipe = healing_recipe(publish(tables, rows_per_group), changes).snapshot
        sample = PlannedSample(hub, hub_files, recipe, plan_snapshot(hub_files, recipe, RunSettings(fetch_threads=4)))
        hub.requests.clear()
        return sample

    return plan


PlanSample = Callable[..., PlannedSample]


@pytest.mark.parametrize(
    "amount", [{"documents": 130}, {"documents": 1990}, {"files": 2}, {"text_bytes": 10**9}], ids=str
)
def test_the_bytes_to_fetch_equal_the_bytes_sent(plan_sample: PlanSample, amount: dict[str, int]) -> None:
    sample = plan_sample(amount=amount)
    before = sample.files.traffic.bytes

    missing_bytes = sample.missing_bytes()
    sample.fetch()

    assert missing_bytes == sample.sent_bytes() == sample.files.traffic.bytes - before > 0
    assert sample.missing_bytes() == 0


def test_a_file_with_every_row_group_selected_is_one_range_up_to_its_footer(plan_sample: PlanSample) -> None:
    [request] = file_requests(plan_sample(amount={"files": 1}).plan)

    assert request.is_whole
    assert request.ranges == ((0, request.file.size - 65_536),)
    assert len(request.pieces) == 10


def test_bytes_fetched_with_the_footer_are_not_fetched_again(plan_sample: PlanSample) -> None:
    sample = plan_sample(files=1, rows=20, rows_per_group=5)

    local = sample.fetch()

    assert sample.missing_bytes() == sample.sent_bytes() == 0
    assert [item.spans for item in local] == [sample.plan.tails["0.parquet"].spans] * 4


def test_the_log_shows_a_rate_only_for_fetched_bytes(plan_sample: PlanSample, caplog: pytest.LogCaptureFixture) -> None:
    sample = plan_sample(amount={"documents": 130})

    with caplog.at_level(logging.INFO, "corpusmill"):
        sample.fetch()
        sample.fetch()

    first, second = (message for message in caplog.messages if message.startswith("fetch "))
    assert re.fullmatch(rf"fetch \w+: 3/3 row groups; {sample.sent_bytes() / 1e6:.1f} MB, [\d,.]+ MB/s", first)
    assert re.fullmatch(r"fetch \w+: 3/3 row groups", second)


def test_an_interrupted_download_lacks_only_its_remaining_bytes(plan_sample: PlanSample) -> None:
    sample = plan_sample(amount={"documents": 50})
    [request] = file_requests(sample.plan)
    [(start, stop)] = request.ranges
    whole = sample.missing_bytes()
    content = (sample.hub.folder / "datasets/maker/pages" / request.file.path).read_bytes()
    folder = sample.files.spans_folder("maker/pages", request.file.digest)
    (folder / f"{start}-{stop}.{durable.boot_id()}.part").write_bytes(content[start : start + 1000])

    missing_bytes = sample.missing_bytes()
    sample.fetch()

    assert missing_bytes == sample.sent_bytes() == whole - 1000


def test_a_kept_span_of_another_size_counts_as_missing(plan_sample: PlanSample) -> None:
    sample = plan_sample(amount={"documents": 50})
    whole = sample.missing_bytes()
    [local] = sample.fetch()
    kept = local.spans[0].path
    kept.write_bytes(kept.read_bytes()[:-1])

    assert sample.missing_bytes() == whole


def test_shards_are_the_pieces_in_the_plans_order(plan_sample: PlanSample) -> None:
    sample = plan_sample(amount={"documents": 320})

    shards = plan_shards(sample.fetch(), 200_000)

    assert [shard.name for shard in shards] == ["00000", "00001", "00002"]
    assert [item.piece for shard in shards for item in shard.pieces] == sample.plan.pieces
