"""The loopback hub as an HTTP server, and the command that serves it."""

import hashlib
import http.client
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from command_results import Corpusmill, refused
from faulty_hub import FaultyHub
from huggingface_hub import HfApi
from loopback_repo import ARCHIVE, COMMIT, README, REPO, ROOT, send_request
from refusals import refusal


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
def test_no_path_leads_out_of_a_repo(repo: Path, hub: FaultyHub, tmp_path: Path, path: str) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    (repo / ".gated").touch()

    assert send_request(hub.endpoint + path, headers={"Authorization": "Bearer any"})[0] == 404


@pytest.mark.parametrize(
    ("byte_range", "status", "content_range", "body"),
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
def test_range_is_answered_according_to_the_rfc(
    hub: FaultyHub, byte_range: str, status: int, content_range: str | None, body: bytes
) -> None:
    answer = send_request(f"{hub.endpoint}/datasets/{REPO}/resolve/main/README.md", headers={"Range": byte_range})

    assert (answer[0], answer[1].get("Content-Range"), answer[2]) == (status, content_range, body)


def test_storage_answers_ranges_and_404_to_a_stale_digest(hub: FaultyHub) -> None:
    location = send_request(f"{hub.endpoint}/datasets/{REPO}/resolve/main/data/archive.zst", "HEAD")[1]["Location"]

    assert send_request(location, headers={"Range": "bytes=1-3"})[2] == b"\x01\x02\x03"
    status, headers, _ = send_request(location, headers={"Range": "bytes=4096-4999"})
    assert (status, headers["Content-Range"]) == (416, "bytes */4096")
    assert send_request(location.replace(hashlib.sha256(ARCHIVE).hexdigest(), "0" * 64))[0] == 404


ROUTED = b"HTTP/1.1\r\nHost: localhost:PORT\r\n"


@pytest.mark.parametrize(
    ("sent", "status_line"),
    [
        (b"nonsense", b"HTTP/1.1 400 Bad Request"),
        (b"GET / HTTP/9.9", b"HTTP/1.1 505 HTTP Version Not Supported"),
        (b"BREW /coffee HTTP/1.1", b"HTTP/1.1 501 Not Implemented"),
        (b"POST /api " + ROUTED + b"Content-Length: -1", b"HTTP/1.1 400 Bad Request"),
        (b"POST /api " + ROUTED + b"Content-Length: 99999999", b"HTTP/1.1 400 Bad Request"),
        (b"GET /%ff%00//x?a=%ff&& " + ROUTED + b"Connection: close", b"HTTP/1.1 404 Not Found"),
    ],
)
def test_bad_request_is_refused_without_output_on_stderr(
    hub: FaultyHub, capfd: pytest.CaptureFixture[str], sent: bytes, status_line: bytes
) -> None:
    port = hub.endpoint.rsplit(":")[-1]
    with socket.create_connection(("127.0.0.1", int(port)), timeout=60) as connection:
        connection.sendall(sent.replace(b"PORT", port.encode()) + b"\r\n\r\n")
        answer = b"".join(iter(lambda: connection.recv(65536), b""))

    assert answer.startswith(status_line)
    assert capfd.readouterr().err == ""


def test_interrupted_download_is_counted_by_sent_bytes(
    repo: Path, hub: FaultyHub, capfd: pytest.CaptureFixture[str]
) -> None:
    (repo / "long.bin").write_bytes(bytes(64_000_000))
    location = send_request(f"{hub.endpoint}/datasets/{REPO}/resolve/main/long.bin", "HEAD")[1]["Location"]
    host, _, path = location.removeprefix("http://").partition("/")

    connection = http.client.HTTPConnection(host, timeout=60)
    connection.request("GET", f"/{path}")
    connection.getresponse().read(100)
    connection.close()
    for _ in range(5000):  # the server notices when it writes on
        if any(request.origin == "storage" for request in hub.requests):
            break
        send_request(f"{hub.endpoint}/api/whoami-v2")

    [partial] = [request for request in hub.requests if request.origin == "storage"]
    assert 0 < partial.bytes_sent < 64_000_000
    assert capfd.readouterr().err == ""


def test_one_connection_carries_many_requests_until_the_hub_stops(repo: Path, tmp_path: Path) -> None:
    with FaultyHub(tmp_path / "hub") as hub:
        connection = http.client.HTTPConnection(hub.endpoint.removeprefix("http://"), timeout=60)
        ports = set()
        for _ in range(3):
            connection.request("GET", f"/datasets/{REPO}/resolve/main/README.md")
            assert connection.getresponse().read() == README
            ports.add(connection.sock.getsockname()[1])

    assert len(ports) == 1
    with pytest.raises((ConnectionError, http.client.RemoteDisconnected)):
        connection.request("GET", "/api/whoami-v2")
        connection.getresponse()


def test_missing_folder_file_and_used_port_are_reported_with_a_fix(hub: FaultyHub, tmp_path: Path) -> None:
    port = int(hub.endpoint.rsplit(":")[-1])
    (tmp_path / "file").touch()
    fix = "choose a folder that contains datasets/<owner>/<name>/…"

    assert refusal(FaultyHub(tmp_path / "no").start) == f"{tmp_path}/no: folder not found; {fix}"
    assert refusal(FaultyHub(tmp_path / "file").start) == f"{tmp_path}/file: expected a folder, got a file; {fix}"
    expected = f"127.0.0.1:{port}: the port is in use; choose another port with --port"
    assert refusal(FaultyHub(tmp_path / "hub", port).start) == expected


@pytest.mark.usefixtures("_default_hangup")
@pytest.mark.parametrize(
    ("options", "number"), [([], signal.SIGTERM), ([], signal.SIGHUP), (["--writable"], signal.SIGINT)]
)
def test_serve_prints_its_usage_and_ends_on_a_signal(
    repo: Path, tmp_path: Path, options: list[str], number: signal.Signals
) -> None:
    command = [sys.executable, "-m", "pipeline_assets.cli", "hub", "serve", str(tmp_path / "hub"), *options]
    program = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    lines = [program.stdout.readline() for _ in range(3)]
    endpoint, token = lines[0].removeprefix("hub: ").strip(), lines[2].partition("HF_TOKEN=")[2].partition(" ")[0]
    role = HfApi(endpoint=endpoint, token=token or "hf_x").whoami()["auth"]["accessToken"]["role"]
    program.send_signal(number)
    rest, errors = program.communicate(timeout=60)

    settings = f"HF_HUB_DISABLE_XET=1 HF_TOKEN={token} " if options else ""
    assert lines == [
        f"hub: {endpoint}\n",
        f"{REPO} {COMMIT}\n",
        f"use: HF_ENDPOINT={endpoint} HF_HUB_DISABLE_TELEMETRY=1 {settings}<command>; Ctrl-C ends it\n",
    ]
    assert (role, len(token)) == (("write", 35) if options else ("read", 0))
    assert (rest, errors, program.returncode) == ("", "", 0)


def test_fault_option_is_refused_and_names_faulty_hub(corpusmill: Corpusmill, repo: Path) -> None:
    fix = "hub serve has no faults; use tests/harness/faulty_hub.py, which has them"

    assert refused(corpusmill("hub", "serve", repo, "--fault", "503:*:2")) == f"--fault: {fix}"
