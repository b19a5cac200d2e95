"""A hub that means harm: what it names stays in the cache, what it sends is bounded, and secrets don't go elsewhere."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from fault_cases import GET, LISTING, TWO_ROW_GROUPS, ProxiedHub, Reading, read
from faulty_hub import ALWAYS, Fault, FaultKind, FaultyHub
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


def entry(**changes: object) -> dict[str, object]:
    return {"type": "file", "path": "data/pages.parquet", "oid": OID, "size": 1, **changes}


def of_lfs(oid: object) -> dict[str, object]:
    return entry(lfs={"oid": oid, "size": 1, "pointerSize": 1})


@pytest.mark.parametrize(
    ("listed", "said"),
    [
        (of_lfs("x/../../../d"), "'sha256:x/../../../d' is not a file hash"),
        (of_lfs("A" * 64), f"'sha256:{'A' * 64}' is not a file hash"),
        (of_lfs("0" * 63), f"'sha256:{'0' * 63}' is not a file hash"),
        (of_lfs(SHA256 + "\n"), f"'sha256:{SHA256}\\n' is not a file hash"),
        (entry(oid=SHA256), f"'git-sha1:{SHA256}' is not a file hash"),
        (entry(oid=f"{OID}/../d"), f"'git-sha1:{OID}/../d' is not a file hash"),
        (entry(path="/etc/passwd"), "'/etc/passwd' is not a path in a repository"),
        (entry(path="data/../../d"), "'data/../../d' is not a path in a repository"),
        (entry(path="./d"), "'./d' is not a path in a repository"),
        (entry(path="data//d"), "'data//d' is not a path in a repository"),
        (entry(path=""), "'' is not a path in a repository"),
        (entry(path="a\0b"), r"'a\x00b' is not a path in a repository"),
        (entry(path="a\nb"), r"'a\nb' is not a path in a repository"),
        (entry(path="..\\d"), r"'..\\d' is not a path in a repository"),
        (entry(path="\ud800"), r"'\ud800' is not a path in a repository"),
        (entry(size=-1), "-1 is not a file size"),
        (entry(size=1 << 63), "9223372036854775808 is not a file size"),
        (entry(size=True), "True is not a file size"),
        (entry(size=1.0), "1.0 is not a file size"),
    ],
)
def test_a_listing_that_names_what_no_repo_has_is_refused_whole_and_leaves_nothing(
    proxied: ProxiedHub, proxied_files: HubFiles, tmp_path: Path, listed: dict[str, object], said: str
) -> None:
    proxied.first = [json_response([entry(path="good"), listed])] * 2

    assert refusal(lambda: proxied_files.list_files(DATASET, OID)) == (
        f"maker/pages on {proxied.endpoint}: the response for revision {OID} cannot be parsed (ValueError: {said}); "
        "run the same command later; if the error persists, check the server at HF_ENDPOINT"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("digest", ["sha256:../../../d", "sha256:", "", f"md5:{OID}"])
def test_what_is_no_hash_never_becomes_a_folder(tmp_path: Path, digest: str) -> None:
    line = refusal(lambda: HubFiles(tmp_path / "cache").fetch(DATASET, OID, HubFile("d", 1, digest)))

    assert line == f"maker/pages: {digest!r} is not a file hash; list the files at their commit again"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["..", "../..", "a/../b", "/a"])
def test_what_is_no_dataset_never_becomes_a_folder(tmp_path: Path, name: str) -> None:
    files = HubFiles(tmp_path / "cache" / "hub")

    with pytest.raises(UsageError, match="not a dataset name"):
        files.listing_path(name, OID)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"[" * 100_000, "RecursionError: maximum recursion depth exceeded"),
        (b'[{"size": ' + b"9" * 5000 + b"}]", "ValueError: Exceeds the limit (4300 digits)"),
        (json.dumps([{"type": "\x1b[2J" + "a" * 9999}]).encode(), "KeyError: 'path'"),
        (json.dumps([entry(type="\x1b[2J" + "a" * 9999)]).encode(), r"ValueError: {'type': '\x1b[2Jaaa"),
    ],
    ids=["deep", "long integer", "without a path", "long"],
)
def test_what_can_not_be_read_is_told_in_one_short_line(
    proxied: ProxiedHub, proxied_files: HubFiles, body: bytes, said: str
) -> None:
    proxied.first = [Response(200, {}, body, 0, len(body))] * 2

    line = refusal(lambda: proxied_files.list_files(DATASET, OID))

    assert f"the response for revision {OID} cannot be parsed ({said}" in line
    assert len(line) < 600
    assert line.isprintable()


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (FaultKind.LINK_LOOP, "'data' is listed twice"),
        (FaultKind.LINK_AWAY, "the next page has another origin, http://elsewhere.invalid"),
    ],
)
def test_a_next_page_that_leads_in_a_circle_or_away_is_refused(
    hub: FaultyHub, undisturbed: dict[str, Reading], tmp_path: Path, kind: FaultKind, said: str
) -> None:
    hub.inject(Fault(kind, LISTING, ALWAYS))
    struck = read(hub, TWO_ROW_GROUPS, tmp_path / "cache", tmp_path / "data")
    requests = len(hub.requests)
    hub.inject()

    healed = read(hub, TWO_ROW_GROUPS, tmp_path / "cache", tmp_path / "data")

    assert f"cannot be parsed (ValueError: {said}); run the same command later" in str(struck.error)
    assert requests == (8 if kind is FaultKind.LINK_LOOP else 4)  # four tries
    assert healed.result == undisturbed["row group GET"].result


class PagingHub(FaultyHub):
    """A hub whose listing goes on for ever."""

    entries_a_page = 10
    pages = 0

    def answer(self, origin: Origin, ask: HubRequest) -> Response:
        self.pages += 1
        entries = [entry(path=f"{self.pages}/{number}") for number in range(self.entries_a_page)]
        return json_response(entries, headers={"Link": f'<{ask.raw_path}?page={self.pages}>; rel="next"'})


def test_a_listing_that_goes_on_for_ever_ends_at_more_files_than_any_repo_has(
    hub: FaultyHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_files_module, "_MAX_ENTRIES", 100)

    with PagingHub(hub.folder) as paging, pytest.raises(InputError) as error:
        HubFiles(tmp_path / "cache", paging.endpoint, tries=2, wait_s=0.01).list_files(DATASET, OID)

    assert str(error.value) == (
        f"maker/pages@{OID} on {paging.endpoint}: the listing has more than 100 files and folders; "
        "check what answers at HF_ENDPOINT"
    )
    assert paging.pages == 11


def test_empty_pages_that_go_on_for_ever_end_at_the_first(hub: FaultyHub, tmp_path: Path) -> None:
    with PagingHub(hub.folder) as paging, pytest.raises(InputError, match="an empty page has a next page"):
        paging.entries_a_page = 0
        HubFiles(tmp_path / "cache", paging.endpoint, tries=2, wait_s=0.01).list_files(DATASET, OID)

    assert paging.pages == 2  # one a try


@pytest.mark.parametrize("size", [0, 65_536], ids=["whole file", "range"])
def test_of_an_endless_body_no_more_is_taken_than_was_asked_for_and_nothing_is_kept(
    hub: FaultyHub, tmp_path: Path, size: int
) -> None:
    files, commit = HubFiles(tmp_path / "cache", hub.endpoint, tries=4, wait_s=0.01), hub.commits()[DATASET]
    [file] = [file for file in files.list_files(DATASET, commit) if file.path == FILE]
    before = files.traffic.bytes
    hub.inject(Fault(FaultKind.ENDLESS, GET, ALWAYS))

    with pytest.raises(InputError, match="the response is longer than"):
        files.fetch(DATASET, commit, file, 0, size or file.size)

    assert files.traffic.bytes - before <= (size or file.size) + (1 << 16)  # a block of what came
    assert [path for path in tmp_path.rglob("bytes/**/*") if path.is_file()] == []


def test_of_the_body_of_a_refusal_little_is_read(
    proxied: ProxiedHub, proxied_files: HubFiles, caplog: pytest.LogCaptureFixture
) -> None:
    proxied.first = [json_response({"error": "busy"}, 503)]
    proxied.inject(Fault(FaultKind.ENDLESS))

    commit = proxied_files.resolve(DATASET)

    assert commit == proxied.commits()[DATASET]
    assert "maker/pages: HTTP 503; attempt 2 of 2 in 0.0 s" in caplog.messages


@pytest.mark.parametrize("encoding", ["gzip", "zstd", "br"])
def test_a_body_that_comes_compressed_though_nobody_asked_for_that_is_refused(
    proxied: ProxiedHub, proxied_files: HubFiles, encoding: str
) -> None:
    proxied.first = [Response(200, {"Content-Encoding": encoding}, b"[]", 0, 2)] * 2

    with pytest.raises(InputError, match="the response is compressed, which was not requested"):
        proxied_files.resolve(DATASET)


def test_a_refusal_that_comes_compressed_is_told_by_its_status(proxied: ProxiedHub, proxied_files: HubFiles) -> None:
    proxied.first = [Response(404, {"Content-Encoding": "gzip"}, b"no gzip", 0, 7)]

    with pytest.raises(InputError, match="dataset not found or private"):
        proxied_files.resolve(DATASET)


def test_a_file_that_is_always_elsewhere_is_one_line(proxied: ProxiedHub) -> None:
    client = HubFiles(Path("unused"), proxied.endpoint).client()
    proxied.first = [Response(302, {"Location": "/there", "ETag": '"0"', "Content-Length": "0"})] * 20

    with pytest.raises(MalformedResponse, match="more than 5 redirects"):
        client.locate(f"{proxied.endpoint}/there")


@pytest.mark.parametrize(
    "location", ["", "/", "http://[", "ftp://elsewhere.invalid/", "http://a:b/", "//", "http://\u2603"]
)
def test_a_redirect_to_nowhere_is_one_line(proxied: ProxiedHub, proxied_files: HubFiles, location: str) -> None:
    away = Response(302, {"Location": location.encode("utf-8").decode("latin-1")})
    proxied.first = [away] * 20

    with pytest.raises(InputError) as error:
        proxied_files.resolve(DATASET)

    assert "cannot be re" in error.value.what  # read, reached
    assert len(proxied.first) >= 8  # six requests a try


def test_a_body_that_drips_is_cut_off_and_asked_for_again(hub: FaultyHub, tmp_path: Path) -> None:
    files, commit = HubFiles(tmp_path / "cache", hub.endpoint, None, 2, 0.01, progress_s=0.2), hub.commits()[DATASET]
    [file] = [file for file in files.list_files(DATASET, commit) if file.path == FILE]
    before = files.traffic.bytes
    hub.inject(Fault(FaultKind.DRIP, GET))

    span = files.fetch(DATASET, commit, file, 0, 1000)

    assert span.path.read_bytes() == (hub.folder / "datasets" / DATASET / FILE).read_bytes()[:1000]
    assert files.traffic.bytes - before == 1000  # what came is not asked for again


@pytest.mark.parametrize("kind", [FaultKind.DRIP, FaultKind.DRIP_HEAD])
def test_an_answer_that_always_drips_is_an_obstacle(hub: FaultyHub, tmp_path: Path, kind: FaultKind) -> None:
    hub.inject(Fault(kind, LISTING, ALWAYS))
    files = HubFiles(tmp_path / "cache", hub.endpoint, tries=2, wait_s=0.01, progress_s=0.1)

    with pytest.raises(InputError, match=r"cannot be reached \(ReadTimeout: \d+ bytes in 0 s\)"):
        files.list_files(DATASET, hub.commits()[DATASET])


@pytest.mark.parametrize("header", [{"Retry-After": "1000000000"}, {"RateLimit": f'"x";r=0;t={10**9}'}])
def test_a_wait_of_years_is_one_of_ten_minutes(
    proxied: ProxiedHub, proxied_files: HubFiles, header: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    proxied.first = [json_response({}, 429, header)]
    waits: list[float] = []
    monkeypatch.setattr("time.sleep", waits.append)

    proxied_files.resolve(DATASET)

    assert max(waits) == 600  # others sleep too, for less


class AskedHub(FaultyHub):
    """A hub that notes what opened it."""

    shown: set[str]

    def answer(self, origin: Origin, ask: HubRequest) -> Response:
        self.shown.add(ask.authorization)
        return super().answer(origin, ask)


@pytest.fixture
def elsewhere(hub: FaultyHub) -> Iterator[AskedHub]:
    """Another origin with the same files."""
    other = AskedHub(hub.folder)
    other.shown = set()
    with other:
        yield other


@pytest.mark.parametrize("listing", [True, False], ids=["listing", "bytes"])
def test_a_token_does_not_follow_a_redirect_to_another_origin(
    proxied: ProxiedHub, elsewhere: AskedHub, tmp_path: Path, listing: bool
) -> None:
    commit = proxied.commits()[DATASET]
    files = HubFiles(tmp_path / "cache", proxied.endpoint, token="hf_secret", tries=1)
    tree, path = f"/api/datasets/{DATASET}/tree/{commit}?recursive=true", f"/datasets/{DATASET}/resolve/{commit}/{FILE}"
    [file] = [file for file in files.list_files(DATASET, commit) if file.path == FILE]
    files.listing_path(DATASET, commit).unlink()
    proxied.first = [Response(302, {"Location": elsewhere.endpoint + (tree if listing else path)})]

    if listing:
        assert file in files.list_files(DATASET, commit)
    else:
        files.fetch(DATASET, commit, file, 0, 10)

    assert elsewhere.shown == {""}


def test_no_token_follows_next_pages_to_other_origins(proxied: ProxiedHub, elsewhere: AskedHub, tmp_path: Path) -> None:
    files = HubFiles(tmp_path / "cache", proxied.endpoint, token="hf_secret", tries=1)
    link = {"Link": f'<{elsewhere.endpoint}/api/datasets/{DATASET}/tree/{OID}>; rel="next"'}
    proxied.first = [json_response([entry()], headers=link)]

    with pytest.raises(InputError, match="the next page has another origin"):
        files.list_files(DATASET, OID)

    assert elsewhere.shown == set()


@pytest.mark.parametrize(
    ("endpoint", "shown"),
    [
        ("http://user:s3cret@", "http://"),
        ("http://user:s3cret%40x@hub.example", "http://hub.example"),
        ("ftp://user:s3cret@hub.example", "ftp://hub.example"),
        ("user:s3cret@hub.example", "hub.example"),
        ("http://user:s3/cret@hub.example", "http://hub.example"),
        ("http://user:s3cret@hub:port", "http://hub:port"),
        ("http://user:s3@cret@hub.example:x", "http://hub.example:x"),
        *((one, one) for one in ("localhost:8080", "hub.example", "https://", "ftp://hub.example", "http://hub:port")),
    ],
)
def test_an_invalid_address_is_refused_and_its_password_not_shown(tmp_path: Path, endpoint: str, shown: str) -> None:
    assert refusal(lambda: HubFiles(tmp_path / "cache", endpoint).resolve(DATASET), UsageError) == (
        f"HF_ENDPOINT: the URL must be http://HOST or https://HOST without a user, got {shown!r}; "
        "correct or unset the variable"
    )
