"""A sample: the same whenever it is drawn, of files by their bytes, of the rows of shards by their ids."""

import hashlib
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeVar

from pipeline_assets.corpus.spine.errors import UsageError

T = TypeVar("T")
_SHARE = re.compile(r"(?P<number>\d{1,9}(\.\d{1,30})?)(?P<percent>\s?%)?", re.ASCII)


@dataclass(frozen=True)
class Sample:
    """How much is drawn, above 0 and up to 1, and the seed: another seed draws others."""

    share: Fraction
    seed: str = "0"

    @classmethod
    def parse(cls, text: str, seed: str = "0") -> "Sample":
        """A sample as people write it: `5%`, `0.05`. Raises UsageError where it is no share, none of the whole, or more
        than it; or `5`, which could be 5 % or five times.
        """
        match = _SHARE.fullmatch(text.strip())
        share = Fraction(match["number"]) / (100 if match["percent"] else 1) if match else Fraction(0)
        if match and not match["percent"] and 1 <= share <= 100:
            fix = f"write {match['number']}% for percent, or a fraction such as 0.05"
            raise UsageError(f"{text!r} has no percent sign", "--sample", fix)
        if not 0 < share <= 1:
            raise UsageError(f"{text!r} is no share", "--sample", "write one above 0 and up to 100 %: 5% or 0.05")
        return cls(share, seed)

    def __str__(self) -> str:
        return f"{float(self.share * 100):.12g}%"

    def rank(self, *names: str) -> bytes:
        """sha256 of seed and names: the order in which things are drawn."""
        return hashlib.sha256("\0".join(("sample", self.seed, *names)).encode("utf-8", "surrogatepass")).digest()

    def fitting(self, items: Sequence[T], bytes_of: Callable[[T], int], names: Callable[[T], Sequence[str]]) -> list[T]:
        """Items by rank, each taken if what is taken stays within the share of all bytes; as they were ordered.

        So one that alone is more than the share is never taken: the sample costs what was asked for.
        """
        left = math.floor(self.share * sum(map(bytes_of, items)))
        taken = set()
        for number in sorted(range(len(items)), key=lambda number: self.rank(*names(items[number]))):
            if bytes_of(items[number]) <= left:
                left -= bytes_of(items[number])
                taken.add(number)
        return [item for number, item in enumerate(items) if number in taken]

    def shards_and_rows(self, shards: Sequence[str]) -> tuple[list[str], "Sample"]:
        """Shards to draw rows from, in their order, and the share of the rows in these: together this sample's share.

        The square root of the share of the shards, at least one: all rows of few shards would miss damage elsewhere,
        few rows of all shards would have all of them decompressed.
        """
        count = min(len(shards), math.ceil(math.sqrt(self.share) * len(shards)))
        drawn = set(sorted(shards, key=self.rank)[:count])
        share = min(Fraction(1), self.share * len(shards) / count) if count else self.share
        return [shard for shard in shards if shard in drawn], Sample(share, self.seed)

    def draws(self, name: str) -> bool:
        """Whether a row is drawn, by its name alone."""
        return int.from_bytes(self.rank(name)[:8], "big") < self.share * 2**64
