"""An index of items on disk: an array a file, mapped into memory, so that all workers of a machine share one copy."""

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.decontamination.item_index import ItemIndex, Items
from pipeline_assets.corpus.decontamination.ngrams import NgramTable
from pipeline_assets.corpus.spine.building import BuildFolder, OutputFile
from pipeline_assets.corpus.spine.durable import DurableFile
from pipeline_assets.corpus.spine.sealing import WORK

_FOLDER = f"{WORK}/items"


@dataclass(frozen=True)
class IndexFiles:
    """Where an index lies, and the sha256 of its files: the same folder may hold another one later."""

    folder: Path
    digests: tuple[str, ...]


def write_index(index: ItemIndex, folder: BuildFolder) -> list[OutputFile]:
    """The files of an index."""
    return [_write(name, array, folder) for part in index for name, array in part._asdict().items()]


def index_files(folder: BuildFolder, files: list[OutputFile]) -> IndexFiles:
    """Where `write_index` put them."""
    return IndexFiles(folder.path(_FOLDER), tuple(file.sha256 for file in files))


@functools.lru_cache(maxsize=1)
def load_index(files: IndexFiles) -> ItemIndex:
    """The index; the last one loaded is kept for the life of the process."""
    return ItemIndex(
        NgramTable(*(_load(name, files.folder) for name in NgramTable._fields)),
        Items(*(_load(name, files.folder) for name in Items._fields)),
    )


def _write(name: str, array: NDArray[Any], folder: BuildFolder) -> OutputFile:
    path = f"{_FOLDER}/{name}.npy"
    with DurableFile(folder.path(path)) as file:
        np.save(file, array)
    return OutputFile.plain(path, len(array), file)


def _load(name: str, folder: Path) -> NDArray[Any]:
    return np.asarray(np.load(folder / f"{name}.npy", mmap_mode="r"))
