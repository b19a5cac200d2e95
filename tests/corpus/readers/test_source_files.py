"""Files of a source: patterns, order and byte ranges."""

import contextlib
import glob
import gzip
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refusal

from pipeline_assets.corpus.readers.source_folder import (
    ByteRange,
    SourceFile,
    list_files,
    open_source,
    split_byte_ranges,
)
from pipeline_assets.spine.errors import InputError, RetryableError, UsageError


@pytest.fixture
def root(tmp_path: Path) -> Path:
    names = ["b.jsonl", "a.jsonl", "deep/er/c.jsonl", "deep/a.jsonl.gz", ".hidden.jsonl", "notes [1].txt"]
    for name in names:
        path = tmp_path / "corpus" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())
    return tmp_path / "corpus"


def test_files_are_sorted_by_name_and_have_sizes(root: Path) -> None:
    files = list_files(root, ["b.jsonl", "*.jsonl", "./a.jsonl"])

    assert files == [SourceFile(root / "a.jsonl", "a.jsonl", 7), SourceFile(root / "b.jsonl", "b.jsonl", 7)]


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("**/*.jsonl*", ["a.jsonl", "b.jsonl", "deep/a.jsonl.gz", "deep/er/c.jsonl"]),
        ("deep/*", ["deep/a.jsonl.gz"]),
        ("notes [1].txt", ["notes [1].txt"]),
    ],
)
def test_one_star_matches_within_a_folder_and_two_stars_across(root: Path, pattern: str, names: list[str]) -> None:
    assert [file.name for file in list_files(root, [pattern])] == names


@pytest.mark.parametrize("pattern", ["*", "**/*", "deep/er/*", "deep/**/*.jsonl"])
def test_an_unreadable_folder_is_an_error(root: Path, pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    unreadable = root if pattern == "*" else root / "deep" / "er"
    scandir = os.scandir

    def refuse(path: str | Path = ".") -> object:
        if isinstance(path, str | Path) and Path(path).resolve() == unreadable.resolve():
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    monkeypatch.setattr(os, "listdir", lambda path: [entry.name for entry in os.scandir(path)])

    assert refusal(lambda: list_files(root, [pattern]), RetryableError) == (
        f"{unreadable}: the folder cannot be read (Permission denied); grant read permission, or narrow the pattern"
    )


OUT = "leads out of the folder; write patterns relative to this folder"


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("*.parquet", ": no file matches '*.parquet'; correct `files`; the folder contains .hidden.jsonl, a.jsonl, b."),
        ("deep/er/*.txt", "/deep/er: no file matches 'deep/er/*.txt'; correct `files`; the folder contains c.jsonl"),
        ("deep", ": the pattern 'deep' matches only folders; write deep/* for the files in the folder"),
        ("", ": the pattern '' matches only folders; write * for the files in the folder"),
        ("/etc/*", f": the pattern '/etc/*' {OUT}"),
        ("../*", f": the pattern '../*' {OUT}"),
    ],
)
def test_a_pattern_without_files_is_refused_with_a_listing(root: Path, pattern: str, message: str) -> None:
    assert refusal(lambda: list_files(root, ["a.jsonl", pattern]), UsageError).startswith(f"{root}{message}")


def test_a_missing_folder_is_an_error(root: Path) -> None:
    with pytest.raises(UsageError, match="nowhere: folder not found; correct the source's folder"):
        list_files(root / "nowhere", ["*"])
    with pytest.raises(UsageError, match=r"a\.jsonl: expected a folder, got a file; correct the source's folder"):
        list_files(root / "a.jsonl", ["*"])


def test_a_broken_link_is_an_error_unless_it_is_excluded(root: Path) -> None:
    (root / "c.jsonl").symlink_to("gone")

    with pytest.raises(UsageError, match=r"or a broken link; .* in `exclude`, which only local sources have$"):
        list_files(root, ["*.jsonl"])
    assert [file.name for file in list_files(root, ["*.jsonl"], ["c.jsonl"])] == ["a.jsonl", "b.jsonl"]


@pytest.mark.parametrize("pattern", ["/etc", "../*", "deep/../a.jsonl"])
def test_an_excluded_pattern_outside_the_folder_is_refused(root: Path, pattern: str) -> None:
    message = refusal(lambda: list_files(root, ["*.jsonl"], [pattern]), UsageError)

    assert message == f"{root}: the pattern {pattern!r} {OUT}"


def test_links_are_followed_except_to_a_folder_that_contains_them(tmp_path: Path) -> None:
    for name in ("in/a/x.txt", "in/b/y.txt", "beside.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("text")
    links = {"in/a/self": ".", "in/a/up": "../..", "in/a/to_b": "../b", "in/b/to_a": "../a", "in/b/loop": "loop"}
    for name, target in links.items():
        (tmp_path / name).symlink_to(target)

    names = [file.name for file in list_files(tmp_path / "in", ["**/*.txt"])]

    assert names == ["a/to_b/y.txt", "a/x.txt", "b/to_a/x.txt", "b/y.txt"]


NAMES = st.sampled_from(["a", "b.txt", ".c", "d.jsonl", "[e]"])


@given(
    files=st.lists(st.lists(NAMES, min_size=1, max_size=4), min_size=1, max_size=8),
    pattern=st.lists(st.sampled_from(["**", "*", "*.txt", "a", ".*", "?.*", "[ae]", "[[]e]"]), min_size=1, max_size=4),
)
def test_patterns_match_the_files_that_glob_matches(
    tmp_path_factory: pytest.TempPathFactory, files: list[list[str]], pattern: list[str]
) -> None:
    root = tmp_path_factory.mktemp("tree")
    for parts in files:
        with contextlib.suppress(OSError):  # a parent is already a file
            root.joinpath(*parts).parent.mkdir(parents=True, exist_ok=True)
            root.joinpath(*parts).write_text("text")
    text = "/".join(pattern)
    expected = sorted(
        {name for name in glob.glob(text, root_dir=root, recursive=True) if os.path.isfile(f"{root}/{name}")}
    )

    try:
        files_listed = [file.name for file in list_files(root, [text])]
    except UsageError:
        files_listed = []

    assert files_listed == expected


def test_a_file_name_that_is_not_utf8_is_an_error(root: Path) -> None:
    try:
        Path(os.fsdecode(os.fsencode(root) + b"/\xff.jsonl")).write_bytes(b"")
    except OSError:
        pytest.skip("this file system holds UTF-8 names only")

    with pytest.raises(UsageError, match="the file name is not UTF-8"):
        list_files(root, ["*.jsonl"])


@given(size=st.integers(0, 50), range_bytes=st.integers(4, 60))
def test_ranges_cover_a_file_without_gap_or_overlap(
    tmp_path_factory: pytest.TempPathFactory, size: int, range_bytes: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "ranges"
    path.write_bytes(b"x" * size)

    ranges = split_byte_ranges(SourceFile(path, "x", size), range_bytes)

    assert sum(piece.bytes for piece in ranges) == size
    bounds = [(piece.start, size if piece.stop is None else piece.stop) for piece in ranges]
    assert [start for start, _ in bounds] == [0, *(stop for _, stop in bounds)][:-1]
    assert bounds[-1][1] == size
    assert all(stop - start == range_bytes for start, stop in bounds[:-1])


def test_a_compressed_file_is_one_range_under_any_name(source: Callable[..., SourceFile]) -> None:
    file = source(gzip.compress(bytes(range(256)) * 9), "a.jsonl")

    [piece] = split_byte_ranges(file, 10)

    assert (piece, piece.bytes) == (ByteRange(file, 0, None), file.bytes)


def test_a_file_changed_since_its_listing_or_missing_is_an_error(source: Callable[..., SourceFile]) -> None:
    file = source(b"one\n")
    file.path.write_bytes(b"one\ntwo\n")

    assert refusal(lambda: open_source(file)) == (
        f"{file.path}: the file has 8 bytes, but had 4 when it was listed; stop writing to the file, and run again"
    )
    file.path.unlink()
    with pytest.raises(InputError, match=r"the file cannot be read \(No such file or directory\)"):
        open_source(file)
