"""The instance of docker/: its configuration opens a real PostgreSQL and keeps a run there."""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from free_ports import free_port

PROJECT = Path(__file__).parents[1]
RUN = """
import dagster as dg
@dg.asset
def something() -> None: ...
with dg.DagsterInstance.get() as instance:
    assert dg.materialize([something], instance=instance).success
    print(len(instance.get_runs()), type(instance.run_storage).__name__, type(instance.run_coordinator).__name__)
"""


def postgres_binary(name: str) -> str | None:
    found = shutil.which(name) or next(iter(sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))), None)
    return str(found) if found else None


@pytest.fixture
def database(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A throwaway PostgreSQL, as the environment that docker/compose.yaml gives."""
    initdb, server = postgres_binary("initdb"), postgres_binary("postgres")
    if initdb is None or server is None:
        pytest.skip("PostgreSQL is not installed here")
    user = {"user": "postgres", "group": "postgres"} if os.geteuid() == 0 else {}
    folder = tmp_path / "postgres"
    folder.mkdir()
    if user:
        shutil.chown(folder, "postgres", "postgres")
        for parent in (tmp_path, *tmp_path.parents[:3]):
            parent.chmod(parent.stat().st_mode | 0o111)
    subprocess.run([initdb, "-D", folder, "-U", "dagster", "-A", "trust"], check=True, capture_output=True, **user)
    port = free_port()
    process = subprocess.Popen([server, "-D", folder, "-p", str(port), "-k", folder], stderr=subprocess.DEVNULL, **user)
    try:
        deadline = time.monotonic() + 30
        while socket.socket().connect_ex(("127.0.0.1", port)) != 0:
            assert time.monotonic() < deadline, "PostgreSQL did not start"
            time.sleep(0.1)
        yield {"port": str(port)}
    finally:
        process.terminate()
        process.wait()


@pytest.mark.slow
def test_the_docker_instance_keeps_its_runs_in_postgres(database: dict[str, str], tmp_path: Path) -> None:
    pytest.importorskip("dagster_postgres", reason="dagster-postgres is not installed")
    config = yaml.safe_load((PROJECT / "docker" / "dagster.yaml").read_text())
    config["storage"]["postgres"]["postgres_db"]["port"] = int(database["port"])
    for section in ("compute_logs", "local_artifact_storage"):
        config[section]["config"]["base_dir"] = str(tmp_path / "logs")
    home = tmp_path / "home"
    home.mkdir()
    (home / "dagster.yaml").write_text(yaml.safe_dump(config))
    postgres = {"HOST": "127.0.0.1", "DB": "postgres", "USER": "dagster", "PASSWORD": "unused"}
    environment = {**os.environ, "DAGSTER_HOME": str(home)} | {f"DAGSTER_PG_{k}": v for k, v in postgres.items()}

    result = subprocess.run([sys.executable, "-c", RUN], env=environment, capture_output=True, text=True)

    assert result.stdout.split() == ["1", "PostgresRunStorage", "QueuedRunCoordinator"], result.stderr


def test_compose_starts_a_web_server_a_daemon_and_a_database_on_one_volume() -> None:
    compose = yaml.safe_load((PROJECT / "docker" / "compose.yaml").read_text())

    services = compose["services"]
    assert sorted(services) == ["daemon", "postgres", "webserver"]
    assert services["webserver"]["volumes"] == services["daemon"]["volumes"] == ["data:/data"]
    assert services["webserver"]["ports"] == ["127.0.0.1:3000:3000"]
