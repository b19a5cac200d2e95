"""Freshness of what schedules run, checked partition for partition.

Dagster's own policies look at an asset as a whole. An artifact is overdue if it is not as its recipe asks, and was
neither built nor brought up to date by a whole run since the last tick of the schedule but one: a run may take as long
as the time between two ticks.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg

from pipeline_assets.assets import name_in_dagster
from pipeline_assets.build.recipe import Recipe
from pipeline_assets.build.recipe_paths import recipe_path
from pipeline_assets.build.target import Target
from pipeline_assets.compat import latest_completed_tick
from pipeline_assets.events import by_kind, describe_results
from pipeline_assets.schedules import ScheduleSection
from pipeline_assets.spine.artifact import CheckResult
from pipeline_assets.spine.manifest import FILE_NAME
from pipeline_assets.versions import asset_key

_EVERY_S = 60


class Freshness:
    """The question of one schedule that runs a recipe, asked of every asset of that recipe."""

    def __init__(self, section: ScheduleSection, recipe: Recipe, root: Path) -> None:
        self._section, self._root, self._recipe = section, root, recipe
        self._targets = {asset_key(kind, recipe.name): targets for kind, targets in by_kind(recipe).items()}
        name = f"fresh_by_{name_in_dagster(section.name)}"
        question = f"Each partition is as {recipe.name} asks, or was when {section.name} struck last but once"
        self._specs = [dg.AssetCheckSpec(name, asset=key, description=question) for key in self._targets]

    def checks(self) -> dg.AssetChecksDefinition:
        """As the UI offers it."""

        @dg.multi_asset_check(name=f"{name_in_dagster(self._section.name)}__fresh", specs=self._specs)
        def evaluate(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
            for spec, results in self.results(context.instance, datetime.now(UTC)):
                yield dg.AssetCheckResult(check_name=spec.name, asset_key=spec.asset_key, **describe_results(results))

        return evaluate

    def results(
        self, instance: dg.DagsterInstance, now: datetime
    ) -> Iterator[tuple[dg.AssetCheckSpec, dict[str | None, CheckResult]]]:
        """What is to be said of each asset, by partition."""
        cron, timezone = self._section.cron, self._section.timezone
        last = latest_completed_tick(cron, now, timezone)
        struck = latest_completed_tick(cron, datetime.fromtimestamp(last.timestamp() - 1, UTC), timezone)
        ran = self._last_run(instance)
        for spec in self._specs:
            targets = self._targets[spec.asset_key]
            yield spec, {target.partition: self._result(target, spec.name, struck, ran) for target in targets}

    def _result(self, target: Target, name: str, struck: datetime, ran: datetime) -> CheckResult:
        state, reason = target.state(self._root)
        if state == "current":
            return CheckResult(name, True, False, "as the recipe asks")
        if max(ran, _written(self._root / target.folder / FILE_NAME)) >= struck:
            return CheckResult(name, True, False, f"{state} since the last run ({reason})")
        return CheckResult(name, False, False, f"overdue since {struck:%Y-%m-%d %H:%M %Z}: {state} ({reason})")

    def _last_run(self, instance: dg.DagsterInstance) -> datetime:
        """When a run last ended with all as the recipe asks; else since when the recipe says what it does."""
        wanted = dg.RunsFilter(job_name=name_in_dagster(self._recipe.name), statuses=[dg.DagsterRunStatus.SUCCESS])
        ended = [record.end_time or 0.0 for record in instance.get_run_records(wanted, limit=1)]
        written = _written(recipe_path(self._recipe.name, self._root))
        return max(written, datetime.fromtimestamp(max(ended, default=0.0), UTC))


def _written(path: Path) -> datetime:
    """Return when a file was written; long ago where there is none."""
    try:
        return datetime.fromtimestamp(path.stat().st_mtime, UTC)
    except (FileNotFoundError, NotADirectoryError):
        return datetime.fromtimestamp(0, UTC)


def watch(fresh: Sequence[Freshness]) -> dg.SensorDefinition:
    """The sensor that asks whether anything is overdue, once a minute, and reports what changed."""

    @dg.sensor(
        name="freshness",
        description="Asks whether what schedules run is overdue",
        minimum_interval_seconds=_EVERY_S,
        default_status=dg.DefaultSensorStatus.RUNNING,
    )
    def freshness(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        known: dict[str, str] = json.loads(context.cursor or "{}")
        found, events = dict[str, str](), []
        for one in fresh:
            for spec, results in one.results(context.instance, datetime.now(UTC)):
                event = dg.AssetCheckEvaluation(
                    asset_key=spec.asset_key, check_name=spec.name, **describe_results(results)
                )
                name = event.asset_check_key.to_user_string()
                newest = context.instance.fetch_materializations(event.asset_key, limit=1).records
                of = newest[0].storage_id if newest else None  # what was said before it counts as said of another one
                found[name] = hashlib.sha256(f"{of} {event.passed} {event.description}".encode()).hexdigest()[:16]
                if known.get(name) != found[name]:
                    events.append(event)
        return dg.SensorResult(asset_events=events, cursor=json.dumps(found))

    return freshness
