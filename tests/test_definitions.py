"""What the code location offers, as a snapshot: keys, partitions, dependencies, checks, jobs."""

import json
from pathlib import Path

import dagster as dg
import pytest

from pipeline_assets.definitions import build_definitions
from pipeline_assets.owners import OWNERS, TAGS
from pipeline_assets.systems.registry import SYSTEMS

PROJECT = Path(__file__).parents[1]
GOLDEN = PROJECT / "tests" / "golden" / "definitions.json"


@pytest.fixture(scope="module")
def defs(tmp_path_factory: pytest.TempPathFactory) -> dg.Definitions:
    """Those of a data root without recipes of its own."""
    return build_definitions(tmp_path_factory.mktemp("data"))


def partitions_of(definition: dg.PartitionsDefinition | None) -> list[str] | None:
    if definition is None:
        return None
    with dg.DagsterInstance.ephemeral() as empty:
        return list(definition.get_partition_keys(dynamic_partitions_store=empty))


def snapshot(defs: dg.Definitions) -> dict[str, object]:
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
    return {
        "assets": assets,
        "jobs": sorted(job.name for job in defs.jobs or []),
        "schedules": sorted(schedule.name for schedule in defs.schedules or []),
        "sensors": sorted(sensor.name for sensor in defs.sensors or []),
        "resources": sorted(defs.resources or {}),
    }


def test_no_condition_starts_a_build_by_itself(defs: dg.Definitions) -> None:
    graph = defs.resolve_asset_graph()

    assert [key for key in graph.get_all_asset_keys() if graph.get(key).automation_condition is not None] == []


def test_the_definitions_are_those_of_the_snapshot(defs: dg.Definitions) -> None:
    found = snapshot(defs)

    assert found == json.loads(GOLDEN.read_text(encoding="utf-8")), (
        f"the definitions changed; if that is meant, write this to {GOLDEN.name}:\n{json.dumps(found, indent=1)}"
    )


def test_every_asset_leads_to_the_page_that_describes_it(defs: dg.Definitions) -> None:
    graph = defs.resolve_asset_graph()

    for key in graph.get_all_asset_keys():
        if graph.get(key).is_external:
            continue
        [page] = graph.get(key).metadata["dagster/code_references"].code_references
        assert Path(page.file_path).stem == SYSTEMS.pages[key.path[0]].rpartition(".")[2]


def test_a_recipe_that_cannot_be_used_is_a_node_that_says_why(tmp_path: Path) -> None:
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "mine.yaml").write_text("name: mine\nsystem: stage_a\nsources: []\ndedupe: {}\n")

    graph = build_definitions(tmp_path).resolve_asset_graph()

    said = graph.get(dg.AssetKey(["recipes_left_out", "mine"])).description
    assert said is not None and "mine.yaml:4: unknown key `dedupe`; did you mean `dedup`?" in said


def test_every_asset_has_the_owners_and_tags_that_are_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OWNERS, "team:data, me@example.org")
    monkeypatch.setenv(TAGS, "project=llm,tier=gold")

    graph = build_definitions(tmp_path).resolve_asset_graph()

    assets = [graph.get(key) for key in graph.get_all_asset_keys()]
    assert {tuple(asset.owners) for asset in assets} == {("team:data", "me@example.org")}
    assert all({"project": "llm", "tier": "gold"}.items() <= asset.tags.items() for asset in assets)
    assert any("dagster/kind/jsonl" in asset.tags for asset in assets)


@pytest.mark.parametrize(("variable", "value"), [(OWNERS, "nobody in particular"), (TAGS, "a b=c")])
def test_what_dagster_does_not_take_is_left_out_and_said(
    variable: str, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(variable, value)

    graph = build_definitions(tmp_path).resolve_asset_graph()

    assert {tuple(graph.get(key).owners) for key in graph.get_all_asset_keys()} == {()}
    [record] = [record for record in caplog.records if variable in record.getMessage()]
    assert "are ignored" in record.getMessage()
