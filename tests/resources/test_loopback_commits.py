"""A repo's commit on the loopback hub depends only on its files."""

import hashlib
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from huggingface_hub import CommitOperationAdd, HfApi, constants
from huggingface_hub.errors import HfHubHTTPError, RevisionNotFoundError
from loopback_repo import COMMIT, REPO, write_stories

from pipeline_assets.demo import loopback_repos
from pipeline_assets.demo.loopback_hub import LoopbackHub
from pipeline_assets.demo.loopback_repos import RepoReader

ROWS = "loopback/rows"


def repo_commit(folder: Path) -> str:
    return RepoReader().read(folder, "", folder.name).commit


def test_equal_content_in_two_folders_has_one_commit(tmp_path: Path) -> None:
    first, second = write_stories(tmp_path / "first"), write_stories(tmp_path / "second")
    os.utime(second / "README.md", (0, 0))
    (second / ".gated").touch()

    assert (repo_commit(first), repo_commit(second)) == (COMMIT, COMMIT)


@pytest.mark.parametrize(
    "change",
    [
        lambda repo: (repo / "README.md").write_bytes(b"# Storied\n"),
        lambda repo: (repo / "README.md").rename(repo / "readme.md"),
        lambda repo: (repo / "README.md").unlink(),
        lambda repo: (repo / "data/empty.txt").touch(),
    ],
    ids=["content", "name", "removal", "addition"],
)
def test_main_moves_with_any_change(repo: Path, api: HfApi, change: Callable[[Path], object]) -> None:
    assert api.repo_info(REPO, repo_type="dataset").sha == COMMIT

    change(repo)

    assert api.repo_info(REPO, repo_type="dataset").sha not in (COMMIT, None)
    with pytest.raises(RevisionNotFoundError):
        api.repo_info(REPO, repo_type="dataset", revision=COMMIT)


def test_content_is_reread_only_when_size_or_mtime_differ(repo: Path, hub: LoopbackHub) -> None:
    os.utime(repo / "README.md", ns=(0, 1_000_000_000))
    before = hub.commits()[REPO]

    (repo / "README.md").write_bytes(b"# Storied\n")
    os.utime(repo / "README.md", ns=(0, 1_000_000_000))
    unnoticed = hub.commits()[REPO]
    os.utime(repo / "README.md", ns=(0, 1_000_000_001))
    noticed = hub.commits()[REPO]

    assert (before, unnoticed) == (COMMIT, COMMIT)
    assert noticed == repo_commit(repo) != COMMIT


def test_dot_files_and_links_are_not_part_of_a_repo(repo: Path, hub: LoopbackHub, tmp_path: Path) -> None:
    (repo.parent / "empty").mkdir()
    (tmp_path / "secret.txt").write_text("secret")
    (repo / ".cache").mkdir()
    (repo / ".cache/README.md").write_text("hidden")
    (repo / "link.txt").symlink_to(tmp_path / "secret.txt")
    (repo / "folder").symlink_to(tmp_path)

    assert hub.commits() == {"maker/empty": hashlib.sha1(b"").hexdigest(), REPO: COMMIT}


def test_recently_written_content_is_reread(repo: Path, hub: LoopbackHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loopback_repos, "MTIME_TICK_NS", 86_400_000_000_000)  # a clock that advances once a day
    (repo / "README.md").write_bytes(b"# Stories\n")
    written = os.stat(repo / "README.md").st_mtime_ns
    before = hub.commits()[REPO]
    (repo / "README.md").write_bytes(b"# Storied\n")
    os.utime(repo / "README.md", ns=(written, written))

    assert (before, hub.commits()[REPO]) == (COMMIT, repo_commit(repo))
    assert repo_commit(repo) != COMMIT


@pytest.fixture
def writable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopbackHub]:
    """Serve a hub with the empty repository `loopback/rows`."""
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    (tmp_path / "hub").mkdir()
    with LoopbackHub(tmp_path / "hub", writable=True) as hub:
        HfApi(endpoint=hub.endpoint, token=hub.token).create_repo(ROWS, repo_type="dataset")
        yield hub


def add_files(api: HfApi, content: bytes, *names: str, create_pr: bool = False) -> str:
    added = [CommitOperationAdd(name, content) for name in names]
    return api.create_commit(ROWS, added, commit_message="Add", repo_type="dataset", create_pr=create_pr).oid


def test_large_files_of_old_commits_are_listed_until_deletion(writable: LoopbackHub) -> None:
    api, stranger = (HfApi(endpoint=writable.endpoint, token=token) for token in (writable.token, "hf_reader"))
    for content in (b"first", b"second"):
        add_files(api, content, "rows.parquet")
    [main] = api.list_repo_refs(ROWS, repo_type="dataset", include_pull_requests=True).branches
    listed = [*api.list_lfs_files(ROWS, repo_type="dataset")]
    earlier = [file for file in listed if file.size == 5]

    with pytest.raises(HfHubHTTPError, match="403"):
        stranger.permanently_delete_lfs_files(ROWS, earlier, repo_type="dataset")
    with pytest.raises(HfHubHTTPError, match="403"):
        stranger.super_squash_history(ROWS, repo_type="dataset")
    api.super_squash_history(ROWS, repo_type="dataset")
    api.permanently_delete_lfs_files(ROWS, earlier, rewrite_history=False, repo_type="dataset")

    assert (main.ref, main.target_commit) == ("refs/heads/main", writable.commits()[ROWS])
    [commit] = api.list_repo_commits(ROWS, repo_type="dataset")
    assert commit.commit_id == main.target_commit
    assert sorted(file.size for file in listed) == [5, 6]
    [remaining] = api.list_lfs_files(ROWS, repo_type="dataset")
    assert remaining.file_oid == hashlib.sha256(b"second").hexdigest()
    assert (writable.folder / "datasets" / ROWS / "rows.parquet").read_bytes() == b"second"


def test_a_pull_request_is_refused_and_changes_nothing(writable: LoopbackHub) -> None:
    created = writable.commits()

    with pytest.raises(HfHubHTTPError, match="This hub has no pull requests"):
        add_files(HfApi(endpoint=writable.endpoint, token=writable.token), b"text", "notes.txt", create_pr=True)

    assert writable.commits() == created


def test_replaced_commits_can_be_read_until_a_squash(writable: LoopbackHub, tmp_path: Path) -> None:
    api = HfApi(endpoint=writable.endpoint, token=writable.token)
    created = writable.commits()[ROWS]
    names = ("data/rows.parquet", "notes.txt")
    first, second, _ = (add_files(api, text, *names) for text in (b"first", b"second", b"first"))

    def contents(revision: str) -> list[bytes]:
        cache = tmp_path / "cache" / revision
        download = partial(api.hf_hub_download, ROWS, repo_type="dataset", cache_dir=cache)
        return [Path(download(name, revision=revision)).read_bytes() for name in names]

    def listed(revision: str = "main") -> list[str]:
        commits = api.list_repo_commits(ROWS, repo_type="dataset", revision=revision)
        return [commit.commit_id for commit in commits]

    assert listed() == [first, second, created] and listed(second) == [second, created]
    assert contents(second) == [b"second", b"second"] and contents(first) == [b"first", b"first"]
    tree = api.list_repo_tree(ROWS, repo_type="dataset", revision=created)
    assert [entry.path for entry in tree] == [".gitattributes"]
    assert not (writable.folder / ".commits" / ROWS / "00000001/notes.txt").exists()

    api.super_squash_history(ROWS, repo_type="dataset")

    assert listed() == [first]
    with pytest.raises(RevisionNotFoundError):
        api.repo_info(ROWS, repo_type="dataset", revision=second)
    api.upload_file(path_or_fileobj=b"third", path_in_repo="notes.txt", repo_id=ROWS, repo_type="dataset")
    assert listed()[1:] == [first] and contents(first) == [b"first", b"first"]
