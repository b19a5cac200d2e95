"""The scratch folder is alone, gone on with under an equal ticket, and nothing else takes it for an artifact."""

from pathlib import Path

import pytest

from pipeline_assets.corpus.spine.lineage import Lineage
from pipeline_assets.corpus.spine.lock import BuilderBusy
from pipeline_assets.corpus.trust.rebuild import leftovers, scratch_folder

TICKET = {"digest": "sha256:1", "versions": {"python": "3.11"}}


def left_by_a_crash(root: Path) -> None:
    """A rebuild that wrote one file and was stopped."""
    with pytest.raises(KeyboardInterrupt), scratch_folder(root, "words", TICKET) as scratch:
        (scratch.folder / "done").write_text("one")
        raise KeyboardInterrupt


@pytest.mark.parametrize(("ticket", "goes_on"), [(TICKET, True), ({**TICKET, "versions": {"python": "3.12"}}, False)])
def test_what_a_crash_left_is_gone_on_with_under_an_equal_ticket_alone(
    ticket: dict[str, object], goes_on: bool, tmp_path: Path
) -> None:
    left_by_a_crash(tmp_path)

    with scratch_folder(tmp_path, "words", ticket) as scratch:
        assert (scratch.folder / "done").exists() == goes_on


def test_what_a_crash_left_of_keeping_or_removing_is_no_beginning(tmp_path: Path) -> None:
    left_by_a_crash(tmp_path)
    (tmp_path / "rebuilds" / "words.unfinished" / "rebuild.json").unlink()

    with scratch_folder(tmp_path, "words", TICKET) as scratch:
        assert not (scratch.folder / "done").exists()


def test_what_is_kept_takes_the_place_of_what_was_kept_before(tmp_path: Path) -> None:
    for word in ("one", "two"):
        with scratch_folder(tmp_path, "words", TICKET) as scratch:
            (scratch.folder / word).write_text(word)
            scratch.keep()

    assert sorted(path.name for path in (tmp_path / "rebuilds").rglob("*")) == ["two", "words"]


@pytest.mark.parametrize("name", ["notes.unfinished-0123456789ab", "notes.replaced-0123456789ab"])
def test_what_is_kept_of_an_artifact_named_like_a_leftover_is_told_as_kept(tmp_path: Path, name: str) -> None:
    with scratch_folder(tmp_path, name, TICKET) as scratch:
        scratch.keep()

    assert [(left.name, left.is_finished) for left in leftovers(tmp_path)] == [(name, True)]


def test_removing_leaves_what_was_kept_before(tmp_path: Path) -> None:
    for word in ("one", "two"):
        with scratch_folder(tmp_path, "words", TICKET) as scratch:
            (scratch.folder / word).write_text(word)
            scratch.keep() if word == "one" else scratch.remove()

    assert sorted(path.name for path in (tmp_path / "rebuilds").rglob("*")) == ["one", "words"]


def test_one_is_at_work_at_a_time(tmp_path: Path) -> None:
    with (
        scratch_folder(tmp_path, "words", TICKET),
        pytest.raises(BuilderBusy),
        scratch_folder(tmp_path, "words", TICKET),
    ):
        raise AssertionError("unreachable")


def test_a_sealed_copy_in_it_is_no_artifact_of_the_data_root(tmp_path: Path) -> None:
    with scratch_folder(tmp_path, "words", TICKET) as scratch:
        copy = scratch.folder / "megatron" / "copy"
        copy.mkdir(parents=True)
        (copy / "manifest.json").write_text("{")

        assert not Lineage(tmp_path).sealed and not Lineage(tmp_path).unreadable
