"""Checked work files: a read returns the written values, or fails."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_assets.corpus.formats import checked_file
from pipeline_assets.corpus.formats.checked_file import CheckedFile, count_values, map_values
from pipeline_assets.spine.errors import InputError

VALUES = np.arange(100, 120, dtype=np.uint16)


def write(path: Path, parts: Sequence[np.ndarray]) -> None:
    with CheckedFile(path) as file:
        assert [file.write(part.data) for part in parts] == [part.nbytes for part in parts]


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write a file of `VALUES`, three to a block."""
    monkeypatch.setattr(checked_file, "_BLOCK_BYTES", 6)
    write(tmp_path / "values", [VALUES])
    return tmp_path / "values"


@given(
    cuts=st.lists(st.integers(0, 20), max_size=5).map(sorted),
    ends=st.tuples(st.integers(0, 20), st.integers(0, 20)).map(sorted),
)
@pytest.mark.parametrize("block_bytes", [2, 6, 40, 1 << 12])
def test_values_written_in_any_parts_are_read_in_any_range(
    tmp_path_factory: pytest.TempPathFactory, block_bytes: int, cuts: list[int], ends: list[int]
) -> None:
    path = tmp_path_factory.mktemp("values") / "a"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checked_file, "_BLOCK_BYTES", block_bytes)
        write(path, np.split(VALUES, cuts))

        assert map_values(path, np.uint16).tolist() == VALUES.tolist()
        assert map_values(path, np.uint16, *ends).tolist() == VALUES[slice(*ends)].tolist()
        assert count_values(path, np.uint16) == 20


def test_a_file_without_values_is_empty(tmp_path: Path) -> None:
    write(tmp_path / "values", [])

    assert map_values(tmp_path / "values", np.int64).tolist() == []
    assert count_values(tmp_path / "values", np.int64) == 0


@pytest.mark.parametrize("value", range(20))
def test_changed_value_is_detected_only_in_its_block(path: Path, value: int) -> None:
    data = bytearray(path.read_bytes())
    data[2 * value] ^= 1
    path.write_bytes(data)
    block = range(value // 3 * 3, min(value // 3 * 3 + 3, 20))

    for position in range(20):
        if position in block:
            with pytest.raises(InputError, match="not a valid array: the bytes differ from those written"):
                map_values(path, np.uint16, position, position + 1)
        else:
            assert map_values(path, np.uint16, position, position + 1).tolist() == [100 + position]


def test_changed_checksum_is_detected(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))

    with pytest.raises(InputError, match="the bytes differ from those written"):
        map_values(path, np.uint16, 18, 20)


@pytest.mark.parametrize("stop", [21, 10**12])
def test_values_behind_the_end_are_refused(path: Path, stop: int) -> None:
    with pytest.raises(InputError, match="the file ends early"):
        map_values(path, np.uint16, 18, stop)
