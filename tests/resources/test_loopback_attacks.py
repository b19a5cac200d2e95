"""Attacks on the loopback hub.

They use names, links, foreign hosts, missing tokens, deep and long bodies.
"""

import http.client
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from loopback_repo import REPO, send_request

import pipeline_assets.demo.loopback_writes as writes
from pipeline_assets.demo.loopback_http import READER_BODY_LIMIT_BYTES, HubRequest, Origin, Response
from pipeline_assets.demo.loopback_hub import LoopbackHub
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.ui import serve_reports

TOKEN = "hf_writer"
SHA256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # of b"abc"
DEEP = b"[" * 200_000
API = f"/api/datasets/{REPO}"
JSON_ROUTES = [
    ("POST", "/api/repos/create"),
    ("PUT", f"{API}/settings"),
    ("POST", f"{API}/preupload/main"),
    ("POST", f"{API}/commit/main"),
    ("POST", f"/datasets/{REPO}.git/info/lfs/objects/batch"),
    ("POST", f"/datasets/{REPO}.git/info/lfs/verify"),
]
WRITER_ROUTES = [
    *JSON_ROUTES,
    ("GET", f"{API}/lfs-files"),
    ("POST", f"{API}/lfs-files/batch"),
    ("POST", f"{API}/super-squash/main"),
]


NAMES = ["../x", "..", ".", "", "/tmp/x", "a/b", "a\0b", "a\nb", "a" * 97, "x.git", "X.GIT", "x.ipynb", "-x", ".x"]
NAMES += ["a--b", "a..b", "x.", "x-", "ä", "a b", "a\\b"]


class SwappingHub(LoopbackHub):
    """Hub that calls `swap` after preparing an answer and before sending it."""

    swap: Any = None

    def answer(self, origin: Origin, request: HubRequest) -> Response:
        answer = super().answer(origin, request)
        if self.swap is not None:
            self.swap()
        return answer


@pytest.fixture
def hub(repo: Path, tmp_path: Path) -> Iterator[SwappingHub]:
    with SwappingHub(tmp_path / "hub", writable=True, token=TOKEN) as running:
        yield running


def send(address: str, method: str, body: bytes = b"", **headers: str) -> tuple[int, bytes]:
    """Send one request with the writer's token, or with the passed Authorization."""
    status, _, answer = send_request(address, method, {"Authorization": f"Bearer {TOKEN}", **headers}, body)
    return status, answer


def commit(hub: LoopbackHub, *changes: tuple[str, dict[str, Any]]) -> tuple[int, bytes]:
    lines = [{"key": "header", "value": {"summary": "made"}}, *({"key": key, "value": value} for key, value in changes)]
    return send(f"{hub.endpoint}{API}/commit/main", "POST", "\n".join(map(json.dumps, lines)).encode())


def upload(path: str) -> tuple[str, dict[str, Any]]:
    return "file", {"path": path, "content": "YWJj", "encoding": "base64"}


def list_paths(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


@pytest.mark.parametrize("key", ["name", "organization"])
@pytest.mark.parametrize("name", [*NAMES, ["x"], {"x": 1}, 7])
def test_invalid_repo_name_creates_nothing(hub: LoopbackHub, tmp_path: Path, name: object, key: str) -> None:
    before = list_paths(tmp_path)

    request = {"name": "../x", "organization": "loopback", "type": "dataset", key: name}
    status, _ = send(f"{hub.endpoint}/api/repos/create", "POST", json.dumps(request).encode())

    assert (status, list_paths(tmp_path)) == (400, before)


@pytest.mark.parametrize(
    "path", ["../x", "/x", "a/../x", "a//x", ".x", "a\0", "a" * 201, "a\\x", "", "/".join("a" * 600), 7]
)
def test_invalid_path_in_a_repo_is_refused_and_not_written(hub: LoopbackHub, tmp_path: Path, path: object) -> None:
    before = list_paths(tmp_path)

    status, _ = commit(hub, upload("fine.txt"), ("file", {"path": path, "content": "YWJj"}))

    assert (status, list_paths(tmp_path)) == (400, before)


def test_file_in_place_of_a_folder_is_refused_before_any_write(hub: LoopbackHub, repo: Path) -> None:
    statuses = [commit(hub, upload("fine.txt"), upload(path))[0] for path in ("data", "README.md/x", "fine.txt/x")]

    assert statuses == [400, 400, 400] and not (repo / "fine.txt").exists()


@pytest.mark.parametrize("place", ["datasets", "datasets/maker", f"datasets/{REPO}"])
def test_linked_folder_contains_no_repo(hub: LoopbackHub, tmp_path: Path, place: str) -> None:
    folder = tmp_path / "hub" / place
    folder.rename(tmp_path / "outside")
    folder.symlink_to(tmp_path / "outside")
    before = list_paths(tmp_path / "outside")

    assert hub.commits() == {}
    assert send(f"{hub.endpoint}/datasets/{REPO}/resolve/main/README.md", "GET")[0] == 404
    assert commit(hub, upload("new.txt"))[0] == 404
    request = {"name": "stories", "organization": "maker", "type": "dataset"}
    assert send(f"{hub.endpoint}/api/repos/create", "POST", json.dumps(request).encode())[0] >= 400
    assert list_paths(tmp_path / "outside") == before


@pytest.mark.parametrize(
    ("link", "path"), [("README.md", "README.md"), ("data", "data/archive.zst"), ("data/notes", "data/notes/ab.txt")]
)
def test_link_that_replaces_a_path_during_an_answer_is_not_followed(
    hub: SwappingHub, repo: Path, tmp_path: Path, link: str, path: str
) -> None:
    secrets = tmp_path / "secrets"
    for relative in ("README.md", "archive.zst", "notes/ab.txt", "ab.txt"):
        (secrets / relative).parent.mkdir(parents=True, exist_ok=True)
        (secrets / relative).write_bytes(b"secret" * 1000)
    location = _location(hub, path)

    def swap() -> None:
        if not (repo / link).is_symlink():
            os.rename(repo / link, tmp_path / "away")
            (repo / link).symlink_to(secrets / "README.md" if link == "README.md" else secrets)

    hub.swap = swap
    try:
        body = send(location, "GET")[1]
    except (http.client.HTTPException, ConnectionError):
        body = b""

    assert (repo / link).is_symlink() and not body.startswith(b"se")


def _location(hub: LoopbackHub, path: str) -> str:
    address = f"{hub.endpoint}/datasets/{REPO}/resolve/main/{path}"
    return send_request(address, "HEAD")[1].get("Location", address)


def test_commit_writes_nothing_through_a_link(
    hub: LoopbackHub, repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = writes._check_tree
    (tmp_path / "outside").mkdir()

    def swapped(*arguments: Any) -> None:
        check(*arguments)
        os.rename(repo / "data", tmp_path / "away")
        (repo / "data").symlink_to(tmp_path / "outside")

    monkeypatch.setattr(writes, "_check_tree", swapped)
    status, _ = commit(hub, upload("data/new.txt"))

    assert (status, list_paths(tmp_path / "outside")) == (500, set())


@pytest.mark.parametrize("mark", [".gated", ".private", ".new.txt.new"])
def test_metadata_files_are_not_written_through_links(hub: LoopbackHub, repo: Path, tmp_path: Path, mark: str) -> None:
    (repo / mark).symlink_to(tmp_path / "outside")

    settings = json.dumps({"gated": "auto", "visibility": "private"}).encode()
    statuses = [send(f"{hub.endpoint}{API}/settings", "PUT", settings)[0], commit(hub, upload("new.txt"))[0]]

    assert 500 in statuses and not (tmp_path / "outside").exists()


def test_linked_upload_folder_is_refused_at_the_start(repo: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "hub/.objects").symlink_to(tmp_path / "outside")

    with pytest.raises(UsageError, match="behind a link"):
        LoopbackHub(tmp_path / "hub", writable=True).start()


HOSTS = ["evil.test", "evil.test:PORT", "127.0.0.1", "localhost", "127.0.0.1:1", "evil@127.0.0.1:PORT", "127.1:PORT"]


@pytest.mark.parametrize("host", [*HOSTS, "", "127.0.0.1:PORT, evil.test", "127.0.0.1:PORT."])
def test_request_with_another_host_is_refused(hub: LoopbackHub, repo: Path, host: str) -> None:
    addresses = [f"{hub.endpoint}/api/datasets/{REPO}", _location(hub, "data/archive.zst")]

    for address in addresses:
        port = address.split(":")[2].partition("/")[0]
        assert send(address, "GET", Host=host.replace("PORT", port))[0] == 421
        assert send(address, "GET", Host=f"LocalHost:{port}")[0] == 200


def test_report_server_of_the_ui_refuses_another_host(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    with serve_reports(tmp_path / "data", 0) as variables:
        [address] = variables.values()
        status, body = send(f"{address}/report.html", "GET", Host="evil.test")

    assert (status, body) == (421, b"The Host header names another machine.")


@pytest.mark.parametrize("method, path", WRITER_ROUTES)
@pytest.mark.parametrize("authorization", ["Bearer hf_other", f"Bearer {TOKEN}x", f"Basic {TOKEN}", TOKEN, ""])
def test_only_the_printed_token_may_write(
    hub: LoopbackHub, tmp_path: Path, method: str, path: str, authorization: str
) -> None:
    before = list_paths(tmp_path)

    status, _ = send(hub.endpoint + path, method, b"{}", Authorization=authorization)

    assert status == (403 if authorization.startswith("Bearer ") else 401)
    assert list_paths(tmp_path) == before


def test_upload_needs_an_address_signed_with_the_token(hub: LoopbackHub, tmp_path: Path) -> None:
    request = json.dumps({"objects": [{"oid": SHA256, "size": 3}]}).encode()
    batch = f"{hub.endpoint}/datasets/{REPO}.git/info/lfs/objects/batch"
    href = json.loads(send(batch, "POST", request)[1])["objects"][0]["actions"]["upload"]["href"]
    unsigned, other = href.partition("?")[0], href.replace(SHA256, "0" * 64)

    refused = [send(address, "PUT", b"abc", Authorization="Bearer hf_other")[0] for address in (unsigned, other)]

    assert refused == [403, 403] and list_paths(tmp_path / "hub/.objects") == set()
    assert send(href, "PUT", b"abc", Authorization="")[0] == 200
    assert list_paths(tmp_path / "hub/.objects") == {SHA256}


@pytest.mark.parametrize("body", [DEEP, b'{"a":' * 200_000, b"7", b"", b"\xff", b'{"objects": 7, "files": [[]]}'])
@pytest.mark.parametrize("method, path", JSON_ROUTES)
def test_json_of_wrong_depth_or_shape_is_a_400(
    hub: LoopbackHub, capfd: pytest.CaptureFixture[str], method: str, path: str, body: bytes
) -> None:
    status, answer = send(hub.endpoint + path, method, body)

    is_settings = path.endswith("settings") and body.startswith(b'{"objects"')  # an object without known keys
    assert status == (200 if is_settings else 400), answer
    assert capfd.readouterr().err == ""


def test_reader_cannot_send_more_than_a_megabyte(hub: LoopbackHub) -> None:
    lengths = {"Content-Length": str(READER_BODY_LIMIT_BYTES + 1), "Authorization": "Bearer hf_other"}

    assert send(f"{hub.endpoint}{API}/paths-info/main", "POST", b"", **lengths)[0] == 400
