"""The commands `push` and `pull` as a user types them."""

import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from bucket_hub import BucketHub
from command_results import Corpusmill, Started, only_line, refused
from object_server import SECRET, Fault, ObjectServer

pytest.importorskip("obstore", reason="obstore is not installed")
SET = "megatron/healing_text_v1"
TRAIN = f"{SET}/train"
STORE = "s3://bucket/corpora"


@pytest.fixture
def server() -> Iterator[ObjectServer]:
    with ObjectServer() as running:
        yield running


@pytest.fixture
def store(server: ObjectServer, tmp_path: Path) -> dict[str, str]:
    """Return the variables with which a command reaches the server."""
    return server.environment(tmp_path)


def digest_of(folder: Path) -> str:
    return str(json.loads((folder / "manifest.json").read_text())["digest"])


def test_a_set_is_pushed_pulled_verified_traced_and_current(
    corpusmill: Corpusmill, demo_root: Path, tmp_path: Path, store: dict[str, str]
) -> None:
    elsewhere, digest = tmp_path / "elsewhere", digest_of(demo_root / SET)

    pushed = corpusmill("push", demo_root / SET, STORE, "--upstream", env=store)
    again = corpusmill("push", demo_root / SET, STORE, "--upstream", env=store)
    pulled = corpusmill("pull", STORE, elsewhere / SET, "--upstream", env=store)
    shutil.copytree(demo_root / "recipes", elsewhere / "recipes")
    status = corpusmill("status", "healing_text_v1", "--data", elsewhere)

    rest = "the rest is in the store, compared by name and size"
    size = pushed.stdout.split(" sent of ")[1].split(" in ")[0]
    assert pushed.stdout == f"{SET}: {digest} (new), {size} sent of {size} in 5 artifacts\n"
    assert again.stdout == f"{SET}: {digest} (unchanged), 0 bytes sent of {size} in 5 artifacts; {rest}\n"
    assert pulled.stdout.startswith(f"{elsewhere / SET}: {digest} of {SET}, ")
    assert pulled.stdout.endswith(" pulled in 5 artifacts\n")
    assert [result.stderr for result in (pushed, again, pulled)] == ["", "", ""]
    assert [line.split()[0] for line in status.stdout.splitlines()[1:]] == ["current"] * 5
    for words in (
        ["verify", elsewhere / SET],
        ["peek", elsewhere / TRAIN],
        ["trace", elsewhere / TRAIN, "--token", "10"],
    ):
        answer = corpusmill(*words)
        assert (answer.returncode, answer.stderr) == (0, "")
    assert corpusmill("run", "healing_text_v1", "--data", elsewhere).stdout.count("built") == 0


def test_a_folder_outside_the_data_root_is_one_line_and_a_link_into_it_is_followed(
    corpusmill: Corpusmill, demo_root: Path, tmp_path: Path, store: dict[str, str]
) -> None:
    shutil.copytree(demo_root / TRAIN, tmp_path / "copy")
    (tmp_path / "link").symlink_to(demo_root)

    outside = corpusmill("push", tmp_path / "copy", STORE, "--data", demo_root, env=store)
    linked = corpusmill("push", tmp_path / "link" / TRAIN, STORE, "--data", demo_root, env=store)

    fix = "push it from its data root, which --data sets"
    assert refused(outside) == f"{tmp_path / 'copy'}: the artifact is not inside the data root {demo_root}; {fix}"
    assert linked.stdout.startswith(f"{TRAIN}: {digest_of(demo_root / TRAIN)} (new), ")


def test_a_copy_without_a_name_is_the_only_one_and_several_are_listed(
    corpusmill: Corpusmill, demo_root: Path, tmp_path: Path, store: dict[str, str]
) -> None:
    corpusmill("push", demo_root / TRAIN, STORE, env=store)
    only = corpusmill("pull", STORE, tmp_path / "any", env=store)
    corpusmill("push", demo_root / SET / "valid", STORE, env=store)

    several = corpusmill("pull", STORE, tmp_path / "other", env=store)
    named = corpusmill("pull", STORE, tmp_path / "other", "--ref", f"{SET}/valid", env=store)

    assert only.stdout.startswith(f"{tmp_path / 'any'}: {digest_of(demo_root / TRAIN)} of {TRAIN}, ")
    names = f"{TRAIN}, {SET}/valid"
    assert refused(several) == f"{STORE}: the store has 2 artifacts: {names}; pass one of the names with --ref"
    assert named.stdout.startswith(f"{tmp_path / 'other'}: {digest_of(demo_root / SET / 'valid')} of {SET}/valid, ")


@pytest.mark.slow
def test_a_hub_dataset_is_a_store_and_buckets_are_read(corpusmill: Corpusmill, demo_root: Path, tmp_path: Path) -> None:
    (tmp_path / "hub/datasets").mkdir(parents=True)
    with BucketHub(tmp_path / "hub", writable=True, token="hf_any") as hub:
        online = {"HF_ENDPOINT": hub.endpoint, "HF_TOKEN": "hf_any", "HF_HUB_DISABLE_TELEMETRY": "1"}
        pushed = corpusmill("push", demo_root / TRAIN, "hf://datasets/loopback/mill/v1", env=online)
        again = corpusmill("push", demo_root / TRAIN, "hf://datasets/loopback/mill/v1", env=online)
        pulled = [
            corpusmill("pull", f"hf://{kind}/loopback/mill/v1", tmp_path / kind / TRAIN, env=online)
            for kind in ("datasets", "buckets")
        ]

    digest = digest_of(demo_root / TRAIN)
    assert pushed.stdout.startswith(f"{TRAIN}: {digest} (new), "), pushed.stderr
    assert again.stdout.startswith(f"{TRAIN}: {digest} (unchanged), 0 bytes sent"), again.stderr
    assert [(answer.returncode, answer.stderr) for answer in pulled] == [(0, ""), (0, "")]
    for kind in ("datasets", "buckets"):
        assert corpusmill("verify", tmp_path / kind / TRAIN).stdout.splitlines()[-1] == digest


@pytest.mark.parametrize(
    ("words", "status", "line"),
    [
        (
            "push {set} {url}/x?sig={secret}",
            2,
            "STORE: the URL must not contain credentials or options; set them in the ",
        ),
        (
            "push {set} s3://key:{secret}@bucket",
            2,
            "STORE: the URL must not contain credentials or options; set them in",
        ),
        (
            "push {set} ftp://bucket/x",
            2,
            "ftp://bucket/x: not the URL of a store; write s3://BUCKET/PREFIX, gs://…, az://",
        ),
        (
            "push {set} mirror",
            2,
            "mirror: not the URL of a store; write s3://BUCKET/PREFIX, gs://…, az://CONTAINER/PREF",
        ),
        ("push {set} s3://", 2, "s3://: not the URL of a store; write s3://BUCKET/PREFIX, gs"),
        ("push {set} file:///", 2, "file:///: not the URL of a store; write s3://BUCKET/PREF"),
        ("push {set} file://{set}/tokens.bin", 2, "{set}/tokens.bin: expected a folder, got a file; correct the URL"),
        ("pull s3://other/x {here}/x", 2, "s3://other/x: bucket or container not found; create it, or correct the URL"),
        (
            "pull {url} {here}/x --data {here}/new",
            2,
            "{here}/x: the folder is not inside the data root {here}/new; choose one inside, or omit --data",
        ),
        ("push {set} s3://other/x", 2, "s3://other/x: bucket or container not found; create it, or correct the URL"),
        ("push {set} file://{set}", 2, "{set}: the folder is in the sealed artifact {set}; choose another folder"),
        ("push {set} file://{here}/me@x", 2, "{here}/me@x: folder not found; create it, or correct the URL"),
        ("push {set} file://{here}/none", 2, "{here}/none: folder not found; create it, or correct the URL"),
        (
            "push {here} {url}",
            2,
            "{here}: nothing is sealed here (no manifest.json); pass the folder of a finished artif",
        ),
        (
            "push {set} hf://buckets/me/pool",
            2,
            "hf://buckets/me/pool: a hub bucket has no conditional writes, so it is only read; push to hf://datasets/",
        ),
        ("push {set} hf://datasets/me/pool", 2, "HF_TOKEN: no token is set; set it to a token with write access"),
        ("pull {url} {here}/x", 2, "{url}: the store has no artifacts; correct the URL, or push an artifact first"),
        (
            "pull {url} {here}/x --upstream",
            2,
            "{here}/x: the folder is not inside a data root; pass the root of upstream",
        ),
        ("pull s3://bucket {here}/megatron/x", 2, "s3://bucket: the store has no artifacts; correct the URL, or push"),
    ],
)
def test_wrong_use_is_one_line_without_credentials(
    corpusmill: Corpusmill, demo_root: Path, tmp_path: Path, store: dict[str, str], words: str, status: int, line: str
) -> None:
    values = {"set": demo_root / TRAIN, "url": STORE, "here": tmp_path, "secret": SECRET}

    answer = corpusmill(*(word.format(**values) for word in words.split()), env=store)

    assert refused(answer, status).startswith(line.format(**values))
    assert SECRET not in answer.stderr


def test_a_refused_access_is_one_line_that_says_how_to_go_on(
    corpusmill: Corpusmill, demo_root: Path, server: ObjectServer, store: dict[str, str]
) -> None:
    server.faults = [Fault("403", count=1000)]

    answer = corpusmill("push", demo_root / TRAIN, STORE, env=store)

    keys = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_SKIP_SIGNATURE=true for a public bucket"
    fix = f"check the permissions, and the credentials in the environment: {keys}"
    assert only_line(answer) == f"{STORE}/probe: the store refuses access (HTTP 403); {fix}"
    assert answer.stderr.splitlines()[1:] == [f"to continue: corpusmill push {demo_root / TRAIN} {STORE}"]
    assert answer.returncode == 1


@pytest.mark.parametrize(
    ("scheme", "variable"), [("s3", "AWS_ACCESS_KEY_ID"), ("gs", "GOOGLE_APPLICATION_CREDENTIALS")]
)
def test_missing_credentials_are_named(corpusmill: Corpusmill, tmp_path: Path, scheme: str, variable: str) -> None:
    """The metadata server, which a cloud machine has, refuses the request for a token."""
    with ObjectServer() as refusing:
        refusing.faults = [Fault("403", count=1000)]
        proxy = {"HTTP_PROXY": refusing.endpoint, "http_proxy": refusing.endpoint, "NO_PROXY": "", "no_proxy": ""}
        answer = corpusmill("pull", f"{scheme}://bucket/x", tmp_path / "x", env=proxy)

    assert only_line(answer).startswith(f"{scheme}://bucket/x: no credentials found; set {variable}")
    assert "resume" not in answer.stderr


def test_after_an_interrupted_pull_status_names_no_run(
    corpusmill: Corpusmill, demo_root: Path, tmp_path: Path, server: ObjectServer, store: dict[str, str]
) -> None:
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(demo_root / "recipes", elsewhere / "recipes")
    corpusmill("push", demo_root / TRAIN, STORE, env=store)
    server.faults = [Fault("403", "GET", "objects", count=1000)]
    assert corpusmill("pull", STORE, elsewhere / TRAIN, env=store).returncode == 1

    status = corpusmill("status", "healing_text_v1", "--data", elsewhere)

    assert "to continue: `corpusmill pull` it again" in status.stdout
    assert "to continue: corpusmill run" not in status.stdout


def test_present_artifacts_are_compared_by_size_or_with_replace_by_content(
    corpusmill: Corpusmill, demo_root: Path, tmp_path: Path
) -> None:
    (tmp_path / "mirror").mkdir()
    words = ["pull", f"file://{tmp_path / 'mirror'}", tmp_path / "other" / TRAIN]
    corpusmill("push", demo_root / TRAIN, words[1])
    corpusmill(*words)

    again, compared = corpusmill(*words), corpusmill(*words, "--replace")

    nothing = f"{words[2]}: {digest_of(demo_root / TRAIN)} of {TRAIN}, 0 bytes pulled in 0 artifacts"
    by_size = "already present: 1, compared by size (--replace compares the content)"
    assert again.stdout == f"{nothing}; {by_size}\n"
    assert compared.stdout == f"{nothing}; already present: 1, intact\n"


def _kill_at_last(left: list[int], victims: list[int]) -> None:
    left[0] -= 1
    if left[0] == 0:
        while not victims:  # the command may send a request before its process id is noted
            time.sleep(0.001)
        os.kill(victims[0], signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(1, 16))
def test_killed_at_any_request_push_and_pull_go_on(
    corpusmill: Corpusmill,
    started: Started,
    demo_root: Path,
    tmp_path: Path,
    server: ObjectServer,
    store: dict[str, str],
    number: int,
) -> None:
    """SIGKILL at the n-th request of each; then the same command again."""
    elsewhere = tmp_path / "elsewhere"
    for words in (["push", demo_root / TRAIN, STORE], ["pull", STORE, elsewhere / TRAIN]):
        left, victims = [number], list[int]()
        server.watch = functools.partial(_kill_at_last, left, victims)
        process = started(*words, env=store)
        victims.append(process.pid)
        process.communicate(timeout=60)
        server.watch = None
        assert process.returncode == (-signal.SIGKILL if left[0] <= 0 else 0)
        assert not (elsewhere / TRAIN / "manifest.json").exists() or words[0] == "pull"
        assert corpusmill(*words, env=store).returncode == 0

    verified = corpusmill("verify", elsewhere / TRAIN)
    assert verified.stdout.splitlines()[-1] == digest_of(demo_root / TRAIN)
    assert verified.returncode == 0
    assert [path.name for path in (elsewhere / SET).iterdir() if "building" in path.name] == []


# A command that is killed before its n-th disk step: n, the log of steps, the command's words.
KILLED = """
import sys
from pathlib import Path
from crash_points import Death, Victim
from pipeline_assets.spine import durable
durable.failpoint = Death(int(sys.argv[1]), Victim.PARENT, Path(sys.argv[2]))
sys.argv[1:] = sys.argv[3:]
from pipeline_assets.cli import main
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.02, 0.15, 0.3, 0.45, 0.6, 0.7, 0.8, 0.9])
def test_killed_before_any_disk_step_push_and_pull_go_on(
    corpusmill: Corpusmill, demo_root: Path, tmp_path: Path, share: float
) -> None:
    """The store is a folder, whose files are written through the same durable steps."""
    mirror, elsewhere, log = tmp_path / "mirror", tmp_path / "elsewhere", tmp_path / "steps"
    mirror.mkdir()
    harness = Path(__file__).parent / "harness"
    variables = {**os.environ, "PYTHONPATH": f"{harness.parents[1]}:{harness}"}
    for words in (["push", demo_root / TRAIN, f"file://{mirror}"], ["pull", f"file://{mirror}", elsewhere / TRAIN]):

        def killed_at(number: int, words: list[object] = words) -> int:
            log.unlink(missing_ok=True)
            command = [sys.executable, "-c", KILLED, str(number), str(log), *map(str, words)]
            return subprocess.run(command, env=variables, capture_output=True, timeout=60).returncode

        assert killed_at(0) == 0
        steps = log.stat().st_size // 8
        shutil.rmtree(mirror if words[0] == "push" else elsewhere)
        mirror.mkdir(exist_ok=True)
        assert killed_at(max(1, round(share * steps))) == -signal.SIGKILL
        assert corpusmill(*words).returncode == 0

    assert corpusmill("verify", elsewhere / TRAIN).stdout.splitlines()[-1] == digest_of(demo_root / TRAIN)
    assert [path for path in mirror.rglob("*.tmp")] == []
    assert [path.name for path in (elsewhere / SET).iterdir() if "building" in path.name] == []


def test_credentials_are_in_no_message_and_no_file(
    corpusmill: Corpusmill, demo_root: Path, tmp_path: Path, server: ObjectServer, store: dict[str, str]
) -> None:
    elsewhere = tmp_path / "elsewhere"
    verbose = {**store, "CORPUSMILL_VERBOSE": "1"}
    answers = [corpusmill("push", demo_root / TRAIN, STORE, env=verbose)]
    answers.append(corpusmill("pull", STORE, elsewhere / TRAIN, env=verbose))
    server.faults = [Fault("flip", "GET", count=1000)]
    answers.append(corpusmill("pull", STORE, elsewhere / "again", env=verbose))

    assert [answer.returncode for answer in answers] == [0, 0, 1]
    said = "".join(answer.stdout + answer.stderr for answer in answers).encode()
    written = [path.read_bytes() for path in elsewhere.rglob("*") if path.is_file()]
    stored = [stored.data for stored in server.objects.values()]
    for content in [said, *written, *stored]:
        assert SECRET.encode() not in content
        assert store["AWS_ACCESS_KEY_ID"].encode() not in content
