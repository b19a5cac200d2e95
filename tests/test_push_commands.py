"""The commands `push` and `pull`."""

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
    """Return the environment variables for access to the server."""
    return server.environment(tmp_path)


def read_digest(folder: Path) -> str:
    return str(json.loads((folder / "manifest.json").read_text())["digest"])


def test_an_artifact_with_upstream_is_pushed_pulled_and_usable(
    corpusmill: Corpusmill, demo_root: Path, tmp_path: Path, store: dict[str, str]
) -> None:
    other_root, digest = tmp_path / "elsewhere", read_digest(demo_root / SET)
    (tmp_path / "link").symlink_to(demo_root)

    pushed = corpusmill("push", demo_root / SET, STORE, "--upstream", env=store)
    again = corpusmill("push", tmp_path / "link" / SET, STORE, "--upstream", "--data", demo_root, env=store)
    pulled = corpusmill("pull", STORE, other_root / SET, "--upstream", "--ref", SET, env=store)
    shutil.copytree(demo_root / "recipes", other_root / "recipes")
    status = corpusmill("status", "healing_text_v1", "--data", other_root)

    rest = "the rest is in the store, compared by name and size"
    size = pushed.stdout.split(" sent of ")[1].split(" in ")[0]
    assert pushed.stdout == f"{SET}: {digest} (new), {size} sent of {size} in 5 artifacts\n"
    assert again.stdout == f"{SET}: {digest} (unchanged), 0 bytes sent of {size} in 5 artifacts; {rest}\n"
    assert pulled.stdout.startswith(f"{other_root / SET}: {digest} of {SET}, ")
    assert pulled.stdout.endswith(" pulled in 5 artifacts\n")
    assert [result.stderr for result in (pushed, again, pulled)] == ["", "", ""]
    assert [line.split()[0] for line in status.stdout.splitlines()[1:]] == ["current"] * 5
    for args in (
        ["verify", other_root / SET],
        ["peek", other_root / TRAIN],
        ["trace", other_root / TRAIN, "--token", "10"],
    ):
        result = corpusmill(*args)
        assert (result.returncode, result.stderr) == (0, "")
    assert corpusmill("run", "healing_text_v1", "--data", other_root).stdout.count("built") == 0


def test_a_pull_without_name_needs_a_single_artifact(
    corpusmill: Corpusmill, demo_root: Path, tmp_path: Path, store: dict[str, str]
) -> None:
    corpusmill("push", demo_root / TRAIN, STORE, env=store)
    single = corpusmill("pull", STORE, tmp_path / "any", env=store)
    corpusmill("push", demo_root / SET / "valid", STORE, env=store)

    several = corpusmill("pull", STORE, tmp_path / "other", env=store)
    named = corpusmill("pull", STORE, tmp_path / "other", "--ref", f"{SET}/valid", env=store)

    assert single.stdout.startswith(f"{tmp_path / 'any'}: {read_digest(demo_root / TRAIN)} of {TRAIN}, ")
    names = f"{TRAIN}, {SET}/valid"
    assert refused(several) == f"{STORE}: the store has 2 artifacts: {names}; pass one of the names with --ref"
    assert named.stdout.startswith(f"{tmp_path / 'other'}: {read_digest(demo_root / SET / 'valid')} of {SET}/valid, ")


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

    digest = read_digest(demo_root / TRAIN)
    assert pushed.stdout.startswith(f"{TRAIN}: {digest} (new), "), pushed.stderr
    assert again.stdout.startswith(f"{TRAIN}: {digest} (unchanged), 0 bytes sent"), again.stderr
    assert [(result.returncode, result.stderr) for result in pulled] == [(0, ""), (0, "")]
    for kind in ("datasets", "buckets"):
        assert corpusmill("verify", tmp_path / kind / TRAIN).stdout.splitlines()[-1] == digest


@pytest.mark.parametrize(
    ("command", "line"),
    [
        ("push {set} {url}/x?sig={secret}", "STORE: the URL must not contain credentials or options; set them in the "),
        ("push {set} s3://key:{secret}@bucket", "STORE: the URL must not contain credentials or options; set them in"),
        *(
            (
                f"push {{set}} {url}",
                f"{url}: not the URL of a store; write s3://BUCKET/PREFIX, gs://…, az://CONTAINER/P",
            )
            for url in ("mirror", "ftp://bucket/x", "s3://", "file:///")
        ),
        ("push {set} file://{set}/tokens.bin", "{set}/tokens.bin: expected a folder, got a file; correct the URL"),
        ("push {set} file://{set}", "{set}: the folder is in the sealed artifact {set}; choose another folder"),
        ("push {set} file://{here}/me@x", "{here}/me@x: folder not found; create it, or correct the URL"),
        ("push {set} s3://other/x", "s3://other/x: bucket or container not found; create it, or correct the URL"),
        ("pull s3://other/x {here}/x", "s3://other/x: bucket or container not found; create it, or correct the URL"),
        ("push {set} hf://datasets/me/pool", "HF_TOKEN: no token is set; set it to a token with write access"),
        (
            "push {set} hf://buckets/me/pool",
            "hf://buckets/me/pool: a hub bucket has no conditional writes, so it is only read; push to hf://datasets/",
        ),
        (
            "push {set} {url} --data {here}",
            "{set}: the artifact is not inside the data root {here}; push it from its data root, which --data sets",
        ),
        ("push {here} {url}", "{here}: nothing is sealed here (no manifest.json); pass the folder of a finished artif"),
        ("pull {url} {here}/x", "{url}: the store has no artifacts; correct the URL, or push an artifact first"),
        ("pull {url} {here}/x --upstream", "{here}/x: the folder is not inside a data root; pass the root of upstream"),
        (
            "pull {url} {here}/x --data {here}/new",
            "{here}/x: the folder is not inside the data root {here}/new; choose one inside, or omit --data",
        ),
    ],
)
def test_wrong_use_is_one_line_without_credentials(
    corpusmill: Corpusmill, demo_root: Path, tmp_path: Path, store: dict[str, str], command: str, line: str
) -> None:
    values = {"set": demo_root / TRAIN, "url": STORE, "here": tmp_path, "secret": SECRET}

    result = corpusmill(*(arg.format(**values) for arg in command.split()), env=store)

    assert refused(result).startswith(line.format(**values))
    assert SECRET not in result.stderr


@pytest.mark.parametrize("endpoint", ["127.0.0.1:9000", "", "http://"])
def test_an_endpoint_that_is_not_a_url_is_refused(
    corpusmill: Corpusmill, tmp_path: Path, store: dict[str, str], endpoint: str
) -> None:
    result = corpusmill("pull", STORE, tmp_path / "x", env=store | {"AWS_ENDPOINT_URL": endpoint})

    assert refused(result) == "AWS_ENDPOINT_URL: must be a URL, such as http://127.0.0.1:9000; correct or unset it"


def test_refused_access_is_one_line_with_the_command_to_continue(
    corpusmill: Corpusmill, demo_root: Path, server: ObjectServer, store: dict[str, str]
) -> None:
    server.faults = [Fault("403", count=1000)]

    result = corpusmill("push", demo_root / TRAIN, STORE, env=store)

    keys = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_SKIP_SIGNATURE=true for a public bucket"
    fix = f"check the permissions, and the credentials in the environment: {keys}"
    assert only_line(result) == f"{STORE}/probe: the store refuses access (HTTP 403); {fix}"
    assert result.stderr.splitlines()[1:] == [f"to continue: corpusmill push {demo_root / TRAIN} {STORE}"]
    assert result.returncode == 1


@pytest.mark.parametrize(
    ("scheme", "variable"), [("s3", "AWS_ACCESS_KEY_ID"), ("gs", "GOOGLE_APPLICATION_CREDENTIALS")]
)
def test_missing_credentials_are_named(corpusmill: Corpusmill, tmp_path: Path, scheme: str, variable: str) -> None:
    """The metadata server of a cloud machine refuses the request for a token."""
    with ObjectServer() as refusing:
        refusing.faults = [Fault("403", count=1000)]
        proxy = {"HTTP_PROXY": refusing.endpoint, "http_proxy": refusing.endpoint, "NO_PROXY": "", "no_proxy": ""}
        result = corpusmill("pull", f"{scheme}://bucket/x", tmp_path / "x", env=proxy)

    assert only_line(result).startswith(f"{scheme}://bucket/x: no credentials found; set {variable}")
    assert result.stderr.splitlines()[1:] == [f"to continue: corpusmill pull {scheme}://bucket/x {tmp_path / 'x'}"]


def test_status_proposes_pull_after_an_interrupted_pull(
    corpusmill: Corpusmill, demo_root: Path, tmp_path: Path, server: ObjectServer, store: dict[str, str]
) -> None:
    other_root = tmp_path / "elsewhere"
    shutil.copytree(demo_root / "recipes", other_root / "recipes")
    corpusmill("push", demo_root / TRAIN, STORE, env=store)
    server.faults = [Fault("403", "GET", "objects", count=1000)]
    assert corpusmill("pull", STORE, other_root / TRAIN, env=store).returncode == 1

    status = corpusmill("status", "healing_text_v1", "--data", other_root)

    assert "to continue: `corpusmill pull` it again" in status.stdout
    assert "to continue: corpusmill run" not in status.stdout


def test_present_artifacts_are_compared_by_size_and_with_replace_by_content(
    corpusmill: Corpusmill, demo_root: Path, tmp_path: Path
) -> None:
    (tmp_path / "mirror").mkdir()
    args = ["pull", f"file://{tmp_path / 'mirror'}", tmp_path / "other" / TRAIN]
    corpusmill("push", demo_root / TRAIN, args[1])
    corpusmill(*args)

    again, compared = corpusmill(*args), corpusmill(*args, "--replace")

    unchanged = f"{args[2]}: {read_digest(demo_root / TRAIN)} of {TRAIN}, 0 bytes pulled in 0 artifacts"
    by_size = "already present: 1, compared by size (--replace compares the content)"
    assert again.stdout == f"{unchanged}; {by_size}\n"
    assert compared.stdout == f"{unchanged}; already present: 1, intact\n"


def _kill_at_zero(remaining: list[int], victims: list[int]) -> None:
    remaining[0] -= 1
    if remaining[0] == 0:
        while not victims:  # the command may send a request before its process id is recorded
            time.sleep(0.001)
        os.kill(victims[0], signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(1, 16))
def test_push_and_pull_continue_after_a_kill_at_any_request(
    corpusmill: Corpusmill,
    started: Started,
    demo_root: Path,
    tmp_path: Path,
    server: ObjectServer,
    store: dict[str, str],
    number: int,
) -> None:
    """Kill each command at its n-th request, then repeat the command."""
    other_root = tmp_path / "elsewhere"
    for args in (["push", demo_root / TRAIN, STORE], ["pull", STORE, other_root / TRAIN]):
        remaining, victims = [number], list[int]()
        server.watch = functools.partial(_kill_at_zero, remaining, victims)
        process = started(*args, env=store)
        victims.append(process.pid)
        process.communicate(timeout=60)
        server.watch = None
        assert process.returncode == (-signal.SIGKILL if remaining[0] <= 0 else 0)
        assert not (other_root / TRAIN / "manifest.json").exists() or args[0] == "pull"
        assert corpusmill(*args, env=store).returncode == 0

    verified = corpusmill("verify", other_root / TRAIN)
    assert verified.stdout.splitlines()[-1] == read_digest(demo_root / TRAIN)
    assert verified.returncode == 0
    assert [path.name for path in (other_root / SET).iterdir() if "building" in path.name] == []


# Run a command and kill it before its n-th disk step. Arguments: n, the log of steps, the command.
KILLED_COMMAND = """
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
def test_push_and_pull_continue_after_a_kill_before_any_disk_step(
    corpusmill: Corpusmill, demo_root: Path, tmp_path: Path, share: float
) -> None:
    """The store is a folder whose files are written through the same durable steps."""
    mirror, other_root, log = tmp_path / "mirror", tmp_path / "elsewhere", tmp_path / "steps"
    mirror.mkdir()
    harness = Path(__file__).parent / "harness"
    variables = {**os.environ, "PYTHONPATH": f"{harness.parents[1]}:{harness}"}
    for args in (["push", demo_root / TRAIN, f"file://{mirror}"], ["pull", f"file://{mirror}", other_root / TRAIN]):

        def run_killed(number: int, args: list[object] = args) -> int:
            log.unlink(missing_ok=True)
            command = [sys.executable, "-c", KILLED_COMMAND, str(number), str(log), *map(str, args)]
            return subprocess.run(command, env=variables, capture_output=True, timeout=60).returncode

        assert run_killed(0) == 0
        steps = log.stat().st_size // 8
        shutil.rmtree(mirror if args[0] == "push" else other_root)
        mirror.mkdir(exist_ok=True)
        assert run_killed(max(1, round(share * steps))) == -signal.SIGKILL
        assert corpusmill(*args).returncode == 0

    assert corpusmill("verify", other_root / TRAIN).stdout.splitlines()[-1] == read_digest(demo_root / TRAIN)
    assert [*mirror.rglob("*.tmp")] == []
    assert [path.name for path in (other_root / SET).iterdir() if "building" in path.name] == []


def test_credentials_are_in_no_message_and_no_file(
    corpusmill: Corpusmill, demo_root: Path, tmp_path: Path, server: ObjectServer, store: dict[str, str]
) -> None:
    other_root = tmp_path / "elsewhere"
    verbose = {**store, "CORPUSMILL_VERBOSE": "1"}
    results = [corpusmill("push", demo_root / TRAIN, STORE, env=verbose)]
    results.append(corpusmill("pull", STORE, other_root / TRAIN, env=verbose))
    server.faults = [Fault("flip", "GET", count=1000)]
    results.append(corpusmill("pull", STORE, other_root / "again", env=verbose))

    assert [result.returncode for result in results] == [0, 0, 1]
    output = "".join(result.stdout + result.stderr for result in results).encode()
    written = [path.read_bytes() for path in other_root.rglob("*") if path.is_file()]
    stored = [stored.data for stored in server.objects.values()]
    for content in [output, *written, *stored]:
        assert SECRET.encode() not in content
        assert store["AWS_ACCESS_KEY_ID"].encode() not in content
