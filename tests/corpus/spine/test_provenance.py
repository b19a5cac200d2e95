"""Provenance: what is true of a build and changes no byte of it."""

import datetime
import json
from pathlib import Path

import pytest

from pipeline_assets.corpus.spine.usage import Stopwatch, git_sha, library_versions


def test_a_build_records_when_where_with_what_and_how_it_was_run() -> None:
    stopwatch = Stopwatch()

    record = stopwatch.provenance({"workers": 2})

    known = ["cpu_seconds", "git_sha", "host", "libraries", "platform", "python"]
    assert sorted(record) == [*known, "run_settings", "seconds", "started_at_utc"]
    assert record["run_settings"] == {"workers": 2}
    assert record["seconds"] >= 0
    assert datetime.datetime.fromisoformat(record["started_at_utc"]).utcoffset() == datetime.timedelta(0)
    assert json.loads(json.dumps(record)) == record


def test_the_libraries_that_could_have_a_part_in_the_bytes_are_recorded() -> None:
    import pyarrow
    import zstandard

    versions = library_versions()

    assert (versions["pyarrow"], versions["zstandard"]) == (pyarrow.__version__, zstandard.__version__)


def test_outside_a_git_checkout_there_is_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "nothing"))

    assert git_sha.__wrapped__() is None


def test_without_git_there_is_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    assert git_sha.__wrapped__() is None
