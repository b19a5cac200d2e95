"""What a plan asks of the hub: known to the byte before it is asked, without cached bytes."""

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from faulty_hub import Fault, FaultKind, FaultyHub
from numbered_pages import large_pages

from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.snapshot.fetch import FetchedPiece, bytes_to_fetch, fetch_pieces, file_requests, plan_shards
from pipeline_assets.corpus.snapshot.plan import SnapshotPlan, plan_snapshot
from pipeline_assets.corpus.snapshot.recipe import SnapshotRecipe
from pipeline_assets.spine import durable
from pipeline_assets.spine.errors import RetryableError
from pipeline_assets.systems.healing import HealingRecipe


@dataclass
class Planned:
    """A plan, and what its bytes cost."""

    hub: FaultyHub
    files: HubFiles
    recipe: SnapshotRecipe
    plan: SnapshotPlan

    def missing(self) -> int:
        return bytes_to_fetch(self.files, self.recipe, self.plan)

    def fetch(self, threads: int = 4) -> list[FetchedPiece]:
        return fetch_pieces(self.files, self.recipe, self.plan, threads, log_every_s=60)

    def sent(self) -> int:
        return sum(request.bytes_sent for request in self.hub.requests)


@pytest.fixture
def planned(
    publish: Callable[..., str], healing_recipe: Callable[..., HealingRecipe], hub_files: HubFiles, hub: FaultyHub
) -> Callable[..., Planned]:
    """The plan for four files of 500 rows in groups of 50; the requests that it took are forgotten."""

    def plan(files: int = 4, rows: int = 500, rows_per_group: int = 50, **changes: object) -> Planned:
        tables = {f"{number}.parquet": large_pages(1000 * number, rows) for number in range(files)}
        recipe = healing_recipe(publish(tables, rows_per_group), changes).snapshot
        planned = Planned(hub, hub_files, recipe, plan_snapshot(hub_files, recipe, threads=4, log_every_s=60))
        hub.requests.clear()
        return planned

    return plan


Plan = Callable[..., Planned]


@pytest.mark.parametrize(
    "amount", [{"documents": 130}, {"documents": 1990}, {"files": 2}, {"text_bytes": 10**9}], ids=str
)
def test_the_bytes_to_fetch_are_those_that_come_over_the_wire(planned: Plan, amount: dict[str, int]) -> None:
    sample = planned(amount=amount)
    before = sample.files.traffic.bytes

    missing = sample.missing()
    sample.fetch()

    assert missing == sample.sent() == sample.files.traffic.bytes - before > 0
    assert sample.missing() == 0


def test_a_file_of_which_every_row_group_is_wanted_is_one_range_up_to_its_footer(planned: Plan) -> None:
    [request] = file_requests(planned(amount={"files": 1}).plan)

    assert request.is_whole
    assert request.ranges == ((0, request.file.size - 65_536),)
    assert len(request.pieces) == 10


def test_a_whole_file_with_other_bytes_than_its_hash_says_is_refused_and_fetched_again(planned: Plan) -> None:
    made = planned(amount={"files": 1})
    made.hub.inject(Fault(FaultKind.WRONG_BYTES, "*.parquet"))

    with pytest.raises(
        RetryableError, match=r"downloaded bytes do not match sha256:[0-9a-f]{64} of the listing; run again"
    ):
        made.fetch()

    again = Planned(
        made.hub, made.files, made.recipe, plan_snapshot(made.files, made.recipe, threads=4, log_every_s=60)
    )
    assert len(again.fetch()) == 10


def test_what_came_with_the_footer_is_not_asked_for_again(planned: Plan) -> None:
    sample = planned(files=1, rows=20, rows_per_group=5)

    local = sample.fetch()

    assert sample.missing() == sample.sent() == 0
    assert [item.spans for item in local] == [sample.plan.tails["0.parquet"].spans] * 4


def test_what_was_fetched_has_a_rate_and_what_was_here_none(planned: Plan, caplog: pytest.LogCaptureFixture) -> None:
    sample = planned(amount={"documents": 130})

    with caplog.at_level(logging.INFO, "corpusmill"):
        sample.fetch()
        sample.fetch()

    first, second = (message for message in caplog.messages if message.startswith("fetch "))
    assert re.fullmatch(rf"fetch \w+: 3/3 row groups; {sample.sent() / 1e6:.1f} MB, [\d,.]+ MB/s", first)
    assert re.fullmatch(r"fetch \w+: 3/3 row groups", second)


def test_a_download_that_was_cut_off_is_missing_only_its_rest(planned: Plan) -> None:
    sample = planned(amount={"documents": 50})
    [request] = file_requests(sample.plan)
    [(start, stop)] = request.ranges
    whole = sample.missing()
    content = (sample.hub.folder / "datasets/maker/pages" / request.file.path).read_bytes()
    folder = sample.files.spans_folder("maker/pages", request.file.digest)
    (folder / f"{start}-{stop}.{durable.boot_id()}.part").write_bytes(content[start : start + 1000])

    missing = sample.missing()
    sample.fetch()

    assert missing == sample.sent() == whole - 1000


def test_a_kept_span_of_another_size_counts_as_missing(planned: Plan) -> None:
    sample = planned(amount={"documents": 50})
    whole = sample.missing()
    [local] = sample.fetch()
    kept = local.spans[0].path
    kept.write_bytes(kept.read_bytes()[:-1])

    assert sample.missing() == whole


def test_shards_are_the_pieces_in_the_plans_order(planned: Plan) -> None:
    sample = planned(amount={"documents": 320})

    shards = plan_shards(sample.fetch(), 200_000)

    assert [shard.name for shard in shards] == ["00000", "00001", "00002"]
    assert [item.piece for shard in shards for item in shard.pieces] == sample.plan.pieces
