"""Check of the hub cache: files kept whole, in part or not at all, and damage."""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from pipeline_assets.build.pins.files_check import CACHE_FIX, HubCacheCheck, check_hub_cache
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.readers.hub_listing import HubFile, read_listing, write_listing
from pipeline_assets.spine.progress import Progress
from pipeline_assets.spine.rehash import rehash

DATASET = "maker/pages"
BYTES = bytes(range(256)) * 4
OTHER = f"sha256:{'0' * 64}"
Entry = dict[str, object]


@dataclass
class Cache:
    """A cache of maker/pages at a commit, and the check of its files."""

    files: HubFiles
    commit: str

    def listed(self, name: str) -> HubFile:
        return next(file for file in self.files.list_files(DATASET, self.commit) if file.path == name)

    def entry(self, name: str, *spans: tuple[int, int]) -> Entry:
        """Return a file as manifests list it, with these spans as its row groups."""
        file = self.listed(name)
        entry: Entry = {"name": f"{DATASET}@{self.commit}:{name}", "digest": file.digest, "bytes": file.size}
        return entry | {"row_groups": [{"start": start, "stop": stop} for start, stop in spans]} if spans else entry

    def fetch(self, name: str, *spans: tuple[int, int]) -> list[Path]:
        file = self.listed(name)
        return [self.files.fetch(DATASET, self.commit, file, start, stop).path for start, stop in spans]

    def check(self, *entries: Entry) -> HubCacheCheck:
        return check_hub_cache(self.files.cache, {"sha256:artifact": list(entries)})


@pytest.fixture
def cache(hub_files: HubFiles, publish: Callable[..., str]) -> Cache:
    return Cache(hub_files, publish({"a.parquet": BYTES, "notes.txt": b"in git\n"}))


def list_complaints(check: HubCacheCheck) -> list[str]:
    size = sum(task.bytes for task in check.tasks)
    results = rehash(check.tasks, 1, Progress("verify", size, "bytes", log_every_s=1000))
    return [message for _, message in results if message is not None]


def flip(path: Path) -> None:
    path.write_bytes(bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:])


@pytest.mark.parametrize("spans", [[(0, 1024)], [(0, 400), (400, 1024)], [(700, 1024), (0, 300), (300, 700)]])
def test_a_whole_file_is_compared_with_its_hash_on_the_hub(cache: Cache, spans: list[tuple[int, int]]) -> None:
    local = cache.fetch("a.parquet", *spans)
    listed = cache.entry("a.parquet", (4, 300))

    check = cache.check(listed)

    assert (check.whole_files, check.partial_files, check.unavailable) == ([listed["name"]], [], [])
    assert [(task.name, task.paths, f"sha256:{task.expected_hash}") for task in check.tasks] == [
        (listed["name"], tuple(sorted(local, key=lambda path: int(path.name.split("-")[0]))), listed["digest"])
    ]
    assert list_complaints(check) == []
    flip(local[-1])
    assert len(list_complaints(cache.check(listed))) == 1


def test_a_git_file_is_compared_with_its_blob_hash(cache: Cache) -> None:
    [local] = cache.fetch("notes.txt", (0, 7))

    check = cache.check(cache.entry("notes.txt"))

    assert [task.algorithm for task in check.tasks] == ["git-sha1"]
    assert list_complaints(check) == []
    flip(local)
    assert list_complaints(check)[0].startswith("git-sha1 is ")


def test_parts_are_compared_with_the_hashes_of_their_downloads(cache: Cache) -> None:
    cache.fetch("a.parquet", (900, 1024))
    [group] = cache.fetch("a.parquet", (100, 300))
    listed = cache.entry("a.parquet", (100, 300))

    check = cache.check(listed)

    assert (check.whole_files, check.partial_files, check.unavailable) == ([], [listed["name"]], [])
    assert sorted(task.name for task in check.tasks) == [
        f"{listed['name']} bytes 100-300",
        f"{listed['name']} bytes 900-1024",
    ]
    flip(group)
    [message] = list_complaints(check)
    assert message.endswith(f", fetched with {group.suffix[1:]}")


def test_row_groups_may_span_several_parts_but_no_gap(cache: Cache) -> None:
    cache.fetch("a.parquet", (100, 300), (300, 500), (600, 1024))
    covered = cache.entry("a.parquet", (150, 450), (700, 800))
    in_a_gap = cache.entry("a.parquet", (150, 450), (450, 700))

    assert cache.check(covered).partial_files == [covered["name"]]
    assert cache.check(in_a_gap).unavailable == [in_a_gap["name"]]


def test_removed_cache_files_are_unavailable_but_not_a_finding(cache: Cache) -> None:
    listed, other = cache.entry("a.parquet", (100, 300)), {"name": "dump.xml.bz2", "digest": "sha256:00", "bytes": 7}
    emptied = replace(cache, files=replace(cache.files, cache=Path("nowhere")))

    for checked in (cache, emptied):
        check = checked.check(listed, cache.entry("notes.txt"), other)

        assert (check.listed_count, check.unavailable) == (2, [listed["name"]])
        assert (check.unsearched_names, check.tasks, check.findings) == (["dump.xml.bz2"], [], [])


def test_a_manifest_without_row_groups_needs_whole_files(cache: Cache) -> None:
    cache.fetch("notes.txt", (0, 7))
    cache.fetch("a.parquet", (100, 300))
    listed = [cache.entry("notes.txt"), cache.entry("a.parquet")]

    check = cache.check(*listed)

    assert (check.whole_files, check.partial_files, check.unavailable) == ([listed[0]["name"]], [], [listed[1]["name"]])


def test_a_span_of_another_size_is_a_finding(cache: Cache) -> None:
    [local] = cache.fetch("a.parquet", (100, 300))
    local.write_bytes(b"short")
    local.with_name("300-500.part").write_bytes(b"a download in hand")

    check = cache.check(cache.entry("a.parquet", (100, 300)))

    assert [(finding.where, finding.what) for finding in check.findings] == [
        (local, f"has 5 bytes, fetched with 200; {CACHE_FIX}")
    ]
    assert (len(check.unavailable), check.tasks) == (1, [])


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"size": 7}, "{digest} of 7 bytes"),
        ({"digest": OTHER}, f"{OTHER} of 1024 bytes"),
        ({"path": "b.parquet"}, "missing"),
    ],
)
def test_a_contradicting_cached_listing_is_a_finding(cache: Cache, change: dict[str, object], what: str) -> None:
    listed = cache.entry("a.parquet")
    path = cache.files.listing_path(DATASET, cache.commit)
    files = [replace(file, **change) if file.path == "a.parquet" else file for file in read_listing(path)]
    write_listing(path, files)

    [finding] = cache.check(listed).findings

    assert (finding.where, finding.artifact_digest) == (path, "sha256:artifact")
    stated, found = f"{listed['digest']} of 1024 bytes", what.format(digest=listed["digest"])
    assert finding.what == f"a.parquet is {found} in the listing, the manifest lists {stated}; {CACHE_FIX}"


def test_a_flipped_bit_in_a_cached_listing_is_a_finding_or_harmless(cache: Cache) -> None:
    listed, listing = cache.entry("a.parquet"), cache.files.list_files(DATASET, cache.commit)
    path, rng = cache.files.listing_path(DATASET, cache.commit), random.Random(4)
    original = path.read_bytes()

    for _ in range(200):
        flipped = bytearray(original)
        flipped[rng.randrange(len(original))] ^= 1 << rng.randrange(8)
        path.write_bytes(flipped)

        check = cache.check(listed).findings

        assert [finding.where for finding in check] == [path] or read_listing(path) == listing


@pytest.mark.parametrize("data", [b"{", b"7", b"[7]", b'{"files": [{"path": "a.parquet"}]}', b"\xff"])
def test_an_unreadable_cached_listing_is_a_finding(cache: Cache, data: bytes) -> None:
    listed = cache.entry("a.parquet")
    cache.files.listing_path(DATASET, cache.commit).write_bytes(data)

    [finding] = cache.check(listed).findings

    assert finding.what.startswith("the listing cannot be read (")


def test_a_file_of_two_artifacts_is_checked_once(cache: Cache) -> None:
    cache.fetch("a.parquet", (0, 1024))
    listed = cache.entry("a.parquet", (4, 300))

    check = check_hub_cache(cache.files.cache, {"sha256:one": [listed], "sha256:two": [listed]})

    assert (check.listed_count, len(check.tasks)) == (1, 1)
