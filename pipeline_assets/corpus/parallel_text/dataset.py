"""A split of a token cache in torch. It reads the cache and nothing else: what isn't there is an error, not made."""

from pathlib import Path
from typing import TypedDict

import numpy as np
import torch
from torch.utils.data import Dataset

from pipeline_assets.corpus.parallel_text.pairs import Split
from pipeline_assets.corpus.parallel_text.token_cache import Side, open_cache


class EncodedPair(TypedDict):
    """Ids, int64 (length,), each side closed by </s>."""

    ids: torch.Tensor
    length: int


class PairDataset(Dataset[EncodedPair]):
    """Pairs in the manifest's order. Workers of a loader, forked or spawned, map the files for themselves.

    Args:
        split: None for all.
        side: `pair` for src </s> tgt </s>.
        experiment_id: that the cache must have; None for any.
        manifest: of which it must have been made; None for any.
    Raises:
        InputError: there is no such cache; names the command that makes it.
    """

    def __init__(
        self,
        folder: Path | str,
        split: Split | None = "train",
        side: Side = "pair",
        experiment_id: str | None = None,
        manifest: Path | str | None = None,
    ) -> None:
        self.cache = open_cache(folder, experiment_id, manifest)
        self.split, self.side, self.rows = split, side, self.cache.rows(split)
        self.lengths = self.cache.lengths(side)[self.rows]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, place: int) -> EncodedPair:
        ids = torch.from_numpy(self.cache.row(int(self.rows[place]), self.side).astype(np.int64))
        return {"ids": ids, "length": len(ids)}

    def uid(self, place: int) -> str:
        """Of the pair, as the manifest has it."""
        return bytes(self.cache.uids[self.rows[place]]).decode()
