"""uv installs the versions of constraints.txt, and the oldest that are allowed."""

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from checkout import copy_checkout
from command_results import code_blocks
from packaging.utils import canonicalize_name

PROJECT = Path(__file__).parents[1]
UV = Path(sys.executable).parent / "uv"
UNREACHABLE = ("Failed to fetch", "error sending request", "dns error")


def constraints() -> list[str]:
    lines = (PROJECT / "constraints.txt").read_text().splitlines()
    return [line for line in lines if not line.startswith("#")]


def test_uv_is_constrained_to_the_versions_of_constraints_txt() -> None:
    """`make lock` updates both files."""
    settings = tomllib.loads((PROJECT / "pyproject.toml").read_text())

    assert settings["tool"]["uv"]["constraint-dependencies"] == constraints()


def test_locked_versions_have_hashes_equal_the_constraints_and_name_no_address() -> None:
    text = (PROJECT / "requirements.lock").read_text()
    entries = re.split(r"\n(?=\S)", text.strip())
    pinned = {canonicalize_name(name): version for name, _, version in (line.partition("==") for line in constraints())}

    locked = {}
    for entry in entries:
        requirement, *hashes = entry.replace("\\\n", "").split(" --hash=")
        name, _, version = requirement.partition(";")[0].strip().partition("==")
        assert hashes and all(re.fullmatch(r"sha256:[0-9a-f]{64}\s*", value) for value in hashes), entry
        if not re.search(r"sys_platform == '(win32|emscripten)'", requirement):
            locked[canonicalize_name(name)] = version

    assert {"dagster", "numba", "py3langid", "sentencepiece"} <= locked.keys()
    assert locked == {name: pinned.get(name) for name in locked}
    assert "torch" not in locked and "://" not in text and "index-url" not in text


@pytest.mark.slow
def test_the_commands_of_the_readme_install_and_run(tmp_path: Path) -> None:
    """The demo's stage 2 needs both extras; its other systems run in other tests."""
    [block] = [block for block in code_blocks(PROJECT / "README.md") if "uv sync" in block]
    sync, demo = (shlex.split(line, comments=True) for line in block.splitlines())
    clone = tmp_path / "clone"
    copy_checkout(clone)

    download(sync, clone)
    shown = run_uv([*demo, "--only", "stage2"], clone)
    assert shown.returncode == 0, shown.stderr
    assert " identical; stage2/token_shards " in shown.stdout

    missing = run_uv(["uv", "pip", "install", "--dry-run", "--require-hashes", "-r", "requirements.lock"], clone)
    assert "Would make no changes" in missing.stderr, missing.stderr


@pytest.mark.slow
def test_the_oldest_versions_that_pyproject_allows_build_a_corpus(tmp_path: Path) -> None:
    copy_checkout(tmp_path / "clone")
    oldest = "uv pip compile -q --resolution lowest-direct --extra languages --extra tokenizers -o oldest.txt"
    python = ["--python", "env/bin/python"]

    assert run_uv(["uv", "venv", "-q", "env"], tmp_path).returncode == 0
    download([*oldest.split(), *python, "clone/pyproject.toml"], tmp_path)
    download(["uv", "pip", "install", "-q", *python, "-r", "oldest.txt"], tmp_path)
    download(["uv", "pip", "install", "-q", *python, "--no-deps", "-e", "clone"], tmp_path)
    built = subprocess.run(
        ["env/bin/corpusmill", "smoke", "--out-dir", "out"], cwd=tmp_path, capture_output=True, text=True
    )

    assert "\nmsgspec==" in (tmp_path / "oldest.txt").read_text()
    assert built.returncode == 0, built.stderr
    assert "20 artifacts built, 48 checks passed" in built.stdout


def download(command: list[str], folder: Path) -> None:
    """Run a command of uv; skip the test if no package index can be reached."""
    finished = run_uv(command, folder)
    if finished.returncode and any(message in finished.stderr for message in UNREACHABLE):
        pytest.skip("no package index can be reached")
    assert finished.returncode == 0, finished.stderr


def run_uv(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("VIRTUAL_ENV", "CORPUSMILL_"))}
    environment = kept | {"UV_PYTHON": sys.executable}
    return subprocess.run([UV, *command[1:]], cwd=folder, env=environment, capture_output=True, text=True)
