"""`make` sets up its own .venv: with a Python that can, and anew where an install was cut short."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_results import Typed

PROJECT = Path(__file__).parents[1]
# What `make demo` calls, as small programs that write down how they were called.
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
    "python -m pip install -q -c constraints.txt -e .[languages,tokenizers]",
    "corpusmill smoke --out-dir .venv/smoke",
]
DEMO = "corpusmill demo --data data/demo"


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A folder with the Makefile, and a Python in it that installs nothing."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        (tmp_path / name).write_bytes((PROJECT / name).read_bytes())
    for name, code in (("python", PYTHON), ("tool", TOOL)):
        (tmp_path / name).write_text(code)
        (tmp_path / name).chmod(0o755)
    return tmp_path


def make(clone: Path, target: str = "demo") -> Typed:
    return subprocess.run(["make", target, "PYTHON=./python"], cwd=clone, capture_output=True, text=True)


def calls(clone: Path) -> list[str]:
    """How its programs were called since this was last asked."""
    log = clone / "calls"
    lines = log.read_text().splitlines() if log.exists() else []
    log.unlink(missing_ok=True)
    return lines


@pytest.mark.parametrize(
    ("lie", "line"),
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
def test_a_python_that_cannot_is_named_before_anything_is_made(clone: Path, lie: str, line: str) -> None:
    code = f"#!/bin/sh\nexec {sys.executable} -c 'import sys; {lie}; exec(sys.argv[2])' \"$@\"\n"
    (clone / "python").write_text(code)

    result = make(clone)

    assert (result.returncode, result.stderr.splitlines()[0]) == (2, line)
    assert not (clone / ".venv").exists()


def test_what_is_installed_is_used_again(clone: Path) -> None:
    assert make(clone).returncode == 0
    assert calls(clone) == ["venv made", *INSTALLED, DEMO]

    assert make(clone).returncode == 0
    assert calls(clone) == [DEMO]


def test_a_venv_that_was_cut_short_is_made_anew(clone: Path) -> None:
    (clone / ".venv" / "bin").mkdir(parents=True)
    (clone / ".venv" / "bin" / "python").symlink_to(clone / "tool")

    assert make(clone).returncode == 0

    assert calls(clone) == ["venv made", *INSTALLED, DEMO]


def test_an_install_that_was_killed_begins_again(clone: Path) -> None:
    (clone / "cut").touch()
    killed = make(clone)
    assert (killed.returncode, calls(clone)) == (2, ["venv made", INSTALLED[0]])

    assert make(clone).returncode == 0

    assert calls(clone) == ["venv made", *INSTALLED, DEMO]


def test_an_install_that_was_killed_leaves_no_older_one_in_its_place(clone: Path) -> None:
    assert make(clone).returncode == 0
    (clone / "cut").touch()
    assert make(clone, ".venv/bin/.dev").returncode == 2
    calls(clone)

    assert make(clone).returncode == 0

    assert calls(clone) == ["venv made", *INSTALLED, DEMO]


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

    result = make(clone, target)

    expected = ["ruff format --check .", "ruff check .", "mypy ", QUICK + folders]
    found = calls(clone)
    assert (result.returncode, found[:2]) == (2 if failing else 0, expected[: len(found[:2])])
    assert sorted(found) == sorted(expected[: 1 if failing == "ruff format" else 2 if failing == "ruff check" else 4])


@pytest.mark.parametrize(("given", "shown"), [((), ""), (("SAMPLES=no/folder",), "no/folder")])
def test_missing_real_samples_are_one_line_before_an_install(clone: Path, given: tuple[str, ...], shown: str) -> None:
    result = subprocess.run(["make", "test-real", "PYTHON=./python", *given], cwd=clone, capture_output=True, text=True)

    assert (result.returncode, calls(clone)) == (2, [])
    assert result.stderr.splitlines()[0] == (
        f"SAMPLES must be a folder of real samples, got '{shown}': make test-real SAMPLES=FOLDER"
    )


# Writes down each target, the samples, and whether anything lies next to the folder that it runs in.
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
