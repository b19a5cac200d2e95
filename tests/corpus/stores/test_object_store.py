"""Object stores of three providers: puts, reads and races.

The peer is the store of the tests, whose puts are atomic for each key. moto gives a second opinion on S3's protocol.
"""

import os
import random
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from object_server import SECRET, Fault, Kind, ObjectServer, serving
from store_objects import KEY, write_upload

from pipeline_assets.corpus.stores.object_store import ObjectStore, Pointer
from pipeline_assets.spine.errors import DeniedError, InputError, TransientError, UsageError

pytest.importorskip("obstore", reason="obstore is not installed")
PROVIDERS = ("s3", "gs", "az", "file")


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectServer]:
    with serving(tmp_path, monkeypatch) as running:
        yield running


@pytest.fixture(params=PROVIDERS)
def store(request: pytest.FixtureRequest, server: ObjectServer, tmp_path: Path) -> ObjectStore:
    (tmp_path / "mirror").mkdir()
    return ObjectStore.open(f"file://{tmp_path}/mirror" if request.param == "file" else f"{request.param}://bucket/a/b")


@pytest.fixture
def s3(server: ObjectServer) -> ObjectStore:
    return ObjectStore.open("s3://bucket/a/b")


def test_a_refused_listing_names_the_credentials(s3: ObjectStore, server: ObjectServer) -> None:
    server.faults = [Fault("403")]

    with pytest.raises(
        DeniedError, match=r"the store refuses access \(HTTP 403\); check the permissions, and the cred"
    ):
        s3.list_objects()


def test_answers_that_are_longer_than_requested_or_never_end_are_refused(s3: ObjectStore, server: ObjectServer) -> None:
    s3.replace(KEY, b"12345", None)
    server.faults = [Fault("long"), Fault("same page", count=9)]

    with pytest.raises(InputError, match="the response is longer than 3 bytes; check the server at"):
        s3.read(KEY, 0, 3)
    with pytest.raises(InputError, match=f"the listing repeats '{KEY}', or has more than 10,000,000 objects; check"):
        s3.list_objects()


@pytest.mark.parametrize(
    "size",
    [0, 1, pytest.param(20_000_000, marks=pytest.mark.slow)],
    ids=["empty", "one byte", "several parts"],
)
def test_uploads_are_read_whole_and_in_parts_and_sent_once(store: ObjectStore, tmp_path: Path, size: int) -> None:
    data = random.Random(size).randbytes(size)
    file = write_upload(data, tmp_path)

    assert store.put([file]) == size
    assert store.put([file]) == 0

    stored = store.read_pointer(file.path)
    assert stored is not None
    assert stored.content == data
    assert store.list_keys("objects") == [file.path]
    assert store.read(file.path, size, 10) == b""
    if size > 1:
        assert store.read(file.path, 3, 9_000_000) == data[3:9_000_003]
        assert store.read(file.path, size - 5, 100) == data[-5:]


def test_missing_objects_have_no_bytes_pointer_or_name(store: ObjectStore) -> None:
    assert store.read("objects/aa/none", 0, 10) == b""
    assert store.read_pointer(KEY) is None
    assert store.list_keys("refs") == []


@pytest.mark.parametrize("size", [1, 20_000_000], ids=["one byte", "several parts"])
def test_a_file_that_differs_from_its_sha256_is_never_stored(store: ObjectStore, tmp_path: Path, size: int) -> None:
    file = write_upload(bytes(size), tmp_path)
    assert isinstance(file.source, Path)
    file.source.write_bytes(bytes(size - 1) + b"x")

    with pytest.raises(InputError, match=f"{file.source}: sha256 is .*, sealed with {file.sha256}; run `corpusmill"):
        store.put([file])

    assert store.list_keys("objects") == []


def test_a_pointer_is_replaced_only_if_it_is_unchanged(store: ObjectStore) -> None:
    store.prepare_writes()

    assert store.replace(KEY, b"first", None)
    assert not store.replace(KEY, b"late", None)
    first = store.read_pointer(KEY)
    assert store.replace(KEY, b"second", first)
    assert not store.replace(KEY, b"late", first)

    second = store.read_pointer(KEY)
    assert second is not None and second.content == b"second"
    assert store.list_keys("refs") == [KEY]


def test_a_removed_pointer_is_not_replaced(s3: ObjectStore, server: ObjectServer) -> None:
    s3.replace(KEY, b"first", None)
    first = s3.read_pointer(KEY)
    server.objects.clear()

    assert not s3.replace(KEY, b"second", first)


@pytest.mark.parametrize("kind", ["503", "409", "slow", "lost answer"])
@pytest.mark.parametrize("is_update", [False, True], ids=["create", "update"])
def test_puts_outlast_a_fault_and_win_once(s3: ObjectStore, server: ObjectServer, kind: Kind, is_update: bool) -> None:
    """Recognize the own object after a lost answer."""
    if is_update:
        s3.replace(KEY, b"before", None)
    before = s3.read_pointer(KEY)
    server.faults = [Fault(kind, "PUT", KEY)]

    assert s3.replace(KEY, b"mine", before)

    assert server.met[kind] == 1
    assert server.objects[f"a/b/{KEY}"].data == b"mine"
    assert not s3.replace(KEY, b"other", before)


def test_a_lost_answer_does_not_hide_that_another_put_won(s3: ObjectStore, server: ObjectServer) -> None:
    s3.replace(KEY, b"other", None)
    server.faults = [Fault("409", "PUT", KEY, 3)]

    assert not s3.replace(KEY, b"mine", None)


def test_a_conflict_of_an_object_or_of_the_probe_is_retried(
    s3: ObjectStore, server: ObjectServer, tmp_path: Path
) -> None:
    """Several pushes into an empty store write the probe at once."""
    server.faults = [Fault("409", "PUT", "probe"), Fault("409", "PUT", "objects", count=2)]

    s3.prepare_writes()

    assert s3.put([write_upload(b"bytes", tmp_path)]) == 5
    assert server.met["409"] == 3


@pytest.mark.slow
def test_a_store_that_always_answers_409_is_an_error(s3: ObjectStore, server: ObjectServer) -> None:
    server.faults = [Fault("409", "PUT", KEY, 1000)]

    with pytest.raises(TransientError, match=r"refused 8 conditional writes \(HTTP 409\); run the same command again"):
        s3.replace(KEY, b"mine", None)


def test_a_truncated_body_is_read_again(s3: ObjectStore, server: ObjectServer, tmp_path: Path) -> None:
    file = write_upload(bytes(range(256)) * 100, tmp_path)
    s3.put([file])
    server.faults = [Fault("cut", "GET", count=2)]

    assert s3.read(file.path, 0, file.size) == bytes(range(256)) * 100
    assert server.met["cut"] == 2


@pytest.mark.parametrize("kind", [pytest.param("501", marks=pytest.mark.slow), "unconditional"])
def test_a_store_without_conditional_writes_is_named_before_an_upload(
    s3: ObjectStore, server: ObjectServer, kind: Kind
) -> None:
    problem = {
        "501": r"s3://bucket/a/b/probe: the store does not support this request \(HTTP 501\)",
        "unconditional": "s3://bucket/a/b: the store ignores the conditions of writes",
    }
    server.faults = [Fault(kind, "PUT", count=1000)]

    with pytest.raises(UsageError, match=f"{problem[kind]}; push to S3, GCS, Azure"):
        s3.prepare_writes()


def test_without_an_azure_account_its_variables_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)

    with pytest.raises(UsageError, match=r"az://c/x: .*; correct the URL, or set AZURE_STORAGE_ACCOUNT_NAME and AZURE"):
        ObjectStore.open("az://c/x")


def test_a_missing_bucket_and_a_missing_folder_are_named(server: ObjectServer, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="s3://other/a: bucket or container not found; create it"):
        ObjectStore.open("s3://other/a").prepare_writes()
    with pytest.raises(UsageError, match=f"{tmp_path}/none: folder not found; create it"):
        ObjectStore.open(f"file://{tmp_path}/none")


@pytest.mark.parametrize("name", ["w\\v", "me@x", "a b", "p%41", "[z]"])
def test_a_folder_of_any_name_is_read_from_the_path_it_was_written_to(name: str, tmp_path: Path) -> None:
    folder = tmp_path / name
    for other in (folder, tmp_path / "w" / "v", tmp_path / "pA"):
        other.mkdir(parents=True)
    store = ObjectStore.open(f"file://{tmp_path}/{name.replace('%', '%25')}")

    assert store.replace("refs/x.json", b"{}", None)
    pointer = store.read_pointer("refs/x.json")

    assert pointer is not None and pointer.content == b"{}"
    assert (folder / "refs" / "x.json").read_bytes() == b"{}" and store.list_keys("refs") == ["refs/x.json"]


@pytest.mark.parametrize("form", ["s3://bucket/notes#2", "file://{folder}#2"])
def test_a_url_with_a_number_sign_is_not_read_as_another_store(form: str, server: ObjectServer, tmp_path: Path) -> None:
    url = form.format(folder=tmp_path)

    with pytest.raises(UsageError, match=f"{url}: the URL contains #; write %23 in its place"):
        ObjectStore.open(url)


def test_without_obstore_the_error_has_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore.store", None)

    with pytest.raises(UsageError, match=r"objects: obstore.store is not installed; .*pip install .*\[objects\]"):
        ObjectStore.open("s3://bucket/a")


@pytest.mark.slow
def test_a_store_that_is_down_is_named_without_credentials(s3: ObjectStore, server: ObjectServer) -> None:
    server.faults = [Fault("503", count=1000)]

    with pytest.raises(TransientError) as failure:
        s3.read_pointer(KEY)

    line = f"s3://bucket/a/b/{KEY}: the request failed (HTTP 503); run the same command again to resume"
    assert str(failure.value) == line


@pytest.mark.slow
def test_a_signature_in_an_address_is_not_in_the_message(
    server: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Azure's signatures are in query strings, which errors of the client contain."""
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_KEY")
    monkeypatch.setenv("AZURE_STORAGE_SAS_KEY", f"sv=2023-11-03&sig={SECRET}")
    store = ObjectStore.open("az://bucket/a")
    server.__exit__()

    with pytest.raises(TransientError) as failure:
        store.read_pointer(KEY)

    assert "sig=" not in str(failure.value)
    assert SECRET not in str(failure.value)


@pytest.mark.slow
def test_a_password_in_an_endpoint_is_not_in_the_message(server: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", os.environ["AWS_ENDPOINT_URL"].replace("://", f"://user:{SECRET}@"))
    store = ObjectStore.open("s3://bucket/a")
    server.__exit__()

    with pytest.raises(TransientError, match=r"http://127\.0\.0\.1:") as failure:
        store.read_pointer(KEY)

    assert SECRET not in str(failure.value)


@pytest.mark.parametrize("name", ["AWS_ACCESS_KEY_ID", "AWS_SESSION_TOKEN"])
def test_a_key_with_a_newline_is_refused_without_its_text(
    name: str, s3: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, f"{SECRET}\n")

    with pytest.raises(UsageError) as failure:
        ObjectStore.open(s3.url)

    assert str(failure.value) == f"{name}: must be printable ASCII, without a newline; correct or unset it"


def assert_one_writer_wins(store: ObjectStore, key: str, dice: random.Random, server: ObjectServer | None) -> None:
    """Replace one state of a pointer by several writers at once."""
    if dice.random() < 0.5:
        assert store.replace(key, b"before", None)
    before = store.read_pointer(key)
    writers = range(dice.randint(2, 4))
    if server is not None:
        kinds: list[Kind] = ["409", "503", "lost answer", "slow"]
        server.faults = [Fault(dice.choice(kinds), "PUT", key) for _ in range(dice.choice([0, 0, 0, 1, 2]))]
    start = threading.Barrier(len(writers))

    def write(writer: int) -> bool:
        start.wait()
        return store.replace(key, b"%d" % writer, before)

    with ThreadPoolExecutor(len(writers)) as pool:
        winning = [writer for writer, has_won in zip(writers, pool.map(write, writers), strict=True) if has_won]
    current = store.read_pointer(key)
    assert isinstance(current, Pointer)
    assert [b"%d" % writer for writer in winning] == [current.content]


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize(
    "races", [5, pytest.param(300, marks=pytest.mark.slow), pytest.param(2500, marks=pytest.mark.proof)]
)
def test_of_several_writers_one_wins(provider: str, races: int, server: ObjectServer, tmp_path: Path) -> None:
    (tmp_path / "mirror").mkdir()
    store = ObjectStore.open(f"file://{tmp_path}/mirror" if provider == "file" else f"{provider}://bucket/a/b")
    dice = random.Random(f"{provider} {races}")

    for number in range(races):
        assert_one_writer_wins(store, f"refs/{number}.json", dice, server if provider == "s3" else None)


@pytest.mark.slow
def test_moto_agrees_on_conditional_puts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write in turn, since moto does not decide races."""
    server = pytest.importorskip("moto.server", reason="moto is not installed").ThreadedMotoServer(port=0)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "any")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "any")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    server.start()
    try:
        host, port = server.get_host_and_port()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        boto3 = pytest.importorskip("boto3", reason="boto3 is not installed")
        boto3.client("s3", endpoint_url=f"http://{host}:{port}").create_bucket(Bucket="bucket")
        store = ObjectStore.open("s3://bucket/a/b")
        file = write_upload(random.Random(1).randbytes(9_000_000), tmp_path)
        test_a_pointer_is_replaced_only_if_it_is_unchanged(store)
        assert (store.put([file]), store.put([file])) == (file.size, 0)
        assert isinstance(file.source, Path)
        assert store.read(file.path, 8_000_000, 9_000_000) == file.source.read_bytes()[8_000_000:]
    finally:
        server.stop()
