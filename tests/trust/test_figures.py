"""Figures of artifacts: what a manifest tells, and of its provenance what can be read, since no digest covers it."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from pipeline_assets.build.figures import FigureOutcome, figure_outcomes, real_figures
from pipeline_assets.build.input_figures import input_figures
from pipeline_assets.corpus.readers.listing import Forecast
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.manifest import Manifest


@pytest.fixture
def split(split_of: Callable[..., Artifact]) -> Manifest:
    return split_of({f"page-{number}": f"some text of page {number}" for number in range(40)}, "data", 100).manifest


def with_provenance(manifest: Manifest, **provenance: object) -> Manifest:
    return replace(manifest, provenance={**manifest.provenance, **provenance})


def test_figures_have_one_order_and_real_ones_are_those_of_the_manifest(split: Manifest) -> None:
    found = figure_outcomes(split)

    figures = [one.figure for one in found]
    assert figures == [name for name in real_figures(split) if name in figures]
    real = {one.figure: one.real for one in found}
    assert real["tokens"] == split.identity.counts["tokens"] <= 100
    assert real["documents"] == split.identity.counts["documents"]
    assert real["bytes"] == sum(file.bytes for file in split.storage)
    assert real["peak_disk_bytes"] > real["bytes"]
    assert real["cpu_seconds"] == split.provenance["cpu_seconds"] >= 0
    assert "bytes_fetched" not in real


def test_building_is_told_without_planning_and_fetching(split: Manifest) -> None:
    manifest = with_provenance(split, seconds=10.0, seconds_of={"plan": 1.5, "fetch": 3.5})

    assert real_figures(manifest)["build_seconds"] == 5.0
    assert real_figures(manifest)["fetch_seconds"] == 3.5


def test_a_figure_that_was_only_planned_is_told_too(split: Manifest) -> None:
    planned = {"value": 2, "basis": "footers"}

    found = figure_outcomes(with_provenance(split, planned={"text_bytes": planned, "no figure": planned}))

    assert FigureOutcome("text_bytes", Forecast(2, "footers"), None) in found
    assert "no figure" not in [one.figure for one in found]


@pytest.mark.parametrize("planned", [None, [], "much", {"tokens": 3}, {"tokens": {"value": "x", "basis": ""}}])
def test_a_plan_that_was_edited_is_passed_over(split: Manifest, planned: object) -> None:
    assert {one.planned for one in figure_outcomes(with_provenance(split, planned=planned))} == {None}


def test_of_files_whose_footers_are_known_the_row_groups_count() -> None:
    read = {"name": "a", "bytes": 100, "row_groups": [{"start": 4, "stop": 34, "rows": 7}]}

    assert input_figures([read, {"name": "b", "bytes": 100}]) == {"bytes_read": 30, "rows": 7}
    assert input_figures([{"name": "a", "bytes": 100}, {"name": "b", "bytes": 1}]) == {"bytes_read": 101}
    assert input_figures([{"name": "upstream", "digest": "sha256:"}]) == {}
