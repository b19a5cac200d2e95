"""Publishing to a hub that is faulty or hostile.

The tests check where the token is sent, how long a call takes, and how much it reads.
"""

import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
from faulty_hub import ALWAYS, Fault, FaultKind, FaultyHub
from hub_pools import NAME, Place, check_whole, open_place, pools, rows_of
from huggingface_hub import HfApi, constants
from huggingface_hub.utils import _http

from pipeline_assets.corpus.publishing import load_back as loading
from pipeline_assets.corpus.publishing import publish as publishing
from pipeline_assets.corpus.publishing.hub_repo import HubRepo
from pipeline_assets.corpus.publishing.load_back import load_back
from pipeline_assets.corpus.publishing.publication import publication_of
from pipeline_assets.corpus.publishing.publish import Published, plan_publication, publish
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.errors import InputError, RetryableError, TransientError

WRITES = ["*/create", "*/preupload/main", "*/batch", "*/validate-yaml"]
PROGRESS_S = 0.4


@pytest.fixture(autouse=True)
def quiet_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_TELEMETRY", True)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", False)
    monkeypatch.delenv("HF_HUB_DISABLE_XET", raising=False)
    monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")


@pytest.fixture
def unloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Publish without the process that loads the result."""
    monkeypatch.setattr(publishing, "load_back", lambda *_: None)


@pytest.fixture
def waits_s(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Replace the waits between tries by a list of their seconds."""
    waits: list[float] = []
    monkeypatch.setattr(time, "sleep", waits.append)
    return waits


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    yield from open_place(tmp_path / "hub")


@pytest.fixture
def other(tmp_path: Path) -> Iterator[FaultyHub]:
    """Another origin, which counts requests with a token."""
    (tmp_path / "other").mkdir()
    with FaultyHub(tmp_path / "other") as hub:
        yield hub


@pytest.fixture
def made(place: Place, tmp_path: Path) -> Artifact:
    return pools(tmp_path / "made", {"low": rows_of(place.revision), "high": rows_of(place.revision, 5)})


def impatient(place: Place, cache: Path) -> HubRepo:
    repo = place.repo(cache, tries=2)
    return replace(repo, hub=replace(repo.hub, progress_s=PROGRESS_S))


def send(artifact: Artifact, place: Place, cache: Path, *faults: Fault) -> Published:
    """Publish while faults are in force; each of them must hit an answer."""
    repo = impatient(place, cache)
    publication = publication_of(artifact, repo)
    place.hub.inject(*faults)
    try:
        return publish(publication, repo)
    finally:
        assert {kind for kind, _ in place.hub.fired} == {fault.kind for fault in faults}


@pytest.mark.parametrize("kind", [FaultKind.SILENT, FaultKind.DRIP_HEAD, FaultKind.DRIP])
@pytest.mark.parametrize("path", ["/api/whoami-v2", *WRITES, "*/commits/main"])
def test_a_hub_without_progress_is_an_error(
    kind: FaultKind, path: str, place: Place, made: Artifact, tmp_path: Path, unloaded: None
) -> None:
    started = time.monotonic()

    with pytest.raises(TransientError, match=r"can't be reached .*Timeout"):
        send(made, place, tmp_path / "cache", Fault(kind, path, ALWAYS))

    assert time.monotonic() - started < 20


@pytest.mark.parametrize("path", ["/upload/*", "*/verify"])
def test_files_that_arrived_without_an_answer_are_not_sent_again(
    path: str, place: Place, made: Artifact, tmp_path: Path, unloaded: None, waits_s: list[float]
) -> None:
    send(made, place, tmp_path / "cache", Fault(FaultKind.SILENT, path))

    assert check_whole(place.folder) == made.manifest.digest


@pytest.mark.parametrize("path", [*WRITES, "*/commits/main", "/api/whoami-v2"])
def test_an_endless_answer_is_cut(path: str, place: Place, made: Artifact, tmp_path: Path, unloaded: None) -> None:
    with pytest.raises(RetryableError, match="67,108,864 bytes"):
        send(made, place, tmp_path / "cache", Fault(FaultKind.ENDLESS, path, ALWAYS))

    assert max(request.bytes_sent for request in place.hub.requests) < 100_000_000


@pytest.mark.parametrize("path", WRITES)
def test_a_compressed_answer_is_not_unpacked(
    path: str, place: Place, made: Artifact, tmp_path: Path, unloaded: None
) -> None:
    with pytest.raises(TransientError, match="the answer is compressed"):
        send(made, place, tmp_path / "cache", Fault(FaultKind.GZIP, path, ALWAYS))


@pytest.mark.parametrize("path", ["/api/whoami-v2", "*/create", "*/batch", "/upload/*", "*/commit/main"])
def test_no_hub_decides_on_waits_above_ten_minutes(
    path: str, place: Place, made: Artifact, tmp_path: Path, unloaded: None, waits_s: list[float]
) -> None:
    send(made, place, tmp_path / "cache", Fault(FaultKind.LONG_WAIT, path))

    assert 60 <= max(waits_s) <= 600
    assert check_whole(place.folder) == made.manifest.digest


@pytest.mark.parametrize("size", ["0", "1", "-5", "many", "1e9"])
def test_sizes_of_parts_that_no_storage_has_are_refused(
    size: str, place: Place, made: Artifact, tmp_path: Path, unloaded: None
) -> None:
    expected = "invalid literal" if size in ("many", "1e9") else f"chunk_size must be at least .* got '{size}'"
    with pytest.raises(TransientError, match=expected):
        send(made, place, tmp_path / "cache", Fault(FaultKind.CHUNK_SIZE, "*/batch", ALWAYS, value=size))

    assert not place.sent()


@pytest.mark.parametrize("status", [FaultKind.UNAUTHORIZED, FaultKind.FORBIDDEN, FaultKind.NOT_FOUND])
@pytest.mark.parametrize("path", ["/upload/*", "*/verify"])
def test_a_refusal_of_the_storage_is_no_missing_permission(
    path: str, status: FaultKind, place: Place, made: Artifact, tmp_path: Path, unloaded: None
) -> None:
    with pytest.raises(RetryableError, match=rf"the storage of the hub refused an upload \(HTTP {status}\)"):
        send(made, place, tmp_path / "cache", Fault(status, path, ALWAYS))


def test_another_origin_that_confirms_uploads_gets_no_token(
    place: Place, other: FaultyHub, made: Artifact, tmp_path: Path, unloaded: None
) -> None:
    with pytest.raises(RetryableError, match=f"{other.endpoint}: the storage of the hub refused"):
        send(made, place, tmp_path / "cache", Fault(FaultKind.VERIFY_AWAY, "*/batch", ALWAYS, value=other.endpoint))

    assert {(request.path, request.has_token) for request in other.requests} == {("/verify", False)}
    assert any(request.has_token for request in place.hub.requests)


def splits(publication: Any) -> dict[str, Sequence[str]]:
    names = publication.split_names
    return {config: [names[split.split] for split in found] for config, found in publication.configs.items()}


def test_another_origin_of_a_page_gets_no_token_when_read_back(
    place: Place, other: FaultyHub, made: Artifact, tmp_path: Path, unloaded: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", place.hub.token)
    done = send(made, place, tmp_path / "cache")
    configs = splits(publication_of(made, place.repo(tmp_path / "cache")))
    place.hub.requests.clear()
    place.hub.inject(Fault(FaultKind.LINK_AWAY, f"/api/datasets/{NAME}/tree/*", ALWAYS, value=other.endpoint))

    with pytest.raises(InputError, match="`datasets` can't load what was published"):
        load_back(NAME, done.commit, place.hub.endpoint, place.hub.token, configs)

    assert place.hub.fired and other.requests
    assert not any(request.has_token for request in other.requests)
    assert any(request.has_token for request in place.hub.requests)


def test_a_card_that_names_another_origin_reaches_nothing(
    place: Place, other: FaultyHub, made: Artifact, tmp_path: Path, unloaded: None
) -> None:
    done = send(made, place, tmp_path / "cache")
    config, names = next(iter(splits(publication_of(made, place.repo(tmp_path / "cache"))).items()))
    card = f"---\nconfigs:\n- config_name: {config}\n  data_files: {other.endpoint}/low.parquet\n---\n"
    (place.folder / "README.md").write_text(card)
    commit = place.hub.commits()[NAME]
    assert commit != done.commit

    with pytest.raises(InputError, match="the card names an address of http"):
        load_back(NAME, commit, place.hub.endpoint, place.hub.token, {config: names})

    assert not other.requests


def test_other_splits_than_published_are_an_error(place: Place, made: Artifact, tmp_path: Path, unloaded: None) -> None:
    done = send(made, place, tmp_path / "cache")
    config, names = next(iter(splits(publication_of(made, place.repo(tmp_path / "cache"))).items()))

    load_back(NAME, done.commit, place.hub.endpoint, place.hub.token, {config: [*reversed(sorted(names))]})
    with pytest.raises(InputError, match=r"`datasets` can't load what was published \(it finds"):
        load_back(NAME, done.commit, place.hub.endpoint, place.hub.token, {config: [*names, "more"]})


def test_reading_back_that_takes_too_long_is_an_error(
    place: Place, made: Artifact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "_LONGEST_S", 0.1)
    with pytest.raises(RetryableError, match=f"{NAME}@[0-9a-f]{{40}}: `datasets` must load .* within 0 s"):
        send(made, place, tmp_path / "cache")


@pytest.mark.slow
def test_a_hub_that_is_silent_when_read_back_is_an_error(
    place: Place, made: Artifact, tmp_path: Path, unloaded: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = send(made, place, tmp_path / "cache")
    monkeypatch.setattr(loading, "_LONGEST_S", 30.0)
    place.hub.inject(Fault(FaultKind.SILENT, f"/datasets/{NAME}/resolve/*", ALWAYS))

    with pytest.raises(InputError):
        load_back(NAME, done.commit, place.hub.endpoint, place.hub.token, {"tool_use": ["low"]})

    assert place.hub.fired


def test_a_hub_that_lists_other_files_is_an_error(place: Place, made: Artifact, tmp_path: Path, unloaded: None) -> None:
    with pytest.raises(InputError, match=r"the hub has other bytes of \d+ files"):
        send(made, place, tmp_path / "cache", Fault(FaultKind.EMPTY_LIST, f"/api/datasets/{NAME}/tree/*", after=1))


@pytest.mark.parametrize("after", [0, 1, 2])
def test_an_empty_history_is_an_error(after: int, place: Place, made: Artifact, tmp_path: Path, unloaded: None) -> None:
    with pytest.raises(TransientError, match="the history must be a list of at least one commit"):
        send(made, place, tmp_path / "cache", Fault(FaultKind.EMPTY_LIST, "*/commits/main", ALWAYS, after))

    repo = impatient(place, tmp_path / "cache")
    place.hub.inject(Fault(FaultKind.EMPTY_LIST, "*/commits/main", ALWAYS))
    with pytest.raises(TransientError, match="the history must be a list of at least one commit"):
        plan_publication(publication_of(made, repo), repo)


@pytest.mark.parametrize("value", ["main", "", "A" * 40, "0" * 39, "../x", "1" * 64])
def test_a_commit_id_is_taken_from_the_history_if_the_answer_has_none(
    value: str, place: Place, made: Artifact, tmp_path: Path, unloaded: None
) -> None:
    done = send(
        made, place, tmp_path / "cache", Fault(FaultKind.COMMIT_ID, "*/commit/main", ALWAYS, value=value or " ")
    )

    assert (done.commit, done.commits) == (place.hub.commits()[NAME], 2)


def test_a_history_without_commit_ids_is_an_error(place: Place, made: Artifact, tmp_path: Path, unloaded: None) -> None:
    send(made, place, tmp_path / "cache")
    history = place.folder / ".commits.jsonl"
    history.write_text('{"id": "main", "title": "t", "message": "m"}\n' + history.read_text())
    repo = impatient(place, tmp_path / "cache")

    with pytest.raises(TransientError, match="a commit id must be 40 hex digits, got 'main'"):
        plan_publication(publication_of(made, repo), repo)


@pytest.mark.parametrize("kind", [FaultKind.CUT, FaultKind.BUSY, FaultKind.SILENT, FaultKind.CUT_BODY])
def test_commits_whose_answers_were_lost_are_counted(
    kind: FaultKind, place: Place, made: Artifact, tmp_path: Path, unloaded: None
) -> None:
    done = send(made, place, tmp_path / "cache", Fault(kind, "*/commit/main", ALWAYS))

    assert done.commits == len((place.folder / ".commits.jsonl").read_text().splitlines()) == 2
    assert send(made, place, tmp_path / "cache").commits == 0


def test_a_commit_that_is_made_late_is_counted(
    place: Place, made: Artifact, tmp_path: Path, unloaded: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first try gets no answer; its commit is made just before the second try's."""
    real, calls = HfApi.create_commit, itertools.count()

    def late(api: HfApi, name: str, operations: list[Any], **options: Any) -> Any:
        call = next(calls)
        if call == 0:
            raise httpx2.ReadTimeout("late")
        if call == 1:
            real(api, name, operations, **options)
            for operation in operations:
                operation._is_committed = False
        return real(api, name, operations, **options)

    monkeypatch.setattr(HfApi, "create_commit", late)

    assert send(made, place, tmp_path / "cache").commits == 2
    assert len((place.folder / ".commits.jsonl").read_text().splitlines()) == 2


def test_nothing_is_asked_to_be_made_with_a_token_that_may_only_read(
    place: Place, made: Artifact, tmp_path: Path
) -> None:
    repo = place.repo(tmp_path / "cache", token="hf_read_only")

    with pytest.raises(RetryableError, match="HF_TOKEN: the token may only read"):
        publish(publication_of(made, repo), repo)

    assert {request.method for request in place.hub.requests} <= {"GET", "HEAD"}


def test_settings_of_the_client_are_restored(place: Place, made: Artifact, tmp_path: Path, unloaded: None) -> None:
    """Xet is off only for a hub on loopback, and only while it is written to.

    Such a hub has no Xet.
    """
    before = _http._GLOBAL_CLIENT_FACTORY

    send(made, place, tmp_path / "cache")

    assert place.sent() and check_whole(place.folder) == made.manifest.digest
    assert _http._GLOBAL_CLIENT_FACTORY is before and not constants.HF_HUB_DISABLE_XET
    assert (place.folder / ".gitattributes").exists()
