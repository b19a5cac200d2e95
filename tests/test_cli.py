"""Commands of the command line and their output."""

import errno
import importlib
import inspect
import json
import os
import shutil
import signal
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from command_results import Corpusmill, RecipeIn, Result, only_line, refused

from pipeline_assets import cli
from pipeline_assets.commands.catalog import COMMANDS, GROUPS
from pipeline_assets.corpus.tokens.o200k_harmony import VOCABULARY_PATH, VOCABULARY_SHA256
from pipeline_assets.demo.corpora import EDU_DATASET
from pipeline_assets.demo.loopback_hub import LoopbackHub

PROJECT = Path(__file__).parents[1]
IMPORTABLE = {**os.environ, "PYTHONPATH": str(PROJECT)}


@pytest.mark.parametrize("words", ["", *GROUPS, *(words for module in COMMANDS.values() for words in module)])
def test_help_fits_on_a_screen_and_ends_with_an_example(corpusmill: Corpusmill, words: str) -> None:
    result = corpusmill(*words.split(), "--help")

    example = result.stdout.strip().rpartition("Example: ")[2].splitlines()
    assert result.returncode == 0
    assert len(result.stdout.strip().splitlines()) <= {
        "": 52,
        "stage-a dedup": 50,
        "stage-a decontaminate": 44,
        "nemotron normalize": 46,
        "nemotron score": 44,
    }.get(words, 40)
    assert example[0].startswith(f"corpusmill {words}") and len(example) == 1  # to paste it
    assert [line for line in result.stdout.splitlines()[1:] if line.endswith("...")] == []  # no summary is cut
    assert "<list[" not in result.stdout and " range>" not in result.stdout


@pytest.mark.parametrize("words", ["--version", "status", "recipes --help"])
def test_early_end_of_the_output_reader_is_not_an_error(words: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pipeline_assets", *words.split()]
    env = os.environ | {"CORPUSMILL_DATA": str(tmp_path)}
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb") as closed:
        result = subprocess.run(command, env=env, stdout=closed, stderr=subprocess.PIPE, text=True)

    assert (result.returncode, result.stderr) == (1, "")


FULL = (
    "corpusmill: standard output: cannot be written (No space left on device); redirect it to another file or program\n"
)


@pytest.mark.parametrize("typed", ["status", "--version", "run --help"])
@pytest.mark.parametrize(
    ("output", "buffering", "status", "error"),
    [(">&-", "", 0, ""), ("> /dev/full", "", 1, FULL), ("> /dev/full", "-u", 1, FULL)],
)
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
def test_unwritable_output_is_not_blamed_on_the_data_root(
    output: str, buffering: str, status: int, error: str, typed: str, tmp_path: Path
) -> None:
    words = f"CORPUSMILL_DATA='{tmp_path}' '{sys.executable}' {buffering} -m pipeline_assets {typed} {output}"

    result = subprocess.run(["sh", "-c", words], stderr=subprocess.PIPE, text=True, cwd=PROJECT)

    assert result.returncode == status
    assert result.stderr.startswith(error) and str(tmp_path) not in result.stderr
    assert "Exception ignored" not in result.stderr


def test_error_without_a_file_is_not_blamed_on_the_output(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(**options: object) -> None:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))  # as fork does

    monkeypatch.setattr(cli, "app", fail)
    monkeypatch.setattr(sys, "argv", ["corpusmill", "status"])

    with pytest.raises(SystemExit):
        cli.main()

    error = capsys.readouterr().err
    assert "Cannot allocate memory" in error and "standard output" not in error


@pytest.mark.parametrize("words", ["status", "--help"])
def test_a_current_folder_that_was_removed_is_one_line(words: str, tmp_path: Path) -> None:
    script = f'cd "{tmp_path}" && rmdir "{tmp_path}" && exec "{sys.executable}" -m pipeline_assets.cli {words}'

    result = subprocess.run(["sh", "-c", script], env=IMPORTABLE, capture_output=True, text=True)

    assert result.returncode == 2
    assert result.stderr == (
        f"corpusmill: {tmp_path}: the current folder was removed; change to another folder, or to this one again "
        "(`cd .`) if it was replaced\n"
    )


@pytest.mark.parametrize("module", ["pipeline_assets", "pipeline_assets.cli"])
def test_python_m_has_the_same_output_and_exit_status(module: str, tmp_path: Path) -> None:
    def run_module(*words: str) -> Result:
        command = [sys.executable, "-m", module, *words]
        return subprocess.run(command, env=IMPORTABLE, cwd=tmp_path, capture_output=True, text=True)

    version_result, wrong = run_module("--version"), run_module("verify", "none")

    assert (version_result.returncode, version_result.stdout) == (0, f"{version('corpusmill')}\n")
    assert wrong.returncode == 2
    assert only_line(wrong) == "none: folder not found; pass the folder of a finished artifact"


def run_interrupted(folder: Path, interrupt: str) -> Result:
    """Run the console script after code that sends SIGINT at some time."""
    script = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["scripts"]["corpusmill"]
    module, _, function = script.partition(":")
    code = f"import atexit, os, signal, sys\n{interrupt}\nfrom {module} import {function}\n{function}()\n"
    command = [sys.executable, "-c", code, "status"]
    return subprocess.run(command, env=IMPORTABLE, cwd=folder, capture_output=True, text=True)


@pytest.mark.parametrize("module", ["typer", "pipeline_assets.build.recipe"])
def test_ctrl_c_during_imports_ends_the_program_although_a_library_ignores_it(module: str, tmp_path: Path) -> None:
    interrupt = f"""
class Interrupt:
    def find_spec(self, name, *_):
        if name == {module!r}:
            try:
                os.kill(os.getpid(), signal.SIGINT)
            except KeyboardInterrupt:
                raise ValueError("not a schema")
sys.meta_path.insert(0, Interrupt())"""

    result = run_interrupted(tmp_path, interrupt)

    assert result.returncode == -signal.SIGINT  # a shell reports 130
    assert result.stderr == ""


def test_ctrl_c_at_exit_shows_no_traceback(tmp_path: Path) -> None:
    result = run_interrupted(tmp_path, "atexit.register(os.kill, os.getpid(), signal.SIGINT)")

    assert result.returncode == -signal.SIGINT
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    "words",
    [
        "run healing_text_v1 --data {root} --json",
        "plan healing_text_v1 --data {root}",
        "status --data {root}",
        "verify {root}/megatron/healing_text_v1 --upstream --sample 50%",
        "trace {root}/megatron/healing_text_v1/train --token 5",
    ],
)
def test_command_without_work_writes_nothing(corpusmill: Corpusmill, demo_root: Path, words: str) -> None:
    before = {path: path.stat().st_mtime_ns for path in demo_root.rglob("*")}

    result = corpusmill(*words.format(root=demo_root).split(), env={"HF_ENDPOINT": "http://127.0.0.1:9"})

    assert result.returncode == 0, result.stderr
    assert {path: path.stat().st_mtime_ns for path in demo_root.rglob("*")} == before


def test_run_prints_one_line_per_artifact_and_details_only_if_verbose(corpusmill: Corpusmill, notes_root: Path) -> None:
    steps = [notes_root / "stage_a" / "mixed" / step for step in ("normalized", "filtered", "report")]

    def run(*options: str) -> tuple[list[str], Result]:
        result = corpusmill("run", "mixed", "--data", notes_root, *options)
        assert result.returncode == 0, result.stderr
        return [line.split()[0] for line in result.stdout.splitlines()], result

    for step in steps:
        shutil.rmtree(step)
    words, plain = run()
    assert words == ["current", "built", "built", "built"]
    assert "sha256:" not in plain.stdout and "check " not in plain.stderr
    assert run()[0] == ["current"] * 4
    shutil.rmtree(steps[0])
    _, verbose = run("--verbose")
    assert all("  sha256:" in line for line in verbose.stdout.splitlines())
    assert "check mixed/notes: ledger_adds_up: passed" in verbose.stderr
    assert "pages_add_up" not in verbose.stderr, "checks of Wikipedia extractions do not run for other sources"


def test_json_of_a_run_lists_each_artifact_with_its_partition(corpusmill: Corpusmill, demo_root: Path) -> None:
    rows = json.loads(corpusmill("run", "healing_text_v1", "--data", demo_root, "--json").stdout)

    assert [(row["artifact"], row["partition"], row["state"]) for row in rows] == [
        ("healing/fineweb_edu_snapshot", None, "current"),
        ("healing/healing_text_manifest", None, "current"),
        ("healing/megatron_split", "train", "current"),
        ("healing/megatron_split", "valid", "current"),
        ("healing/megatron_dataset", None, "current"),
    ]


@pytest.mark.parametrize("value", ["2147483649", pytest.param("9" * 5000, id="5,000 digits")])
def test_setting_above_its_range_is_refused_without_work(corpusmill: Corpusmill, demo_root: Path, value: str) -> None:
    result = corpusmill("run", "healing_text_v1", "--data", demo_root, env={"CORPUSMILL_LOG_EVERY": value})

    line = f"CORPUSMILL_LOG_EVERY: must be an integer from 1 to 2147483648, got {value!r}; correct it"
    assert refused(result) == line


def test_manifests_are_exported_for_commit(corpusmill: Corpusmill, demo_root: Path, tmp_path: Path) -> None:
    """Except a mixture without a readable recipe."""
    root, names = tmp_path / "data", ["first", "second"]
    for name in names:
        (root / "stage2" / name / "inventory").mkdir(parents=True)
        (root / "stage2" / name / "inventory" / "inventory.json").write_text("{}")
    (root / "recipes").mkdir()
    (root / "recipes" / "second.yaml").write_text("name: second\n")
    shutil.copytree(demo_root / "manifests", root / "manifests")

    result = corpusmill("manifests", "export", "--data", root, "--to", tmp_path / "exported")

    commit = next((demo_root / "corpora" / "fineweb_edu").glob("[!.]*")).name
    stems = [f"fineweb_edu_{commit}", *(f"healing_text_v1{part}" for part in ("", "_megatron", "_train", "_valid"))]
    exported = [tmp_path / "exported" / f"{stem}.json" for stem in stems]
    assert result.returncode == 0
    assert sorted((tmp_path / "exported").iterdir()) == exported
    assert [line.split("  ") for line in result.stdout.splitlines()] == [
        [str(path), json.loads(path.read_text())["digest"]] for path in exported
    ]
    assert [line.partition(": ")[0] for line in result.stderr.splitlines()] == [f"skipped {name}" for name in names]


@pytest.mark.parametrize(("revision", "is_passed_by_name"), [("0" * 40, False), ("main", True)])
def test_pin_prints_the_head_and_changes_only_the_revision_line(
    corpusmill: Corpusmill,
    demo_hub: LoopbackHub,
    recipe_in: RecipeIn,
    tmp_path: Path,
    revision: str,
    is_passed_by_name: bool,
) -> None:
    path = tmp_path / "recipes" / "mine.yaml"
    path.parent.mkdir()
    recipe_in({"snapshot.revision": revision}, "mine").rename(path)
    before, head = path.read_text(), demo_hub.commits()[EDU_DATASET]
    recipe = ("mine", "--data", tmp_path) if is_passed_by_name else (path,)

    result = corpusmill("pin", EDU_DATASET, "--recipe", *recipe, env={"HF_ENDPOINT": demo_hub.endpoint})

    assert result.returncode == 0
    assert (result.stdout, result.stderr) == (f"{head}\n", f"{path}: {revision} → {head}\n")
    assert path.read_text().splitlines() == [
        line.replace(revision, head) if line.startswith("  revision:") else line for line in before.splitlines()
    ]


def test_pin_requests_the_recipe_branch(corpusmill: Corpusmill, demo_hub: LoopbackHub, recipe_in: RecipeIn) -> None:
    path = recipe_in({"snapshot.revision": "next"})

    result = corpusmill("pin", EDU_DATASET, "--recipe", path, env={"HF_ENDPOINT": demo_hub.endpoint})

    assert result.returncode == 2
    assert "revision next not found" in only_line(result)


def test_pin_prints_the_commit_of_a_model(corpusmill: Corpusmill, tmp_path: Path) -> None:
    (tmp_path / "models/maker/tiny").mkdir(parents=True)
    (tmp_path / "models/maker/tiny/config.json").write_text("{}")
    with LoopbackHub(tmp_path) as hub:
        result = corpusmill("pin", "maker/tiny", "--model", env={"HF_ENDPOINT": hub.endpoint})

    assert (result.returncode, result.stdout) == (0, f"{hub.commits()['models/maker/tiny']}\n")


def test_shipped_tokenizer_matches_its_sha256(corpusmill: Corpusmill, tmp_path: Path) -> None:
    out = tmp_path / "tokenizer.json"

    result = corpusmill(
        "tokenizer", "check", VOCABULARY_PATH, "--expected-sha256", VOCABULARY_SHA256, "--metadata-json", out
    )

    metadata = json.loads(out.read_text())
    assert result.returncode == 0
    assert metadata["sha256"] == VOCABULARY_SHA256
    assert (metadata["ranks"], metadata["vocabulary_size"], metadata["end_of_text"]) == (199998, 201088, 199999)
    assert metadata["driver"] == "gigatoken"


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("corpusmill sta", {"status", "stage-a", "stage2"}),
        ("corpusmill stage-a norm", {"normalize"}),
        ("corpusmill run --work", {"--workers"}),
        ("corpusmill run heal", {"healing_text_v1"}),
        ("corpusmill status mix", {"mixed"}),
    ],
)
def test_shell_completes_commands_options_and_recipes(
    typed: str, completed: set[str], corpusmill: Corpusmill, built_notes: Path
) -> None:
    words = {"COMP_WORDS": typed, "COMP_CWORD": str(typed.count(" ")), "_CORPUSMILL_COMPLETE": "complete_bash"}

    result = corpusmill(env={**words, "CORPUSMILL_DATA": str(built_notes)})

    assert set(result.stdout.split()) == completed, result.stderr


@pytest.mark.parametrize("module", COMMANDS)
def test_docstring_of_a_command_starts_with_its_summary(module: str) -> None:
    for words, summary in COMMANDS[module].items():
        function = getattr(importlib.import_module(f"pipeline_assets.{module}"), words.split()[-1].replace("-", "_"))

        assert inspect.cleandoc(function.__doc__).startswith(f"{summary}\n\n")
        assert len(summary) <= 70
