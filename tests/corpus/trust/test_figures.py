"""Figures of artifacts: what a manifest tells, and of its provenance what can be read, since no digest covers it.

The track record tells them in proportion to those of earlier builds in the data root, none where there are none.
"""

import os
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.spine.manifest import FILE_NAME, Identity, Manifest, StageVersion
from pipeline_assets.corpus.trust.figures import (
    FIGURES,
    FigureOutcome,
    Planned,
    Size,
    TrackRecord,
    outcomes,
    real_figures,
    size_of,
    size_of_inputs,
    total_size,
)

KIND = "stage_a/filtered"
MB = 1_000_000
Seal = Callable[..., None]


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
    assert real["cpu_seconds"] == split.provenance["cpu_seconds"] >= 0
    assert "bytes_fetched" not in real


def test_building_is_told_without_planning_and_fetching(split: Manifest) -> None:
    manifest = with_provenance(split, seconds=10.0, seconds_of={"plan": 1.5, "fetch": 3.5})

    assert real_figures(manifest)["build_seconds"] == 5.0
    assert real_figures(manifest)["fetch_seconds"] == 3.5


def test_a_figure_that_was_only_planned_is_told_too(split: Manifest) -> None:
    planned = {"value": 2, "basis": "footers"}

    found = outcomes(with_provenance(split, planned={"text_bytes": planned, "no figure": planned}))

    assert FigureOutcome("text_bytes", Planned(2, "footers"), None) in found
    assert "no figure" not in [one.figure for one in found]


@pytest.mark.parametrize("planned", [None, [], "much", {"tokens": 3}, {"tokens": {"value": "x", "basis": ""}}])
def test_a_plan_that_was_edited_is_passed_over(split: Manifest, planned: object) -> None:
    assert {one.planned for one in outcomes(with_provenance(split, planned=planned))} == {None}


@pytest.mark.parametrize("edited", [{"seconds": "long"}, {"seconds_of": []}, {"peak_memory_bytes": "x"}])
def test_figures_that_were_edited_are_refused_with_their_manifest(split: Manifest, edited: dict[str, object]) -> None:
    with pytest.raises(InputError, match="this is no manifest"):
        Manifest.from_bytes(with_provenance(split, **edited).to_bytes(), Path("manifest.json"))


def test_of_files_whose_footers_are_known_the_row_groups_count() -> None:
    read = {"name": "a", "bytes": 100, "row_groups": [{"start": 4, "stop": 34, "rows": 7}]}

    assert size_of_inputs([read, {"name": "b", "bytes": 100}]) == Size(30, 7)
    assert size_of_inputs([{"name": "a", "bytes": 100}, {"name": "b", "bytes": 1}]) == Size(101, None)
    assert size_of_inputs([{"name": "upstream", "digest": "sha256:"}]) == Size()


def test_a_sum_is_known_if_all_of_it_is() -> None:
    assert total_size([Size(1, 2), Size(3, None)]) == Size(4, None)
    assert total_size([]) == Size()


def test_an_artifact_has_the_size_of_its_text_else_of_its_files(split: Manifest) -> None:
    files = sum(file.bytes for file in split.storage)
    counts = {**split.identity.counts, "text_bytes": {"train": 5, "valid": 2}}

    assert size_of(split) == Size(files, split.identity.counts["documents"])
    assert size_of(replace(split, identity=replace(split.identity, counts=counts))).bytes == 7


@pytest.fixture
def seal(tmp_path: Path) -> Seal:
    """Seals an artifact of 50 documents that were made of 100 in a MB, here, by two workers, unless told otherwise."""

    def made(name: str, documents: int = 50, kind: str = KIND, **provenance: object) -> None:
        counts = {"documents": documents, "ledger": {"in": 100, "out": documents}}
        told = {
            "host": socket.gethostname(),
            "run_settings": {"workers": 2},
            "seconds": 4.0,
            "cpu_seconds": 6.0,
            "peak_memory_bytes": 300 * MB,
            "took_in": {"bytes": MB, "rows": 100},
            **provenance,
        }
        identity = Identity(StageVersion("filter", 1), {}, [], None, {}, counts, [])
        folder = tmp_path / "stage_a" / "mixed" / "filtered" / name
        folder.mkdir(parents=True)
        (folder / FILE_NAME).write_bytes(Manifest(kind, f"mixed/{name}", identity, [], told).to_bytes())

    return made


def figures(root: Path, size: Size, partition: str = "new", workers: int = 2) -> dict[str, float]:
    planned = TrackRecord(root).forecast(KIND, partition, workers, size)
    return {name: one.value for name, one in planned.items()}


def test_an_empty_data_root_tells_nothing(tmp_path: Path) -> None:
    assert TrackRecord(tmp_path).forecast(KIND, None, 2, Size(MB, 100)) == {}
    assert TrackRecord(tmp_path).fetch_seconds(10) is None
    assert TrackRecord(tmp_path).fetch_seconds(0) == Planned(0, "nothing is to be fetched")


def test_figures_are_in_proportion_to_what_went_in_but_for_memory(seal: Seal, tmp_path: Path) -> None:
    seal("notes")

    planned = TrackRecord(tmp_path).forecast(KIND, "new", 2, Size(10 * MB, None))

    assert {name: one.value for name, one in planned.items()} == {
        "rows": 1000,
        "documents": 500,
        "peak_memory_bytes": 300 * MB,
        "cpu_seconds": 60.0,
        "build_seconds": 40.0,
    }
    assert {one.basis for one in planned.values()} == {"as in 1 earlier build here"}


def test_where_bytes_are_not_known_rows_tell(seal: Seal, tmp_path: Path) -> None:
    seal("notes")

    assert figures(tmp_path, Size(None, 20))["documents"] == 10
    assert figures(tmp_path, Size()) == {"peak_memory_bytes": 300 * MB}


def test_large_builds_weigh_more_and_those_of_the_partition_count_alone(seal: Seal, tmp_path: Path) -> None:
    seal("notes", documents=100)
    seal("papers", documents=20, took_in={"bytes": 3 * MB, "rows": 300}, peak_memory_bytes=400 * MB)

    assert figures(tmp_path, Size(MB, 100))["documents"] == 30
    assert figures(tmp_path, Size(MB, 100))["peak_memory_bytes"] == 400 * MB
    assert figures(tmp_path, Size(3 * MB, 300), "papers")["documents"] == 20


def test_seconds_are_those_of_this_host_and_of_whole_builds(seal: Seal, tmp_path: Path) -> None:
    seal("elsewhere", host="another")
    seal("resumed", adopted_shards=3)

    assert figures(tmp_path, Size(MB, 100)).keys() == {"rows", "documents", "peak_memory_bytes"}


def test_wall_seconds_and_memory_are_those_of_as_many_workers(seal: Seal, tmp_path: Path) -> None:
    seal("notes")

    assert figures(tmp_path, Size(MB, 100), workers=8).keys() == {"rows", "documents", "cpu_seconds"}


def test_what_a_budget_cuts_goes_by_its_tokens(seal: Seal, tmp_path: Path) -> None:
    seal("notes", tokens_encoded=1000)
    record = TrackRecord(tmp_path)

    assert record.tokens_within(KIND, "notes", Size(4 * MB, 400)) == 4000
    assert record.tokens_within(KIND, "papers", Size(4 * MB, 400)) is None  # other partitions have other shares


def test_other_kinds_unfinished_builds_and_what_cannot_be_read_are_passed_over(seal: Seal, tmp_path: Path) -> None:
    seal("notes", kind="stage_a/raw")
    seal(".papers.building.1")
    seal("edited", took_in="much")
    seal("odd", took_in={"bytes": "much"})
    seal("damaged")
    (tmp_path / "stage_a/mixed/filtered/damaged" / FILE_NAME).write_text("{}")

    assert figures(tmp_path, Size(MB, 100)) == {"peak_memory_bytes": 300 * MB}  # of the odd one


def test_of_one_folder_the_latest_sixteen_are_read(seal: Seal, tmp_path: Path) -> None:
    for number in range(20):
        seal(f"{number}", documents=100 if number < 4 else 50)
        path = tmp_path / "stage_a" / "mixed" / "filtered" / f"{number}" / FILE_NAME
        os.utime(path, (number, number))

    planned = TrackRecord(tmp_path).forecast(KIND, "new", 2, Size(MB, 100))["documents"]

    assert planned == Planned(50, "as in 16 earlier builds here")


class TestFetching:
    """Seconds by the rate that is stated, else by all that was fetched here in one go."""

    def test_a_stated_rate_counts(self, seal: Seal, tmp_path: Path) -> None:
        seal("notes", bytes_fetched=80 * MB, seconds_of={"fetch": 4.0})

        assert TrackRecord(tmp_path, fetch_rate=MB).fetch_seconds(8 * MB) == Planned(8.0, "8 Mbit/s, as stated")

    def test_earlier_fetches_tell_if_they_were_large(self, seal: Seal, tmp_path: Path) -> None:
        seal("notes", bytes_fetched=80 * MB, seconds_of={"fetch": 4.0})
        seal("small", bytes_fetched=MB, seconds_of={"fetch": 0.1})

        planned = TrackRecord(tmp_path).fetch_seconds(40 * MB)

        assert planned == Planned(2.0, "20.0 MB/s, as in earlier fetches here")
