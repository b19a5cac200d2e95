"""The plan of a snapshot: its files, draw, downloads and record in the manifest."""

from collections.abc import Callable

import pyarrow as pa
import pytest
from faulty_hub import FaultyHub
from numbered_pages import large_pages
from refusals import refusal

from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.errors import UsageError

Ingest = Callable[..., Artifact]


def test_the_manifest_lists_every_matching_file_and_the_row_groups_read(ingest: Ingest) -> None:
    files = {f"data/{dump}/a.parquet": large_pages(number, 10, words=1) for number, dump in enumerate(("2019", "2020"))}

    snapshot = ingest(files | {"README.md": b"# Pages\n"}, files=["data/*/*.parquet"], amount={"files": 1})

    revision = snapshot.manifest.identity.recipe["revision"]
    listed = snapshot.manifest.identity.inputs
    assert [entry["name"] for entry in listed] == [
        f"maker/pages@{revision}:data/2019/a.parquet",
        f"maker/pages@{revision}:data/2020/a.parquet",
    ]
    assert [entry["digest"][:7] for entry in listed] == ["sha256:", "sha256:"]
    read = [entry["row_groups"] for entry in listed if "row_groups" in entry]
    assert [[(group["number"], group["rows"], group["start"]) for group in groups] for groups in read] == [[(0, 10, 4)]]


def test_the_manifest_records_how_the_sample_spreads_over_the_dumps(ingest: Ingest) -> None:
    files = {f"data/{2019 + number}/a.parquet": large_pages(100 * number, 40, words=1) for number in range(3)}

    snapshot = ingest(files, rows_per_group=10, amount={"documents": 45})

    dumps = snapshot.manifest.identity.decisions["dumps"]
    assert sorted(dumps) == ["2019", "2020", "2021"]
    assert sorted((dump["row_groups"], dump["rows"]) for dump in dumps.values()) == [(1, 10), (2, 15), (2, 20)]


def test_a_sample_fetches_only_footers_and_its_own_row_groups(ingest: Ingest, hub: FaultyHub) -> None:
    files = {f"{number}.parquet": large_pages(1000 * number, 1000) for number in range(5)}

    snapshot = ingest(files, rows_per_group=100, amount={"documents": 200})

    fetched = sum(request.bytes_sent for request in hub.requests if request.origin == "storage")
    groups = [group for entry in snapshot.manifest.identity.inputs for group in entry.get("row_groups", [])]
    assert len(groups) == 2
    assert fetched == 2 * 65_536 + sum(group["stop"] - group["start"] for group in groups)


def test_a_text_column_of_lists_is_refused_after_the_first_footer(ingest: Ingest, hub: FaultyHub) -> None:
    pages = large_pages(0, 1000).set_column(1, "text", pa.array([["A page.", "Its end."]] * 1000))

    message = refusal(lambda: ingest({"a.parquet": pages, "b.parquet": pages}, amount={"text_bytes": 1000}))

    assert message.endswith(
        ".parquet: column `text` has lists or objects, expected text; "
        "set `columns.text` in the recipe to the column that holds the text"
    )
    assert len([request for request in hub.requests if request.origin == "storage"]) == 1


@pytest.mark.parametrize(
    ("changes", "column", "fix"),
    [
        ({"rules": ["int_score >= 3"]}, "int_score", "correct the rule `int_score >= 3` in the recipe"),
        ({"columns": {"text": "body"}}, "body", "set `columns.text` in the recipe to the column that holds the text"),
    ],
)
def test_a_missing_column_is_refused_after_the_footer(
    changes: dict[str, object], column: str, fix: str, ingest: Ingest, hub: FaultyHub
) -> None:
    line = refusal(lambda: ingest({"a.parquet": large_pages(0, 1000)}, rows_per_group=100, **changes))

    where = f"maker/pages@{hub.commits()['maker/pages']}:a.parquet"
    assert line == f"{where}: column `{column}` not found; the columns are id, text; {fix}"
    assert sum(request.bytes_sent for request in hub.requests if request.origin == "storage") == 65_536


def test_patterns_without_a_match_are_reported_with_the_existing_files(ingest: Ingest) -> None:
    files = {"data/a.parquet": large_pages(0, 1, words=1), "README.md": b"#"}

    message = refusal(lambda: ingest(files, files=["sample/*.parquet", "*.jsonl"]), UsageError)

    assert message.startswith("maker/pages@") and message.endswith(
        ": no file matches sample/*.parquet, *.jsonl; correct `files`; the dataset contains README.md, data/a.parquet"
    )
