"""The disk cache of compiled kernels, keyed by the sources of the package."""

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
    """Run code with a clone's modules; write no bytecode, which could become stale."""
    variables = {"PYTHONPATH": "", "NUMBA_CACHE_DIR": str(cache), "PYTHONDONTWRITEBYTECODE": "1", **environment}
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, cwd=clone, env=os.environ | variables, capture_output=True, text=True, check=True)
    return result.stdout.strip()


def run_kernel(clone: Path, cache: Path, **environment: str) -> str:
    """Print 1 with a step added, and the number of cache hits on disk."""
    code = "from pipeline_assets.corpus.kernels import *; print(stepped(1), sum(stepped.stats.cache_hits.values()))"
    return run(clone, code, cache, **environment)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Write a package with a kernel, its helper in another file, and the cache."""
    corpus = tmp_path / "clone" / COMPILED.parent
    corpus.mkdir(parents=True)
    for folder in (corpus.parent, corpus):
        (folder / "__init__.py").write_text("")
    shutil.copyfile(PROJECT / COMPILED, corpus / COMPILED.name)
    (corpus / "kernels.py").write_text(KERNELS)
    (corpus / "helpers.py").write_text(HELPERS)
    return tmp_path / "clone"


def test_an_edited_helper_in_another_file_is_recompiled(clone: Path, tmp_path: Path) -> None:
    helpers, results = clone / COMPILED.parent / "helpers.py", [run_kernel(clone, tmp_path)]

    for source in (
        HELPERS,
        HELPERS.replace("STEP = 1", "STEP = 2"),
        HELPERS.replace("number + STEP", "number + 2 + STEP"),
        HELPERS,
    ):
        helpers.write_text(source)
        results.append(run_kernel(clone, tmp_path))

    assert results == ["2 0", "2 1", "3 0", "4 0", "2 1"]


def test_another_clone_finds_the_code_in_one_folder_named_by_versions(clone: Path, tmp_path: Path) -> None:
    first = run_kernel(clone, tmp_path / "cache")

    other = Path(shutil.copytree(clone, tmp_path / "other"))

    assert (first, run_kernel(other, tmp_path / "cache")) == ("2 0", "2 1")
    [folder] = (tmp_path / "cache").iterdir()
    assert folder.name.startswith(f"python{sys.version_info.major}.{sys.version_info.minor}.")


def test_the_cache_is_in_the_users_cache_folder(clone: Path, tmp_path: Path) -> None:
    assert run_kernel(clone, Path(), NUMBA_CACHE_DIR="", XDG_CACHE_HOME=str(tmp_path / "home")) == "2 0"

    assert list((tmp_path / "home" / "corpusmill" / "compiled").glob("*/kernels.stepped-*.nbc"))
    assert not list(clone.rglob("*.nbc"))


def test_without_a_cache_folder_code_is_compiled_in_each_process(clone: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    unusable = tmp_path / "file" / "cache"  # writing below a file fails for any user

    assert run_kernel(clone, unusable) == "2 0"
    assert run_kernel(clone, unusable) == "2 0"


@pytest.mark.parametrize("level", [0, 1], ids=["folder", "its parent"])
def test_code_that_another_user_may_have_stored_is_not_loaded(clone: Path, tmp_path: Path, level: int) -> None:
    assert run_kernel(clone, tmp_path / "cache") == "2 0"
    [folder] = (tmp_path / "cache").iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700

    if level == 0:
        folder.chmod(0o777)
    elif os.geteuid() == 0:
        os.chown(folder.parent, 1, 1)
    else:
        pytest.skip("only root can change the owner of a folder")

    assert run_kernel(clone, tmp_path / "cache") == "2 0"


def test_code_that_cannot_be_stored_is_compiled_in_each_process(clone: Path, tmp_path: Path) -> None:
    full = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))"
    code = f"{full}; from pipeline_assets.corpus.kernels import *; print(stepped(1))"

    assert [run(clone, code, tmp_path / "cache") for _ in range(2)] == ["2", "2"]


def test_functions_of_other_modules_are_cached_in_numbas_own_folder(clone: Path, tmp_path: Path) -> None:
    (clone / "others.py").write_text("import numba\n\n\n@numba.njit(cache=True)\ndef one() -> int:\n    return 1\n")

    run(clone, "import pipeline_assets.corpus.kernels, others; others.one()", tmp_path, HOME=str(tmp_path / "home"))

    assert not [path for path in tmp_path.rglob("others.one-*.nbc") if path.parent.name.startswith("python")]
    assert list(tmp_path.rglob("others.one-*.nbc"))


@pytest.mark.slow
def test_an_inner_compiled_function_cannot_create_an_array(clone: Path, tmp_path: Path) -> None:
    """An inner function counts no references, so its arrays would never be freed."""
    helpers = HELPERS.replace("return number + STEP", "return np.empty(number).size")
    (clone / COMPILED.parent / "helpers.py").write_text(f"import numpy as np\n{helpers}")

    with pytest.raises(subprocess.CalledProcessError) as failed:
        run_kernel(clone, tmp_path)

    assert "No implementation of function Function(<built-in function empty>)" in failed.value.stderr


def test_importing_compiles_nothing() -> None:
    code = (
        "from pipeline_assets.corpus.dedup import bitmap, resolution, sketches\n"
        "from numba.core.dispatcher import Dispatcher\n"
        "kernels = [one for module in (bitmap, resolution, sketches) for one in vars(module).values()]\n"
        "print(*{len(kernel.signatures) for kernel in kernels if isinstance(kernel, Dispatcher)})"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True, check=True)

    assert result.stdout.split() == ["0"]
