"""Damaged bytes, listings and responses of a hub: detected and fetched again."""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from answer_faults import Fault, FaultKind
from fault_cases import EVERYTHING, GET, TWO_ROW_GROUPS, ProxiedHub, Reading, read
from faulty_hub import FaultyHub
from healing_build import DATASET, FILE, write_pages
from refusals import refusal

from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.readers.hub_listing import read_listing, write_listing
from pipeline_assets.demo.loopback_http import Response, json_response
from pipeline_assets.spine.errors import InputError


def read_twice(hub: FaultyHub, amount: dict[str, int], folder: Path) -> tuple[InputError, object]:
    """Read under the injected faults, then without; return the error and the result."""
    damaged = read(hub, amount, folder / "cache", folder / "data")
    hub.inject()
    assert damaged.error is not None
    return damaged.error, read(hub, amount, folder / "cache", folder / "data").result


def test_a_footer_with_wrong_bytes_is_refused_with_the_whole_file(
    hub: FaultyHub, undisturbed: dict[str, Reading], tmp_path: Path
) -> None:
    hub.inject(Fault(FaultKind.WRONG_BYTES, GET))

    error, healed = read_twice(hub, EVERYTHING, tmp_path)

    assert error.what.startswith("downloaded bytes do not match sha256:")
    assert healed == undisturbed["whole file GET"].result


def test_a_broken_footer_is_not_kept(hub: FaultyHub, undisturbed: dict[str, Reading], tmp_path: Path) -> None:
    content = (hub.folder / "datasets" / DATASET / FILE).read_bytes()
    tail = content[-65_536:-30_000] + b"\xff" * 29_992 + content[-8:]
    folder = tmp_path / "cache/maker--pages/bytes" / f"sha256-{hashlib.sha256(content).hexdigest()}"
    folder.mkdir(parents=True)
    (folder / f"{len(content) - 65_536}-{len(content)}.{hashlib.sha256(tail).hexdigest()}").write_bytes(tail)

    error, healed = read_twice(hub, TWO_ROW_GROUPS, tmp_path)

    assert error.what.startswith("the Parquet footer cannot be read (")
    assert healed == undisturbed["row group GET"].result


def test_a_damaged_listing_is_reported_at_the_first_file_and_fetched_again(
    hub: FaultyHub, undisturbed: dict[str, Reading], tmp_path: Path
) -> None:
    commit, content = hub.commits()[DATASET], (hub.folder / "datasets" / DATASET / FILE).read_bytes()
    listing = tmp_path / f"cache/maker--pages/listings/{commit}.json"
    read(hub, TWO_ROW_GROUPS, tmp_path / "cache", tmp_path / "first")
    fake = {f"sha256:{hashlib.sha256(content).hexdigest()}": f"sha256:{'0' * 64}"}
    write_listing(listing, [replace(file, digest=fake.get(file.digest, file.digest)) for file in read_listing(listing)])

    error, healed = read_twice(hub, TWO_ROW_GROUPS, tmp_path)

    assert str(error) == (
        f"{listing}: the cached listing of maker/pages@{commit} has {FILE} with sha256:{'0' * 64} of "
        f"{len(content)} bytes, but the hub has not; run again to fetch the listing"
    )
    assert healed == undisturbed["row group GET"].result


def test_a_damaged_page_with_a_checksum_is_detected(tmp_path: Path) -> None:
    write_pages(tmp_path / "hub", write_page_checksum=True)

    with FaultyHub(tmp_path / "hub", faults=[Fault(FaultKind.WRONG_BYTES, GET, 1, 1)]) as damaging:
        damaged = read(damaging, TWO_ROW_GROUPS, tmp_path / "cache", tmp_path / "data")

    assert damaged.error is not None
    assert damaged.error.what.startswith("row group 0 cannot be read (")
    assert "CRC" in damaged.error.what
    assert damaged.error.where.endswith(":data/pages.parquet")


def test_a_damaged_page_without_a_checksum_is_detected_only_in_a_whole_file(
    hub: FaultyHub, undisturbed: dict[str, Reading], tmp_path: Path
) -> None:
    """docs/operations.md states this limit: a part of a file has no hash."""
    hub.inject(Fault(FaultKind.WRONG_BYTES, GET, 1, 1))

    damaged = read(hub, TWO_ROW_GROUPS, tmp_path / "cache", tmp_path / "data")

    assert damaged.result is not None
    assert damaged.result != undisturbed["row group GET"].result


def json_page(body: bytes) -> Response:
    return Response(200, {"Content-Type": "application/json"}, body, 0, len(body))


@pytest.mark.parametrize(
    "body",
    [
        b"<html>Log in to the network</html>",
        b'{"error": "busy"}',
        b'[{"type": "file"}]',
        b'[{"type": "file", "path": "a", "oid": "0", "size": "1"}]',
        b"\xff",
        b"[7]",
        b"",
        b'{"id": "maker/pages", "sha": "main"}',
    ],
)
def test_an_unreadable_response_is_requested_again_and_then_one_error(
    proxied: ProxiedHub, tmp_path: Path, body: bytes
) -> None:
    files = HubFiles(tmp_path / "cache", proxied.endpoint, tries=2, wait_s=0.01)
    commit = proxied.commits()[DATASET]
    requests: dict[str, Callable[[], object]] = {
        commit: lambda: files.list_files(DATASET, commit),
        "main": lambda: files.resolve(DATASET),
    }

    for revision, request in requests.items():
        proxied.first = [json_page(body)] * 2
        message = refusal(request)
        problem = f"the response for revision {revision} cannot be parsed ("
        assert message.startswith(f"maker/pages on {proxied.endpoint}: {problem}")
        assert message.endswith("; run the same command later; if the error persists, check the server at HF_ENDPOINT")
    assert list(tmp_path.rglob("listings/*")) == []
    expected = {commit: HubFiles(tmp_path / "other", proxied.endpoint).list_files(DATASET, commit), "main": commit}
    for revision, request in requests.items():
        proxied.first = [json_page(body)]
        assert request() == expected[revision]


@pytest.mark.parametrize("header", ["-1", "nan", "Wed, 21 Oct 2099 07:28:00 GMT"])
def test_an_invalid_wait_is_replaced_by_the_clients_own(proxied: ProxiedHub, tmp_path: Path, header: str) -> None:
    proxied.first = [json_response({"error": "busy"}, 429, {"Retry-After": header})]

    commit = HubFiles(tmp_path / "cache", proxied.endpoint, tries=2, wait_s=0.01).resolve(DATASET)

    assert commit == proxied.commits()[DATASET]
