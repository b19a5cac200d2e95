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
from pushed_set import HOUR_S, fetch, files_of, name_of, other_set, send

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


def test_what_is_pulled_with_its_lineage_is_current_in_another_data_root(
    made: HealingSet, store: ObjectStore, elsewhere: Path
) -> None:
    dataset = made.folder("dataset")
    send(dataset, made, store)

    count, _ = fetch(store, name_of(dataset, made.root), elsewhere)

    targets = made.recipe.targets()
    assert count == len(targets) == 5
    for target in targets:
        assert target.state(elsewhere)[0] == "current"
        assert target.is_up_to_date(elsewhere) == target.is_up_to_date(made.root)
        assert files_of(elsewhere / target.folder) == files_of(made.root / target.folder)
    assert verify(elsewhere / dataset.relative_to(made.root), elsewhere).verdict.startswith("intact")
    assert fetch(store, name_of(dataset, made.root), elsewhere) == (count, 0)


def test_members_are_pulled_with_it_into_any_folder(made: HealingSet, store: ObjectStore, elsewhere: Path) -> None:
    send(made.folder("dataset"), made, store, upstream=False)

    pulled = pull_all(store, find_ref(store, None, None), elsewhere / "anywhere", None, False, HOUR_S)

    assert (pulled.artifacts, pulled.present_artifacts) == (3, 0)
    assert verify(elsewhere / "anywhere").verdict == "intact"


def test_objects_are_sent_before_manifests_and_the_pointer_last(
    made: HealingSet, split: Path, store: ObjectStore, server: ObjectServer
) -> None:
    pushed = send(split, made, store)

    sent = [key.split("/")[1] for method, key in server.requests if method == "PUT" and not key.endswith("probe")]
    assert [*dict.fromkeys(sent)] == ["objects", "manifests", "refs"]
    assert sent == sorted(sent, key=["objects", "manifests", "refs"].index)
    assert pushed.sent_bytes == pushed.bytes > 0
    assert pushed.earlier_digest is None


def test_pushed_again_nothing_is_sent_and_a_lineage_is_kept(made: HealingSet, split: Path, store: ObjectStore) -> None:
    first = send(split, made, store)

    again = send(split, made, store)
    alone = send(split, made, store, upstream=False)

    assert (again.sent_bytes, alone.sent_bytes) == (0, 0)
    assert again.earlier_digest == alone.earlier_digest == first.ref.artifacts[0].digest
    assert find_ref(store, name_of(split, made.root), None) == first.ref


@pytest.mark.parametrize("share", [0.4, 0.6, 0.9])
def test_a_push_that_is_cut_off_leaves_no_pointer_and_goes_on(
    made: HealingSet, split: Path, store: ObjectStore, server: ObjectServer, elsewhere: Path, share: float
) -> None:
    pushed = send(split, made, store)
    puts = sum(method == "PUT" for method, _ in server.requests)
    server.objects.clear()
    server.faults = [Fault("403", "PUT", count=1000, after=int(share * puts))]

    with pytest.raises(DeniedError, match=r"the store refuses access \(HTTP 403\); check the permissions"):
        send(split, made, store)
    server.faults = []
    sent_before = sum(len(stored.data) for stored in server.objects.values())
    assert store.list_keys("refs") == []
    again = send(split, made, store)

    assert again.sent_bytes == pushed.bytes - sent_before < pushed.bytes
    fetch(store, name_of(split, made.root), elsewhere)
    assert files_of(elsewhere / split.relative_to(made.root)) == files_of(split)


def test_a_manifest_that_is_read_otherwise_than_sealed_is_not_pushed(
    made: HealingSet, split: Path, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stale cache of a network's disk has an earlier, shorter file."""
    stale = SimpleNamespace(read_raw=lambda path: path.read_bytes()[:-100])
    monkeypatch.setattr(pushing, "MANIFEST_FORMAT", stale)

    with pytest.raises(
        InputError, match=r"manifest\.json: the manifest is not as it was sealed; run `corpusmill verify`"
    ):
        send(split, made, store)

    assert store.list_keys("manifests") == []


def test_a_part_that_the_disk_did_not_store_is_named_and_pulled_again(
    made: HealingSet, split: Path, store: ObjectStore, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_range, name = file_ranges.write_range, name_of(split, made.root)
    send(split, made, store)
    monkeypatch.setattr(
        file_ranges, "write_range", lambda path, at, data: write_range(path, at, memoryview(bytes(data.nbytes)))
    )

    with pytest.raises(RetryableError, match=r"/\.train\.building\.1/.*: sha256 is .*, sealed with .*; pull it again"):
        fetch(store, name, elsewhere, upstream=False)
    assert not (elsewhere / name).exists()
    monkeypatch.undo()
    fetch(store, name, elsewhere, upstream=False)

    assert files_of(elsewhere / name) == files_of(split)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_pull_that_is_cut_off_seals_nothing_and_goes_on_where_it_was(
    made: HealingSet,
    split: Path,
    store: ObjectStore,
    server: ObjectServer,
    elsewhere: Path,
    monkeypatch: pytest.MonkeyPatch,
    share: float,
) -> None:
    """Every part of a file that had arrived before is not fetched again."""
    monkeypatch.setattr(download, "_PART_BYTES", 100)
    monkeypatch.setattr(pulling, "_THREADS", 1)
    name = name_of(split, made.root)
    send(split, made, store)
    server.requests.clear()
    fetch(store, name, elsewhere / "whole", upstream=False)
    gets = [key for method, key in server.requests if method == "GET" and "objects" in key]
    server.faults = [Fault("403", "GET", "objects", count=1000, after=int(share * len(gets)))]

    with pytest.raises(DeniedError):
        fetch(store, name, elsewhere, upstream=False)
    assert read_manifest(elsewhere / name) is None
    server.faults = []
    server.requests.clear()
    fetch(store, name, elsewhere, upstream=False)

    gets_again = [key for method, key in server.requests if method == "GET" and "objects" in key]
    assert len(gets) > 20
    assert len(gets_again) == len(gets) - int(share * len(gets))
    assert files_of(elsewhere / name) == files_of(split)
    assert [path.name for path in (elsewhere / name).parent.iterdir() if "building" in path.name] == []


@pytest.mark.parametrize("part", ["objects", "manifests"])
def test_a_flipped_bit_on_the_way_is_named_and_a_second_pull_is_right(
    made: HealingSet, split: Path, store: ObjectStore, server: ObjectServer, elsewhere: Path, part: str
) -> None:
    name = name_of(split, made.root)
    send(split, made, store)
    server.faults = [Fault("flip", "GET", part)]

    with pytest.raises(
        InputError, match=f"s3://bucket/a/{part}/.*: the object has sha256 .*, expected .*; delete the object, and push"
    ):
        fetch(store, name, elsewhere)
    assert read_manifest(elsewhere / name) is None

    fetch(store, name, elsewhere)
    assert files_of(elsewhere / name) == files_of(split)


DAMAGE: dict[str, tuple[str, Callable[[bytes], bytes | None]]] = {
    "flipped": ("the object has sha256 .*, expected", lambda data: data[:-1] + bytes([data[-1] ^ 1])),
    "cut": ("the object has sha256 .*, expected", lambda data: data[:-1]),
    "empty": ("the object is missing or empty", lambda data: b""),
    "missing": ("the object is missing or empty", lambda data: None),
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("part", ["objects", "manifests"])
def test_damage_in_the_store_is_named_and_mended_by_another_push(
    made: HealingSet, split: Path, store: ObjectStore, server: ObjectServer, elsewhere: Path, part: str, damage: str
) -> None:
    name, (message, change) = name_of(split, made.root), DAMAGE[damage]
    pushed = send(split, made, store)
    stored = open_artifact(split).manifest.storage[0].sha256 if part == "objects" else pushed.ref.artifacts[0].manifest
    key = next(key for key in server.objects if stored in key)
    data = change(server.objects.pop(key).data)
    if data is not None:
        server.objects[key] = Stored(data, 0)

    with pytest.raises(InputError, match=f"s3://bucket/{key}: {message}"):
        fetch(store, name, elsewhere)
    assert read_manifest(elsewhere / name) is None
    server.objects.pop(key, None)  # as the message says
    send(split, made, store)
    fetch(store, name, elsewhere)

    assert files_of(elsewhere / name) == files_of(split)


@pytest.mark.parametrize("data", [b"", b"{", b'{"schema":"other","artifacts":[]}'])
def test_a_damaged_pointer_is_named_and_mended_by_another_push(
    made: HealingSet, split: Path, store: ObjectStore, server: ObjectServer, elsewhere: Path, data: bytes
) -> None:
    name = name_of(split, made.root)
    send(split, made, store)
    server.put(f"a/refs/{name}.json", data)

    with pytest.raises(InputError, match=f"s3://bucket/a/refs/{name}.json: not a .*pointer.*; push the artifact again"):
        fetch(store, name, elsewhere)
    send(split, made, store)
    fetch(store, name, elsewhere)

    assert files_of(elsewhere / name) == files_of(split)


def test_checks_that_a_cut_pull_left_out_are_pulled_later(
    made: HealingSet, split: Path, store: ObjectStore, elsewhere: Path
) -> None:
    digest, name = open_artifact(split).manifest.digest, name_of(split, made.root)
    result = CheckResult("files", True, True, "all there")
    write_check_results(split, digest, [result])
    send(split, made, store)
    fetch(store, name, elsewhere)
    check_record_path(elsewhere / name).unlink()

    fetch(store, name, elsewhere)

    assert read_check_results(elsewhere / name, digest) == (result,)


def test_a_damaged_file_is_not_pushed(made: HealingSet, split: Path, store: ObjectStore, server: ObjectServer) -> None:
    path = split / open_artifact(split).manifest.storage[0].path
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:-1] + b"~")

    with pytest.raises(InputError, match=f"{path}: sha256 is .*, sealed with"):
        send(split, made, store)

    assert store.list_keys("refs") == []


def test_of_two_pushes_one_wins_and_the_other_is_told(
    made: HealingSet, split: Path, store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one begins and ends while the first one sends its objects."""
    other, put, name = other_set(made, tmp_path), ObjectStore.put, name_of(split, made.root)
    winner = open_artifact(other.root / name).manifest.digest

    def overtaken(store: ObjectStore, files: Sequence[UploadFile]) -> int:
        monkeypatch.setattr(ObjectStore, "put", put)
        send(other.root / name, other, store, upstream=False)
        return put(store, files)

    monkeypatch.setattr(ObjectStore, "put", overtaken)
    told = f"s3://bucket/a/refs/{name}.json: another process pushed {winner} under this name since this push began"
    with pytest.raises(InputError, match=f"{told}; pull {name} to compare, or push again to replace it") as lost:
        send(split, made, store)
    assert not isinstance(lost.value, RetryableError)  # to repeat the command would replace the winner
    assert find_ref(store, name, None).artifacts[0].digest == winner

    again = send(split, made, store)
    assert again.earlier_digest == winner
    assert find_ref(store, name, None) == again.ref


@pytest.mark.parametrize("upstream", [True, False])
def test_a_push_succeeds_if_another_process_pushed_the_same_artifact_meanwhile(
    made: HealingSet, split: Path, store: ObjectStore, monkeypatch: pytest.MonkeyPatch, upstream: bool
) -> None:
    """The other push has the same artifacts, or their lineage too, and more recent checks: its pointer is kept."""
    put, name, digest = ObjectStore.put, name_of(split, made.root), open_artifact(split).manifest.digest

    def overtaken(store: ObjectStore, files: Sequence[UploadFile]) -> int:
        monkeypatch.setattr(ObjectStore, "put", put)
        write_check_results(split, digest, [CheckResult("files", True, True, "all there")])
        send(split, made, store)
        return put(store, files)

    monkeypatch.setattr(ObjectStore, "put", overtaken)
    pushed = send(split, made, store, upstream=upstream)

    kept = find_ref(store, name, None)
    assert (pushed.sent_bytes, pushed.earlier_digest) == (0, None)
    assert len(pushed.ref.artifacts) == (3 if upstream else 1)
    assert len(kept.artifacts) == 3 and pushed.ref.folder_digests() <= kept.folder_digests()
    assert kept.artifacts[0].checks is not None


def test_a_push_whose_pointer_is_removed_meanwhile_is_refused(
    made: HealingSet,
    split: Path,
    store: ObjectStore,
    server: ObjectServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other, put, name = other_set(made, tmp_path), ObjectStore.put, name_of(split, made.root)
    send(other.root / name, other, store, upstream=False)

    def disturbed(store: ObjectStore, files: Sequence[UploadFile]) -> int:
        server.objects.pop(f"a/refs/{name}.json", None)
        return put(store, files)

    monkeypatch.setattr(ObjectStore, "put", disturbed)
    told = f"s3://bucket/a/refs/{name}.json: another process removed the pointer since this push began"
    with pytest.raises(InputError, match=f"{told}; pull {name} to compare, or push again to replace it"):
        send(split, made, store)

    assert store.list_keys("refs") == []


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 20))])
def test_simultaneous_pushes_leave_one_whole_artifact(
    made: HealingSet, split: Path, store: ObjectStore, server: ObjectServer, elsewhere: Path, tmp_path: Path, seed: int
) -> None:
    other, name, dice = other_set(made, tmp_path), name_of(split, made.root), random.Random(seed)
    kinds: list[Kind] = ["503", "409", "lost answer", "slow"]
    server.faults = [Fault(dice.choice(kinds), "PUT", after=dice.randrange(20)) for _ in range(3)]

    def try_push(pusher: HealingSet) -> str | None:
        try:
            return send(pusher.root / name, pusher, store, upstream=False).ref.artifacts[0].digest
        except InputError as error:
            assert "since this push began" in str(error)
            return None

    with ThreadPoolExecutor(4) as pool:
        won = {digest for digest in pool.map(try_push, [made, other, made, other]) if digest is not None}

    fetch(store, name, elsewhere, upstream=False)
    assert open_artifact(elsewhere / name).manifest.digest in won
    assert verify(elsewhere / name).verdict == "intact"


def test_without_a_name_the_only_artifact_is_pulled_and_several_are_listed(
    made: HealingSet, split: Path, store: ObjectStore, server: ObjectServer
) -> None:
    snapshot = made.folder("snapshot")
    names = sorted([name_of(split, made.root), name_of(snapshot, made.root)])
    with pytest.raises(UsageError, match="s3://bucket/a: the store has no artifacts; correct the URL"):
        find_ref(store, None, None)

    only = send(split, made, store).ref
    assert find_ref(store, None, "megatron/other") == only
    send(snapshot, made, store)

    assert find_ref(store, None, name_of(split, made.root)) == only
    with pytest.raises(UsageError, match=f"the store has 2 artifacts: {', '.join(names)}; pass one of the names"):
        find_ref(store, None, "megatron/other")
    with pytest.raises(UsageError, match=f"the store lacks x, and has: {', '.join(names)}; pass one of the names"):
        find_ref(store, "x", None)
    for odd, shown in (("../x", "../x"), ("megatron//x", "megatron//x"), (".", "."), ("", "''")):
        with pytest.raises(UsageError, match=f"the store lacks {re.escape(shown)}, and has: "):
            find_ref(store, odd, None)
    server.faults = [Fault("stale list", count=2)]  # a name that is known needs no list
    assert find_ref(store, names[0], None).artifacts[0].folder == names[0]


@pytest.mark.parametrize("folder", ["../outside", "/outside", "megatron/../../outside", ""])
def test_a_pointer_that_leads_out_of_the_data_root_is_refused(
    made: HealingSet, split: Path, store: ObjectStore, elsewhere: Path, folder: str
) -> None:
    name = name_of(split, made.root)
    ref = send(split, made, store).ref
    entries = (*ref.artifacts[:-1], msgspec.structs.replace(ref.artifacts[-1], folder=folder))
    forged = msgspec.json.encode(msgspec.structs.replace(ref, artifacts=entries))
    assert store.replace(f"refs/{name}.json", forged, store.read_pointer(f"refs/{name}.json"))

    with pytest.raises(InputError, match="not a pointer of this program"):
        fetch(store, name, elsewhere)
    assert not elsewhere.exists()


def test_a_manifest_of_another_artifact_is_refused(
    made: HealingSet, split: Path, store: ObjectStore, elsewhere: Path
) -> None:
    name = name_of(split, made.root)
    ref = send(split, made, store).ref
    swapped = msgspec.structs.replace(ref.artifacts[0], manifest=ref.artifacts[-1].manifest)
    forged = msgspec.json.encode(msgspec.structs.replace(ref, artifacts=(swapped,)))
    assert store.replace(f"refs/{name}.json", forged, store.read_pointer(f"refs/{name}.json"))

    with pytest.raises(InputError, match=f"not the manifest of {swapped.digest}"):
        fetch(store, name, elsewhere)


def test_an_artifact_without_recorded_checks_is_pulled_without_them(
    made: HealingSet, store: ObjectStore, elsewhere: Path
) -> None:
    snapshot = made.folder("snapshot")
    check_record_path(snapshot).unlink(missing_ok=True)
    send(snapshot, made, store)

    fetch(store, name_of(snapshot, made.root), elsewhere)

    assert not check_record_path(elsewhere / name_of(snapshot, made.root)).exists()
