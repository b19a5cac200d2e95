"""Compiled kernels are cached on disk by what they are compiled from, and never found for anything else."""

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
KERNELS = """\
from constants import STEP

from pipeline_assets.corpus.compiled import compiled, inner


@compiled
def stepped(number: int) -> int:
    return number + STEP
"""
ADDED = """\


@inner
def added(number: int) -> int:
    return number + STEP
"""


def stepped(folder: Path, argument: str = "1", then: str = "", **environment: str) -> str:
    """Of a process of its own: 1 with a step added, and how often the code was found on disk."""
    code = f"from kernels import *; print(stepped({argument}), sum(stepped.stats.cache_hits.values())); {then}"
    # Bytecode on disk is told from another by the second and the size: a source rewritten at once would not be seen.
    paths = {"PYTHONPATH": os.pathsep.join([str(PROJECT), str(folder)]), "PYTHONDONTWRITEBYTECODE": "1"}
    everything = {**os.environ, "NUMBA_CACHE_DIR": str(folder / "cache"), **paths, **environment}
    return subprocess.run(
        [sys.executable, "-c", code], env=everything, capture_output=True, text=True, check=True
    ).stdout.strip()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "sources"
    folder.mkdir()
    (folder / "kernels.py").write_text(KERNELS)
    (folder / "constants.py").write_text("STEP = 1\n")
    return folder


def test_code_is_compiled_once_and_again_when_a_constant_that_it_names_changes(folder: Path) -> None:
    first, second = stepped(folder), stepped(folder)
    (folder / "constants.py").write_text("STEP = 2\n")
    changed = stepped(folder)
    (folder / "constants.py").write_text("STEP = 1\n")

    assert (first, second, changed) == ("2 0", "2 1", "3 0")
    assert stepped(folder) == "2 1"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("from constants", "# a comment\n\nfrom constants"),
        ("    return number", '    """What it comes to."""\n    return number'),
        ("\n\n@compiled", "\n\ndef another() -> None: ...\n\n\n@compiled"),
    ],
)
def test_what_changes_no_code_compiles_nothing(folder: Path, before: str, after: str) -> None:
    stepped(folder)

    (folder / "kernels.py").write_text(KERNELS.replace(before, after, 1))

    assert stepped(folder) == "2 1"


def test_another_clone_finds_the_code(folder: Path, tmp_path: Path) -> None:
    cache = str(tmp_path / "cache")
    first = stepped(folder, NUMBA_CACHE_DIR=cache)

    clone = Path(shutil.copytree(folder, tmp_path / "clone"))

    assert (first, stepped(clone, NUMBA_CACHE_DIR=cache)) == ("2 0", "2 1")


def test_code_on_disk_runs_without_what_numba_compiles_with(folder: Path) -> None:
    then = "import sys; print('numba.np.polynomial' in sys.modules)"

    compiled, found = stepped(folder, then=then), stepped(folder, then=then)

    assert (compiled, found) == ("2 0\nTrue", "2 1\nFalse")


def test_the_cache_lies_in_the_users_cache_folder(folder: Path, tmp_path: Path) -> None:
    told = stepped(folder, NUMBA_CACHE_DIR="", XDG_CACHE_HOME=str(tmp_path / "cache"))

    assert told == "2 0"
    assert list((tmp_path / "cache" / "corpusmill" / "compiled").glob("stepped-*.nbc"))
    assert not list(folder.rglob("*.nbc"))


@pytest.mark.slow
def test_what_a_kernel_is_compiled_from_is_told_the_same_in_every_process() -> None:
    code = (
        "import importlib, pkgutil, pipeline_assets.corpus as corpus\n"
        "from pipeline_assets.corpus import compiled\n"
        "names = [one.name for one in pkgutil.walk_packages(corpus.__path__, 'pipeline_assets.corpus.')]\n"
        "kernels = {(name, key): one._cache._cache_file._index_name for name in names\n"
        "           for key, one in vars(importlib.import_module(name)).items()\n"
        "           if isinstance(getattr(one, '_cache', None), compiled._KernelCache)}\n"
        "print(*sorted(f'{name}.{key} {file}' for (name, key), file in kernels.items()), sep='\\n')"
    )

    told = [
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=PROJECT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]

    assert told[0] == told[1]
    assert told[0].count("\n") > 40


def cache_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*.nb[ic]*") if path.is_file())


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".nbi", ".nbc"])
def test_a_cache_file_with_a_flipped_byte_is_made_anew_wherever_the_byte_is(folder: Path, suffix: str) -> None:
    stepped(folder)
    [path] = [path for path in cache_files(folder) if path.suffix == suffix]
    size, dice = path.stat().st_size, random.Random(suffix)

    for place in [0, dice.randrange(size), size - 1]:
        data = bytearray(path.read_bytes())
        data[place] ^= 1 << dice.randrange(8)
        path.write_bytes(data)

        assert stepped(folder) == "2 0", f"byte {place} of {size}"
    assert stepped(folder) == "2 1"


@pytest.mark.slow
def test_every_cache_file_of_the_kernels_is_held_against_its_hash(tmp_path: Path) -> None:
    dice = random.Random(8)

    def segments(cache: Path) -> str:
        """Order of documents by a kernel of best fit, and how many kernels were found on disk."""
        code = (
            "import numpy as np\n"
            "from pipeline_assets.corpus.packing import strategies\n"
            "kernels = [one for one in vars(strategies).values() if hasattr(one, 'stats')]\n"
            "order = strategies.longest_first(np.array([3, 9, 4], dtype=np.int32), 8)\n"
            "print(order, sum(sum(kernel.stats.cache_hits.values()) for kernel in kernels))"
        )
        environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
        told = subprocess.run(
            [sys.executable, "-c", code], cwd=PROJECT, env=environment, capture_output=True, text=True, check=True
        )
        return told.stdout.strip()

    honest, found = segments(tmp_path), segments(tmp_path)
    for path in cache_files(tmp_path):
        data = bytearray(path.read_bytes())
        data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
        path.write_bytes(data)

    assert (segments(tmp_path), segments(tmp_path)) == (honest, found)
    assert honest != found


@pytest.mark.slow
def test_code_for_a_type_that_has_moved_is_made_anew(folder: Path) -> None:
    pair = "from typing import NamedTuple\nPair = NamedTuple('Pair', [('first', int)])\n"
    (folder / "here.py").write_text(pair)
    kernels = KERNELS.replace("constants import STEP", "here import Pair").replace("number + STEP", "number[0] + 1")
    (folder / "kernels.py").write_text(kernels)
    first, second = stepped(folder, "Pair(1)"), stepped(folder, "Pair(1)")
    (folder / "here.py").rename(folder / "there.py")
    (folder / "kernels.py").write_text(kernels.replace("here", "there"))

    assert (first, second) == ("2 0", "2 1")
    assert (stepped(folder, "Pair(1)"), stepped(folder, "Pair(1)")) == ("2 0", "2 1")


@pytest.mark.parametrize("left", [b"torn", pytest.param(b"", marks=pytest.mark.slow)])
def test_a_torn_cache_file_is_made_anew(folder: Path, left: bytes) -> None:
    stepped(folder)
    for path in cache_files(folder):
        path.write_bytes(left)

    assert (stepped(folder), stepped(folder)) == ("2 0", "2 1")


@pytest.mark.slow
def test_a_cache_that_cannot_be_written_any_more_stops_nothing(folder: Path) -> None:
    stepped(folder)
    for path in cache_files(folder):
        path.unlink()
        path.mkdir()

    assert stepped(folder) == "2 0"


def test_with_nowhere_to_cache_code_is_compiled_in_each_process(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    nowhere = str(tmp_path / "file" / "cache")  # writing below a file fails for any user

    assert stepped(folder, NUMBA_CACHE_DIR=nowhere, HOME=nowhere, XDG_CACHE_HOME=nowhere) == "2 0"


def test_a_function_that_only_compiled_ones_call_is_kept_in_their_code(folder: Path) -> None:
    (folder / "kernels.py").write_text(KERNELS.replace("number + STEP", "added(number)") + ADDED)

    first, second = stepped(folder), stepped(folder)
    (folder / "constants.py").write_text("STEP = 2\n")

    assert (first, second, stepped(folder)) == ("2 0", "2 1", "3 0")


@pytest.mark.slow
def test_such_a_function_makes_no_array(folder: Path) -> None:
    """It counts no references, so nothing would free one."""
    making = ADDED.replace("return number + STEP", "return np.empty(number).size")
    kernels = "import numpy as np\n" + KERNELS.replace("number + STEP", "added(number)") + making
    (folder / "kernels.py").write_text(kernels)

    with pytest.raises(subprocess.CalledProcessError) as failed:
        stepped(folder)

    assert "No implementation of function Function(<built-in function empty>)" in failed.value.stderr


def test_importing_compiles_nothing() -> None:
    code = (
        "from pipeline_assets.corpus.dedup.steps import are_members, include\n"
        "print(*(len(kernel.signatures) for kernel in (are_members, include)))"
    )
    told = subprocess.run([sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True, check=True)

    assert told.stdout.split() == ["0", "0"]
