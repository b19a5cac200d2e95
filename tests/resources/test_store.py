"""Settings of the store: its config, then CORPUSMILL_* variables, then defaults."""

import math
import sys
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from refusals import refusal

from pipeline_assets.build.run import Run
from pipeline_assets.code_location import build_definitions
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.spine.start_method import default_start_method
from resources.modal_launcher import ModalLauncherFactory
from resources.store import Hub, Launcher, Store, Tokenizer, data_root

ENGINE = RunSettings(
    2, default_start_method(), 10, min_parallel_bytes=6 << 20, intermediate_zstd_level=1, worker_bytes=924 << 20
)
SETTINGS = ("DATA", "WORKERS", "START_METHOD", "ZSTD_LEVEL", "LOG_EVERY", "HUB_TRIES", "ENGINE", "MEMORY_MIB")


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SETTINGS:
        monkeypatch.delenv(f"CORPUSMILL_{name}", raising=False)


def make_run(store: Store, launcher: Launcher | None = None, tries: int | None = None) -> Run:
    return store.make_run(data_root(), Hub(tries=tries).files(data_root()), Tokenizer(), launcher or Launcher())


def use_all(run: Run) -> tuple[Path, RunSettings, int]:
    return run.root, run.settings, run.require_hub("a test").tries


@pytest.mark.parametrize("empty", [None, *SETTINGS])
def test_missing_config_and_empty_variables_mean_defaults(
    empty: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if empty is not None:
        monkeypatch.setenv(f"CORPUSMILL_{empty}", "")

    assert use_all(make_run(Store())) == (tmp_path / "data", ENGINE, 6)


def test_missing_settings_are_read_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store()
    for name, value in zip(SETTINGS, (str(tmp_path), "0", "forkserver", "22", "60", "1", "local", "2048"), strict=True):
        monkeypatch.setenv(f"CORPUSMILL_{name}", value)

    engine = RunSettings(0, "forkserver", 60, min_parallel_bytes=6 << 20, zstd_level=22, worker_bytes=1848 << 20)
    assert use_all(make_run(store)) == (tmp_path, engine, 1)


def test_config_overrides_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"WORKERS": "many", "HUB_TRIES": "many", "ENGINE": "local", "MEMORY_MIB": "1000"}.items():
        monkeypatch.setenv(f"CORPUSMILL_{name}", value)

    by_config, shared = make_run(Store(engine="ray", workers=8), tries=2), make_run(Store(workers=8), tries=2)

    assert by_config.require_hub("a test").tries == 2
    settings = by_config.settings
    assert (settings.engine, settings.workers, settings.worker_bytes) == ("ray", 8, 1000 << 20)
    assert by_config.provenance()["engine"] == "ray"
    assert (shared.settings.engine, shared.settings.worker_bytes) == ("local", 100 << 20)
    assert make_run(Store(workers=0), tries=2).settings.workers == 0


def test_ray_without_its_extra_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.setattr(sys, "path_importer_cache", {})
    monkeypatch.delitem(sys.modules, "ray", raising=False)

    assert refusal(lambda: make_run(Store(engine="ray")), UsageError) == (
        "ray: ray is not installed; in the project's folder run .venv/bin/python -m pip install -c constraints.txt "
        "-e '.[ray]'"
    )


@pytest.mark.parametrize(
    ("name", "rule", "values"),
    [
        ("ZSTD_LEVEL", "must be an integer from 1 to 22", ["0", "23", "99", "-3", "best", "3.0"]),
        ("WORKERS", "must be an integer >= 0", ["-1", "two", "1e3", " 2", "²"]),
        ("LOG_EVERY", "must be an integer >= 1", ["0", "0.5", "10s"]),
        ("HUB_TRIES", "must be an integer >= 1", ["0", "-1", "often"]),
        ("START_METHOD", "must be forkserver or spawn", ["fork", "thread", "Spawn", "spawn "]),
        ("ENGINE", "must be local or ray", ["spark", "Ray", "0"]),
    ],
)
def test_invalid_variable_is_named_with_its_value_and_its_range(
    name: str, rule: str, values: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for value in values:
        monkeypatch.setenv(f"CORPUSMILL_{name}", value)

        refused = refusal(lambda: make_run(Store()), UsageError)
        assert refused == f"CORPUSMILL_{name}: {rule}, got {value!r}; correct it"


WRONG: list[tuple[str, str, object, str]] = [
    ("store", "workers", -1, ">= 0, got -1"),
    ("store", "wait_for_builder_s", -0.5, ">= 0, got -0.5"),
    ("store", "wait_for_builder_s", math.nan, ">= 0, got nan"),
    ("store", "fetch_threads", 0, ">= 1, got 0"),
    ("store", "keep_versions", 0, ">= 1, got 0"),
    ("store", "engine", "spark", "local or ray, got 'spark'"),
    ("hub", "tries", 0, ">= 1, got 0"),
    ("launcher", "name", "nowhere", "local or modal, got 'nowhere'"),
    ("launcher", "cost_limit", -1.0, ">= 0, got -1.0"),
    ("launcher", "split_cost_limit", -1.0, ">= 0, got -1.0"),
    ("tokenizer", "family", "gpt2", "o200k_harmony, got 'gpt2'"),
]


@pytest.fixture(scope="module")
def healing_job(tmp_path_factory: pytest.TempPathFactory) -> dg.JobDefinition:
    return build_definitions(tmp_path_factory.mktemp("root")).resolve_job_def("healing_text_v1")


@pytest.fixture(scope="module")
def instance() -> Iterator[dg.DagsterInstance]:
    """Create one instance for all runs, because that takes longer than a run."""
    with dg.DagsterInstance.ephemeral() as created:
        yield created


@pytest.mark.parametrize(("resource", "name", "value", "rule"), WRONG)
def test_wrong_launchpad_value_fails_the_step_in_one_line(
    resource: str, name: str, value: object, rule: str, healing_job: dg.JobDefinition, instance: dg.DagsterInstance
) -> None:
    # Dagster runs a job again, twice, if a resource cannot be created; it does not after a failed step.
    config = {"resources": {resource: {"config": {name: value}}}}

    run = healing_job.execute_in_process(config, instance=instance, raise_on_error=False)

    [event] = run.filter_events(lambda event: event.is_step_failure)
    failure = event.step_failure_data.user_failure_data
    assert failure is not None
    assert failure.description == f"the resource `{resource}`: `{name}` must be {rule}; correct it"


@pytest.mark.parametrize("field", ["zstd_level", "start_method", "log_every_s"])
def test_settings_of_the_environment_alone_are_not_config_fields(field: str) -> None:
    assert field not in Store.model_fields


def test_launcher_is_selected_by_config_or_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LAUNCHER", "MODAL_COST_LIMIT"):
        monkeypatch.delenv(f"CORPUSMILL_{name}", raising=False)

    def build_launcher(**config: object) -> object:
        launcher = Launcher(**config)
        first, second = (make_run(Store(), launcher).remote_launcher for _ in range(2))
        assert first is second  # the steps of a run share one limit
        return first

    assert build_launcher() is None
    chosen = build_launcher(name="modal", cost_limit=5, split_cost_limit=2)
    monkeypatch.setenv("CORPUSMILL_LAUNCHER", "modal")
    monkeypatch.setenv("CORPUSMILL_MODAL_COST_LIMIT", "7")
    from_environment = build_launcher()

    assert isinstance(chosen, ModalLauncherFactory) and isinstance(from_environment, ModalLauncherFactory)
    assert (chosen.settings.cost_limit, from_environment.settings.cost_limit) == (5, 7)
    assert (chosen.settings.split_cost_limit, from_environment.settings.split_cost_limit) == (2, None)
    assert build_launcher(name="local") is None
    monkeypatch.setenv("CORPUSMILL_LAUNCHER", "nowhere")
    with pytest.raises(UsageError, match="CORPUSMILL_LAUNCHER: must be one of local, modal, got 'nowhere'"):
        build_launcher()
