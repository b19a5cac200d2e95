"""The plan of a healing recipe, on the demo: from footers before it is built, from what is there afterwards."""

import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline_assets import demo
from pipeline_assets.corpus.planning.outcome import real_figures
from pipeline_assets.corpus.planning.rates import Rates
from pipeline_assets.corpus.planning.recipe_plan import PlanSettings, RecipePlan
from pipeline_assets.corpus.planning.track_record import read_track_record
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.recipes.healing_plan import plan_healing
from pipeline_assets.corpus.spine.artifact import open_artifact
from pipeline_assets.corpus.spine.engine import EngineSettings
from pipeline_assets.corpus.spine.errors import UsageError
from pipeline_assets.corpus.spine.inventory import holdings
from pipeline_assets.systems.healing import HealingRecipe
from pipeline_assets.systems.registry import read_recipe
from resources.loopback_hub import LoopbackHub

Plan = Callable[..., RecipePlan]
SLOW = Rates(convert=100_000, encode=100_000, write=10**6, start_s=0.0, basis="a slow machine's")
SNAPSHOT, SELECTION, TRAIN, VALID, DATASET = range(5)


@pytest.fixture
def demo_hub(demo_root: Path) -> Iterator[LoopbackHub]:
    with LoopbackHub(demo_root / demo.HUB_FOLDER) as running:
        yield running


@pytest.fixture
def recipe(demo_root: Path) -> HealingRecipe:
    return read_recipe(demo_root / "recipes" / "healing_text_v1.yaml")


@pytest.fixture
def plan(demo_hub: LoopbackHub, recipe: HealingRecipe, tmp_path: Path) -> Plan:
    """The plan of the demo's recipe, below a data root, with a cache of the test's own."""

    def made(root: Path, wanted: HealingRecipe = recipe, endpoint: str = demo_hub.endpoint) -> RecipePlan:
        hub = HubFiles(tmp_path / "cache", endpoint, tries=1)
        settings = PlanSettings(lambda: replace(read_track_record(root), calibration=SLOW), EngineSettings(workers=1))
        return plan_healing(wanted, holdings(root, wanted.targets()), hub, settings)

    return made


def test_before_anything_is_there_all_of_it_is_planned(plan: Plan, tmp_path: Path, demo_hub: LoopbackHub) -> None:
    planned = plan(tmp_path)

    figures = [set(target.figures) for target in planned.targets]
    assert {"bytes_fetched", "rows", "documents", "bytes", "peak_disk_bytes", "peak_memory_bytes"} <= figures[SNAPSHOT]
    assert {"documents", "tokens", "bytes", "peak_disk_bytes", "build_seconds"} <= figures[TRAIN] == figures[VALID]
    assert figures[DATASET] == set()
    assert planned.fetched_bytes == sum(request.bytes_sent for request in demo_hub.requests)
    assert [budget.outlook for budget in planned.budgets] == ["likely met", "likely met"]
    assert planned.fetch_seconds is None


def test_what_is_exact_is_what_the_build_came_to(plan: Plan, tmp_path: Path, demo_root: Path) -> None:
    planned = plan(tmp_path)

    built = [open_artifact(demo_root / target.holding.target.folder).manifest for target in planned.targets]
    snapshot, sample = built[SNAPSHOT].identity, planned.sample
    assert planned.missing_bytes == built[SNAPSHOT].provenance["bytes_fetched"]
    assert planned.fetched_bytes == built[SNAPSHOT].provenance["bytes_fetched_to_plan"]
    assert sample is not None
    assert sample.rows == snapshot.counts["ledger"]["in"]
    assert {dump.name: {"row_groups": dump.row_groups, "rows": dump.rows} for dump in sample.dumps} == (
        snapshot.decisions["dumps"]
    )
    assert (sample.files, sample.files_listed, sample.row_groups_seen) == (8, 8, 32)


def test_what_is_estimated_is_near_what_the_build_came_to(plan: Plan, tmp_path: Path, demo_root: Path) -> None:
    """Before anything was measured: the rules' share and the bytes to a token are guesses."""
    planned = plan(tmp_path)

    built = [open_artifact(demo_root / target.holding.target.folder).manifest for target in planned.targets]
    off = {
        (number, name): planned.targets[number].figures[name].likely / real_figures(built[number])[name]
        for number in (SNAPSHOT, TRAIN)
        for name in ("documents", "tokens", "bytes", "peak_disk_bytes")
        if name in planned.targets[number].figures
    }
    assert off == {key: pytest.approx(1, abs=0.15) for key in off}


def test_in_all_it_needs_what_is_fetched_and_the_worst_artifact_beside_those_before(plan: Plan, tmp_path: Path) -> None:
    planned = plan(tmp_path)

    disk, memory = planned.rooms(tmp_path, tmp_path / "hub_cache")
    train, valid = planned.targets[TRAIN].figures, planned.targets[VALID].figures
    before_train = planned.missing_bytes + planned.targets[SNAPSHOT].figures["bytes"].likely
    assert disk.needed.likely == before_train + train["peak_disk_bytes"].likely
    assert disk.kept is not None
    assert disk.kept.likely == before_train + train["bytes"].likely + valid["bytes"].likely
    assert memory.needed == max((train["peak_memory_bytes"], valid["peak_memory_bytes"]), key=lambda peak: peak.high)
    assert disk.verdict == memory.verdict == "fits"


def test_what_is_built_costs_nothing_and_asks_no_hub(plan: Plan, demo_root: Path) -> None:
    planned = plan(demo_root, endpoint="http://127.0.0.1:9")

    assert planned.to_build == []
    assert (planned.sample, planned.budgets, planned.missing_bytes, planned.seconds) == (None, [], 0, None)
    assert planned.rooms(demo_root, demo_root / "hub_cache") == []


def test_splits_of_a_snapshot_that_is_there_are_planned_by_it(plan: Plan, root: Path, recipe: HealingRecipe) -> None:
    train = open_artifact(root / recipe.megatron_split("train").folder).manifest
    shutil.rmtree(root / "megatron" / recipe.name / "train")

    planned = plan(root, endpoint="http://127.0.0.1:9")

    assert [target.is_current for target in planned.targets] == [True, True, False, True, False]
    figures = planned.targets[TRAIN].figures
    assert figures["rows"].likely == pytest.approx(train.identity.counts["ledger"]["in"], rel=0.2)
    assert figures["documents"].low <= train.identity.counts["documents"] <= figures["documents"].high
    assert figures["tokens"].basis.endswith("as in earlier splits of this snapshot")
    assert [budget.name for budget in planned.budgets] == ["train"]


def test_what_would_be_replaced_says_so_and_lies_beside_the_new_one(
    plan: Plan, root: Path, recipe: HealingRecipe
) -> None:
    changed = recipe.model_copy(update={"snapshot": recipe.snapshot.model_copy(update={"seed": "another"})})

    planned = plan(root, changed)

    assert [target.needs_replace for target in planned.targets] == [True, True, True, True, False]
    disk, _ = planned.rooms(root, root / "hub_cache")
    fresh, _ = plan(root / "nowhere", changed).rooms(root / "nowhere", root / "nowhere" / "hub_cache")
    assert disk.kept is not None
    assert fresh.kept is not None
    assert disk.needed.likely < fresh.needed.likely  # the new snapshot is in place of the old one when train is built
    assert disk.kept.likely < 0.5 * fresh.kept.likely


def test_shards_that_an_interrupted_build_finished_take_no_time_again(
    plan: Plan, tmp_path: Path, recipe: HealingRecipe
) -> None:
    target = recipe.fineweb_edu_snapshot()
    whole = plan(tmp_path).targets[SNAPSHOT].figures["build_seconds"]
    with pytest.raises(KeyboardInterrupt):
        target.build(tmp_path, _finish_five_shards, replace=False, run_settings={})

    planned = plan(tmp_path).targets[SNAPSHOT]

    assert planned.holding.condition == "interrupted"
    assert planned.figures["build_seconds"].likely == pytest.approx(whole.likely * 2 / 7, abs=0.1)
    assert planned.disk_use(tmp_path).adopted > 0


def _finish_five_shards(building: object) -> None:
    from pipeline_assets.corpus.spine.building import Building, Receipt

    assert isinstance(building, Building)
    for number in range(5):
        building.commit("convert", f"{number:05d}", Receipt([], {"documents": 1}))
    raise KeyboardInterrupt


def test_a_budget_beyond_the_whole_dataset_is_short(plan: Plan, tmp_path: Path, recipe: HealingRecipe) -> None:
    amount = recipe.snapshot.amount.model_copy(update={"text_bytes": 10**12})
    everything = recipe.snapshot.model_copy(update={"amount": amount})
    megatron = recipe.megatron.model_copy(update={"token_budget": 10**9})

    planned = plan(tmp_path, recipe.model_copy(update={"snapshot": everything, "megatron": megatron}))

    fix = "the dataset has no more: lower `megatron.token_budget`"
    assert [(one.outlook, one.is_met, one.fix) for one in planned.budgets] == [("short", False, fix)] * 2


def test_a_sample_too_small_for_the_budget_asks_for_a_larger_one(
    plan: Plan, tmp_path: Path, recipe: HealingRecipe
) -> None:
    def taking(text_bytes: int) -> HealingRecipe:
        amount = recipe.snapshot.amount.model_copy(update={"text_bytes": text_bytes})
        return recipe.model_copy(update={"snapshot": recipe.snapshot.model_copy(update={"amount": amount})})

    [train, valid] = plan(tmp_path, taking(240_000)).budgets

    said = r"raise `snapshot\.amount\.text_bytes` from 240,000 to ([\d,]+), or lower `megatron\.token_budget`"
    raised = [re.fullmatch(said, one.fix) for one in (train, valid)]
    enough = max(int(found[1].replace(",", "")) for found in raised if found)
    assert [one.is_met for one in (train, valid)] == [False, False]
    assert [one.is_met for one in plan(tmp_path, taking(enough)).budgets] == [True, True]


def test_a_selection_of_shards_is_planned_as_it_will_be(plan: Plan, tmp_path: Path, recipe: HealingRecipe) -> None:
    def selecting(pattern: str) -> HealingRecipe:
        return recipe.model_copy(update={"selection": recipe.selection.model_copy(update={"shards": (pattern,)})})

    few = plan(tmp_path, selecting("shards/0000[01]*"))

    assert few.targets[SELECTION].figures["documents"].likely < 0.5 * few.targets[SNAPSHOT].figures["documents"].likely
    with pytest.raises(UsageError, match=r"no shard matches 'shards/9\*'"):
        plan(tmp_path, selecting("shards/9*"))
