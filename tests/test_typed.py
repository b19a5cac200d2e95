"""Command lines as users type them: no group, shell patterns, settings anywhere."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from command_results import Corpusmill, Result

from pipeline_assets.cli import app, expand_group, repeat_option
from pipeline_assets.commands.catalog import COMMANDS, GROUPS
from pipeline_assets.spine.artifact import open_artifact
from pipeline_assets.spine.provenance import ProvenanceRecorder

PROJECT = Path(__file__).parents[1]
NAMES = [words for module in COMMANDS.values() for words in module]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    raw = tmp_path / "data" / "raw" / "my_source"
    raw.mkdir(parents=True)
    for number in range(2):
        rows = [{"text": f"Words of file {number}, row {row}, that nobody wrote before."} for row in range(40)]
        (raw / f"{number}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def in_shell(folder: Path, line: str) -> Result:
    program = f"{sys.executable} -m pipeline_assets"
    return subprocess.run(
        ["sh", "-c", line.replace("corpusmill", program)],
        cwd=folder,
        env={"PYTHONPATH": str(PROJECT), "PATH": "/usr/bin:/bin", "CORPUSMILL_WORKERS": "0"},
        capture_output=True,
        text=True,
    )


@pytest.mark.slow
def test_the_command_lines_of_a_corpus_work(folder: Path) -> None:
    lines = [
        "corpusmill normalize --input data/raw/my_source/*.jsonl --source notes --cpu-threads 0 --verbose",
        "corpusmill --log-every 300 dedup --input data/stage_a/normalized/notes/shards/*.jsonl.zst "
        "--out-dir data/dedup --mode both --scope global --similarity 0.8 --permutations 128 --faiss-gpu 1",
        "corpusmill pack --manifest stageA_manifest.yaml --out-dir data/packed --num-seqs 10",
        "corpusmill --cpu-threads 0 --verbose report --input data/stage_a/normalized/*.manifest.json "
        "--out data/report.json",
        "corpusmill --faiss-gpu 1 --log-every 300 verify data/packed --verbose --cpu-threads 16",
    ]
    source = {"kind": "normalized", "source": "notes"}
    recipe = {"system": "stage_a", "name": "packed", "outputs": {"normalized_dir": "stage_a/normalized"}}
    recipe |= {"sources": [source], "pack": {"seq_len": 64}}
    (folder / "stageA_manifest.yaml").write_text(json.dumps(recipe))

    for line in lines:
        result = in_shell(folder, line)
        assert result.returncode == 0, result.stderr

    near = open_artifact(folder / "data" / "dedup").manifest.identity.recipe["dedup"]["near"]
    assert (near["threshold"], near["minhash"]["permutations"]) == ("0.8", 128)
    assert len(json.loads((folder / "data" / "report.json").read_bytes())["sources"]) == 1
    assert open_artifact(folder / "data" / "packed").manifest.identity.counts["rows"] == 10


@pytest.mark.parametrize(
    ("typed", "full"),
    [
        ("dedup --input a", "stage-a dedup --input a"),
        ("dedup show x", "dedup show x"),
        ("dedup -h", "dedup -h"),
        ("dedup", "dedup"),
        ("normalize --input a", "stage-a normalize --input a"),
        ("nemotron normalize --dataset a", "nemotron normalize --dataset a"),
        ("inventory --dataset a", "nemotron inventory --dataset a"),
        ("verify a", "verify a"),
        ("nothing a", "nothing a"),
        ("", ""),
    ],
)
def test_a_command_may_be_typed_without_its_group(typed: str, full: str) -> None:
    assert expand_group(typed.split(), GROUPS, NAMES) == full.split()


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("--input a b c --out d", "--input a --input b --input c --out d"),
        ("--out d e --input a --input b c", "--out d e --input a --input b --input c"),
        ("--input=a b", "--input=a b"),
        ("--flag --input a", "--flag --input a"),
    ],
)
def test_the_option_is_repeated_for_each_value_of_a_shell_pattern(typed: str, expected: str) -> None:
    assert repeat_option(typed.split(), {"--input"}) == expected.split()


@pytest.mark.parametrize(
    "typed",
    [
        "--cpu-threads 16 --faiss-gpu 1 --verbose --log-every 300 --data D --cost-limit 2.5 dedup explain",
        "--data=D dedup explain --workers=16 --faiss_gpu 1 --verbose --log_every 300 --cost-limit=2.5",
        "--workers 2 --verbose --data D dedup explain --cpu-threads 16 --faiss-gpu 1 --log-every 300 --cost-limit 2.5",
    ],
    ids=["before", "after", "both"],
)
def test_settings_become_variables_in_any_position(monkeypatch: pytest.MonkeyPatch, typed: str) -> None:
    monkeypatch.setattr(ProvenanceRecorder, "command", None)
    monkeypatch.setattr(os, "environ", {})

    assert app(typed.split(), standalone_mode=False) == 0

    assert os.environ == {
        "CORPUSMILL_WORKERS": "16",
        "CORPUSMILL_FAISS_GPU": "1",
        "CORPUSMILL_VERBOSE": "1",
        "CORPUSMILL_LOG_EVERY": "300",
        "CORPUSMILL_DATA": "D",
        "CORPUSMILL_MODAL_COST_LIMIT": "2.5",
    }


def test_a_setting_that_is_also_an_option_is_listed_once(corpusmill: Corpusmill) -> None:
    help_texts = {name: corpusmill(*name.split(), "--help").stdout for name in ("smoke", "dedup explain")}

    assert [text.count("--workers") for text in help_texts.values()] == [1, 1]
    assert "  --workers, --engine, --log-every, --verbose," in help_texts["dedup explain"].partition("Also:")[2]


def test_a_pattern_of_shards_names_their_folder(corpusmill: Corpusmill, built_notes: Path) -> None:
    normalized = built_notes / "stage_a" / "mixed" / "normalized"
    out = built_notes.parent / "reports"

    for number, inputs in enumerate([[normalized / "notes"], sorted((normalized / "notes" / "shards").iterdir())]):
        args = [arg for path in inputs for arg in ("--input", path)]
        result = corpusmill("stage-a", "report", *args, "--out", out / str(number))
        assert result.returncode == 0, result.stderr

    digests = {open_artifact(out / str(number)).manifest.digest for number in range(2)}
    shutil.rmtree(out)
    assert len(digests) == 1


def test_h_is_short_for_help(corpusmill: Corpusmill) -> None:
    assert corpusmill("verify", "-h").stdout == corpusmill("verify", "--help").stdout
