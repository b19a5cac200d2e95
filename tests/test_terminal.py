"""What a terminal gets beside the words: colours, and tables that fit it."""

import io
import sys

import pytest

from pipeline_assets.commands.terminal import aligned, painted, tell


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

    tell(["built    data/notes", "  stale  data/other", "FAILED notes: no text", "a built one"])

    assert shown.getvalue().splitlines() == [
        "\x1b[32mbuilt\x1b[0m    data/notes",
        "  \x1b[33mstale\x1b[0m  data/other",
        "\x1b[31mFAILED\x1b[0m notes: no text",
        "a built one",
    ]


def test_without_a_terminal_there_is_no_colour(capsys: pytest.CaptureFixture[str]) -> None:
    tell(["built    data/notes"])

    assert capsys.readouterr().out == "built    data/notes\n"


def test_who_wants_no_colour_gets_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")

    assert painted("built    data/notes") == "built    data/notes"


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
