"""The services of docker/run_local.sh survive kills, and builds keep their bytes."""

import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from free_ports import free_port
from services import NAMES, PROJECT, Services, skip_without_postgres

from pipeline_assets.build.inventory import artifact_statuses
from pipeline_assets.demo import recipes
from pipeline_assets.demo.corpora import write_inputs
from pipeline_assets.demo.demo import HUB_TOKEN
from pipeline_assets.demo.loopback_hub import HUB_FOLDER, LoopbackHub
from pipeline_assets.spine.artifact import open_artifact
from pipeline_assets.systems.registry import SYSTEMS

BUILD_S = 1500
CORPUSMILL = Path(sys.executable).with_name("corpusmill")
WRITERS = {
    "healing": recipes.write_healing_recipe,
    "stage_a": recipes.write_stage_a_recipe,
    "nemotron": recipes.write_nemotron_recipe,
    "stage2": recipes.write_mixture_recipe,
    "parallel_text": recipes.write_parallel_recipe,
}


@pytest.fixture(autouse=True)
def needs_postgres() -> None:
    skip_without_postgres()


@pytest.fixture
def root() -> Iterator[Path]:
    """Create a folder that PostgreSQL's own user can reach, unlike folders of pytest."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "root").mkdir()
        yield Path(folder, "root")


def write_demo(root: Path, systems: list[str]) -> LoopbackHub:
    """Write inputs and recipes of the demo; return the stopped hub of its datasets."""
    for system in systems:
        write_inputs(root, system)
    return LoopbackHub(root / HUB_FOLDER, writable="nemotron" in systems)


def read_digests(root: Path, names: list[str]) -> dict[str, str]:
    """Map sealed artifacts to digests, except artifacts with a publishing time."""
    targets = [target for name in names for target in SYSTEMS.read_recipe(root / "recipes" / f"{name}.yaml").targets()]
    statuses = artifact_statuses(root, targets)
    assert {status.sealed_state for status in statuses} == {"current"}, [
        (status.target.role, status.sealed_state) for status in statuses if status.sealed_state != "current"
    ]
    return {
        str(status.target.folder): open_artifact(root / status.target.folder).manifest.digest
        for status in statuses
        if status.target.kind.name != "nemotron/published_pools"
    }


def list_recipe_names(root: Path) -> list[str]:
    return sorted(path.stem for path in (root / "recipes").glob("*.yaml"))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Build all five systems with the demo and return their digests."""
    root = tmp_path_factory.mktemp("undisturbed")
    demo = subprocess.run([CORPUSMILL, "demo", "--data", root], capture_output=True, text=True)
    assert demo.returncode == 0, demo.stderr
    return read_digests(root, list_recipe_names(root))


def is_current(root: Path, name: str) -> bool:
    targets = SYSTEMS.read_recipe(root / "recipes" / f"{name}.yaml").targets()
    return {status.sealed_state for status in artifact_statuses(root, targets)} == {"current"}


@pytest.mark.proof
def test_builds_by_schedule_and_backfill_survive_kills_of_each_service(undisturbed: dict[str, str], root: Path) -> None:
    with write_demo(root, list(WRITERS)) as hub:
        names = {system: write(root, hub.commits()).name for system, write in WRITERS.items()}
        entries = [
            {"name": f"each_minute_{system}", "recipe": name, "cron": "* * * * *", "action": "run"}
            for system, name in names.items()
        ]
        (root / "schedules.yaml").write_text(yaml.safe_dump({"schedules": entries}))
        stage_a = SYSTEMS.read_recipe(root / "recipes" / f"{names['stage_a']}.yaml")
        sources = [str(target.partition) for target in stage_a.targets() if target.kind.name == "stage_a/filtered"]
        keys = [["stage_a", stage_a.name, artifact] for artifact in ("raw", "normalized", "filtered")]
        variables = {"HF_TOKEN": HUB_TOKEN} | hub.client_environment() | {"CORPUSMILL_WORKERS": "1"}
        with Services(root, variables) as services:
            backfill = services.backfill(keys, sources)
            schedules = [services.start_schedule(f"each_minute_{system}") for system in names]
            # One tick of each schedule: runs of a loaded machine take longer than a minute, and would queue up.
            services.wait_for(lambda: set(names.values()) <= set(services.run_jobs()), "runs of schedules")
            services.stop_schedules(schedules)
            for victim in (*NAMES, *NAMES):
                services.wait_for(lambda: "STARTED" in services.run_statuses() or are_current(root, names), "a run")
                services.kill(victim)
            services.wait_for(lambda: services.backfill_status(backfill).startswith("COMPLETED"), "its end", BUILD_S)
            services.wait_for(lambda: not has_unfinished_runs(services), "the end of all runs", BUILD_S)

        assert read_digests(root, list(names.values())) == undisturbed


def are_current(root: Path, names: dict[str, str]) -> bool:
    return all(is_current(root, name) for name in names.values())


def has_unfinished_runs(services: Services) -> bool:
    return any(status in ("QUEUED", "STARTING", "STARTED", "CANCELING") for status in services.run_statuses())


@pytest.mark.slow
def test_a_used_port_is_named_before_anything_but_a_private_lock_is_made(tmp_path: Path) -> None:
    with socket.socket() as used:
        used.bind(("127.0.0.1", 0))
        used.listen()
        port = used.getsockname()[1]
        script = [PROJECT / "docker" / "run_local.sh", tmp_path, str(port)]
        result = subprocess.run(script, capture_output=True, text=True)

    assert result.returncode == 1
    assert (tmp_path / "dagster" / "server" / "lock").stat().st_mode & 0o777 == 0o600
    fix = f"pass another: run_local.sh {tmp_path} PORT"
    assert result.stderr == f"run_local.sh: port {port} is not free; {fix}\n"


def check_stop(services: Services, number: signal.Signals, expected_status: int) -> None:
    """Send a signal to the script, and check that no service stays."""
    assert len(services.processes()) >= len(NAMES)

    assert services.stop(number) == expected_status

    assert services.processes() == []
    assert not [*services.home.glob("*.pid")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("-x", "no option -x; usage: run_local.sh [DATA ROOT [PORT]]"),
        ("{root} 1 2", "expected at most two arguments, got 3; usage: run_local.sh [DATA ROOT [PORT]]"),
        ("{root} abc", "PORT must be from 1 to 65535, got abc; usage: run_local.sh [DATA ROOT [PORT]]"),
        ("{root} 65536", "PORT must be from 1 to 65535, got 65536; usage: run_local.sh [DATA ROOT [PORT]]"),
        ("{root}/sealed/folder", "{root}/sealed: expected a data root, got an artifact; pass another folder"),
        ("{root}", "CORPUSMILL_WORKERS must be an integer >= 0, got 'many'; correct it"),
    ],
)
def test_wrong_use_is_one_line_and_creates_nothing(words: str, line: str, root: Path) -> None:
    (root / "sealed").mkdir()
    (root / "sealed" / "manifest.json").write_text("{}")

    result = run_script(words.format(root=root).split(), CORPUSMILL_WORKERS="many" if words == "{root}" else "1")

    assert (result.returncode, result.stderr) == (1, f"run_local.sh: {line.format(root=root)}\n")
    assert [path.name for path in root.rglob("*")] == ["sealed", "manifest.json"]


def run_script(words: list[str], **variables: str) -> subprocess.CompletedProcess[str]:
    """Run run_local.sh with the programs of this environment."""
    variables = {"CORPUSMILL_BIN": str(Path(sys.executable).parent), **variables}
    script = PROJECT / "docker" / "run_local.sh"
    return subprocess.run([script, *words], env={**os.environ, **variables}, capture_output=True, text=True)


@pytest.mark.slow
def test_services_end_with_a_killed_script_and_the_next_one_starts(root: Path) -> None:
    with Services(root, {}) as services:
        killed = [services.pid(name) for name in NAMES]
        services.process.kill()
        services.process.wait()

        with Services(root, {}) as restarted:
            remaining = {restarted.pid(name) for name in NAMES}
            processes = restarted.processes()

    assert remaining.isdisjoint(killed)
    assert not set(processes) & set(killed)


@pytest.mark.slow
def test_a_second_script_is_refused_and_ctrl_c_stops_all_services(root: Path) -> None:
    with Services(root, {}) as services:
        script, other = PROJECT / "docker" / "run_local.sh", root / "other"
        private = Path(services.environment()["TMPDIR"])
        assert (private / "code").is_socket()
        assert private.stat().st_mode & 0o777 == 0o700  # a code server runs the code of anyone who reaches it
        second = subprocess.run([script, root, "1"], capture_output=True, text=True)
        port = str(free_port())
        same = subprocess.run([script, other, port], env=services.environment(), capture_output=True, text=True)

        check_stop(services, signal.SIGINT, 130)

    assert not private.exists()
    assert second.returncode == 1
    assert second.stderr == f"run_local.sh: another run_local.sh serves {root}; stop it, or choose another data root\n"
    assert same.returncode == 1
    assert same.stderr.startswith("run_local.sh: another run_local.sh uses database postgres of 127.0.0.1:")
    assert same.stderr.endswith("; stop it, or give each data root a database of its own\n")


@pytest.mark.slow
@pytest.mark.usefixtures("_default_hangup")
def test_a_closed_terminal_stops_all_services_although_it_sends_two_signals(root: Path) -> None:
    with Services(root, {}) as services:
        services.process.send_signal(signal.SIGHUP)  # by the system
        time.sleep(0.2)

        status = services.stop(signal.SIGHUP)  # by the shell

        assert (status, services.processes(), [*services.home.glob("*.pid")]) == (129, [], [])


@pytest.mark.slow
def test_a_daemon_without_memory_is_replaced_until_a_signal_stops_all_services(root: Path) -> None:
    with Services(root, {}) as services:
        before = services.pid("daemon")
        services.wait_for(lambda: bool(list_ticks(services)), "a tick")

        resource.prlimit(before, resource.RLIMIT_AS, (1 << 20, 1 << 20))
        services.wait_for(lambda: "daemon died" in services.output(), "the end of the daemon")

        services.wait_for(lambda: services.pid("daemon") != before, "another daemon")
        last_tick = max(list_ticks(services))
        services.wait_for(lambda: max(list_ticks(services)) > max(last_tick, time.time() - 30), "a new tick")

        check_stop(services, signal.SIGTERM, 143)


def run_stubs(root: Path, stubs: dict[str, str], **variables: str) -> subprocess.CompletedProcess[str]:
    """Run run_local.sh on `root` with shell scripts in place of some programs."""
    folder = root.with_name("bin")
    folder.mkdir(exist_ok=True)
    for name, script in {"python": f'exec {sys.executable} "$@"', "dagster-daemon": "", **stubs}.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    for path in (root, root.parent):  # for PostgreSQL's own user
        path.chmod(0o755)
    command = [PROJECT / "docker" / "run_local.sh", root, str(free_port())]
    variables = {"CORPUSMILL_BIN": str(folder), "PATH": f"{folder}:{os.environ['PATH']}", **variables}
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **variables})


@pytest.mark.slow
def test_the_fifth_death_of_a_service_stops_all_services(root: Path) -> None:
    variables = {f"DAGSTER_PG_{name}": "other" for name in ("HOST", "DB", "USER", "PASSWORD")}

    code = f'[ "$2" != pipeline_assets.code_server ] || exit 7; exec {sys.executable} "$@"'
    result = run_stubs(root, {"dagster": "", "dagster-daemon": "exec sleep 600", "python": code}, **variables)

    assert result.returncode == 1
    assert result.stderr.splitlines() == [
        *["run_local.sh: code died with status 7; starting it again"] * 4,
        "run_local.sh: code died 5 times in five minutes, at last with status 7",
    ]


@pytest.mark.slow
def test_an_incomplete_database_is_recreated(root: Path) -> None:
    home = root / "dagster" / "server"
    home.mkdir(parents=True)
    (home / "password").write_text("")  # as after a kill before the write
    stubs = {"initdb": 'echo 15 > "$2/PG_VERSION"; exit 1'}  # the folder is `-D`

    errors = [run_stubs(root, stubs).stderr for _ in range(2)]

    assert errors == [f"run_local.sh: initdb failed in {home}; its user needs access to the folder\n"] * 2
    assert len((home / "password").read_text()) == 33


def list_ticks(services: Services) -> list[float]:
    """Return the times of ticks of the sensor that watches the data root."""
    query = """{sensorOrError(sensorSelector: {repositoryName: "__repository__", repositoryLocationName: "pipeline",
        sensorName: "sealed_artifacts"}) {... on Sensor {sensorState {ticks(limit: 20) {timestamp}}}}}"""
    return [tick["timestamp"] for tick in services.query(query)["sensorOrError"]["sensorState"]["ticks"]]
