"""Hub connections with limits: slow peers, proxies and loopback addresses."""

import itertools
import os
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpcore2
import httpx2
import pytest

from pipeline_assets.corpus.readers.hub_library import LibraryClient, UnansweredError, is_loopback
from pipeline_assets.corpus.readers.hub_session import MIN_PROGRESS_BYTES, _TimedStream, shared_client
from pipeline_assets.spine.errors import UsageError


@pytest.fixture
def slow_receiver() -> Iterator[str]:
    """Run a server that reads a request at 2,000 bytes a second."""
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        server.bind(("127.0.0.1", 0))
        server.listen()

        def receive() -> None:
            connection, _ = server.accept()
            with connection:
                while connection.recv(100):
                    time.sleep(0.05)

        threading.Thread(target=receive, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_an_upload_without_progress_ends(slow_receiver: str, method: str) -> None:
    started = time.monotonic()
    expected = UnansweredError if method == "POST" else httpx2.WriteTimeout  # `huggingface_hub` retries the latter

    with LibraryClient(slow_receiver, 1.0) as client, pytest.raises(expected):
        client.request(method, f"{slow_receiver}/upload", content=b"\0" * 50_000_000)

    assert time.monotonic() - started < 30


@pytest.fixture
def busy_server() -> Iterator[str]:
    """Run a server that is busy for an hour."""

    class Busy(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            self.send_response(429)
            self.send_header("Retry-After", "3600")
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_PUT

    with ThreadingHTTPServer(("127.0.0.1", 0), Busy) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_uploads_wait_at_most_a_minute_and_downloads_ten(busy_server: str) -> None:
    with LibraryClient(busy_server, 5.0) as client:
        upload = client.request("PUT", f"{busy_server}/file")
        with client.stream("GET", f"{busy_server}/file") as download:
            pass

    assert (upload.headers["Retry-After"], download.headers["Retry-After"]) == ("60", "600")


def test_connections_through_a_proxy_are_limited(slow_receiver: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", slow_receiver)
    monkeypatch.delenv("no_proxy", raising=False)

    with LibraryClient("http://hub.example", 0.3) as client, pytest.raises(UnansweredError, match="ReadTimeout"):
        client.get("http://hub.example/api")


@pytest.mark.parametrize("proxy", ["ftp://u:s3cret@host:1", "http://u:s3#cret@host:1", "socks5://u:s3cret@host:1"])
def test_an_invalid_proxy_is_refused_without_its_password(proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", proxy)

    with pytest.raises(UsageError) as error:
        LibraryClient("http://hub.example", 0.3)

    assert str(error.value) == (
        "HTTP_PROXY, HTTPS_PROXY, ALL_PROXY: must be http:// or https:// URLs of proxies, with special characters of a "
        "password as %XX; correct or unset these variables"
    )


def test_a_forked_process_has_its_own_connections() -> None:
    client = shared_client("http://hub.example", 60.0)

    child = os.fork()
    if child == 0:
        os._exit(int(shared_client("http://hub.example", 60.0) is client))

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert shared_client("http://hub.example", 60.0) is client


def test_loopback_addresses_are_recognized() -> None:
    loopback = ["http://127.0.0.1:1", "http://localhost", "http://[::1]:80", "https://127.1.2.3"]
    remote = ["http://127.0.0.1.example", "http://example/127.0.0.1", "http://localhost.example"]

    assert [address for address in (*loopback, *remote) if is_loopback(address)] == loopback


class SteadyStream(httpcore2.NetworkStream):
    """A connection that delivers some bytes per second of a simulated clock."""

    def __init__(self, bytes_each_s: int) -> None:
        self.bytes_each_s, self.now = bytes_each_s, 0.0

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        self.now += 1
        return b"." * self.bytes_each_s


@pytest.mark.parametrize(
    ("bytes_each_s", "is_cut"), [(1, True), (MIN_PROGRESS_BYTES // 60, True), (MIN_PROGRESS_BYTES // 60 + 1, False)]
)
def test_a_connection_with_too_few_bytes_in_a_minute_is_closed(
    bytes_each_s: int, is_cut: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    steady = SteadyStream(bytes_each_s)
    monkeypatch.setattr("pipeline_assets.corpus.readers.hub_session.time.monotonic", lambda: steady.now)
    stream, seconds = _TimedStream(steady, 60.0), itertools.count(1)

    with pytest.raises(httpcore2.ReadTimeout if is_cut else StopIteration):
        for second in seconds:
            stream.read(1 << 16)
            steady.now += 100  # processing time does not count
            if second == 180:
                raise StopIteration

    assert next(seconds) - 1 == (60 if is_cut else 180)
