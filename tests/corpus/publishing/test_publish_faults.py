"""Publishing to a hub that is faulty or hostile.

The tests check where the token is sent, how long a call takes, and how much it reads.
"""

import itertools
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
from answer_faults import ALWAYS, Fault, FaultKind
from faulty_hub import FaultyHub
from hub_pools import NAME, Place, check_whole
from huggingface_hub import HfApi, constants
from huggingface_hub.utils import _http

from pipeline_assets.corpus.publishing import load_back as loading
from pipeline_assets.corpus.publishing import publish as publishing
from pipeline_assets.corpus.publishing.hub_repo import HubRepo
from pipeline_assets.corpus.publishing.load_back import check_configs_load
from pipeline_assets.corpus.publishing.publication import prepare_publication
from pipeline_assets.corpus.publishing.publish import PublicationPlan, publish
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.errors import InputError, RetryableError, TransientError

WRITES = ["*/create", "*/preupload/main", "*/batch", "*/validate-yaml"]
PROGRESS_S = 0.4
STALLS = (FaultKind.SILENT, FaultKind.DRIP_HEAD, FaultKind.DRIP)


pytestmark = pytest.mark.usefixtures("unloaded")


@pytest.fixture
def waits_s(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Replace the waits between tries by a list of their seconds."""
    waits: list[float] = []
    monkeypatch.setattr(time, "sleep", waits.append)
    return waits


@pytest.fixture
def other_hub(tmp_path: Path) -> Iterator[FaultyHub]:
    """Start a hub of another origin, which records requests with a token."""
    (tmp_path / "other").mkdir()
    with FaultyHub(tmp_path / "other") as hub:
        yield hub


def impatient_repo(place: Place) -> HubRepo:
    repo = place.repo(tries=2)
    return replace(repo, hub=replace(repo.hub, progress_s=PROGRESS_S))


def send(artifact: Artifact, place: Place, *faults: Fault) -> tuple[str, PublicationPlan]:
    """Publish with faults; each must occur, and stalls have a short timeout."""
    repo = impatient_repo(place) if any(fault.kind in STALLS for fault in faults) else place.repo(tries=2)
    publication = prepare_publication(artifact, repo)
    place.hub.inject(*faults)
    try:
        return publish(publication, repo)
    finally:
        assert {kind for kind, _ in place.hub.fired} == {fault.kind for fault in faults}


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        *itertools.product(["/api/whoami-v2", "*/create"], STALLS),
        *((path, FaultKind.DRIP) for path in (*WRITES[1:], "*/revision/main")),
    ],
)  # one call of our client and one of the library meet every stall
def test_a_hub_without_progress_is_an_error(path: str, kind: FaultKind, place: Place, first: Artifact) -> None:
    started = time.monotonic()

    with pytest.raises(TransientError, match=r"cannot be reached .*Timeout"):
        send(first, place, Fault(kind, path, ALWAYS))

    assert time.monotonic() - started < 20


@pytest.mark.parametrize("path", ["/upload/*", "*/verify"])
def test_files_that_arrived_without_an_answer_are_not_sent_again(
    path: str, place: Place, first: Artifact, waits_s: list[float]
) -> None:
    send(first, place, Fault(FaultKind.SILENT, path))

    assert check_whole(place.folder) == first.manifest.digest


@pytest.mark.parametrize("path", ["/api/whoami-v2", "*/create", "*/batch"])
def test_an_endless_answer_is_cut(path: str, place: Place, first: Artifact) -> None:
    with pytest.raises(RetryableError, match="67,108,864 bytes"):
        send(first, place, Fault(FaultKind.ENDLESS, path, ALWAYS))

    assert max(request.bytes_sent for request in place.hub.requests) < 100_000_000


@pytest.mark.parametrize("path", ["*/create", "*/batch"])
def test_a_compressed_answer_is_not_unpacked(path: str, place: Place, first: Artifact) -> None:
    with pytest.raises(TransientError, match="the response is compressed"):
        send(first, place, Fault(FaultKind.GZIP, path, ALWAYS))


@pytest.mark.parametrize("path", ["/api/whoami-v2", "*/create", "*/batch", "/upload/*", "*/commit/main"])
def test_waits_are_at_most_ten_minutes(path: str, place: Place, first: Artifact, waits_s: list[float]) -> None:
    send(first, place, Fault(FaultKind.LONG_WAIT, path))

    assert 60 <= max(waits_s) <= 600
    assert check_whole(place.folder) == first.manifest.digest


@pytest.mark.parametrize("size", ["0", "1048575", "many"])
def test_invalid_chunk_sizes_of_a_storage_are_refused(size: str, place: Place, first: Artifact) -> None:
    expected = "invalid literal" if size == "many" else f"chunk_size must be at least .* got '{size}'"
    with pytest.raises(TransientError, match=expected):
        send(first, place, Fault(FaultKind.CHUNK_SIZE, "*/batch", ALWAYS, value=size))

    assert not place.sent()


@pytest.mark.parametrize("status", [FaultKind.UNAUTHORIZED, FaultKind.FORBIDDEN, FaultKind.NOT_FOUND])
@pytest.mark.parametrize("path", ["/upload/*", "*/verify"])
def test_refusals_of_the_storage_are_not_reported_as_missing_permission(
    path: str, status: FaultKind, place: Place, first: Artifact
) -> None:
    with pytest.raises(RetryableError, match=rf"the storage of the hub refused an upload \(HTTP {status}\)"):
        send(first, place, Fault(status, path, ALWAYS))


def test_another_origin_confirming_uploads_gets_no_token(place: Place, other_hub: FaultyHub, first: Artifact) -> None:
    with pytest.raises(RetryableError, match=f"{other_hub.endpoint}: the storage of the hub refused"):
        send(first, place, Fault(FaultKind.VERIFY_AWAY, "*/batch", ALWAYS, value=other_hub.endpoint))

    assert {(request.path, request.has_token) for request in other_hub.requests} == {("/verify", False)}
    assert any(request.has_token for request in place.hub.requests)


def read_back(place: Place, commit: str, configs: Mapping[str, Sequence[str]]) -> None:
    check_configs_load(NAME, commit, place.hub.endpoint, place.hub.token, configs)


def test_another_origin_of_a_page_gets_no_token_when_read_back(
    place: Place, other_hub: FaultyHub, first: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", place.hub.token)
    commit, _ = send(first, place)
    configs = prepare_publication(first, place.repo()).configs
    place.hub.requests.clear()
    place.hub.inject(Fault(FaultKind.LINK_AWAY, f"/api/datasets/{NAME}/tree/*", ALWAYS, value=other_hub.endpoint))

    with pytest.raises(InputError, match="`datasets` cannot load the publication"):
        read_back(place, commit, configs)

    assert place.hub.fired and other_hub.requests
    assert not any(request.has_token for request in other_hub.requests)
    assert any(request.has_token for request in place.hub.requests)


def test_a_card_naming_another_origin_sends_it_no_request(
    place: Place, other_hub: FaultyHub, first: Artifact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "loaded"))  # `datasets` would read an earlier publication
    (tmp_path / "loaded" / NAME.replace("/", "___") / "all" / "0.0.0" / "0a").mkdir(parents=True)
    commit, _ = send(first, place)
    config, names = next(iter(prepare_publication(first, place.repo()).configs.items()))
    card = f"---\nconfigs:\n- config_name: {config}\n  data_files: {other_hub.endpoint}/low.parquet\n---\n"
    (place.folder / "README.md").write_text(card)
    changed = place.hub.commits()[NAME]
    assert changed != commit

    with pytest.raises(InputError, match="the card names an address of http"):
        read_back(place, changed, {config: names})

    assert not other_hub.requests


def test_loading_back_connects_to_the_hub_alone(place: Place, first: Artifact, monkeypatch: pytest.MonkeyPatch) -> None:
    commit, _ = send(first, place)
    config, names = next(iter(prepare_publication(first, place.repo()).configs.items()))

    with socket.create_server(("127.0.0.1", 0)) as proxy:  # of other hosts: the hub is at http
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{proxy.getsockname()[1]}")
        read_back(place, commit, {config: names})
        proxy.setblocking(False)
        with pytest.raises(BlockingIOError):
            proxy.accept()


@pytest.mark.slow
def test_splits_that_differ_from_the_publication_are_an_error(place: Place, first: Artifact) -> None:
    commit, _ = send(first, place)
    config, names = next(iter(prepare_publication(first, place.repo()).configs.items()))

    read_back(place, commit, {config: [*reversed(sorted(names))]})
    with pytest.raises(InputError, match=r"`datasets` cannot load the publication \(its splits are"):
        read_back(place, commit, {config: [*names, "more"]})


def test_a_slow_load_back_is_an_error(place: Place, first: Artifact, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "check_configs_load", check_configs_load)
    monkeypatch.setattr(loading, "_TIMEOUT_S", 0.1)
    with pytest.raises(RetryableError, match=f"{NAME}@[0-9a-f]{{40}}: `datasets` did not load .* within 0 s"):
        send(first, place)


def test_a_hub_that_lists_other_files_is_an_error(place: Place, first: Artifact) -> None:
    with pytest.raises(RetryableError, match=r"after \d attempts to commit, \d+ files are missing or differ"):
        send(first, place, Fault(FaultKind.EMPTY_LIST, f"/api/datasets/{NAME}/tree/*", ALWAYS, after=1))


@pytest.mark.parametrize("kind", [FaultKind.CUT, FaultKind.BUSY, FaultKind.SILENT, FaultKind.CUT_BODY])
def test_a_commit_whose_answer_was_lost_is_made_once(kind: FaultKind, place: Place, first: Artifact) -> None:
    send(first, place, Fault(kind, "*/commit/main", ALWAYS))

    assert len(place.hub.titles) == 2
    assert check_whole(place.folder) == first.manifest.digest


@pytest.mark.parametrize("value", ["main", "", "0" * 40])
def test_a_commit_is_read_from_the_hub_not_from_the_answer(value: str, place: Place, first: Artifact) -> None:
    commit, _ = send(first, place, Fault(FaultKind.COMMIT_ID, "*/commit/main", ALWAYS, value=value or " "))

    assert commit == place.hub.commits()[NAME]


def test_a_late_commit_is_made_once(place: Place, first: Artifact, monkeypatch: pytest.MonkeyPatch) -> None:
    """Delay the commit of the first try until just before the second try's."""
    real, calls = HfApi.create_commit, itertools.count()

    def commit_late(api: HfApi, name: str, operations: list[Any], **options: Any) -> Any:
        call = next(calls)
        if call == 0:
            raise httpx2.ReadTimeout("late")
        if call == 1:
            real(api, name, operations, **options)
            for operation in operations:
                operation._is_committed = False
        return real(api, name, operations, **options)

    monkeypatch.setattr(HfApi, "create_commit", commit_late)

    send(first, place)
    assert len(place.hub.titles) == 2


def test_settings_of_the_client_are_restored(place: Place, first: Artifact) -> None:
    """Xet is off only for a hub on loopback, and only while it is written to.

    Such a hub has no Xet.
    """
    before = _http._GLOBAL_CLIENT_FACTORY

    send(first, place)

    assert place.sent() and check_whole(place.folder) == first.manifest.digest
    assert _http._GLOBAL_CLIENT_FACTORY is before and not constants.HF_HUB_DISABLE_XET
    assert (place.folder / ".gitattributes").exists()
