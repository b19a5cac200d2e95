"""Progress reports: a bar, or a log line with rate and remaining time."""

import logging
import sys
import time
from collections import Counter
from collections.abc import Mapping

from pipeline_assets.spine.bars import Bar
from pipeline_assets.spine.json_log import is_json_log

logger = logging.getLogger("corpusmill")


class Progress:
    """Counter of finished work, with a log line every `log_every_s` seconds, or a bar.

    `unit` is the counted unit, such as `shards`; `bytes` are shown as MB. Work shorter than `initial_quiet_s` is never
    reported.
    """

    def __init__(self, title: str, total: int, unit: str, log_every_s: float, initial_quiet_s: float = 0.0) -> None:
        self._title, self._total, self._unit, self._every_s = title, total, unit, log_every_s
        self._started = self._reported = time.monotonic()
        self._quiet_until = self._started + initial_quiet_s
        self._done = self._done_before = 0
        self._counts, self._counts_before = Counter[str](), Counter[str]()
        self._bar: Bar | None = None

    def add_earlier(self, done: int, counts: Mapping[str, int] = {}) -> None:
        """Add units that an earlier run finished; the rates do not include them."""
        self._done_before += done
        self._counts_before.update(counts)
        self.add(done, counts)

    def add(self, done: int, counts: Mapping[str, int] = {}) -> None:
        """Add finished units with their counts of `documents`, `tokens` or `bytes`."""
        self._done += done
        self._counts.update(counts)
        now, is_over = time.monotonic(), self._done >= self._total
        if now < self._quiet_until:
            return
        if sys.stderr.isatty() and not is_json_log():
            if self._bar is None or not self._bar.is_shown:
                self._bar = Bar(self._title)
            self._bar.draw(self._done, self._total, self._format())
        elif now - self._reported >= self._every_s or is_over:
            self._reported = now
            facts = {"stage": self._title, "done": self._done, "total": self._total, "unit": self._unit}
            logger.info(self.format_line(), extra={"facts": facts | {"counts": dict(self._counts)}})

    def format_line(self) -> str:
        """Format the title, finished work, counts, rates and remaining time."""
        return f"{self._title}: {self._format()}"

    def _format(self) -> str:
        seconds = max(time.monotonic() - self._started, 1e-9)
        done_now = self._done - self._done_before
        parts = [f"{self._done}/{self._total} {self._unit}"]
        if self._unit == "bytes":
            rate = _format_rate("bytes", done_now, seconds)
            parts = [f"{self._done / 1e6:,.1f} of {self._total / 1e6:,.1f} MB{rate}"]
        for name, count in self._counts.items():
            rate = _format_rate(name, count - self._counts_before[name], seconds)
            noun = name.removesuffix("s") if count == 1 else name
            parts.append((f"{count / 1e6:,.1f} MB" if name == "bytes" else f"{count:,} {noun}") + rate)
        if done_now > 0 and self._done < self._total:
            parts.append(f"{seconds / done_now * (self._total - self._done):,.0f} s left")
        return "; ".join(parts)


def _format_rate(unit: str, count: int, seconds: float) -> str:
    if count == 0:
        return ""
    return f", {count / seconds / 1e6:,.1f} MB/s" if unit == "bytes" else f", {count / seconds:,.0f}/s"
