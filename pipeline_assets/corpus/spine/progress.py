"""Progress by the clock: a log line every few seconds with rate and time left, or one that redraws on a terminal."""

import logging
import sys
import time

logger = logging.getLogger("corpusmill")


class Progress:
    """Counts what is done of a known whole and says so by the clock, never by the row.

    Args:
        title: what is being done.
        total: the whole, in `unit`.
        unit: what is counted: `shards`, `files`; `bytes` are shown as MB.
        every_s: seconds between log lines.
        quiet_s: seconds at the start in which nothing is said, and nothing at all of what is done by then.
    """

    def __init__(self, title: str, total: int, unit: str, every_s: float, quiet_s: float = 0.0) -> None:
        self._title, self._total, self._unit, self._every_s = title, total, unit, every_s
        self._started = self._spoke = time.monotonic()
        self._speaks_from = self._started + quiet_s
        self._done = self._done_before = 0
        self._counts: dict[str, int] = {}
        self._on_terminal = sys.stderr.isatty()

    def add_done_before(self, done: int) -> None:
        """`done` units that took no time now: no part of the rate."""
        self._done += done
        self._done_before += done

    def add(self, done: int, counts: dict[str, int]) -> None:
        """`done` more units, with what they counted: `documents`, `tokens`, `bytes`."""
        self._done += done
        for name, count in counts.items():
            self._counts[name] = self._counts.get(name, 0) + count
        now = time.monotonic()
        if now < self._speaks_from:
            return
        if self._on_terminal:
            sys.stderr.write(f"\r{self.line()}\x1b[K" + ("\n" if self._done >= self._total else ""))
            sys.stderr.flush()
        elif now - self._spoke >= self._every_s or self._done >= self._total:
            self._spoke = now
            logger.info(self.line())

    def line(self) -> str:
        """Done of total, counts, rate and the time left at this rate."""
        seconds = max(time.monotonic() - self._started, 1e-9)
        done_now = self._done - self._done_before
        parts = [f"{self._title}: {self._done}/{self._total} {self._unit}"]
        if self._unit == "bytes":
            rate = f"{done_now / seconds / 1e6:,.1f} MB/s"
            parts = [f"{self._title}: {self._done / 1e6:,.1f} of {self._total / 1e6:,.1f} MB, {rate}"]
        for name, count in self._counts.items():
            per_second = count / seconds
            if name == "bytes":
                parts.append(f"{count / 1e6:,.1f} MB, {per_second / 1e6:,.1f} MB/s")
            else:
                parts.append(f"{count:,} {name}, {per_second:,.0f}/s")
        if done_now > 0 and self._done < self._total:
            parts.append(f"{seconds / done_now * (self._total - self._done):,.0f} s left")
        return "; ".join(parts)
