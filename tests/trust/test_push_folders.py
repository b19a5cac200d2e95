"""Folders from which `push` reads, and what the pointer keeps of an earlier push."""

from pathlib import Path

import pytest
from healing_set import HealingSet
from pushed_set import fetch, name_of, send

from pipeline_assets.commands.publish import pull
from pipeline_assets.corpus.stores.object_store import ObjectStore
from pipeline_assets.spine.artifact import CheckResult, open_artifact, read_check_results, write_check_results
from pipeline_assets.trust.pull import find_ref

pytest.importorskip("obstore", reason="obstore is not installed")


@pytest.mark.parametrize("typed", [".", "../link"])
def test_the_checks_of_an_artifact_are_pushed_by_any_path(
    made: HealingSet, split: Path, store: ObjectStore, elsewhere: Path, monkeypatch: pytest.MonkeyPatch, typed: str
) -> None:
    checks = (CheckResult("files_match", True, True, "8 files"),)
    digest = open_artifact(split).manifest.digest
    write_check_results(split, digest, checks)
    (split.parent / "link").symlink_to(split)
    monkeypatch.chdir(split)

    pushed = send(Path(typed), made, store, upstream=False)

    name = name_of(split, made.root)
    assert pushed.ref.artifacts[0].folder == name
    fetch(store, name, elsewhere, upstream=False)
    assert read_check_results(elsewhere / name, digest) == checks


def test_a_push_without_upstream_keeps_the_upstream_artifacts_of_an_earlier_push(
    made: HealingSet, split: Path, store: ObjectStore
) -> None:
    first = send(split, made, store)
    write_check_results(split, first.ref.artifacts[0].digest, ())

    second = send(split, made, store, upstream=False)

    assert (first.artifacts, second.artifacts) == (3, 1)
    ref = find_ref(store, name_of(split, made.root), None)
    assert ref == second.ref != first.ref
    assert ref.artifacts[1:] == first.ref.artifacts[1:]


def test_a_pull_with_upstream_warns_if_none_was_pushed(
    made: HealingSet, split: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, url = name_of(split, made.root), (tmp_path / "store").as_uri()
    (tmp_path / "store").mkdir()
    warning = (
        f"warning: {name}: no upstream artifacts were pulled, because none were pushed; "
        "push it with --upstream, then pull again"
    )

    def pulled(*, upstream: bool) -> str:
        pull(url, tmp_path / "data" / name, upstream=upstream)
        return capsys.readouterr().err

    send(split, made, ObjectStore.open(url), upstream=False)
    assert warning not in pulled(upstream=False)
    assert warning in pulled(upstream=True)
    send(split, made, ObjectStore.open(url))
    assert warning not in pulled(upstream=True)
