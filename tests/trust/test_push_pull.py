"""Push and pull of sealed artifacts between data roots by way of a store."""

import re
from pathlib import Path

import pytest
from healing_set import HealingSet, verify
from object_server import Fault, ObjectServer
from pushed_set import HOUR_S, fetch, read_files, ref_name, send

from pipeline_assets.corpus.stores.object_store import ObjectStore
from pipeline_assets.spine.artifact import (
    CheckResult,
    check_record_path,
    open_artifact,
    read_check_results,
    write_check_results,
)
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.trust.pull import find_ref, pull_all

pytest.importorskip("obstore", reason="obstore is not installed")


def test_artifacts_pulled_with_upstream_are_current_in_another_data_root(
    built: HealingSet, store: ObjectStore, pull_root: Path
) -> None:
    dataset, without_checks = built.folder("dataset"), built.folder("snapshot")
    check_record_path(without_checks).unlink(missing_ok=True)
    send(dataset, built, store)

    count, _ = fetch(store, ref_name(dataset, built.root), pull_root)

    targets = built.recipe.targets()
    assert count == len(targets) == 5
    assert not check_record_path(pull_root / without_checks.relative_to(built.root)).exists()
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
