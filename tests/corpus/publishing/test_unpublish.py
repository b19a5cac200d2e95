"""Removal of forgotten rows from the history of a published repo."""

import datetime
import itertools
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pyarrow.parquet as pq
import pytest
from answer_faults import ALWAYS, Fault, FaultKind
from history_hub import HistoryHub
from hub_pools import NAME, SOURCE, TOKEN, Place, build_rows, check_whole, open_place, pools, row
from killed_requests import Killed, kill_at_request
from plain_hub import copy_revisions
from subset_pools import build_subsets, scored, talk

from pipeline_assets.corpus.publishing.publication import prepare_publication
from pipeline_assets.corpus.publishing.publish import publish
from pipeline_assets.corpus.publishing.repo_search import RepoSearch
from pipeline_assets.corpus.publishing.unpublish import RemovalRecord, unpublish
from pipeline_assets.corpus.removal_entries import add_entries, entry_dates
from pipeline_assets.corpus.removal_list import read_removal_list
from pipeline_assets.corpus.tokens.o200k_harmony import VOCABULARY_SHA256, load_encoder
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.builder import BuilderBusyError
from pipeline_assets.spine.errors import InputError, RetryableError
from pipeline_assets.spine.lock import locked

pytestmark = pytest.mark.usefixtures("unloaded")
REMOVED = ["row-3", "row-7"]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    yield from open_place(tmp_path / "hub", hub_type=HistoryHub)


def history_hub(place: Place) -> HistoryHub:
    assert isinstance(place.hub, HistoryHub)
    return place.hub


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Create a data root with two forgotten rows."""
    root = tmp_path / "root"
    root.mkdir()
    add_entries(root, [("id", row) for row in REMOVED], "request 7", "2026-11-20")
    return root


def send(artifact: Artifact, place: Place) -> str:
    commit, _ = publish(prepare_publication(artifact, place.repo()), place.repo())
    return commit


@pytest.fixture(scope="module")
def initial_hub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the hub folder with both versions; the first test publishes them."""
    return tmp_path_factory.mktemp("begun") / "hub"


@pytest.fixture
def versions(place: Place, tmp_path: Path, initial_hub: Path) -> list[str]:
    """Publish a version with the rows and one without; return their commits."""
    if initial_hub.exists():
        shutil.rmtree(place.hub.folder)
        shutil.copytree(initial_hub, place.hub.folder)
        refs = history_hub(place).history(NAME).refs
        return [refs["refs/tags/v1"], refs["refs/heads/main"]]
    rows, rules = (
        build_rows(place.revision, 9),
        {"tool_use": ["stats_tool_calls > 0"], "all": ["stats_tool_calls >= 0"]},
    )
    old = send(pools(tmp_path / "with", {"low": rows, "high": rows[:3]}, rules=rules), place)
    history_hub(place).set_ref(NAME, "refs/tags/v1", old)
    rows = [row for row in rows if row["id"] not in REMOVED]
    new = send(pools(tmp_path / "without", {"low": rows, "high": rows[:3]}, rules=rules), place)
    shutil.copytree(place.hub.folder, initial_hub)
    return [old, new]


def remove(place: Place, root: Path, *, applies: bool = True, keeps_history: bool = False) -> RemovalRecord:
    record = root / "removals/published/pools.json"
    search = RepoSearch(
        read_removal_list(root), load_encoder(VOCABULARY_SHA256).decode, record.with_suffix(".downloads")
    )
    now = lambda: datetime.datetime(2026, 11, 27, 3, tzinfo=datetime.UTC)  # noqa: E731
    repo = place.repo()
    with repo.limit_requests(), locked(record):
        return unpublish(repo, search, record, entry_dates(root), now, applies=applies, keeps_history=keeps_history)


def find_forgotten(place: Place, folder: Path, *more: str) -> dict[str, set[str]]:
    """Return the forgotten ids in files of all reachable commits and of `more`."""
    shutil.rmtree(folder, ignore_errors=True)
    copy_revisions(place.hub.endpoint, NAME, TOKEN, folder, more)
    tables = {path: pq.read_table(path)["id"].to_pylist() for path in folder.rglob("*.parquet")}
    assert len({path.parts[len(folder.parts)] for path in folder.rglob("manifest.json")}) > 0
    return {str(path.relative_to(folder)): {*ids} & {*REMOVED} for path, ids in tables.items() if {*ids} & {*REMOVED}}


def test_a_search_changes_nothing_and_names_the_commits(place: Place, root: Path, versions: list[str]) -> None:
    before = history_hub(place).history(NAME)

    removal = remove(place, root, applies=False)

    assert len(removal.remaining) == 2
    places = {place for places in removal.remaining.values() for place in places}
    assert f"refs/tags/v1@{versions[0]}:candidates_tool_use/low-00000-of-00001.parquet" in places
    assert not any(versions[1] in place for place in places)
    assert (removal.certificate, history_hub(place).history(NAME)) == ("", before)
    assert not list((root / "removals/published").glob("*.json"))


def test_no_reachable_commit_has_a_forgotten_row_after_the_removal(
    place: Place, root: Path, versions: list[str], tmp_path: Path
) -> None:
    hub = history_hub(place)
    hub.set_ref(NAME, "refs/heads/stable", versions[1])
    hub.set_ref(NAME, "refs/pr/1", versions[0])
    assert find_forgotten(place, tmp_path / "copy")
    before = hub.history(NAME).ancestors(versions[1])

    removal = remove(place, root)

    history = hub.history(NAME)
    head = history.refs["refs/heads/main"]
    assert history.ancestors(head) == [head] and head not in before
    assert len(history.ancestors(history.refs["refs/heads/stable"])) == 1
    assert (history.refs["refs/tags/v1"], history.refs["refs/pr/1"]) == (head, versions[0])
    assert find_forgotten(place, tmp_path / "copy", *before) == {}
    assert (removal.remaining, len(removal.removed), removal.unread) == ({}, 2, [])
    assert removal.unreachable[-1] == "refs/pr/1"
    assert (removal.requested, removal.proved) == ("2026-11-20", "2026-11-27T03:00:00+00:00")
    [certificate] = (root / "removals/published").glob("*.json")
    assert certificate.name == "pools.2026-11-27T030000+0000.json" == removal.certificate
    content = json.loads(certificate.read_text())
    assert {*content["removed"]} == {*read_removal_list(root).entries}
    assert content["commits"]["refs/tags/v1"] == hub.history(NAME).ancestors(versions[0])
    assert "row-" not in certificate.read_text()
    assert remove(place, root).certificate == ""


def test_files_of_the_new_version_are_kept(place: Place, root: Path, versions: list[str], tmp_path: Path) -> None:
    remove(place, root)

    copy_revisions(place.hub.endpoint, NAME, TOKEN, tmp_path / "copy")
    [folder] = (tmp_path / "copy").iterdir()
    for stored in check_whole_files(place):
        assert (folder / stored).read_bytes() == (place.folder / stored).read_bytes()


def check_whole_files(place: Place) -> list[str]:
    check_whole(place.folder)
    files: list[dict[str, str]] = json.loads((place.folder / "manifest.json").read_text())["storage"]
    return ["README.md", "croissant.json", "manifest.json", *(file["path"] for file in files)]


@pytest.mark.parametrize("ref", ["refs/pr/3", "refs/convert/parquet"])
def test_foreign_refs_are_searched_and_named_but_not_changed(
    ref: str, place: Place, root: Path, versions: list[str], tmp_path: Path
) -> None:
    line = json.dumps(row(3, None)).encode() + b"\n"
    commit = history_hub(place).add_commit(NAME, {"default/more.jsonl": line}, parent=versions[1])
    history_hub(place).set_ref(NAME, ref, commit)

    removal = remove(place, root)

    assert [*removal.remaining.values()] == [[f"{ref}@{commit}:default/more.jsonl"]]
    assert history_hub(place).history(NAME).refs[ref] == commit
    assert removal.unreachable[-1] == ref and len(removal.removed) == 1


def test_earlier_commits_that_the_hub_still_serves_are_searched(place: Place, root: Path, versions: list[str]) -> None:
    hub, parent = history_hub(place), versions[1]
    earlier = []
    for number in range(6):
        lines = [json.dumps(row(index, None)).encode() + b"\n" for index in (3, 100 + number)]
        parent = hub.add_commit(NAME, {"default/more.jsonl": b"".join(lines)}, parent)
        earlier.append(parent)
    hub.set_ref(NAME, "refs/heads/notes", hub.add_commit(NAME, {"default/more.jsonl": b""}, parent))
    hub.keeps_commits = True

    removal = remove(place, root)

    assert [*removal.remaining.values()] == [[f"earlier@{commit}:default/more.jsonl" for commit in sorted(earlier)]]
    assert len(removal.removed) == 1


def test_a_branch_whose_head_has_a_forgotten_row_is_not_squashed(place: Place, root: Path, versions: list[str]) -> None:
    history_hub(place).set_ref(NAME, "refs/heads/old", versions[0])
    before = history_hub(place).history(NAME)

    removal = remove(place, root)

    assert removal.has_forgotten_head and removal.certificate == ""
    assert history_hub(place).history(NAME) == before


def test_history_is_kept_only_on_request(place: Place, root: Path, versions: list[str], tmp_path: Path) -> None:
    before = history_hub(place).history(NAME)

    removal = remove(place, root, keeps_history=True)

    assert history_hub(place).history(NAME) == before and find_forgotten(place, tmp_path / "copy")
    assert removal.keeps_history and len(removal.remaining) == 2 and removal.removed == {}
    assert json.loads((root / "removals/published" / removal.certificate).read_text())["keeps_history"] is True


def is_counted(request: httpx2.Request) -> bool:
    """Exclude downloads: they change nothing, and the next command repeats them."""
    return "/resolve/" not in request.url.path and "/tree/" not in request.url.path


@pytest.mark.slow
@pytest.mark.parametrize("answered", [False, True], ids=["before", "after"])
def test_a_removal_killed_at_any_request_is_completed_by_the_same_command(
    place: Place, root: Path, versions: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answered: bool
) -> None:
    shutil.copytree(place.hub.folder, tmp_path / "begun")
    shutil.copytree(root, tmp_path / "begun_root")
    countdown, changed = kill_at_request(monkeypatch, answered, is_counted), 0
    for kills in itertools.count(1):
        for folder, copy in ((place.hub.folder, "begun"), (root, "begun_root")):
            shutil.rmtree(folder)
            shutil.copytree(tmp_path / copy, folder)
        countdown[0] = kills
        try:
            removal = remove(place, root)
        except Killed:
            is_over = not any((root / "removals/published").glob("pools.json"))
            changed += not is_over
            removal = remove(place, root)
        history = history_hub(place).history(NAME)
        head = history.refs["refs/heads/main"]
        assert (history.ancestors(head), history.refs["refs/tags/v1"]) == ([head], head)
        assert (removal.remaining, len(removal.removed)) == ({}, 2)
        assert versions[0] in removal.commits["refs/tags/v1"]
        assert not (root / "removals/published/pools.json").exists()
        assert not (root / "removals/published/pools.downloads").exists()
        if countdown[0] > 0:
            break
    assert changed > 8


ENDPOINTS = [
    "*/refs",
    "*/commits/*",
    "*/super-squash/main",
    "*/tag/*",
    "*/lfs-files",
    "*/lfs-files/batch",
    "*/resolve/*",
]


@pytest.mark.parametrize("kind", [pytest.param(FaultKind.BUSY, marks=pytest.mark.slow), FaultKind.CUT])
@pytest.mark.parametrize("path", ENDPOINTS)
def test_temporary_faults_are_retried(
    kind: FaultKind, path: str, place: Place, root: Path, versions: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    place.hub.inject(Fault(kind, path))

    removal = remove(place, root)

    history = history_hub(place).history(NAME)
    assert place.hub.fired and (removal.remaining, len(removal.removed)) == ({}, 2)
    assert history.refs["refs/tags/v1"] == history.refs["refs/heads/main"]


@pytest.mark.parametrize("path", ENDPOINTS[2:6])
def test_a_refusal_is_one_line_and_a_rerun_completes(path: str, place: Place, root: Path, versions: list[str]) -> None:
    place.hub.inject(Fault(FaultKind.FORBIDDEN, path, ALWAYS))

    with pytest.raises(InputError, match=r"no write access \(HTTP 403\)") as refused:
        remove(place, root)
    place.hub.inject()

    assert "\n" not in str(refused.value)
    assert remove(place, root).remaining == {}


def test_a_record_may_have_an_entry_that_left_the_list(place: Place, root: Path, versions: list[str]) -> None:
    record, former = root / "removals/published/pools.json", {"ab" * 32: [f"refs/tags/v1@{versions[0]}:README.md"]}
    record.parent.mkdir(parents=True)
    interrupted = RemovalRecord(place.repo().url, "2026-11-26T00:00:00+00:00", removed=former)
    record.write_bytes(msgspec.json.encode(interrupted))

    removal = remove(place, root)

    assert (removal.requested, removal.remaining, record.exists()) == ("2026-11-20", {}, False)
    assert removal.removed.items() >= former.items() and len(removal.removed) == 3


def test_two_removals_at_the_same_time_are_refused(place: Place, root: Path, versions: list[str]) -> None:
    with locked(root / "removals/published/pools.json"), pytest.raises(BuilderBusyError):
        remove(place, root)


def test_a_concurrent_commit_is_not_squashed_unseen(
    place: Place, root: Path, versions: list[str], first: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = RepoSearch.search, itertools.count()

    def overtaken(*arguments: Any, **options: Any) -> Any:
        content = real(*arguments, **options)
        if next(calls) == 0:
            send(first, place)
        return content

    monkeypatch.setattr(RepoSearch, "search", overtaken)
    with pytest.raises(RetryableError, match="another commit moved main"):
        remove(place, root)

    assert remove(place, root).has_forgotten_head


def test_decoded_tokens_and_texts_are_searched(place: Place, tmp_path: Path) -> None:
    shared = {"dataset": SOURCE, "source_revision": place.revision, "meta_license": "cc-by-4.0"}
    rows = [talk(f"talk-{number}", f"answer {number}", **shared) for number in range(6)]
    splits = [scored(tmp_path / "made", "chats/low", rows, [*map(float, range(6))])]
    subsets = build_subsets(tmp_path, splits, {"anchor": {"percentile": [0, 100]}}, tokens=True)
    head = send(subsets, place)
    root = tmp_path / "root"
    root.mkdir()
    add_entries(root, [("text", rows[2]["text"])], "r", "2026-11-20")

    removal = remove(place, root, applies=False)

    [places] = removal.remaining.values()
    files = {place.partition(":")[2] for place in places}
    assert files == {"subset_anchor/chats/low-00000-of-00001.parquet", "tokens/anchor/tokens.npy"}
    assert f"refs/heads/main@{head}:tokens/anchor/tokens.npy" in places and removal.unread == []
