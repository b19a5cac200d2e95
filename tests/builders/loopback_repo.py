"""Repository of three files on the loopback hub."""

import http.client
from pathlib import Path

from huggingface_hub import hf_hub_download

from pipeline_assets.demo.loopback_hub import LoopbackHub

ROOT = Path(__file__).parents[2]
REPO = "maker/stories"
README = b"# Stories\n"
ARCHIVE = bytes(range(256)) * 16
# sha1 of "README.md\0<sha256>\n" "data/archive.zst\0<sha256>\n" "data/notes/ab.txt\0<sha256>\n"
COMMIT = "f98bccd4dd894c74ff223f5bee94eac675bc3c0e"
NO_SUCH_COMMIT = "0123456789abcdef0123456789abcdef01234567"


def write_stories(folder: Path) -> Path:
    """Write a repo of three files, one of them LFS, for maker/stories."""
    repo = folder / "datasets" / REPO
    (repo / "data/notes").mkdir(parents=True)
    (repo / "README.md").write_bytes(README)
    (repo / "data/archive.zst").write_bytes(ARCHIVE)
    (repo / "data/notes/ab.txt").write_bytes(b"ab")
    return repo


def download(hub: LoopbackHub, path: str, cache: Path, revision: str = "main", token: str | bool = False) -> Path:
    return Path(
        hf_hub_download(
            REPO, path, repo_type="dataset", revision=revision, endpoint=hub.endpoint, token=token, cache_dir=cache
        )
    )


def send_request(
    address: str, method: str = "GET", headers: dict[str, str] | None = None, body: bytes | None = None
) -> tuple[int, dict[str, str], bytes]:
    """Send a request without a client library; return status, headers and body."""
    host, _, path = address.removeprefix("http://").partition("/")
    connection = http.client.HTTPConnection(host, timeout=10)
    connection.request(method, f"/{path}", body, headers or {})
    response = connection.getresponse()
    answer = response.status, dict(response.getheaders()), response.read()
    connection.close()
    return answer
