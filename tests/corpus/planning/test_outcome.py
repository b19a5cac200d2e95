"""Planned against real: whatever a manifest's provenance tells, since no digest covers it."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from pipeline_assets.corpus.planning.estimate import Estimate
from pipeline_assets.corpus.planning.outcome import FIGURES, Outcome, as_json, outcomes, real_figures
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.manifest import Manifest


@pytest.fixture
def split(split_of: Callable[..., Artifact]) -> Manifest:
    return split_of({f"page-{number}": f"some text of page {number}" for number in range(40)}, "data", 100).manifest


def with_provenance(manifest: Manifest, **provenance: object) -> Manifest:
    return replace(manifest, provenance={**manifest.provenance, **provenance})


def test_figures_have_one_order_and_real_ones_are_those_of_the_manifest(split: Manifest) -> None:
    found = outcomes(split)

    figures = [one.figure for one in found]
    assert figures == [name for name in FIGURES if name in figures]
    real = {one.figure: one.real for one in found}
    assert real["tokens"] == split.identity.counts["tokens"] <= 100
    assert real["documents"] == split.identity.counts["documents"]
    assert real["bytes"] == sum(file.bytes for file in split.storage)
    assert real["peak_disk_bytes"] > real["bytes"]
    assert "bytes_fetched" not in real


def test_a_split_is_planned_by_what_its_snapshot_really_holds(split: Manifest) -> None:
    planned = {one.figure: one.planned for one in outcomes(split) if one.planned is not None}

    for name in ("rows", "documents", "tokens", "bytes", "peak_disk_bytes"):
        assert planned[name].low <= real_figures(split)[name] <= planned[name].high, name


def test_building_is_told_without_planning_and_fetching(split: Manifest) -> None:
    manifest = with_provenance(split, seconds=10.0, seconds_of={"plan": 1.5, "fetch": 3.5, "convert": 4})

    assert real_figures(manifest)["build_seconds"] == 5.0
    assert real_figures(manifest)["fetch_seconds"] == 3.5


def test_a_figure_that_was_only_planned_is_told_too(split: Manifest) -> None:
    estimate = Estimate(1, 2, 3, "footers")

    found = outcomes(with_provenance(split, planned=as_json({"text_bytes": estimate, "no figure": estimate})))

    assert Outcome("text_bytes", estimate, None) in found
    assert "no figure" not in [one.figure for one in found]


@pytest.mark.parametrize("planned", [None, [], "much", {"tokens": 3}, {"tokens": {"low": 1}}, {"tokens": {"low": "x"}}])
@pytest.mark.parametrize("seconds", [None, "long"])
def test_a_provenance_that_was_edited_is_passed_over(split: Manifest, planned: object, seconds: object) -> None:
    found = outcomes(with_provenance(split, planned=planned, seconds=seconds, seconds_of=[], peak_memory_bytes="x"))

    assert {one.planned for one in found} == {None}
    assert not {"build_seconds", "peak_memory_bytes"} & {one.figure for one in found}
