"""What was typed wrong is one line about what was typed: an option, not a recipe key nor a block of usage."""

import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline_assets.commands.sections import option_finder
from pipeline_assets.corpus.normalize.sources import LocalSource
from pipeline_assets.corpus.readers.columns import another_column
from pipeline_assets.corpus.spine.errors import IN_RECIPE, THE_RECIPE, InputError, UsageError, bare, key

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
        ("demo --only heeling", "--only: it is 'heeling'; 'heeling' is not one of 'healing', 'stage_a'"),
        ("stage-a why ''", "DOC_ID: the id is empty; give the id of a document: `trace` and `peek` show ids"),
        ("status --data README.md", "README.md: a file lies where a folder belongs; give the data root with --data"),
        (
            "stage-a ingest-manifest --manifest manifests/recipes/healing_text_v1.yaml --out-dir /tmp/none",
            "manifests/recipes/healing_text_v1.yaml: `system` is 'healing'; give a recipe of stage_a",
        ),
        (
            "stage-a normalize --input README.md --out-dir /tmp/none --domain d --source s --max-reject-fraction 3",
            "--max-reject-fraction: it is '3': a fraction is at most 1; correct the value",
        ),
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


OPTION_OF = option_finder(
    {"source": "--source", "columns.text": "--text-column", "columns.id": "--id-column", "language": "--language"},
    {"name": "--out-dir", "": "options"},
)


def section_error(content: dict[str, object]) -> UsageError:
    with pytest.raises(UsageError) as raised:
        LocalSource.of(content, "a.yaml")
    return raised.value


@pytest.mark.parametrize(
    ("error", "typed", "written"),
    [
        (
            section_error({"kind": "local", "source": "X"}),
            "--source: it is 'X': a name has lower-case letters, digits, `_`, `.` and `-`, a letter or digit first; "
            "correct the value",
            "a.yaml: `source` is 'X': a name has lower-case letters, digits, `_`, `.` and `-`, a letter or digit "
            "first; correct the value",
        ),
        (
            UsageError("no column `x`", "a.parquet", another_column("text")),
            "a.parquet: no column `x`; set --text-column to one that is there",
            "a.parquet: no column `x`; set `columns.text` in the recipe to one that is there",
        ),
        (
            UsageError("no column `x`", "a.parquet", another_column("id")),
            "a.parquet: no column `x`; set --id-column to one that is there, or leave it out",
            "a.parquet: no column `x`; set `columns.id` in the recipe to one that is there, or to null",
        ),
        (
            InputError("the url doesn't say it", "wiki_00", f"set {key('sources.0.wikipedia.language', IN_RECIPE)}"),
            "wiki_00: the url doesn't say it; set --language",
            "wiki_00: the url doesn't say it; set `sources.0.wikipedia.language` in the recipe",
        ),
        (
            UsageError("1 document", bare("pack.num_seqs"), f"correct {THE_RECIPE}"),
            "notes.yaml: pack.num_seqs: 1 document; correct the options",
            "notes.yaml: pack.num_seqs: 1 document; correct the recipe",
        ),
        (
            UsageError("`shard_text_bytes` is 0: too small", "a.yaml", f"give it another {key('name', IN_RECIPE)}"),
            "a.yaml: `shard_text_bytes` is 0: too small; give it another --out-dir",
            "a.yaml: `shard_text_bytes` is 0: too small; give it another `name` in the recipe",
        ),
    ],
)  # fmt: skip
def test_recipe_keys_are_called_as_their_reader_knows_them(error: InputError, typed: str, written: str) -> None:
    of_options, of_a_recipe = type(error)(*error.args), type(error)(*error.args)

    of_options.name_keys("notes.yaml", OPTION_OF)
    of_a_recipe.name_keys("notes.yaml")

    assert (str(of_options), str(of_a_recipe)) == (typed, written)


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
