"""A repo's commit on the loopback hub depends only on its files."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from huggingface_hub import CommitOperationAdd, HfApi, constants
from huggingface_hub.errors import HfHubHTTPError, RevisionNotFoundError
from loopback_repo import COMMIT, REPO, write_stories

from pipeline_assets.demo import loopback_repos
from pipeline_assets.demo.loopback_hub import LoopbackHub
from pipeline_assets.demo.loopback_repos import RepoReader


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
    before = api.repo_info(REPO, repo_type="dataset").sha

    change(repo)

    after = api.repo_info(REPO, repo_type="dataset").sha
    assert before == COMMIT
    assert after not in (COMMIT, None)
    with pytest.raises(RevisionNotFoundError):
        api.repo_info(REPO, repo_type="dataset", revision=before)


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


def test_commits_lists_every_repo(repo: Path, hub: LoopbackHub) -> None:
    (repo.parent / "empty").mkdir()

    assert hub.commits() == {"maker/empty": "da39a3ee5e6b4b0d3255bfef95601890afd80709", REPO: COMMIT}


def test_dot_files_and_links_are_not_part_of_a_repo(repo: Path, hub: LoopbackHub, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    (repo / ".cache").mkdir()
    (repo / ".cache/README.md").write_text("hidden")
    (repo / "link.txt").symlink_to(tmp_path / "secret.txt")
    (repo / "folder").symlink_to(tmp_path)

    assert hub.commits() == {REPO: COMMIT}


def test_recently_written_content_is_reread(repo: Path, hub: LoopbackHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loopback_repos, "MTIME_TICK_NS", 86_400_000_000_000)  # a clock that advances once a day
    (repo / "README.md").write_bytes(b"# Stories\n")
    written = os.stat(repo / "README.md").st_mtime_ns
    before = hub.commits()[REPO]
    (repo / "README.md").write_bytes(b"# Storied\n")
    os.utime(repo / "README.md", ns=(written, written))

    assert (before, hub.commits()[REPO]) == (COMMIT, repo_commit(repo))
    assert repo_commit(repo) != COMMIT


def test_large_files_of_old_commits_are_listed_until_deletion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    (tmp_path / "hub").mkdir()
    with LoopbackHub(tmp_path / "hub", writable=True) as hub:
        api, stranger = (HfApi(endpoint=hub.endpoint, token=token) for token in (hub.token, "hf_reader"))
        api.create_repo("loopback/rows", repo_type="dataset")
        for content in (b"first", b"second"):
            add = [CommitOperationAdd("rows.parquet", content)]
            api.create_commit("loopback/rows", add, commit_message="Add rows", repo_type="dataset")
        [main] = api.list_repo_refs("loopback/rows", repo_type="dataset", include_pull_requests=True).branches
        listed = [*api.list_lfs_files("loopback/rows", repo_type="dataset")]
        earlier = [file for file in listed if file.size == 5]

        with pytest.raises(HfHubHTTPError, match="403"):
            stranger.permanently_delete_lfs_files("loopback/rows", earlier, repo_type="dataset")
        with pytest.raises(HfHubHTTPError, match="403"):
            stranger.super_squash_history("loopback/rows", repo_type="dataset")
        api.super_squash_history("loopback/rows", repo_type="dataset")
        api.permanently_delete_lfs_files("loopback/rows", earlier, rewrite_history=False, repo_type="dataset")

        assert (main.ref, main.target_commit) == ("refs/heads/main", hub.commits()["loopback/rows"])
        [commit] = api.list_repo_commits("loopback/rows", repo_type="dataset")
        assert commit.commit_id == main.target_commit
        assert sorted(file.size for file in listed) == [5, 6]
        [remaining] = api.list_lfs_files("loopback/rows", repo_type="dataset")
        assert remaining.file_oid == "16367aacb67a4a017c8da8ab95682ccb390863780f7114dda0a0e0c55644c7c4"
        assert (tmp_path / "hub/datasets/loopback/rows/rows.parquet").read_bytes() == b"second"


def test_a_pull_request_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "hub").mkdir()
    with LoopbackHub(tmp_path / "hub", writable=True) as hub:
        api = HfApi(endpoint=hub.endpoint, token=hub.token)
        api.create_repo("loopback/rows", repo_type="dataset")
        created = hub.commits()

        with pytest.raises(HfHubHTTPError, match="This hub has no pull requests"):
            add = [CommitOperationAdd("notes.txt", b"text")]
            api.create_commit("loopback/rows", add, commit_message="Add", repo_type="dataset", create_pr=True)

        assert hub.commits() == created


def test_replaced_commits_can_be_read_until_a_squash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    (tmp_path / "hub").mkdir()
    with LoopbackHub(tmp_path / "hub", writable=True) as hub:
        api = HfApi(endpoint=hub.endpoint, token=hub.token)
        api.create_repo("loopback/rows", repo_type="dataset")
        created = hub.commits()["loopback/rows"]
        added = [
            api.create_commit(
                "loopback/rows",
                [CommitOperationAdd("data/rows.parquet", text), CommitOperationAdd("notes.txt", text)],
                commit_message="Add rows",
                repo_type="dataset",
            ).oid
            for text in (b"first", b"second", b"first")
        ][:2]

        def contents(revision: str) -> list[bytes]:
            cache = tmp_path / "cache" / revision
            download = partial(api.hf_hub_download, "loopback/rows", repo_type="dataset", cache_dir=cache)
            return [Path(download(name, revision=revision)).read_bytes() for name in ("data/rows.parquet", "notes.txt")]

        def listed(revision: str = "main") -> list[str]:
            commits = api.list_repo_commits("loopback/rows", repo_type="dataset", revision=revision)
            return [commit.commit_id for commit in commits]

        assert listed() == [added[0], added[1], created] and listed(added[1]) == [added[1], created]
        assert contents(added[1]) == [b"second", b"second"] and contents(added[0]) == [b"first", b"first"]
        assert [entry.path for entry in api.list_repo_tree("loopback/rows", repo_type="dataset", revision=created)] == [
            ".gitattributes"
        ]
        assert not (tmp_path / "hub/.commits/loopback/rows/00000001/notes.txt").exists()

        api.super_squash_history("loopback/rows", repo_type="dataset")

        assert listed() == [added[0]]
        with pytest.raises(RevisionNotFoundError):
            api.repo_info("loopback/rows", repo_type="dataset", revision=added[1])
        api.upload_file(
            path_or_fileobj=b"third", path_in_repo="notes.txt", repo_id="loopback/rows", repo_type="dataset"
        )
        assert listed()[1:] == [added[0]] and contents(added[0]) == [b"first", b"first"]
