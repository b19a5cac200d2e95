"""The loopback hub refuses unknown, private and gated repos like the real hub."""

from pathlib import Path

import pytest
from huggingface_hub import HfApi
from huggingface_hub.errors import (
    GatedRepoError,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from loopback_repo import ARCHIVE, COMMIT, NO_SUCH_COMMIT, README, REPO, download, send_request

from pipeline_assets.demo.loopback_hub import LoopbackHub


@pytest.mark.parametrize("revision", [NO_SUCH_COMMIT, "no-such-branch", "refs/convert/parquet", COMMIT[:7]])
def test_only_main_and_commit_exist_as_revisions(api: HfApi, hub: LoopbackHub, tmp_path: Path, revision: str) -> None:
    with pytest.raises(RevisionNotFoundError):
        api.repo_info(REPO, repo_type="dataset", revision=revision)
    with pytest.raises(RevisionNotFoundError):
        list(api.list_repo_tree(REPO, repo_type="dataset", revision=revision))
    with pytest.raises(RevisionNotFoundError):
        download(hub, "README.md", tmp_path / "cache", revision=revision)


def test_unknown_file_or_folder_is_not_found_and_cached_as_such(hub: LoopbackHub, api: HfApi, tmp_path: Path) -> None:
    with pytest.raises(RemoteEntryNotFoundError):
        download(hub, "no.txt", tmp_path / "cache")
    with pytest.raises(RemoteEntryNotFoundError):
        list(api.list_repo_tree(REPO, "no", repo_type="dataset"))

    assert [path.name for path in (tmp_path / "cache").rglob(".no_exist/*/*")] == ["no.txt"]


def test_unknown_repo_is_401_without_a_token_and_404_with_one(api: HfApi, known: HfApi) -> None:
    with pytest.raises(RepositoryNotFoundError) as stranger:
        api.repo_info("maker/no", repo_type="dataset")
    with pytest.raises(RepositoryNotFoundError) as client:
        known.repo_info("maker/no", repo_type="dataset")

    assert (stranger.value.response.status_code, client.value.response.status_code) == (401, 404)


@pytest.mark.parametrize("name", ["stories", "a" * 300 + "/stories", ".hidden/stories", "maker/.."])
def test_invalid_repo_name_is_an_unknown_repo(hub: LoopbackHub, name: str) -> None:
    status, headers, _ = send_request(f"{hub.endpoint}/api/datasets/{name}", headers={"Authorization": "Bearer any"})

    assert (status, headers["X-Error-Code"]) == (404, "RepoNotFound")


def test_private_repo_is_unknown_without_a_token_and_opens_with_one(
    repo: Path, hub: LoopbackHub, api: HfApi, known: HfApi, tmp_path: Path
) -> None:
    (repo / ".private").touch()

    for read in (lambda: api.repo_info(REPO, repo_type="dataset"), lambda: download(hub, "README.md", tmp_path)):
        with pytest.raises(RepositoryNotFoundError) as error:
            read()
        assert error.value.response.status_code == 401
    info = known.repo_info(REPO, repo_type="dataset")
    assert (info.private, info.sha) == (True, COMMIT)
    assert download(hub, "data/archive.zst", tmp_path / "cache", token="hf_any").read_bytes() == ARCHIVE


def test_gated_repo_is_visible_without_a_token_and_opens_with_one(
    repo: Path, hub: LoopbackHub, api: HfApi, known: HfApi, tmp_path: Path
) -> None:
    (repo / ".gated").touch()

    assert api.repo_info(REPO, repo_type="dataset").gated == "auto"
    with pytest.raises(GatedRepoError) as tree_error:
        list(api.list_repo_tree(REPO, repo_type="dataset"))
    with pytest.raises(GatedRepoError):
        download(hub, "README.md", tmp_path / "cache")
    assert tree_error.value.response.status_code == 403
    assert [item.path for item in known.list_repo_tree(REPO, repo_type="dataset")] == ["README.md", "data"]
    assert download(hub, "README.md", tmp_path / "cache", token="hf_any").read_bytes() == README


def test_whoami_needs_a_token(known: HfApi, hub: LoopbackHub) -> None:
    assert known.whoami()["name"] == "loopback"
    assert send_request(f"{hub.endpoint}/api/whoami-v2")[0] == 401
