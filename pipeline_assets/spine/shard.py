"""Interface of shards, the units of parallel work of a stage."""

from typing import Protocol


class Shard(Protocol):
    """Unit of parallel work, which must be picklable."""

    @property
    def name(self) -> str:
        """Name of the output, unique in its stage."""

    @property
    def rows(self) -> int:
        """Number of input rows; 0 disables the search for poison rows."""
