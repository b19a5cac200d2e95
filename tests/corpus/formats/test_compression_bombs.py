"""Peak memory of decompression is bounded, whatever a file unpacks to."""

import bz2
import gzip
import lzma
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

PROJECT = Path(__file__).parents[3]
MANY_MIB = 512  # of zeros, in each bomb

# Tests readers that unpack all that they have read: a frame of many blocks, and many frames in one read.
ZEROS = bytes(64 << 20)
BOMBS: dict[str, Callable[[], bytes]] = {
    "zstd": lambda: zstandard.ZstdCompressor(level=1).compress(ZEROS * (MANY_MIB // 64)),
    "gzip": lambda: gzip.compress(ZEROS, 6) * (MANY_MIB // 64),
    "bzip2": lambda: bz2.compress(ZEROS[: 32 << 20], 9) * (MANY_MIB // 32),
    "xz": lambda: lzma.compress(ZEROS[: 32 << 20], preset=1) * (MANY_MIB // 32),
}

MEASURE = """
import sys
from pathlib import Path
from pipeline_assets.corpus.formats.codecs import detect_codec, read_decompressed
from pipeline_assets.corpus.readers.source_folder import list_files
from pipeline_assets.corpus.readers.lines import line_blocks
from pipeline_assets.spine.errors import InputError
from tests.harness.peak_memory import own_peak_mib

def read(name):
    with open(name, "rb") as file:
        return sum(map(len, read_decompressed(file, detect_codec(file.peek(16)), name, "", 1 << 20)))

small, bomb = sys.argv[1:]
read(small)
before = own_peak_mib()
unpacked = read(bomb)
print(unpacked >> 20, round(own_peak_mib() - before))
try:
    [file] = list_files(Path(bomb).parent, [Path(bomb).name])
    for _ in line_blocks(file):
        pass
except InputError as error:
    print(error.what, round(own_peak_mib() - before), sep="|")
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == "zstd" else pytest.mark.slow) for name in BOMBS]
)
def test_memory_is_bounded_by_a_block_and_by_the_longest_allowed_line(name: str, tmp_path: Path) -> None:
    bomb = BOMBS[name]()
    assert len(bomb) < (MANY_MIB << 20) // 900
    (tmp_path / "bomb").write_bytes(bomb)
    small = {"zstd": zstandard.compress, "gzip": gzip.compress, "bzip2": bz2.compress, "xz": lzma.compress}[name]
    (tmp_path / "small").write_bytes(small(bytes(1 << 20)))

    result = subprocess.run(
        [sys.executable, "-c", MEASURE, tmp_path / "small", tmp_path / "bomb"],
        cwd=PROJECT,
        env={"PYTHONPATH": str(PROJECT), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )

    first, second = result.stdout.splitlines()
    unpacked_mib, grown_mib = map(int, first.split())
    message, grown_by_line_mib = second.split("|")
    assert unpacked_mib == MANY_MIB
    assert grown_mib < 24
    assert message == "a line is longer than 256 MiB"
    assert int(grown_by_line_mib) < 256 + 48
