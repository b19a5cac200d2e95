"""An artifact that is replaced while it is verified: it is intact, or was replaced, as is said; never damaged."""

import os
import shutil
from pathlib import Path

import pytest
from interrupted import interrupted
from sealed_sets import seal_set

from pipeline_assets.corpus.formats.memmap import BOUNDARIES, INPUT_IDS
from pipeline_assets.corpus.spine import artifact, durable
from pipeline_assets.corpus.spine.artifact import open_artifact
from pipeline_assets.corpus.spine.errors import InputError, RetryableError
from pipeline_assets.corpus.spine.rehash import Journal
from pipeline_assets.corpus.trust import verify
from pipeline_assets.corpus.trust.result import Scope
from pipeline_assets.systems.registry import files_match_manifest

READERS = (verify, artifact)


def verified(folder: Path) -> str:
    """The verdict, or the error's line."""
    try:
        found = verify.look_at_chain(folder, Scope())
        verify.hold(found, Journal(None))
    except InputError as error:
        return str(error)
    return found.verdict


@pytest.fixture(autouse=True)
def nothing_waits_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def test_what_is_replaced_before_any_line_of_the_verification_is_not_called_damaged(tmp_path: Path) -> None:
    folder = seal_set(tmp_path, "a")
    answer, lines = interrupted(lambda: verified(folder), READERS, {})
    answers = {answer}

    for line in range(1, lines + 1):
        seal_set(tmp_path, "a")
        answers.add(interrupted(lambda: verified(folder), READERS, {line: lambda: seal_set(tmp_path, "b")})[0])

    assert answers == {"intact", f"{folder}: it was replaced while it was read; run the same command again"}


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="no system call exchanges folders there")
def test_folders_that_change_places_and_back_are_not_called_damaged(tmp_path: Path) -> None:
    folder, other = seal_set(tmp_path, "a"), seal_set(tmp_path / "other", "b")
    answer, lines = interrupted(lambda: verified(folder), READERS, {})
    answers = {answer}

    def change_places() -> None:
        assert durable.exchange(other, folder)

    for first in range(1, lines + 1, 4):
        for second in range(first + 1, lines + 60, 13):
            swaps = {first: change_places, second: change_places}
            answers.add(interrupted(lambda: verified(folder), READERS, swaps)[0])

    assert answers == {"intact", f"{folder}: it was replaced while it was read; run the same command again"}


def test_what_is_damaged_is_still_called_damaged(tmp_path: Path) -> None:
    folder = seal_set(tmp_path, "a")
    (folder / INPUT_IDS).chmod(0o644)
    (folder / INPUT_IDS).write_bytes(bytes((folder / INPUT_IDS).stat().st_size))

    assert verified(folder) == "damaged"

    (folder / BOUNDARIES).unlink()
    (folder / "stranger").write_text("")

    assert verified(folder) == "damaged"


def test_a_folder_that_is_gone_at_the_end_is_said_to_be_replaced(tmp_path: Path) -> None:
    folder = seal_set(tmp_path, "a")
    found = verify.look_at_chain(folder, Scope())
    shutil.rmtree(folder)

    with pytest.raises(RetryableError, match="it was replaced while it was read; run the same command again"):
        verify.hold(found, Journal(None))


def test_a_check_of_an_artifact_that_is_replaced_meanwhile_has_no_verdict(tmp_path: Path) -> None:
    sealed = open_artifact(seal_set(tmp_path, "a"))
    (_, lines), answers = interrupted(lambda: files_match_manifest(sealed), (artifact,), {}), set()

    for line in range(1, lines + 1, 3):
        seal_set(tmp_path, "a")
        try:
            verdict, _ = interrupted(
                lambda: files_match_manifest(sealed), (artifact,), {line: lambda: seal_set(tmp_path, "b")}
            )
            answers.add(verdict.because)
        except RetryableError as error:
            answers.add(error.what)

    assert answers == {"it was replaced while it was read"}
