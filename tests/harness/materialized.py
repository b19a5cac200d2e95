"""Materialization of assets in memory, as the Dagster UI does it."""

from pathlib import Path

import dagster as dg
from dagster._core.definitions.job_base import InMemoryJob
from dagster._core.definitions.sensor_definition import SensorExecutionData
from dagster._core.execution.api import create_execution_plan, execute_run
from dagster._core.storage.tags import PARTITION_NAME_TAG, SCHEDULED_EXECUTION_TIME_TAG

from pipeline_assets.code_location import build_definitions
from resources.store import Hub, Launcher, Store, Tokenizer

NOWHERE = "http://127.0.0.1:9"  # where no hub answers
QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


def resources(endpoint: str = NOWHERE, **store: object) -> dict[str, dg.ConfigurableResource]:
    """Return the resources of a code location that works in this process."""
    chosen = Store(**{"workers": 0, **store})
    return {"store": chosen, "hub": Hub(endpoint=endpoint), "tokenizer": Tokenizer(), "launcher": Launcher()}


class Materialized:
    """Definitions of a data root with a hub at an endpoint."""

    def __init__(self, root: Path, endpoint: str) -> None:
        self.definitions = build_definitions(root)
        self.instance = dg.DagsterInstance.ephemeral()
        self.endpoint = endpoint

    def __call__(
        self, recipe: str, *artifacts: str, partition: str | None = None, **store: object
    ) -> dg.ExecuteInProcessResult:
        """Materialize artifacts of a recipe; all of them if none is named."""
        assets = [asset for asset in self.definitions.assets or [] if isinstance(asset, dg.AssetsDefinition)]
        chosen = [
            asset
            for asset in assets
            if asset.key.path[1:-1] == [recipe] and (not artifacts or asset.key.path[2] in artifacts)
        ]
        assert len(chosen) >= len(artifacts)
        return dg.materialize(
            assets,
            selection=dg.AssetSelection.assets(*chosen),
            partition_key=partition,
            instance=self.instance,
            run_config=QUIET,
            resources=resources(self.endpoint, **store),
        )


def execute_some_steps(
    root: Path, instance: dg.DagsterInstance, recipe: str, partition: str, steps: list[str]
) -> dg.DagsterRun:
    """Execute only `steps` of a run of all assets, as "re-execute from failure" does.

    `steps` are names of artifacts.
    """
    job = build_definitions(root).resolve_implicit_global_asset_job_def()
    keys = {key for key in job.asset_layer.selected_asset_keys if key.path[1:-1] == [recipe]}
    job = job.get_subset(asset_selection=keys)
    tags = {PARTITION_NAME_TAG: partition}
    step_keys = [f"stage_a__{recipe}__{step}" for step in steps]
    plan = create_execution_plan(job, QUIET, step_keys_to_execute=step_keys, tags=tags)
    run = instance.create_run_for_job(job, plan, run_config=QUIET, tags=tags, asset_selection=keys)
    execute_run(InMemoryJob(job), run, instance)
    ended = instance.get_run_by_id(run.run_id)
    assert ended is not None
    return ended


def find_job(root: Path, name: str) -> dg.JobDefinition:
    return build_definitions(root).resolve_job_def(name)


def run_job(
    job: dg.JobDefinition,
    instance: dg.DagsterInstance,
    endpoint: str = NOWHERE,
    due: str | None = None,
    **store: object,
) -> dg.ExecuteInProcessResult:
    """Run a job like a schedule that is due; failures are in the result."""
    tags = {SCHEDULED_EXECUTION_TIME_TAG: due} if due else {}
    used = resources(endpoint, **store)
    return job.execute_in_process(instance=instance, raise_on_error=False, tags=tags, resources=used, run_config=QUIET)


def materialization(result: dg.ExecuteInProcessResult, artifact: str) -> dg.AssetMaterialization:
    [event] = [
        event.step_materialization_data.materialization
        for event in result.get_asset_materialization_events()
        if event.step_materialization_data.materialization.asset_key.path[2] == artifact
    ]
    return event


def has_materialized(result: dg.ExecuteInProcessResult) -> bool:
    return bool(result.get_asset_materialization_events())


def evaluate_external_sensor(
    root: Path, instance: dg.DagsterInstance, cursor: str | None = None, endpoint: str = NOWHERE
) -> SensorExecutionData:
    """Evaluate a tick of the sensor of external sources."""
    [sensor] = [sensor for sensor in build_definitions(root).sensors or [] if sensor.name == "external_sources"]
    hub = {"hub": Hub(endpoint=endpoint)}
    with dg.build_sensor_context(instance=instance, cursor=cursor, resources=hub) as context:
        return sensor.evaluate_tick(context)
