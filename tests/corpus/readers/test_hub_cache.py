"""What the cache holds of the files that manifests name: whole, in part or not at all, and whether it is still that."""

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
    """A cache of maker/pages at a commit: what is fetched into it, and what it holds of files that a manifest lists."""

    files: HubFiles
    commit: str

    def listed(self, name: str) -> HubFile:
        return next(file for file in self.files.list_files(DATASET, self.commit) if file.path == name)

    def entry(self, name: str, *spans: tuple[int, int]) -> Entry:
        """A file as manifests list it; with spans, as one of which these row groups were read."""
        file = self.listed(name)
        entry: Entry = {"name": f"{DATASET}@{self.commit}:{name}", "digest": file.digest, "bytes": file.size}
        return entry | {"row_groups": [{"start": start, "stop": stop} for start, stop in spans]} if spans else entry

    def fetch(self, name: str, *spans: tuple[int, int]) -> list[Path]:
        file = self.listed(name)
        return [self.files.fetch(DATASET, self.commit, file, start, stop).path for start, stop in spans]

    def held(self, *entries: Entry) -> HubCacheCheck:
        return check_hub_cache(self.files.cache, {"sha256:artifact": list(entries)})


@pytest.fixture
def cache(hub_files: HubFiles, publish: Callable[..., str]) -> Cache:
    return Cache(hub_files, publish({"a.parquet": BYTES, "notes.txt": b"in git\n"}))


def complaints(found: HubCacheCheck) -> list[str]:
    size = sum(task.bytes for task in found.tasks)
    results = rehash(found.tasks, 1, Progress("verify", size, "bytes", log_every_s=1000))
    return [complaint for _, complaint in results if complaint is not None]


def flip(path: Path) -> None:
    path.write_bytes(bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:])


@pytest.mark.parametrize("spans", [[(0, 1024)], [(0, 400), (400, 1024)], [(700, 1024), (0, 300), (300, 700)]])
def test_a_file_that_is_here_from_first_to_last_byte_is_held_against_the_hash_of_the_hub(
    cache: Cache, spans: list[tuple[int, int]]
) -> None:
    local = cache.fetch("a.parquet", *spans)
    listed = cache.entry("a.parquet", (4, 300))

    found = cache.held(listed)

    assert (found.whole_files, found.partial_files, found.unavailable) == ([listed["name"]], [], [])
    assert [(task.name, task.paths, f"sha256:{task.expected_hash}") for task in found.tasks] == [
        (listed["name"], tuple(sorted(local, key=lambda path: int(path.name.split("-")[0]))), listed["digest"])
    ]
    assert complaints(found) == []
    flip(local[-1])
    assert len(complaints(cache.held(listed))) == 1


def test_a_file_that_is_kept_in_git_is_held_against_its_blob(cache: Cache) -> None:
    [local] = cache.fetch("notes.txt", (0, 7))

    found = cache.held(cache.entry("notes.txt"))

    assert [task.algorithm for task in found.tasks] == ["git-sha1"]
    assert complaints(found) == []
    flip(local)
    assert complaints(found)[0].startswith("git-sha1 is ")


def test_parts_are_held_against_the_hash_that_they_came_with(cache: Cache) -> None:
    cache.fetch("a.parquet", (900, 1024))
    [group] = cache.fetch("a.parquet", (100, 300))
    listed = cache.entry("a.parquet", (100, 300))

    found = cache.held(listed)

    assert (found.whole_files, found.partial_files, found.unavailable) == ([], [listed["name"]], [])
    assert sorted(task.name for task in found.tasks) == [
        f"{listed['name']} bytes 100-300",
        f"{listed['name']} bytes 900-1024",
    ]
    flip(group)
    [complaint] = complaints(found)
    assert complaint.endswith(f", fetched with {group.suffix[1:]}")


def test_row_groups_may_lie_in_several_spans_but_not_in_a_gap(cache: Cache) -> None:
    cache.fetch("a.parquet", (100, 300), (300, 500), (600, 1024))

    covered, in_a_gap = (
        cache.entry("a.parquet", (150, 450), (700, 800)),
        cache.entry("a.parquet", (150, 450), (450, 700)),
    )

    assert cache.held(covered).partial_files == [covered["name"]]
    assert cache.held(in_a_gap).unavailable == [in_a_gap["name"]]


def test_what_was_read_and_is_gone_is_not_here_and_no_finding(cache: Cache) -> None:
    listed, other = cache.entry("a.parquet", (100, 300)), {"name": "dump.xml.bz2", "digest": "sha256:00", "bytes": 7}
    emptied = replace(cache, files=replace(cache.files, cache=Path("nowhere")))

    for place in (cache, emptied):
        found = place.held(listed, cache.entry("notes.txt"), other)

        assert (found.listed_count, found.unavailable, found.unsearched_names) == (
            2,
            [listed["name"]],
            ["dump.xml.bz2"],
        )
        assert (found.tasks, found.findings) == ([], [])


def test_a_manifest_that_names_no_row_groups_read_every_file_whole(cache: Cache) -> None:
    cache.fetch("notes.txt", (0, 7))
    cache.fetch("a.parquet", (100, 300))
    listed = [cache.entry("notes.txt"), cache.entry("a.parquet")]

    found = cache.held(*listed)

    assert (found.whole_files, found.partial_files, found.unavailable) == ([listed[0]["name"]], [], [listed[1]["name"]])


def test_a_span_of_another_size_is_a_finding(cache: Cache) -> None:
    [local] = cache.fetch("a.parquet", (100, 300))
    local.write_bytes(b"short")
    local.with_name("300-500.part").write_bytes(b"a download in hand")

    found = cache.held(cache.entry("a.parquet", (100, 300)))

    assert [(finding.where, finding.what) for finding in found.findings] == [
        (local, f"has 5 bytes, fetched with 200; {CACHE_FIX}")
    ]
    assert (len(found.unavailable), found.tasks) == (1, [])


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"size": 7}, "as {digest} of 7 bytes, the manifest as {digest} of 1024"),
        ({"digest": OTHER}, f"as {OTHER} of 1024 bytes, the manifest as {{digest}} of 1024"),
        ({"path": "b.parquet"}, "as nothing of 0 bytes, the manifest as {digest} of 1024"),
    ],
)
def test_a_cached_listing_that_says_otherwise_is_a_finding(cache: Cache, change: dict[str, object], what: str) -> None:
    listed = cache.entry("a.parquet")
    path = cache.files.listing_path(DATASET, cache.commit)
    files = [replace(file, **change) if file.path == "a.parquet" else file for file in read_listing(path)]
    write_listing(path, files)

    [finding] = cache.held(listed).findings

    assert (finding.where, finding.artifact_digest) == (path, "sha256:artifact")
    assert finding.what == f"lists a.parquet {what.format(digest=listed['digest'])}; {CACHE_FIX}"


def test_a_flipped_bit_in_a_cached_listing_is_a_finding_or_changes_nothing(cache: Cache) -> None:
    listed, listing = cache.entry("a.parquet"), cache.files.list_files(DATASET, cache.commit)
    path, dice = cache.files.listing_path(DATASET, cache.commit), random.Random(4)
    honest = path.read_bytes()

    for _ in range(200):
        flipped = bytearray(honest)
        flipped[dice.randrange(len(honest))] ^= 1 << dice.randrange(8)
        path.write_bytes(flipped)

        found = cache.held(listed).findings

        assert [one.where for one in found] == [path] or read_listing(path) == listing


@pytest.mark.parametrize("data", [b"{", b"7", b"[7]", b'{"files": [{"path": "a.parquet"}]}', b"\xff"])
def test_a_cached_listing_that_is_none_is_a_finding(cache: Cache, data: bytes) -> None:
    listed = cache.entry("a.parquet")
    cache.files.listing_path(DATASET, cache.commit).write_bytes(data)

    [finding] = cache.held(listed).findings

    assert finding.what.startswith("the listing cannot be read (")


def test_a_file_that_two_artifacts_name_is_looked_for_once(cache: Cache) -> None:
    cache.fetch("a.parquet", (0, 1024))
    listed = cache.entry("a.parquet", (4, 300))

    found = check_hub_cache(cache.files.cache, {"sha256:one": [listed], "sha256:two": [listed]})

    assert (found.listed_count, len(found.tasks)) == (1, 1)
