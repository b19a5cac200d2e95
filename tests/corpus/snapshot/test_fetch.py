"""What a plan asks of the hub: known to the byte before it is asked, less what the cache has."""

import logging
import re
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.snapshot.fetch import bytes_to_fetch, fetch_pieces, file_requests, shards_of
from pipeline_assets.corpus.snapshot.plan import SnapshotPlan, plan_snapshot
from pipeline_assets.corpus.snapshot.recipe import SnapshotRecipe
from pipeline_assets.corpus.spine import durable
from pipeline_assets.systems.healing import HealingRecipe
from resources.loopback_hub import LoopbackHub

Planned = tuple[SnapshotRecipe, SnapshotPlan]


def pages(first: int, rows: int) -> pa.Table:
    """Texts of 1,800 bytes that hardly compress."""
    texts = [
        " ".join(f"{(row * 7919 + word * 104729) % 2**32:08x}" for word in range(200))
        for row in range(first, first + rows)
    ]
    return pa.table({"text": texts, "id": [f"page-{row}" for row in range(first, first + rows)]})


@pytest.fixture
def planned(
    publish: Callable[..., str], healing_recipe: Callable[..., HealingRecipe], hub_files: HubFiles, hub: LoopbackHub
) -> Callable[..., Planned]:
    """The plan for four files of 500 rows in groups of 50; the requests that it took are forgotten."""

    def plan(**changes: object) -> Planned:
        commit = publish({f"{number}.parquet": pages(1000 * number, 500) for number in range(4)}, rows_per_group=50)
        recipe = healing_recipe(commit, changes).snapshot
        planned = plan_snapshot(hub_files, recipe, threads=4, log_every_s=60)
        hub.requests.clear()
        return recipe, planned

    return plan


def sent(hub: LoopbackHub) -> int:
    return sum(request.bytes_sent for request in hub.requests)


@pytest.mark.parametrize(
    "amount", [{"documents": 130}, {"documents": 1990}, {"files": 2}, {"text_bytes": 10**9}], ids=str
)
def test_the_bytes_to_fetch_are_those_that_come_over_the_wire(
    planned: Callable[..., Planned], amount: dict[str, int], hub: LoopbackHub, hub_files: HubFiles
) -> None:
    recipe, plan = planned(amount=amount)
    before = hub_files.traffic.bytes

    missing = bytes_to_fetch(hub_files, recipe, plan)
    fetch_pieces(hub_files, recipe, plan, threads=4, log_every_s=60)

    assert missing == sent(hub) == hub_files.traffic.bytes - before > 0
    assert bytes_to_fetch(hub_files, recipe, plan) == 0


def test_a_file_of_which_every_row_group_is_wanted_is_one_range_up_to_its_footer(
    planned: Callable[..., Planned],
) -> None:
    _, plan = planned(amount={"files": 1})

    [request] = file_requests(plan)

    assert request.is_whole
    assert request.ranges == ((0, request.file.size - 65_536),)
    assert len(request.pieces) == 10


def test_what_came_with_the_footer_is_not_asked_for_again(
    publish: Callable[..., str],
    healing_recipe: Callable[..., HealingRecipe],
    hub_files: HubFiles,
    hub: LoopbackHub,
) -> None:
    recipe = healing_recipe(publish({"small.parquet": pages(0, 20)}, rows_per_group=5)).snapshot
    plan = plan_snapshot(hub_files, recipe, threads=1, log_every_s=60)
    hub.requests.clear()

    local = fetch_pieces(hub_files, recipe, plan, threads=1, log_every_s=60)

    assert bytes_to_fetch(hub_files, recipe, plan) == sent(hub) == 0
    assert [item.spans for item in local] == [plan.tails["small.parquet"].spans] * 4


def test_what_came_over_the_wire_has_a_rate_and_what_was_here_has_none(
    planned: Callable[..., Planned], hub_files: HubFiles, hub: LoopbackHub, caplog: pytest.LogCaptureFixture
) -> None:
    recipe, plan = planned(amount={"documents": 130})

    with caplog.at_level(logging.INFO, "corpusmill"):
        for _ in range(2):
            fetch_pieces(hub_files, recipe, plan, threads=4, log_every_s=60)

    first, second = (message for message in caplog.messages if message.startswith("fetch "))
    assert re.fullmatch(rf"fetch \w+: 3/3 row groups; {sent(hub) / 1e6:.1f} MB, [\d,.]+ MB/s", first)
    assert re.fullmatch(r"fetch \w+: 3/3 row groups", second)


def test_a_download_that_was_cut_off_is_missing_only_its_rest(
    planned: Callable[..., Planned], hub_files: HubFiles, hub: LoopbackHub
) -> None:
    recipe, plan = planned(amount={"documents": 50})
    [request] = file_requests(plan)
    [(start, stop)] = request.ranges
    whole = bytes_to_fetch(hub_files, recipe, plan)
    content = (hub.folder / "datasets/maker/pages" / request.file.path).read_bytes()
    folder = next((hub_files.cache / "maker--pages" / "bytes").glob(f"*{request.file.digest[7:]}"))
    (folder / f"{start}-{stop}.{durable.boot()}.part").write_bytes(content[start : start + 1000])

    missing = bytes_to_fetch(hub_files, recipe, plan)
    fetch_pieces(hub_files, recipe, plan, threads=1, log_every_s=60)

    assert missing == sent(hub) == whole - 1000


def test_a_kept_span_of_another_size_counts_as_missing(
    planned: Callable[..., Planned], hub_files: HubFiles, tmp_path: Path
) -> None:
    recipe, plan = planned(amount={"documents": 50})
    whole = bytes_to_fetch(hub_files, recipe, plan)
    [local] = fetch_pieces(hub_files, recipe, plan, threads=1, log_every_s=60)
    kept = local.spans[0].local
    kept.write_bytes(kept.read_bytes()[:-1])

    assert bytes_to_fetch(hub_files, recipe, plan) == whole


def test_shards_are_the_pieces_in_the_plans_order(planned: Callable[..., Planned], hub_files: HubFiles) -> None:
    recipe, plan = planned(amount={"documents": 320})
    local = fetch_pieces(hub_files, recipe, plan, threads=4, log_every_s=60)

    shards = shards_of(local, 200_000)

    assert [shard.name for shard in shards] == ["00000", "00001", "00002"]
    assert [item.piece for shard in shards for item in shard.pieces] == plan.pieces
