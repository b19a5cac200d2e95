"""What checks said is kept beside an artifact, for its digest alone; a file that is no record of ours says nothing."""

import os
from pathlib import Path

import pytest

from pipeline_assets.corpus.spine.checks import CheckResult, keep_results, kept_results

PASSED = CheckResult("ledger_adds_up", True, True, "3 in = 3 out")
WARNED = CheckResult("shares_reached", False, False, "notes: asked 10.00%, reached 4.00%")
FAILED = CheckResult("token_budget_met", False, True, "9,303 of 5,000,000 tokens")


def test_what_was_said_is_read_back_and_only_a_blocking_failure_holds_back(tmp_path: Path) -> None:
    keep_results(tmp_path / "words", "sha256:aa", [PASSED, WARNED, FAILED])

    found = kept_results(tmp_path / "words", "sha256:aa")

    assert found == (PASSED, WARNED, FAILED)
    assert [(one.word, one.holds_back) for one in found] == [("passed", False), ("WARNING", False), ("FAILED", True)]
    assert [path.name for path in tmp_path.iterdir()] == [".words.checks.json"]


def test_of_another_digest_it_says_nothing(tmp_path: Path) -> None:
    keep_results(tmp_path / "words", "sha256:aa", [FAILED])

    assert kept_results(tmp_path / "words", "sha256:bb") is None
    assert kept_results(tmp_path / "other", "sha256:aa") is None


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[" * 100_000,
        b'{"schema": "corpusmill/checks/1", "digest": "sha256:aa", "results": 3}',
        b'{"schema": "corpusmill/checks/1", "digest": "sha256:aa", "results": [{"name": "x", "passed": "no"}]}',
        b'{"schema": "corpusmill/checks/9", "digest": "sha256:aa", "results": []}',
        b'{"schema": "corpusmill/checks/1", "digest": "sha256:aa", "results": []' + b" " * (1 << 21) + b"}",
    ],
    ids=["empty", "torn", "deep", "no results", "no result", "another schema", "endless"],
)
def test_what_is_no_record_says_nothing(content: bytes, tmp_path: Path) -> None:
    (tmp_path / ".words.checks.json").write_bytes(content)

    assert kept_results(tmp_path / "words", "sha256:aa") is None


def test_a_link_a_folder_and_a_pipe_are_no_records_and_writing_follows_no_link(tmp_path: Path) -> None:
    keep_results(tmp_path / "other", "sha256:aa", [PASSED])
    place, planted = tmp_path / ".words.checks.json", tmp_path / ".other.checks.json"
    before = planted.read_bytes()

    place.symlink_to(planted)
    of_link = kept_results(tmp_path / "words", "sha256:aa")
    keep_results(tmp_path / "words", "sha256:aa", [FAILED])
    written = planted.read_bytes()
    place.unlink()
    place.mkdir()
    of_folder = kept_results(tmp_path / "words", "sha256:aa")
    place.rmdir()
    os.mkfifo(place)
    of_pipe = kept_results(tmp_path / "words", "sha256:aa")

    assert (of_link, of_folder, of_pipe) == (None, None, None)
    assert written == before
