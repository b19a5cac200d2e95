"""corpusmill in a user's own Dagster project, as docs/operations.md shows it."""

from pathlib import Path

import dagster as dg
import pytest
from command_results import DOCS, code_blocks
from materialized import QUIET
from stage_a_sources import write_ship_recipe

from pipeline_assets.code_location import build_definitions
from pipeline_assets.spine.errors import UsageError
from resources.store import Store

ROW_COUNT = dg.AssetKey("row_count")


@pytest.fixture
def defs(tmp_path: Path) -> dg.Definitions:
    """Run the example of docs/operations.md on a data root with a recipe."""
    write_ship_recipe(tmp_path / "in", tmp_path, 60)
    [code] = [code for code in code_blocks(DOCS / "operations.md", "python") if "Definitions.merge" in code]
    names: dict[str, object] = {}
    exec(code.replace("/srv/corpora/data", str(tmp_path)), names)
    merged = names["defs"]
    assert isinstance(merged, dg.Definitions)
    return merged


def test_a_run_builds_artifacts_and_an_asset_of_the_project(defs: dg.Definitions, instance: dg.DagsterInstance) -> None:
    job = defs.resolve_implicit_global_asset_job_def()
    keys = [key for key in job.asset_layer.selected_asset_keys if key.path[:2] == ["stage_a", "notes"]]

    result = job.execute_in_process(
        asset_selection=[*keys, ROW_COUNT], partition_key="notes", instance=instance, run_config=QUIET
    )

    built = [event.asset_key for event in result.get_asset_materialization_events()]
    assert set(built) == {*keys, ROW_COUNT} and len(keys) == 6
    [count] = result.asset_materializations_for_node("row_count")
    assert count.metadata["rows"].value == 15
    checks = {check.check_name: check.passed for check in result.get_asset_check_evaluations()}
    assert checks["has_ten_rows"] and checks["ledger_adds_up"]


def test_a_run_of_the_job_requests_the_asset_that_depends_on_it(
    defs: dg.Definitions, instance: dg.DagsterInstance
) -> None:
    before = dg.evaluate_automation_conditions(defs, instance)
    [schedule] = [schedule for schedule in defs.schedules or [] if schedule.name == "nightly_notes"]
    assert isinstance(schedule, dg.ScheduleDefinition)
    assert defs.resolve_job_def(schedule.job_name).execute_in_process(instance=instance, run_config=QUIET).success

    after = dg.evaluate_automation_conditions(defs, instance, cursor=before.cursor)

    assert (before.get_num_requested(ROW_COUNT), after.get_num_requested(ROW_COUNT)) == (0, 1)


def test_an_asset_of_the_project_may_write_the_files_of_a_source(tmp_path: Path) -> None:
    write_ship_recipe(tmp_path / "in", tmp_path, 60)
    rows = tmp_path / "in" / "rows.jsonl"
    content, raw = rows.read_bytes(), dg.AssetKey(["stage_a", "notes", "raw"])
    rows.unlink()

    @dg.asset
    def crawl() -> None:
        rows.write_bytes(content)

    own = build_definitions(tmp_path)
    assets = dg.map_asset_specs(
        lambda spec: spec.merge_attributes(deps=[crawl]) if spec.key == raw else spec, own.assets or []
    )
    result = dg.materialize(
        [crawl, *assets],
        selection=dg.AssetSelection.assets(raw).upstream(),
        partition_key="notes",
        resources={**(own.resources or {}), "store": Store(workers=0)},
        run_config=QUIET,
    )

    built = [event.asset_key for event in result.get_asset_materialization_events()]
    assert built == [crawl.key, raw]


def test_a_data_root_may_be_a_relative_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_ship_recipe(tmp_path / "in", tmp_path, 60)
    monkeypatch.chdir(tmp_path.parent)

    job = build_definitions(tmp_path.name).resolve_job_def("notes")
    monkeypatch.chdir("/")

    assert job.execute_in_process(run_config=QUIET).success
    assert (tmp_path / "stage_a" / "notes" / "packed" / "notes" / "manifest.json").is_file()


def test_a_file_and_a_wrong_type_are_not_a_data_root(tmp_path: Path) -> None:
    file = tmp_path / "data"
    file.touch()

    with pytest.raises(UsageError) as in_place:
        build_definitions(file)
    with pytest.raises(UsageError) as mistyped:
        build_definitions(None)  # type: ignore[arg-type]

    assert str(in_place.value) == f"{file}: expected a folder, got a file; set CORPUSMILL_DATA to another folder"
    assert str(mistyped.value) == "root: must be a path or text, got None; correct it"
