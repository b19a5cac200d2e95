"""Commits of a publication, which leave the repo whole and send nothing twice."""

import itertools
import json
import os
import shutil
import subprocess
import sys
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from answer_faults import ALWAYS, Fault, FaultKind
from hub_pools import NAME, Place, check_whole
from huggingface_hub import HfApi
from killed_requests import Killed, kill_at_request
from pool_publications import prepare, send, someone_commits

from pipeline_assets.corpus.publishing import publish as publishing
from pipeline_assets.corpus.publishing.publication import prepare_publication
from pipeline_assets.corpus.publishing.publish import plan_publication, publish
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.errors import InputError, RetryableError, UsageError
from pipeline_assets.spine.manifest import StoredFile

READ = """
import datasets, json, sys
name, commit, config = sys.argv[1:]
loaded = datasets.load_dataset(name, config, revision=commit)
print(json.dumps({split: rows.to_list() for split, rows in loaded.items()}))
"""


@pytest.mark.slow
def test_every_config_is_loaded_by_its_name_row_by_row(place: Place, first: Artifact, tmp_path: Path) -> None:
    commit, _ = send(first, place)

    assert check_whole(place.folder) == first.manifest.digest
    variables = {**os.environ, **place.hub.client_environment(), "HF_HOME": str(tmp_path / "home")}
    for pool in ("tool_use", "low_correctness"):
        command = [sys.executable, "-c", READ, NAME, commit, pool]
        read = json.loads(subprocess.run(command, env=variables, capture_output=True, check=True).stdout)
        for split in ("low", "high"):
            files = sorted((first.folder / f"candidates_{pool}").glob(f"{split}-*.parquet"))
            assert read[split] == [row for file in files for row in pq.read_table(file).to_pylist()]


def test_unchanged_files_are_not_sent_again_after_any_commit(place: Place, first: Artifact, unloaded: None) -> None:
    commit, _ = send(first, place)
    sent = place.sent()

    again, plan = send(first, place)
    head = someone_commits(place, "notes.txt", b"hello")
    after_another, no_plan = send(first, place)

    assert (again, plan.commits) == (commit, [])
    assert (after_another, no_plan.commits) == (head, []) and place.hub.commits()[NAME] == head
    assert place.sent() == sent and len(set(sent)) == len(sent) > 0


def test_only_bytes_that_changed_are_sent(place: Place, first: Artifact, second: Artifact, unloaded: None) -> None:
    send(first, place)
    before = {file.sha256 for file in row_files(first)}
    place.hub.requests.clear()

    commit, _ = send(second, place)

    assert check_whole(place.folder) == second.manifest.digest
    assert sorted(place.sent()) == sorted({file.sha256 for file in row_files(second)} - before)
    parquet_files = {path.relative_to(place.folder).as_posix() for path in place.folder.rglob("*.parquet")}
    assert parquet_files == {file.path for file in row_files(second)}
    assert commit == place.hub.commits()[NAME]


def row_files(pools: Artifact) -> list[StoredFile]:
    """List the files without the card: a publication writes its own card."""
    return [file for file in pools.manifest.storage if file.path != "README.md"]


def test_files_that_others_commit_are_kept(
    place: Place, first: Artifact, second: Artifact, unloaded: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing, "_FILES_PER_COMMIT", 2)
    real, calls = HfApi.create_commit, itertools.count()

    def commit_after_another(api: HfApi, *arguments: Any, **options: Any) -> Any:
        if next(calls) == 1:
            someone_commits(place, "LICENSE", b"terms")
        return real(api, *arguments, **options)

    monkeypatch.setattr(HfApi, "create_commit", commit_after_another)
    for artifact in (first, second):
        send(artifact, place)
        assert check_whole(place.folder) == artifact.manifest.digest
        assert (place.folder / "LICENSE").read_bytes() == b"terms"


def test_a_head_that_keeps_moving_is_an_error(
    place: Place, first: Artifact, unloaded: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = HfApi.create_commit, itertools.count()

    def overtaken(api: HfApi, *arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(HfApi, "create_commit", real)
        someone_commits(place, "notes.txt", str(next(calls)).encode())
        monkeypatch.setattr(HfApi, "create_commit", overtaken)
        return real(api, *arguments, **options)

    monkeypatch.setattr(HfApi, "create_commit", overtaken)
    with pytest.raises(
        RetryableError, match=r"after 7 attempts to commit, .* publish again when no other process commits"
    ):
        send(first, place)


@pytest.mark.slow
@pytest.mark.parametrize("answered", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("update", [False, True], ids=["new", "update"])
def test_a_publication_killed_at_any_request_leaves_the_repo_whole_and_resumes(
    place: Place,
    first: Artifact,
    second: Artifact,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    unloaded: None,
    update: bool,
    answered: bool,
) -> None:
    """Kill before a request reaches the hub, or after it, before the answer."""
    monkeypatch.setattr(publishing, "_FILES_PER_COMMIT", 2)
    artifact = second if update else first
    if update:
        send(first, place)
    initial = check_whole(place.folder) if update else "bare"
    shutil.copytree(place.hub.folder, tmp_path / "begun")
    countdown = kill_at_request(monkeypatch, answered)
    for kills in itertools.count(1):
        shutil.rmtree(place.hub.folder)
        shutil.copytree(tmp_path / "begun", place.hub.folder)
        place.hub.requests.clear()
        place.hub.titles.clear()
        countdown[0] = kills
        try:
            send(artifact, place)
        except Killed:
            assert not place.folder.exists() or check_whole(place.folder) in (initial, artifact.manifest.digest)
            send(artifact, place)
        assert check_whole(place.folder) == artifact.manifest.digest
        assert len(place.sent()) == len(set(place.sent())), "a file was sent twice"
        assert place.hub.titles.count("Publish nemotron/candidate_pools mine/chats") == 1
        if countdown[0] > 0:
            break
    assert kills > 15


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        *itertools.product(["/api/whoami-v2", "*/create"], [FaultKind.BUSY, FaultKind.RETRY_AFTER, FaultKind.CUT]),
        *((path, FaultKind.CUT) for path in ("*/preupload/main", "*/batch", "*/revision/main")),
    ],
)  # one call of our client and one of the library meet every fault
def test_temporary_faults_are_retried(
    path: str, kind: FaultKind, place: Place, first: Artifact, unloaded: None, monkeypatch: Any
) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    place.hub.inject(Fault(kind, path))

    send(first, place)

    assert check_whole(place.folder) == first.manifest.digest


@pytest.mark.parametrize("path", ["*/create", "*/preupload/main", "*/batch", "*/commit/main"])
def test_a_permanent_refusal_is_not_retried(path: str, place: Place, first: Artifact, unloaded: None) -> None:
    place.hub.inject(Fault(FaultKind.FORBIDDEN, path, ALWAYS))

    with pytest.raises(InputError, match=r"no write access \(HTTP 403\)"):
        send(first, place)

    refused = [request.path for request in place.hub.requests if fnmatchcase(request.path, path)]
    assert len(refused) == len(set(refused)) > 0


def test_a_read_only_token_is_refused_before_any_write(place: Place, first: Artifact) -> None:
    repo = place.repo(token="hf_read_only")

    with pytest.raises(RetryableError, match="HF_TOKEN: the token is read-only"):
        publish(prepare_publication(first, repo), repo)

    assert not place.folder.exists() and {request.method for request in place.hub.requests} <= {"GET", "HEAD"}


def test_an_owner_other_than_that_of_the_token_is_refused(place: Place, first: Artifact) -> None:
    repo = place.repo(name="lopback/pools")

    with pytest.raises(RetryableError, match=r"no write access \(HTTP 403\)"):
        publish(prepare_publication(first, repo), repo)


@pytest.mark.parametrize("name", ["pools", "a/b/c", "me/po ols", "", "me/-x", "me/a--b", "me/x.git", f"me/{'x' * 99}"])
def test_an_invalid_dataset_name_is_refused(name: str, place: Place) -> None:
    with pytest.raises(UsageError, match=r"not a dataset name|hubs do not allow this repo name"):
        place.repo(name=name)


def test_a_file_that_differs_from_its_manifest_is_not_committed(place: Place, first: Artifact, unloaded: None) -> None:
    [stored, *_] = first.manifest.storage
    path = first.folder / stored.path
    path.write_bytes(b"\0" * stored.bytes)

    with pytest.raises(InputError, match="the file differs from its manifest"):
        send(first, place)

    assert check_whole(place.folder) == "bare" and not (place.folder / stored.path).exists()


def test_new_files_are_sent_before_replacements_and_deletions(
    place: Place, first: Artifact, second: Artifact, unloaded: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing, "_FILES_PER_COMMIT", 2)
    send(first, place)
    before, after = ({file.path: file.sha256 for file in artifact.manifest.storage} for artifact in (first, second))

    *earlier, last = plan_publication(prepare(second, place), place.repo()).commits

    new = [item.path for part in earlier for item in part.uploads]
    assert sorted(new) == sorted(after.keys() - before.keys()) != []
    sizes = [len(part.uploads) for part in earlier]
    assert sizes == [2] * (len(new) // 2) + [1] * (len(new) % 2) and not any(part.deletions for part in earlier)
    changed = {path for path in after.keys() & before.keys() if after[path] != before[path]}
    assert {item.path for item in last.uploads} == changed | {"README.md", "croissant.json", "manifest.json"}
    assert set(last.deletions) == before.keys() - after.keys() != set()
