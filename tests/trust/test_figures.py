"""Figures of a manifest, and the readable part of its uncovered provenance."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from pipeline_assets.build.figures import FigureOutcome, figure_outcomes, real_figures
from pipeline_assets.build.input_figures import input_figures
from pipeline_assets.corpus.readers.listing import Forecast
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.manifest import Manifest
from pipeline_assets.systems.registry import SYSTEMS
from resources.artifact_metadata import artifact_metadata


@pytest.fixture
def train_split(build_train_split: Callable[..., Artifact]) -> Artifact:
    return build_train_split({f"page-{number}": f"some text of page {number}" for number in range(40)}, "data", 100)


@pytest.fixture
def split(train_split: Artifact) -> Manifest:
    return train_split.manifest


def with_provenance(manifest: Manifest, **provenance: object) -> Manifest:
    return replace(manifest, provenance={**manifest.provenance, **provenance})


def test_figures_are_ordered_and_real_ones_match_the_manifest(split: Manifest) -> None:
    outcomes = figure_outcomes(split)

    figures = [outcome.figure for outcome in outcomes]
    assert figures == [name for name in real_figures(split) if name in figures]
    real = {outcome.figure: outcome.real for outcome in outcomes}
    assert real["tokens"] == split.identity.counts["tokens"] <= 100
    assert real["documents"] == split.identity.counts["documents"]
    assert real["bytes"] == sum(file.bytes for file in split.storage)
    assert real["peak_disk_bytes"] > real["bytes"]
    assert real["cpu_seconds"] == split.provenance["cpu_seconds"] >= 0
    assert "bytes_fetched" not in real


def test_the_ui_shows_planned_figures_next_to_real_ones(train_split: Artifact) -> None:
    planned = {name: {"value": 1234, "basis": "a guess"} for name in ("documents", "gpu_seconds")}
    manifest = with_provenance(train_split.manifest, planned=planned)

    metadata = artifact_metadata(replace(train_split, manifest=manifest), SYSTEMS.kinds, was_current=False)

    documents = manifest.identity.counts["documents"]
    assert str(metadata["planned"].value).splitlines()[2:] == [
        f"| documents | 1,234 | a guess | {documents} |",
        "| gpu_seconds | 1,234 | a guess |  |",
    ]


def test_build_seconds_exclude_planning_and_fetching(split: Manifest) -> None:
    manifest = with_provenance(split, seconds=10.0, seconds_of={"plan": 1.5, "fetch": 3.5})

    assert real_figures(manifest)["build_seconds"] == 5.0
    assert real_figures(manifest)["fetch_seconds"] == 3.5


def test_a_figure_that_was_only_planned_is_included(split: Manifest) -> None:
    planned = {"value": 2, "basis": "footers"}

    outcomes = figure_outcomes(with_provenance(split, planned={"text_bytes": planned, "no figure": planned}))

    assert FigureOutcome("text_bytes", Forecast(2, "footers"), None) in outcomes
    assert "no figure" not in [outcome.figure for outcome in outcomes]


@pytest.mark.parametrize("planned", [None, [], "much", {"tokens": 3}, {"tokens": {"value": "x", "basis": ""}}])
def test_an_invalid_plan_is_ignored(split: Manifest, planned: object) -> None:
    assert {outcome.planned for outcome in figure_outcomes(with_provenance(split, planned=planned))} == {None}


def test_files_with_known_footers_count_by_row_groups() -> None:
    read = {"name": "a", "bytes": 100, "row_groups": [{"start": 4, "stop": 34, "rows": 7}]}

    assert input_figures([read, {"name": "b", "bytes": 100}]) == {"bytes_read": 30, "rows": 7}
    assert input_figures([{"name": "a", "bytes": 100}, {"name": "b", "bytes": 1}]) == {"bytes_read": 101}
    assert input_figures([{"name": "upstream", "digest": "sha256:"}]) == {}
