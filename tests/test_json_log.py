"""Logs and metrics for other programs."""

import datetime
import json
import subprocess
import sys
from pathlib import Path

import pytest
from command_results import DOCS, Corpusmill, code_blocks

AS_JSON = {"CORPUSMILL_LOG": "json"}


def test_each_line_of_a_build_and_its_error_is_json(corpusmill: Corpusmill, tmp_path: Path) -> None:
    (tmp_path / "notes.jsonl").write_text("".join(json.dumps({"text": f"note {number}"}) + "\n" for number in range(9)))
    args = ["stage-a", "normalize", "--input", tmp_path / "notes.jsonl", "--out-dir", tmp_path / "out"]

    built = corpusmill(*args, "--domain", "web", "--source", "notes", env=AS_JSON)
    failed = corpusmill("verify", tmp_path / "none", env=AS_JSON)

    records = [json.loads(line) for line in built.stderr.splitlines()]
    assert all(
        datetime.datetime.fromisoformat(record["time"]).utcoffset() == datetime.timedelta() for record in records
    )
    assert built.returncode == 0 and {record["level"] for record in records} >= {"info", "debug"}
    progress = next(record for record in records if record.get("stage") == "normalize notes")
    assert progress["artifact"].endswith("/normalized/notes")
    assert (progress["unit"], progress["done"], progress["total"], progress["counts"]["documents"]) == (
        "shards",
        1,
        1,
        9,
    )
    assert progress["message"].startswith("normalize notes: 1/1 shards; 9 documents")
    sealed = next(record for record in records if record["message"].startswith("sealed stage_a/normalized"))
    assert sealed["message"].endswith(sealed["digest"]) and sealed["counts"]["documents"] == 9
    [error] = [json.loads(line) for line in failed.stderr.splitlines()]
    assert (failed.returncode, error["level"], error["artifact"]) == (2, "error", None)
    assert error["message"].startswith(f"corpusmill: {tmp_path}/none: ")


def test_an_unknown_log_format_is_refused(corpusmill: Corpusmill, tmp_path: Path) -> None:
    result = corpusmill("plan", "healing_text_v1", "--data", tmp_path, env={"CORPUSMILL_LOG": "xml"})

    assert (result.returncode, result.stderr) == (
        2,
        "corpusmill: CORPUSMILL_LOG: must be text or json, got 'xml'; correct it\n",
    )


@pytest.mark.slow
def test_the_documented_program_prints_metrics_of_a_data_root(corpusmill: Corpusmill, demo_root: Path) -> None:
    [program] = [block for block in code_blocks(DOCS / "operations.md", "python") if "corpusmill_current" in block]
    status = corpusmill("status", "--json", "--data", demo_root).stdout

    metrics = subprocess.run([sys.executable, "-c", program], input=status, capture_output=True, text=True, check=True)

    labels = f'{{recipe="healing_text_v1",folder="{demo_root}/megatron/healing_text_v1/train"}}'
    assert f"corpusmill_current{labels} 1" in metrics.stdout.splitlines()
    assert f"corpusmill_documents{labels} 572" in metrics.stdout.splitlines()
