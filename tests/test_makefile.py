"""`make` sets up its .venv with a suitable Python and repairs cut installs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_results import Result

PROJECT = Path(__file__).parents[1]
# Substitutes for the programs of `make demo`, which record their calls.
PYTHON = """#!/bin/sh
if [ "$1" = -m ]; then
    echo "venv made" >> calls
    rm -rf .venv && mkdir -p .venv/bin
    ln -s "$PWD/tool" .venv/bin/python && ln -s "$PWD/tool" .venv/bin/corpusmill && touch .venv/bin/pip
fi
"""
TOOL = """#!/bin/sh
echo "$(basename "$0") $*" >> calls
[ ! -e cut ] || { rm cut; kill -9 $PPID; }
"""
INSTALLED = [
    "python -m pip install -q --no-compile -c constraints.txt -e .[languages,tokenizers]",
    "corpusmill smoke --out-dir .venv/smoke",
]
DEMO = "corpusmill demo --data data/demo"


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Return a folder with the Makefile and a Python that installs nothing."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        (tmp_path / name).write_bytes((PROJECT / name).read_bytes())
    for name, code in (("python", PYTHON), ("tool", TOOL)):
        (tmp_path / name).write_text(code)
        (tmp_path / name).chmod(0o755)
    return tmp_path


def run_make(clone: Path, target: str = "demo") -> Result:
    return subprocess.run(["make", target, "PYTHON=./python"], cwd=clone, capture_output=True, text=True)


def take_calls(clone: Path) -> list[str]:
    """Return the recorded calls of its programs, and clear the record."""
    log = clone / "calls"
    lines = log.read_text().splitlines() if log.exists() else []
    log.unlink(missing_ok=True)
    return lines


@pytest.mark.parametrize(
    ("patch", "line"),
    [
        (
            "sys.version_info = (3, 9, 2)",
            "./python is Python 3.9, corpusmill needs 3.11 or newer: make PYTHON=python3.11",
        ),
        (
            'sys.modules["ensurepip"] = None',
            "./python can't make a .venv: install its venv package (apt: python3-venv), or make PYTHON=python3.11",
        ),
    ],
    ids=["too old", "without venv"],
)
def test_an_unsuitable_python_is_named_before_an_install(clone: Path, patch: str, line: str) -> None:
    code = f"#!/bin/sh\nexec {sys.executable} -c 'import sys; {patch}; exec(sys.argv[2])' \"$@\"\n"
    (clone / "python").write_text(code)

    result = run_make(clone)

    assert (result.returncode, result.stderr.splitlines()[0]) == (2, line)
    assert not (clone / ".venv").exists()


def test_an_install_is_reused_and_an_incomplete_one_recreated(clone: Path) -> None:
    (clone / ".venv" / "bin").mkdir(parents=True)
    (clone / ".venv" / "bin" / "python").symlink_to(clone / "tool")

    assert run_make(clone).returncode == 0
    assert take_calls(clone) == ["venv made", *INSTALLED, DEMO]

    assert run_make(clone).returncode == 0
    assert take_calls(clone) == [DEMO]


def test_a_killed_install_starts_over_and_invalidates_the_older_one(clone: Path) -> None:
    (clone / "cut").touch()
    killed = run_make(clone)
    assert (killed.returncode, take_calls(clone)) == (2, ["venv made", INSTALLED[0]])

    assert run_make(clone).returncode == 0
    assert take_calls(clone) == ["venv made", *INSTALLED, DEMO]

    (clone / "cut").touch()
    assert run_make(clone, ".venv/bin/.dev").returncode == 2
    take_calls(clone)

    assert run_make(clone).returncode == 0
    assert take_calls(clone) == ["venv made", *INSTALLED, DEMO]


QUICK = "python -m pytest -q -m not slow and not proof and not real -n 3 --dist worksteal"
KERNELS = " tests/spine tests/corpus tests/build tests/trust tests/test_layout.py tests/test_readme.py"


@pytest.mark.parametrize(("target", "folders"), [("test", ""), ("test-quick", KERNELS)])
@pytest.mark.parametrize("failing", ["", "ruff format", "ruff check", "mypy", "python -m pytest"])
def test_format_lint_types_and_tests_run_and_can_fail(clone: Path, target: str, folders: str, failing: str) -> None:
    (clone / ".venv" / "bin").mkdir(parents=True)
    for name in ("python", "ruff", "mypy"):
        (clone / ".venv" / "bin" / name).symlink_to(clone / "tool")
    for name in ("pip", ".dev"):
        (clone / ".venv" / "bin" / name).touch()
    with (clone / "tool").open("a") as tool:
        tool.write(f'case "$(basename "$0") $*" in "{failing or "nothing"}"*) exit 1;; esac\n')

    result = run_make(clone, target)

    expected = ["ruff format --check .", "ruff check .", "mypy ", QUICK + folders]
    called = take_calls(clone)
    assert (result.returncode, called[:2]) == (2 if failing else 0, expected[: len(called[:2])])
    assert sorted(called) == sorted(expected[: 1 if failing == "ruff format" else 2 if failing == "ruff check" else 4])


@pytest.mark.parametrize(("args", "shown"), [((), ""), (("SAMPLES=no/folder",), "no/folder")])
def test_missing_real_samples_are_one_line_before_an_install(clone: Path, args: tuple[str, ...], shown: str) -> None:
    result = subprocess.run(["make", "test-real", "PYTHON=./python", *args], cwd=clone, capture_output=True, text=True)

    assert (result.returncode, take_calls(clone)) == (2, [])
    assert result.stderr.splitlines()[0] == (
        f"SAMPLES must be a folder of real samples, got '{shown}': make test-real SAMPLES=FOLDER"
    )


# Records each target, the samples, and the siblings of its working folder.
MAKE = """#!/bin/sh
echo "$1 ${2:+samples }$(ls ..)" >> "$CALLS"
"""


@pytest.mark.parametrize("has_samples", [False, True])
def test_ci_runs_in_a_clone_with_nothing_next_to_it(tmp_path: Path, has_samples: bool) -> None:
    checkout, log = tmp_path / "checkout", tmp_path / "calls"
    (checkout / ".ci").mkdir(parents=True)
    (checkout / ".ci" / "run").write_bytes((PROJECT / ".ci" / "run").read_bytes())
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "make").write_text(MAKE)
    (tmp_path / "bin" / "make").chmod(0o755)
    if has_samples:
        (tmp_path / "shared" / "data").mkdir(parents=True)
    (checkout / ".venv").mkdir()
    env = {**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "CALLS": str(log)}
    identity = ["-c", "user.name=ci", "-c", "user.email=ci@localhost"]
    for arguments in (["init", "-q"], ["add", ".ci"], [*identity, "commit", "-qm", "first"]):
        subprocess.run(["git", *arguments], cwd=checkout, check=True)

    result = subprocess.run(["bash", checkout / ".ci" / "run"], env=env, capture_output=True, text=True)

    assert result.returncode == 0, result.stderr
    commands = ["test clone", "hooks clone", "test-slow clone", "demo clone"]
    assert log.read_text().splitlines() == commands + (["test-real samples clone"] if has_samples else [])
    assert ("the tests on real samples were left out" in result.stdout) is not has_samples
    assert not (checkout / ".venv").exists()
