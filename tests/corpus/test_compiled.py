"""Compiled kernels are cached on disk by the sources of the package, and never found for others."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
COMPILED = Path("pipeline_assets", "corpus", "compiled.py")
KERNELS = """\
from pipeline_assets.corpus.compiled import compiled
from pipeline_assets.corpus.helpers import added


@compiled
def stepped(number: int) -> int:
    return added(number)
"""
HELPERS = """\
from pipeline_assets.corpus.compiled import compiled_inner

STEP = 1


@compiled_inner
def added(number: int) -> int:
    return number + STEP
"""


def run(clone: Path, code: str, cache: Path, **environment: str) -> str:
    """What a process prints that imports a clone's modules; its bytecode is written nowhere: an edited source of the
    same size and second would not be seen.
    """
    variables = {"PYTHONPATH": "", "NUMBA_CACHE_DIR": str(cache), "PYTHONDONTWRITEBYTECODE": "1", **environment}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=clone, env=os.environ | variables, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def stepped(clone: Path, cache: Path, **environment: str) -> str:
    """1 with a step added, and how often the code was found on disk."""
    code = "from pipeline_assets.corpus.kernels import *; print(stepped(1), sum(stepped.stats.cache_hits.values()))"
    return run(clone, code, cache, **environment)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A package with a kernel, its helper in another file, and the cache."""
    corpus = tmp_path / "clone" / COMPILED.parent
    corpus.mkdir(parents=True)
    for folder in (corpus.parent, corpus):
        (folder / "__init__.py").write_text("")
    shutil.copyfile(PROJECT / COMPILED, corpus / COMPILED.name)
    (corpus / "kernels.py").write_text(KERNELS)
    (corpus / "helpers.py").write_text(HELPERS)
    return tmp_path / "clone"


def test_an_edited_helper_in_another_file_is_never_served_stale(clone: Path, tmp_path: Path) -> None:
    helpers, results = clone / COMPILED.parent / "helpers.py", [stepped(clone, tmp_path)]

    for edited in (
        HELPERS,
        HELPERS.replace("STEP = 1", "STEP = 2"),
        HELPERS.replace("number + STEP", "number + 2 + STEP"),
        HELPERS,
    ):
        helpers.write_text(edited)
        results.append(stepped(clone, tmp_path))

    assert results == ["2 0", "2 1", "3 0", "4 0", "2 1"]


def test_another_clone_finds_the_code_in_one_folder_named_by_versions(clone: Path, tmp_path: Path) -> None:
    first = stepped(clone, tmp_path / "cache")

    other = Path(shutil.copytree(clone, tmp_path / "other"))

    assert (first, stepped(other, tmp_path / "cache")) == ("2 0", "2 1")
    [folder] = (tmp_path / "cache").iterdir()
    assert folder.name.startswith(f"python{sys.version_info.major}.{sys.version_info.minor}.")


def test_the_cache_lies_in_the_users_cache_folder(clone: Path, tmp_path: Path) -> None:
    assert stepped(clone, Path(), NUMBA_CACHE_DIR="", XDG_CACHE_HOME=str(tmp_path / "home")) == "2 0"

    assert list((tmp_path / "home" / "corpusmill" / "compiled").glob("*/kernels.stepped-*.nbc"))
    assert not list(clone.rglob("*.nbc"))


def test_with_nowhere_to_cache_code_is_compiled_in_each_process(clone: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    nowhere = tmp_path / "file" / "cache"  # writing below a file fails for any user

    assert stepped(clone, nowhere) == "2 0"
    assert stepped(clone, nowhere) == "2 0"


def test_functions_of_others_are_cached_where_numba_has_them(clone: Path, tmp_path: Path) -> None:
    (clone / "others.py").write_text("import numba\n\n\n@numba.njit(cache=True)\ndef one() -> int:\n    return 1\n")

    run(clone, "import pipeline_assets.corpus.kernels, others; others.one()", tmp_path, HOME=str(tmp_path / "home"))

    assert not [path for path in tmp_path.rglob("others.one-*.nbc") if path.parent.name.startswith("python")]
    assert list(tmp_path.rglob("others.one-*.nbc"))


@pytest.mark.slow
def test_a_function_that_only_compiled_ones_call_makes_no_array(clone: Path, tmp_path: Path) -> None:
    """It counts no references, so nothing would free one."""
    making = HELPERS.replace("return number + STEP", "return np.empty(number).size")
    (clone / COMPILED.parent / "helpers.py").write_text(f"import numpy as np\n{making}")

    with pytest.raises(subprocess.CalledProcessError) as failed:
        stepped(clone, tmp_path)

    assert "No implementation of function Function(<built-in function empty>)" in failed.value.stderr


def test_importing_compiles_nothing() -> None:
    code = (
        "from pipeline_assets.corpus.dedup import bitmap, resolution, sketches\n"
        "from numba.core.dispatcher import Dispatcher\n"
        "kernels = [one for module in (bitmap, resolution, sketches) for one in vars(module).values()]\n"
        "print(*{len(kernel.signatures) for kernel in kernels if isinstance(kernel, Dispatcher)})"
    )
    told = subprocess.run([sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True, check=True)

    assert told.stdout.split() == ["0"]
