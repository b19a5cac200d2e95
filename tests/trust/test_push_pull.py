"""Push and pull of sealed artifacts through cuts, flips and races."""

import random
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from healing_set import HealingSet, verify
from object_server import Fault, Kind, ObjectServer, Stored
from pushed_set import HOUR_S, fetch, other_set, read_files, ref_name, send

from pipeline_assets.corpus.publishing.hub_repo import UploadFile
from pipeline_assets.corpus.stores import download
from pipeline_assets.corpus.stores.object_store import ObjectStore
from pipeline_assets.spine import file_ranges
from pipeline_assets.spine.artifact import (
    CheckResult,
    check_record_path,
    open_artifact,
    read_check_results,
    read_manifest,
    write_check_results,
)
from pipeline_assets.spine.errors import DeniedError, InputError, RetryableError, UsageError
from pipeline_assets.trust import pull as pulling
from pipeline_assets.trust import push as pushing
from pipeline_assets.trust.pull import find_ref, pull_all

pytest.importorskip("obstore", reason="obstore is not installed")


def test_artifacts_pulled_with_upstream_are_current_in_another_data_root(
    built: HealingSet, store: ObjectStore, pull_root: Path
) -> None:
    dataset = built.folder("dataset")
    send(dataset, built, store)

    count, _ = fetch(store, ref_name(dataset, built.root), pull_root)

    targets = built.recipe.targets()
    assert count == len(targets) == 5
    for target in targets:
        assert target.state(pull_root)[0] == "current"
        assert target.is_up_to_date(pull_root) == target.is_up_to_date(built.root)
        assert read_files(pull_root / target.folder) == read_files(built.root / target.folder)
    assert verify(pull_root / dataset.relative_to(built.root), pull_root).verdict.startswith("intact")
    assert fetch(store, ref_name(dataset, built.root), pull_root) == (count, 0)


def test_members_are_pulled_into_any_folder(built: HealingSet, store: ObjectStore, pull_root: Path) -> None:
    send(built.folder("dataset"), built, store, upstream=False)

    pulled = pull_all(store, find_ref(store, None, None), pull_root / "anywhere", None, False, HOUR_S)

    assert (pulled.artifacts, pulled.present_artifacts) == (3, 0)
    assert verify(pull_root / "anywhere").verdict == "intact"


def test_objects_are_sent_before_manifests_and_the_pointer_last(
    built: HealingSet, split: Path, store: ObjectStore, server: ObjectServer
) -> None:
    pushed = send(split, built, store)

    sent = [key.split("/")[1] for method, key in server.requests if method == "PUT" and not key.endswith("probe")]
    assert [*dict.fromkeys(sent)] == ["objects", "manifests", "refs"]
    assert sent == sorted(sent, key=["objects", "manifests", "refs"].index)
    assert pushed.sent_bytes == pushed.bytes > 0
    assert pushed.earlier_digest is None


def test_a_second_push_sends_nothing_and_keeps_the_lineage(built: HealingSet, split: Path, store: ObjectStore) -> None:
    first = send(split, built, store)

    repeated = send(split, built, store)
    alone = send(split, built, store, upstream=False)

    assert (repeated.sent_bytes, alone.sent_bytes) == (0, 0)
    assert repeated.earlier_digest == alone.earlier_digest == first.ref.artifacts[0].digest
    assert find_ref(store, ref_name(split, built.root), None) == first.ref


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


def test_missing_check_results_are_pulled_later(
    built: HealingSet, split: Path, store: ObjectStore, pull_root: Path
) -> None:
    digest, name = open_artifact(split).manifest.digest, ref_name(split, built.root)
    result = CheckResult("files", True, True, "all there")
    write_check_results(split, digest, [result])
    send(split, built, store)
    fetch(store, name, pull_root)
    check_record_path(pull_root / name).unlink()

    fetch(store, name, pull_root)

    assert read_check_results(pull_root / name, digest) == (result,)


def test_a_damaged_file_is_not_pushed(built: HealingSet, split: Path, store: ObjectStore, server: ObjectServer) -> None:
    path = split / open_artifact(split).manifest.storage[0].path
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:-1] + b"~")

    with pytest.raises(InputError, match=f"{path}: sha256 is .*, sealed with"):
        send(split, built, store)

    assert store.list_keys("refs") == []


def test_the_later_of_two_pushes_is_refused(
    built: HealingSet, split: Path, store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second push begins and ends while the first one sends its objects."""
    other, put, name = other_set(built, tmp_path), ObjectStore.put, ref_name(split, built.root)
    winner = open_artifact(other.root / name).manifest.digest

    def push_during_put(store: ObjectStore, files: Sequence[UploadFile]) -> int:
        monkeypatch.setattr(ObjectStore, "put", put)
        send(other.root / name, other, store, upstream=False)
        return put(store, files)

    monkeypatch.setattr(ObjectStore, "put", push_during_put)
    message = f"s3://bucket/a/refs/{name}.json: another process pushed {winner} under this name since this push began"
    with pytest.raises(InputError, match=f"{message}; pull {name} to compare, or push again to replace it") as failure:
        send(split, built, store)
    assert not isinstance(failure.value, RetryableError)  # a retry would replace the winner
    assert find_ref(store, name, None).artifacts[0].digest == winner

    repeated = send(split, built, store)
    assert repeated.earlier_digest == winner
    assert find_ref(store, name, None) == repeated.ref


@pytest.mark.parametrize("upstream", [True, False])
def test_a_push_succeeds_if_another_process_pushed_the_same_artifact(
    built: HealingSet, split: Path, store: ObjectStore, monkeypatch: pytest.MonkeyPatch, upstream: bool
) -> None:
    """The pointer of the other push is kept.

    It has the same artifacts, or their lineage too, and more recent checks.
    """
    put, name, digest = ObjectStore.put, ref_name(split, built.root), open_artifact(split).manifest.digest

    def push_during_put(store: ObjectStore, files: Sequence[UploadFile]) -> int:
        monkeypatch.setattr(ObjectStore, "put", put)
        write_check_results(split, digest, [CheckResult("files", True, True, "all there")])
        send(split, built, store)
        return put(store, files)

    monkeypatch.setattr(ObjectStore, "put", push_during_put)
    pushed = send(split, built, store, upstream=upstream)

    kept = find_ref(store, name, None)
    assert (pushed.sent_bytes, pushed.earlier_digest) == (0, None)
    assert len(pushed.ref.artifacts) == (3 if upstream else 1)
    assert len(kept.artifacts) == 3 and pushed.ref.folder_digests() <= kept.folder_digests()
    assert kept.artifacts[0].checks is not None


def test_a_push_is_refused_if_its_pointer_is_removed(
    built: HealingSet,
    split: Path,
    store: ObjectStore,
    server: ObjectServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other, put, name = other_set(built, tmp_path), ObjectStore.put, ref_name(split, built.root)
    send(other.root / name, other, store, upstream=False)

    def remove_pointer_and_put(store: ObjectStore, files: Sequence[UploadFile]) -> int:
        server.objects.pop(f"a/refs/{name}.json", None)
        return put(store, files)

    monkeypatch.setattr(ObjectStore, "put", remove_pointer_and_put)
    message = f"s3://bucket/a/refs/{name}.json: another process removed the pointer since this push began"
    with pytest.raises(InputError, match=f"{message}; pull {name} to compare, or push again to replace it"):
        send(split, built, store)

    assert store.list_keys("refs") == []


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 20))])
def test_simultaneous_pushes_leave_one_whole_artifact(
    built: HealingSet, split: Path, store: ObjectStore, server: ObjectServer, pull_root: Path, tmp_path: Path, seed: int
) -> None:
    other, name, rng = other_set(built, tmp_path), ref_name(split, built.root), random.Random(seed)
    kinds: list[Kind] = ["503", "409", "lost answer", "slow"]
    server.faults = [Fault(rng.choice(kinds), "PUT", after=rng.randrange(20)) for _ in range(3)]

    def try_push(pusher: HealingSet) -> str | None:
        try:
            return send(pusher.root / name, pusher, store, upstream=False).ref.artifacts[0].digest
        except InputError as error:
            assert "since this push began" in str(error)
            return None

    with ThreadPoolExecutor(4) as pool:
        winners = {digest for digest in pool.map(try_push, [built, other, built, other]) if digest is not None}

    fetch(store, name, pull_root, upstream=False)
    assert open_artifact(pull_root / name).manifest.digest in winners
    assert verify(pull_root / name).verdict == "intact"


def test_without_a_name_the_only_artifact_is_pulled_and_several_are_listed(
    built: HealingSet, split: Path, store: ObjectStore, server: ObjectServer
) -> None:
    snapshot = built.folder("snapshot")
    names = sorted([ref_name(split, built.root), ref_name(snapshot, built.root)])
    with pytest.raises(UsageError, match="s3://bucket/a: the store has no artifacts; correct the URL"):
        find_ref(store, None, None)

    single = send(split, built, store).ref
    assert find_ref(store, None, "megatron/other") == single
    send(snapshot, built, store)

    assert find_ref(store, None, ref_name(split, built.root)) == single
    with pytest.raises(UsageError, match=f"the store has 2 artifacts: {', '.join(names)}; pass one of the names"):
        find_ref(store, None, "megatron/other")
    with pytest.raises(UsageError, match=f"the store lacks x, and has: {', '.join(names)}; pass one of the names"):
        find_ref(store, "x", None)
    for odd, shown in (("../x", "../x"), ("megatron//x", "megatron//x"), (".", "."), ("", "''")):
        with pytest.raises(UsageError, match=f"the store lacks {re.escape(shown)}, and has: "):
            find_ref(store, odd, None)
    server.faults = [Fault("stale list", count=2)]  # a known name needs no list
    assert find_ref(store, names[0], None).artifacts[0].folder == names[0]


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


def test_an_artifact_without_recorded_checks_is_pulled_without_them(
    built: HealingSet, store: ObjectStore, pull_root: Path
) -> None:
    snapshot = built.folder("snapshot")
    check_record_path(snapshot).unlink(missing_ok=True)
    send(snapshot, built, store)

    fetch(store, ref_name(snapshot, built.root), pull_root)

    assert not check_record_path(pull_root / ref_name(snapshot, built.root)).exists()
