"""Calls to a hub: retries while it is busy, and errors with advice.

The hub is the project's own, on loopback; the client is the real one.
"""

import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from fault_cases import ProxiedHub
from faulty_hub import FaultyHub
from hub_dataset import CARD, DATASET, LARGE, NOWHERE, Published
from refusals import refusal

from pipeline_assets.build.run import open_hub
from pipeline_assets.commands.inputs import open_interactive_hub
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.readers.hub_listing import HubFile
from pipeline_assets.demo.loopback_http import json_response
from pipeline_assets.spine.errors import InputError, RetryableError, TransientError, UsageError


def test_a_missing_commit_or_file_is_reported_with_advice(published: Published, publish: Callable[..., str]) -> None:
    missing = HubFile("data/gone.bin", 1, f"sha256:{'0' * 64}")
    file_error = refusal(lambda: published.files.fetch(DATASET, published.commit, missing))
    commit_error = refusal(lambda: published.files.list_files(DATASET, NOWHERE), UsageError)
    publish({"data/large.bin": LARGE + b"more"})
    moved_error = refusal(lambda: published.fetch("data/large.bin"), UsageError)

    where = f"maker/pages on {published.hub.endpoint}"
    fix = "run `corpusmill pin maker/pages` to get the latest commit, with --recipe NAME to update a recipe"
    assert file_error == f"{where}: file not found at the commit; delete the cached listing, or pin a new commit"
    assert commit_error == f"{where}: revision {NOWHERE} not found; {fix}"
    assert moved_error == f"{where}: revision {published.commit} not found; {fix}"


def test_a_gated_dataset_names_its_terms_and_a_token_opens_it(hub: FaultyHub, hub_files: HubFiles, commit: str) -> None:
    (hub.folder / "datasets" / DATASET / ".gated").touch()

    assert refusal(lambda: hub_files.list_files(DATASET, commit)) == (
        f"maker/pages on {hub.endpoint}: the dataset is gated; "
        f"accept the terms on {hub.endpoint}/datasets/maker/pages, then set HF_TOKEN to your token"
    )
    with_token = replace(hub_files, token="hf_any")
    files = {file.path: file for file in with_token.list_files(DATASET, commit)}
    assert with_token.fetch(DATASET, commit, files["README.md"]).path.read_bytes() == CARD
    assert with_token.fetch(DATASET, commit, files["data/large.bin"]).path.read_bytes() == LARGE


def test_errors_about_a_model_name_the_model(hub: FaultyHub, hub_files: HubFiles) -> None:
    folder = hub.folder / "models" / "maker" / "tiny"
    folder.mkdir(parents=True)
    models, where = hub_files.for_models(), f"maker/tiny on {hub.endpoint}"

    unknown = refusal(lambda: models.resolve("maker/none"), UsageError)
    no_commit = refusal(lambda: models.list_files("maker/tiny", NOWHERE), UsageError)
    (folder / ".gated").touch()
    gated = refusal(lambda: models.list_files("maker/tiny", NOWHERE), RetryableError)

    assert f"maker/none on {hub.endpoint}: model not found or private (HTTP 401);" in unknown
    head = "run `corpusmill pin maker/tiny --model` to get the latest commit"
    assert no_commit == f"{where}: revision {NOWHERE} not found; {head}"
    assert f"{where}: the model is gated; accept the terms" in gated


@pytest.mark.parametrize("token", [None, "hf_any"])
def test_unknown_and_private_datasets_have_the_same_error(
    hub: FaultyHub, hub_files: HubFiles, commit: str, token: str | None
) -> None:
    (hub.folder / "datasets" / DATASET / ".private").touch()
    client = replace(hub_files, token=token)
    name, status = (DATASET, 401) if token is None else ("maker/none", 404)

    assert refusal(lambda: client.list_files(name, NOWHERE), UsageError) == (
        f"{name} on {hub.endpoint}: dataset not found or private (HTTP {status}); "
        "check the name; if it is private, set HF_TOKEN to a token with read access"
    )


@pytest.fixture
def busy_hub(hub: FaultyHub) -> Iterator[ProxiedHub]:
    """Serve the files of `hub` through a proxy that can be busy at first."""
    with ProxiedHub(hub.folder) as proxied:
        yield proxied


@pytest.mark.parametrize(
    ("status", "headers", "wait_s", "text"),
    [
        (503, {}, 0.01, "HTTP 503; attempt 2 of 2 in 0.0 s"),
        (429, {"Retry-After": "0"}, 30, "rate limited; attempt 2 of 2 in 0.0 s"),
    ],
)
def test_a_listing_of_a_busy_hub_is_retried(
    busy_hub: ProxiedHub,
    tmp_path: Path,
    commit: str,
    caplog: pytest.LogCaptureFixture,
    status: int,
    headers: dict[str, str],
    wait_s: float,
    text: str,
) -> None:
    busy_hub.first = [json_response({"error": "busy"}, status, headers)]

    files = HubFiles(tmp_path / "cache", busy_hub.endpoint, tries=2, wait_s=wait_s).list_files(DATASET, commit)

    assert [file.path for file in files] == ["README.md", "data/empty.txt", "data/large.bin"]
    assert [record.getMessage() for record in caplog.records if record.name == "corpusmill"] == [f"maker/pages: {text}"]
    assert [request.status for request in busy_hub.requests] == [status, 200, 200]  # two equal listings


def test_waits_double_up_to_a_minute_with_random_variation(
    busy_hub: ProxiedHub, tmp_path: Path, commit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    monkeypatch.setattr("pipeline_assets.corpus.readers.hub_http.time.sleep", waits.append)
    monkeypatch.setattr("pipeline_assets.corpus.readers.hub_http.random.uniform", lambda least, most: least + most)
    busy_hub.first = [json_response({"error": "busy"}, 503)] * 5

    HubFiles(tmp_path / "cache", busy_hub.endpoint, tries=6, wait_s=5).list_files(DATASET, commit)

    assert [wait for wait in waits if wait >= 1] == [10, 20, 40, 80, 120]  # of 5, 10, 20, 40, 60, times 0.75 + 1.25


def test_a_token_outside_ascii_is_refused_without_its_text(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as error:
        HubFiles(tmp_path / "cache", "http://127.0.0.1:9", token="hf_s3crét").resolve(DATASET)

    assert str(error.value) == (
        "HF_TOKEN: the token contains characters outside ASCII; "
        "set it, or the token file of `hf auth login`, to a valid token"
    )


@pytest.mark.parametrize("status", [401, 404])
def test_an_unexplained_refusal_is_retryable(status: int, busy_hub: ProxiedHub, tmp_path: Path, commit: str) -> None:
    busy_hub.first = [json_response({"error": "not here"}, status)]

    with pytest.raises(RetryableError, match=rf"not found or private \(HTTP {status}\)"):
        HubFiles(tmp_path / "cache", busy_hub.endpoint, token="hf_old").list_files(DATASET, commit)


@pytest.mark.parametrize(
    "call", [lambda hub: hub.resolve(DATASET), lambda hub: hub.list_files(DATASET, NOWHERE)], ids=["resolve", "list"]
)
def test_without_network_the_error_names_the_address_but_not_the_token(
    call: Callable[[HubFiles], object], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{closed.getsockname()[1]}"
        hub_files = HubFiles(tmp_path / "cache", endpoint, token="hf_secret", tries=2, wait_s=0.01)

        with pytest.raises(InputError) as error:
            call(hub_files)

    assert error.value.where == endpoint
    assert error.value.what.startswith("maker/pages cannot be reached (ConnectError: ")
    assert error.value.fix == "check the network and HF_ENDPOINT, then run the same command again"
    assert caplog.text.count("; attempt 2 of 2 in 0.0 s") == 1
    assert "hf_secret" not in caplog.text + str(error.value)


def test_a_silent_hub_fails_after_two_short_attempts(tmp_path: Path) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        hub = HubFiles(tmp_path / "cache", endpoint, tries=2, wait_s=0.01, timeout_s=0.1)

        with pytest.raises(TransientError, match="ReadTimeout: timed out"):
            hub.resolve(DATASET)


def test_an_interactive_hub_makes_two_attempts_unless_configured(tmp_path: Path) -> None:
    hub, configured = (open_interactive_hub(tmp_path, settings) for settings in ({}, {"CORPUSMILL_HUB_TRIES": "6"}))

    assert (hub.tries, hub.timeout_s) == (2, 10.0)
    assert configured == open_hub(tmp_path, {}) == HubFiles(tmp_path / "hub_cache", tries=6)
