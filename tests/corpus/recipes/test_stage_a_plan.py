"""What a stage A recipe will cost, told before: the figures of a build lie in their bounds."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest
from stage_a_build import INLINE, build, local_source, only, recipe_of, recipe_with
from stage_a_sources import with_all_steps, write_hub, write_sources

from pipeline_assets.corpus.planning.recipe_plan import PlanSettings, RecipePlan
from pipeline_assets.corpus.planning.track_record import TrackRecord
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.recipes.stage_a import StageARecipe
from pipeline_assets.corpus.recipes.stage_a_plan import plan_stage_a
from pipeline_assets.corpus.spine.errors import UsageError
from pipeline_assets.corpus.spine.inventory import holdings
from resources.loopback_hub import LoopbackHub

ROWS = [{"text": f"Text number {number} with some words.", "key": str(number)} for number in range(50)]


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, LoopbackHub]]:
    """A data root with sources of every kind, nothing built, and the hub."""
    root = tmp_path_factory.mktemp("plan")
    write_sources(root)
    write_hub(root / "hub")
    with LoopbackHub(root / "hub") as hub:
        yield root, hub


def plan(recipe: StageARecipe, root: Path, hub: HubFiles | None = None) -> RecipePlan:
    files = hub or HubFiles(root / "hub_cache", endpoint="http://127.0.0.1:9")
    return plan_stage_a(recipe, holdings(root, recipe.targets()), files, settings(root))


WITHOUT_TEXT = ("stage_a/raw/", "stage_a/evaluation/", "stage_a/signatures", "stage_a/packed", "stage_a/report")


def settings(root: Path) -> PlanSettings:
    return PlanSettings(TrackRecord, root=root, engine=INLINE, fetch_threads=1)


@pytest.mark.slow
def test_before_a_build_every_artifact_has_its_figures_and_after_it_none(
    sources: tuple[Path, LoopbackHub],
) -> None:
    root, hub = sources
    recipe = recipe_with(root, with_all_steps, hub.commits()["maker/pages"])
    files = HubFiles(root / "hub_cache", endpoint=hub.endpoint)

    before = {one.holding.target.role: one.figures for one in plan(recipe, root, files).targets}
    built = build(recipe, root, files)
    after = {one.holding.target.role: one.figures for one in plan(recipe, root, files).targets}

    assert set(before) == set(built)
    for role, artifact in built.items():
        counts = artifact.manifest.identity.counts
        counts = {"rows": counts.get("ledger", {}).get("in"), **counts}
        for name in ("text_bytes", "tokens", "rows"):
            if name in before[role]:
                assert before[role][name].low <= counts[name] <= before[role][name].high, (role, name)
        if "bytes" in before[role]:
            stored = sum(file.bytes for file in artifact.manifest.storage)
            assert before[role]["bytes"].high > 0 and stored > 0
    assert {role for role, figures in before.items() if "text_bytes" in figures} == {
        role for role in built if not role.startswith(WITHOUT_TEXT)
    }
    assert set(before["stage_a/report"]) == {"tokens", "build_seconds"}
    assert {role for role, figures in after.items() if figures} == set()


def test_a_source_that_is_normalised_is_planned_by_what_is_sealed(tmp_path: Path) -> None:
    section = local_source(tmp_path, "notes", ROWS)
    built = build(recipe_of(section), tmp_path)
    text_bytes = built["stage_a/normalized/notes"].manifest.identity.counts["text_bytes"]

    [raw, normalized, filtered, _] = plan(
        recipe_of(section | {"filters": {"length": {"min_words": 2}}}), tmp_path
    ).targets

    assert (raw.figures, normalized.figures) == ({}, {})
    assert filtered.figures["text_bytes"].high == text_bytes


def test_a_given_source_is_planned_by_what_is_sealed(tmp_path: Path) -> None:
    built = build(recipe_of(local_source(tmp_path, "notes", ROWS)), tmp_path)
    given = recipe_of({"kind": "normalized", "source": "notes", "filters": {"length": {"min_words": 2}}})
    text_bytes = built["stage_a/normalized/notes"].manifest.identity.counts["text_bytes"]

    [filtered, report] = plan(given, tmp_path).targets

    assert filtered.figures["text_bytes"].high == text_bytes
    assert report.figures["tokens"].high > 0


def test_a_given_source_that_is_not_there_is_an_error_that_says_where_it_would_be(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as error:
        plan(recipe_of({"kind": "normalized", "source": "notes"}), tmp_path)

    assert str(error.value) == (
        "stage_a/mixed/normalized/notes: nothing is sealed there; "
        "normalise the source first, or correct `outputs.normalized_dir`"
    )


def test_a_folder_that_is_not_there_is_an_error_before_anything_is_built(tmp_path: Path) -> None:
    section = local_source(tmp_path, "notes", ROWS) | {"path": "nowhere"}

    with pytest.raises(UsageError) as error:
        plan(recipe_of(section), tmp_path)

    assert str(error.value) == f"{tmp_path / 'nowhere'}: there is no such folder; correct the source's folder"


@pytest.mark.parametrize(("name", "low", "high"), [("rows.jsonl", 0.2, 1.0), ("rows.jsonl.zst", 0.8, 9.0)])
def test_text_is_estimated_from_sizes_compressed_or_not(name: str, low: float, high: float, tmp_path: Path) -> None:
    section = local_source(tmp_path, "notes", ROWS) | {"files": [name]}
    folder = Path(section["path"])
    (folder / name).write_bytes(bytes(1000))

    [_, normalized, _, _] = plan(recipe_of(section), tmp_path).targets

    text = normalized.figures["text_bytes"]
    assert (text.low, text.high) == (round(1000 * low), round(1000 * high))
    assert dataclasses.is_dataclass(text)


@pytest.mark.parametrize(
    ("amount", "fetched"), [({"files": 1}, (900, 900, 900)), ({"text_bytes": 600}, (0, 300, 1800))]
)
def test_a_hub_source_of_json_lines_is_planned_by_sizes_alone(
    amount: dict[str, int], fetched: tuple[int, int, int], tmp_path: Path
) -> None:
    for name in "ab":
        path = tmp_path / "hub/datasets/maker/pages" / f"{name}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes((b'{"text": "%s"}\n' % (b"x" * 77)) * 10)
    with LoopbackHub(tmp_path / "hub") as hub:
        hub_source = only("pages", files=["*.jsonl"], amount=amount, rules=[], language=None)
        recipe = recipe_with(tmp_path, hub_source, hub.commits()["maker/pages"])
        files = HubFiles(tmp_path / "cache", endpoint=hub.endpoint)

        figures = {one.holding.target.role: one.figures for one in plan(recipe, tmp_path, files).targets}

        assert not [request for request in hub.requests if request.origin == "storage"]
    assert figures["stage_a/raw/pages"]["bytes_fetched"].bounds == fetched
    assert figures["stage_a/normalized/pages"]["text_bytes"].high <= 1800
