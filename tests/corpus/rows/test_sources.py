"""Every source row is told what became of it, held against a second reading of the hub's own files."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline_assets.corpus.rows.fates import follow_source
from pipeline_assets.corpus.rows.source_row import SourceRow, rows_read
from pipeline_assets.corpus.spine.artifact import Artifact, open_artifact
from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.spine.lineage import Lineage

HUB = Path("hub", "datasets", "HuggingFaceFW", "fineweb-edu")


@pytest.fixture(scope="module")
def source_tables(demo_root: Path) -> dict[str, list[dict[str, object]]]:
    """The rows of the hub's files, by path."""
    folder = demo_root / HUB
    return {
        path.relative_to(folder).as_posix(): pq.read_table(path).to_pylist()
        for path in sorted(folder.rglob("*.parquet"))
    }


def test_every_source_row_has_the_fate_that_a_second_reading_of_the_hub_gives_it(
    source_tables: dict[str, list[dict[str, object]]], demo_root: Path
) -> None:
    sealed = Lineage(demo_root).sealed.items()
    [folder] = [folder for folder, one in sealed if one.kind == "healing/fineweb_edu_snapshot"]
    manifest = open_artifact(folder).manifest
    drawn: set[tuple[str, int]] = set()
    for entry in manifest.identity.inputs:
        path = entry["name"].partition(":")[2]
        groups = pq.ParquetFile(demo_root / HUB / path).metadata
        starts = np.cumsum([0, *(groups.row_group(number).num_rows for number in range(groups.num_row_groups))])
        for group in entry["row_groups"]:
            assert group["first_row"] == starts[group["number"]]
            drawn |= {(path, int(starts[group["number"]]) + row) for row in range(group["rows"])}
    lineage = Lineage(demo_root)
    rows = [(path, number) for path, table in source_tables.items() for number in range(len(table))]

    for path, number in [*random.Random("rows").sample(rows, 80), *_undrawn(rows, drawn)]:
        row = source_tables[path][number]
        source = SourceRow("HuggingFaceFW/fineweb-edu", manifest.identity.recipe["revision"], path, number)
        [found] = follow_source(lineage, source)
        fate = found.fate

        assert fate.artifact.folder == folder
        is_drawn = (path, number) in drawn
        if not is_drawn:
            assert fate.outcome == "not_read"
        elif row["int_score"] < 3:
            assert (fate.outcome, fate.detail) == ("dropped", "by `int_score >= 3`")
        else:
            assert fate.outcome in ("document", "rejected")


def _undrawn(rows: list[tuple[str, int]], drawn: set[tuple[str, int]]) -> list[tuple[str, int]]:
    return random.Random("undrawn").sample(sorted(set(rows) - drawn), 20)


@pytest.mark.parametrize(
    ("row_groups", "ranges"),
    [
        ([], []),
        ([(0, 10)], [range(10)]),
        ([(10, 10), (0, 10)], [range(20)]),
        ([(20, 10), (0, 10)], [range(10), range(20, 30)]),
        ([(10, 10), (0, 4)], [range(4), range(10, 20)]),
        ([(0, 10), (10, 0), (10, 10)], [range(20)]),
        ([(0, 0)], []),
    ],
)
def test_rows_read_are_those_of_the_row_groups_where_neighbours_are_one_range(
    row_groups: list[tuple[int, int]], ranges: list[range]
) -> None:
    entries = [{"first_row": first_row, "rows": rows} for first_row, rows in row_groups]

    assert rows_read(entries) == ranges


def fate_of(root: Path, snapshot: Artifact, row: int, path: str = "a.parquet") -> tuple[str, str, dict[str, str]]:
    """Outcome and its detail, and the outcome in each split."""
    source = SourceRow("maker/pages", snapshot.manifest.identity.recipe["revision"], path, row)
    [found] = follow_source(Lineage(root), source)
    splits = {fate.artifact.folder.name: fate.outcome for _, fate in found.below}
    return found.fate.outcome, found.fate.detail, splits


def test_rows_rejected_dropped_other_split_and_over_budget_are_told_with_their_reasons(
    built: Callable[..., dict[str, Artifact]], tmp_path: Path
) -> None:
    snapshot = built(token_budget=30)["snapshot"]

    fates = [fate_of(tmp_path / "data", snapshot, row) for row in range(11)]

    assert [fate[:2] for fate in fates[1:5]] == [
        ("rejected", "no_text (null)"),
        ("rejected", "empty_text"),
        ("rejected", "duplicate_doc_id (page-0)"),
        ("dropped", "by `score >= 3`"),
    ]
    in_train = {"train": "in_split", "valid": "other_split"}
    behind = {"train": "over_budget", "valid": "other_split"}
    assert fates[0] == ("document", "", in_train)
    assert fates[5] == ("document", "", in_train)
    assert fates[6] == ("document", "", {"train": "rejected", "valid": "other_split"})
    assert fates[7] == ("document", "", in_train)
    assert fates[8] == ("document", "", behind)
    assert fates[9] == ("document", "", behind)
    assert fates[10][2] == {"train": "other_split", "valid": "over_budget"}


def test_details_of_a_split_name_the_budget_the_other_split_and_the_reject(
    built: Callable[..., dict[str, Artifact]], tmp_path: Path
) -> None:
    snapshot = built(token_budget=30)["snapshot"]
    revision = snapshot.manifest.identity.recipe["revision"]

    lineage = Lineage(tmp_path / "data")
    details = {
        row: follow_source(lineage, SourceRow("maker/pages", revision, "a.parquet", row))[0].below[0][1].detail
        for row in (6, 8, 10)
    }

    assert details == {
        6: "blanks (a million blanks in a row overflow the tokenizer)",
        8: "it lies behind the cut at 27 tokens",
        10: "it belongs to valid",
    }


def test_a_shard_that_the_text_manifest_leaves_out_is_said(
    built: Callable[..., dict[str, Artifact]], tmp_path: Path
) -> None:
    snapshot = built(shards=("shards/00001.*",))["snapshot"]

    assert fate_of(tmp_path / "data", snapshot, 0)[2] == {"train": "not_selected", "valid": "not_selected"}
    assert fate_of(tmp_path / "data", snapshot, 12)[2] == {"train": "in_split", "valid": "other_split"}


def test_row_groups_and_files_that_were_not_drawn_are_told(take: Callable[..., Artifact], tmp_path: Path) -> None:
    tables = {
        f"{name}.parquet": pa.table({"text": ["a"] * 20, "id": [f"{name}-{row}" for row in range(20)]}) for name in "ab"
    }
    snapshot = take(tables, rows_per_group=10, amount={"documents": 10})
    [drawn] = [entry for entry in snapshot.manifest.identity.inputs if "row_groups" in entry]
    [group] = drawn["row_groups"]
    path = drawn["name"].partition(":")[2]
    other = "a.parquet" if path == "b.parquet" else "b.parquet"

    inside, outside = ((group["number"] + shift) % 2 * 10 + 4 for shift in (0, 1))

    assert fate_of(tmp_path / "data", snapshot, inside, path) == ("document", "", {})
    assert fate_of(tmp_path / "data", snapshot, outside, path)[:2] == (
        "not_read",
        f"rows read of the file: {group['number'] * 10} to {group['number'] * 10 + 9}",
    )
    assert fate_of(tmp_path / "data", snapshot, 4, other)[:2] == ("not_read", "no row group of the file was drawn")


def test_a_row_between_the_row_groups_drawn_was_not_read_and_one_inside_them_was_dropped(
    take: Callable[..., Artifact], tmp_path: Path
) -> None:
    scores = [5] * 20 + [1] * 5 + [5] * 35
    table = pa.table({"text": ["a"] * 60, "id": [f"page-{row}" for row in range(60)], "score": scores})
    snapshot = take({"a.parquet": table}, rows_per_group=10, amount={"documents": 30}, rules=["score >= 3"])
    numbers = sorted(group["number"] for group in snapshot.manifest.identity.inputs[0]["row_groups"])
    assert numbers == [0, 2, 5]

    fates = [fate_of(tmp_path / "data", snapshot, row)[:2] for row in (9, 10, 22, 45, 60)]

    not_read = ("not_read", "rows read of the file: 0 to 9, 20 to 29, 50 to 59")
    assert fates == [("document", ""), not_read, ("dropped", "by `score >= 3`"), not_read, not_read]


def test_the_end_of_a_row_group_that_was_cut_was_not_read(take: Callable[..., Artifact], tmp_path: Path) -> None:
    table = pa.table({"text": ["a"] * 1500, "id": [f"page-{row}" for row in range(1500)]})
    snapshot = take({"a.parquet": table}, rows_per_group=1500, amount={"documents": 1200})

    fates = [fate_of(tmp_path / "data", snapshot, row)[:2] for row in (1199, 1200)]

    assert fates == [("document", ""), ("not_read", "rows read of the file: 0 to 1,199")]


def test_a_manifest_that_cannot_be_read_stops_the_search(
    built: Callable[..., dict[str, Artifact]], tmp_path: Path
) -> None:
    snapshot = built()["snapshot"]
    manifest = tmp_path / "data" / "selections" / "pages_v1" / "manifest.json"
    manifest.chmod(0o644)
    manifest.write_text("{")

    with pytest.raises(InputError, match="this is no manifest"):
        fate_of(tmp_path / "data", snapshot, 0)


def test_a_split_whose_text_manifest_is_gone_is_not_left_out(
    built: Callable[..., dict[str, Artifact]], tmp_path: Path
) -> None:
    snapshot = built()["snapshot"]
    shutil.rmtree(tmp_path / "data" / "selections")

    assert fate_of(tmp_path / "data", snapshot, 0)[2] == {"train": "unknown", "valid": "unknown"}


def test_a_file_that_no_snapshot_lists(built: Callable[..., dict[str, Artifact]], tmp_path: Path) -> None:
    revision = built()["snapshot"].manifest.identity.recipe["revision"]
    root, other = tmp_path / "data", SourceRow("maker/pages", "0" * 40, "a.parquet", 3)

    with pytest.raises(InputError) as refused:
        follow_source(Lineage(root), other)
    with pytest.raises(InputError) as empty:
        follow_source(Lineage(tmp_path / "none"), other)

    assert str(refused.value) == (
        f"{other.file}: no source below {root} lists this file; those there are of maker/pages@{revision}"
    )
    assert str(empty.value).endswith("lists this file; give the data root of a build with --data")
