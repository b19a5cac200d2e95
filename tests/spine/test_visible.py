"""Control characters are visible in errors, logs and on terminals."""

import json
import logging
import sys
import unicodedata
from pathlib import Path

import pytest

from pipeline_assets.build.run_warnings import check_result_line
from pipeline_assets.build.systems import unknown_kind
from pipeline_assets.build.target import Target
from pipeline_assets.commands.terminal import echo, print_lines
from pipeline_assets.spine.artifact import CheckResult
from pipeline_assets.spine.errors import InputError, one_line
from pipeline_assets.spine.manifest import StageVersion
from pipeline_assets.spine.visible import VISIBLE_TABLE, to_one_line

HOSTILE = "".join(map(chr, (*range(32), *range(0x7F, 0xA0), 0x2028, 0x202E, 0x2066)))


def find_controls(text: str) -> set[str]:
    """Return the characters that a terminal or a reader of lines may interpret."""
    return {char for char in text if unicodedata.category(char) in ("Cc", "Zl", "Zp") or char in "\u202e\u2066"}


def test_name_cannot_forge_a_second_line_or_a_colour() -> None:
    assert to_one_line("notes\x1b[2J\ncorpusmill: built\u202e") == "notes␛[2J⏎corpusmill: built\\u202e"


def test_check_of_an_artifact_is_reported_on_one_line() -> None:
    target = Target(unknown_kind("words/parts", StageVersion("words", 1)), "en", Path("en"), {})
    result = CheckResult("budget_met", False, False, "the next document is one\ntwo")

    assert check_result_line(target, result) == "check en: budget_met: WARNING: the next document is one⏎two"


def test_name_that_is_not_utf8_can_be_stored_as_utf8() -> None:
    assert str(InputError("not a recipe", "caf\udce9.yaml", "rename it")) == "caf\\udce9.yaml: not a recipe; rename it"


def test_errors_show_controls_in_one_line() -> None:
    error = InputError(HOSTILE, HOSTILE, HOSTILE)

    assert find_controls(str(error)) == set()
    assert find_controls(one_line(ValueError(HOSTILE))) == set()


def test_log_messages_show_controls_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("corpusmill")
    logger.addHandler(caplog.handler)
    try:
        logger.warning("%s: %d rows", HOSTILE, 5)
    finally:
        logger.removeHandler(caplog.handler)

    [record] = caplog.records[-1:]
    assert find_controls(record.getMessage()) == set()
    assert record.getMessage().endswith(": 5 rows")


@pytest.mark.parametrize("is_error", [True, False])
def test_printed_lines_show_controls(capsys: pytest.CaptureFixture[str], is_error: bool) -> None:
    print_lines([f"built {HOSTILE}"], err=is_error)
    echo(HOSTILE, err=is_error)

    assert find_controls("".join(capsys.readouterr())) == {"\n", "\t"}


def test_only_own_colours_reach_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)

    echo((("notes\x1b[31m\x1b]0;title\x07 [red]", "green"),))

    assert capsys.readouterr().out == "\x1b[32mnotes␛[31m␛]0;title␇ [red]\x1b[0m\n"


def test_json_keeps_its_meaning() -> None:
    values = {"ascii": HOSTILE, "more": "中"}

    for is_ascii in (True, False):
        text = json.dumps(values, ensure_ascii=is_ascii, indent=1)
        assert json.loads(text.translate(VISIBLE_TABLE)) == values
