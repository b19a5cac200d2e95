"""Links, pipes, devices and nonsense in place of small files are one-line errors."""

import errno
import fcntl
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from command_results import Corpusmill, only_line
from demo_variants import V1
from fuzz_cases import commands, damaged, leave_unfinished_work, run_command, small_files

from pipeline_assets.spine.lock import LOCK_FIX


def replace_by(make: Callable[[Path], object]) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        path.unlink()
        make(path)

    return change


def replace_parts(**parts: object) -> Callable[[Path], None]:
    """Replace parts of a manifest that no digest covers."""

    def change(path: Path) -> None:
        value = json.loads(path.read_bytes()) | parts
        path.unlink()
        path.write_text(json.dumps(value))

    return change


ODD_MANIFESTS = [
    (replace_by(Path.mkdir), "the path is a folder"),
    (replace_by(os.mkfifo), "the path is a pipe or a device"),
    (replace_by(lambda path: path.symlink_to("/dev/zero")), "the path is a link"),
    (
        replace_by(partial(Path.write_text, data="[" * 100_000)),
        "invalid JSON (maximum recursion depth exceeded while deserializing an object)",
    ),
    (replace_parts(provenance={"builder": "x"}), "Expected `int`, got `str` - at `$.provenance.builder`"),
    (replace_parts(storage=[{"path": "a", "bytes": -1, "sha256": ""}]), "Expected `int` >= 0"),
]


@pytest.mark.parametrize(("change", "message"), ODD_MANIFESTS)
def test_status_names_an_odd_manifest_and_lists_all_artifacts(
    root: Path, tmp_path: Path, change: Callable[[Path], None], message: str
) -> None:
    manifest = root / V1 / "valid" / "manifest.json"
    change(manifest)

    shown = run_command(["status", "--data", str(root)], tmp_path)
    refused = run_command(["verify", str(root / V1 / "valid")], tmp_path)

    assert (shown.status, shown.failure, shown.stderr) == (1, None, "")
    states = [line.split()[0] for line in shown.stdout.splitlines() if line.startswith("  ") and line[2] != " "]
    assert states == ["current", "current", "current", "damaged", "stale"]
    assert f"    {manifest}: not a valid manifest: {message}" in shown.stdout
    assert (refused.status, refused.failure) == (1, None)
    assert refused.stderr.startswith(f"corpusmill: {manifest}: not a valid manifest: {message}")
    assert refused.stderr.count("\n") == 1


@pytest.mark.parametrize("name", ["valid.building.²", "valid.old.٣", "valid.building.9"])
def test_status_lists_all_artifacts_next_to_odd_folders(root: Path, tmp_path: Path, name: str) -> None:
    (root / V1 / name).mkdir()
    os.mkfifo(root / V1 / name / ".plan.json")

    shown = run_command(["status", "--data", str(root)], tmp_path)

    assert (shown.failure, shown.stderr) == (None, "")
    assert shown.stdout.count("\n  current ") == 5


RECIPES = {
    "[" * 100_000: "more than 500,000 values or 100 levels",
    "name: " + "9" * 5_000: "line 1: a number has more than 40 digits; text needs quotes",
    "name: 0x" + "f" * 5_000: "line 1: a number has more than 40 digits; text needs quotes",
    "system: healing\ntoken_budget: 18446744073709551616": "line 2: a number has more than 64 bits; text needs quotes",
    "name: !!int ''": "string index out of range",
    "name: !!bool maybe": "'maybe'",
    "a: &a [*a]": "more than 500,000 values or 100 levels",
    "a: &a [x, x, x, x, x, x, x, x, x, x]\nb: &b [*a, *a, *a, *a, *a, *a, *a, *a, *a, *a]\n"
    "c: &c [*b, *b, *b, *b, *b, *b, *b, *b, *b, *b]\nd: &d [*c, *c, *c, *c, *c, *c, *c, *c, *c, *c]\n"
    "e: &e [*d, *d, *d, *d, *d, *d, *d, *d, *d, *d]\nf: [*e, *e, *e, *e, *e]": "more than 500,000 values",
}


MAKES = (Path.mkdir, os.mkfifo, partial(Path.symlink_to, target="/dev/zero"))
ODD_RECIPES = [
    *((partial(Path.write_text, data=text), f"not valid YAML ({message}") for text, message in RECIPES.items()),
    *((make, "not a valid recipe: the path is a ") for make in MAKES),
]


@pytest.mark.parametrize(("make", "message"), ODD_RECIPES, ids=range(len(ODD_RECIPES)))
def test_an_odd_recipe_is_one_line_in_status_and_run(
    root: Path, tmp_path: Path, make: Callable[[Path], object], message: str
) -> None:
    path = root / "recipes" / "odd.yaml"
    make(path)

    shown = run_command(["status", "--data", str(root)], tmp_path)
    refused = run_command(["run", "odd", "--data", str(root)], tmp_path)

    assert (shown.status, shown.failure, shown.stderr) == (1, None, "")
    assert shown.stdout.count("\n  current ") == 5
    assert (refused.status, refused.failure) == (2, None)
    assert refused.stderr.startswith(f"corpusmill: {path}: {message}")
    assert refused.stderr.count("\n") == 1


@pytest.mark.parametrize("words", ["run healing_text_v1 --replace", "plan healing_text_v1", "recipes", "status"])
def test_a_shipped_recipe_does_not_replace_recipes_that_cannot_be_read(
    corpusmill: Corpusmill, root: Path, words: str
) -> None:
    folder = root / "recipes"
    folder.rename(root / "away")
    folder.symlink_to(root / "missing disk")

    refused = corpusmill(*words.split(), "--data", root)

    assert refused.returncode == 1
    fix = "make it readable, or mount the disk of its link"
    assert refused.stderr.startswith(f"corpusmill: {folder}: the folder cannot be read; {fix}\n")


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (errno.ENOLCK, f"this file system has no locks (No locks available); {LOCK_FIX}"),
        (errno.EIO, "the operating system reports: Input/output error; fix that, then run the same command"),
    ],
)
def test_a_refused_lock_is_reported_in_one_line(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, message: str
) -> None:
    """A file system may have no locks, or be on a bad disk."""

    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    (root / V1 / "valid.building.9").mkdir()

    rebuilt = run_command(["rebuild", str(root / V1 / "valid")], tmp_path)
    shown = run_command(["status", "--data", str(root)], tmp_path)
    verified = run_command(["verify", str(root / V1 / "valid")], tmp_path)

    assert (rebuilt.status, rebuilt.failure) == (1, None)
    assert f".lock: {message}" in rebuilt.stderr
    assert (shown.failure, shown.stdout.count("\n  current ")) == (None, 5)
    assert (verified.status, verified.failure) == (0, None)


def test_a_name_that_is_too_long_is_refused_in_one_line(corpusmill: Corpusmill, root: Path) -> None:
    result = corpusmill("verify", root / ("x" * 300))

    assert result.returncode == 1
    assert ": the operating system reports: File name too long; fix that, then run" in only_line(result)


def test_a_root_whose_name_is_not_utf8_is_refused_in_one_line(corpusmill: Corpusmill, root: Path) -> None:
    renamed = root.rename(os.fsdecode(os.fsencode(root) + b"\xff"))

    for args in (["status"], ["run", "healing_text_v1"]):
        for result in (
            corpusmill(*args, "--data", ".", cwd=renamed),
            corpusmill(*args, "--data", renamed),
            corpusmill(*args, env={"CORPUSMILL_DATA": str(renamed)}),
        ):
            assert result.returncode == 2
            assert only_line(result) == f"{root}\\udcff: the name is not UTF-8; rename the file or folder"


def test_a_locale_that_changes_file_names_is_refused_by_commands_and_runs(corpusmill: Corpusmill, root: Path) -> None:
    ascii_names = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    code = "from pathlib import Path; from pipeline_assets.build.run import Run; Run.from_settings(Path(), {})"
    fault = (
        "locale: Python decodes file names as ascii, but names in manifests are UTF-8; set PYTHONUTF8=1, and run again"
    )

    command = corpusmill("status", "--data", root, env=ascii_names)
    run = subprocess.run([sys.executable, "-c", code], env=os.environ | ascii_names, capture_output=True, text=True)

    assert (command.returncode, only_line(command)) == (2, fault)
    assert run.stderr.splitlines()[-1].endswith(f"UsageError: {fault}")


def test_a_file_whose_name_is_not_utf8_is_named_with_escapes(corpusmill: Corpusmill, root: Path) -> None:
    folder = root / V1 / "valid"
    (folder / os.fsdecode(b"stranger\xff")).write_text("")

    result = corpusmill("verify", folder)

    assert result.returncode == 1
    assert "stranger\\udcff: the manifest does not list this file" in result.stdout


def test_a_sample_of_random_damage_ends_clean_or_in_one_line(root: Path, tmp_path: Path) -> None:
    """`benchmarks/fuzz.py` runs the same check on any number of cases."""
    leave_unfinished_work(root)
    files = small_files(root)

    for seed in range(12):
        rng = random.Random(seed)
        path = rng.choice(files)
        command_lines = list(commands(root, path, rng))
        with damaged(path, rng) as damage:
            for command_line in command_lines:
                outcome = run_command(command_line, tmp_path / "cache")
                assert outcome.is_clean, (seed, damage, path, command_line, outcome)
