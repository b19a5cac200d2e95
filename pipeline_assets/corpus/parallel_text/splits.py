"""Which pair of a sample is in which split; said once, when it is drawn.

A text, on whichever side, is in one split: pairs that share one, or are linked by such pairs, are a group. Groups are
dealt the largest first, then by the sha256 of seed and pair, each to the split that lacks most; so sizes are exact
unless a group is larger than what its split lacks.
"""

from collections.abc import Sequence

import pydantic

from pipeline_assets.corpus.parallel_text.pairs import SPLITS, Pair, Split, canonical
from pipeline_assets.corpus.spine.files import rank
from pipeline_assets.corpus.spine.recipe import RecipePart


class SplitShares(RecipePart):
    """What of the sample goes to each split, as parts of their sum."""

    train: int = pydantic.Field(default=96, ge=1)
    val: int = pydantic.Field(default=12, ge=0)
    test: int = pydantic.Field(default=12, ge=0)

    def sizes(self, pairs: int) -> dict[Split, int]:
        """Pairs of each split, by largest remainder; of equal ones the first."""
        shares: dict[Split, int] = {"train": self.train, "val": self.val, "test": self.test}
        whole = sum(shares.values())
        sizes = {split: pairs * share // whole for split, share in shares.items()}
        for split in sorted(SPLITS, key=lambda split: -(pairs * shares[split] % whole))[: pairs - sum(sizes.values())]:
            sizes[split] += 1
        return sizes


def assign_splits(pairs: Sequence[Pair], shares: SplitShares, seed: int) -> list[Split]:
    """The split of each pair."""
    linked: dict[str, str] = {}  # each text to another of its group, the last one to itself

    def last(text: str) -> str:
        while linked.setdefault(text, text) != text:
            linked[text] = text = linked[linked[text]]
        return text

    sides = [(canonical(pair.src_text), canonical(pair.tgt_text)) for pair in pairs]
    for src, tgt in sides:
        linked[last(src)] = last(tgt)
    # Not of where they stand: a set that is stored otherwise is split as before. Equal pairs are in one group anyhow.
    ranks = [rank(str(seed), "split", pair.uid) for pair in pairs]
    groups: dict[str, list[int]] = {}
    for number in sorted(range(len(pairs)), key=ranks.__getitem__):
        groups.setdefault(last(sides[number][0]), []).append(number)
    lacks, split_of = shares.sizes(len(pairs)), dict[int, Split]()
    for group in sorted(groups.values(), key=len, reverse=True):  # stable: groups came by the rank of their first
        split = max(SPLITS, key=lacks.__getitem__)
        lacks[split] -= len(group)
        split_of |= dict.fromkeys(group, split)
    return [split_of[number] for number in range(len(pairs))]
