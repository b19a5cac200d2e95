"""Stores on a hub, in datasets and buckets."""

import random
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from answer_faults import Fault, FaultKind
from bucket_hub import BucketHub
from huggingface_hub import HfApi, constants
from store_objects import KEY, write_upload

from pipeline_assets.corpus.publishing.hub_repo import HubRepo, UploadFile
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.stores.hub_store import HubStore
from pipeline_assets.corpus.stores.object_store import Pointer
from pipeline_assets.spine.errors import RetryableError, UsageError

TOKEN, NAME = "hf_any", "loopback/store"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BucketHub]:
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_TELEMETRY", True)
    (tmp_path / "hub/datasets").mkdir(parents=True)
    with BucketHub(tmp_path / "hub", writable=True, token=TOKEN) as running:
        yield running


def open_store(hub: BucketHub, cache: Path, token: str | None = TOKEN, is_bucket: bool = False) -> HubStore:
    files = HubFiles(cache, endpoint=hub.endpoint, tries=3, wait_s=0.01)
    kind = "buckets" if is_bucket else "datasets"
    return HubStore(f"hf://{kind}/{NAME}/a", HubRepo.open(NAME, files, token), "a/", is_bucket)


@pytest.fixture
def store(hub: BucketHub, tmp_path: Path) -> HubStore:
    store = open_store(hub, tmp_path / "cache")
    store.prepare_writes()
    return store


def test_a_missing_dataset_is_created_as_private(hub: BucketHub, store: HubStore) -> None:
    assert store.repo.access_settings() == {"private": True, "gated": False}


def test_uploaded_files_are_read_whole_and_in_parts_and_sent_once(store: HubStore, tmp_path: Path) -> None:
    """A large file is in the hub's LFS storage, a small one in the repository."""
    large, small = (random.Random(size).randbytes(size) for size in (1_500_000, 200))
    files = [write_upload(data, tmp_path) for data in (large, small)]

    assert store.put(files) == 1_500_200
    assert store.put(files) == 0

    assert store.read(files[0].path, 1_000_000, 10) == large[1_000_000:1_000_010]
    assert store.read(files[1].path, 190, 100) == small[190:]
    assert store.read(files[1].path, 200, 100) == b""
    assert store.list_keys("objects") == sorted(file.path for file in files)


def test_missing_objects_have_no_bytes_pointer_or_name(store: HubStore) -> None:
    assert store.read("objects/aa/none", 0, 10) == b""
    assert store.read_pointer(KEY) is None
    assert store.list_keys("refs") == []


def test_a_pointer_is_replaced_only_if_it_is_unchanged(store: HubStore) -> None:
    assert store.replace(KEY, b"first", None)
    assert not store.replace(KEY, b"late", None)
    first = store.read_pointer(KEY)
    assert store.replace(KEY, b"second", first)
    assert not store.replace(KEY, b"late", first)

    assert store.read_pointer(KEY) == Pointer(b"second")
    assert store.list_keys("refs") == [KEY]


@pytest.mark.parametrize("kind", [FaultKind.BUSY, FaultKind.CUT])
def test_after_a_lost_answer_the_commit_is_found(hub: BucketHub, store: HubStore, kind: FaultKind) -> None:
    """A fault disturbs the answer; the commit is made."""
    hub.inject(Fault(kind, "*/commit/main"))

    assert store.replace(KEY, b"mine", None)

    assert store.read_pointer(KEY) == Pointer(b"mine")


def test_commits_to_other_files_do_not_prevent_a_replacement(
    hub: BucketHub, store: HubStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commit another file after the head is read, before the pointer is committed."""
    commit = HfApi.create_commit

    def commit_after_another(api: HfApi, *arguments: object, **options: object) -> object:
        monkeypatch.setattr(HfApi, "create_commit", commit)
        open_store(hub, tmp_path / "other").put([UploadFile.from_bytes("notes.txt", b"other")])
        return commit(api, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(HfApi, "create_commit", commit_after_another)

    assert store.replace(KEY, b"mine", None)
    assert store.read_pointer(KEY) == Pointer(b"mine")


@pytest.mark.parametrize("races", [2, pytest.param(100, marks=pytest.mark.slow)])
def test_of_several_writers_one_wins(store: HubStore, races: int) -> None:
    for number in range(races):
        before, key = store.read_pointer(KEY), KEY

        def write(data: bytes, key: str = key, before: Pointer | None = before) -> bool:
            return store.replace(key, data, before)

        contents = [b"%d-%d" % (number, writer) for writer in range(3)]
        with store.repo.limit_requests(), ThreadPoolExecutor(3) as pool:
            winning = [data for data, has_won in zip(contents, pool.map(write, contents), strict=True) if has_won]

        assert [Pointer(data) for data in winning] == [store.read_pointer(KEY)]


def test_a_bucket_is_read_and_never_written(hub: BucketHub, store: HubStore, tmp_path: Path) -> None:
    data = random.Random(1).randbytes(1_500_000)
    file = write_upload(data, tmp_path)
    store.put([file])
    store.replace(KEY, b"pointer", None)
    bucket = open_store(hub, tmp_path / "other", token=None, is_bucket=True)
    (hub.folder / "datasets" / NAME / ".private").unlink()

    assert bucket.read(file.path, 10, 100) == data[10:110]
    assert bucket.read_pointer(KEY) == Pointer(b"pointer")
    assert bucket.list_keys("refs") == [KEY]
    assert bucket.list_keys("none") == []
    with pytest.raises(
        UsageError, match="hf://buckets/loopback/store/a: a hub bucket has no conditional writes, so it"
    ):
        bucket.prepare_writes()


def test_writes_need_a_token(hub: BucketHub, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="HF_TOKEN: no token is set"):
        open_store(hub, tmp_path / "cache", token=None).prepare_writes()


def test_a_read_only_token_is_refused_before_an_upload(hub: BucketHub, store: HubStore, tmp_path: Path) -> None:
    with pytest.raises(RetryableError, match="HF_TOKEN: the token is read-only; set it to a token with write access"):
        open_store(hub, tmp_path / "other", token="hf_read_only").prepare_writes()


def test_a_head_that_keeps_moving_is_an_error(
    hub: BucketHub, store: HubStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, numbers = HfApi.create_commit, iter(range(100))

    def commit_after_another(api: HfApi, *arguments: object, **options: object) -> object:
        (hub.folder / "datasets" / NAME / f"{next(numbers)}.txt").write_text("x")
        return commit(api, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(HfApi, "create_commit", commit_after_another)

    with pytest.raises(RetryableError, match="other commits moved the head 8 times; run the same command again when"):
        store.replace(KEY, b"mine", None)
    shutil.rmtree(hub.folder)
