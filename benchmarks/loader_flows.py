"""Loaders that packed_loader.py measures: rows of a file → int64 batches in torch.

    python loader_flows.py convert LOADER FOLDER                      the row file in the loader's own format
    python loader_flows.py prove LOADER FOLDER BATCH WORKERS          one epoch, with a hash of its rows
    python loader_flows.py measure LOADER FOLDER BATCH WORKERS EPOCHS

The peers get what they read fastest: rows of fixed length without headers, in files of 64 MB that are not compressed.
Each sends int32, which this process converts, wherever that is cheaper than sending int64.
"""

import contextlib
import hashlib
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import cpu_s
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset

from pipeline_assets.corpus.batching import loader
from pipeline_assets.corpus.formats.memmap import INPUT_IDS_FILE

SEQ_LEN, SEED, FILE_BYTES = 2048, 1, 64_000_000
INDEX, BOUNDARIES = "index", "boundaries"  # folders of both packed sets; they share the row file
ROWS, BATCHES = "memmap, a row at a time", "memmap, a batch at a time"
LOADERS = (ROWS, BATCHES, "streaming", "litdata", "corpusmill, index", "corpusmill, boundaries")
CONVERTED = ("streaming", "litdata")
Epochs = Iterator[Iterator[torch.Tensor]]


def row_file(folder: Path) -> NDArray[np.int32]:
    return np.memmap(folder / INDEX / INPUT_IDS_FILE, "<i4", "r").reshape(-1, SEQ_LEN)


class ShuffledRows(Dataset[torch.Tensor]):
    """Shuffled rows of a token file, as a trainer without corpusmill reads them."""

    def __init__(self, folder: Path, epoch: int) -> None:
        self.rows = row_file(folder)
        self.order = np.random.default_rng([SEED, epoch]).permutation(len(self.rows))

    def __len__(self) -> int:
        return len(self.order)

    def __getitem__(self, position: int) -> torch.Tensor:
        return torch.from_numpy(self.rows[self.order[position]].astype(np.int64))

    collate: Callable[[Any], torch.Tensor] = staticmethod(torch.utils.data.default_collate)


class ShuffledBatches(ShuffledRows):
    """The same rows, copied by one index of NumPy per batch."""

    def __getitems__(self, positions: list[int]) -> torch.Tensor:
        return torch.from_numpy(self.rows[self.order[positions]].astype(np.int64))

    @staticmethod
    def collate(batch: Any) -> torch.Tensor:
        return batch


def convert(name: str, folder: Path) -> None:
    """Write the row file in a peer's format."""
    if name == "streaming":
        from streaming import MDSWriter

        columns = {"tokens": f"ndarray:int32:{SEQ_LEN}"}
        with MDSWriter(out=str(folder / name), columns=columns, size_limit=FILE_BYTES) as writer:
            for row in row_file(folder):
                writer.write({"tokens": row})
    else:
        from litdata.streaming import Cache
        from litdata.streaming.item_loader import TokensLoader

        cache = Cache(str(folder / name), chunk_bytes=FILE_BYTES, item_loader=TokensLoader(SEQ_LEN))
        for number, row in enumerate(row_file(folder)):
            cache[number] = row
        cache.done()
        cache.merge()


def open_epochs(name: str, folder: Path, batch: int, workers: int) -> Epochs:
    """Yield the batches of one epoch after another, in seeded order."""
    if name in (ROWS, BATCHES):
        dataset = ShuffledRows if name == ROWS else ShuffledBatches
        for epoch in itertools.count():
            yield iter(DataLoader(dataset(folder, epoch), batch, num_workers=workers, collate_fn=dataset.collate))
    if name == "streaming":
        from streaming import StreamingDataLoader, StreamingDataset

        samples = StreamingDataset(local=str(folder / name), shuffle=True, shuffle_seed=SEED, batch_size=batch)
        peer = StreamingDataLoader(samples, batch_size=batch, num_workers=workers)
        while True:
            yield (sent["tokens"].long() for sent in peer)
    if name == "litdata":
        import litdata
        from litdata.streaming.item_loader import TokensLoader

        rows = litdata.StreamingDataset(str(folder / name), item_loader=TokensLoader(SEQ_LEN), shuffle=True, seed=SEED)
        peer = litdata.StreamingDataLoader(rows, batch_size=batch, num_workers=workers)
        while True:
            yield (sent.long() for sent in peer)
    own = loader(folder / name.removeprefix("corpusmill, "), batch, SEED, workers=workers)
    while True:
        yield (tokens for tokens, _, _ in own)


def row_hashes(epoch: Iterator[torch.Tensor], batch: int) -> NDArray[np.int64]:
    """Return a hash of each row, in the order of an epoch."""
    weights = np.random.default_rng(0).integers(-(1 << 62), 1 << 62, SEQ_LEN) * 2 + 1
    hashes = []
    for tokens in epoch:
        assert tokens.dtype == torch.int64 and tokens.shape[1:] == (SEQ_LEN,) and len(tokens) <= batch
        hashes.append((tokens.numpy() * weights).sum(axis=1))
    return np.concatenate(hashes)


def prove(name: str, folder: Path, batch: int, workers: int) -> None:
    """Print a hash of the multiset of rows; fail if the rows are in stored order."""
    hashes = row_hashes(next(open_epochs(name, folder, batch, workers)), batch)
    ordered = row_hashes(map(torch.from_numpy, [row_file(folder)[:batch].astype(np.int64)]), batch)
    assert not np.array_equal(hashes[:batch], ordered), "the rows are not shuffled"
    print(len(hashes), hashlib.sha256(np.sort(hashes).tobytes()).hexdigest())


def measure_epochs(name: str, folder: Path, batch: int, workers: int, epochs: int) -> None:
    """Print rows, CPU seconds and seconds, with opening the loader, without imports."""
    if name in CONVERTED:
        __import__(name)
    spent_s, wall_s, rows = cpu_s(), time.perf_counter(), 0
    for epoch in itertools.islice(open_epochs(name, folder, batch, workers), epochs):
        rows += sum(len(tokens) for tokens in epoch)
    print(json.dumps([rows, cpu_s() - spent_s, time.perf_counter() - wall_s]))


def main() -> None:
    verb, name, folder, *numbers = sys.argv[1:]
    torch.set_num_threads(1)
    with contextlib.redirect_stderr(None) if name in CONVERTED else contextlib.nullcontext():
        match verb, map(int, numbers):
            case "convert", _:
                started = cpu_s()
                convert(name, Path(folder))
                print(json.dumps(cpu_s() - started))
            case "prove", settings:
                prove(name, Path(folder), *settings)
            case _, settings:
                measure_epochs(name, Path(folder), *settings)


if __name__ == "__main__":
    main()
