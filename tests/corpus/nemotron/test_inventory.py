"""The inventory of a split: what it says of real rows, of bad ones, of files that don't fit together."""

import json
import uuid
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from nemotron_hub import SPLITS, TEXTS, rows_of, write_dataset

from pipeline_assets.corpus.nemotron import source_rows
from pipeline_assets.spine.artifact import Artifact, Damage, verify
from pipeline_assets.spine.errors import InputError

Inventories = Callable[..., dict[str, Artifact]]
ALL_SPLITS = [(dataset, split) for dataset, splits in SPLITS.items() for split in splits]


def told(artifact: Artifact) -> dict[str, Any]:
    """What the `inventory.json` of an artifact says of its one split."""
    [of_dataset] = json.loads(artifact.path("inventory.json").read_bytes()).values()
    [of_split] = of_dataset["splits"].values()
    return of_split


def write(folder: Path, **files: bytes) -> Path:
    folder.mkdir()
    for name, data in files.items():
        (folder / f"{name}.jsonl").write_bytes(data)
    return folder


@pytest.mark.parametrize(("dataset", "split"), ALL_SPLITS, ids=lambda name: name.rpartition("/")[2])
def test_every_real_row_is_counted_with_the_columns_that_its_publisher_lists(
    dataset: str, split: str, real: bool, tmp_path: Path, inventories: Inventories
) -> None:
    write_dataset(tmp_path / "hub", dataset, real)
    rows = [json.loads(line) for line in rows_of(dataset, split, real).split(b"\n") if line]

    found = told(inventories(tmp_path / "hub", split)[split])

    assert (found["rows"], found["rows_counted"], found["rejected"], found["found_by"]) == (3, 3, {}, "card")
    assert found["scan"] == {"kind": "full", "max_rows": None, "rows_read": 3}
    assert set(found["columns"]) == {key for row in rows for key in row}
    assert found["optional_columns"] == sorted(
        {key for row in rows for key in row if any(other.get(key) is None for other in rows)}
    )
    assert found["coverage"]["uuid"]["rows"] == sum(bool(row.get("uuid")) for row in rows)
    shares = {name: found["coverage"][name]["share"] for name in ("licence", "correctness", "text")}
    assert shares == {
        "licence": "0.0000" if dataset == TEXTS else "1.0000",
        "correctness": "1.0000" if "Math-v2" in dataset else "0.0000",
        "text": "1.0000" if dataset == TEXTS else "0.0000",
    }
    roles = {message["role"] for row in rows for message in row.get("messages", [])}
    assert set(found["messages"]) == roles


def test_the_traps_of_real_agentic_rows_are_told(real: bool, tmp_path: Path, inventories: Inventories) -> None:
    write_dataset(tmp_path / "hub", "nvidia/Nemotron-Agentic-v1", real)

    built = inventories(tmp_path / "hub", "interactive_agent", "tool_calling")

    agent, calling = told(built["interactive_agent"]), told(built["tool_calling"])
    calls = 8 if real else 3
    assert agent["messages"]["assistant"]["arguments"] == {"str": 4 if real else 3}
    assert calling["messages"]["assistant"]["arguments"] == {"dict": calls}
    assert calling["messages"]["tool"]["keys"] == {"content": {"dict": calls}, "role": {"str": calls}}
    assert agent["coverage"]["reasoning_label"]["rows"] == 3
    assert agent["coverage"]["reasoning_content"]["rows"] == 0
    assert calling["coverage"]["reasoning_label"]["rows"] == 0
    assert calling["coverage"]["reasoning_content"]["rows"] == (3 if real else 0)


def test_bad_rows_are_kept_aside_and_the_rest_is_counted(
    tmp_path: Path,
    inventories: Inventories,
    rejects_of: Callable[[Artifact], list[dict[str, object]]],
) -> None:
    folder = write(tmp_path / "in", low=b'{"messages": []}\n[1]\n{"messages": 5}\n\n{"uuid": "a')

    low = inventories(folder, "low")["low"]

    assert told(low)["rejected"] == {"cut_off": 1, "wrong_type": 1}
    assert [(one["file"], one["row"], one["reason"]) for one in rejects_of(low)] == [
        ("low.jsonl", 17, "wrong_type"),
        ("low.jsonl", 38, "cut_off"),
    ]
    assert low.manifest.identity.counts["ledger"] == {
        "in": 4,
        "out": 2,
        "dropped": {},
        "rejected": {"cut_off": 1, "wrong_type": 1},
    }
    assert "1 cut_off, 1 wrong_type; see its rejects" in low.path("metadata_coverage.md").read_text()


def test_the_page_has_a_column_for_what_later_steps_ask_and_no_text_of_the_dataset_leaves_its_cell(
    tmp_path: Path, inventories: Inventories
) -> None:
    odd = {"text": "a", "license": "a|b\n<b>`x`"}
    lines = [json.dumps(one) + "\n" for one in [odd, odd, *({"license": f"tag{number}"} for number in range(9))]]
    folder = write(tmp_path / "in", low="".join(lines).encode())
    pq.write_table(pa.table({"n": [1]}), folder / "low.parquet")

    page = inventories(folder, "low")["low"].path("metadata_coverage.md").read_text().splitlines()

    columns = "uuid | text | correctness | solved | tools | label | reasoning text | licence"
    assert f"| split | rows read | {columns} |" in page
    assert "| chats low | 11 | 0 % | 18.18 % | 0 % | 0 % | 0 % | 0 % | 0 % | 100 % |" in page
    tags = ", ".join(f"`tag{number}` 1" for number in range(7))
    assert f"| chats low | license | `a\\|b &lt;b>'x'` 2, {tags}, and 2 more |" in page
    assert "- chats low: `low.parquet` lie beside its jsonl files, which are read." in page


def test_an_empty_file_is_a_split_of_no_rows(tmp_path: Path, inventories: Inventories) -> None:
    low = inventories(write(tmp_path / "in", low=b""), "low")["low"]

    assert (told(low)["rows"], told(low)["columns"]) == (0, {})
    assert told(low)["coverage"]["uuid"] == {"rows": 0, "share": ""}
    assert "| chats low | 0 | – |" in low.path("metadata_coverage.md").read_text()


def test_rows_of_one_file_may_have_other_columns_and_types(tmp_path: Path, inventories: Inventories) -> None:
    lines = b'{"n": 1}\n{"n": "one", "tools": [1]}\n{"n": null, "uuid": "a"}\n{"n": 1.5}\n'

    found = told(inventories(write(tmp_path / "in", low=lines), "low")["low"])

    assert found["columns"]["n"] == {"types": {"float": 1, "int": 1, "null": 1, "str": 1}, "share": "0.7500"}
    assert found["columns"]["tools"]["share"] == "0.2500"
    assert found["optional_columns"] == ["n", "tools", "uuid"]


def test_parquet_rows_are_counted_and_types_come_from_the_footers(tmp_path: Path, inventories: Inventories) -> None:
    (tmp_path / "in").mkdir()
    for number, values in enumerate([[1, 2, 3], ["four"]]):
        table = pa.table({"uuid": ["u"] * len(values), "n": values})
        pq.write_table(table, tmp_path / "in" / f"low-0000{number}-of-00002.parquet", row_group_size=2)

    sampled = told(inventories(tmp_path / "in", "low", max_rows=2)["low"])
    found = told(inventories(tmp_path / "in", "low")["low"])

    assert (found["format"], found["rows"], found["rows_counted"]) == ("parquet", 4, 4)
    assert [footer["schema"]["n"] for footer in found["footers"]] == ["int64", "string"]
    assert found["columns"]["n"]["types"] == {"int": 3, "str": 1}
    assert (sampled["rows"], sampled["rows_counted"], sampled["scan"]["kind"]) == (4, 2, "sample")


def test_what_parquet_has_and_json_lacks_is_there_as_text_would_be(tmp_path: Path, inventories: Inventories) -> None:
    (tmp_path / "in").mkdir()
    ids = pa.array([uuid.UUID(int=1).bytes, None], pa.uuid())
    table = pa.table({"uuid": ids, "license": [b"", b"mit"], "expected_answer": [Decimal("0"), None]})
    pq.write_table(table, tmp_path / "in" / "low.parquet")

    coverage = told(inventories(tmp_path / "in", "low")["low"])["coverage"]

    assert {name: one["rows"] for name, one in coverage.items() if one["rows"]} == {
        "uuid": 1,
        "licence": 1,
        "expected_answer": 1,
    }


def test_of_a_sample_of_lines_it_is_not_said_how_many_rows_there_are(tmp_path: Path, inventories: Inventories) -> None:
    low = inventories(write(tmp_path / "in", low=b'{"n": 1}\n' * 9), "low", max_rows=4)["low"]

    assert (told(low)["rows"], told(low)["rows_counted"]) == (None, 4)
    assert "| unknown | sample of 4 rows |" in low.path("metadata_coverage.md").read_text()


def test_a_sample_that_meets_no_row_is_refused(tmp_path: Path, inventories: Inventories) -> None:
    folder = write(tmp_path / "in", low=b"\n\n", high=b"")

    with pytest.raises(InputError, match="a sample of at most 4 rows is empty; omit `max_rows` in the"):
        inventories(folder, "low", max_rows=4)

    assert told(inventories(folder, "high", max_rows=4)["high"])["rows_counted"] == 0


def test_the_shards_change_nothing(tmp_path: Path, inventories: Inventories, monkeypatch: pytest.MonkeyPatch) -> None:
    write_dataset(tmp_path / "hub", "nvidia/Nemotron-Agentic-v1")
    whole = inventories(tmp_path / "hub", "tool_calling")["tool_calling"].manifest.digest
    (tmp_path / "root").rename(tmp_path / "before")

    monkeypatch.setattr(source_rows, "SCAN_SHARD_BYTES", 100)
    built = inventories(tmp_path / "hub", "tool_calling")["tool_calling"]

    assert built.manifest.digest == whole
    assert [item for item in verify(built) if isinstance(item, Damage)] == []


def test_a_recipe_may_name_the_files_where_the_card_is_broken(tmp_path: Path, inventories: Inventories) -> None:
    folder = write(tmp_path / "in", low=b"{}\n")
    (folder / "README.md").write_text("---\nconfigs: [\n---\n")

    assert told(inventories(folder, "low", files={"low": ["low.*"]})["low"])["found_by"] == "recipe"
