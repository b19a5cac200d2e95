"""Errors about recipes that commands write from options, which name the options."""

import copy
from pathlib import Path

import pytest
from command_results import Corpusmill, refused

from pipeline_assets.commands.options import option_finder
from pipeline_assets.corpus.normalize.sources import LocalSource
from pipeline_assets.corpus.readers.column_recipe import column_fix
from pipeline_assets.spine.errors import InputError, RecipeKey, UsageError

FIND_OPTION = option_finder(
    {"source": "--source", "columns.text": "--text-column", "columns.id": "--id-column", "language": "--language"},
    {"name": "--out-dir"},
)


def section_error(content: dict[str, object]) -> UsageError:
    with pytest.raises(UsageError) as raised:
        LocalSource.from_mapping(content, "a.yaml")
    return raised.value


SOURCE_RULE = (
    "must contain only lower-case letters, digits, `_`, `.` and `-`, and start with a letter or digit, got 'X'"
)


@pytest.mark.parametrize(
    ("error", "with_options", "with_keys"),
    [
        (
            section_error({"kind": "local", "source": "X"}),
            f"--source {SOURCE_RULE}; correct the value",
            f"a.yaml: `source` {SOURCE_RULE}; correct the value",
        ),
        (
            UsageError("no column `x`", "a.parquet", column_fix("text")),
            "a.parquet: no column `x`; set --text-column to the column that holds the text",
            "a.parquet: no column `x`; set `columns.text` in the recipe to the column that holds the text",
        ),
        (
            UsageError("1 document", RecipeKey("pack.num_seqs"), "correct the recipe"),
            "notes.yaml: pack.num_seqs: 1 document; correct the recipe",
            "notes.yaml: pack.num_seqs: 1 document; correct the recipe",
        ),
        (
            UsageError("`shard_text_bytes` is 0: too small", "a.yaml", "set another `name` in the recipe"),
            "a.yaml: `shard_text_bytes` is 0: too small; set another --out-dir",
            "a.yaml: `shard_text_bytes` is 0: too small; set another `name` in the recipe",
        ),
    ],
)  # fmt: skip
def test_recipe_keys_are_replaced_by_options(error: InputError, with_options: str, with_keys: str) -> None:
    option_error, recipe_error = copy.copy(error), copy.copy(error)

    option_error.name_keys("notes.yaml", FIND_OPTION)
    recipe_error.name_keys("notes.yaml")

    assert (str(option_error), str(recipe_error)) == (with_options, with_keys)


def test_errors_of_a_recipe_written_from_options_name_the_options(corpusmill: Corpusmill, tmp_path: Path) -> None:
    (tmp_path / "notes.jsonl").write_text('{"text": "a text"}\n')
    common = ("stage-a", "normalize", "--input", "notes.jsonl", "--out-dir", "out", "--source", "notes")

    first = corpusmill(*common, "--domain", "books", cwd=tmp_path)
    recipe = (tmp_path / "out" / "recipes" / "notes.yaml").read_bytes()
    changed = corpusmill(*common, "--domain", "web", cwd=tmp_path)
    unknown = corpusmill(*common, "--domain", "books", "--text-unit", "page", cwd=tmp_path)

    assert first.returncode == 0, first.stderr
    assert (tmp_path / "out" / "recipes" / "notes.yaml").read_bytes() == recipe
    assert refused(changed) == (
        "out/stage_a/normalized/notes: another version is sealed here: the recipe changed "
        "(--domain: books → web); set another --out-dir, or run with --replace"
    )
    assert refused(unknown) == "--text-unit must be 'file', 'paragraph' or 'line', got 'page'; correct the value"
