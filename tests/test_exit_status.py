"""Exit status 2: what was typed is wrong. 1: the work itself failed, or a check found something."""

import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from one_line import only_line

Corpusmill = Callable[..., subprocess.CompletedProcess[str]]
NOBODY = {"HF_ENDPOINT": "http://127.0.0.1:9", "CORPUSMILL_HUB_TRIES": "1"}
NO_FOLDER = "there is no such folder"
NOT_SEALED = "nothing is sealed here"
NO_RECIPE = "there is no such recipe"


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an empty folder, a table, and lines of which one is cut off."""
    folder = tmp_path_factory.mktemp("here")
    (folder / "empty").mkdir()
    pq.write_table(pa.table({"body": ["a text"]}), folder / "table.parquet")
    (folder / "blank.yaml").write_text("")
    (folder / "cut.jsonl").write_text('{"text": "a text"}\n{"text": "a te')
    return folder


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        ("verify none", 2, NO_FOLDER),
        ("verify empty", 2, NOT_SEALED),
        ("verify table.parquet", 2, "this is a file"),
        ("verify none --upstream --data empty", 2, NO_FOLDER),
        ("diff none empty", 2, NO_FOLDER),
        ("diff empty empty", 2, NOT_SEALED),
        ("verify none --upstream", 2, NO_FOLDER),
        ("rebuild none", 2, NO_FOLDER),
        ("rebuild none --data empty", 2, NO_FOLDER),
        ("rebuild empty", 2, NOT_SEALED),
        ("rebuild empty --data empty", 2, NOT_SEALED),
        ("trace none --token 1", 2, NO_FOLDER),
        ("trace empty --token 1 --data empty", 2, NOT_SEALED),
        ("trace --source table.parquet#0 --data none", 2, NO_FOLDER),
        ("trace --source table.parquet#0 --data empty", 1, "no source below empty lists this file"),
        ("peek none --row 0", 2, NO_FOLDER),
        ("run none", 2, NO_RECIPE),
        ("run healing_text_v1 --data table.parquet", 2, "a file lies where a folder belongs"),
        ("plan none", 2, NO_RECIPE),
        ("status none --data empty", 2, NO_RECIPE),
        ("status --data none", 2, NO_FOLDER),
        ("ui --data none/data", 2, NO_FOLDER),
        ("hub serve none", 2, NO_FOLDER),
        ("manifests export --data empty --to out", 2, "no manifest was built here"),
        ("tokenizer check none", 2, "there is no such file"),
        ("tokenizer check table.parquet", 1, "sha256 is"),
        ("pin none", 2, "this is no dataset"),
        ("pin any/thing", 1, "can't be reached"),
        ("stage-a hf-stream --source any/thing --out-dir d", 1, "can't be reached"),
        ("stage-a filter --filters none.yaml --out-dir empty", 2, "normalise a source first"),
        ("stage-a report --input none --out out/report", 2, "no sealed source matches"),
        ("stage-a why id --data none", 2, NO_FOLDER),
        ("stage-a pack --manifest none.yaml --input empty --out-dir out", 2, "there is no such manifest"),
        ("stage-a pack --manifest empty --input empty --out-dir out", 2, "this is no manifest: it is a folder"),
        ("stage-a pack --manifest cut.jsonl --input empty --out-dir out", 2, "this is not YAML"),
        ("stage-a pack --manifest blank.yaml --input empty --out-dir out", 2, "the file is empty"),
        ("stage-a normalize --input none --out-dir a --domain d --source s", 2, "no file matches"),
        ("stage-a normalize --input table.parquet --out-dir b --domain d --source s", 2, "there is no column `text`"),
        ("stage-a normalize --input cut.jsonl --out-dir c --domain d --source s", 1, "its last line"),
    ],
)
def test_a_wrong_command(corpusmill: Corpusmill, here: Path, words: str, status: int, said: str) -> None:
    result = corpusmill(*shlex.split(words), cwd=here, env=NOBODY)

    assert (result.returncode, said in only_line(result)) == (status, True), result.stderr
