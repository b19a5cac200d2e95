"""Rates of a machine, and the seconds that work takes at them."""

import os
from dataclasses import dataclass

from pipeline_assets.corpus.planning.estimate import Estimate

SCANNED_TO_ENCODED = 0.37  # seconds to read text of the other split, to those to read, encode and write it: measured


@dataclass(frozen=True)
class Rates:
    """How fast a machine works, in bytes a second.

    Attributes:
        convert: source text to Document shards, by one worker.
        encode: text of Document shards to ids, by one worker.
        write: hashed, written and made durable, by one process.
        start_s: seconds until a worker has imported what it needs and loaded the tokenizer.
        basis: what was measured, for people.
        off: how many times as long it may take, at least and at most: texts differ, and what else a machine does.
    """

    convert: float
    encode: float
    write: float
    start_s: float
    basis: str
    off: tuple[float, float] = (0.6, 3.0)

    def seconds(self, likely: float) -> Estimate:
        """Of work that takes `likely` seconds at these rates."""
        low, high = self.off
        return Estimate(round(low * likely, 1), round(likely, 1), round(high * likely, 1), self.basis)


ANOTHER_MACHINE = Rates(75e6, 80e6, 400e6, 1.0, "another machine's rates", (0.3, 4.0))
"""Where this one was never measured: 2 cores of an AMD EPYC, benchmarks/README.md."""
_NETWORK_IS_OFF = (0.5, 2.5)


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def at_work(workers: int) -> int:
    """Processes that get on at one time: no more than there are cores."""
    return max(1, min(workers, cores()))


def fetch_seconds(missing_bytes: int, rate: Estimate | None) -> Estimate | None:
    """
    Args:
        rate: bytes a second; None where none is known.
    Returns:
        None where something is to be fetched and no rate is known.
    """
    if not missing_bytes:
        return Estimate(0, 0, 0, "nothing is to be fetched")
    if rate is None:
        return None
    low, likely, high = (off * missing_bytes / rate.likely for off in (_NETWORK_IS_OFF[0], 1, _NETWORK_IS_OFF[1]))
    return Estimate(round(low, 1), round(likely, 1), round(high, 1), rate.basis)
