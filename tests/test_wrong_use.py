"""What was typed wrong is one line about what was typed: an option, not a recipe key nor a block of usage."""

import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline_assets.commands.wrong_use import naming_options
from pipeline_assets.corpus.spine.errors import InputError, UsageError

Corpusmill = Callable[..., subprocess.CompletedProcess[str]]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("destroy", "command line: no such command 'destroy'; see corpusmill --help"),
        ("verify", "verify: missing argument 'folder'; see corpusmill verify --help"),
        ("ui --port", "command line: option '--port' requires an argument; see corpusmill --help"),
        (
            "run x --wrokers 2",
            "run: no such option: --wrokers (Possible options: --workers); see corpusmill run --help",
        ),
        ("run x --workers -1", "--workers: it is '-1'; give 0 or more"),
        ("ui --port 70000", "--port: it is '70000'; give 65535 at most"),
        ("dedup explain --bands many", "--bands: it is 'many'; give a whole number"),
        ("dedup explain --recall most", "--recall: it is 'most'; give a number"),
    ],
)
def test_what_the_parser_refuses(corpusmill: Corpusmill, words: str, line: str) -> None:
    result = corpusmill(*shlex.split(words))

    assert (result.returncode, result.stdout, result.stderr) == (2, "", f"corpusmill: {line}\n")


def test_a_value_of_the_environment_is_told_by_its_variable(corpusmill: Corpusmill) -> None:
    result = corpusmill("run", "x", env={"CORPUSMILL_WORKERS": "few"})

    assert (result.returncode, result.stderr) == (
        2,
        "corpusmill: CORPUSMILL_WORKERS: it is 'few'; give a whole number\n",
    )


def test_a_group_without_a_command_shows_its_help(corpusmill: Corpusmill) -> None:
    result = corpusmill("dedup")

    assert result.returncode == 2
    assert result.stderr.startswith("Usage: corpusmill dedup [OPTIONS] COMMAND [ARGS]...\n")
    assert result.stderr.rstrip().endswith("Example: corpusmill dedup explain --threshold 0.8")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            UsageError("`sources.0.local.source` is 'X': write x", "a.yaml", "correct it", "sources.0.local.source"),
            "--source: it is 'X': write x; correct it",
        ),
        (
            UsageError("no column `domain`", "a.parquet", "set `columns.text` in the recipe to one", "columns.text"),
            "a.parquet: no column `domain`; set --text-column to one",
        ),
        (
            UsageError("no column `x`", "a.parquet", "set `columns.id` in the recipe to one, or to null", "columns.id"),
            "a.parquet: no column `x`; set --id-column to one, or leave it out",
        ),
        (
            InputError("the url doesn't say it", "wiki_00", "set `language` in the recipe", "language"),
            "wiki_00: the url doesn't say it; set --language",
        ),
        (
            UsageError("no document has a `domain`", "quality_column", "name a number"),
            "--quality-column: no document has a `domain`; name a number",
        ),
        (
            UsageError(
                "sealed here: the recipe changed (columns.text: a → b, near.minhash.rows: 4 → 8)",
                "notes",
                "give it another `name` in the recipe, or run with --replace",
                "name",
            ),
            "notes: sealed here: the recipe changed (--text-column: a → b, near.minhash.rows: 4 → 8); "
            "give it another --out-dir, or run with --replace",
        ),
        (
            UsageError("`shard_text_bytes` is 0: too small", "a.yaml", "correct the value", "shard_text_bytes"),
            "a.yaml: `shard_text_bytes` is 0: too small; correct the value",
        ),
    ],
)  # fmt: skip
def test_recipe_keys_are_called_by_the_options_that_set_them(error: InputError, said: str) -> None:
    with pytest.raises(type(error)) as raised, naming_options():
        raise error

    assert str(raised.value) == said


def test_a_recipe_that_was_written_from_options_is_not_what_to_correct(corpusmill: Corpusmill, tmp_path: Path) -> None:
    (tmp_path / "notes.jsonl").write_text('{"text": "a text"}\n')
    common = ("stage-a", "normalize", "--input", "notes.jsonl", "--out-dir", "out", "--source", "notes")

    first = corpusmill(*common, "--domain", "books", cwd=tmp_path)
    other = corpusmill(*common, "--domain", "web", cwd=tmp_path)
    unknown = corpusmill(*common, "--domain", "books", "--text-unit", "page", cwd=tmp_path)

    assert first.returncode == 0, first.stderr
    assert (other.returncode, other.stderr) == (
        2,
        "corpusmill: out/stage_a/normalized/notes: another version is sealed here: the recipe changed "
        "(--domain: books → web); give it another --out-dir, or run with --replace\n",
    )
    assert (unknown.returncode, unknown.stderr) == (
        2,
        "corpusmill: --text-unit: it is 'page': Input should be 'file' or 'paragraph'; correct the value\n",
    )
