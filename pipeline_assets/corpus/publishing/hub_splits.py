"""Splits as a hub names them, and the patterns of their files."""

import re
from collections.abc import Sequence

_UNFIT = re.compile(r"\W+")
_NUMBER = "[0-9]" * 5
_ALL = "all"  # in any case: builder.py of `datasets` refuses a whole dataset that has a split of this name


def hub_split_names(splits: Sequence[str]) -> dict[str, str]:
    r"""The hub's name of each split: its own where that is allowed, else with `_` for what isn't.

    `datasets` allows `\w+(\.\w+)*` (its naming.py), and keeps `all`, which becomes `all_`, for all of them together.
    Where two names would become one, later ones get `_2`, `_3`, …; names that are allowed keep theirs.
    """
    names = {split: split for split in splits if re.fullmatch(r"\w+(\.\w+)*", split) and split.lower() != _ALL}
    for split in splits:
        if split in names:
            continue
        allowed = f"{split}_" if split.lower() == _ALL else _UNFIT.sub("_", split)
        taken, times = set(names.values()), 1
        while (name := allowed if times == 1 else f"{allowed}_{times}") in taken:
            times += 1
        names[split] = name
    return {split: names[split] for split in splits}


def files_pattern(split: str, files: int) -> str:
    """A pattern of the Parquet files of one split. Not `<split>-*`: that is also `<split>-more-00000-of-00001`."""
    return f"data/{split}-{_NUMBER}-of-{files:05d}.parquet"
