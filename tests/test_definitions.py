"""What the code location offers, as a snapshot: keys, partitions, dependencies, checks, jobs."""

import json
from pathlib import Path

import dagster as dg
import pytest

from pipeline_assets.corpus.nemotron.splits import PARTITION_KEYS
from pipeline_assets.corpus.recipes.systems import read_recipe
from pipeline_assets.definitions import defs
from pipeline_assets.partitions import NEMOTRON_SPLITS

PROJECT = Path(__file__).parents[1]
GOLDEN = PROJECT / "tests" / "golden" / "definitions.json"


def partitions_of(definition: dg.PartitionsDefinition | None) -> list[str] | str | None:
    """Keys, or the name of a set of them that recipes fill."""
    if isinstance(definition, dg.DynamicPartitionsDefinition):
        return f"dynamic: {definition.name}"
    return list(definition.get_partition_keys()) if definition is not None else None


def snapshot() -> dict[str, object]:
    graph = defs.resolve_asset_graph()
    assets = {}
    for key in sorted(graph.get_all_asset_keys()):
        node = graph.get(key)
        assets[key.to_user_string()] = {
            "group": node.group_name,
            "depends_on": sorted(parent.to_user_string() for parent in node.parent_keys),
            "partitions": partitions_of(node.partitions_def),
            "kinds": sorted(node.kinds),
            "code_version": node.code_version,
            "checks": {
                check.name: "blocking" if graph.get(check).blocking else "not blocking"
                for check in sorted(node.check_keys, key=lambda check: check.name)
            },
            "description": (node.description or "").split("\n")[0],
        }
    jobs = {
        name: sorted(key.to_user_string() for key in defs.resolve_job_def(name).asset_layer.executable_asset_keys)
        for name in ["healing", "stage_a", "nemotron"]
    }
    return {
        "assets": assets,
        "jobs": jobs,
        "sensors": sorted(sensor.name for sensor in defs.sensors or []),
        "resources": sorted(defs.resources or {}),
    }


def test_the_definitions_are_those_of_the_snapshot() -> None:
    found = snapshot()

    assert found == json.loads(GOLDEN.read_text(encoding="utf-8")), (
        f"the definitions changed; if that is meant, write this to {GOLDEN.name}:\n{json.dumps(found, indent=1)}"
    )


@pytest.mark.parametrize("name", ["healing_text_v1", "stage_a_v1", "nemotron_v1"])
def test_every_artifact_of_a_recipe_is_an_asset_with_that_key_and_partition(name: str) -> None:
    recipe = read_recipe(PROJECT / "manifests" / "recipes" / f"{name}.yaml")
    graph = defs.resolve_asset_graph()

    targets = recipe.targets()

    made = {target.kind for target in targets}
    for target in targets:
        key = next(key for key in graph.get_all_asset_keys() if key.to_user_string() == target.kind)
        partitions = partitions_of(graph.get(key).partitions_def)
        if isinstance(partitions, list):
            assert target.partition in partitions
        else:
            assert (target.partition is None) == (partitions is None)
        assert graph.get(key).code_version == str(target.stage.version)
        parents = {parent.to_user_string() for parent in graph.get(key).parent_keys}
        assert {other.kind for other in target.upstream} == parents & made  # it leaves other steps out


def test_the_partitions_of_nemotron_are_the_splits_that_its_kernels_know() -> None:
    assert NEMOTRON_SPLITS.get_partition_keys() == list(PARTITION_KEYS)


def test_every_asset_says_what_it_is() -> None:
    graph = defs.resolve_asset_graph()

    silent = [key.to_user_string() for key in graph.get_all_asset_keys() if not graph.get(key).description]

    assert silent == []
