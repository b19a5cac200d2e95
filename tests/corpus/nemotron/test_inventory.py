"""Inventory of a split: real rows, rejects, samples and mixed files."""

import json
import uuid
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from nemotron_hub import SPLITS, TEXTS, render_split, write_dataset

from pipeline_assets.corpus.nemotron import source_rows
from pipeline_assets.spine.artifact import Artifact, Damage, verify
from pipeline_assets.spine.errors import InputError

Inventories = Callable[..., dict[str, Artifact]]
ALL_SPLITS = [(dataset, split) for dataset, splits in SPLITS.items() for split in splits]


def read_inventory(artifact: Artifact) -> dict[str, Any]:
    """Read the inventory of the only split of an artifact."""
    [dataset] = json.loads(artifact.path("inventory.json").read_bytes()).values()
    [split] = dataset["splits"].values()
    return split


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
    rows = [json.loads(line) for line in render_split(dataset, split, real).split(b"\n") if line]

    entry = read_inventory(inventories(tmp_path / "hub", split)[split])

    assert (entry["rows"], entry["rows_counted"], entry["rejected"], entry["found_by"]) == (3, 3, {}, "card")
    assert entry["scan"] == {"kind": "full", "max_rows": None, "rows_read": 3}
    assert set(entry["columns"]) == {key for row in rows for key in row}
    optional = {key for row in rows for key in row if any(other.get(key) is None for other in rows)}
    assert entry["optional_columns"] == sorted(optional)
    assert entry["coverage"]["uuid"]["rows"] == sum(bool(row.get("uuid")) for row in rows)
    shares = {name: entry["coverage"][name]["share"] for name in ("licence", "correctness", "text")}
    assert shares == {
        "licence": "0.0000" if dataset == TEXTS else "1.0000",
        "correctness": "1.0000" if "Math-v2" in dataset else "0.0000",
        "text": "1.0000" if dataset == TEXTS else "0.0000",
    }
    roles = {message["role"] for row in rows for message in row.get("messages", [])}
    assert set(entry["messages"]) == roles


def test_irregular_forms_of_real_agentic_rows_are_listed(real: bool, tmp_path: Path, inventories: Inventories) -> None:
    write_dataset(tmp_path / "hub", "nvidia/Nemotron-Agentic-v1", real)

    built = inventories(tmp_path / "hub", "interactive_agent", "tool_calling")

    agent, calling = read_inventory(built["interactive_agent"]), read_inventory(built["tool_calling"])
    calls = 8 if real else 3
    assert agent["messages"]["assistant"]["arguments"] == {"str": 4 if real else 3}
    assert calling["messages"]["assistant"]["arguments"] == {"dict": calls}
    assert calling["messages"]["tool"]["keys"] == {"content": {"dict": calls}, "role": {"str": calls}}
    assert agent["coverage"]["reasoning_label"]["rows"] == 3
    assert agent["coverage"]["reasoning_content"]["rows"] == 0
    assert calling["coverage"]["reasoning_label"]["rows"] == 0
    assert calling["coverage"]["reasoning_content"]["rows"] == (3 if real else 0)


def test_bad_rows_are_rejected_and_the_rest_is_counted(
    tmp_path: Path, inventories: Inventories, read_rejects: Callable[[Artifact], list[dict[str, object]]]
) -> None:
    folder = write(tmp_path / "in", low=b'{"messages": []}\n[1]\n{"messages": 5}\n\n{"uuid": "a')

    low = inventories(folder, "low")["low"]

    assert read_inventory(low)["rejected"] == {"cut_off": 1, "wrong_type": 1}
    assert [(reject["file"], reject["row"], reject["reason"]) for reject in read_rejects(low)] == [
        ("low.jsonl", 17, "wrong_type"),
        ("low.jsonl", 38, "cut_off"),
    ]
    ledger = {"in": 4, "out": 2, "dropped": {}, "rejected": {"cut_off": 1, "wrong_type": 1}}
    assert low.manifest.identity.counts["ledger"] == ledger
    assert "1 cut_off, 1 wrong_type; see its rejects" in low.path("metadata_coverage.md").read_text()


def test_page_has_the_columns_of_later_steps_and_escapes_dataset_text(tmp_path: Path, inventories: Inventories) -> None:
    odd = {"text": "a", "license": "a|b\n<b>`x`"}
    lines = [json.dumps(row) + "\n" for row in [odd, odd, *({"license": f"tag{number}"} for number in range(9))]]
    folder = write(tmp_path / "in", low="".join(lines).encode())
    pq.write_table(pa.table({"n": [1]}), folder / "low.parquet")

    page = inventories(folder, "low")["low"].path("metadata_coverage.md").read_text().splitlines()

    columns = "uuid | text | correctness | solved | tools | label | reasoning text | licence"
    assert f"| split | rows read | {columns} |" in page
    assert "| chats low | 11 | 0 % | 18.18 % | 0 % | 0 % | 0 % | 0 % | 0 % | 100 % |" in page
    tags = ", ".join(f"`tag{number}` 1" for number in range(7))
    assert f"| chats low | license | `a\\|b &lt;b>'x'` 2, {tags}, and 2 more |" in page
    assert "- chats low: `low.parquet` lie beside its jsonl files, which are read." in page


def test_empty_file_is_a_split_without_rows(tmp_path: Path, inventories: Inventories) -> None:
    low = inventories(write(tmp_path / "in", low=b""), "low")["low"]

    assert (read_inventory(low)["rows"], read_inventory(low)["columns"]) == (0, {})
    assert read_inventory(low)["coverage"]["uuid"] == {"rows": 0, "share": ""}
    assert "| chats low | 0 | – |" in low.path("metadata_coverage.md").read_text()


def test_rows_of_one_file_may_have_other_columns_and_types(tmp_path: Path, inventories: Inventories) -> None:
    lines = b'{"n": 1}\n{"n": "one", "tools": [1]}\n{"n": null, "uuid": "a"}\n{"n": 1.5}\n'

    entry = read_inventory(inventories(write(tmp_path / "in", low=lines), "low")["low"])

    assert entry["columns"]["n"] == {"types": {"float": 1, "int": 1, "null": 1, "str": 1}, "share": "0.7500"}
    assert entry["columns"]["tools"]["share"] == "0.2500"
    assert entry["optional_columns"] == ["n", "tools", "uuid"]


def test_parquet_rows_are_counted_and_types_come_from_the_footers(tmp_path: Path, inventories: Inventories) -> None:
    (tmp_path / "in").mkdir()
    for number, values in enumerate([[1, 2, 3], ["four"]]):
        table = pa.table({"uuid": ["u"] * len(values), "n": values})
        pq.write_table(table, tmp_path / "in" / f"low-0000{number}-of-00002.parquet", row_group_size=2)

    sampled = read_inventory(inventories(tmp_path / "in", "low", max_rows=2)["low"])
    entry = read_inventory(inventories(tmp_path / "in", "low")["low"])

    assert (entry["format"], entry["rows"], entry["rows_counted"]) == ("parquet", 4, 4)
    assert [footer["schema"]["n"] for footer in entry["footers"]] == ["int64", "string"]
    assert entry["columns"]["n"]["types"] == {"int": 3, "str": 1}
    assert (sampled["rows"], sampled["rows_counted"], sampled["scan"]["kind"]) == (4, 2, "sample")


def test_parquet_values_without_a_json_form_count_as_text(tmp_path: Path, inventories: Inventories) -> None:
    (tmp_path / "in").mkdir()
    ids = pa.array([uuid.UUID(int=1).bytes, None], pa.uuid())
    table = pa.table({"uuid": ids, "license": [b"", b"mit"], "expected_answer": [Decimal("0"), None]})
    pq.write_table(table, tmp_path / "in" / "low.parquet")

    coverage = read_inventory(inventories(tmp_path / "in", "low")["low"])["coverage"]

    assert {name: column["rows"] for name, column in coverage.items() if column["rows"]} == {
        "uuid": 1,
        "licence": 1,
        "expected_answer": 1,
    }


def test_sample_of_lines_does_not_state_the_number_of_rows(tmp_path: Path, inventories: Inventories) -> None:
    low = inventories(write(tmp_path / "in", low=b'{"n": 1}\n' * 9), "low", max_rows=4)["low"]

    assert (read_inventory(low)["rows"], read_inventory(low)["rows_counted"]) == (None, 4)
    assert "| unknown | sample of 4 rows |" in low.path("metadata_coverage.md").read_text()


def test_sample_without_rows_is_refused(tmp_path: Path, inventories: Inventories) -> None:
    folder = write(tmp_path / "in", low=b"\n\n", high=b"")

    with pytest.raises(InputError, match="a sample of at most 4 rows is empty; omit `max_rows` in the"):
        inventories(folder, "low", max_rows=4)

    assert read_inventory(inventories(folder, "high", max_rows=4)["high"])["rows_counted"] == 0


def test_shards_change_no_inventory(tmp_path: Path, inventories: Inventories, monkeypatch: pytest.MonkeyPatch) -> None:
    write_dataset(tmp_path / "hub", "nvidia/Nemotron-Agentic-v1")
    whole = inventories(tmp_path / "hub", "tool_calling")["tool_calling"].manifest.digest
    (tmp_path / "root").rename(tmp_path / "before")

    monkeypatch.setattr(source_rows, "SCAN_SHARD_BYTES", 100)
    built = inventories(tmp_path / "hub", "tool_calling")["tool_calling"]

    assert built.manifest.digest == whole
    assert [item for item in verify(built) if isinstance(item, Damage)] == []


def test_recipe_may_name_the_files_if_the_card_is_broken(tmp_path: Path, inventories: Inventories) -> None:
    folder = write(tmp_path / "in", low=b"{}\n")
    (folder / "README.md").write_text("---\nconfigs: [\n---\n")

    assert read_inventory(inventories(folder, "low", files={"low": ["low.*"]})["low"])["found_by"] == "recipe"
