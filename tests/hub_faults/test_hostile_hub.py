"""Hostile hubs: paths remain in the cache, bodies are bounded, tokens not leaked."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from answer_faults import ALWAYS, Fault, FaultKind
from fault_cases import GET, LISTING, TWO_ROW_GROUPS, ProxiedHub, Reading, read
from faulty_hub import FaultyHub
from healing_build import DATASET, FILE
from refusals import refusal

from pipeline_assets.corpus.readers import hub_files as hub_files_module
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.readers.hub_listing import HubFile
from pipeline_assets.corpus.readers.hub_responses import MalformedResponse
from pipeline_assets.demo.loopback_http import HubRequest, Origin, Response, json_response
from pipeline_assets.spine.errors import InputError, UsageError

OID = "0" * 40
SHA256 = "0" * 64


@pytest.fixture
def proxied_files(proxied: ProxiedHub, tmp_path: Path) -> HubFiles:
    return HubFiles(tmp_path / "cache", proxied.endpoint, tries=2, wait_s=0.01)


def listing_entry(**changes: object) -> dict[str, object]:
    return {"type": "file", "path": "data/pages.parquet", "oid": OID, "size": 1, **changes}


def lfs_entry(oid: object) -> dict[str, object]:
    return listing_entry(lfs={"oid": oid, "size": 1, "pointerSize": 1})


@pytest.mark.parametrize(
    ("bad_entry", "problem"),
    [
        (lfs_entry("x/../../../d"), "'sha256:x/../../../d' is not a file hash"),
        (lfs_entry("A" * 64), f"'sha256:{'A' * 64}' is not a file hash"),
        (lfs_entry("0" * 63), f"'sha256:{'0' * 63}' is not a file hash"),
        (lfs_entry(SHA256 + "\n"), f"'sha256:{SHA256}\\n' is not a file hash"),
        (listing_entry(oid=SHA256), f"'git-sha1:{SHA256}' is not a file hash"),
        (listing_entry(oid=f"{OID}/../d"), f"'git-sha1:{OID}/../d' is not a file hash"),
        (listing_entry(path="/etc/passwd"), "'/etc/passwd' is not a path in a repository"),
        (listing_entry(path="data/../../d"), "'data/../../d' is not a path in a repository"),
        (listing_entry(path="./d"), "'./d' is not a path in a repository"),
        (listing_entry(path="data//d"), "'data//d' is not a path in a repository"),
        (listing_entry(path=""), "'' is not a path in a repository"),
        (listing_entry(path="a\0b"), r"'a\x00b' is not a path in a repository"),
        (listing_entry(path="a\nb"), r"'a\nb' is not a path in a repository"),
        (listing_entry(path="..\\d"), r"'..\\d' is not a path in a repository"),
        (listing_entry(path="\ud800"), r"'\ud800' is not a path in a repository"),
        (listing_entry(size=-1), "-1 is not a file size"),
        (listing_entry(size=1 << 63), "9223372036854775808 is not a file size"),
        (listing_entry(size=True), "True is not a file size"),
        (listing_entry(size=1.0), "1.0 is not a file size"),
    ],
)
def test_a_listing_with_an_invalid_entry_is_refused_whole_and_not_cached(
    proxied: ProxiedHub, proxied_files: HubFiles, tmp_path: Path, bad_entry: dict[str, object], problem: str
) -> None:
    proxied.first = [json_response([listing_entry(path="good"), bad_entry])] * 2

    assert refusal(lambda: proxied_files.list_files(DATASET, OID)) == (
        f"maker/pages on {proxied.endpoint}: the response for revision {OID} cannot be parsed (ValueError: {problem}); "
        "run the same command later; if the error persists, check the server at HF_ENDPOINT"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("digest", ["sha256:../../../d", "sha256:", "", f"md5:{OID}"])
def test_an_invalid_hash_never_becomes_a_folder(tmp_path: Path, digest: str) -> None:
    line = refusal(lambda: HubFiles(tmp_path / "cache").fetch(DATASET, OID, HubFile("d", 1, digest)))

    assert line == f"maker/pages: {digest!r} is not a file hash; list the files at their commit again"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["..", "../..", "a/../b", "/a"])
def test_an_invalid_dataset_name_never_becomes_a_folder(tmp_path: Path, name: str) -> None:
    files = HubFiles(tmp_path / "cache" / "hub")

    with pytest.raises(UsageError, match="not a dataset name"):
        files.listing_path(name, OID)


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"[" * 100_000, "RecursionError: maximum recursion depth exceeded"),
        (b'[{"size": ' + b"9" * 5000 + b"}]", "ValueError: Exceeds the limit (4300 digits)"),
        (json.dumps([{"type": "\x1b[2J" + "a" * 9999}]).encode(), "KeyError: 'path'"),
        (json.dumps([listing_entry(type="\x1b[2J" + "a" * 9999)]).encode(), r"ValueError: {'type': '\x1b[2Jaaa"),
        (json.dumps([listing_entry(path="a" * 1025)]).encode(), "ValueError: a path has more than 1,024 characters"),
    ],
    ids=["deep", "long integer", "without a path", "long", "long path"],
)
def test_an_unreadable_response_is_reported_in_one_short_line(
    proxied: ProxiedHub, proxied_files: HubFiles, body: bytes, problem: str
) -> None:
    proxied.first = [Response(200, {}, body, 0, len(body))] * 2

    line = refusal(lambda: proxied_files.list_files(DATASET, OID))

    assert f"the response for revision {OID} cannot be parsed ({problem}" in line
    assert len(line) < 600
    assert line.isprintable()


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        (FaultKind.LINK_LOOP, "'data' is listed twice"),
        (FaultKind.LINK_AWAY, "the next page has another origin, http://elsewhere.invalid"),
    ],
)
def test_a_next_page_in_a_loop_or_on_another_origin_is_refused(
    hub: FaultyHub, undisturbed: dict[str, Reading], tmp_path: Path, kind: FaultKind, problem: str
) -> None:
    hub.inject(Fault(kind, LISTING, ALWAYS))
    failed = read(hub, TWO_ROW_GROUPS, tmp_path / "cache", tmp_path / "data")
    requests = len(hub.requests)
    hub.inject()

    healed = read(hub, TWO_ROW_GROUPS, tmp_path / "cache", tmp_path / "data")

    assert f"cannot be parsed (ValueError: {problem}); run the same command later" in str(failed.error)
    assert requests == (8 if kind is FaultKind.LINK_LOOP else 4)  # four tries
    assert healed.result == undisturbed["row group GET"].result


class PagingHub(FaultyHub):
    """A hub with an endless listing."""

    entries_per_page = 10
    pages = 0

    def answer(self, origin: Origin, request: HubRequest) -> Response:
        self.pages += 1
        entries = [listing_entry(path=f"{self.pages}/{number}") for number in range(self.entries_per_page)]
        return json_response(entries, headers={"Link": f'<{request.raw_path}?page={self.pages}>; rel="next"'})


def test_an_endless_listing_is_refused_at_the_limit_of_files_or_an_empty_page(
    hub: FaultyHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_files_module, "_MAX_ENTRIES", 100)

    with PagingHub(hub.folder) as paging:
        files = HubFiles(tmp_path / "cache", paging.endpoint, tries=2, wait_s=0.01)
        assert refusal(lambda: files.list_files(DATASET, OID)) == (
            f"maker/pages@{OID} on {paging.endpoint}: the listing has more than 100 files and folders; "
            "check what answers at HF_ENDPOINT"
        )
        assert paging.pages == 11
        paging.entries_per_page, paging.pages = 0, 0
        assert "an empty page has a next page" in refusal(lambda: files.list_files(DATASET, OID))
        assert paging.pages == 2  # one per try


@pytest.mark.parametrize("size", [0, 65_536], ids=["whole file", "range"])
def test_an_endless_body_is_read_up_to_the_requested_size_and_not_cached(
    hub: FaultyHub, tmp_path: Path, size: int
) -> None:
    files, commit = HubFiles(tmp_path / "cache", hub.endpoint, tries=4, wait_s=0.01), hub.commits()[DATASET]
    [file] = [file for file in files.list_files(DATASET, commit) if file.path == FILE]
    before = files.traffic.bytes
    hub.inject(Fault(FaultKind.ENDLESS, GET, ALWAYS))

    with pytest.raises(InputError, match="the response is longer than"):
        files.fetch(DATASET, commit, file, 0, size or file.size)

    assert files.traffic.bytes - before <= (size or file.size) + (1 << 16)  # plus one block
    assert [path for path in tmp_path.rglob("bytes/**/*") if path.is_file()] == []


def test_only_the_beginning_of_an_error_body_is_read(
    proxied: ProxiedHub, proxied_files: HubFiles, caplog: pytest.LogCaptureFixture
) -> None:
    proxied.first = [json_response({"error": "busy"}, 503)]
    proxied.inject(Fault(FaultKind.ENDLESS))

    commit = proxied_files.resolve(DATASET)

    assert commit == proxied.commits()[DATASET]
    assert "maker/pages: HTTP 503; attempt 2 of 2 in 0.0 s" in caplog.messages


@pytest.mark.parametrize("encoding", ["gzip", "zstd", "br"])
def test_an_unrequested_compressed_body_is_refused(proxied: ProxiedHub, proxied_files: HubFiles, encoding: str) -> None:
    for status, tries, message in (
        (200, 2, "the response is compressed, which was not"),
        (404, 1, "not found or private"),
    ):
        proxied.first = [Response(status, {"Content-Encoding": encoding}, b"[]", 0, 2)] * tries

        assert message in refusal(lambda: proxied_files.resolve(DATASET))


def test_endless_redirects_are_one_error(proxied: ProxiedHub) -> None:
    client = HubFiles(Path("unused"), proxied.endpoint).client()
    proxied.first = [Response(302, {"Location": "/there", "ETag": '"0"', "Content-Length": "0"})] * 20

    with pytest.raises(MalformedResponse, match="more than 5 redirects"):
        client.locate(f"{proxied.endpoint}/there")


def test_a_file_whose_bytes_are_not_at_http_is_one_error(proxied: ProxiedHub) -> None:
    client = HubFiles(Path("unused"), proxied.endpoint).client()
    proxied.first = [Response(302, {"Location": "file:///etc/passwd", "X-Linked-Etag": '"0"', "X-Linked-Size": "0"})]

    with pytest.raises(MalformedResponse, match="the file is at file://"):
        client.locate(f"{proxied.endpoint}/there")


@pytest.mark.parametrize(
    "location", ["", "/", "http://[", "ftp://elsewhere.invalid/", "http://a:b/", "//", "http://\u2603"]
)
def test_an_invalid_redirect_is_one_error(proxied: ProxiedHub, proxied_files: HubFiles, location: str) -> None:
    redirect = Response(302, {"Location": location.encode("utf-8").decode("latin-1")})
    proxied.first = [redirect] * 20

    with pytest.raises(InputError) as error:
        proxied_files.resolve(DATASET)

    assert "cannot be re" in error.value.what  # read, reached
    assert len(proxied.first) >= 8  # six requests per try


def test_a_dripping_body_is_cut_off_and_resumed(hub: FaultyHub, tmp_path: Path) -> None:
    files, commit = HubFiles(tmp_path / "cache", hub.endpoint, None, 2, 0.01, progress_s=0.2), hub.commits()[DATASET]
    [file] = [file for file in files.list_files(DATASET, commit) if file.path == FILE]
    before = files.traffic.bytes
    hub.inject(Fault(FaultKind.DRIP, GET))

    span = files.fetch(DATASET, commit, file, 0, 1000)

    assert span.path.read_bytes() == (hub.folder / "datasets" / DATASET / FILE).read_bytes()[:1000]
    assert files.traffic.bytes - before == 1000  # received bytes are not requested again


@pytest.mark.parametrize("kind", [FaultKind.DRIP, FaultKind.DRIP_HEAD])
def test_a_response_that_always_drips_is_an_error(hub: FaultyHub, tmp_path: Path, kind: FaultKind) -> None:
    hub.inject(Fault(kind, LISTING, ALWAYS))
    files = HubFiles(tmp_path / "cache", hub.endpoint, tries=2, wait_s=0.01, progress_s=0.1)

    with pytest.raises(InputError, match=r"cannot be reached \(ReadTimeout: \d+ bytes in 0 s\)"):
        files.list_files(DATASET, hub.commits()[DATASET])


@pytest.mark.parametrize("header", [{"Retry-After": "1000000000"}, {"RateLimit": f'"x";r=0;t={10**9}'}])
def test_a_requested_wait_is_limited_to_ten_minutes(
    proxied: ProxiedHub, proxied_files: HubFiles, header: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    proxied.first = [json_response({}, 429, header)]
    waits: list[float] = []
    monkeypatch.setattr("time.sleep", waits.append)

    proxied_files.resolve(DATASET)

    assert max(waits) == 600  # other threads sleep too, for less


class RecordingHub(FaultyHub):
    """A hub that records the authorization of each request."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.authorizations: set[str] = set()

    def answer(self, origin: Origin, request: HubRequest) -> Response:
        self.authorizations.add(request.authorization)
        return super().answer(origin, request)


@pytest.fixture
def other_hub(hub: FaultyHub) -> Iterator[RecordingHub]:
    """Another origin with the same files."""
    with RecordingHub(hub.folder) as recording:
        yield recording


@pytest.mark.parametrize("listing", [True, False], ids=["listing", "bytes"])
def test_a_token_does_not_follow_a_redirect_to_another_origin(
    proxied: ProxiedHub, other_hub: RecordingHub, tmp_path: Path, listing: bool
) -> None:
    commit = proxied.commits()[DATASET]
    files = HubFiles(tmp_path / "cache", proxied.endpoint, token="hf_secret", tries=1)
    tree, path = f"/api/datasets/{DATASET}/tree/{commit}?recursive=true", f"/datasets/{DATASET}/resolve/{commit}/{FILE}"
    [file] = [file for file in files.list_files(DATASET, commit) if file.path == FILE]
    files.listing_path(DATASET, commit).unlink()
    proxied.first = [Response(302, {"Location": other_hub.endpoint + (tree if listing else path)})]

    if listing:
        assert file in files.list_files(DATASET, commit)
    else:
        files.fetch(DATASET, commit, file, 0, 10)

    assert other_hub.authorizations == {""}


def test_next_pages_of_other_origins_get_no_token(proxied: ProxiedHub, other_hub: RecordingHub, tmp_path: Path) -> None:
    files = HubFiles(tmp_path / "cache", proxied.endpoint, token="hf_secret", tries=1)
    link = {"Link": f'<{other_hub.endpoint}/api/datasets/{DATASET}/tree/{OID}>; rel="next"'}
    proxied.first = [json_response([listing_entry()], headers=link)]

    with pytest.raises(InputError, match="the next page has another origin"):
        files.list_files(DATASET, OID)

    assert other_hub.authorizations == set()


@pytest.mark.parametrize(
    ("endpoint", "masked"),
    [
        ("http://user:s3cret@", "http://"),
        ("http://user:s3cret%40x@hub.example", "http://hub.example"),
        ("ftp://user:s3cret@hub.example", "ftp://hub.example"),
        ("user:s3cret@hub.example", "hub.example"),
        ("http://user:s3/cret@hub.example", "http://hub.example"),
        ("http://user:s3cret@hub:port", "http://hub:port"),
        ("http://user:s3@cret@hub.example:x", "http://hub.example:x"),
        ("http://user:s3?cr#et@hub.example", "http://hub.example"),
        ("http://hub.example/?token=s3cret", "http://hub.example/"),
        ("http://hub.example#s3cret", "http://hub.example"),
        *((url, url) for url in ("localhost:8080", "hub.example", "https://", "ftp://hub.example", "http://hub:port")),
    ],
)
def test_an_invalid_address_is_refused_without_its_password(tmp_path: Path, endpoint: str, masked: str) -> None:
    assert refusal(lambda: HubFiles(tmp_path / "cache", endpoint).resolve(DATASET), UsageError) == (
        f"HF_ENDPOINT: the URL must be http://HOST or https://HOST without a user or query, got {masked!r}; "
        "correct or unset the variable"
    )
