"""The check of normalized rows against the inventory of their split."""

import json
from pathlib import Path
from typing import Any

import pytest

from pipeline_assets.build.checks import run_checks
from pipeline_assets.build.run import Run
from pipeline_assets.build.run_targets import run_targets
from pipeline_assets.build.target import Target
from pipeline_assets.spine import durable
from pipeline_assets.spine.artifact import check_record_path, open_artifact, read_check_results
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.systems.nemotron import NemotronRecipe

MESSAGES = [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"}]


@pytest.fixture
def rows(tmp_path: Path) -> Target:
    """Normalized rows, built after the inventory of their split."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "train.jsonl").write_text(json.dumps({"messages": MESSAGES, "uuid": "a"}) + "\n")
    dataset = {"dataset": "mine", "path": "mine", "splits": ["train"], "domain": "chat_if"}
    content: dict[str, Any] = {"system": "nemotron", "name": "small", "scan": {}, "rows": {}, "datasets": [dataset]}
    targets = NemotronRecipe.from_mapping(content, "the test").targets()
    list(run_targets(targets, Run(tmp_path, RunSettings(workers=0))))
    [target] = [target for target in targets if target.kind.name == "nemotron/normalized_shards"]
    return target


def read_coverage(rows: Target, root: Path) -> tuple[bool, bool, str]:
    [result] = [result for result in run_checks(rows, root) if result.name == "coverage_within_inventory"]
    return result.passed, result.applies, result.because


def test_rows_are_compared_with_their_inventory(rows: Target, tmp_path: Path) -> None:
    assert read_coverage(rows, tmp_path)[:2] == (True, True)
    assert rows.is_up_to_date(tmp_path)


def test_a_damaged_pin_of_the_split_does_not_stop_the_comparison(rows: Target, tmp_path: Path) -> None:
    [raw] = rows.upstream
    (tmp_path / raw.folder / "manifest.json").write_bytes(b"{")

    assert read_coverage(rows, tmp_path)[:2] == (True, True)


def test_a_damaged_inventory_is_a_warning_that_is_not_stored(rows: Target, tmp_path: Path) -> None:
    [inventory] = rows.checked_against
    manifest = tmp_path / inventory.folder / "manifest.json"
    whole = manifest.read_bytes()
    manifest.chmod(0o644)
    manifest.write_bytes(whole[:100])

    passed, applies, because = read_coverage(rows, tmp_path)
    assert (passed, applies) == (False, True) and str(manifest) in because
    manifest.write_bytes(whole)
    assert rows.is_up_to_date(tmp_path)  # as sealed and checked by the build


def test_a_result_without_the_inventory_of_the_recipe_is_not_stored(rows: Target, tmp_path: Path) -> None:
    [inventory] = rows.checked_against
    durable.remove(tmp_path / inventory.folder)
    check_record_path(tmp_path / rows.folder).unlink()

    assert read_coverage(rows, tmp_path) == (True, False, "nothing to compare")
    assert (rows.state(tmp_path)[0], rows.is_up_to_date(tmp_path)) == ("current", False)
    list(run_targets([inventory, rows], Run(tmp_path, RunSettings(workers=0))))
    folder = tmp_path / rows.folder
    results = read_check_results(folder, open_artifact(folder).manifest.digest) or ()
    [stored] = [result for result in results if result.name == "coverage_within_inventory"]
    assert (stored.passed, stored.applies, rows.is_up_to_date(tmp_path)) == (True, True, True)
