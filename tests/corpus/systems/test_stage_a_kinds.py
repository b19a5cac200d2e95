"""What a manifest keeps of a stage A recipe is enough to make the artifact by; files are those that were hashed."""

import logging
import os
import sys
from pathlib import Path

import pytest
from stage_a_build import INLINE, build, local_source, recipe_of, recipe_with

from pipeline_assets.corpus.normalize import files
from pipeline_assets.corpus.normalize.sources import NormalizedSource, source_of
from pipeline_assets.corpus.recipes.run import Run
from pipeline_assets.corpus.spine.errors import InputError, RetryableError
from pipeline_assets.corpus.trust.rebuild import rebuild
from pipeline_assets.systems.registry import KINDS

ROWS = [{"text": f"Text number {number}.", "key": str(number)} for number in range(5)]


def test_every_artifact_of_a_recipe_is_of_a_kind_that_can_be_made(tmp_path: Path) -> None:
    for target in recipe_with(tmp_path).targets():
        assert (KINDS[target.kind].name, KINDS[target.kind].stage) == (target.kind, target.stage)


def test_the_section_of_a_source_is_read_back_from_its_content(tmp_path: Path) -> None:
    for source in recipe_with(tmp_path).sources:
        assert not isinstance(source, NormalizedSource)
        content = source.rows_content(1234)

        found, shard_text_bytes = source_of(content | {"licences": "of the table"})

        assert shard_text_bytes == 1234
        assert found.rows_content(1234) == content
        assert {"path", "filters"}.isdisjoint(content)


def test_a_hub_source_needs_a_hub(tmp_path: Path) -> None:
    recipe = recipe_with(tmp_path)
    [pages, *_] = recipe.sources

    with pytest.raises(ValueError, match="this source is read from a hub, and the run has none"):
        KINDS["stage_a/raw"].build(recipe.target("stage_a/raw", pages.source), Run(tmp_path, INLINE))


def test_what_a_dump_lacks_to_be_read_is_said_before_it_is_hashed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "beer.stackexchange.com.7z").write_bytes(b"7z\xbc\xaf\x27\x1c")
    scores = {"min_question_score": None, "min_answer_score": None, "min_answers": 0}
    host = {"host": "beer.stackexchange.com", "source": "beer", "domain": "questions"}
    files = {"path": str(tmp_path), "files": ["*.7z"]}
    [raw, *_] = recipe_of({"kind": "stackexchange"} | host | files | scores).targets()
    monkeypatch.setitem(sys.modules, "py7zr", None)

    with pytest.raises(RetryableError) as error, caplog.at_level(logging.INFO, "corpusmill"):
        KINDS[raw.kind].build(raw, Run(tmp_path / "data", INLINE))

    assert str(error.value) == (
        f"{tmp_path}/beer.stackexchange.com.7z: reading a .7z needs py7zr; "
        "in the project's folder run .venv/bin/python -m pip install -c constraints.txt -e '.[stackexchange]', "
        "or unpack the archive"
    )
    assert caplog.messages == []


def test_files_written_between_hashing_and_reading_are_one_clear_error(tmp_path: Path) -> None:
    recipe = recipe_of(local_source(tmp_path, "notes", ROWS))
    [raw, normalized, *_] = recipe.targets()
    KINDS[raw.kind].build(raw, Run(tmp_path, INLINE))
    local_source(tmp_path, "notes", ROWS[:3])

    with pytest.raises(InputError) as error:
        KINDS[normalized.kind].build(normalized, Run(tmp_path, INLINE))

    assert str(error.value) == (
        f"{tmp_path}/sources/notes: 1 of the files in {tmp_path}/sources/notes changed, the first is rows.jsonl "
        "since they were hashed; let nothing write there, and run the recipe again"
    )


def test_files_written_while_they_are_read_are_an_error_and_nothing_is_sealed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = recipe_of(local_source(tmp_path, "notes", ROWS))
    convert = files.convert_local

    def disturbed(*arguments: object) -> object:
        converted = convert(*arguments)  # type: ignore[arg-type]
        os.utime(tmp_path / "sources" / "notes" / "rows.jsonl")
        return converted

    monkeypatch.setattr(files, "convert_local", disturbed)

    with pytest.raises(InputError, match="were written again since they were hashed; let nothing write there"):
        build(recipe, tmp_path)

    assert not (tmp_path / "stage_a/mixed/normalized/notes").exists()


def test_a_source_whose_folder_is_gone_once_it_is_hashed_is_one_clear_error(tmp_path: Path) -> None:
    section = local_source(tmp_path, "notes", ROWS)
    recipe = recipe_of(section)
    [raw, normalized, *_] = recipe.targets()
    KINDS[raw.kind].build(raw, Run(tmp_path, INLINE))
    Path(section["path"]).rename(tmp_path / "elsewhere")

    with pytest.raises(InputError) as error:
        KINDS[normalized.kind].build(normalized, Run(tmp_path, INLINE))

    assert str(error.value) == (
        f"{tmp_path}/sources/notes: the folder that its files were read from is gone; "
        "give it back, or leave a link there to where it is now, or correct the source's path"
    )


@pytest.mark.parametrize("with_upstream", [False, True])
def test_a_source_can_be_built_again_from_its_manifest(with_upstream: bool, tmp_path: Path) -> None:
    built = build(recipe_of(local_source(tmp_path, "notes", ROWS)), tmp_path)

    outcomes = [
        rebuild(built[role].folder, Run(tmp_path, INLINE), with_upstream)
        for role in ("stage_a/raw/notes", "stage_a/normalized/notes", "stage_a/filtered/notes", "stage_a/report")
    ]

    assert [outcome.is_identical for outcome in outcomes] == [True, True, True, True]
