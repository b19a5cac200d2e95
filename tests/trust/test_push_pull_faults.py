"""Interrupted, damaged and forged pushes and pulls."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from healing_set import HealingSet
from object_server import Fault, ObjectServer, Stored
from pushed_set import fetch, read_files, ref_name, send

from pipeline_assets.corpus.stores import download
from pipeline_assets.corpus.stores.object_store import ObjectStore
from pipeline_assets.spine import file_ranges
from pipeline_assets.spine.artifact import open_artifact, read_manifest
from pipeline_assets.spine.errors import DeniedError, InputError, RetryableError
from pipeline_assets.trust import pull as pulling
from pipeline_assets.trust import push as pushing

pytest.importorskip("obstore", reason="obstore is not installed")


@pytest.mark.parametrize("share", [0.4, 0.6, 0.9])
def test_an_interrupted_push_leaves_no_pointer_and_continues(
    built: HealingSet, split: Path, store: ObjectStore, server: ObjectServer, pull_root: Path, share: float
) -> None:
    pushed = send(split, built, store)
    puts = sum(method == "PUT" for method, _ in server.requests)
    server.objects.clear()
    server.faults = [Fault("403", "PUT", count=1000, after=int(share * puts))]

    with pytest.raises(DeniedError, match=r"the store refuses access \(HTTP 403\); check the permissions"):
        send(split, built, store)
    server.faults = []
    sent_before = sum(len(stored.data) for stored in server.objects.values())
    assert store.list_keys("refs") == []
    repeated = send(split, built, store)

    assert repeated.sent_bytes == pushed.bytes - sent_before < pushed.bytes
    fetch(store, ref_name(split, built.root), pull_root)
    assert read_files(pull_root / split.relative_to(built.root)) == read_files(split)


def test_a_manifest_that_differs_from_its_seal_is_not_pushed(
    built: HealingSet, split: Path, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stale cache of a network disk has an earlier, shorter file."""
    stale = SimpleNamespace(read_raw=lambda path: path.read_bytes()[:-100])
    monkeypatch.setattr(pushing, "MANIFEST_FORMAT", stale)

    with pytest.raises(
        InputError, match=r"manifest\.json: the manifest is not as it was sealed; run `corpusmill verify`"
    ):
        send(split, built, store)

    assert store.list_keys("manifests") == []


def test_a_part_lost_by_the_disk_is_named_and_pulled_again(
    built: HealingSet, split: Path, store: ObjectStore, pull_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_range, name = file_ranges.write_range, ref_name(split, built.root)
    send(split, built, store)
    monkeypatch.setattr(
        file_ranges, "write_range", lambda path, at, data: write_range(path, at, memoryview(bytes(data.nbytes)))
    )

    with pytest.raises(RetryableError, match=r"/\.train\.building\.1/.*: sha256 is .*, sealed with .*; pull it again"):
        fetch(store, name, pull_root, upstream=False)
    assert not (pull_root / name).exists()
    monkeypatch.undo()
    fetch(store, name, pull_root, upstream=False)

    assert read_files(pull_root / name) == read_files(split)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_an_interrupted_pull_seals_nothing_and_continues(
    built: HealingSet,
    split: Path,
    store: ObjectStore,
    server: ObjectServer,
    pull_root: Path,
    monkeypatch: pytest.MonkeyPatch,
    share: float,
) -> None:
    """Parts of a file that arrived before the cut are not fetched again."""
    monkeypatch.setattr(download, "_PART_BYTES", 100)
    monkeypatch.setattr(pulling, "_THREADS", 1)
    name = ref_name(split, built.root)
    send(split, built, store)
    server.requests.clear()
    fetch(store, name, pull_root / "whole", upstream=False)
    gets = [key for method, key in server.requests if method == "GET" and "objects" in key]
    server.faults = [Fault("403", "GET", "objects", count=1000, after=int(share * len(gets)))]

    with pytest.raises(DeniedError):
        fetch(store, name, pull_root, upstream=False)
    assert read_manifest(pull_root / name) is None
    server.faults = []
    server.requests.clear()
    fetch(store, name, pull_root, upstream=False)

    repeated_gets = [key for method, key in server.requests if method == "GET" and "objects" in key]
    assert len(gets) > 20
    assert len(repeated_gets) == len(gets) - int(share * len(gets))
    assert read_files(pull_root / name) == read_files(split)
    assert [path.name for path in (pull_root / name).parent.iterdir() if "building" in path.name] == []


@pytest.mark.parametrize("part", ["objects", "manifests"])
def test_a_bit_flipped_in_transit_is_named_and_a_second_pull_succeeds(
    built: HealingSet, split: Path, store: ObjectStore, server: ObjectServer, pull_root: Path, part: str
) -> None:
    name = ref_name(split, built.root)
    send(split, built, store)
    server.faults = [Fault("flip", "GET", part)]

    with pytest.raises(
        InputError, match=f"s3://bucket/a/{part}/.*: the object has sha256 .*, expected .*; delete the object, and push"
    ):
        fetch(store, name, pull_root)
    assert read_manifest(pull_root / name) is None

    fetch(store, name, pull_root)
    assert read_files(pull_root / name) == read_files(split)


DAMAGE: dict[str, tuple[str, Callable[[bytes], bytes | None]]] = {
    "flipped": ("the object has sha256 .*, expected", lambda data: data[:-1] + bytes([data[-1] ^ 1])),
    "cut": ("the object has sha256 .*, expected", lambda data: data[:-1]),
    "empty": ("the object is missing or empty", lambda data: b""),
    "missing": ("the object is missing or empty", lambda data: None),
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("part", ["objects", "manifests"])
def test_damage_in_the_store_is_named_and_repaired_by_another_push(
    built: HealingSet, split: Path, store: ObjectStore, server: ObjectServer, pull_root: Path, part: str, damage: str
) -> None:
    name, (message, change) = ref_name(split, built.root), DAMAGE[damage]
    pushed = send(split, built, store)
    stored = open_artifact(split).manifest.storage[0].sha256 if part == "objects" else pushed.ref.artifacts[0].manifest
    key = next(key for key in server.objects if stored in key)
    data = change(server.objects.pop(key).data)
    if data is not None:
        server.objects[key] = Stored(data, 0)

    with pytest.raises(InputError, match=f"s3://bucket/{key}: {message}"):
        fetch(store, name, pull_root)
    assert read_manifest(pull_root / name) is None
    server.objects.pop(key, None)  # according to the message
    send(split, built, store)
    fetch(store, name, pull_root)

    assert read_files(pull_root / name) == read_files(split)


@pytest.mark.parametrize("data", [b"", b"{", b'{"schema":"other","artifacts":[]}'])
def test_a_damaged_pointer_is_named_and_repaired_by_another_push(
    built: HealingSet, split: Path, store: ObjectStore, server: ObjectServer, pull_root: Path, data: bytes
) -> None:
    name = ref_name(split, built.root)
    send(split, built, store)
    server.put(f"a/refs/{name}.json", data)

    with pytest.raises(InputError, match=f"s3://bucket/a/refs/{name}.json: not a .*pointer.*; push the artifact again"):
        fetch(store, name, pull_root)
    send(split, built, store)
    fetch(store, name, pull_root)

    assert read_files(pull_root / name) == read_files(split)


def test_a_damaged_file_is_not_pushed(built: HealingSet, split: Path, store: ObjectStore, server: ObjectServer) -> None:
    path = split / open_artifact(split).manifest.storage[0].path
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:-1] + b"~")

    with pytest.raises(InputError, match=f"{path}: sha256 is .*, sealed with"):
        send(split, built, store)

    assert store.list_keys("refs") == []


@pytest.mark.parametrize("folder", ["../outside", "/outside", "megatron/../../outside", ""])
def test_a_pointer_outside_the_data_root_is_refused(
    built: HealingSet, split: Path, store: ObjectStore, pull_root: Path, folder: str
) -> None:
    name = ref_name(split, built.root)
    ref = send(split, built, store).ref
    entries = (*ref.artifacts[:-1], msgspec.structs.replace(ref.artifacts[-1], folder=folder))
    forged = msgspec.json.encode(msgspec.structs.replace(ref, artifacts=entries))
    assert store.replace(f"refs/{name}.json", forged, store.read_pointer(f"refs/{name}.json"))

    with pytest.raises(InputError, match="not a pointer of this program"):
        fetch(store, name, pull_root)
    assert not pull_root.exists()


def test_a_manifest_of_another_artifact_is_refused(
    built: HealingSet, split: Path, store: ObjectStore, pull_root: Path
) -> None:
    name = ref_name(split, built.root)
    ref = send(split, built, store).ref
    swapped = msgspec.structs.replace(ref.artifacts[0], manifest=ref.artifacts[-1].manifest)
    forged = msgspec.json.encode(msgspec.structs.replace(ref, artifacts=(swapped,)))
    assert store.replace(f"refs/{name}.json", forged, store.read_pointer(f"refs/{name}.json"))

    with pytest.raises(InputError, match=f"not the manifest of {swapped.digest}"):
        fetch(store, name, pull_root)
