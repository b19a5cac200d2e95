"""Room: artifacts are built one after the other, and the worst moment is what must fit."""

from pathlib import Path

import pytest

from pipeline_assets.corpus.trust.plan import DiskUse, Room, disk_rooms, memory_room

GB = 10**9


def use(fetched: int = 0, peak: int = 0, sealed: int = 0, freed: int = 0, adopted: int = 0) -> DiskUse:
    return DiskUse(fetched, peak, sealed, freed, adopted)


def needed(*uses: DiskUse) -> tuple[float, float]:
    """(most at one time, what stays) of a disk that has the cache too."""
    [room] = disk_rooms(uses, Path("/tmp/data"), Path("/tmp/data/hub_cache"))
    assert room.kept is not None
    return room.needed, room.kept


def test_the_cache_stays_and_building_folders_go() -> None:
    assert needed(use(fetched=100, peak=50, sealed=40), use(peak=300, sealed=120)) == (440, 260)


def test_the_worst_moment_may_come_first() -> None:
    assert needed(use(peak=500, sealed=10), use(peak=100, sealed=90)) == (500, 100)


def test_what_is_replaced_lies_beside_the_new_one_until_that_is_sealed() -> None:
    assert needed(use(peak=100, sealed=80, freed=70)) == (100, 10)
    assert needed(use(peak=100, sealed=80, freed=70), use(peak=100, sealed=80)) == (110, 90)


def test_what_a_crash_left_is_taken_already() -> None:
    assert needed(use(peak=100, sealed=80, freed=60, adopted=60)) == (40, 20)


def test_more_may_be_freed_than_is_needed() -> None:
    assert needed(use(peak=10, sealed=10, freed=70, adopted=60)) == (0, -60)


def test_a_cache_on_a_disk_of_its_own_is_held_against_that_one(tmp_path: Path) -> None:
    here = tmp_path.stat().st_dev
    disks = [Path("/dev/shm"), Path("/")]
    elsewhere = next((path for path in disks if path.is_dir() and path.stat().st_dev != here), None)
    if elsewhere is None:
        pytest.skip("there is no second file system here")

    data, cache = disk_rooms([use(fetched=100, peak=50, sealed=40)], tmp_path / "data", elsewhere / "cache")

    assert (data.needed, cache.needed) == (50, 100)
    assert cache.where == str(elsewhere / "cache")


def test_a_folder_that_is_not_there_yet_lies_on_the_disk_of_its_parent(tmp_path: Path) -> None:
    [room] = disk_rooms([use(peak=1)], tmp_path / "not" / "yet", tmp_path / "not" / "yet" / "hub_cache")

    assert room.free is not None
    assert room.free > 0


@pytest.mark.parametrize(("free", "fits"), [(None, True), (20, True), (19, False)])
def test_what_is_free_must_be_as_much_as_is_needed(free: int | None, fits: bool) -> None:
    assert Room("/data", 20, free).fits is fits


def test_memory_is_held_against_what_the_machine_can_give() -> None:
    assert memory_room(1).fits
    assert not memory_room(10**18).fits
    assert memory_room(10**18).fix == "take fewer workers"
