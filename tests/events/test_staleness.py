"""Stale artifacts in the UI, which agrees with `status`."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest
from marked_rows import forget_ids
from materialized import evaluate_external_sensor
from sealed_scans import Scan, run_kinds, staleness, states

from pipeline_assets.spine.manifest import StageVersion
from pipeline_assets.systems import stage_a


@pytest.mark.parametrize(
    "has_shipped", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["own recipes", "shipped too"]
)
def test_artifacts_built_by_a_command_are_fresh(scan: Scan, instance: dg.DagsterInstance, root: Path) -> None:
    shutil.rmtree(root / "stage_a")
    before = scan(), staleness(root, instance)
    run_kinds(root)

    message = scan()
    for observed in evaluate_external_sensor(root, instance).asset_events:  # observations make nothing stale
        instance.report_runless_asset_event(observed)

    assert before == ("events reported: 0", dict.fromkeys(states(root), "MISSING"))
    assert message != before[0]
    assert set(states(root).values()) == {"current"}
    assert staleness(root, instance) == dict.fromkeys(states(root), "FRESH")


def stale_roles(root: Path, instance: dg.DagsterInstance) -> tuple[set[str], set[str]]:
    return (
        {role for role, state in states(root).items() if state != "current"},
        {role for role, state in staleness(root, instance).items() if state != "FRESH"},
    )


def edit_recipe(old: str, new: str) -> Callable[[Path], None]:
    def edit(root: Path) -> None:
        path = root / "recipes" / "mixed.yaml"
        path.write_text(path.read_text().replace(old, new))

    return edit


edit_source_filter = edit_recipe("- proprietary\n", "- proprietary\n- mit\n")
edit_first_step = edit_recipe("domain: books", "domain: letters")
edit_comment = edit_recipe("name: mixed", "# A remark.\nname: mixed")


def edit_files(root: Path) -> None:
    path = next((root / "sources" / "notes").rglob("*.jsonl*"))
    path.write_bytes(path.read_bytes())  # rewritten with equal bytes


def forget_note(root: Path) -> None:
    forget_ids(root, ["note-7"])


@pytest.mark.parametrize(
    "edit",
    [edit_source_filter, edit_first_step, edit_comment, edit_files, forget_note],
    ids=["filter", "first", "comment", "files", "forgotten"],
)
def test_status_and_ui_agree_on_stale_artifacts_after_an_edit(
    edit: Callable[[Path], None], scan: Scan, instance: dg.DagsterInstance, root: Path
) -> None:
    scan()
    assert stale_roles(root, instance) == (set(), set())

    edit(root)
    scan()
    status_stale, ui_stale = stale_roles(root, instance)
    assert ui_stale == status_stale
    assert bool(status_stale) == (edit is not edit_comment)
    for kind in ("raw", "normalized", "filtered", "report"):  # step by step
        run_kinds(root, {f"stage_a/{kind}"})
        scan()
        status_stale, ui_stale = stale_roles(root, instance)
        assert ui_stale == status_stale, kind

    assert stale_roles(root, instance) == (set(), set())


def test_downstream_artifact_of_damaged_files_is_stale(scan: Scan, instance: dg.DagsterInstance, root: Path) -> None:
    scan()
    shard = next((root / "stage_a/mixed/normalized/notes/shards").iterdir())
    shard.write_bytes(shard.read_bytes()[:-1])

    scan()

    assert staleness(root, instance)["stage_a/filtered/notes"] == "STALE"


def shorten_shard(folder: Path) -> None:
    shard = next((folder / "shards").iterdir())
    shard.write_bytes(shard.read_bytes()[:-1])


@pytest.mark.parametrize("lose", [shutil.rmtree, shorten_shard])
def test_lost_artifact_is_stale_until_its_rebuild(
    lose: Callable[[Path], None], scan: Scan, instance: dg.DagsterInstance, root: Path
) -> None:
    scan()

    lose(root / "stage_a/mixed/filtered/notes")
    messages = [scan(), scan()]
    lost = {role for role, state in staleness(root, instance).items() if state == "STALE"}
    run_kinds(root)
    scan()

    assert "stage_a/filtered/notes" in lost
    assert messages[1] == "nothing was built since the last scan"
    assert stale_roles(root, instance) == (set(), set())


def test_status_and_ui_agree_at_the_first_scan(scan: Scan, instance: dg.DagsterInstance, root: Path) -> None:
    edit_source_filter(root)

    scan()

    stale = {role for role, state in states(root).items() if state == "stale"}
    assert stale and stale == {role for role, state in staleness(root, instance).items() if state == "STALE"}


def test_reverted_edit_leaves_nothing_stale(scan: Scan, instance: dg.DagsterInstance, root: Path) -> None:
    scan()
    path = root / "recipes" / "mixed.yaml"
    before = path.read_text()

    edit_first_step(root)
    scan()
    edited = stale_roles(root, instance)
    path.write_text(before)
    scan()

    assert edited[0] and edited[0] == edited[1]
    assert stale_roles(root, instance) == (set(), set())


def test_another_stage_version_makes_its_artifacts_stale(
    scan: Scan, instance: dg.DagsterInstance, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scan()
    monkeypatch.setattr(stage_a, "FILTERED", replace(stage_a.FILTERED, stage=StageVersion("filter", 99)))
    kinds = tuple(stage_a.FILTERED if kind.name == stage_a.FILTERED.name else kind for kind in stage_a.KINDS)
    monkeypatch.setattr(stage_a, "KINDS", kinds)

    scan()

    status_stale, ui_stale = stale_roles(root, instance)
    assert "stage_a/filtered/notes" in status_stale
    assert ui_stale == status_stale


def test_artifact_of_two_recipes_is_shown_for_both(scan: Scan, instance: dg.DagsterInstance, root: Path) -> None:
    content = (root / "recipes" / "mixed.yaml").read_text()
    outputs = "outputs: {normalized_dir: stage_a/mixed/normalized}"
    (root / "recipes" / "again.yaml").write_text(content.replace("name: mixed", f"name: again\n{outputs}", 1))

    scan()

    current = {role for role, state in states(root, "again").items() if state == "current"}
    fresh = {role for role, state in staleness(root, instance, "again").items() if state == "FRESH"}
    assert current and fresh == current
