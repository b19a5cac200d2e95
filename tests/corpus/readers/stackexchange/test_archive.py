"""Archives of sites: a damaged or forged .7z is refused and leaves nothing.

Every fault is found in pass 1, so that no archive gives a partial corpus.
"""

import functools
import random
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import py7zr
import pytest
from archives_7z import archive, linked, renamed, resized, stored
from posts_xml import END, answer, dump, question
from refusals import refusal

from pipeline_assets.corpus.document import Document
from pipeline_assets.corpus.readers.stackexchange.archive import _BLOCK_BYTES, posts_bytes, site_host
from pipeline_assets.corpus.readers.stackexchange.spill import plan_spill, spill_rows
from pipeline_assets.spine.engine import RunSettings, run_stage
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.opening import open_staging_dir

ROWS = [row for number in range(1, 400, 2) for row in (question(number), answer(number + 1, number))]
POSTS = dump(*ROWS)


@functools.cache
def site() -> bytes:
    return archive(("Badges.xml", b"<badges/>"), ("Posts.xml", POSTS))


def spill_archive(file: Path, target: Path) -> int:
    """Run pass 1 in small runs and return the number of rows."""
    work = partial(spill_rows, run_bytes=5000)
    with open_staging_dir(target, {"site": "garden"}) as staging:
        [receipt] = run_stage("spill", work, plan_spill(file), staging, RunSettings())
    return receipt.counts["rows"]


def list_names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def flip_bit(packed: bytes, index: int) -> bytes:
    return packed[:index] + bytes([packed[index] ^ 1]) + packed[index + 1 :]


POSTS_XML = ("Posts.xml", POSTS)
FETCH, UNPACK, NO_POSTS = "fetch it again", "unpack it yourself", "pass an archive with one Posts.xml"
TRUST = "if you trust the archive, unpack it yourself; otherwise fetch it again"
OUTSIDE, COUNT = "a file outside its folder, ", "the archive must contain one Posts.xml, got "
NO_HEAD, NO_7Z = "byte 0 is not the head of a Posts.xml", "not a 7z archive: the file "
TRAPS: dict[str, tuple[Callable[[], bytes], str, str]] = {
    "a name that leads up": (lambda: archive(("..\\..\\evil", b"x"), POSTS_XML), f"{OUTSIDE}'../../evil'", FETCH),
    "Posts.xml that leads up": (lambda: archive(("..\\Posts.xml", POSTS)), f"{OUTSIDE}'../Posts.xml'", FETCH),
    "a name from the root": (
        lambda: renamed(archive(("!tmp/evil", b"x"), POSTS_XML), "!tmp/evil", "/tmp/evil"),
        f"{OUTSIDE}'/tmp/evil'",
        FETCH,
    ),
    "a name with a drive": (lambda: archive(("C:\\evil", b"x"), POSTS_XML), f"{OUTSIDE}'C:/evil'", FETCH),
    "two Posts.xml": (
        lambda: archive(("a/Posts.xml", POSTS), ("b/Posts.xml", POSTS)),
        f"{COUNT}2; it contains a/Posts.xml, b/Posts.xml",
        NO_POSTS,
    ),
    "two of one name": (lambda: archive(POSTS_XML, POSTS_XML), f"{COUNT}2; it contains Posts.xml, Posts.xml", NO_POSTS),
    "no Posts.xml": (
        lambda: archive(("Users.xml", b"<users/>"), ("Posts.xml.bak", POSTS)),
        f"{COUNT}0; it contains Posts.xml.bak, Users.xml",
        NO_POSTS,
    ),
    "no file at all": (archive, f"{COUNT}0; it contains nothing", NO_POSTS),
    "a bomb": (
        lambda: archive(("Posts.xml", POSTS[:-8] + b" " * 5_000_000 + b"</posts>")),
        "would unpack to 5,0",
        TRUST,
    ),
    "a bomb beside": (
        lambda: archive(POSTS_XML, ("Votes.xml", bytes(5_000_000))),
        "more than 100 times as many",
        TRUST,
    ),
    "steps without a bound": (
        lambda: archive(POSTS_XML, filters=[{"id": py7zr.FILTER_ZSTD, "level": 3}]),
        "the archive uses ZStandard, which py7zr unpacks without a memory",
        UNPACK,
    ),
    "a size that is too small": (
        lambda: resized(archive(POSTS_XML), len(POSTS), len(POSTS) - 5000),
        "the archive's checksum does not match",
        FETCH,
    ),
    "a size that is too large": (
        lambda: resized(archive(POSTS_XML), len(POSTS), len(POSTS) + 5000),
        "is damaged",
        FETCH,
    ),
    "another byte": (
        lambda: flip_bit(stored(POSTS_XML), 32 + POSTS.index(b"Title 9")),
        "checksum does not match",
        FETCH,
    ),
    "another byte, packed": (lambda: flip_bit(site(), len(site()) // 2), "is damaged", FETCH),
    "another byte in its header": (lambda: flip_bit(site(), len(site()) - 9), "is damaged", FETCH),
    "a password": (lambda: archive(POSTS_XML, password="sesame"), "the archive is encrypted", UNPACK),
    "a password for names": (
        lambda: archive(POSTS_XML, password="sesame", header_encryption=True),
        "the archive is encrypted",
        UNPACK,
    ),
    "cut in its first bytes": (lambda: site()[:20], "is damaged", FETCH),
    "cut in half": (lambda: site()[: len(site()) // 2], "is damaged", FETCH),
    "cut in its last byte": (lambda: site()[:-1], "is damaged", FETCH),
    "a page that says 404": (lambda: b"<html>Not found</html>", f"{NO_7Z}begins with '<html>Not found", FETCH),
    "empty": (lambda: b"", f"{NO_7Z}is empty", FETCH),
    "cut in its name": (lambda: site()[:4], f"{NO_7Z}begins with '7z", FETCH),
    "a Posts.xml that is none": (
        lambda: archive(("Posts.xml", b"<users></users>" + random.Random(7).randbytes(1 << 20))),
        NO_HEAD,
        "fetch the file again",
    ),
    "text between rows": (
        lambda: archive(("Posts.xml", POSTS.removesuffix(END) + b"and so on" + END)),
        f"Posts.xml: byte {len(POSTS) - len(END):,} is not part of a complete row: 'and",
        "fetch the file again",
    ),
    "a link": (lambda: linked("/etc/passwd", "Posts.xml"), NO_HEAD, "fetch the file again"),
    "a Posts.xml that is cut off": (lambda: archive(("Posts.xml", POSTS[:-60])), "the file is truncated", FETCH),
}


@pytest.mark.parametrize("trap", TRAPS)
def test_an_untrusted_archive_is_refused_and_leaves_nothing(
    trap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content, message, fix = TRAPS[trap]
    working = tmp_path / "a" / "b" / "c"
    working.mkdir(parents=True)
    monkeypatch.chdir(working)
    file = working / "garden.example.org.7z"
    file.write_bytes(content())
    target = tmp_path / "built" / "garden"
    target.parent.mkdir()
    before = list_names(tmp_path)

    error_line = refusal(lambda: spill_archive(file, target))

    assert error_line.startswith(str(file)) and message in error_line and fix in error_line and "\n" not in error_line
    assert [name for name in list_names(tmp_path) if not name.startswith("built/")] == before
    assert not [thread for thread in threading.enumerate() if "ThreadPool" in thread.name]  # the unpacking thread ended
    leftovers = [name for name in list_names(tmp_path / "built") if "building" in name]
    assert not [name for name in leftovers if name.endswith(".tmp") or ".receipts" in name]
    file.write_bytes(site())
    assert spill_archive(file, target) == len(ROWS)


def test_an_abandoned_reader_ends_its_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, read_on = tmp_path / "garden.7z", [False]
    file.write_bytes(site())

    class Skipping(py7zr.SevenZipFile):
        def extract(self, *args: Any, **named: Any) -> None:
            pipe = named["factory"].create("Posts.xml")
            pipe.write(bytes(_BLOCK_BYTES))
            pipe.flush()
            for _ in range(1 << 24):  # takes seconds: a reader still running then was not stopped
                self.fp.seek(0)
            read_on[0] = True

    monkeypatch.setattr("pipeline_assets.corpus.readers.stackexchange.archive.require_py7zr", lambda file: Skipping)
    blocks = posts_bytes(file)

    assert len(next(blocks)) == _BLOCK_BYTES  # more than a pipe holds
    blocks.close()

    assert not read_on[0]
    assert not [thread for thread in threading.enumerate() if "ThreadPool" in thread.name]


def test_an_archive_gives_the_posts_in_it_from_any_folder(
    read_documents: Callable[..., list[Document]], tmp_path: Path
) -> None:
    expected = read_documents(POSTS)
    file = tmp_path / "garden.7z"

    for content in (site(), archive(("site/Posts.xml", POSTS), ("site/Tags.xml", b"")), stored(POSTS_XML)):
        file.write_bytes(content)
        assert read_documents(file) == expected


@pytest.mark.parametrize(
    ("path", "site"),
    [
        ("beer.stackexchange.com.7z", "beer.stackexchange.com"),
        ("stackoverflow.com-Posts.7z", "stackoverflow.com"),
        ("Coffee.StackExchange.com/Posts.xml", "coffee.stackexchange.com"),
        ("stackoverflow.com-Posts/Posts.xml", "stackoverflow.com"),  # unpacked by `7z x '*.7z' -o*`
    ],
)
def test_the_site_is_found_in_the_path(path: str, site: str, tmp_path: Path) -> None:
    assert site_host(tmp_path / path) == site


@pytest.mark.parametrize(
    "path", ["downloads/Posts.xml", "dump.7z", "a b.com.7z", "beer.stackexchange.com-20240402/Posts.xml"]
)
def test_a_path_without_a_site_is_refused(path: str) -> None:
    with pytest.raises(InputError, match=r"the path does not contain the site; set it, such as stackoverflow\.com"):
        site_host(Path(path))


def test_an_archive_of_another_table_is_refused() -> None:
    assert refusal(lambda: site_host(Path("dumps/stackoverflow.com-Comments.7z"))) == (
        "dumps/stackoverflow.com-Comments.7z: expected a site's posts, got its Comments; pass <site>-Posts.7z"
    )


def test_an_unreadable_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"the file cannot be read \(No such file or directory\); pass a Posts\.xml"):
        plan_spill(tmp_path / "garden.7z")
    with pytest.raises(InputError, match=r"the file cannot be read \(Is a directory\)"):
        plan_spill(tmp_path)
