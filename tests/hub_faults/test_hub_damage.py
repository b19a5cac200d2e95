"""Damaged bytes, listings and responses of a hub: detected and fetched again."""

import hashlib
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


def test_a_footer_with_wrong_bytes_is_refused_with_the_whole_file(
    hub: FaultyHub, undisturbed: dict[str, Reading], tmp_path: Path
) -> None:
    hub.inject(Fault(FaultKind.WRONG_BYTES, GET))

    damaged = read(hub, EVERYTHING, tmp_path / "cache", tmp_path / "data")
    hub.inject()
    healed = read(hub, EVERYTHING, tmp_path / "cache", tmp_path / "data")

    assert damaged.error is not None
    assert damaged.error.what.startswith("downloaded bytes do not match sha256:")
    assert healed.result == undisturbed["whole file GET"].result


def test_a_broken_footer_is_not_kept(hub: FaultyHub, undisturbed: dict[str, Reading], tmp_path: Path) -> None:
    content = (hub.folder / "datasets" / DATASET / FILE).read_bytes()
    tail = content[-65_536:-30_000] + b"\xff" * 29_992 + content[-8:]
    folder = tmp_path / "cache/maker--pages/bytes" / f"sha256-{hashlib.sha256(content).hexdigest()}"
    folder.mkdir(parents=True)
    kept = folder / f"{len(content) - 65_536}-{len(content)}.{hashlib.sha256(tail).hexdigest()}"
    kept.write_bytes(tail)

    damaged = read(hub, TWO_ROW_GROUPS, tmp_path / "cache", tmp_path / "data")
    hub.inject()
    healed = read(hub, TWO_ROW_GROUPS, tmp_path / "cache", tmp_path / "data")

    assert damaged.error is not None
    assert damaged.error.what.startswith("the Parquet footer cannot be read (")
    assert healed.result == undisturbed["row group GET"].result


def test_a_damaged_listing_is_reported_at_the_first_file_and_fetched_again(
    hub: FaultyHub, undisturbed: dict[str, Reading], tmp_path: Path
) -> None:
    commit = hub.commits()[DATASET]
    listing = tmp_path / f"cache/maker--pages/listings/{commit}.json"
    read(hub, TWO_ROW_GROUPS, tmp_path / "cache", tmp_path / "data")
    sha256 = hashlib.sha256((hub.folder / "datasets" / DATASET / FILE).read_bytes()).hexdigest()
    fake = {f"sha256:{sha256}": f"sha256:{'0' * 64}"}
    write_listing(listing, [replace(file, digest=fake.get(file.digest, file.digest)) for file in read_listing(listing)])

    damaged = read(hub, TWO_ROW_GROUPS, tmp_path / "cache", tmp_path / "again")
    hub.inject()
    healed = read(hub, TWO_ROW_GROUPS, tmp_path / "cache", tmp_path / "again")

    size = (hub.folder / "datasets" / DATASET / FILE).stat().st_size
    assert str(damaged.error) == (
        f"{listing}: the cached listing of maker/pages@{commit} has {FILE} with sha256:{'0' * 64} of {size} bytes, "
        "but the hub has not; run again to fetch the listing"
    )
    assert healed.result == undisturbed["row group GET"].result


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


NO_LISTINGS = [
    b"<html>Log in to the network</html>",
    b'{"error": "busy"}',
    b'[{"type": "file"}]',
    b'[{"type": "file", "path": "a", "oid": "0", "size": "1"}]',
    b"\xff",
    b"[7]",
    b"",
]


@pytest.mark.parametrize("body", NO_LISTINGS)
def test_a_response_other_than_a_listing_is_requested_again(
    proxied: ProxiedHub, undisturbed: dict[str, Reading], tmp_path: Path, body: bytes
) -> None:
    proxied.first = [json_page(body)]

    reading = read(proxied, TWO_ROW_GROUPS, tmp_path / "cache", tmp_path / "data")

    assert reading.result == undisturbed["row group GET"].result


@pytest.mark.parametrize("body", [*NO_LISTINGS, b'{"id": "maker/pages", "sha": "main"}'])
def test_a_response_that_remains_unreadable_is_one_error(proxied: ProxiedHub, tmp_path: Path, body: bytes) -> None:
    files = HubFiles(tmp_path / "cache", proxied.endpoint, tries=2, wait_s=0.01)
    commit = proxied.commits()[DATASET]

    proxied.first = [json_page(body)] * 2
    listing_message = refusal(lambda: files.list_files(DATASET, commit))
    proxied.first = [json_page(body)] * 2
    pin_message = refusal(lambda: files.resolve(DATASET))

    for message, revision in ((listing_message, commit), (pin_message, "main")):
        assert message.startswith(
            f"maker/pages on {proxied.endpoint}: the response for revision {revision} cannot be parsed ("
        )
        assert message.endswith("; run the same command later; if the error persists, check the server at HF_ENDPOINT")
    assert list(tmp_path.rglob("listings/*")) == []


@pytest.mark.parametrize("header", ["-1", "nan", "Wed, 21 Oct 2099 07:28:00 GMT"])
def test_an_invalid_wait_is_replaced_by_the_clients_own(proxied: ProxiedHub, tmp_path: Path, header: str) -> None:
    proxied.first = [json_response({"error": "busy"}, 429, {"Retry-After": header})]

    commit = HubFiles(tmp_path / "cache", proxied.endpoint, tries=2, wait_s=0.01).resolve(DATASET)

    assert commit == proxied.commits()[DATASET]
