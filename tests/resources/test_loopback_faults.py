"""Faults of the loopback hub: which answers they hit, and what the client gets instead."""

import http.client
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from answers import Corpusmill
from faulty_hub import ALWAYS, NO_REPLY, Fault, FaultKind, FaultyHub
from stories import README, REPO, ask

README_PATH = f"/datasets/{REPO}/resolve/main/README.md"
ARCHIVE_PATH = f"/datasets/{REPO}/resolve/main/archive.zst"
WHOAMI = "/api/whoami-v2"


@pytest.fixture
def hub(repo: Path, hub: FaultyHub) -> FaultyHub:
    """A hub with a small file and a large one."""
    (repo / "archive.zst").write_bytes(bytes(3_000_000))
    return hub


@pytest.mark.parametrize(
    ("kind", "status", "headers"),
    [
        (FaultKind.BUSY, 503, {}),
        (FaultKind.RETRY_AFTER, 429, {"Retry-After": "1"}),
        (
            FaultKind.RATE_LIMIT,
            429,
            {"RateLimit": '"x";r=0;t=1', "RateLimit-Policy": '"fixed window";"x";q=5000;w=300'},
        ),
        (FaultKind.UNAUTHORIZED, 401, {}),
        (FaultKind.FORBIDDEN, 403, {}),
        (FaultKind.NOT_FOUND, 404, {}),
    ],
)
def test_a_refusal_has_its_status_and_headers_and_hits_once(
    hub: FaultyHub, kind: FaultKind, status: int, headers: dict[str, str]
) -> None:
    hub.inject(Fault(kind))

    refused = ask(hub.endpoint + README_PATH)
    answered = ask(hub.endpoint + README_PATH)

    assert refused[0] == status
    assert headers.items() <= refused[1].items()
    assert list(json.loads(refused[2])) == ["error"]
    assert answered[::2] == (200, README)


def test_a_cut_connection_brings_no_reply_and_is_noted(hub: FaultyHub) -> None:
    hub.inject(Fault(FaultKind.CUT))

    with pytest.raises(http.client.RemoteDisconnected):
        ask(hub.endpoint + README_PATH)

    assert [(request.path, request.status, request.bytes_sent) for request in hub.requests] == [
        (README_PATH, NO_REPLY, 0)
    ]


def test_a_cut_body_is_half_of_it_under_its_full_length(hub: FaultyHub) -> None:
    hub.inject(Fault(FaultKind.CUT_BODY, "*/archive.zst"))
    storage = ask(hub.endpoint + ARCHIVE_PATH, "HEAD")[1]["Location"]

    with pytest.raises(http.client.IncompleteRead) as error:
        ask(storage)

    assert (len(error.value.partial), error.value.expected) == (1_500_000, 1_500_000)
    assert hub.requests[-1].bytes_sent == 1_500_000
    assert len(ask(storage)[2]) == 3_000_000


@pytest.mark.parametrize(("byte_range", "at"), [("", 1_500_000), ("bytes=10-19", 5), ("bytes=0-0", 0)])
def test_wrong_bytes_are_as_many_with_one_bit_flipped_in_the_middle(hub: FaultyHub, byte_range: str, at: int) -> None:
    hub.inject(Fault(FaultKind.WRONG_BYTES))
    storage = ask(hub.endpoint + ARCHIVE_PATH, "HEAD")[1]["Location"]

    wrong = ask(storage, headers={"Range": byte_range})[2]
    right = ask(storage, headers={"Range": byte_range})[2]

    assert len(wrong) == len(right)
    assert [number for number, byte in enumerate(wrong) if byte] == [at]
    assert wrong[at] == 1


def test_a_changed_file_has_another_etag_and_size_on_the_hub_and_other_bytes_in_storage(hub: FaultyHub) -> None:
    before = ask(hub.endpoint + ARCHIVE_PATH, "HEAD")[1]
    hub.inject(Fault(FaultKind.CHANGED, "*.zst", ALWAYS))

    after = ask(hub.endpoint + ARCHIVE_PATH, "HEAD")[1]
    stored = ask(before["Location"], headers={"Range": "bytes=0-9"})

    assert (before["X-Linked-Size"], after["X-Linked-Size"]) == ("3000000", "3000001")
    assert before["X-Linked-Etag"] != after["X-Linked-Etag"]
    assert stored[1]["Content-Range"] == "bytes 0-9/3000001"
    assert stored[2] == b"\0\0\0\0\0\1\0\0\0\0"


@pytest.mark.parametrize(
    ("kind", "method", "path"),
    [
        (FaultKind.CUT_BODY, "HEAD", README_PATH),
        (FaultKind.WRONG_BYTES, "HEAD", README_PATH),
        (FaultKind.CHANGED, "GET", WHOAMI),
    ],
)
def test_a_fault_waits_for_an_answer_that_it_can_hit(hub: FaultyHub, kind: FaultKind, method: str, path: str) -> None:
    whole = ask(hub.endpoint + path, method)

    hub.inject(Fault(kind))

    assert ask(hub.endpoint + path, method) == whole
    with pytest.raises((http.client.IncompleteRead, Damaged)):
        read_undamaged(hub)
    assert read_undamaged(hub) == README


class Damaged(Exception):
    pass


def read_undamaged(hub: FaultyHub) -> bytes:
    _, headers, body = ask(hub.endpoint + README_PATH)
    if (headers["ETag"], body) != ('"70ac3484b4eb20ce34c7b01b7d652ae8d359ee88"', README):
        raise Damaged
    return body


def test_a_fault_hits_its_paths_only_and_lets_the_first_ones_by(hub: FaultyHub) -> None:
    hub.inject(Fault(FaultKind.BUSY, "*/README.md", count=2, after=1))

    statuses = [ask(hub.endpoint + path)[0] for path in (README_PATH, WHOAMI, *[README_PATH] * 3)]

    assert statuses == [200, 401, 503, 503, 200]


def test_faults_take_turns_in_the_order_given_and_none_heal_the_hub(hub: FaultyHub) -> None:
    hub.inject(Fault(FaultKind.BUSY), Fault(FaultKind.NOT_FOUND, count=2), Fault(FaultKind.FORBIDDEN, "*", ALWAYS))
    disturbed = [ask(hub.endpoint + README_PATH)[0] for _ in range(5)]

    hub.inject()

    assert disturbed == [503, 404, 404, 403, 403]
    assert ask(hub.endpoint + README_PATH)[0] == 200


def test_many_threads_meet_exactly_as_many_faults_as_a_hub_starts_with(hub: FaultyHub) -> None:
    with FaultyHub(hub.folder, faults=[Fault(FaultKind.BUSY, count=20)]) as busy, ThreadPoolExecutor(8) as pool:
        statuses = list(pool.map(lambda _: ask(busy.endpoint + README_PATH)[0], range(100)))

    assert (statuses.count(503), statuses.count(200)) == (20, 80)


def test_the_command_has_no_faults_and_names_who_has(corpusmill: Corpusmill, hub: FaultyHub) -> None:
    served = corpusmill("hub", "serve", hub.folder, "--fault", "503:*:2")

    assert served.returncode == 2
    assert served.stderr == (
        "corpusmill: --fault: hub serve has no faults; use FaultyHub of tests/faulty_hub.py, which has them\n"
    )
