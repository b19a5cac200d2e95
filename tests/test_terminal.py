"""What a terminal gets beside the words: colours, and tables that fit it."""

import io
import logging
import sys

import pytest

from pipeline_assets.commands.terminal import aligned, log_to_stderr, tell
from pipeline_assets.corpus.spine.usage import Progress, end_bars

PLAIN = ["a built one", "  corpusmill nemotron publish OWNER/NAME out", "to go on: corpusmill run notes"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Standard output is one, from now on."""
    found = Terminal()
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(sys, "stdout", found)
    return found


def test_a_state_is_coloured_and_nothing_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = terminal(monkeypatch)

    tell(["built    data/notes", "  stale  data/other", "FAILED notes: no text", *PLAIN])

    assert shown.getvalue().splitlines() == [
        "\x1b[32mbuilt\x1b[0m    data/notes",
        "  \x1b[33mstale\x1b[0m  data/other",
        "\x1b[31mFAILED\x1b[0m notes: no text",
        *PLAIN,
    ]


def test_without_a_terminal_and_for_who_wants_none_there_is_no_colour(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tell(["built    data/notes"])
    piped = capsys.readouterr().out
    shown = terminal(monkeypatch)
    monkeypatch.setenv("NO_COLOR", "1")
    tell(["built    data/notes"])

    assert piped == shown.getvalue() == "built    data/notes\n"


def test_a_long_line_is_left_to_the_terminal_to_wrap_and_markup_in_it_is_text(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = terminal(monkeypatch)
    monkeypatch.setenv("COLUMNS", "40")

    tell([f"stale  [red]{'a long name ' * 9}:smile: https://example.org 12[/]"])

    assert shown.getvalue() == f"\x1b[33mstale\x1b[0m  [red]{'a long name ' * 9}:smile: https://example.org 12[/]\n"


def test_a_log_line_goes_above_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Terminal()
    monkeypatch.setattr(sys, "stderr", shown)
    logger = logging.getLogger("corpusmill")
    monkeypatch.setattr(logger, "handlers", [])
    monkeypatch.setattr(logger, "propagate", True)
    log_to_stderr()
    Progress("fetch", 2, "files", every_s=0).add(1)

    logger.info("rate limited")
    end_bars()

    logged, bar = shown.getvalue().split("rate limited")
    assert "fetch" in logged and "fetch" in bar and logged.rstrip("0123456789: ").endswith("\x1b[2K")


def test_a_table_fits_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal(monkeypatch)
    monkeypatch.setenv("COLUMNS", "60")
    rows = [("current", "stage_a/" + "a_long_folder_name/" * 4 + "notes", "1,200 documents"), ("stale", "short", "7")]

    lines = aligned(rows, numbers={2})

    assert max(map(len, lines)) <= 60
    assert lines[0].startswith("current  stage_a/") and lines[0].endswith("name/notes  1,200 documents")
    assert "…" in lines[0] and "…" not in lines[1]


def test_a_table_that_is_piped_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")

    assert aligned([("current", "x" * 90)]) == ["current  " + "x" * 90]


def test_of_a_table_that_is_too_wide_what_is_spare_goes_before_anything_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal(monkeypatch)
    monkeypatch.setenv("COLUMNS", "45")

    [line] = aligned([("current", "stage_a/notes/packed/notes", "1,200 documents", "7 MB")], spare=2)

    assert line == "current  stage_a/notes/packed/notes"
