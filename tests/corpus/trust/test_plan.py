"""The plan of any recipe: exact where files are listed or sealed, else as the data root's own builds showed.

Artifacts are built one after the other, and the worst moment is what must fit on disks and in memory.
"""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from faulty_hub import FaultyHub
from samples import some
from stage_a_build import INLINE, build, local_source, recipe_of

from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.recipes.run import Run
from pipeline_assets.corpus.spine.artifact import open_artifact
from pipeline_assets.corpus.spine.engine import RunSettings
from pipeline_assets.corpus.spine.errors import UsageError
from pipeline_assets.corpus.spine.inventory import artifact_statuses
from pipeline_assets.corpus.spine.recipe import Recipe
from pipeline_assets.corpus.trust.figures import FIGURES, outcomes, real_figures
from pipeline_assets.corpus.trust.plan import DiskUse, RecipePlan, Room, disk_rooms, memory_room, plan_recipe
from pipeline_assets.demo import demo
from pipeline_assets.systems.healing import HealingRecipe
from pipeline_assets.systems.registry import read_recipe

Plan = Callable[..., RecipePlan]
SNAPSHOT, SELECTION, TRAIN, VALID, DATASET = range(5)
NOWHERE = "http://127.0.0.1:9"
ROWS = [{"text": f"Text number {number} with some words.", "key": str(number)} for number in range(50)]


@pytest.fixture
def demo_hub(demo_root: Path) -> Iterator[FaultyHub]:
    with FaultyHub(demo_root / demo.HUB_FOLDER) as running:
        yield running


@pytest.fixture
def recipe(demo_root: Path) -> HealingRecipe:
    return read_recipe(demo_root / "recipes" / "healing_text_v1.yaml")


@pytest.fixture
def plan(demo_hub: FaultyHub, recipe: HealingRecipe, tmp_path: Path) -> Plan:
    """The plan of the demo's recipe, below a data root, with a cache of the test's own."""

    def made(root: Path, wanted: HealingRecipe = recipe, endpoint: str = demo_hub.endpoint) -> RecipePlan:
        run = Run(root, RunSettings(workers=2), HubFiles(tmp_path / "cache", endpoint, tries=1))
        return plan_recipe(artifact_statuses(root, wanted.targets()), run)

    return made


def plan_offline(recipe: Recipe, root: Path) -> RecipePlan:
    run = Run(root, INLINE, HubFiles(root / "hub_cache", endpoint=NOWHERE))
    return plan_recipe(artifact_statuses(root, recipe.targets()), run)


class TestBeforeAnythingWasBuilt:
    """What the listing and footers tell is exact; nothing else is made up."""

    def test_what_is_known_is_what_the_build_came_to(
        self, plan: Plan, tmp_path: Path, demo_root: Path, demo_hub: FaultyHub
    ) -> None:
        planned = plan(tmp_path)

        built = [open_artifact(demo_root / one.status.target.folder).manifest for one in planned.artifacts]
        snapshot, sample = built[SNAPSHOT], planned.artifacts[SNAPSHOT].sample
        assert planned.missing_bytes == snapshot.provenance["bytes_fetched"]
        assert planned.fetched_bytes == snapshot.provenance["bytes_fetched_to_plan"]
        assert planned.fetched_bytes == sum(request.bytes_sent for request in demo_hub.requests)
        assert {name: one.value for name, one in planned.artifacts[SNAPSHOT].figures.items()} == {
            "bytes_read": real_figures(snapshot)["bytes_read"],
            "rows": snapshot.identity.counts["ledger"]["in"],
            "bytes_fetched": snapshot.provenance["bytes_fetched"],
        }
        assert (sample.files, sample.files_listed, sample.row_groups, sample.rows) == (8, 8, 21, 1050)
        assert sample.asked <= sample.taken < sample.whole

    def test_a_budget_is_known_and_time_and_memory_are_not(self, plan: Plan, tmp_path: Path) -> None:
        planned = plan(tmp_path)

        assert set(planned.artifacts[TRAIN].figures) == set(planned.artifacts[VALID].figures) == {"tokens"}
        assert [(one.name, one.available, one.is_met) for one in planned.budgets] == [
            ("train", None, True),
            ("valid", None, True),
        ]
        assert planned.fetch_seconds is None
        assert planned.seconds("build_seconds") is None
        [disk] = planned.rooms
        assert (disk.needed, disk.kept) == (planned.missing_bytes, planned.missing_bytes)


class TestByEarlierBuilds:
    """A data root that has built a kind tells what another of it will take."""

    def test_another_sample_is_planned_in_proportion(self, plan: Plan, root: Path, recipe: HealingRecipe) -> None:
        changed = recipe.model_copy(update={"snapshot": recipe.snapshot.model_copy(update={"seed": "another"})})

        planned = plan(root, changed)

        real = {
            number: real_figures(open_artifact(root / planned.artifacts[number].status.target.folder).manifest)
            for number in (SNAPSHOT, SELECTION, TRAIN, VALID)
        }
        for number, figures in real.items():
            for name in ("documents", "text_bytes", "tokens", "bytes", "peak_disk_bytes"):
                if name in figures:
                    known = planned.artifacts[number].figures[name].value
                    assert known == pytest.approx(figures[name], rel=0.15), (number, name)
        assert planned.seconds("cpu_seconds") == pytest.approx(
            sum(one["cpu_seconds"] for one in real.values()), rel=0.2
        )
        assert planned.artifacts[TRAIN].figures["peak_memory_bytes"].value == real[TRAIN]["peak_memory_bytes"]
        assert [one.is_met for one in planned.budgets] == [True, True]
        assert [one.needs_replace for one in planned.artifacts] == [True, True, True, True, False]

    def test_what_is_replaced_goes_when_the_new_one_is_sealed(
        self, plan: Plan, root: Path, tmp_path: Path, recipe: HealingRecipe
    ) -> None:
        changed = recipe.model_copy(update={"snapshot": recipe.snapshot.model_copy(update={"seed": "another"})})

        disk, memory = plan(root, changed).rooms

        assert disk.kept < disk.needed
        assert disk.fits and memory.fits

    def test_every_kind_is_sealed_with_what_was_planned_of_it(self, tmp_path: Path) -> None:
        recipe = recipe_of(local_source(tmp_path, "notes", ROWS))
        build(recipe, tmp_path)
        again = recipe.model_copy(update={"name": "again", "outputs": None})

        planned = plan_offline(again, tmp_path)
        built = build(again, tmp_path)

        for one in some(planned.artifacts):
            manifest = built[one.status.target.role].manifest
            told = {outcome.figure: outcome.planned for outcome in outcomes(manifest) if outcome.planned is not None}
            assert told == one.figures != {}
            for name in ("rows", "documents", "text_bytes", "tokens", "bytes"):
                if name in told:
                    assert told[name].value == pytest.approx(real_figures(manifest)[name], rel=0.05), name


class TestWhatIsThere:
    """It costs nothing, and what is made of it is planned by it."""

    def test_what_is_built_asks_no_hub(self, plan: Plan, demo_root: Path) -> None:
        planned = plan(demo_root, endpoint=NOWHERE)

        assert planned.to_build == []
        assert (planned.budgets, planned.missing_bytes, planned.seconds("build_seconds")) == ([], 0, None)
        assert planned.rooms == []

    def test_a_split_is_planned_by_its_snapshot(self, plan: Plan, root: Path, recipe: HealingRecipe) -> None:
        train = open_artifact(root / recipe.megatron_split("train").folder).manifest
        shutil.rmtree(root / "megatron" / recipe.name / "train")

        planned = plan(root, endpoint=NOWHERE)

        assert [one.status.is_there for one in planned.artifacts] == [True, True, False, True, False]
        assert planned.artifacts[TRAIN].figures["tokens"].value == train.identity.decisions["token_budget"]
        assert [budget.name for budget in planned.budgets] == ["train"]

    def test_a_given_source_is_planned_by_what_is_sealed(self, tmp_path: Path) -> None:
        build(recipe_of(local_source(tmp_path, "notes", ROWS)), tmp_path)
        given = recipe_of({"kind": "normalized", "source": "notes", "filters": {"length": {"min_words": 2}}})

        [filtered, report] = plan_offline(given, tmp_path).artifacts

        assert filtered.figures["rows"].value == 50
        assert report.figures["tokens"].value > 0

    def test_a_given_source_that_is_not_there_says_where_it_would_be(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError) as error:
            plan_offline(recipe_of({"kind": "normalized", "source": "notes"}), tmp_path)

        assert str(error.value) == (
            "stage_a/mixed/normalized/notes: nothing is sealed there; make it first, or correct the recipe"
        )

    def test_a_folder_that_is_not_there_is_an_error_before_anything_is_built(self, tmp_path: Path) -> None:
        section = local_source(tmp_path, "notes", ROWS) | {"path": "nowhere"}

        with pytest.raises(UsageError) as error:
            plan_offline(recipe_of(section), tmp_path)

        assert str(error.value) == f"{tmp_path / 'nowhere'}: there is no such folder; correct the source's folder"


class TestBudgets:
    """Too little text is told before it is fetched, with what helps: never more of what a dataset hasn't."""

    @staticmethod
    def asking(recipe: HealingRecipe, text_bytes: int, tokens: int) -> HealingRecipe:
        amount = recipe.snapshot.amount.model_copy(update={"text_bytes": text_bytes})
        snapshot = recipe.snapshot.model_copy(update={"amount": amount})
        megatron = recipe.megatron.model_copy(update={"token_budget": tokens})
        return recipe.model_copy(update={"snapshot": snapshot, "megatron": megatron})

    @pytest.mark.parametrize("is_built", [False, True])
    def test_beyond_the_whole_dataset_no_more_text_is_advised(
        self, plan: Plan, tmp_path: Path, root: Path, recipe: HealingRecipe, is_built: bool
    ) -> None:
        planned = plan(root if is_built else tmp_path, self.asking(recipe, 10**12, 10**9))

        fix = "the dataset has no more: lower `megatron.token_budget`"
        assert [(one.is_met, one.fix) for one in planned.budgets] == [(False, fix)] * 2

    def test_nor_more_than_the_dataset_has(self, plan: Plan, root: Path, recipe: HealingRecipe) -> None:
        of_sealed = self.asking(recipe, recipe.snapshot.amount.text_bytes or 0, 10**9)

        planned = plan(root, of_sealed, endpoint=NOWHERE)

        train, _ = planned.budgets
        assert not train.is_met
        assert train.fix.startswith("the dataset has only 3,")
        assert train.fix.endswith("text_bytes or so in all: lower `megatron.token_budget`")

    def test_a_sample_too_small_asks_for_a_larger_one(self, plan: Plan, root: Path, recipe: HealingRecipe) -> None:
        [train, valid] = plan(root, self.asking(recipe, 240_000, recipe.megatron.token_budget)).budgets

        assert (train.is_met, valid.is_met) == (False, False)
        assert train.fix.startswith("raise `amount.text_bytes` from 240,000 to 1,")


def test_figures_are_told_in_one_order(plan: Plan, root: Path, recipe: HealingRecipe) -> None:
    assert set(FIGURES) >= {name for one in plan(root, recipe).artifacts for name in one.figures}


def use(fetched: int = 0, peak: int = 0, sealed: int = 0, freed: int = 0) -> DiskUse:
    return DiskUse(fetched, peak, sealed, freed)


def needed(*uses: DiskUse) -> tuple[float, float]:
    """(most at one time, what stays) of a disk that has the cache too."""
    [room] = disk_rooms(uses, Path("/tmp/data"), Path("/tmp/data/hub_cache"))
    return room.needed, room.kept


def test_the_cache_stays_and_building_folders_go() -> None:
    assert needed(use(fetched=100, peak=50, sealed=40), use(peak=300, sealed=120)) == (440, 260)


def test_the_worst_moment_may_come_first() -> None:
    assert needed(use(peak=500, sealed=10), use(peak=100, sealed=90)) == (500, 100)


def test_what_is_replaced_lies_beside_the_new_one_until_that_is_sealed() -> None:
    assert needed(use(peak=100, sealed=80, freed=70)) == (100, 10)
    assert needed(use(peak=100, sealed=80, freed=70), use(peak=100, sealed=80)) == (110, 90)


def test_what_a_crash_left_is_taken_already() -> None:
    assert needed(use(peak=100 - 60, sealed=80, freed=60)) == (40, 20)


def test_more_may_be_freed_than_is_needed() -> None:
    assert needed(use(peak=10 - 60, sealed=10, freed=70)) == (0, -60)


def test_a_cache_on_a_disk_of_its_own_is_held_against_that_one(tmp_path: Path) -> None:
    here = tmp_path.stat().st_dev
    disks = [Path("/dev/shm"), Path("/")]
    elsewhere = next((path for path in disks if path.is_dir() and path.stat().st_dev != here), None)
    if elsewhere is None:
        pytest.skip("there is no second file system here")

    data, cache = disk_rooms([use(fetched=100, peak=50, sealed=40)], tmp_path / "data", elsewhere / "cache")

    assert (data.needed, cache.needed) == (50, 100)
    assert cache.where == str(elsewhere / "cache")


def test_a_folder_that_is_not_there_yet_lies_on_the_disk_of_its_parent(tmp_path: Path) -> None:
    [room] = disk_rooms([use(peak=1)], tmp_path / "not" / "yet", tmp_path / "not" / "yet" / "hub_cache")

    assert room.free > 0


@pytest.mark.parametrize(("free", "fits"), [(None, True), (20, True), (19, False)])
def test_what_is_free_must_be_as_much_as_is_needed(free: int | None, fits: bool) -> None:
    assert Room("/data", 20, free).fits is fits


def test_memory_is_held_against_what_the_machine_can_give() -> None:
    assert memory_room(1).fits
    assert not memory_room(10**18).fits
    assert memory_room(10**18).fix == "take fewer workers"
