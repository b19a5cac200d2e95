"""Peak memory of both passes doesn't grow with the dump: one size and four times that, in processes of their own."""

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import py7zr
import pytest
from made_dump import END, HEAD, answer, question

HERE = Path(__file__).parent
PROJECT = HERE.parents[3]
THREADS = 12_000  # 37 MB
LEEWAY_KIB = 10 << 10  # less than a tenth of what the dump grows by


def threads(count: int) -> Iterator[bytes]:
    """Rows in order of ids, as a dump has them: a question, and an answer to any question before."""
    words = random.Random(7)
    for number in range(1, 2 * count, 2):
        yield question(number, Body=f"<p>{words.randbytes(700).hex()}</p>")
        parent_id = words.randrange(1, number + 1, 2)
        yield answer(number + 1, parent_id, Body=f"<p>{words.randbytes(500).hex()}</p>\n<p>Or so.</p>")


def write_dump(file: Path, count: int) -> None:
    posts = file.with_name("Posts.xml")
    with open(posts, "wb") as writing:
        writing.write(HEAD)
        writing.writelines(threads(count))
        writing.write(END)
    if file.suffix == ".7z":
        with py7zr.SevenZipFile(file, "w", filters=[{"id": py7zr.FILTER_LZMA2, "preset": 0}]) as packing:
            packing.write(posts, "Posts.xml")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Posts.xml", "garden.7z"])
def test_peak_memory_is_equal_within_ten_percent_at_four_times_the_size(name: str, tmp_path: Path) -> None:
    documents, peaks = {}, {}

    for scale in (1, 4):
        folder = tmp_path / str(scale)
        folder.mkdir()
        write_dump(folder / name, scale * THREADS)
        told = subprocess.run(
            [sys.executable, HERE / "read_dump.py", folder / name, folder],
            env={**os.environ, "PYTHONPATH": str(PROJECT)},
            capture_output=True,
            text=True,
            check=True,
        )
        documents[scale], peaks[scale] = map(int, told.stdout.split())

    assert documents == {1: THREADS, 4: 4 * THREADS}
    assert 0.90 * peaks[1] <= peaks[4] <= 1.10 * peaks[1], peaks
    assert peaks[4] - peaks[1] < LEEWAY_KIB, peaks
