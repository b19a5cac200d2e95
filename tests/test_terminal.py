"""Colours, progress bars and tables in a terminal."""

import logging
import sys

import pytest
from terminal_output import Terminal, terminal

from pipeline_assets.commands.terminal import align, format_bytes, log_to_stderr, print_lines
from pipeline_assets.spine.bars import end_bars
from pipeline_assets.spine.progress import Progress

PLAIN = ["a built one", "  corpusmill nemotron publish OWNER/NAME out", "to continue: corpusmill run notes"]


def test_only_the_state_of_a_line_is_coloured(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = terminal(monkeypatch)

    print_lines(["built    data/notes", "  stale  data/other", "FAILED notes: no text", *PLAIN])

    assert shown.getvalue().splitlines() == [
        "\x1b[32mbuilt\x1b[0m    data/notes",
        "  \x1b[33mstale\x1b[0m  data/other",
        "\x1b[31mFAILED\x1b[0m notes: no text",
        *PLAIN,
    ]


def test_pipes_and_no_color_get_no_colours(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    print_lines(["built    data/notes"])
    piped = capsys.readouterr().out
    shown = terminal(monkeypatch)
    monkeypatch.setenv("NO_COLOR", "1")
    print_lines(["built    data/notes"])

    assert piped == shown.getvalue() == "built    data/notes\n"


def test_long_lines_are_not_wrapped_and_markup_is_text(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = terminal(monkeypatch)
    monkeypatch.setenv("COLUMNS", "40")

    print_lines([f"stale  [red]{'a long name ' * 9}:smile: https://example.org 12[/]"])

    assert shown.getvalue() == f"\x1b[33mstale\x1b[0m  [red]{'a long name ' * 9}:smile: https://example.org 12[/]\n"


def test_a_log_line_is_printed_above_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Terminal()
    monkeypatch.setattr(sys, "stderr", shown)
    logger = logging.getLogger("corpusmill")
    log_to_stderr()
    Progress("fetch", 2, "files", log_every_s=0).add(1)

    logger.info("rate limited")
    end_bars()

    logged, bar = shown.getvalue().split("rate limited")
    assert "fetch" in logged and "fetch" in bar and logged.rstrip("0123456789: ").endswith("\x1b[2K")


def test_a_table_has_aligned_columns_with_numbers_to_the_right() -> None:
    rows = [("current", "stage_a/notes", "1,200"), ("stale", "a", "7")]

    assert align(rows, number_columns={2}) == ["current  stage_a/notes  1,200", "stale    a                  7"]


def test_one_byte_is_singular() -> None:
    assert [format_bytes(count) for count in (0, 1, 2, 1000)] == ["0 bytes", "1 byte", "2 bytes", "1.0 kB"]
    assert [format_bytes(count) for count in (999_949_999, 999_950_000)] == ["999.9 MB", "1.00 GB"]
    assert format_bytes(-999_999_999_999) == "-1.00 TB"
