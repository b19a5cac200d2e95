"""Snapshot of the code location: keys, partitions, dependencies, checks, jobs."""

import json
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.definitions.assets.graph.base_asset_graph import BaseAssetNode
from schedule_files import NOTES, write_schedules

from pipeline_assets.assets import dagster_name
from pipeline_assets.attributes import OWNERS_VARIABLE, TAGS_VARIABLE
from pipeline_assets.code_location import build_definitions
from pipeline_assets.systems.registry import SYSTEMS

PROJECT = Path(__file__).parents[1]
GOLDEN = PROJECT / "tests" / "golden" / "definitions.json"


@pytest.fixture(scope="module")
def defs(tmp_path_factory: pytest.TempPathFactory) -> dg.Definitions:
    """Build the definitions of a data root without its own recipes."""
    return build_definitions(tmp_path_factory.mktemp("data"))


def list_partitions(definition: dg.PartitionsDefinition | None) -> list[str] | None:
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
            "partitions": list_partitions(node.partitions_def),
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


def automated(definitions: dg.Definitions) -> set[str]:
    """Return the recipes whose assets Dagster builds when their inputs change."""
    graph = definitions.resolve_asset_graph()
    return {"/".join(key.path[1:-1]) for key in graph.get_all_asset_keys() if graph.get(key).automation_condition}


def test_no_condition_starts_a_build_by_itself(defs: dg.Definitions) -> None:
    assert automated(defs) == set()


def test_definitions_match_the_snapshot(defs: dg.Definitions) -> None:
    actual = snapshot(defs)

    assert actual == json.loads(GOLDEN.read_text(encoding="utf-8")), (
        f"the definitions changed; if that is meant, write this to {GOLDEN.name}:\n{json.dumps(actual, indent=1)}"
    )


def linked_functions(node: BaseAssetNode) -> list[str]:
    """List the path and definition that each link of an asset opens."""
    functions = []
    for link in node.metadata["dagster/code_references"].code_references:
        line = Path(link.file_path).read_text().splitlines()[link.line_number - 1].strip()
        functions.append(f"{Path(link.file_path).relative_to(PROJECT / 'pipeline_assets')} {line.partition('(')[0]}")
    return functions


def test_every_asset_links_to_its_kernels_and_their_caller(defs: dg.Definitions) -> None:
    graph = defs.resolve_asset_graph()

    links = {
        key: linked_functions(graph.get(key)) for key in graph.get_all_asset_keys() if key.path[0] in SYSTEMS.pages
    }
    functions = [function for asset in links.values() for function in asset]
    assert [function for function in functions if " def " not in function and "file_builder" not in function] == []
    assert links[dg.AssetKey(["stage_a", "stage_a_v1", "normalized"])] == [
        "corpus/snapshot/convert_pinned.py def convert_hub_rows",
        "corpus/normalize/files.py def convert_files",
        "corpus/normalize/converted.py def finish_source",
        "systems/stage_a.py def normalise",
    ]
    assert links[dg.AssetKey(["healing", "healing_text_v1", "megatron_split"])] == [
        "corpus/megatron_split.py def build_split",
        "systems/healing.py def _encode",
    ]
    without_kernel = {"/".join(key.path[::2]) for key, asset in links.items() if "corpus/" not in asset[0]}
    assert without_kernel <= {  # pins, and choices that the page itself makes
        *("stage_a/raw", "stage_a/evaluation", "stage2/raw", "nemotron/raw", "nemotron/model", "parallel_text/raw"),
        *("healing/healing_text_manifest", "healing/megatron_dataset", "healing/versions", "nemotron/versions"),
        *("stage_a/versions", "stage2/versions"),
    }


def read_groups(root: Path) -> dict[str, str | None]:
    graph = build_definitions(root).resolve_asset_graph()
    return {key.to_user_string(): graph.get(key).group_name for key in graph.get_all_asset_keys()}


def test_shipped_recipes_are_one_group_until_the_root_builds_or_copies_them(tmp_path: Path) -> None:
    before = read_groups(tmp_path)
    recipe = tmp_path / "recipes" / "wmt14_fr_en.yaml"
    recipe.parent.mkdir()
    recipe.write_bytes((PROJECT / "manifests" / "recipes" / recipe.name).read_bytes())

    after = read_groups(tmp_path)

    assert {before[key] for key in before if key.partition("/")[0] in SYSTEMS.pages} == {"never_built"}
    changed = {key: group for key, group in after.items() if group != before[key]}
    assert set(changed.values()) == {"wmt14_fr_en"}
    assert "hub/b199e406369e/wmt/wmt14" in changed and "parallel_text/wmt14_fr_en/sample" in changed


@pytest.mark.slow
def test_input_of_several_recipes_of_the_root_is_a_shared_source(notes_root: Path) -> None:
    alone = read_groups(notes_root)
    rename_recipe(notes_root / "recipes" / "mixed.yaml", "other")

    both = read_groups(notes_root)

    [folder] = [key for key in alone if key.startswith("files/") and alone[key] == "mixed"]
    assert both[folder] == "sources"


def rename_recipe(path: Path, *names: str) -> None:
    """Write copies of a recipe with other names next to each other."""
    text = path.read_text()
    for name in names:
        path.with_name(f"{name}.yaml").write_text(text.replace(f"name: {path.stem}", f"name: {name}"))


def test_scheduled_recipe_is_built_when_its_inputs_change(notes_root: Path) -> None:
    write_schedules(notes_root, NOTES)
    raw, normalized = (dg.AssetKey(["stage_a", "mixed", artifact]) for artifact in ("raw", "normalized"))
    definitions = build_definitions(notes_root)
    sensors = definitions.get_repository_def().sensor_defs
    [partition] = definitions.resolve_asset_graph().get(raw).partitions_def.get_partition_keys()

    def evaluate(cursor: object) -> dg.EvaluateAutomationConditionsResult:
        selection = dg.AssetSelection.assets(normalized)
        return dg.evaluate_automation_conditions(definitions, instance, selection, cursor=cursor)

    with dg.DagsterInstance.ephemeral() as instance:
        for key in (raw, normalized):
            instance.report_runless_asset_event(dg.AssetMaterialization(key, partition=partition))
        first = evaluate(None)
        instance.report_runless_asset_event(dg.AssetMaterialization(raw, partition=partition))
        second = evaluate(first.cursor)

    [status] = [sensor.default_status for sensor in sensors if "automation" in sensor.name]
    assert (automated(definitions), status) == ({"mixed"}, dg.DefaultSensorStatus.STOPPED)
    assert (first.total_requested, second.get_requested_partitions(normalized)) == (0, {partition})


def test_versions_in_the_group_of_a_scheduled_recipe_have_no_condition(notes_root: Path) -> None:
    rename_recipe(notes_root / "recipes" / "mixed.yaml", "mixed_20261123", "mixed_versions")
    write_schedules(notes_root, NOTES | {"recipe": "mixed_versions"})

    assert automated(build_definitions(notes_root)) == {"mixed_versions"}


def test_recipes_with_similar_names_or_names_of_steps_hide_no_other_in_the_ui(notes_root: Path) -> None:
    recipes, shipped = notes_root / "recipes", PROJECT / "manifests" / "recipes" / "healing_text_v1.yaml"
    (recipes / shipped.name).write_bytes(shipped.read_bytes())
    rename_recipe(recipes / shipped.name, "web", "web_20261102", "web__versions")
    names = ("mixed__step", "nightly__fresh", "stage_a__mixed__filtered", "config", "class")  # Dagster reserves two
    rename_recipe(recipes / "mixed.yaml", *names)
    for name in ("a", "a.yaml:b"):
        (recipes / f"{name}.yaml").write_text("system: none\n")
    write_schedules(notes_root, NOTES)

    repository = build_definitions(notes_root).get_repository_def()

    jobs = repository.get_all_jobs()  # compares the names of jobs and steps
    assert {"mixed", *names} <= {job.tags.get("corpusmill/recipe") for job in jobs}
    assert dagster_name("healing__repin") == "healing__repin"  # a job, but no step
    assert {
        dg.AssetKey(["healing", "web", "versions", "megatron_dataset"]),
        dg.AssetKey(["healing", "web__versions", "megatron_dataset"]),
        dg.AssetKey(["recipes_left_out", "a"]),
        dg.AssetKey(["recipes_left_out", "a.yaml:b"]),
    } <= repository.asset_graph.get_all_asset_keys()


def test_unusable_recipe_file_with_any_name_is_a_node_with_the_reason(notes_root: Path) -> None:
    (notes_root / "schedules.yaml").write_text("schedule: []\n")
    mine = "name: mine\nsystem: stage_a\nsources: <b>\ndedupe: {}\n"
    for name, text in {"mine": mine, "\udcff": "system: none\n", "schedules.yaml": "system: none\n"}.items():
        (notes_root / "recipes" / f"{name}.yaml").write_text(text)

    repository = build_definitions(notes_root).get_repository_def()

    def describe(name: str) -> str:
        node = repository.asset_graph.get(dg.AssetKey(["recipes_left_out", name]))
        return (node.description or "").encode().decode()  # Dagster stores UTF-8

    assert "mixed" in repository.job_names
    assert r"mine.yaml:4: unknown key \`dedupe\`; did you mean \`dedup\`?" in describe("mine")  # in Markdown
    assert r"mine.yaml:3: \`sources\` must be a list, got '\<b\>'" in describe("mine")
    assert r"/recipes/\\udcff.yaml:1: \`system\` must be one of" in describe(r"\udcff")
    assert r"/recipes/schedules.yaml.yaml:1: \`system\`" in describe("schedules.yaml")
    assert r"unknown key \`schedule\`" in describe("schedules.yaml")


def test_every_asset_has_the_configured_owners_and_tags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OWNERS_VARIABLE, "team:data, me@example.org")
    monkeypatch.setenv(TAGS_VARIABLE, "project=llm,tier=gold")

    graph = build_definitions(tmp_path).resolve_asset_graph()

    assets = [graph.get(key) for key in graph.get_all_asset_keys()]
    assert {tuple(asset.owners) for asset in assets} == {("team:data", "me@example.org")}
    assert all({"project": "llm", "tier": "gold"}.items() <= asset.tags.items() for asset in assets)
    assert any("dagster/kind/jsonl" in asset.tags for asset in assets)


@pytest.mark.parametrize(("variable", "value"), [(OWNERS_VARIABLE, "nobody in particular"), (TAGS_VARIABLE, "a b=c")])
def test_invalid_owners_and_tags_are_ignored_with_a_warning(
    variable: str, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(variable, value)

    graph = build_definitions(tmp_path).resolve_asset_graph()

    assert {tuple(graph.get(key).owners) for key in graph.get_all_asset_keys()} == {("team:corpusmill",)}
    [record] = [record for record in caplog.records if variable in record.getMessage()]
    assert "are ignored" in record.getMessage()
