"""Files of docker/: an image, its services, and their instance on PostgreSQL.

No image is built: one test replays the steps of the build, others read the files like their tools.
"""

import os
import re
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
from image_steps import instructions, replay, send_context

from pipeline_assets.attributes import OWNERS_VARIABLE, TAGS_VARIABLE
from pipeline_assets.build.run import SETTINGS
from pipeline_assets.commands.settings import invalid_settings
from pipeline_assets.corpus.scoring.modal_settings import VARIABLE_NAMES, ModalSettings
from resources.launchers import LAUNCHER_VARIABLE
from resources.webhook import WEBHOOK_VARIABLE

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
    path = shutil.which(name) or next(iter(sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))), None)
    return str(path) if path else None


@pytest.fixture
def database(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Run a temporary PostgreSQL with the settings of docker/compose.yaml."""
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
def test_docker_instance_stores_its_runs_in_postgres(database: dict[str, str], tmp_path: Path) -> None:
    pytest.importorskip("dagster_postgres", reason="dagster-postgres is not installed")
    shutil.copy(PROJECT / "docker" / "dagster.yaml", tmp_path)
    environment = {**os.environ, "DAGSTER_HOME": str(tmp_path), "CORPUSMILL_SERVER_LOGS": str(tmp_path / "logs")}
    environment |= {"DAGSTER_PG_HOST": "127.0.0.1", "DAGSTER_PG_PORT": database["port"], "DAGSTER_PG_DB": "postgres"}
    environment |= {"DAGSTER_PG_USER": "dagster", "DAGSTER_PG_PASSWORD": "unused"}

    result = subprocess.run([sys.executable, "-c", RUN], env=environment, capture_output=True, text=True)

    assert result.stdout.split() == ["1", "PostgresRunStorage", "QueuedRunCoordinator"], result.stderr


SERVICES = yaml.safe_load((PROJECT / "docker" / "compose.yaml").read_text())["services"]
RUNNING = ("postgres", "code", "webserver", "daemon")
SECRETS = {"HF_TOKEN", "MODAL_TOKEN_ID", "MODAL_TOKEN_SECRET"}


def test_only_services_that_build_have_tokens_and_run_settings() -> None:
    with_tokens = {name for name, service in SERVICES.items() if set(service.get("environment", {})) & SECRETS}

    assert with_tokens == {"code", "corpusmill"}
    passed = {setting.variable for setting in SETTINGS} | {*VARIABLE_NAMES, LAUNCHER_VARIABLE, WEBHOOK_VARIABLE}
    passed |= {OWNERS_VARIABLE, TAGS_VARIABLE, "RAY_ADDRESS", "HF_ENDPOINT"}
    for name in with_tokens:
        assert set(SERVICES[name]["environment"]) >= SECRETS | passed
        assert [volume.rpartition("}:")[2] for volume in SERVICES[name]["volumes"]] == ["/data", "/input:ro"]


def test_settings_that_are_not_in_docker_env_have_their_defaults() -> None:
    values = {name: "" for name, value in SERVICES["code"]["environment"].items() if str(value).endswith(":-}")}

    assert len(values) > 30
    assert invalid_settings(values) == []
    assert ModalSettings.from_mapping(values) == ModalSettings.from_mapping({})


def test_services_restart_in_the_order_of_their_dependencies_and_the_ui_is_on_loopback() -> None:
    for name in RUNNING:
        assert {"healthcheck", "mem_limit"} <= set(SERVICES[name]) and SERVICES[name]["restart"] == "unless-stopped"
        assert name == "postgres" or SERVICES[name]["init"] is True
    assert SERVICES["migrate"]["command"] == ["dagster", "instance", "migrate"]
    needs = {
        name: {other: how["condition"] for other, how in SERVICES[name]["depends_on"].items()} for name in RUNNING[1:]
    }
    assert needs == {
        "code": {"migrate": "service_completed_successfully"},
        "webserver": {"code": "service_healthy"},
        "daemon": {"code": "service_healthy"},
    }
    assert {name for name, service in SERVICES.items() if "ports" in service} == {"webserver"}
    assert [port.partition(":")[0] for port in SERVICES["webserver"]["ports"]] == ["127.0.0.1"]


def test_instances_of_a_server_and_of_a_data_root_have_equal_limits() -> None:
    server, embedded = (
        yaml.safe_load((PROJECT / path).read_text()) for path in ("docker/dagster.yaml", "dagster.yaml")
    )

    for settings in (server, embedded):
        for place in ("storage", "compute_logs", "local_artifact_storage", "run_queue"):
            settings.pop(place, None)
    assert server == embedded
    assert {"run_retries", "retention", "code_servers", "run_monitoring"} <= set(server)


def test_hadolint_accepts_the_dockerfile() -> None:
    hadolint = Path(sys.executable).parent / "hadolint"
    if not hadolint.exists():
        pytest.skip("hadolint is not installed here")

    result = subprocess.run([hadolint, PROJECT / "docker" / "Dockerfile"], capture_output=True, text=True)

    assert (result.returncode, result.stdout) == (0, "")


def compose_program() -> list[str]:
    """Return the command of docker compose, version 1 or 2; skip if not installed."""
    for command in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(command[0]) and subprocess.run([*command, "version"], capture_output=True).returncode == 0:
            return command
    pytest.skip("docker compose is not installed here")


@pytest.mark.slow
def test_compose_accepts_its_file_and_requires_a_password() -> None:
    command = [*compose_program(), "-f", str(PROJECT / "docker" / "compose.yaml"), "config"]
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("DAGSTER_", "CORPUSMILL_"))
    }

    without = subprocess.run(command, env=environment, capture_output=True, text=True)
    with_values = environment | {
        "DAGSTER_PG_PASSWORD": "secret",
        "CORPUSMILL_HOST_INPUT": "/corpora",
        "CORPUSMILL_ENGINE": "ray",
    }
    result = subprocess.run(command, env=with_values, capture_output=True, text=True)

    assert without.returncode != 0 and "set a password" in without.stderr
    assert result.returncode == 0, result.stderr
    resolved = yaml.safe_load(result.stdout)["services"]["code"]
    assert resolved["environment"]["CORPUSMILL_ENGINE"] == "ray"
    assert "/corpora" in str(resolved["volumes"])


def test_image_has_the_extras_of_shipped_recipes() -> None:
    [extras] = re.findall(r'^ARG EXTRAS="(.*)"$', (PROJECT / "docker" / "Dockerfile").read_text(), re.MULTILINE)
    recipes = "".join(path.read_text() for path in (PROJECT / "manifests" / "recipes").glob("*.yaml"))

    needs = {
        *({"stackexchange"} if ".7z" in recipes else ()),
        *({"languages"} if "language:" in recipes else ()),
        *({"tokenizers"} if "vocab_size" in recipes else ()),
        *({"scoring"} if "score:" in recipes or "scoring:" in recipes else ()),
    }
    assert {"stackexchange", "languages", "tokenizers"} <= needs | {"postgres"} <= set(extras.split())


def test_image_build_accepts_the_package_indexes_of_the_environment() -> None:
    arguments = [rest for name, rest in instructions("build") if name == "ARG" and "=" not in rest]

    assert arguments == SERVICES["code"]["build"]["args"] == ["PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"]


def test_unknown_extra_is_named() -> None:
    script = [sys.executable, PROJECT / "docker" / "requirements.py", "postgres", "nonsense"]

    result = subprocess.run(script, cwd=PROJECT, capture_output=True, text=True)

    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("EXTRAS must be of dev, ") and result.stderr.endswith("; got nonsense\n")


@pytest.mark.slow
def test_image_steps_install_the_program_with_compiled_kernels(tmp_path: Path) -> None:
    """Dependencies come from the package index, without torch and Ray (gigabytes)."""
    context, image = tmp_path / "context", tmp_path / "image"
    context.mkdir()
    image.mkdir()
    send_context(context)

    environment = replay("build", context, image, {"EXTRAS": "languages postgres stackexchange tokenizers"})

    kernels = {path for path in (image / "kernels").rglob("*") if path.suffix in (".nbi", ".nbc")}
    code = "import dagster_postgres, pipeline_assets.definitions as d; print(d.__file__, bool(d.defs.jobs))"
    variables = {**environment, "CORPUSMILL_DATA": str(tmp_path / "data")}
    loaded = subprocess.run(["python", "-c", code], env=variables, cwd=tmp_path, capture_output=True, text=True)
    demo = subprocess.run(
        ["corpusmill", "smoke", "--out-dir", tmp_path / "smoke"], env=environment, cwd=tmp_path, capture_output=True
    )
    assert kernels
    assert loaded.stdout.split() == [
        f"{image}/venv/lib/python3.11/site-packages/pipeline_assets/definitions.py",
        "True",
    ]
    assert demo.returncode == 0, demo.stderr
    assert {path for path in (image / "kernels").rglob("*") if path.suffix in (".nbi", ".nbc")} == kernels
