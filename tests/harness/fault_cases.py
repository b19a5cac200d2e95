"""Hub faults: each kind at each place where a snapshot or a pin reads.

The tests and benchmarks/faults.py run the same cases.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from answer_faults import ALWAYS, Fault, FaultKind
from faulty_hub import FaultyHub
from healing_build import DATASET, build_snapshot, parse_recipe, write_pages
from huggingface_hub import constants

from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.demo.loopback_http import HubRequest, Origin, Response
from pipeline_assets.spine.errors import InputError

TRIES = 4
EVERYTHING = {"files": 1}  # the whole file, compared with its hash
TWO_ROW_GROUPS = {"documents": 100}  # of six, by ranges
PIN: dict[str, int] = {}  # no file at all: the commit of a branch


@dataclass(frozen=True, eq=False)
class Place:
    """Requests that a fault can strike: those on `pattern` after the first `after`.

    They are sent while `amount` is read. A retry costs `more_requests`: a GET of bytes first requests their address.
    """

    name: str
    pattern: str
    after: int
    amount: dict[str, int]
    more_requests: int

    @property
    def has_body(self) -> bool:
        return not self.name.endswith("HEAD")

    @property
    def is_storage(self) -> bool:
        """True if the storage sends the bytes, which the hub only names."""
        return self.name.endswith("GET")

    @property
    def is_file_request(self) -> bool:
        return self.is_storage or not self.has_body


REVISION = "/api/datasets/maker/pages/revision/main"
LISTING = "/api/datasets/maker/pages/tree/*"
HEAD = "/datasets/maker/pages/resolve/*"
GET = "/datasets/maker/pages/????????????????????????????????????????????????????????????????/*"  # by sha256
PLACES = [
    Place("pin", REVISION, 0, PIN, more_requests=1),
    Place("listing", LISTING, 0, TWO_ROW_GROUPS, more_requests=1),
    Place("footer HEAD", HEAD, 0, TWO_ROW_GROUPS, more_requests=1),
    Place("footer GET", GET, 0, TWO_ROW_GROUPS, more_requests=2),
    Place("row group HEAD", HEAD, 1, TWO_ROW_GROUPS, more_requests=1),
    Place("row group GET", GET, 1, TWO_ROW_GROUPS, more_requests=2),
    Place("whole file HEAD", HEAD, 1, EVERYTHING, more_requests=1),
    Place("whole file GET", GET, 1, EVERYTHING, more_requests=2),
]
PASSING = (FaultKind.BUSY, FaultKind.RETRY_AFTER, FaultKind.RATE_LIMIT, FaultKind.CUT, FaultKind.CUT_BODY)
KINDS_IN_OTHER_TESTS = (  # hub_faults/test_hostile_hub.py, corpus/publishing/test_publish_faults.py
    FaultKind.DRIP,
    FaultKind.LINK_LOOP,
    FaultKind.LINK_AWAY,
    FaultKind.SILENT,
    FaultKind.DRIP_HEAD,
    FaultKind.LONG_WAIT,
    FaultKind.VERIFY_AWAY,
    FaultKind.CHUNK_SIZE,
    FaultKind.COMMIT_ID,
    FaultKind.EMPTY_LIST,
    FaultKind.GZIP,
)


def can_strike(kind: FaultKind, place: Place) -> bool:
    """Check whether a fault applies: some need a body, one needs a file."""
    match kind:
        case FaultKind.CUT_BODY | FaultKind.WRONG_BYTES | FaultKind.ENDLESS:
            return place.has_body
        case FaultKind.CHANGED:
            return place.is_file_request
    return True


@dataclass(frozen=True)
class FaultCase:
    """Kind of fault at a place; it strikes once, or ALWAYS."""

    kind: FaultKind
    place: Place
    count: int | None

    def __str__(self) -> str:
        return f"{self.kind} {'always' if self.count is ALWAYS else 'once'}, {self.place.name}"


CASES = [
    FaultCase(kind, place, count)
    for kind in FaultKind
    if kind not in KINDS_IN_OTHER_TESTS
    for count in (1, ALWAYS)
    for place in PLACES
    if can_strike(kind, place)
]


@dataclass(frozen=True)
class Reading:
    """Digest, commit or error of a run, with its traffic."""

    result: str | None
    error: InputError | None
    requests: int
    file_bytes: int


class ProxiedHub(FaultyHub):
    """Hub behind a proxy that answers first."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.first: list[Response] = []

    def answer(self, origin: Origin, request: HubRequest) -> Response:
        return self.first.pop(0) if self.first else super().answer(origin, request)


@contextmanager
def open_hub(folder: Path) -> Iterator[FaultyHub]:
    """Serve a faulty hub with one file, to a client without a token."""
    write_pages(folder)
    with (
        mock.patch.object(constants, "HF_HUB_DISABLE_TELEMETRY", True),
        mock.patch.object(constants, "HF_HUB_DISABLE_IMPLICIT_TOKEN", True),
        FaultyHub(folder) as hub,
    ):
        yield hub


def read(hub: FaultyHub, amount: dict[str, int], cache: Path, root: Path) -> Reading:
    """Build the snapshot of an amount in `root`, or resolve the hub's head."""
    hub.requests.clear()
    files = HubFiles(cache, hub.endpoint, tries=TRIES, wait_s=0.01)
    result, error = None, None
    try:
        if amount is PIN:
            result = files.resolve(DATASET)
        else:
            recipe = parse_recipe(hub.commits()[DATASET], {"amount": amount})
            result = build_snapshot(recipe, root, files).manifest.digest
    except InputError as raised:
        error = raised
    sent = [request for request in hub.requests if request.origin == "storage" and request.status < 300]
    return Reading(result, error, len(hub.requests), sum(request.bytes_sent for request in sent))


def undisturbed(hub: FaultyHub, folder: Path) -> dict[str, Reading]:
    """Read every place without faults."""
    hub.inject()
    return {place.name: read(hub, place.amount, folder / place.name, folder / place.name) for place in PLACES}


def strike(case: FaultCase, hub: FaultyHub, folder: Path) -> tuple[Reading, Reading]:
    """Run under the fault, and again after it."""
    hub.inject(Fault(case.kind, case.place.pattern, case.count, case.place.after))
    struck = read(hub, case.place.amount, folder / "cache", folder / "data")
    hub.inject()
    return struck, read(hub, case.place.amount, folder / "cache", folder / "data")
