"""Files of a hub at a commit: listed, fetched by range, resumed and verified.

The hub is the project's own, on loopback; the client is the real one.
"""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from answer_faults import Fault, FaultKind
from faulty_hub import FaultyHub
from hub_dataset import BIG, CARD, DATASET, LARGE, NOWHERE, Published
from refusals import refusal

from pipeline_assets.corpus.readers.hub_cache import check_file_hash
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.readers.hub_listing import HubFile
from pipeline_assets.spine import durable
from pipeline_assets.spine.errors import UsageError


def test_traffic_counts_the_bytes_that_the_hub_sent(hub_files: HubFiles, commit: str, hub: FaultyHub) -> None:
    listing = hub_files.list_files(DATASET, commit)
    listed = hub_files.traffic.bytes

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda file: hub_files.fetch(DATASET, commit, file), [*listing, *listing]))

    assert listed > 0
    assert hub_files.traffic.bytes - listed == len(CARD) + len(LARGE)
    assert hub_files.traffic.bytes == sum(request.bytes_sent for request in hub.requests)


def test_a_listing_has_the_path_size_and_hash_of_each_file(hub_files: HubFiles, commit: str) -> None:
    assert hub_files.list_files(DATASET, commit) == [
        HubFile("README.md", 8, "git-sha1:28064c05f30a5b798a1d3674092ae9433c8b4d4f"),
        HubFile("data/empty.txt", 0, "git-sha1:e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"),
        HubFile("data/large.bin", 5_120_000, f"sha256:{hashlib.sha256(LARGE).hexdigest()}"),
    ]


def test_a_listing_of_many_pages_is_complete(publish: Callable[..., str], hub: FaultyHub, hub_files: HubFiles) -> None:
    hub.page_size = 7
    commit = publish({f"data/{number:03d}.txt": b"x" for number in range(30)})

    paths = [file.path for file in hub_files.list_files(DATASET, commit)]

    assert paths == [f"data/{number:03d}.txt" for number in range(30)]


@pytest.mark.parametrize("first", [0, 1])
def test_a_damaged_listing_is_fetched_until_two_are_equal(
    publish: Callable[..., str], hub: FaultyHub, hub_files: HubFiles, first: int
) -> None:
    commit = publish({f"data/{number}.txt": b"x" for number in range(4)})
    hub.inject(Fault(FaultKind.WRONG_BYTES, "/api/datasets/*/tree/*", 1, after=first))

    paths = [file.path for file in hub_files.list_files(DATASET, commit)]

    assert paths == [f"data/{number}.txt" for number in range(4)]


@pytest.mark.parametrize(
    ("path", "start", "stop", "content"),
    [
        ("README.md", 0, None, CARD),
        (BIG, 0, None, LARGE),
        ("data/empty.txt", 0, None, b""),
        ("README.md", 2, 7, b"Pages"),
        (BIG, 300, 303, b"\x2c\x2d\x2e"),
        (BIG, 5_119_999, 5_120_000, b"\xff"),
    ],
)
def test_only_the_bytes_of_a_range_are_sent(
    published: Published, path: str, start: int, stop: int | None, content: bytes
) -> None:
    span = published.fetch(path, start, stop)

    assert (span.start, span.stop) == (start, start + len(content))
    assert span.path.read_bytes() == content
    assert span.path.name == f"{start}-{span.stop}.{hashlib.sha256(content).hexdigest()}"
    assert published.body_bytes() == len(content)


def test_equal_bytes_at_another_commit_are_not_fetched_again(published: Published, publish: Callable[..., str]) -> None:
    published.fetch(BIG)
    newer = publish({"README.md": b"# Pages, second edition\n"})
    listing = {file.path: file for file in published.files.list_files(DATASET, newer)}

    published.files.fetch(DATASET, newer, listing["data/large.bin"])

    assert newer != published.commit
    assert published.body_bytes() == 5_120_000


@pytest.mark.parametrize(
    ("start", "stop", "kept"), [(0, 5_120_000, 1_500_000), (100, 2_000_100, 1_500_000), (0, 5_120_000, 5_120_000)]
)
def test_a_cut_download_resumes_where_it_stopped(published: Published, start: int, stop: int, kept: int) -> None:
    published.part(BIG, start, stop).write_bytes(LARGE[start : start + kept])

    span = published.fetch(BIG, start, stop)

    assert span.path.read_bytes() == LARGE[start:stop]
    assert published.body_bytes() == stop - start - kept
    assert published.cached() == [span.path]
    assert bool(published.hub.requests) is (kept < stop - start)


def test_a_partial_download_of_another_member_of_the_group_is_continued_in_a_copy(
    published: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other member's umask may forbid writing to the file itself."""
    partial = published.part(BIG, 100, 200)
    partial.write_bytes(LARGE[100:150])
    earlier = partial.stat().st_ino
    monkeypatch.setattr(os, "geteuid", lambda: 65534)

    span = published.fetch(BIG, 100, 200)

    assert span.path.read_bytes() == LARGE[100:200]
    assert span.path.stat().st_ino != earlier
    assert published.body_bytes() == 50


def test_group_of_a_shared_cache_can_read_downloads_made_with_umask_077(published: Published) -> None:
    published.part(BIG, 100, 200).parent.chmod(0o2775)
    before = os.umask(0o077)
    try:
        span = published.fetch(BIG, 100, 200)
    finally:
        os.umask(before)

    assert span.path.stat().st_mode & 0o777 == 0o640


def test_a_partial_download_from_before_a_reboot_is_not_used(
    published: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    published.part(BIG, 100, 200).write_bytes(b"\0" * 50)  # never synced: it may hold anything
    monkeypatch.setattr(durable, "boot_id", lambda: "the next")

    span = published.fetch(BIG, 100, 200)

    assert span.path.read_bytes() == LARGE[100:200]
    assert published.cached() == [span.path]


def test_a_damaged_partial_file_is_refused_and_removed_once(published: Published) -> None:
    published.part(BIG, 0, 5_120_000).write_bytes(b"\0" * 1_500_000)

    assert refusal(lambda: published.fetch(BIG)) == (
        f"maker/pages@{published.commit}:data/large.bin: downloaded bytes do not match "
        f"{published.listed[BIG].digest} of the listing; run again; if the error persists, the hub's copy is damaged"
    )
    assert published.cached() == []
    assert published.fetch(BIG).path.read_bytes() == LARGE


def test_damaged_bytes_in_the_cache_are_fetched_again(published: Published, caplog: pytest.LogCaptureFixture) -> None:
    span = published.fetch(BIG, 0, 1000)
    span.path.write_bytes(b"\0" * 1000)

    again = published.fetch(BIG, 0, 1000)

    assert again.path.read_bytes() == LARGE[:1000]
    assert [record.getMessage() for record in caplog.records if record.name == "corpusmill"] == [
        f"{span.path}: cached bytes are damaged; fetching them again"
    ]


@pytest.mark.parametrize("damage", [lambda kept: kept[:50], lambda kept: kept.replace(b"sha256:", b"sha256:../../")])
def test_a_damaged_cached_listing_is_fetched_again(
    hub_files: HubFiles, commit: str, damage: Callable[[bytes], bytes]
) -> None:
    listing = hub_files.list_files(DATASET, commit)
    cached_listing = next((hub_files.cache / "maker--pages" / "listings").iterdir())
    cached_listing.write_bytes(damage(cached_listing.read_bytes()))

    assert hub_files.list_files(DATASET, commit) == listing


def test_spans_that_do_not_form_the_listed_file_are_removed(published: Published) -> None:
    sound = [published.fetch(BIG, 0, 4_000_000), published.fetch(BIG, 4_000_000)]
    check_file_hash(published.listed[BIG], sound, "here")
    published.part(BIG, 0, 5_000_000).write_bytes(b"\0" * 10)
    damaged = [published.fetch(BIG, 0, 5_000_000), published.fetch(BIG, 5_000_000)]

    message = refusal(lambda: check_file_hash(published.listed[BIG], damaged, "here"))

    assert message.startswith("here: downloaded bytes do not match sha256:")
    assert published.cached() == sorted(span.path for span in sound)


def test_a_file_that_differs_from_its_listing_is_refused_before_its_download(published: Published) -> None:
    listed = HubFile("README.md", 9, "git-sha1:" + "0" * 40)

    served = published.listed["README.md"].digest.removeprefix("git-sha1:")
    assert refusal(lambda: published.files.fetch(DATASET, published.commit, listed)) == (
        f"maker/pages@{published.commit}:README.md: the hub has {served} of 8 bytes, "
        f"the listing has git-sha1:{'0' * 40} of 9 bytes; the file changed on the hub: pin a new commit"
    )
    assert published.body_bytes() == 0


def test_a_branch_resolves_to_its_current_commit(hub_files: HubFiles, commit: str, publish: Callable[..., str]) -> None:
    before = hub_files.resolve(DATASET)
    newer = publish({"README.md": b"# More pages\n"})

    assert before == commit
    assert hub_files.resolve(DATASET, "main") == newer != commit


@pytest.mark.parametrize("revision", ["main", "v1.0", "0123456", NOWHERE.upper(), f"{NOWHERE}\n", ""])
def test_a_listing_requires_a_commit(published: Published, revision: str) -> None:
    assert refusal(lambda: published.files.list_files(DATASET, revision)) == (
        f"maker/pages: {revision!r} is not a commit of 40 hex digits; run `corpusmill pin` to get the commit"
    )
    assert published.hub.requests == []


MODEL = "maker/tiny"


@pytest.fixture
def model(hub: FaultyHub) -> str:
    """Create a model and a dataset of the same name; return the model's commit."""
    for kind, content in (("models", b"{}"), ("datasets", b"[]")):
        folder = hub.folder / kind / MODEL
        folder.mkdir(parents=True)
        (folder / "config.json").write_bytes(content)
    (hub.folder / "models" / MODEL / "model.safetensors").write_bytes(LARGE)
    return hub.commits()[f"models/{MODEL}"]


def test_a_model_is_resolved_listed_and_fetched_like_a_dataset(hub_files: HubFiles, model: str) -> None:
    models = hub_files.for_models()

    listed = models.list_files(MODEL, models.resolve(MODEL))
    spans = [models.fetch(MODEL, model, file) for file in listed]

    assert models.resolve(MODEL) == model != hub_files.resolve(MODEL)
    assert listed == [
        HubFile("config.json", 2, "git-sha1:9e26dfeeb6e641a33dae4961196235bdb965b21b"),
        HubFile("model.safetensors", 5_120_000, f"sha256:{hashlib.sha256(LARGE).hexdigest()}"),
    ]
    assert [span.path.read_bytes() for span in spans] == [b"{}", LARGE]
    assert models.fetch(MODEL, model, listed[1], 300, 303).path.read_bytes() == b"\x2c\x2d\x2e"
    assert models.count_missing_bytes(MODEL, listed[1], 0, 5_120_000) == 0


def test_a_model_may_have_no_owner(hub: FaultyHub, hub_files: HubFiles) -> None:
    models = hub_files.for_models()

    with pytest.raises(UsageError):  # on loopback every model has one
        models.resolve("gpt2")

    assert [request.path for request in hub.requests] == ["/api/models/gpt2/revision/main"]
    assert models.listing_path("gpt2", NOWHERE) == models.cache / "models" / "gpt2" / "listings" / f"{NOWHERE}.json"


BAD_DATASETS = "./pages|../pages|pages|maker/pages/more|maker/|/pages|maker /pages|https://hf.co/maker/pages||a/b\n"
BAD_MODELS = "..|.|../..|maker/..|maker/tiny/more|maker/|/tiny||a b|a\n"


@pytest.mark.parametrize(
    ("kind", "names", "example"),
    [("dataset", BAD_DATASETS, "HuggingFaceFW/fineweb-edu"), ("model", BAD_MODELS, "unsloth/gpt-oss-120b")],
)
def test_an_invalid_name_is_refused_without_a_request(
    hub: FaultyHub, hub_files: HubFiles, kind: str, names: str, example: str
) -> None:
    files = hub_files.for_models() if kind == "model" else hub_files

    for name in names.split("|"):
        message = refusal(lambda name=name: files.resolve(name), UsageError)

        shown_name = name.replace("\n", "⏎") or "''"
        assert message == f"{shown_name}: not a {kind} name; write owner/name, such as {example}"
    assert hub.requests == []


FETCH = """
import json, sys
from pathlib import Path
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.readers.hub_listing import HubFile
cache, endpoint, commit, file = sys.argv[1:]
hub = HubFiles(Path(cache), endpoint, tries=2, wait_s=0.01)
sys.stdin.readline()
print(hub.fetch("maker/pages", commit, HubFile(**json.loads(file)), 0, 4_000_000).path)
"""


def test_two_processes_fetch_the_same_span_once(published: Published) -> None:
    file = json.dumps(vars(published.listed[BIG]))
    command = [sys.executable, "-c", FETCH, str(published.files.cache), published.hub.endpoint, published.commit, file]
    processes = [
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3]
        )
        for _ in range(2)
    ]

    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    outputs = [process.communicate(timeout=60)[0].strip() for process in processes]

    assert outputs[0] == outputs[1]
    assert Path(outputs[0]).read_bytes() == LARGE[:4_000_000]
    assert published.body_bytes() == 4_000_000
