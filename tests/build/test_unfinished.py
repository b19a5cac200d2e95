"""Unfinished builds resume unless their work files have another format."""

import logging
from pathlib import Path

import pytest
from word_artifact import Words, build_words, write_words

from pipeline_assets.build import target
from pipeline_assets.spine.stage import Window
from pipeline_assets.spine.staging import Receipt, StagingView


def fail_at_c(shard: Words, window: Window, folder: StagingView) -> Receipt:
    if shard.name == "c":
        raise OSError("no more")
    return write_words(shard, window, folder)


@pytest.mark.parametrize(("version", "adopted"), [(2, ["write: 2 of 3 shards were finished earlier"]), (3, [])])
def test_finished_shards_are_reused_if_work_files_have_the_same_format(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, version: int, adopted: list[str]
) -> None:
    monkeypatch.setattr(target, "WORK_FILES_VERSION", 2)
    with pytest.raises(OSError, match="no more"):
        build_words(tmp_path, "english", fail_at_c)

    monkeypatch.setattr(target, "WORK_FILES_VERSION", version)
    with caplog.at_level(logging.INFO, "corpusmill"):
        built = build_words(tmp_path, "english")

    assert [message for message in caplog.messages if "finished earlier" in message] == adopted
    assert built.path("parts/a.txt").read_text() == "ONE\nTWO\n"
