"""What commands build, the UI shows: as their checks said, and fresh where `status` says current."""

import json
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from answers import Corpusmill
from dagster._core.definitions.data_version import CachingStaleStatusResolver
from dagster._core.loader import LoadingContextForTest

from pipeline_assets.corpus.recipes.run import Run
from pipeline_assets.corpus.spine.artifact import sealed_manifest
from pipeline_assets.corpus.spine.engine import RunSettings
from pipeline_assets.definitions import definitions_of
from pipeline_assets.instance import open_instance
from pipeline_assets.launch import run_targets
from pipeline_assets.systems.registry import read_recipe


def staleness(root: Path) -> dict[str, str]:
    """What the UI says of each artifact of the recipe `mixed`: FRESH, STALE or MISSING."""
    graph = definitions_of(root).resolve_asset_graph()

    def said() -> Iterator[tuple[str, str]]:
        with open_instance(root) as instance:
            resolver = CachingStaleStatusResolver(instance, graph, LoadingContextForTest(instance))
            for key in graph.get_all_asset_keys():
                partitions = graph.get(key).partitions_def
                for partition in partitions.get_partition_keys() if partitions else [None]:
                    system, recipe, artifact = key.path
                    if recipe == "mixed":
                        role = "/".join([system, artifact, *([partition] if partition else [])])
                        yield role, resolver.get_status(key, partition).value

    return dict(said())


def states(root: Path) -> dict[str, str]:
    """What `status` says of them."""
    recipe = read_recipe(root / "recipes" / "mixed.yaml")
    return {target.role: target.state(root)[0] for target in recipe.targets()}


def run_kinds(root: Path, kinds: set[str]) -> None:
    recipe, run = read_recipe(root / "recipes" / "mixed.yaml"), Run(root, RunSettings(), replace=True)
    assert all(outcome.failure is None for outcome in run_targets(recipe, run, kinds=kinds))


@pytest.fixture
def shown(corpusmill: Corpusmill, notes_root: Path) -> Path:
    """A data root whose artifacts a command built."""
    (notes_root / "stage_a").rename(notes_root / "before")
    result = corpusmill("run", "mixed", "--data", notes_root, "--workers", 0)
    assert result.returncode == 0, result.stderr
    return notes_root


def test_what_a_command_built_is_fresh(shown: Path) -> None:
    assert set(states(shown).values()) == {"current"}
    assert staleness(shown) == dict.fromkeys(states(shown), "FRESH")


def test_after_an_upstream_is_another_both_say_what_is_to_be_built_again(shown: Path, corpusmill: Corpusmill) -> None:
    path = shown / "recipes" / "mixed.yaml"
    path.write_text(path.read_text().replace("- proprietary\n", "- proprietary\n- mit\n"))

    # The report is left as it was: of one source the step before it alone is built.
    run_kinds(shown, {"stage_a/filtered"})

    assert states(shown)["stage_a/report"] == "stale"
    assert {role for role, state in states(shown).items() if state != "current"} == {
        role for role, state in staleness(shown).items() if state != "FRESH"
    }


def test_a_command_without_a_recipe_is_shown_under_the_name_of_its_folder(shown: Path, corpusmill: Corpusmill) -> None:
    folder = shown / "stage_a" / "mixed" / "deduplicated" / "apart"
    variables = {"CORPUSMILL_ZSTD_LEVEL": "19", "CORPUSMILL_START_METHOD": "spawn"}

    result = corpusmill(
        "stage-a", "dedup", "--input", shown / "stage_a/mixed/filtered/notes", "--out-dir", folder,
        "--cpu-threads", 0, env=variables,
    )  # fmt: skip

    assert result.returncode == 0, result.stderr
    manifest = sealed_manifest(folder)
    settings = manifest.provenance["run_settings"]
    assert (settings["zstd_level"], settings["start_method"]) == (19, "spawn")
    key = dg.AssetKey(["stage_a", "apart", "deduplicated"])
    with open_instance(shown) as instance:
        event = instance.get_latest_materialization_event(key)
        assert event is not None and event.asset_materialization is not None
        assert event.asset_materialization.tags["dagster/data_version"] == manifest.digest
        [record] = instance.event_log_storage.get_asset_check_execution_history(
            dg.AssetCheckKey(key, "removals_within_caps"), limit=1
        )
        assert record.evaluation.passed


def test_a_run_that_builds_nothing_shows_nothing(shown: Path, corpusmill: Corpusmill) -> None:
    with open_instance(shown) as instance:
        before = len(instance.fetch_materializations(dg.AssetKey(["stage_a", "mixed", "raw"]), limit=9).records)

    result = corpusmill("run", "mixed", "--data", shown, "--json")

    assert not [row for row in json.loads(result.stdout) if row["was_built"]]
    with open_instance(shown) as instance:
        after = len(instance.fetch_materializations(dg.AssetKey(["stage_a", "mixed", "raw"]), limit=9).records)
    assert (before, after) == (1, 1)
