"""Rows of a hub dataset → Documents: columns, licences of rows, and rows that kill their worker."""

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from numbered_pages import plain_pages as pages
from refusals import refusal
from stage_a_build import ledger, normalize, only, recipe_with

from pipeline_assets.corpus.normalize.sources import HubSource
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.snapshot.convert_pinned import convert_hub_rows
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.spine.manifest import Identity, Manifest, StageVersion
from pipeline_assets.spine.staging import StagingDir

Normalized = Callable[..., Artifact]
Read = Callable[[Artifact], list[dict[str, object]]]
PLAIN = {"text": "text", "id": "id", "created_at": None, "license": None}
ALL = {"columns": PLAIN, "rules": [], "language": None, "amount": {"files": 9}, "max_reject_fraction": "1"}


@pytest.fixture
def hub_source(publish: Callable[..., str], hub_files: HubFiles, tmp_path: Path) -> Normalized:
    """Publishes tables and normalises them; keyword arguments change keys of the source's section."""

    def run(tables: dict[str, pa.Table], engine: RunSettings | None = None, root: str = "data", **changes: object):
        recipe = recipe_with(tmp_path, only("pages", **(ALL | changes)), publish(tables))
        return normalize(recipe, tmp_path / root, hub_files, engine or RunSettings(workers=0))

    return run


def test_a_row_without_an_id_has_one_of_text_that_no_commit_changes(hub_source: Normalized, documents_of: Read) -> None:
    [found] = documents_of(hub_source({"data/a.parquet": pages(1)}, columns=PLAIN | {"id": None}))

    assert found["doc_id"] == "cc00b4c349346a37cb0264196e57a1e846f2500e6fc60da8d906229807d9230c"


@pytest.mark.parametrize("column", ["license", "meta.license", "flat.license"])
def test_a_row_has_its_licence_in_a_column_or_nested(column: str, hub_source: Normalized, documents_of: Read) -> None:
    said = ["MIT", None, "my own"]
    columns = {"license": said, "meta": [{"license": one} for one in said], "flat.license": said}

    found = hub_source({"data/a.parquet": pages(3, **columns)}, columns=PLAIN | {"license": column})

    assert [(one["license_tag"], one["meta"]["license_evidence"]) for one in documents_of(found)] == [  # type: ignore[index]
        ("mit", f"row: {column}"),
        ("odc-by", "recipe"),
        ("unknown", f"row: {column} is 'my own'"),
    ]


def test_text_id_and_date_may_be_nested_and_text_and_id_leave_them(hub_source: Normalized, documents_of: Read) -> None:
    content = [{"body": f"Text {number}.", "key": f"k{number}", "lines": number} for number in range(2)]
    table = pa.table({"content": [*content, None], "meta": [{"at": {"date": "2024-01-02"}}] * 3})
    columns = {"text": "content.body", "id": "content.key", "created_at": "meta.at.date", "license": None}

    found = hub_source({"data/a.parquet": table}, columns=columns)

    assert [(one["doc_id"], one["text"], one["created_at"]) for one in documents_of(found)] == [
        ("k0", "Text 0.", "2024-01-02T00:00:00.000"),
        ("k1", "Text 1.", "2024-01-02T00:00:00.000"),
    ]
    assert [json.loads(one["meta"]["extra"]) for one in documents_of(found)] == [  # type: ignore[index]
        {"content": {"lines": 0}, "meta": {"at": {"date": "2024-01-02"}}},
        {"content": {"lines": 1}, "meta": {"at": {"date": "2024-01-02"}}},
    ]
    assert ledger(found)["rejected"] == {"no_text": 1}


@pytest.mark.parametrize(
    ("field", "column", "fix"),
    [
        ("license", "licence", "set `columns.license` in the recipe to an existing column, or leave it out"),
        ("license", "meta.license", "set `columns.license` in the recipe to an existing column, or leave it out"),
        ("created_at", "date", "set `columns.created_at` in the recipe to an existing column, or leave it out"),
        ("id", "meta.id", "set `columns.id` in the recipe to an existing column, or leave it out"),
        ("text", "body", "set `columns.text` in the recipe to the column that holds the text"),
    ],
)
def test_a_column_that_no_file_has_is_an_error_that_names_those_present(
    field: str, column: str, fix: str, hub_source: Normalized
) -> None:
    line = refusal(lambda: hub_source({"data/a.parquet": pages(2)}, columns=PLAIN | {field: column}))

    assert line.startswith("maker/pages@")
    assert line.endswith(f":data/a.parquet: column `{column}` not found; the columns are text, id; {fix}")


def test_rows_that_a_rule_or_the_language_keeps_out_are_counted(hub_source: Normalized) -> None:
    table = pages(4, score=[1, 3, 3, None], language=["en", "en", "de", "en"])

    found = hub_source({"data/a.parquet": table}, rules=["score >= 3"], language="en")

    assert ledger(found) == {
        "in": 4,
        "out": 1,
        "dropped": {"score >= 3": 2, "language": 1},
        "rejected": {},
    }
    assert found.manifest.identity.decisions["language_filter_applied"] is True


def test_a_hub_that_lists_other_files_than_the_raw_source_names_is_an_error(
    hub_files: HubFiles, publish: Callable[..., str], tmp_path: Path
) -> None:
    [source] = recipe_with(tmp_path, only("pages", **ALL), publish({"data/a.parquet": pages(5)})).sources
    assert isinstance(source, HubSource)
    identity = Identity(StageVersion("raw", 1), {}, [], None, {}, {}, [])
    raw = Artifact(tmp_path / "raw", Manifest("stage_a/raw", "pages", identity, [], {}))
    building = StagingDir(tmp_path, tmp_path / "normalized", lock=None)  # type: ignore[arg-type]
    snapshot, settings = source.snapshot_recipe(1000), RunSettings()

    assert refusal(lambda: convert_hub_rows(building, raw, hub_files, snapshot, source.columns, settings)) == (
        f"{tmp_path / 'raw'}: files or row groups differ from those on the hub; build this artifact again"
    )
