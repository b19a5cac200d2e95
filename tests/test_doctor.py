"""Probes of `corpusmill doctor`, each with a real fault."""

import functools
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from answer_faults import ALWAYS, Fault, FaultKind
from command_results import Corpusmill
from faulty_hub import FaultyHub
from free_ports import free_port
from mounts import mounted

from pipeline_assets.commands import doctor
from pipeline_assets.commands.doctor import PROBES, ProbeWarning, run_probe
from pipeline_assets.commands.settings import misspelled_settings
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.install_hints import pip_hint
from pipeline_assets.spine.lock_reach import raise_if_locks_are_local


def probe(name: str, root: Path) -> tuple[str, str]:
    return run_probe(PROBES[name], root)


def hang(root: Path) -> str:
    signal.pause()
    return "never"


def crash(root: Path) -> str:
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


def fail(root: Path) -> str:
    raise KeyError("a bug")


def test_probe_that_hangs_crashes_or_has_a_bug_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fix = "look for a disk, server or library that hangs or crashes"
    assert run_probe(crash, tmp_path) == ("fault", f"the probe crashed; {fix}")
    assert run_probe(fail, tmp_path) == ("fault", "KeyError: 'a bug'; install the program again")

    monkeypatch.setattr(doctor, "_PROBE_TIMEOUT_S", 0.3)
    assert run_probe(hang, tmp_path) == ("fault", f"no answer within 0 s; {fix}")


def test_library_of_another_version_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert probe("python", tmp_path)[0] == "ok"
    older = tmp_path / "zstandard-0.1.dist-info"
    older.mkdir()
    (older / "METADATA").write_text("Metadata-Version: 2.1\nName: zstandard\nVersion: 0.1\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    state, message = probe("python", tmp_path)

    assert state == "fault"
    assert message.startswith("zstandard: must be ") and ", got 0.1; " + pip_hint("'zstandard")[:-1] in message


def test_full_and_read_only_disks_are_faults_and_small_ones_warnings(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "size=64k") as disk:
        (disk / "full").write_bytes(bytes(64 << 10))
        state, message = probe("disk", disk / "data")
        assert state == "fault" and message.startswith(f"{disk}/.doctor.")
        assert "no space is left on the disk; free some space" in message
        (disk / "full").unlink()
        subprocess.run(["mount", "-o", "remount,size=1m", disk], check=True)
        state, message = probe("disk", disk / "data")
        assert state == "warning" and message.startswith(f"{disk}: 1.0 MB of 1.0 MB are free (tmpfs); free some, ")
        subprocess.run(["mount", "-o", "remount,size=20g", disk], check=True)
        assert probe("disk", disk)[1].endswith("(tmpfs); a restart deletes its files: choose a data root on a disk")
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        assert probe("disk", disk)[0] == probe("locks", disk)[0] == "fault"
        assert "the file system is read-only; mount it for writing, or choose another folder" in probe("disk", disk)[1]
        assert list(disk.iterdir()) == []


@pytest.fixture
def _few_files() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.usefixtures("_few_files")
@pytest.mark.parametrize(("limit", "state"), [(63, "fault"), (64, "warning"), (1023, "warning"), (1024, "ok")])
def test_low_limit_of_open_files_is_a_warning_or_a_fault(limit: int, state: str, tmp_path: Path) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))

    if state == "ok":
        assert PROBES["files"](tmp_path) == "a process may open 1,024 files"
    else:
        with pytest.raises(InputError, match=f"must be at least 1,024 for large builds, got {limit}") as raised:
            PROBES["files"](tmp_path)
        assert isinstance(raised.value, ProbeWarning) == (state == "warning")


def test_memory_above_that_of_the_machine_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert probe("memory", tmp_path)[0] == "ok"
    monkeypatch.setenv("CORPUSMILL_MEMORY_MIB", "900000000")
    state, message = probe("memory", tmp_path)
    monkeypatch.setenv("CORPUSMILL_WORKERS", "two")

    assert state == "fault" and message.endswith("; set CORPUSMILL_MEMORY_MIB or CORPUSMILL_WORKERS lower")
    assert probe("memory", tmp_path) == ("warning", "not examined: CORPUSMILL_WORKERS has no valid value")


def test_all_wrong_settings_are_named_by_one_probe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert probe("settings", tmp_path) == ("ok", "all CORPUSMILL_ variables are valid")
    for name in ("WORKES", "UNRELATED_TOOL", "MODAL_GPUU"):  # the last is an error if scoring uses Modal
        monkeypatch.setenv(f"CORPUSMILL_{name}", "2")
    misspelled = "CORPUSMILL_WORKES is not a setting, unlike CORPUSMILL_WORKERS; correct the name, or unset it"
    assert probe("settings", tmp_path) == ("warning", misspelled)
    wrong = {"WORKERS": "two", "LOG_EVERY": "0", "ENGINE": "rya", "LOG": "xml", "LAUNCHER": "moon", "WEBHOOK": "secret"}
    for name, value in wrong.items():
        monkeypatch.setenv(f"CORPUSMILL_{name}", value)

    assert probe("settings", tmp_path) == (
        "fault",
        "CORPUSMILL_WORKERS must be an integer >= 0, got 'two'; CORPUSMILL_LOG_EVERY must be an integer >= 1, got '0'; "
        "CORPUSMILL_ENGINE must be local or ray, got 'rya'; CORPUSMILL_LOG must be text or json, got 'xml'; "
        "CORPUSMILL_LAUNCHER must be one of local, modal, got 'moon'; "
        "CORPUSMILL_WEBHOOK must be an http or https address, got 6 other characters; correct them",
    )
    assert probe("modal", tmp_path) == ("warning", "not examined: CORPUSMILL_LAUNCHER has no valid value")


def test_every_variable_in_code_and_docs_is_a_setting() -> None:
    project = Path(__file__).parents[1]
    folders = ("pipeline_assets", "resources", "docker", "docs")
    paths = [path for folder in folders for path in (project / folder).rglob("*")]
    texts = [
        path.read_text() for path in paths if path.suffix in (".py", ".md", ".sh", ".yaml") or path.name == "Dockerfile"
    ]
    names = {name for text in texts for name in re.findall(r"CORPUSMILL_[A-Z_]*[A-Z]", text)}

    assert misspelled_settings(dict.fromkeys(names, "")) == []


@pytest.mark.slow
def test_unwritable_or_damaged_kernel_cache_is_reported(tmp_path: Path) -> None:
    program = "from pathlib import Path; from pipeline_assets.commands.doctor import PROBES, run_probe;"
    program += "print(*run_probe(PROBES['kernels'], Path()))"

    def kernels(cache: Path) -> str:
        variables = os.environ | {"NUMBA_CACHE_DIR": str(cache)}
        return subprocess.run([sys.executable, "-c", program], env=variables, capture_output=True, text=True).stdout

    for options in ("ro", "size=4k"):
        with mounted(tmp_path / options[:2], options) as cache:
            assert kernels(cache).startswith(f"warning {cache}/python3")
    assert kernels(tmp_path) == f"ok compiled kernels load from {tmp_path}\n"
    [folder] = {path.parent for path in tmp_path.rglob("*.nbc")}
    folder.chmod(0o777)  # code of another user in it would not be loaded
    assert kernels(tmp_path).startswith(f"warning {folder}: compiled kernels cannot be stored for this user alone")
    folder.chmod(0o700)
    for path in tmp_path.rglob("*.nbi"):
        path.write_bytes(b"damaged")
    damaged = kernels(tmp_path)
    assert damaged.startswith(f"fault {tmp_path}/python3")
    assert damaged.endswith("; delete the folder, then kernels are compiled again\n")


@pytest.mark.slow
def test_missing_hub_and_rejected_token_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, demo_root: Path
) -> None:
    program = "from pathlib import Path; from pipeline_assets.commands.doctor import PROBES, run_probe;"
    program += "print(*run_probe(PROBES['hub'], Path()))"

    def hub(**variables: str) -> str:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
        home = {"HF_HOME": str(tmp_path)}  # without a saved login
        words = [sys.executable, "-c", program]
        return subprocess.run(words, env=environment | home | variables, capture_output=True, text=True).stdout.strip()

    closed = f"http://127.0.0.1:{free_port()}"
    assert hub(HF_ENDPOINT=closed).startswith(f"warning {closed}: the hub cannot be reached (ConnectError")
    assert hub(HF_ENDPOINT="ftp://x").startswith("fault HF_ENDPOINT: the URL must be http://HOST")
    with FaultyHub(demo_root / "hub") as server:
        address = server.endpoint
        assert hub(HF_ENDPOINT=address) == f"ok {address} answers; no token is set, gated datasets cannot be read"
        assert hub(HF_ENDPOINT=address, HF_TOKEN="hf_mine").endswith("is valid")
        server.inject(Fault(FaultKind.UNAUTHORIZED, "/api/whoami-v2", ALWAYS))
        rejected = hub(HF_ENDPOINT=address, HF_TOKEN="hf_secret")
        assert rejected == f"fault HF_TOKEN: {address} rejects the token; set a valid token"


@pytest.mark.slow
def test_missing_database_cluster_and_token_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CORPUSMILL_ENGINE", "CORPUSMILL_LAUNCHER", "DAGSTER_PG_HOST", "RAY_ADDRESS", "MODAL_TOKEN_ID"):
        monkeypatch.delenv(name, raising=False)
    assert [probe(name, tmp_path) for name in ("postgres", "ray", "modal")] == [
        ("ok", "not used: no DAGSTER_PG_… is set"),
        ("ok", "not used: CORPUSMILL_ENGINE is not ray"),
        ("ok", "not used: CORPUSMILL_LAUNCHER is local"),
    ]
    port = free_port()
    monkeypatch.setenv("DAGSTER_PG_HOST", "127.0.0.1")
    monkeypatch.setenv("DAGSTER_PG_PORT", str(port))
    monkeypatch.setenv("DAGSTER_PG_PASSWORD", "secret")
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{port}")
    monkeypatch.setenv("CORPUSMILL_LAUNCHER", "modal")
    monkeypatch.setenv("MODAL_CONFIG_PATH", str(tmp_path / "none.toml"))

    state, message = probe("postgres", tmp_path)
    assert state == "fault" and f"port {port} failed: Connection refused" in message and "secret" not in message
    state, message = probe("ray", tmp_path)
    assert (
        state == "fault"
        and f"RAY_ADDRESS=127.0.0.1:{port}: cannot connect to Ray: [Errno 111] Connection refused" in message
    )
    assert probe("modal", tmp_path)[1].startswith("CORPUSMILL_LAUNCHER: no token of Modal is stored; run `modal token")
    with socket.create_server(("127.0.0.1", port)):  # accepts connections, but is not Ray
        monkeypatch.setattr(doctor, "_PROBE_TIMEOUT_S", 3.0)
        assert probe("ray", tmp_path)[0] == "fault"
    monkeypatch.setenv("RAY_ADDRESS", "local")
    assert probe("ray", tmp_path)[1].endswith("; a build starts it on this machine")
    monkeypatch.setenv("MODAL_TOKEN_ID", "ak-1")
    monkeypatch.setenv("MODAL_TOKEN_SECRET", "as-secret")
    assert probe("modal", tmp_path) == ("ok", "a token is stored; it was not sent")


@pytest.mark.slow
def test_command_prints_a_line_per_probe_and_exits_with_1_for_a_fault(corpusmill: Corpusmill, tmp_path: Path) -> None:
    hub = {"HF_ENDPOINT": "http://127.0.0.1:9"}
    good = corpusmill("doctor", "--data", tmp_path, env=hub)
    bad = corpusmill("doctor", "--data", tmp_path, "--json", env=hub | {"CORPUSMILL_MEMORY_MIB": "900000000"})

    assert (good.returncode, good.stderr) == (0, "")
    assert [line.split()[1] for line in good.stdout.splitlines()] == list(PROBES)
    assert bad.returncode == 1
    assert [entry["probe"] for entry in json.loads(bad.stdout) if entry["state"] == "fault"] == ["memory"]


def test_locks_of_one_machine_are_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert probe("locks", tmp_path / "data" / "new") == ("ok", f"locks work in {tmp_path}")
    assert list(tmp_path.iterdir()) == []
    device, mounts = os.stat(tmp_path).st_dev, tmp_path / "mountinfo"
    disk = f"{os.major(device)}:{os.minor(device)}"
    mounts.write_text(f"62 28 {disk} / {tmp_path} rw shared:33 - nfs filer:/export rw,nolock,local_lock=all\n")
    check = functools.partial(raise_if_locks_are_local, mountinfo=mounts)
    monkeypatch.setattr(doctor, "raise_if_locks_are_local", check)

    state, message = probe("locks", tmp_path)

    assert state == "warning"
    assert "because of the mount option nolock" in message
