"""Plans from listings, footers, recipes and sealed artifacts, and disk capacity."""

import gzip
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from faulty_hub import FaultyHub
from real_samples import some
from refusals import refusal
from stage2_build import write_local_mixture
from stage_a_build import INLINE, build, local_source, parse_recipe

from pipeline_assets.build.figures import figure_outcomes, real_figures
from pipeline_assets.build.inventory import artifact_statuses
from pipeline_assets.build.recipe import Recipe
from pipeline_assets.build.run import Run
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.readers.listing import Forecast
from pipeline_assets.spine.artifact import open_artifact
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.systems.healing import HealingRecipe
from pipeline_assets.systems.registry import SYSTEMS
from pipeline_assets.systems.stage_a import StageARecipe
from pipeline_assets.trust.plan import CapacityCheck, RecipePlan, check_disks, limit_warnings, plan_recipe

Plan = Callable[..., RecipePlan]
SNAPSHOT, SELECTION, TRAIN, VALID, DATASET = range(5)
NOWHERE = "http://127.0.0.1:9"
ROWS = [{"text": f"Text number {number} with some words.", "key": str(number)} for number in range(50)]


@pytest.fixture
def recipe(demo_root: Path) -> HealingRecipe:
    return SYSTEMS.read_recipe(demo_root / "recipes" / "healing_text_v1.yaml")


@pytest.fixture
def plan(demo_hub: FaultyHub, recipe: HealingRecipe, tmp_path: Path) -> Plan:
    """Return a function that plans the demo's recipe with the test's own cache."""

    def plan_demo(root: Path, planned_recipe: HealingRecipe = recipe, endpoint: str = demo_hub.endpoint) -> RecipePlan:
        run = Run(root, RunSettings(workers=2), HubFiles(tmp_path / "cache", endpoint, tries=1))
        return plan_recipe(artifact_statuses(root, planned_recipe.targets()), run)

    return plan_demo


def plan_offline(recipe: Recipe, root: Path) -> RecipePlan:
    run = Run(root, INLINE, HubFiles(root / "hub_cache", endpoint=NOWHERE))
    return plan_recipe(artifact_statuses(root, recipe.targets()), run)


class TestBeforeABuild:
    """The listing and footers give exact figures; no other figure is invented."""

    def test_planned_figures_match_the_build(
        self, plan: Plan, tmp_path: Path, demo_root: Path, demo_hub: FaultyHub
    ) -> None:
        planned = plan(tmp_path)

        built = [open_artifact(demo_root / entry.status.target.folder).manifest for entry in planned.artifacts]
        snapshot, sample = built[SNAPSHOT], planned.artifacts[SNAPSHOT].sample
        assert planned.bytes_to_fetch == snapshot.provenance["bytes_fetched"]
        assert planned.bytes_fetched_to_plan == snapshot.provenance["bytes_fetched_to_plan"]
        assert planned.bytes_fetched_to_plan == sum(request.bytes_sent for request in demo_hub.requests)
        assert {name: entry.value for name, entry in planned.artifacts[SNAPSHOT].figures.items()} == {
            "bytes_read": real_figures(snapshot)["bytes_read"],
            "rows": snapshot.identity.counts["ledger"]["in"],
            "bytes_fetched": snapshot.provenance["bytes_fetched"],
        }
        assert (sample.files, sample.files_listed, sample.row_groups, sample.rows) == (8, 8, 21, 1050)

    def test_tokens_match_the_budget_and_take_four_bytes(self, plan: Plan, tmp_path: Path) -> None:
        planned = plan(tmp_path)

        assert [planned.artifacts[split].figures["tokens"].value for split in (TRAIN, VALID)] == [220_050, 24_450]
        assert [set(planned.artifacts[split].figures) for split in (TRAIN, VALID)] == [{"tokens"}] * 2
        [disk] = planned.disk_checks
        assert disk.needed == planned.bytes_to_fetch + 4 * 244_500

    def test_a_leftover_of_the_tokens_reduces_needed_bytes(self, plan: Plan, tmp_path: Path) -> None:
        leftover = tmp_path / "megatron" / "healing_text_v1" / ".train.building.1" / "tokens.bin"
        leftover.parent.mkdir(parents=True)
        leftover.write_bytes(bytes(100_000))

        planned = plan(tmp_path)

        assert planned.disk_checks[0].needed == planned.bytes_to_fetch + 4 * 244_500 - 100_000

    def test_every_artifact_is_sealed_with_its_planned_figures(self, tmp_path: Path) -> None:
        recipe = parse_recipe(local_source(tmp_path, "notes", ROWS))

        planned = plan_offline(recipe, tmp_path)
        built = build(recipe, tmp_path)

        for entry in some(planned.artifacts):
            manifest = built[entry.status.target.role].manifest
            expected = {
                outcome.figure: outcome.planned for outcome in figure_outcomes(manifest) if outcome.planned is not None
            }
            assert expected == entry.figures
        [raw, *_] = planned.artifacts
        assert raw.figures["bytes_read"].value == (tmp_path / "sources" / "notes" / "rows.jsonl").stat().st_size


class TestBuiltArtifacts:
    """A built artifact costs nothing, and its downstream is planned from it."""

    def test_built_artifacts_need_no_hub(self, plan: Plan, demo_root: Path) -> None:
        planned = plan(demo_root, endpoint=NOWHERE)

        assert planned.artifacts_to_build == []
        assert planned.bytes_to_fetch == 0
        assert planned.disk_checks == []

    def test_a_split_is_planned_by_its_snapshot(self, plan: Plan, root: Path, recipe: HealingRecipe) -> None:
        shutil.rmtree(root / "megatron" / recipe.name / "train")

        planned = plan(root, endpoint=NOWHERE)

        assert [entry.status.matches_recipe for entry in planned.artifacts] == [True, True, False, True, False]
        assert planned.artifacts[TRAIN].figures["tokens"].value == 220_050

    def test_a_missing_normalized_source_is_named_with_its_folder(self, tmp_path: Path) -> None:
        recipe = parse_recipe({"kind": "normalized", "source": "notes"})

        assert refusal(lambda: plan_offline(recipe, tmp_path), UsageError) == (
            "stage_a/mixed/normalized/notes: no artifact is sealed here; build it first, or correct the recipe"
        )

    def test_a_missing_source_folder_is_refused(self, tmp_path: Path) -> None:
        recipe = parse_recipe(local_source(tmp_path, "notes", ROWS) | {"path": "nowhere"})

        assert refusal(lambda: plan_offline(recipe, tmp_path), UsageError) == (
            f"{tmp_path / 'nowhere'}: folder not found; correct the source's folder"
        )


def test_segments_beyond_the_corpora_lack_tokens_before_the_shards_exist(tmp_path: Path) -> None:
    mixture = write_local_mixture(tmp_path)

    def missing(tokens: int) -> Mapping[str, int]:
        segments = [{"name": name, "tokens": tokens, "weights": {"first": 3, "second": 1}} for name in ("one", "two")]
        content = mixture.content() | {"segments": {"segments": segments}}
        return plan_offline(type(mixture).from_mapping(content, "made"), tmp_path).missing_segment_tokens

    texts = {
        name: (tmp_path / "mixture" / "sources" / name / "rows.jsonl").stat().st_size for name in ("first", "second")
    }
    expected = {"first": 150_000 - 0.4 * 2.1 / 4 * texts["first"], "second": 50_000 - 0.4 * 2.1 / 4 * texts["second"]}
    assert missing(100_000) == pytest.approx(expected, abs=2)
    assert missing(256) == {}


class TestDisk:
    """Estimated bytes that each artifact adds to the disk."""

    @pytest.fixture
    def recipe(self, tmp_path: Path) -> StageARecipe:
        renamed_rows = [row | {"key": f"other-{row['key']}"} for row in ROWS]
        kept = local_source(tmp_path, "kept", ROWS, filters={})
        ruled = local_source(tmp_path, "ruled", renamed_rows, filters={"length": {"min_words": 1}})
        return parse_recipe(kept, ruled, dedup={"mode": "exact"}, refuse_licences=[])

    def text_bytes(self, folder: Path) -> list[int]:
        return [(folder / "sources" / name / "rows.jsonl").stat().st_size for name in ("kept", "ruled")]

    def plan(self, recipe: StageARecipe, root: Path, variables: Mapping[str, str]) -> RecipePlan:
        run = Run.from_settings(root, variables, hub=HubFiles(root / "hub_cache", endpoint=NOWHERE))
        return plan_recipe(artifact_statuses(root, recipe.targets()), run)

    def disk_bytes(self, recipe: StageARecipe, root: Path, variables: Mapping[str, str]) -> dict[str, int | None]:
        planned = self.plan(recipe, root, variables)
        return {entry.status.target.role.removeprefix("stage_a/"): entry.disk_bytes for entry in planned.artifacts}

    def test_level_1_takes_a_tenth_more_and_links_take_nothing(self, recipe: StageARecipe, tmp_path: Path) -> None:
        kept, ruled = (0.4 * size for size in self.text_bytes(tmp_path))

        steps = self.disk_bytes(recipe, tmp_path / "data", {})
        set_level = self.disk_bytes(recipe, tmp_path / "data", {"CORPUSMILL_ZSTD_LEVEL": "3"})

        assert steps == {
            "raw/kept": None,
            "normalized/kept": pytest.approx(1.1 * kept, abs=1),
            "filtered/kept": 0,
            "raw/ruled": None,
            "normalized/ruled": pytest.approx(1.1 * ruled, abs=1),
            "filtered/ruled": pytest.approx(1.1 * ruled, abs=1),
            "deduplicated": pytest.approx(kept + ruled, abs=2),
            "report": None,
        }
        assert set_level["normalized/kept"] == pytest.approx(kept, abs=1)

    def test_built_artifacts_count_by_their_files(self, recipe: StageARecipe, tmp_path: Path) -> None:
        built = build(recipe, tmp_path / "data")
        shutil.rmtree(tmp_path / "data" / "stage_a" / recipe.name / "deduplicated")

        steps = self.disk_bytes(recipe, tmp_path / "data", {})

        corpora = [built[f"stage_a/filtered/{source}"] for source in ("kept", "ruled")]
        assert steps["deduplicated"] == sum(file.bytes for corpus in corpora for file in corpus.manifest.storage)
        assert steps["normalized/kept"] is None

    def test_kept_work_takes_1_4_bytes_per_byte_of_text(self, recipe: StageARecipe, tmp_path: Path) -> None:
        root, keep_work = tmp_path / "data", {"CORPUSMILL_KEEP_WORK": "1"}
        text_bytes = sum(self.text_bytes(tmp_path))

        assert self.plan(recipe, root, keep_work).kept_bytes == pytest.approx(1.4 * text_bytes, abs=2)
        assert self.plan(recipe, root, {}).kept_bytes == 0
        build(recipe, root)
        assert self.plan(recipe, root, keep_work).kept_bytes == 0

    def test_a_packed_set_without_num_seqs_takes_the_rows_that_its_caps_allow(self, tmp_path: Path) -> None:
        source = local_source(tmp_path, "notes", ROWS)
        path = tmp_path / "sources" / "notes" / "rows.jsonl"

        def packed_bytes(**pack: Any) -> int | None:
            recipe = parse_recipe(source, refuse_licences=[], pack={"seq_len": 2, **pack})
            return self.disk_bytes(recipe, tmp_path / "data", {})["packed"]

        tokens = 0.4 * 2.1 / 4 * path.stat().st_size
        assert packed_bytes() == pytest.approx(4 * tokens, abs=8)
        assert packed_bytes(max_epochs={"every_source": "100"}) == pytest.approx(400 * tokens, abs=400)
        assert packed_bytes(seq_len=1 << 20) == 4 << 20  # one padded row
        assert packed_bytes(num_seqs=7) == 4 * 7 * 2

    def test_a_compressed_file_counts_by_its_bytes_and_changes_no_estimate_of_the_others(self, tmp_path: Path) -> None:
        source = local_source(tmp_path, "notes", ROWS, files=["*.jsonl", "*.jsonl.gz"])
        folder = tmp_path / "sources" / "notes"
        (folder / "one.jsonl.gz").write_bytes(gzip.compress(b'{"text": "One text.", "key": "1"}\n'))

        steps = self.disk_bytes(parse_recipe(source, refuse_licences=[]), tmp_path / "data", {})

        plain, compressed = ((folder / name).stat().st_size for name in ("rows.jsonl", "one.jsonl.gz"))
        assert steps["normalized/notes"] == pytest.approx(0.4 * plain + compressed, abs=1)


def test_a_cache_on_another_disk_is_checked_against_that_disk(tmp_path: Path) -> None:
    device = tmp_path.stat().st_dev
    disks = [Path("/dev/shm"), Path("/")]
    other_disk = next((path for path in disks if path.is_dir() and path.stat().st_dev != device), None)
    if other_disk is None:
        pytest.skip("no second file system is mounted")

    data, cache = check_disks(tmp_path / "data", other_disk / "cache", bytes_to_write=50, bytes_to_fetch=100)

    assert (data.needed, cache.needed) == (50, 100)
    assert cache.folder == other_disk / "cache"


def test_a_missing_folder_counts_for_the_disk_of_its_parent(tmp_path: Path) -> None:
    [room] = check_disks(tmp_path / "not" / "yet", tmp_path / "not" / "yet" / "hub_cache", 1, 0)

    assert room.free > 0


@pytest.mark.parametrize(("free", "fits"), [(20, True), (19, False)])
def test_free_bytes_must_reach_needed_bytes(free: int, fits: bool) -> None:
    assert CapacityCheck(Path("/data"), 20, free).fits is fits


class TestHardLimits:
    """Plans warn before the start of a build that would fail at its end."""

    @pytest.fixture
    def web(self, tmp_path: Path) -> StageARecipe:
        columns = {"text": "text", "id": "key", "created_at": None}
        rows = {"a": ROWS, "b": [{"text": "One more text.", "key": "more"}]}
        sources = [local_source(tmp_path, name, texts, columns=columns) for name, texts in rows.items()]
        return parse_recipe(*sources, shard_text_bytes=1 << 26, dedup={}, pack=None, decontamination=None)

    def warnings(self, plan: RecipePlan, **raw: Any) -> list[str]:
        """List the warnings if the raw sources had other figures."""
        changed = [replace(entry, **raw) if "raw" in entry.status.target.role else entry for entry in plan.artifacts]
        return list(limit_warnings(replace(plan, artifacts=changed)))

    def test_all_sources_documents_count_against_deduplication(self, web: StageARecipe, tmp_path: Path) -> None:
        plan = plan_offline(web, tmp_path / "data")
        half, more = ({"rows": Forecast(2**31 + more, "footers")} for more in (0, 1))

        assert self.warnings(plan, figures=half) == []
        assert self.warnings(plan, figures=more) == [
            "stage_a/deduplicated: needs at least 4,294,967,298 documents, the limit is 4,294,967,296; "
            "deduplicate parts of it in recipes of their own"
        ]

    def test_shards_count_for_each_source(self, web: StageARecipe, tmp_path: Path) -> None:
        plan = plan_offline(web, tmp_path / "data")
        limit, more = ({"bytes_read": Forecast(shards << 26, "the listing")} for shards in (100_000, 100_001))

        assert self.warnings(plan, figures=limit) == []
        assert self.warnings(plan, figures=more) == [
            f"stage_a/normalized/{name}: needs at least 100,001 shards, the limit is 100,000; "
            "increase `shard_text_bytes`, or split the source"
            for name in ("a", "b")
        ]

    def test_entries_of_input_files_count_against_a_manifests_size(self, web: StageARecipe, tmp_path: Path) -> None:
        plan = plan_offline(web, tmp_path / "data")
        [raw, *_] = plan.artifacts

        size = raw.figures["bytes_read"].value
        assert raw.listing_bytes == len(f'[\n {{\n  "name": "rows.jsonl",\n  "bytes": {size}\n }}\n]')
        assert self.warnings(plan, listing_bytes=256 << 20) == []
        assert self.warnings(plan, listing_bytes=(256 << 20) + 1) == [
            f"stage_a/raw/{name}: needs at least 268,435,457 bytes in its manifest, the limit is 268,435,456; "
            "split the source"
            for name in ("a", "b")
        ]

    def test_documents_of_built_sources_match_their_manifests(self, web: StageARecipe, tmp_path: Path) -> None:
        for target in web.targets()[:-2]:  # all but the deduplication and the report
            target.kind.build(target, Run(tmp_path / "data", INLINE))
        plan = plan_offline(web, tmp_path / "data")

        assert [entry.status.sealed_state for entry in plan.artifacts] == ["current"] * 6 + ["missing"] * 2
        assert self.warnings(plan, figures={"rows": Forecast(2**40, "ignored")}) == []
