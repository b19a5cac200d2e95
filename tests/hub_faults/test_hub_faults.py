"""Snapshots and pins under every fault at every place of `fault_cases`.

A transient fault (a busy hub, a cut connection) changes no byte, and no received byte is sent twice. A lasting fault is
reported in one line with a fix; after it, the same command resumes. benchmarks/faults.py prints the same cases as a
table.
"""

import hashlib
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from answer_faults import ALWAYS, FaultKind
from fault_cases import CASES, PASSING, TRIES, TWO_ROW_GROUPS, FaultCase, Place, Reading, read, strike
from faulty_hub import FaultyHub
from healing_build import DATASET, FILE

MIN_WAIT_S = {FaultKind.RETRY_AFTER: 1.0, FaultKind.RATE_LIMIT: 1.0}


def test_an_undisturbed_snapshot_sends_the_requests_of_all_places(
    hub: FaultyHub, undisturbed: dict[str, Reading], tmp_path: Path
) -> None:
    reading = read(hub, TWO_ROW_GROUPS, tmp_path / "cache", tmp_path / "data")

    assert [(request.method, request.origin, request.status) for request in hub.requests] == [
        ("GET", "hub", 200),  # listing
        ("GET", "hub", 200),  # and again, to compare
        ("HEAD", "hub", 302),  # footer
        ("GET", "storage", 206),
        ("HEAD", "hub", 302),  # first row group
        ("GET", "storage", 206),
        ("HEAD", "hub", 302),  # second row group
        ("GET", "storage", 206),
    ]
    assert 65_536 < reading.file_bytes < file_size(hub) / 2
    assert undisturbed["whole file GET"].file_bytes == file_size(hub)


def file_size(hub: FaultyHub) -> int:
    return (hub.folder / "datasets" / DATASET / FILE).stat().st_size


@pytest.mark.parametrize("case", [case for case in CASES if case.kind in PASSING and case.count == 1], ids=str)
def test_transient_faults_change_no_byte_and_repeat_no_download(
    case: FaultCase, hub: FaultyHub, undisturbed: dict[str, Reading], tmp_path: Path
) -> None:
    expected = undisturbed[case.place.name]

    started = time.monotonic()
    failed, repeated = strike(case, hub, tmp_path)
    waited_s = time.monotonic() - started

    assert failed.result == repeated.result == expected.result
    assert failed.file_bytes == expected.file_bytes
    assert failed.requests == expected.requests + case.place.more_requests
    assert waited_s >= MIN_WAIT_S.get(case.kind, 0.0)
    assert repeated.requests == (1 if case.place.name == "pin" else 0)


LASTING_FAULTS = [
    pytest.param(case, id=str(case), marks=[pytest.mark.slow] if case.kind in MIN_WAIT_S else [])
    for case in CASES
    if case.kind in PASSING and case.count is ALWAYS
]


@pytest.mark.parametrize("case", LASTING_FAULTS)
def test_lasting_faults_are_given_up_after_four_tries_and_the_command_can_be_resumed(
    case: FaultCase, hub: FaultyHub, undisturbed: dict[str, Reading], tmp_path: Path
) -> None:
    expected = undisturbed[case.place.name]

    failed, healed = strike(case, hub, tmp_path)

    assert failed.error is not None
    assert FINAL_MESSAGES[case.kind] in str(failed.error)
    assert failed.requests == count_requests_before(case.place) + TRIES * case.place.more_requests
    assert healed.result == expected.result
    assert failed.file_bytes + healed.file_bytes == expected.file_bytes


FINAL_MESSAGES = {
    FaultKind.BUSY: f"HTTP 503 after {TRIES} attempts; run the same command later to resume",
    FaultKind.RETRY_AFTER: f"rate limited after {TRIES} attempts; run the same command later to resume",
    FaultKind.RATE_LIMIT: f"rate limited after {TRIES} attempts; run the same command later to resume",
    FaultKind.CUT: "cannot be reached (RemoteProtocolError: Server disconnected without sending a response.); "
    "check the network and HF_ENDPOINT, then run the same command again",
    FaultKind.CUT_BODY: "cannot be reached (RemoteProtocolError: peer closed connection without sending complete ",
}


def count_requests_before(place: Place) -> int:
    """Count two listings, then a HEAD and a GET for the footer."""
    match place.name.split():
        case ["pin" | "listing"]:
            return 0
        case ["footer", _]:
            return 2
    return 4


ON_DATASET = "maker/pages on {endpoint}: "
ON_FILE = "maker/pages@{commit}:data/pages.parquet: "
NOT_FOUND = (
    ON_DATASET + "dataset not found or private (HTTP {kind}); "
    "check the name; if it is private, set HF_TOKEN to a token with read access"
)
NOT_ALLOWED = (
    ON_DATASET
    + "the token has no read access (HTTP 403); accept the terms on {endpoint}/datasets/maker/pages if it is "
    "gated, or set HF_TOKEN to a token with read access"
)
NOT_STORED = (
    ON_FILE + "the hub's storage refused the download (HTTP {kind}); "
    "run the same command later to resume; if the error persists, pin a new commit"
)
OTHER_FILE = (
    ON_FILE + "the hub has {other_sha256} of {other_size} bytes, the listing has sha256:{sha256} of {size} bytes; "
    "the file changed on the hub: pin a new commit"
)
OTHER_RANGE = (
    ON_FILE + "the hub sent `bytes {range}/{other_size}` for `bytes {range}/{size}`; "
    "the file changed on the hub: pin a new commit"
)
OTHER_BYTES = (
    ON_FILE + "downloaded bytes do not match sha256:{sha256} of the listing; "
    "run again; if the error persists, the hub's copy is damaged"
)

TOO_LONG = "the response is longer than {max_bytes:,} bytes; retry later; if the error persists, check the server"


def error_template(case: FaultCase) -> str | None:
    """Return the error of a permanent fault; None for transient or undetected ones."""
    match case.kind:
        case FaultKind.UNAUTHORIZED | FaultKind.NOT_FOUND:
            return NOT_STORED if case.place.is_storage else NOT_FOUND
        case FaultKind.FORBIDDEN:
            return NOT_STORED if case.place.is_storage else NOT_ALLOWED
        case FaultKind.CHANGED:
            return OTHER_RANGE if case.place.is_storage else OTHER_FILE
        case FaultKind.WRONG_BYTES if case.place.name == "whole file GET":
            return OTHER_BYTES
        case FaultKind.ENDLESS:
            return (ON_FILE if case.place.is_storage else "{endpoint}: ") + TOO_LONG
    return None


@pytest.mark.parametrize("case", [case for case in CASES if error_template(case)], ids=str)
def test_permanent_faults_are_one_error_and_the_command_can_be_resumed(
    case: FaultCase, hub: FaultyHub, undisturbed: dict[str, Reading], tmp_path: Path
) -> None:
    failed, healed = strike(case, hub, tmp_path)

    content = (hub.folder / "datasets" / DATASET / FILE).read_bytes()
    sha256, size = hashlib.sha256(content).hexdigest(), len(content)
    byte_range = RANGES[case.place.name](content) if case.place.is_storage else ""
    first, _, last = byte_range.partition("-")
    assert str(failed.error) == str(error_template(case)).format(
        endpoint=hub.endpoint,
        commit=hub.commits()[DATASET],
        kind=case.kind,
        sha256=sha256,
        size=size,
        other_sha256=sha256[::-1],
        other_size=size + 1,
        range=byte_range,
        max_bytes=int(last) - int(first) + 1 if byte_range else 1 << 26,
    )
    assert healed.result == undisturbed[case.place.name].result


def first_row_group(content: bytes) -> str:
    group = pq.read_metadata(pa.BufferReader(content)).row_group(0)
    return f"4-{4 + sum(group.column(column).total_compressed_size for column in range(2)) - 1}"


RANGES = {
    "footer GET": lambda content: f"{len(content) - 65_536}-{len(content) - 1}",
    "row group GET": first_row_group,
    "whole file GET": lambda content: f"0-{len(content) - 65_536 - 1}",
}
