"""Folders from which `push` reads."""

from pathlib import Path

import pytest
from healing_set import HealingSet
from pushed_set import fetch, name_of, send

from pipeline_assets.corpus.stores.object_store import ObjectStore
from pipeline_assets.spine.artifact import CheckResult, open_artifact, read_check_results, write_check_results

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
