"""What the loopback hub promises, asked by the real clients: huggingface_hub, its file system, and datasets.

A repo's commit is a function of its files; small files come from the hub, large ones from a storage origin; only the
bytes that are asked for travel; errors are those of the real hub.
"""

import hashlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from huggingface_hub import HfApi, HfFileSystem, constants, hf_hub_download
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.hf_api import RepoFile, RepoFolder

from pipeline_assets.corpus.spine.errors import InputError
from resources.loopback_http import Request
from resources.loopback_hub import LoopbackHub
from resources.loopback_repos import repo_commit

ROOT = Path(__file__).parents[2]
REPO = "maker/stories"
README = b"# Stories\n"
ARCHIVE = bytes(range(256)) * 16
# sha1 of "README.md\0<sha256>\n" "data/archive.zst\0<sha256>\n" "data/notes/ab.txt\0<sha256>\n"
COMMIT = "f98bccd4dd894c74ff223f5bee94eac675bc3c0e"
NO_SUCH_COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(autouse=True)
def quiet_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_TELEMETRY", True)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_IMPLICIT_TOKEN", True)
    monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")


def write_stories(folder: Path) -> Path:
    """A repo of three files, one of them LFS, in folder/datasets/maker/stories."""
    repo = folder / "datasets" / REPO
    (repo / "data/notes").mkdir(parents=True)
    (repo / "README.md").write_bytes(README)
    (repo / "data/archive.zst").write_bytes(ARCHIVE)
    (repo / "data/notes/ab.txt").write_bytes(b"ab")
    return repo


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return write_stories(tmp_path / "hub")


@pytest.fixture
def hub(repo: Path, tmp_path: Path) -> Iterator[LoopbackHub]:
    with LoopbackHub(tmp_path / "hub") as running:
        yield running


@pytest.fixture
def api(hub: LoopbackHub) -> HfApi:
    return HfApi(endpoint=hub.endpoint, token=False)


@pytest.fixture
def known(hub: LoopbackHub) -> HfApi:
    """A client with a token."""
    return HfApi(endpoint=hub.endpoint, token="hf_any")


def download(hub: LoopbackHub, path: str, cache: Path, revision: str = "main", token: str | bool = False) -> Path:
    return Path(
        hf_hub_download(
            REPO, path, repo_type="dataset", revision=revision, endpoint=hub.endpoint, token=token, cache_dir=cache
        )
    )


def ask(endpoint: str, method: str, path: str, headers: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
    """One request without a client library: status, headers, body."""
    connection = http.client.HTTPConnection(endpoint.removeprefix("http://"), timeout=5)
    connection.request(method, path, headers=headers)
    response = connection.getresponse()
    answer = response.status, dict(response.getheaders()), response.read()
    connection.close()
    return answer


def test_repo_info_gives_commit_sizes_and_digests_without_a_download(api: HfApi, hub: LoopbackHub) -> None:
    info = api.repo_info(REPO, repo_type="dataset", files_metadata=True)

    assert (info.id, info.sha, info.private, info.gated) == (REPO, COMMIT, False, False)
    assert [(file.rfilename, file.size) for file in info.siblings] == [
        ("README.md", 10),
        ("data/archive.zst", 4096),
        ("data/notes/ab.txt", 2),
    ]
    assert info.siblings[0].lfs is None
    assert info.siblings[1].lfs.sha256 == hashlib.sha256(ARCHIVE).hexdigest()
    assert info.siblings[1].lfs.pointer_size == 129
    assert {request.origin for request in hub.requests} == {"hub"}


def test_repo_info_without_files_metadata_names_the_files_alone(api: HfApi) -> None:
    info = api.repo_info(REPO, repo_type="dataset", revision=COMMIT)

    assert [(file.rfilename, file.size, file.lfs) for file in info.siblings] == [
        ("README.md", None, None),
        ("data/archive.zst", None, None),
        ("data/notes/ab.txt", None, None),
    ]


def test_a_small_file_has_the_blob_id_that_git_gives_it(api: HfApi) -> None:
    [item] = api.get_paths_info(REPO, "README.md", repo_type="dataset")

    # printf '# Stories\n' | git hash-object --stdin
    assert item.blob_id == "70ac3484b4eb20ce34c7b01b7d652ae8d359ee88"


def test_a_recursive_tree_lists_folders_and_files_over_several_pages(repo: Path, tmp_path: Path) -> None:
    with LoopbackHub(tmp_path / "hub", page_size=2) as hub:
        api = HfApi(endpoint=hub.endpoint, token=False)

        items = list(api.list_repo_tree(REPO, repo_type="dataset", recursive=True))

    assert [(type(item), item.path) for item in items] == [
        (RepoFile, "README.md"),
        (RepoFolder, "data"),
        (RepoFile, "data/archive.zst"),
        (RepoFolder, "data/notes"),
        (RepoFile, "data/notes/ab.txt"),
    ]
    assert len(hub.requests) == 3


def test_a_plain_tree_lists_one_folder(api: HfApi) -> None:
    items = list(api.list_repo_tree(REPO, "data", repo_type="dataset", expand=True))

    assert [item.path for item in items] == ["data/archive.zst", "data/notes"]
    assert items[0].lfs.size == 4096
    assert items[0].last_commit.oid == COMMIT
    assert items[0].security.safe


def test_a_nested_folder_is_listed_by_its_escaped_path(api: HfApi) -> None:
    assert [item.path for item in api.list_repo_tree(REPO, "data/notes", repo_type="dataset")] == ["data/notes/ab.txt"]


def test_paths_info_leaves_out_what_does_not_exist(api: HfApi) -> None:
    items = api.get_paths_info(REPO, ["data", "data/notes/ab.txt", "no.txt"], repo_type="dataset", expand=True)

    assert [(type(item), item.path) for item in items] == [(RepoFolder, "data"), (RepoFile, "data/notes/ab.txt")]


def test_refs_hold_main_at_the_commit(api: HfApi) -> None:
    [main] = api.list_repo_refs(REPO, repo_type="dataset", include_pull_requests=True).branches

    assert (main.name, main.ref, main.target_commit) == ("main", "refs/heads/main", COMMIT)


def test_a_small_file_comes_from_the_hub(hub: LoopbackHub, tmp_path: Path) -> None:
    path = download(hub, "README.md", tmp_path / "cache")

    assert path.read_bytes() == README
    assert path.parent.name == COMMIT
    assert hub.requests == [
        Request("HEAD", f"/datasets/{REPO}/resolve/main/README.md", 200, 0, "hub"),
        Request("GET", f"/datasets/{REPO}/resolve/main/README.md", 200, 10, "hub"),
    ]


def test_a_large_file_comes_from_the_storage_origin(hub: LoopbackHub, tmp_path: Path) -> None:
    path = download(hub, "data/archive.zst", tmp_path / "cache")

    assert path.read_bytes() == ARCHIVE
    assert path.resolve().name == hashlib.sha256(ARCHIVE).hexdigest()
    assert [(request.method, request.status, request.bytes_sent, request.origin) for request in hub.requests] == [
        ("HEAD", 302, 0, "hub"),
        ("GET", 200, 4096, "storage"),
    ]


def test_a_file_above_one_mebibyte_is_lfs_whatever_its_name(repo: Path, api: HfApi) -> None:
    (repo / "exactly.txt").write_bytes(b"a" * 1_048_576)
    (repo / "one_over.txt").write_bytes(b"a" * 1_048_577)

    exactly, one_over = api.get_paths_info(REPO, ["exactly.txt", "one_over.txt"], repo_type="dataset")

    assert exactly.lfs is None
    assert one_over.lfs.size == 1_048_577


@pytest.mark.parametrize("path", ["empty.txt", "empty.zst", "a b/é%2F#?.txt", "a b/é%2F#?.gz"])
def test_empty_files_and_odd_names_arrive(repo: Path, hub: LoopbackHub, tmp_path: Path, path: str) -> None:
    (repo / path).parent.mkdir(exist_ok=True)
    (repo / path).write_bytes(b"" if "empty" in path else b"odd")

    assert download(hub, path, tmp_path / "cache").read_bytes() == (repo / path).read_bytes()


def test_a_commit_in_the_cache_needs_no_request(hub: LoopbackHub, tmp_path: Path) -> None:
    download(hub, "README.md", tmp_path / "cache", revision=COMMIT)
    requests = len(hub.requests)

    download(hub, "README.md", tmp_path / "cache", revision=COMMIT)

    assert (requests, len(hub.requests)) == (2, 2)


def test_a_models_repo_is_read_the_same_way(repo: Path, hub: LoopbackHub, tmp_path: Path) -> None:
    repo.parent.joinpath("../../models/maker").mkdir(parents=True)
    repo.rename(tmp_path / "hub/models/maker/stories")

    path = hf_hub_download(REPO, "README.md", endpoint=hub.endpoint, token=False, cache_dir=tmp_path / "cache")

    assert Path(path).read_bytes() == README
    assert hub.commits() == {"models/maker/stories": COMMIT}


def test_a_parquet_footer_travels_alone(repo: Path, hub: LoopbackHub) -> None:
    numbers = pa.table({"number": pa.array(range(100_000), pa.int64()), "other": pa.array(range(100_000), pa.int64())})
    pq.write_table(numbers, repo / "rows.parquet", row_group_size=10_000, compression="none", use_dictionary=False)
    files = HfFileSystem(endpoint=hub.endpoint, token=False, skip_instance_cache=True)

    with files.open(f"datasets/{REPO}@{hub.commits()[REPO]}/rows.parquet") as content:
        rows = pq.ParquetFile(content).metadata.num_rows

    assert rows == 100_000
    assert (repo / "rows.parquet").stat().st_size > 1_600_000
    sent = [request.bytes_sent for request in hub.requests if request.origin == "storage"]
    assert sent == [65_536]


def test_datasets_streams_parquet_rows_by_commit(repo: Path, hub: LoopbackHub, tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": ["one", "two", "three"]}), repo / "data/train.parquet")
    url = f"hf://datasets/{REPO}@{hub.commits()[REPO]}/data/train.parquet"

    rows = run_client(
        "import datasets\n"
        f"rows = datasets.load_dataset('parquet', data_files={url!r}, split='train', streaming=True)\n"
        "print([row['text'] for row in rows])",
        hub,
        tmp_path,
    )

    assert rows == "['one', 'two', 'three']\n"


def test_an_agent_registry_is_not_found_and_nobody_minds(hub: LoopbackHub, tmp_path: Path) -> None:
    status, _, body = ask(hub.endpoint, "GET", "/api/agent-harnesses", {})

    assert (status, json.loads(body)) == (404, {"error": "No such address"})


def run_client(code: str, hub: LoopbackHub, folder: Path) -> str:
    """stdout of a program whose clients find the hub by environment, which they read when imported."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    environment = clean | {
        "HF_ENDPOINT": hub.endpoint,
        "HF_HOME": str(folder / "hf_home"),
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
    }
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("revision", [NO_SUCH_COMMIT, "no-such-branch", "refs/convert/parquet", COMMIT[:7]])
def test_any_revision_but_main_and_the_commit_is_not_found(
    api: HfApi, hub: LoopbackHub, tmp_path: Path, revision: str
) -> None:
    with pytest.raises(RevisionNotFoundError):
        api.repo_info(REPO, repo_type="dataset", revision=revision)
    with pytest.raises(RevisionNotFoundError):
        list(api.list_repo_tree(REPO, repo_type="dataset", revision=revision))
    with pytest.raises(RevisionNotFoundError):
        download(hub, "README.md", tmp_path / "cache", revision=revision)


def test_an_unknown_file_is_not_found_and_the_client_remembers(hub: LoopbackHub, tmp_path: Path) -> None:
    with pytest.raises(RemoteEntryNotFoundError):
        download(hub, "no.txt", tmp_path / "cache")

    assert [path.name for path in (tmp_path / "cache").rglob(".no_exist/*/*")] == ["no.txt"]


def test_an_unknown_folder_is_not_found(api: HfApi) -> None:
    with pytest.raises(RemoteEntryNotFoundError):
        list(api.list_repo_tree(REPO, "no", repo_type="dataset"))


def test_an_unknown_repo_is_401_to_strangers_and_404_to_known_clients(api: HfApi, known: HfApi) -> None:
    with pytest.raises(RepositoryNotFoundError) as stranger:
        api.repo_info("maker/no", repo_type="dataset")
    with pytest.raises(RepositoryNotFoundError) as client:
        known.repo_info("maker/no", repo_type="dataset")

    assert (stranger.value.response.status_code, client.value.response.status_code) == (401, 404)


@pytest.mark.parametrize("name", ["stories", "a" * 300 + "/stories", ".hidden/stories", "maker/.."])
def test_a_name_that_no_repo_can_have_is_an_unknown_repo(hub: LoopbackHub, name: str) -> None:
    status, headers, _ = ask(hub.endpoint, "GET", f"/api/datasets/{name}", {"Authorization": "Bearer any"})

    assert (status, headers["X-Error-Code"]) == (404, "RepoNotFound")


def test_a_private_repo_looks_unknown_to_strangers(repo: Path, hub: LoopbackHub, api: HfApi, tmp_path: Path) -> None:
    (repo / ".private").touch()

    with pytest.raises(RepositoryNotFoundError) as of_info:
        api.repo_info(REPO, repo_type="dataset")
    with pytest.raises(RepositoryNotFoundError) as of_file:
        download(hub, "README.md", tmp_path / "cache")

    assert (of_info.value.response.status_code, of_file.value.response.status_code) == (401, 401)


def test_a_private_repo_opens_with_a_token(repo: Path, hub: LoopbackHub, known: HfApi, tmp_path: Path) -> None:
    (repo / ".private").touch()

    info = known.repo_info(REPO, repo_type="dataset")
    path = download(hub, "data/archive.zst", tmp_path / "cache", token="hf_any")

    assert (info.private, info.sha) == (True, COMMIT)
    assert path.read_bytes() == ARCHIVE


def test_a_gated_repo_is_seen_but_not_read_by_strangers(
    repo: Path, hub: LoopbackHub, api: HfApi, tmp_path: Path
) -> None:
    (repo / ".gated").touch()

    assert api.repo_info(REPO, repo_type="dataset").gated == "auto"
    with pytest.raises(GatedRepoError) as of_tree:
        list(api.list_repo_tree(REPO, repo_type="dataset"))
    with pytest.raises(GatedRepoError):
        download(hub, "README.md", tmp_path / "cache")
    assert of_tree.value.response.status_code == 403


def test_a_gated_repo_opens_with_a_token(repo: Path, hub: LoopbackHub, known: HfApi, tmp_path: Path) -> None:
    (repo / ".gated").touch()

    paths = [item.path for item in known.list_repo_tree(REPO, repo_type="dataset")]

    assert paths == ["README.md", "data"]
    assert download(hub, "README.md", tmp_path / "cache", token="hf_any").read_bytes() == README


def test_whoami_wants_a_token(known: HfApi, hub: LoopbackHub) -> None:
    assert known.whoami()["name"] == "loopback"
    assert ask(hub.endpoint, "GET", "/api/whoami-v2", {})[0] == 401


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
def test_main_moves_with_any_change_and_the_old_commit_is_gone(
    repo: Path, api: HfApi, change: Callable[[Path], object]
) -> None:
    before = api.repo_info(REPO, repo_type="dataset").sha

    change(repo)

    after = api.repo_info(REPO, repo_type="dataset").sha
    assert before == COMMIT
    assert after not in (COMMIT, None)
    with pytest.raises(RevisionNotFoundError):
        api.repo_info(REPO, repo_type="dataset", revision=before)


def test_content_is_read_again_only_when_size_or_mtime_differ(repo: Path, hub: LoopbackHub) -> None:
    os.utime(repo / "README.md", ns=(0, 1_000_000_000))
    before = hub.commits()[REPO]

    (repo / "README.md").write_bytes(b"# Storied\n")
    os.utime(repo / "README.md", ns=(0, 1_000_000_000))
    unnoticed = hub.commits()[REPO]
    os.utime(repo / "README.md", ns=(0, 1_000_000_001))
    noticed = hub.commits()[REPO]

    assert (before, unnoticed) == (COMMIT, COMMIT)
    assert noticed == repo_commit(repo) != COMMIT


def test_commits_names_every_repo(repo: Path, hub: LoopbackHub) -> None:
    (repo.parent / "empty").mkdir()

    assert hub.commits() == {"maker/empty": "da39a3ee5e6b4b0d3255bfef95601890afd80709", REPO: COMMIT}


def test_dot_files_and_links_are_not_part_of_a_repo(repo: Path, hub: LoopbackHub, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    (repo / ".cache").mkdir()
    (repo / ".cache/README.md").write_text("hidden")
    (repo / "link.txt").symlink_to(tmp_path / "secret.txt")
    (repo / "folder").symlink_to(tmp_path)

    assert hub.commits() == {REPO: COMMIT}


@pytest.mark.parametrize(
    "path",
    [
        "/datasets/maker/stories/resolve/main/../../../../secret.txt",
        "/datasets/maker/stories/resolve/main/%2e%2e/%2e%2e/%2e%2e/%2e%2e/secret.txt",
        "/datasets/maker/stories/resolve/main/..%2F..%2F..%2F..%2Fsecret.txt",
        "/datasets/maker/stories/resolve/main/.gated",
        "/datasets/..%2F../hub/resolve/main/secret.txt",
        "/../hub/resolve/main/secret.txt",
        "/datasets/maker/stories/resolve/main/",
        "/datasets/maker/stories/resolve/main/data",
    ],
)
def test_no_path_leads_out_of_a_repo(repo: Path, hub: LoopbackHub, tmp_path: Path, path: str) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    (repo / ".gated").touch()

    assert ask(hub.endpoint, "GET", path, {"Authorization": "Bearer any"})[0] == 404


@pytest.mark.parametrize(
    ("asked", "status", "content_range", "body"),
    [
        ("bytes=0-0", 206, "bytes 0-0/10", b"#"),
        ("bytes=2-4", 206, "bytes 2-4/10", b"Sto"),
        ("bytes=9-", 206, "bytes 9-9/10", b"\n"),
        ("bytes=8-99", 206, "bytes 8-9/10", b"s\n"),
        ("bytes=-3", 206, "bytes 7-9/10", b"es\n"),
        ("bytes=-99", 206, "bytes 0-9/10", README),
        ("bytes=10-", 416, "bytes */10", b""),
        ("bytes=10-20", 416, "bytes */10", b""),
        ("bytes=-0", 416, "bytes */10", b""),
        ("bytes=4-2", 200, None, README),
        ("bytes=-", 200, None, README),
        ("bytes=0-1,3-4", 200, None, README),
        ("lines=1-2", 200, None, README),
    ],
)
def test_a_range_is_answered_as_the_rfc_says(
    hub: LoopbackHub, asked: str, status: int, content_range: str | None, body: bytes
) -> None:
    answer = ask(hub.endpoint, "GET", f"/datasets/{REPO}/resolve/main/README.md", {"Range": asked})

    assert (answer[0], answer[1].get("Content-Range"), answer[2]) == (status, content_range, body)


def test_a_range_past_the_end_of_a_large_file_is_416_for_the_client(hub: LoopbackHub, api: HfApi) -> None:
    files = HfFileSystem(endpoint=hub.endpoint, token=False, skip_instance_cache=True)

    with files.open(f"datasets/{REPO}/data/archive.zst") as content, pytest.raises(HfHubHTTPError) as error:
        content._fetch_range(4096, 5000)

    assert error.value.response.status_code == 416
    assert error.value.response.headers["Content-Range"] == "bytes */4096"


def test_storage_gives_nothing_by_a_stale_digest(hub: LoopbackHub) -> None:
    path = f"/datasets/{REPO}/resolve/main/data/archive.zst"
    location = ask(hub.endpoint, "HEAD", path, {})[1]["Location"]
    storage, _, address = location.removeprefix("http://").partition("/")

    assert ask(storage, "GET", f"/{address}", {"Range": "bytes=1-3"})[2] == b"\x01\x02\x03"
    assert ask(storage, "GET", f"/{address.replace(hashlib.sha256(ARCHIVE).hexdigest(), '0' * 64)}", {})[0] == 404


@pytest.mark.parametrize(
    ("sent", "status_line"),
    [
        (b"nonsense\r\n\r\n", b"HTTP/1.1 400 Bad Request"),
        (b"GET / HTTP/9.9\r\n\r\n", b"HTTP/1.1 505 HTTP Version Not Supported"),
        (b"BREW /coffee HTTP/1.1\r\n\r\n", b"HTTP/1.1 501 Not Implemented"),
        (b"POST /api HTTP/1.1\r\nContent-Length: -1\r\n\r\n", b"HTTP/1.1 400 Bad Request"),
        (b"POST /api HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n", b"HTTP/1.1 400 Bad Request"),
        (b"GET /%ff%00//x?a=%ff&& HTTP/1.1\r\nConnection: close\r\n\r\n", b"HTTP/1.1 404 Not Found"),
    ],
)
def test_a_bad_request_is_refused_without_a_word_on_stderr(
    hub: LoopbackHub, capfd: pytest.CaptureFixture[str], sent: bytes, status_line: bytes
) -> None:
    with socket.create_connection(("127.0.0.1", int(hub.endpoint.rsplit(":")[-1])), timeout=5) as connection:
        connection.sendall(sent)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))

    assert answer.startswith(status_line)
    assert capfd.readouterr().err == ""


def test_a_client_that_hangs_up_midway_is_counted_for_what_was_sent(
    repo: Path, hub: LoopbackHub, capfd: pytest.CaptureFixture[str]
) -> None:
    (repo / "long.bin").write_bytes(bytes(64_000_000))
    location = ask(hub.endpoint, "HEAD", f"/datasets/{REPO}/resolve/main/long.bin", {})[1]["Location"]
    host, _, path = location.removeprefix("http://").partition("/")

    connection = http.client.HTTPConnection(host, timeout=5)
    connection.request("GET", f"/{path}")
    connection.getresponse().read(100)
    connection.close()
    for _ in range(5000):  # the server notices when it writes on
        if any(request.origin == "storage" for request in hub.requests):
            break
        ask(hub.endpoint, "GET", "/api/whoami-v2", {})

    [cut] = [request for request in hub.requests if request.origin == "storage"]
    assert 0 < cut.bytes_sent < 64_000_000
    assert capfd.readouterr().err == ""


def test_one_connection_carries_many_requests(hub: LoopbackHub) -> None:
    connection = http.client.HTTPConnection(hub.endpoint.removeprefix("http://"), timeout=5)

    bodies = []
    for _ in range(3):
        connection.request("GET", f"/datasets/{REPO}/resolve/main/README.md")
        bodies.append(connection.getresponse().read())
        local_port = connection.sock.getsockname()[1]
        bodies.append(local_port)

    assert bodies == [README, local_port] * 3


def test_a_stopped_hub_answers_no_open_connection(repo: Path, tmp_path: Path) -> None:
    with LoopbackHub(tmp_path / "hub") as hub:
        connection = http.client.HTTPConnection(hub.endpoint.removeprefix("http://"), timeout=5)
        connection.request("GET", "/api/whoami-v2")
        connection.getresponse().read()

    with pytest.raises((ConnectionError, http.client.RemoteDisconnected)):
        connection.request("GET", "/api/whoami-v2")
        connection.getresponse()


def test_a_missing_folder_a_file_and_a_taken_port_say_what_to_do(hub: LoopbackHub, tmp_path: Path) -> None:
    port = int(hub.endpoint.rsplit(":")[-1])
    (tmp_path / "file").touch()

    with pytest.raises(InputError) as missing:
        LoopbackHub(tmp_path / "no").start()
    with pytest.raises(InputError) as file:
        LoopbackHub(tmp_path / "file").start()
    with pytest.raises(InputError) as taken:
        LoopbackHub(tmp_path / "hub", port).start()

    fix = "give a folder with datasets/<owner>/<name>/… inside"
    assert str(missing.value) == f"{tmp_path}/no: there is no such folder; {fix}"
    assert str(file.value) == f"{tmp_path}/file: this is a file; {fix}"
    assert str(taken.value) == f"127.0.0.1:{port}: the port is taken; give another one with --port"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_serve_says_how_to_use_it_and_ends_on_a_signal(repo: Path, tmp_path: Path, number: signal.Signals) -> None:
    code = f"import pathlib, resources.loopback_hub as h; h.serve(pathlib.Path({str(tmp_path / 'hub')!r}), 0)"
    program = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    said = [program.stdout.readline() for _ in range(3)]
    program.send_signal(number)
    rest, complaints = program.communicate(timeout=10)

    endpoint = said[0].removeprefix("hub: ").strip()
    assert said == [
        f"hub: {endpoint}\n",
        f"{REPO} {COMMIT}\n",
        f"use: HF_ENDPOINT={endpoint} HF_HUB_DISABLE_TELEMETRY=1 <command>; Ctrl-C ends it\n",
    ]
    assert (rest, complaints, program.returncode) == ("", "", 0)
