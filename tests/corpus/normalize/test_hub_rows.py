"""Rows of a hub dataset become Documents: columns, licences and filters."""

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
    """Return a function to publish and normalize tables with changed source keys."""

    def run(tables: dict[str, pa.Table], engine: RunSettings | None = None, root: str = "data", **changes: object):
        recipe = recipe_with(tmp_path, only("pages", **(ALL | changes)), publish(tables))
        return normalize(recipe, tmp_path / root, hub_files, engine or RunSettings(workers=0))

    return run


def test_a_row_without_an_id_has_the_id_of_its_text(hub_source: Normalized, read_docs: Read) -> None:
    [document] = read_docs(hub_source({"data/a.parquet": pages(1)}, columns=PLAIN | {"id": None}))

    assert document["doc_id"] == "cc00b4c349346a37cb0264196e57a1e846f2500e6fc60da8d906229807d9230c"


@pytest.mark.parametrize("column", ["license", "meta.license", "flat.license"])
def test_the_licence_of_a_row_is_in_a_column_or_nested(column: str, hub_source: Normalized, read_docs: Read) -> None:
    licences = ["MIT", None, "my own"]
    columns = {"license": licences, "meta": [{"license": licence} for licence in licences], "flat.license": licences}

    artifact = hub_source({"data/a.parquet": pages(3, **columns)}, columns=PLAIN | {"license": column})

    assert [(doc["license_tag"], doc["meta"]["license_evidence"]) for doc in read_docs(artifact)] == [  # type: ignore[index]
        ("mit", f"row: {column}"),
        ("odc-by", "recipe"),
        ("unknown", f"row: {column} is 'my own'"),
    ]


def test_nested_text_and_id_are_removed_from_the_extra_columns(hub_source: Normalized, read_docs: Read) -> None:
    content = [{"body": f"Text {number}.", "key": f"k{number}", "lines": number} for number in range(2)]
    table = pa.table({"content": [*content, None], "meta": [{"at": {"date": "2024-01-02"}}] * 3})
    columns = {"text": "content.body", "id": "content.key", "created_at": "meta.at.date", "license": None}

    artifact = hub_source({"data/a.parquet": table}, columns=columns)

    assert [(doc["doc_id"], doc["text"], doc["created_at"]) for doc in read_docs(artifact)] == [
        ("k0", "Text 0.", "2024-01-02T00:00:00.000"),
        ("k1", "Text 1.", "2024-01-02T00:00:00.000"),
    ]
    assert [json.loads(doc["meta"]["extra"]) for doc in read_docs(artifact)] == [  # type: ignore[index]
        {"content": {"lines": 0}, "meta": {"at": {"date": "2024-01-02"}}},
        {"content": {"lines": 1}, "meta": {"at": {"date": "2024-01-02"}}},
    ]
    assert ledger(artifact)["rejected"] == {"no_text": 1}


@pytest.mark.parametrize(
    ("field", "column", "fix"),
    [
        ("license", "licence", "an existing column, or leave it out"),
        ("created_at", "date", "an existing column, or leave it out"),
        ("id", "meta.id", "an existing column, or leave it out"),
        ("text", "body", "the column that holds the text"),
    ],
)
def test_an_unknown_column_is_an_error_that_names_the_columns(
    field: str, column: str, fix: str, hub_source: Normalized
) -> None:
    line = refusal(lambda: hub_source({"data/a.parquet": pages(2)}, columns=PLAIN | {field: column}))

    assert line.startswith("maker/pages@") and line.endswith(
        f":data/a.parquet: column `{column}` not found; the columns are text, id; set `columns.{field}` in the recipe "
        f"to {fix}"
    )


def test_rows_dropped_by_a_rule_or_the_language_are_counted(hub_source: Normalized) -> None:
    table = pages(4, score=[1, 3, 3, None], language=["en", "en", "de", "en"])

    artifact = hub_source({"data/a.parquet": table}, rules=["score >= 3"], language="en")

    assert ledger(artifact) == {"in": 4, "out": 1, "dropped": {"score >= 3": 2, "language": 1}, "rejected": {}}
    assert artifact.manifest.identity.decisions["language_filter_applied"] is True


def test_a_hub_whose_files_differ_from_the_raw_source_is_an_error(
    hub_files: HubFiles, publish: Callable[..., str], tmp_path: Path
) -> None:
    [source] = recipe_with(tmp_path, only("pages", **ALL), publish({"data/a.parquet": pages(5)})).sources
    assert isinstance(source, HubSource)
    identity = Identity(StageVersion("raw", 1), {}, [], None, {}, {}, [])
    raw = Artifact(tmp_path / "raw", Manifest("stage_a/raw", "pages", identity, [], {}))
    staging = StagingDir(tmp_path, tmp_path / "normalized", lock=None)  # type: ignore[arg-type]
    snapshot, settings = source.snapshot_recipe(1000), RunSettings()

    assert refusal(lambda: convert_hub_rows(staging, raw, hub_files, snapshot, source.columns, settings)) == (
        f"{tmp_path / 'raw'}: files or row groups differ from those on the hub; build this artifact again"
    )
