"""Sources with missing columns, unreadable rows or no kept documents."""

import shutil
from pathlib import Path

import pytest
import yaml
from command_results import Corpusmill, Result, Wrong

from pipeline_assets.commands.inputs import manifests_below
from pipeline_assets.demo.loopback_hub import LoopbackHub

NOTES = ("--input", "notes/*.jsonl", "--domain", "d", "--source", "n", "--out-dir")


def test_column_without_values_is_a_warning(corpusmill: Corpusmill, work: Path) -> None:
    columns = ("--text-column", "body.text", "--license-column", "licens")

    result = corpusmill("stage-a", "normalize", *NOTES, "misspelt", *columns, cwd=work)

    assert result.returncode == 0, result.stderr
    warning = "named_columns_have_values: WARNING: no document has a value for `licens`; check the spelling"
    assert warning in result.stderr


def test_missing_text_column_is_reported_with_the_existing_columns(wrong: Wrong, work: Path) -> None:
    assert wrong("normalize", *NOTES, "bad") == (
        2,
        f"{work}/notes/0.jsonl: the first rows have no column `text`; "
        "the first one has body, key, license; set --text-column to the column that holds the text",
    )


@pytest.mark.slow
def test_unknown_filter_file_and_unknown_id_are_reported(
    wrong: Wrong, corpusmill: Corpusmill, typed: dict[str, Result], work: Path
) -> None:
    unknown = corpusmill("stage-a", "why", "nobody", "--data", "out", cwd=work)

    assert unknown.returncode == 1
    assert unknown.stderr.startswith("'nobody' is not an id, a file or a text in any corpus of out (")
    assert wrong("filter", "--filters", "non.yaml", "--out-dir", "out") == (
        2,
        "non.yaml: filter file not found; the folder has web.yaml",
    )


def test_streamed_source_is_normalised_into_the_same_folder(
    corpusmill: Corpusmill, work: Path, tmp_path: Path, hub: LoopbackHub
) -> None:
    env = {"HF_ENDPOINT": hub.endpoint}
    streamed = corpusmill("stage-a", "hf-stream", "--source", "fineweb-edu", "--out-dir", tmp_path, env=env)
    assert streamed.returncode == 0, streamed.stderr
    shards = tmp_path / "stage_a" / "normalized" / "fineweb-edu" / "shards" / "*.jsonl.zst"
    words = ("stage-a", "normalize", "--input", shards, "--out-dir", tmp_path, "--source", "fineweb-edu", "--domain")

    done = corpusmill(*words, "web", env=env)
    assert done.returncode == 0, done.stderr
    assert "fineweb-edu is normalized already" in done.stderr and done.stdout == streamed.stdout
    other = corpusmill(*words, "books", env=env)
    assert other.returncode == 2 and "--domain: the documents are sealed with 'web', got 'books'" in other.stderr


def test_archives_of_other_tables_than_posts_are_skipped(corpusmill: Corpusmill, work: Path, tmp_path: Path) -> None:
    posts, users = (tmp_path / f"stackoverflow.com-{table}.7z" for table in ("Posts", "Users"))
    for copy in (posts, users):
        shutil.copyfile(next((work / "dumps").glob("*.7z")), copy)
    ingest = ("stage-a", "ingest-stackexchange", "--out-dir", tmp_path / "out", "--input")

    done = corpusmill(*ingest, tmp_path / "*.7z")
    assert done.returncode == 0, done.stderr
    assert f"left out: {users}: expected a site's posts, got its Users\n" in done.stderr
    recipe = yaml.safe_load((tmp_path / "out" / "recipes" / "stackexchange.yaml").read_text())
    assert [source["host"] for source in recipe["sources"]] == ["stackoverflow.com"]

    refused = corpusmill(*ingest, users)
    assert refused.returncode == 1
    assert refused.stderr == (f"corpusmill: {users}: expected a site's posts, got its Users; pass <site>-Posts.7z\n")


def test_missing_licence_is_unknown_with_a_warning(corpusmill: Corpusmill, work: Path, tmp_path: Path) -> None:
    done = corpusmill("stage-a", "ingest-wikipedia", "--input", work / "extracted", "--out-dir", tmp_path)

    assert done.returncode == 0, done.stderr
    assert "warning: the licence is unknown" in done.stderr
    recipe = yaml.safe_load((tmp_path / "recipes" / "wikipedia.yaml").read_text())
    assert recipe["sources"][0]["license_tag"] == "unknown"


def test_recipe_with_any_file_name_is_stored_by_its_name(corpusmill: Corpusmill, work: Path, tmp_path: Path) -> None:
    content = yaml.safe_load((work / "out" / "recipes" / "stage_a_v1.yaml").read_text()) | {"name": "My_Sources"}
    content["sources"][0]["path"] = str(work / "out" / content["sources"][0]["path"])
    (tmp_path / "Any Name.yml").write_text(yaml.safe_dump(content))

    words = ("stage-a", "ingest-manifest", "--manifest", "Any Name.yml", "--out-dir", "out")
    done = corpusmill(*words, cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert "`name` is folded to lower case: My_Sources becomes my_sources" in done.stderr
    assert (tmp_path / "out/recipes/my_sources.yaml").read_bytes() == (tmp_path / "Any Name.yml").read_bytes()
    listed = corpusmill("recipes", "--data", "out", cwd=tmp_path)
    assert "my_sources" in listed.stdout and "cannot be read" not in listed.stdout
    (tmp_path / "out/recipes/my_sources.yaml").rename(tmp_path / "out/recipes/others.yaml")
    by_name = corpusmill("plan", "others", "--data", "out", cwd=tmp_path)
    assert by_name.returncode == 2 and "the file name is others, but `name` is My_Sources" in by_name.stderr


def test_leftovers_of_a_crash_are_not_filtered(corpusmill: Corpusmill, tmp_path: Path) -> None:
    (tmp_path / "notes.jsonl").write_text('{"text": "one two three"}\n')
    (tmp_path / "web.yaml").write_text("length: {min_words: 2}\n")
    out, source = ("--out-dir", tmp_path / "out"), ("--domain", "books", "--source", "notes", "--license", "cc0-1.0")
    assert corpusmill("stage-a", "normalize", "--input", tmp_path / "notes.jsonl", *out, *source).returncode == 0
    normalized = tmp_path / "out" / "stage_a" / "normalized"
    shutil.copytree(normalized / "notes", normalized / ".notes.building.7")

    filtered = corpusmill("stage-a", "filter", "--filters", tmp_path / "web.yaml", *out)

    assert filtered.returncode == 0, filtered.stderr
    assert [path.name for path in normalized.with_name("filtered").glob("[!.]*") if path.is_dir()] == ["notes"]
    assert [path for path, _ in manifests_below(normalized)] == [normalized / "notes"]
