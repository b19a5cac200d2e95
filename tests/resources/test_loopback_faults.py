"""Faults of the loopback hub: which answers they hit, and what the client gets instead."""

import http.client
from pathlib import Path

import pytest
from answers import Corpusmill
from faulty_hub import ALWAYS, Fault, FaultKind, FaultyHub
from stories import README, REPO, ask

README_PATH = f"/datasets/{REPO}/resolve/main/README.md"
ARCHIVE_PATH = f"/datasets/{REPO}/resolve/main/archive.zst"
WHOAMI = "/api/whoami-v2"


@pytest.fixture
def hub(repo: Path, hub: FaultyHub) -> FaultyHub:
    """A hub with a small file and a large one."""
    (repo / "archive.zst").write_bytes(bytes(3_000_000))
    return hub


@pytest.mark.parametrize(("byte_range", "at"), [("", 1_500_000), ("bytes=10-19", 5)])
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
    hub.inject(Fault(FaultKind.BUSY, "*/README.md", count=2, after=1), Fault(FaultKind.FORBIDDEN, WHOAMI, ALWAYS))

    statuses = [ask(hub.endpoint + path)[0] for path in (README_PATH, WHOAMI, *[README_PATH] * 3, WHOAMI)]
    hub.inject()

    assert statuses == [200, 403, 503, 503, 200, 403]
    assert ask(hub.endpoint + WHOAMI)[0] == 401


def test_the_command_has_no_faults_and_names_who_has(corpusmill: Corpusmill, hub: FaultyHub) -> None:
    served = corpusmill("hub", "serve", hub.folder, "--fault", "503:*:2")

    assert served.returncode == 2
    assert served.stderr == (
        "corpusmill: --fault: hub serve has no faults; use FaultyHub of tests/faulty_hub.py, which has them\n"
    )
