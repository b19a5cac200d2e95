"""What is damaged is said to be, stays unless it is to be replaced, and is built again to the same digest."""

from collections.abc import Callable
from pathlib import Path

import pytest
from word_artifact import build_words, target_of, words_in
from word_targets import COUNT, ENGLISH_WORDS, build, never

from pipeline_assets.corpus.spine.errors import InputError, UsageError


def remove_a_file(folder: Path) -> tuple[str, str]:
    (folder / "parts/a.txt").unlink()
    return "parts/a.txt", "the file is missing"


def cut_a_file(folder: Path) -> tuple[str, str]:
    (folder / "parts/b.txt").chmod(0o644)
    (folder / "parts/b.txt").write_bytes(b"THREE\n")
    return "parts/b.txt", "has 6 bytes, sealed with 16"


def spoil_the_manifest(folder: Path) -> tuple[str, str]:
    (folder / "manifest.json").write_bytes(b"[]")
    return "manifest.json", "this is no manifest: Expected `object`, got `array`"


DAMAGE = pytest.mark.parametrize("damage", [remove_a_file, cut_a_file, spoil_the_manifest])


@DAMAGE
def test_what_lost_a_file_or_its_manifest_is_damaged_and_says_where(
    tmp_path: Path, damage: Callable[[Path], tuple[str, str]]
) -> None:
    folder = build_words(tmp_path, "english").folder

    name, what = damage(folder)

    assert ENGLISH_WORDS.state(tmp_path) == ("damaged", f"{folder / name}: {what}")
    assert target_of("french").state(tmp_path) == ("damaged", f"{folder / name}: {what}")


@DAMAGE
def test_without_replace_what_is_damaged_stays_as_it_is(
    tmp_path: Path, damage: Callable[[Path], tuple[str, str]]
) -> None:
    folder = build_words(tmp_path, "english").folder
    name, what = damage(folder)

    with pytest.raises(InputError) as refused:
        build(ENGLISH_WORDS, tmp_path, never)

    assert not isinstance(refused.value, UsageError)
    assert str(refused.value) == (
        f"{folder}: it is damaged ({folder / name}: {what}); run with --replace to build it again"
    )
    assert ENGLISH_WORDS.state(tmp_path)[0] == "damaged"


@DAMAGE
def test_with_replace_what_is_damaged_is_built_again_to_the_same_digest(
    tmp_path: Path, damage: Callable[[Path], tuple[str, str]]
) -> None:
    sealed = build_words(tmp_path, "english")
    damage(sealed.folder)

    again = build_words(tmp_path, "english")  # it replaces what is there

    assert again.manifest.digest == sealed.manifest.digest
    assert ENGLISH_WORDS.state(tmp_path) == ("current", sealed.manifest.digest)
    assert words_in(sealed.folder) == ["ONE", "TWO", "THREE", "FOUR", "FIVE", "SIX"]


def test_what_is_made_from_something_with_a_spoilt_manifest_is_stale_until_that_is_built_again(tmp_path: Path) -> None:
    folder = build_words(tmp_path, "english").folder
    made = build(COUNT, tmp_path)

    spoil_the_manifest(folder)
    spoilt = COUNT.state(tmp_path)
    build_words(tmp_path, "english")

    assert spoilt == ("stale", f"words is damaged ({folder / 'manifest.json'})")
    assert COUNT.state(tmp_path) == ("current", made.manifest.digest)
