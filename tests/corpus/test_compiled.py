"""Compiled kernels are cached on disk, and never where older sources have left theirs."""

import os
import random
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


def stepped(folder: Path, **environment: str) -> str:
    """Of a process of its own: 1 with a step added, and how often the code was found on disk."""
    code = "from kernels import stepped; print(stepped(1), sum(stepped.stats.cache_hits.values()))"
    paths = {"PYTHONPATH": os.pathsep.join([str(PROJECT), str(folder)])}
    everything = {**os.environ, **paths, **environment}
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


def test_code_is_compiled_once_and_again_when_any_source_beside_it_changes(folder: Path) -> None:
    first, second = stepped(folder), stepped(folder)
    (folder / "constants.py").write_text("STEP = 2\n")
    changed = stepped(folder)
    (folder / "constants.py").write_text("STEP = 1\n")

    assert (first, second, changed) == ("2 0", "2 1", "3 0")
    assert stepped(folder) == "2 1"


def test_the_cache_lies_where_numba_is_told(folder: Path, tmp_path: Path) -> None:
    told = stepped(folder, NUMBA_CACHE_DIR=str(tmp_path / "cache"))

    assert told == "2 0"
    assert list((tmp_path / "cache").glob("compiled-*/**/*.nbc"))
    assert not list(folder.rglob("*.nbc"))


def cache_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*.nb[ic]*") if path.is_file())


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


def test_every_cache_file_of_the_kernels_is_held_against_its_hash(tmp_path: Path) -> None:
    dice = random.Random(8)

    def segments(cache: Path) -> str:
        """Order of documents by a kernel of best fit, and how many kernels were found on disk."""
        code = (
            "import numpy as np\n"
            "from pipeline_assets.corpus.packing import best_fit\n"
            "kernels = [one for one in vars(best_fit).values() if hasattr(one, 'stats')]\n"
            "order = best_fit.longest_first(np.array([3, 9, 4], dtype=np.int32), 8)\n"
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


@pytest.mark.parametrize("left", [b"", b"torn"])
def test_a_torn_cache_file_is_made_anew(folder: Path, left: bytes) -> None:
    stepped(folder)
    for path in cache_files(folder):
        path.write_bytes(left)

    assert (stepped(folder), stepped(folder)) == ("2 0", "2 1")


def test_a_cache_that_cannot_be_written_any_more_stops_nothing(folder: Path) -> None:
    stepped(folder)
    for path in cache_files(folder):
        path.unlink()
        path.mkdir()

    assert stepped(folder) == "2 0"


def test_with_nowhere_to_cache_code_is_compiled_in_each_process(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    nowhere = str(tmp_path / "file" / "cache")  # writing below a file fails for any user
    (folder / "__pycache__").write_text("")

    assert stepped(folder, NUMBA_CACHE_DIR=nowhere, HOME=nowhere, XDG_CACHE_HOME=nowhere) == "2 0"


def test_a_function_that_only_compiled_ones_call_is_kept_in_their_code(folder: Path) -> None:
    (folder / "kernels.py").write_text(KERNELS.replace("number + STEP", "added(number)") + ADDED)

    first, second = stepped(folder), stepped(folder)
    (folder / "constants.py").write_text("STEP = 2\n")

    assert (first, second, stepped(folder)) == ("2 0", "2 1", "3 0")


def test_such_a_function_makes_no_array(folder: Path) -> None:
    """It counts no references, so nothing would free one."""
    making = ADDED.replace("return number + STEP", "return np.empty(number).size")
    kernels = "import numpy as np\n" + KERNELS.replace("number + STEP", "added(number)") + making
    (folder / "kernels.py").write_text(kernels)

    with pytest.raises(subprocess.CalledProcessError) as failed:
        stepped(folder)

    assert "No implementation of function Function(<built-in function empty>)" in failed.value.stderr


def test_importing_compiles_nothing() -> None:
    reader = "pipeline_assets.corpus.readers.stackexchange"
    code = (
        f"from {reader}.html_scan import render\nfrom {reader}.row_scan import scan_rows\n"
        f"from {reader}.posts_scan import read_rows\n"
        "print(*(len(kernel.signatures) for kernel in (render, scan_rows, read_rows)))"
    )
    told = subprocess.run([sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True, check=True)

    assert told.stdout.split() == ["0", "0", "0"]
