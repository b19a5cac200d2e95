"""All errors of a stage A recipe, which one reading reports together."""

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from recipe_errors import read_error_lines
from stage_a_build import local_source, normalize, parse_recipe

from pipeline_assets.corpus.normalize.sources import check_folders
from pipeline_assets.spine.recipe_validation import RecipeProblem
from pipeline_assets.systems.stage_a import StageARecipe

UNKNOWN_LICENCE = (
    "license_tag: nobody-knows",
    "`sources.1.license_tag` is 'nobody-knows': unknown licence 'nobody-knows'",
)


def test_all_errors_of_a_recipe_are_reported_with_their_lines(tmp_path: Path) -> None:
    notes, papers = (local_source(tmp_path, name, []) for name in ("notes", "papers"))
    missing = papers | {"path": str(tmp_path / "sources/ntoes"), "license_tag": "nobody-knows"}
    pack = {"seq_len": "8", "weights": {"notes": "0.5", "pepers": "0.5"}}
    content = {"sources": [notes, missing | {"text_units": "file"}, dict(notes)], "pack": pack}

    assert read_error_lines(tmp_path, content) == [
        (f"path: {missing['path']}", f"folder {missing['path']} not found"),
        UNKNOWN_LICENCE,
        ("text_units: file", "unknown key `sources.1.text_units`"),
        ("source: notes", "two sources have the name notes"),
        ("seq_len: '8'", "`pack.seq_len` must be an integer, got '8'"),
        ("weights:", "source papers has no weight"),
        ("pepers: '0.5'", "pepers has a weight but is not a source"),
    ]


def test_wrong_files_columns_and_weights_are_reported_with_other_errors(tmp_path: Path) -> None:
    row, columns = {"body": "A text.", "key": "1"}, {"text": "txet", "id": None}
    notes = local_source(tmp_path, "notes", [row], files=["*.jsonl", "*.parqet"], columns={"text": "body"})
    papers = local_source(tmp_path, "papers", [row], columns=columns, license_tag="nobody-knows")
    table = local_source(tmp_path, "table", [], files=["*.parquet"], columns={"text": "body", "id": "uid"})
    pq.write_table(pa.table({"body": ["A text."]}), Path(table["path"]) / "a.parquet")
    sheet = local_source(tmp_path, "sheet", [], files=["*.csv"], columns={"text": "body", "id": "uid"})
    (Path(sheet["path"]) / "a.csv").write_text("body\nA text.\n")
    quiz = {"name": "quiz", "path": table["path"], "files": ["*.jsonl", "*.csv"], "columns": {"text": ["q"]}}
    pack = {"weights": {"notes": 0.5, "papers": "0.25", "table": True, "sheet": 0.25}}
    content = {"sources": [notes, papers, table, sheet], "pack": pack}
    content |= {"decontamination": {"min_item_words": 8, "evaluation": [quiz]}}

    assert read_error_lines(tmp_path, content) == [
        ("- '*.parqet'", f"{notes['path']}: no file matches '*.parqet'"),
        (
            "columns:",
            f"{papers['path']}/rows.jsonl: the first rows have no column `txet`; the first one has body, key",
        ),
        UNKNOWN_LICENCE,
        ("columns:", f"{table['path']}/a.parquet: column `uid` not found; the columns are body"),
        ("columns:", f"{sheet['path']}/a.csv: column `uid` not found; the columns are body"),
        ("table: true", "`pack.weights.table` must be a decimal number, such as 0.3, got True"),
        ("- '*.csv'", f"{table['path']}: no file matches '*.csv'"),
    ]


def test_filters_and_all_missing_columns_are_reported_with_other_errors(tmp_path: Path) -> None:
    row, columns = {"body": "A text."}, {"text": "bodi", "id": "idd", "license": "lic"}
    lost = {"path": "lost", "sha256": "0" * 64}
    filters = {"blocklist": {"words": {"rude": lost}}, "language": {"keep": ["en", "jp", "kr"]}}
    notes = local_source(tmp_path, "notes", [row], columns=columns, filters=filters)
    table = local_source(tmp_path, "table", [], files=["*.parquet"], columns=dict(columns), text_unit="page")
    table["filters"] = {"score": {"model": lost | {"path": "/hq.bin"}, "label": "__label__hq", "column": "hq"}}
    pq.write_table(pa.table({"body": ["A text."]}), Path(table["path"]) / "a.parquet")
    quiz = {"name": "quiz", "path": notes["path"], "files": ["*.jsonl"], "columns": {"text": ["query"]}}
    content = {"sources": [notes, table], "decontamination": {"evaluation": [quiz]}}

    reported = read_error_lines(tmp_path, content)

    jsonl, parquet = (f"{section['path']}/{file}" for section, file in ((notes, "rows.jsonl"), (table, "a.parquet")))
    assert reported == [
        (
            "columns:",
            f"{jsonl}: the first rows have no column `bodi`, no column `idd`, no column `lic`; the first one has body",
        ),
        ("path: lost", f"file {tmp_path}/lost not found"),
        ("keep:", "py3langid detects no language jp, kr"),
        (
            "columns:",
            f"{parquet}: column `bodi`, column `idd`, column `lic` not found; the columns are body",
        ),
        ("text_unit: page", "`sources.1.text_unit` must be 'file', 'paragraph' or 'line', got 'page'"),
        ("path: /hq.bin", "file /hq.bin not found"),
        ("columns:", f"{jsonl}: set quiz has no column `query`; its first row has body"),
    ]


def test_filters_of_a_filtered_corpus_need_no_file_and_no_detector(tmp_path: Path) -> None:
    lost, language = {"path": "lost", "sha256": "0" * 64}, {"keep": ["jp"]}
    filters = {"blocklist": {"words": {"rude": lost}}, "language": language}
    section = local_source(tmp_path, "notes", [{"text": "A text."}], filters=filters)
    content = {"system": "stage_a", "name": "mixed", "sources": [section]}
    assert len([*check_folders(content, tmp_path)]) == 2

    (tmp_path / "stage_a" / "mixed" / "filtered" / "notes").mkdir(parents=True)

    assert [*check_folders(content, tmp_path)] == []


@pytest.mark.parametrize(
    "changes",
    [
        {"columns": {"text": "body"}},
        {"max_reject_fraction": "0.5"},  # what allows bad rows may begin with them
        {"colums": {"text": "body"}},  # reported, but its effect on the rows is not
        {"columns": {"text": 3}},
        {"columns": None},
        {"files": ["."]},
        {"files": [["*"]]},
        {"path": 3},
    ],
)
def test_files_are_checked_as_far_as_the_recipe_describes_them(changes: dict[str, Any], tmp_path: Path) -> None:
    section = local_source(tmp_path, "notes", [{"body": "A text."}])
    del section["columns"]

    found = [*check_folders({"name": "mixed", "sources": [section | changes]}, tmp_path)]

    assert [error.what for error in found] == (
        [f"{section['path']}: the pattern '.' matches only folders"] if changes.get("files") == ["."] else []
    )


def test_pattern_of_excluded_files_is_reported_once_at_its_own_key(tmp_path: Path) -> None:
    section = local_source(tmp_path, "notes", [{"text": "A text."}], files=["*.jsonl", "rows*"], exclude=["../*"])

    [problem] = check_folders({"sources": [section]}, tmp_path)

    assert problem.location == ("sources", 0, "exclude")
    assert problem.what == f"{section['path']}: the pattern '../*' leads out of the folder"


def test_folder_of_normalised_sources_inside_a_sealed_artifact_is_refused(tmp_path: Path) -> None:
    """Refuse them, because their files would count as damage of that artifact."""
    section = local_source(tmp_path, "notes", [{"text": "A text.", "key": "a"}])
    sealed = normalize(parse_recipe(section), tmp_path).folder
    folders = [sealed, sealed / "more", sealed.parent / "other"]
    outputs = [{"normalized_dir": str(folder.relative_to(tmp_path))} for folder in folders]

    found = [[*check_folders({"sources": [section], "outputs": output}, tmp_path)] for output in outputs]

    what = f"the folder is inside the sealed artifact {sealed}"
    refused = [RecipeProblem(("outputs", "normalized_dir"), what, "choose another folder")]
    assert found == [refused, refused, []]


def test_recipe_sections_of_a_wrong_type_are_reported_once(tmp_path: Path) -> None:
    content = {"sources": "notes", "dedup": [], "outputs": 1, "seen": 2, "max_removed": "1", "pack": {"weights": ["a"]}}

    lines = [line.partition(":")[0] for line, _ in read_error_lines(tmp_path, content)]

    assert sorted(lines) == sorted([*content.keys() - {"pack"}, "weights"])


def test_a_file_in_place_of_a_folder_is_called_a_file(tmp_path: Path) -> None:
    section = local_source(tmp_path, "notes", [{"text": "A text of some words."}])
    file = next(Path(section["path"]).iterdir())
    content = parse_recipe(section).content()
    content["sources"][0]["path"] = str(file)

    [error] = StageARecipe.cross_checks(content, tmp_path)

    assert (error.what, error.fix) == (f"{file} is a file", "write its folder, and name the file in `files`")


def test_a_missing_folder_is_an_error_only_until_its_files_are_hashed(tmp_path: Path) -> None:
    content = parse_recipe(section := local_source(tmp_path, "notes", [{"text": "A text of some words."}])).content()
    shutil.rmtree(section["path"])
    [error] = StageARecipe.cross_checks(content, tmp_path)

    (tmp_path / "stage_a" / content["name"] / "raw" / "notes").mkdir(parents=True)

    assert (error.location, error.what) == (("sources", 0, "path"), f"folder {section['path']} not found")
    assert not [*StageARecipe.cross_checks(content, tmp_path)] and not [*StageARecipe.cross_checks(content, None)]
