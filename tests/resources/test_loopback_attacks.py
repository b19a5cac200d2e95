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
from loopback_repo import REPO, ask

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
    """Runs `swap` after an answer was prepared and before it is sent."""

    swap: Any = None

    def answer(self, origin: Origin, ask: HubRequest) -> Response:
        answer = super().answer(origin, ask)
        if self.swap is not None:
            self.swap()
        return answer


@pytest.fixture
def hub(repo: Path, tmp_path: Path) -> Iterator[SwappingHub]:
    with SwappingHub(tmp_path / "hub", writable=True, token=TOKEN) as running:
        yield running


def send(address: str, method: str, body: bytes = b"", **headers: str) -> tuple[int, bytes]:
    """Send one request, with the token that may write.

    Another Authorization, if passed, replaces the token.
    """
    status, _, answer = ask(address, method, {"Authorization": f"Bearer {TOKEN}", **headers}, body)
    return status, answer


def commit(hub: LoopbackHub, *changes: tuple[str, dict[str, Any]]) -> tuple[int, bytes]:
    lines = [{"key": "header", "value": {"summary": "made"}}, *({"key": key, "value": value} for key, value in changes)]
    return send(f"{hub.endpoint}{API}/commit/main", "POST", "\n".join(map(json.dumps, lines)).encode())


def file(path: str) -> tuple[str, dict[str, Any]]:
    return "file", {"path": path, "content": "YWJj", "encoding": "base64"}


def paths_below(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


@pytest.mark.parametrize("key", ["name", "organization"])
@pytest.mark.parametrize("name", [*NAMES, ["x"], {"x": 1}, 7])
def test_an_impossible_repo_name_creates_nothing(hub: LoopbackHub, tmp_path: Path, name: object, key: str) -> None:
    before = paths_below(tmp_path)

    asked = {"name": "../x", "organization": "loopback", "type": "dataset", key: name}
    status, _ = send(f"{hub.endpoint}/api/repos/create", "POST", json.dumps(asked).encode())

    assert (status, paths_below(tmp_path)) == (400, before)


@pytest.mark.parametrize(
    "path", ["../x", "/x", "a/../x", "a//x", ".x", "a\0", "a" * 201, "a\\x", "", "/".join("a" * 600), 7]
)
def test_an_impossible_path_in_a_repo_is_refused_unwritten(hub: LoopbackHub, tmp_path: Path, path: object) -> None:
    before = paths_below(tmp_path)

    status, _ = commit(hub, file("fine.txt"), ("file", {"path": path, "content": "YWJj"}))

    assert (status, paths_below(tmp_path)) == (400, before)


def test_a_file_in_the_place_of_a_folder_is_refused_before_anything_is_written(hub: LoopbackHub, repo: Path) -> None:
    statuses = [commit(hub, file("fine.txt"), file(path))[0] for path in ("data", "README.md/x", "fine.txt/x")]

    assert statuses == [400, 400, 400] and not (repo / "fine.txt").exists()


@pytest.mark.parametrize("place", ["datasets", "datasets/maker", f"datasets/{REPO}"])
def test_a_folder_that_is_a_link_holds_no_repo(hub: LoopbackHub, tmp_path: Path, place: str) -> None:
    folder = tmp_path / "hub" / place
    folder.rename(tmp_path / "outside")
    folder.symlink_to(tmp_path / "outside")
    before = paths_below(tmp_path / "outside")

    assert hub.commits() == {}
    assert send(f"{hub.endpoint}/datasets/{REPO}/resolve/main/README.md", "GET")[0] == 404
    assert commit(hub, file("new.txt"))[0] == 404
    asked = {"name": "stories", "organization": "maker", "type": "dataset"}
    assert send(f"{hub.endpoint}/api/repos/create", "POST", json.dumps(asked).encode())[0] >= 400
    assert paths_below(tmp_path / "outside") == before


@pytest.mark.parametrize(
    ("link", "path"), [("README.md", "README.md"), ("data", "data/archive.zst"), ("data/notes", "data/notes/ab.txt")]
)
def test_a_link_that_replaces_a_file_or_folder_during_an_answer_is_not_followed(
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
    return ask(address, "HEAD")[1].get("Location", address)


def test_a_commit_writes_nothing_through_a_link_that_replaces_a_folder(
    hub: LoopbackHub, repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = writes._check_tree
    (tmp_path / "outside").mkdir()

    def swapped(*arguments: Any) -> None:
        check(*arguments)
        os.rename(repo / "data", tmp_path / "away")
        (repo / "data").symlink_to(tmp_path / "outside")

    monkeypatch.setattr(writes, "_check_tree", swapped)
    status, _ = commit(hub, file("data/new.txt"))

    assert (status, paths_below(tmp_path / "outside")) == (500, set())


@pytest.mark.parametrize("mark", [".gated", ".private", ".new.txt.new"])
def test_files_that_the_hub_keeps_in_a_repo_are_not_written_through_links(
    hub: LoopbackHub, repo: Path, tmp_path: Path, mark: str
) -> None:
    (repo / mark).symlink_to(tmp_path / "outside")

    settings = json.dumps({"gated": "auto", "visibility": "private"}).encode()
    statuses = [send(f"{hub.endpoint}{API}/settings", "PUT", settings)[0], commit(hub, file("new.txt"))[0]]

    assert 500 in statuses and not (tmp_path / "outside").exists()


def test_a_folder_of_uploads_that_is_a_link_is_refused_at_the_start(repo: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "hub/.objects").symlink_to(tmp_path / "outside")

    with pytest.raises(UsageError, match="behind a link"):
        LoopbackHub(tmp_path / "hub", writable=True).start()


HOSTS = ["evil.test", "evil.test:PORT", "127.0.0.1", "localhost", "127.0.0.1:1", "evil@127.0.0.1:PORT", "127.1:PORT"]


@pytest.mark.parametrize("host", [*HOSTS, "", "127.0.0.1:PORT, evil.test", "127.0.0.1:PORT."])
def test_a_request_with_another_host_is_refused(hub: LoopbackHub, repo: Path, host: str) -> None:
    addresses = [f"{hub.endpoint}/api/datasets/{REPO}", _location(hub, "data/archive.zst")]

    for address in addresses:
        port = address.split(":")[2].partition("/")[0]
        assert send(address, "GET", Host=host.replace("PORT", port))[0] == 421
        assert send(address, "GET", Host=f"LocalHost:{port}")[0] == 200


def test_reports_beside_the_ui_are_refused_to_another_host(tmp_path: Path) -> None:
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
    before = paths_below(tmp_path)

    status, _ = send(hub.endpoint + path, method, b"{}", Authorization=authorization)

    assert status == (403 if authorization.startswith("Bearer ") else 401)
    assert paths_below(tmp_path) == before


def test_an_upload_needs_an_address_that_was_signed_with_the_token(hub: LoopbackHub, tmp_path: Path) -> None:
    asked = json.dumps({"objects": [{"oid": SHA256, "size": 3}]}).encode()
    batch = f"{hub.endpoint}/datasets/{REPO}.git/info/lfs/objects/batch"
    href = json.loads(send(batch, "POST", asked)[1])["objects"][0]["actions"]["upload"]["href"]
    unsigned, other = href.partition("?")[0], href.replace(SHA256, "0" * 64)

    refused = [send(address, "PUT", b"abc", Authorization="Bearer hf_other")[0] for address in (unsigned, other)]

    assert refused == [403, 403] and paths_below(tmp_path / "hub/.objects") == set()
    assert send(href, "PUT", b"abc", Authorization="")[0] == 200
    assert paths_below(tmp_path / "hub/.objects") == {SHA256}


@pytest.mark.parametrize("body", [DEEP, b'{"a":' * 200_000, b"7", b"", b"\xff", b'{"objects": 7, "files": [[]]}'])
@pytest.mark.parametrize("method, path", JSON_ROUTES)
def test_json_that_is_too_deep_or_of_another_shape_is_a_400(
    hub: LoopbackHub, capfd: pytest.CaptureFixture[str], method: str, path: str, body: bytes
) -> None:
    status, answer = send(hub.endpoint + path, method, body)

    is_settings = path.endswith("settings") and body.startswith(b'{"objects"')  # which it has no key of
    assert status == (200 if is_settings else 400), answer
    assert capfd.readouterr().err == ""


def test_who_may_not_write_sends_no_more_than_a_megabyte(hub: LoopbackHub) -> None:
    lengths = {"Content-Length": str(READER_BODY_LIMIT_BYTES + 1), "Authorization": "Bearer hf_other"}

    assert send(f"{hub.endpoint}{API}/paths-info/main", "POST", b"", **lengths)[0] == 400
