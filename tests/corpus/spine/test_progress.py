"""Progress: by the clock, never by the row."""

import io
import logging
import re
import sys

import pytest

from pipeline_assets.corpus.spine.usage import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time is whatever the list's only item says."""
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    return now


def test_the_line_says_done_of_total_counts_rates_and_the_time_left(clock: list[float]) -> None:
    progress = Progress("convert", 8, "shards", every_s=10)

    clock[0] += 4
    progress.add(2, {"documents": 6_000, "tokens": 2_000_000, "bytes": 12_300_000})

    assert progress.line() == (
        "convert: 2/8 shards; 6,000 documents, 1,500/s; 2,000,000 tokens, 500,000/s; 12.3 MB, 3.1 MB/s; 12 s left"
    )


def test_counts_add_up(clock: list[float]) -> None:
    progress = Progress("convert", 3, "shards", every_s=10)

    clock[0] += 2
    progress.add(1, {"documents": 5})
    progress.add(1, {"documents": 7})

    assert progress.line() == "convert: 2/3 shards; 12 documents, 6/s; 1 s left"


@pytest.mark.parametrize(("done", "line"), [(0, "fetch: 0/4 files"), (4, "fetch: 4/4 files")])
def test_at_the_start_and_at_the_end_no_time_left_is_claimed(clock: list[float], done: int, line: str) -> None:
    progress = Progress("fetch", 4, "files", every_s=10)

    clock[0] += 1
    progress.add(done, {})

    assert progress.line() == line


def test_no_time_passed_and_nothing_to_do_divide_by_nothing(clock: list[float]) -> None:
    progress = Progress("fetch", 0, "files", every_s=10)

    progress.add(0, {"bytes": 0})

    assert progress.line() == "fetch: 0/0 files; 0.0 MB"


def test_a_log_line_comes_when_its_time_has_come_and_not_before(
    clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    progress = Progress("convert", 100, "shards", every_s=10)

    with caplog.at_level(logging.INFO, "corpusmill"):
        for _ in range(50):
            clock[0] += 0.5
            progress.add(1, {})

    assert caplog.messages == [
        "convert: 20/100 shards; 40 s left",
        "convert: 40/100 shards; 30 s left",
    ]


def test_a_terminal_gets_one_line_redrawn_and_ended_by_the_last_unit(
    monkeypatch: pytest.MonkeyPatch, clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    progress = Progress("fetch", 2, "files", every_s=0)

    with caplog.at_level(logging.INFO, "corpusmill"):
        clock[0] += 1
        progress.add(1, {})
        progress.add(1, {})

    assert terminal.getvalue() == "\rfetch: 1/2 files; 1 s left\x1b[K\rfetch: 2/2 files\x1b[K\n"
    assert caplog.messages == []


def test_the_real_clock_gives_a_line_of_the_same_form() -> None:
    progress = Progress("fetch", 2, "files", every_s=10)

    progress.add(1, {"bytes": 1_000_000})

    assert re.fullmatch(r"fetch: 1/2 files; 1\.0 MB, [\d,.]+ MB/s; 0 s left", progress.line())


def test_bytes_are_shown_as_mb_with_their_rate(clock: list[float]) -> None:
    progress = Progress("verify", 12_000_000_000, "bytes", every_s=10)

    clock[0] += 4
    progress.add(2_000_000_000, {})

    assert progress.line() == "verify: 2,000.0 of 12,000.0 MB, 500.0 MB/s; 20 s left"


def test_what_was_done_before_is_no_part_of_the_rate(clock: list[float]) -> None:
    progress = Progress("verify", 12_000_000_000, "bytes", every_s=10)

    progress.add_done_before(9_000_000_000)
    clock[0] += 4
    at_first = progress.line()
    progress.add(1_000_000_000, {})

    assert at_first == "verify: 9,000.0 of 12,000.0 MB"
    assert progress.line() == "verify: 10,000.0 of 12,000.0 MB, 250.0 MB/s; 8 s left"


def test_counts_of_what_was_done_before_have_no_rate_and_are_no_part_of_one(clock: list[float]) -> None:
    progress = Progress("convert", 4, "shards", every_s=10)

    clock[0] += 2
    progress.add_done_before(2, {"documents": 6_000, "bytes": 9_000_000})
    at_first = progress.line()
    progress.add(1, {"documents": 10})

    assert at_first == "convert: 2/4 shards; 6,000 documents; 9.0 MB"
    assert progress.line() == "convert: 3/4 shards; 6,010 documents, 5/s; 9.0 MB; 2 s left"


def test_work_that_was_all_done_before_is_said_once_at_its_end(
    clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    progress = Progress("fetch", 2, "files", every_s=10)

    with caplog.at_level(logging.INFO, "corpusmill"):
        progress.add_done_before(1)
        progress.add_done_before(1)

    assert caplog.messages == ["fetch: 2/2 files"]


def test_nothing_is_said_of_what_ends_in_the_quiet_at_the_start(
    clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "corpusmill"):
        short, long = (Progress(title, 2, "files", every_s=10, quiet_s=2) for title in ("short", "long"))
        clock[0] += 1
        short.add(2, {})
        long.add(1, {})
        clock[0] += 10
        long.add(1, {})

    assert caplog.messages == ["long: 2/2 files"]
