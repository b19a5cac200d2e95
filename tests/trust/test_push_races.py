"""Races between processes that push to one name."""

import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from healing_set import HealingSet, verify
from object_server import Fault, Kind, ObjectServer
from pushed_set import fetch, other_set, ref_name, send

from pipeline_assets.corpus.publishing.hub_repo import UploadFile
from pipeline_assets.corpus.stores.object_store import ObjectStore
from pipeline_assets.spine.artifact import CheckResult, open_artifact, write_check_results
from pipeline_assets.spine.errors import InputError, RetryableError
from pipeline_assets.trust.pull import find_ref

pytest.importorskip("obstore", reason="obstore is not installed")


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
