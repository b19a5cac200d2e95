"""Iterable over the batches of one rank, which can resume in mid-epoch."""

import functools
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset

from pipeline_assets.spine.argument_types import check_arguments
from pipeline_assets.spine.errors import InputError

B = TypeVar("B")
Batches = Sequence[NDArray[np.int64]]


class BatchReader(Protocol):
    """Dataset that reads the rows of a batch by their numbers."""

    @property
    def read(self) -> Callable[[NDArray[np.int64]], Any]: ...


class RankLoader(Generic[B]):
    """Iterable over the batches of one rank.

    An iteration yields one epoch. After `break` or `load_state_dict`, the next iteration yields the rest of the epoch.

    Args:
        plan_epoch: Function from an epoch's number to the row numbers of each batch of this rank.
        plan_inputs: JSON object with all values that determine the plan, except the rank.
        collate: Function that combines the rows of a batch; it runs in a worker process if there are workers.
        build_batch: Function that builds a batch from combined rows and their row numbers, in this process.
        workers: Number of processes that read ahead; 0 reads in this process.
        epoch, step: Epoch of the first iteration, and number of its batches to skip.

    Raises:
        ValueError: `workers` is negative.
    """

    def __init__(
        self,
        reader: BatchReader,
        plan_epoch: Callable[[int], Batches],
        plan_inputs: Mapping[str, Any],
        collate: Callable[[Any], Any],
        build_batch: Callable[[Any, torch.Tensor], B],
        workers: int,
        epoch: int = 0,
        step: int = 0,
    ) -> None:
        if workers < 0:
            raise ValueError(f"workers must be >= 0, got {workers}")
        self._reader, self._plan_epoch, self._collate = reader, functools.lru_cache(1)(plan_epoch), collate
        self._plan_inputs, self._build_batch, self._workers = dict(plan_inputs), build_batch, workers
        self._epoch, self._step = epoch, step

    def batches(self) -> Batches:
        """Return the row numbers of each batch of the epoch; the last batch may be empty."""
        return self._plan_epoch(self._epoch)

    def _nonempty_batches(self) -> Batches:
        batches = self.batches()
        return batches[:-1] if len(batches) and not len(batches[-1]) else batches

    def __len__(self) -> int:
        """Return the number of batches in the epoch; it includes those before `step`."""
        return len(self._nonempty_batches())

    def __iter__(self) -> Iterator[B]:
        epoch, remaining = self._epoch, self._nonempty_batches()[self._step :]
        batches: Iterable[Any] = map(self._collate, map(self._reader.read, remaining))
        if self._workers:  # without workers, a DataLoader would only add a fifth to the time
            batches = DataLoader(
                _WholeBatches(lambda: self._reader, self._collate),
                batch_size=None,
                sampler=remaining,
                collate_fn=_unchanged,
                num_workers=self._workers,
                generator=torch.Generator(),  # torch's default generator would consume the caller's random numbers
            )
        for numbers, arrays in zip(remaining, batches, strict=True):
            if isinstance(arrays, InputError):
                raise arrays
            self._move_to(epoch, self._step + 1)
            yield self._build_batch(arrays, torch.from_numpy(numbers))
        self._epoch, self._step = epoch + 1, 0

    def _move_to(self, epoch: int, step: int) -> None:
        """Set the position; after the last batch, it is the start of the next epoch."""
        # A caller that counts batches, such as PyTorch Lightning, never exhausts an iterator.
        is_end = 0 < step == len(self._plan_epoch(epoch))
        self._epoch, self._step = (epoch + 1, 0) if is_end else (epoch, step)

    def state_dict(self) -> dict[str, Any]:
        """Return the position after the last yielded batch, to resume there on any rank."""
        return {"epoch": self._epoch, "step": self._step, "of": self._plan_inputs}

    @check_arguments
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume at a saved position; raise ValueError if it does not fit this loader."""
        if self._plan_inputs != (other := state.get("of")):
            what = f"the state belongs to {other}, the loader to {self._plan_inputs}"
            raise ValueError(f"{what}: load a state that this loader saved")
        epoch, step = state.get("epoch", -1), state.get("step", -1)
        if {type(epoch), type(step)} != {int} or epoch < 0 or not 0 <= step <= len(self._plan_epoch(epoch)):
            raise ValueError(f"epoch {epoch} has no step {step}: load an unchanged state")
        self._move_to(epoch, step)


class _WholeBatches(Dataset[Any]):
    """Dataset that returns a whole batch for an array of row numbers.

    It returns an InputError instead of raising it, because torch would raise a RuntimeError with the worker's traceback
    in this process. For the same reason, a spawned worker opens the rows only when it reads its first batch.
    """

    def __init__(self, open_reader: Callable[[], BatchReader], collate: Callable[[Any], Any]) -> None:
        self._open_reader, self._collate = open_reader, collate

    def __reduce__(self) -> tuple[type["_WholeBatches"], tuple[Callable[[], BatchReader], Callable[[Any], Any]]]:
        return _WholeBatches, (functools.partial(pickle.loads, pickle.dumps(self._open_reader())), self._collate)

    @functools.cached_property
    def _reader(self) -> BatchReader:
        return self._open_reader()

    def __getitem__(self, rows: NDArray[np.int64]) -> Any:  # torch's `__getitems__` would have to return items
        try:
            return self._collate(self._reader.read(rows))
        except InputError as error:
            return error


def _unchanged(batch: Any) -> Any:
    return batch
