"""Metadata files are read without waiting, up to a size and into a type."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from refusals import refusal

from pipeline_assets.spine.metadata_file import MetadataFormat

NOTE: MetadataFormat[dict[str, int]] = MetadataFormat("note", 20, "write it again", dict[str, int])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "note.json"


def link_to_itself(path: Path) -> None:
    path.symlink_to(path)


def link_to_zeros(path: Path) -> None:
    path.symlink_to("/dev/zero")


def link_to_another(path: Path) -> None:
    path.with_name("another.json").write_text('{"a": 1}')
    path.symlink_to("another.json")


def bind_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


def test_written_content_is_read(path: Path) -> None:
    path.write_text('{"a": 1, "b": 2}\n')

    assert NOTE.read(path) == {"a": 1, "b": 2}


def test_missing_file_is_an_os_error(path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        NOTE.read(path)

    path.write_text("a file where a folder would be")
    with pytest.raises(NotADirectoryError):
        NOTE.read(path / "note.json")


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (Path.mkdir, "the path is a folder"),
        (os.mkfifo, "the path is a pipe or a device"),
        (bind_socket, "cannot be read (No such device or address)"),
        (link_to_itself, "the path is a link"),
        (link_to_zeros, "the path is a link"),
        (link_to_another, "the path is a link"),
    ],
)
def test_path_that_is_not_a_plain_file_is_refused(path: Path, make: Callable[[Path], object], complaint: str) -> None:
    make(path)

    assert refusal(lambda: NOTE.read(path)) == f"{path}: not a valid note: {complaint}; write it again"


def test_allowed_link_is_followed_only_to_a_plain_file(path: Path) -> None:
    symlink_format = MetadataFormat("note", 20, "write it again", dict[str, int], allow_symlink=True)
    link_to_another(path)

    assert symlink_format.read(path) == {"a": 1}
    path.unlink()
    link_to_zeros(path)
    assert "the path is a pipe or a device" in refusal(lambda: symlink_format.read(path))
    path.unlink()
    link_to_itself(path)
    assert "Too many levels of symbolic links" in refusal(lambda: symlink_format.read(path))


def test_file_above_the_size_limit_is_refused(path: Path) -> None:
    path.write_text('{"a": 1}'.ljust(20))
    assert NOTE.read(path) == {"a": 1}

    with open(path, "r+b") as file:
        file.truncate(1 << 40)

    assert "the file has more than 20 bytes" in refusal(lambda: NOTE.read(path))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (b"", "invalid JSON (Input data was truncated)"),
        (b'{"a": 1', "invalid JSON (Input data was truncated)"),
        (b'{"a": NaN}', "invalid JSON (JSON is malformed: invalid character (byte 6))"),
        (b'{"a": 1e999}', "invalid JSON (Number out of range - at `$[...]`)"),
        (b'{"\xff": 1}', "invalid JSON ('utf-8' codec can't decode byte 0xff in position 0: invalid start byte)"),
        (b'{"a": "\\ud800"}', "invalid JSON (Input data was truncated)"),
        (b"7", "Expected `object`, got `int`"),
        (b'{"a": "1"}', "Expected `int`, got `str` - at `$[...]`"),
        (b'{"a": true}', "Expected `int`, got `bool` - at `$[...]`"),
        (b"[" * 100_000, "invalid JSON (maximum recursion depth exceeded while deserializing an object)"),
        (b'{"a": ' * 200 + b"1" + b"}" * 200, "JSON is nested deeper than 100 levels"),
        (b"9" * 5_000, "invalid JSON (Integer value out of range)"),
        (b'{"a": 1' + b"0" * 40 + b"}", "a number has more than 64 bits"),
    ],
)
def test_invalid_content_is_refused_in_one_line(path: Path, text: bytes, complaint: str) -> None:
    assert refusal(lambda: NOTE.parse(text, path)) == f"{path}: not a valid note: {complaint}; write it again"
