"""Headers of .npy files, format 1.0."""

import math
from dataclasses import dataclass
from pathlib import Path
from tokenize import TokenError
from typing import Any, BinaryIO, Literal

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from pipeline_assets.spine.damage import errors_as_damage
from pipeline_assets.spine.durable import DurableFile
from pipeline_assets.spine.errors import InputError, one_line


def write_npy_header(file: DurableFile, dtype: str, shape: tuple[int, ...]) -> None:
    """Write the header of an .npy file; `dtype` is text such as "<i4"."""
    npy.write_array_header_1_0(file, {"descr": dtype, "fortran_order": False, "shape": shape})


@dataclass(frozen=True)
class NpyHeader:
    """Header of an .npy file; the values begin at byte `offset`."""

    shape: tuple[int, ...]
    order: Literal["C", "F"]
    dtype: np.dtype[Any]
    offset: int

    @property
    def file_bytes(self) -> int:
        """Size of header and values in bytes."""
        return self.offset + math.prod(self.shape) * self.dtype.itemsize


def map_npy(path: Path) -> NDArray[Any]:
    """Map an .npy file that this project wrote; raise InputError if it is damaged."""
    with errors_as_damage(path, "array"):
        return np.asarray(np.load(path, mmap_mode="r"))


def read_npy_header(file: BinaryIO, path: Path) -> NpyHeader:
    """Read the header of an .npy file; raise InputError if it is invalid."""
    try:
        npy.read_magic(file)
        shape, is_fortran, dtype = npy.read_array_header_1_0(file)
    except (ValueError, TypeError, SyntaxError, TokenError, RecursionError) as error:
        raise InputError(f"not an array ({one_line(error)})", path, "restore the file or rebuild the set") from None
    return NpyHeader(shape, "F" if is_fortran else "C", dtype, file.tell())
