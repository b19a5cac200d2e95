"""Search for the first document that repeats an earlier id, for error messages."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pipeline_assets.corpus.doc_ids import find_repeats


class FirstRepeat(NamedTuple):
    """First document that repeats an earlier id, and the number of all repeats."""

    shard: int  # index in the paths of `find_first_repeat`
    row: int  # in the shard
    repeats: int


def find_first_repeat(paths: Sequence[Path]) -> FirstRepeat | None:
    """Find the first repeat in the files of `IdsWriter`; None if all ids differ."""
    first, repeats = None, 0
    for block in find_repeats(paths):
        earliest = block[np.lexsort((block["row"], block["shard"]))[0]]
        location = int(earliest["shard"]), int(earliest["row"])
        first, repeats = min(first or location, location), repeats + len(block)
    return None if first is None else FirstRepeat(*first, repeats)
