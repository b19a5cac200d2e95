"""Freshness of scheduled recipes, checked for each partition.

Dagster's own freshness policies cover only whole assets. An artifact that is not up to date is overdue if three events
were all before the schedule's second-last tick: the artifact's last build, the recipe's last edit and the recipe's last
successful run. Times more than a day in the future come from a wrong clock and are ignored.
"""

import contextlib
import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg

from pipeline_assets.assets import dagster_name
from pipeline_assets.build.recipe import Recipe
from pipeline_assets.build.recipe_paths import recipe_path
from pipeline_assets.build.target import Target
from pipeline_assets.compat import latest_completed_tick
from pipeline_assets.events import check_event_fields, targets_by_kind
from pipeline_assets.schedules import ScheduleSection
from pipeline_assets.sensor_cursor import read_cursor
from pipeline_assets.spine.artifact import CheckResult
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.manifest import MANIFEST_FILE
from pipeline_assets.versions import asset_key

_INTERVAL_S, _DAY_S = 60, 86_400


class FreshnessChecks:
    """Freshness checks for the assets that a scheduled recipe builds."""

    def __init__(self, section: ScheduleSection, recipe: Recipe, root: Path) -> None:
        self._section, self._root, self._recipe = section, root, recipe
        self._targets = {asset_key(kind, recipe.name): targets for kind, targets in targets_by_kind(recipe).items()}
        name = f"fresh_by_{dagster_name(section.name)}"
        description = f"Each partition matches {recipe.name}, or did at the second-last tick of {section.name}"
        self._specs = [dg.AssetCheckSpec(name, asset=key, description=description) for key in self._targets]

    def checks_definition(self) -> dg.AssetChecksDefinition:
        """Return the asset checks that the UI can run."""

        # Backfills and runs of some of the assets need a subset.
        @dg.multi_asset_check(name=f"{dagster_name(self._section.name)}__fresh", specs=self._specs, can_subset=True)
        def evaluate(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
            for spec, results in self.results(context.instance, datetime.now(UTC)):
                if spec.key not in context.selected_asset_check_keys:
                    continue
                yield dg.AssetCheckResult(check_name=spec.name, asset_key=spec.asset_key, **check_event_fields(results))

        return evaluate

    def results(
        self, instance: dg.DagsterInstance, now: datetime
    ) -> Iterator[tuple[dg.AssetCheckSpec, dict[str | None, CheckResult]]]:
        """Yield each asset's check, with the result of each partition at the time `now`."""
        cron, timezone = self._section.cron, self._section.timezone
        last = latest_completed_tick(cron, now, timezone)
        deadline = latest_completed_tick(cron, datetime.fromtimestamp(last.timestamp() - 1, UTC), timezone)
        window = (deadline, now.timestamp() + _DAY_S)
        is_active = _has_time_in(window, self._activity_times_s(instance))
        for spec in self._specs:
            targets = self._targets[spec.asset_key]
            yield spec, {target.partition: self._check_target(target, spec, window, is_active) for target in targets}

    def _check_target(
        self, target: Target, spec: dg.AssetCheckSpec, window: tuple[datetime, float], was_active: bool
    ) -> CheckResult:
        state, reason = target.state(self._root)
        if state == "current":
            return CheckResult(spec.name, True, False, "up to date")
        if was_active or _has_time_in(window, [_modification_time_s(self._root / target.folder / MANIFEST_FILE)]):
            return CheckResult(spec.name, True, False, f"{state} since the last run ({reason})")
        return CheckResult(spec.name, False, False, f"overdue since {window[0]:%Y-%m-%d %H:%M %Z}: {state} ({reason})")

    def _activity_times_s(self, instance: dg.DagsterInstance) -> list[float]:
        """Return the times of the recipe's last successful run and last edit, if known."""
        successes = dg.RunsFilter(job_name=dagster_name(self._recipe.name), statuses=[dg.DagsterRunStatus.SUCCESS])
        times_s = [record.end_time or 0.0 for record in instance.get_run_records(successes, limit=1)]
        with contextlib.suppress(InputError):  # removed or broken since definitions were loaded
            times_s.append(_modification_time_s(recipe_path(self._recipe.name, self._root)))
        return times_s


def _has_time_in(window: tuple[datetime, float], times_s: Iterable[float]) -> bool:
    return any(window[0].timestamp() <= time_s <= window[1] for time_s in times_s)


def _modification_time_s(path: Path) -> float:
    """Return the modification time of a file in seconds since 1970; 0 if missing."""
    try:
        return path.stat().st_mtime
    except (FileNotFoundError, NotADirectoryError):
        return 0.0


def freshness_sensor(all_checks: Sequence[FreshnessChecks]) -> dg.SensorDefinition:
    """Return the sensor that runs the freshness checks and reports changed results."""

    @dg.sensor(
        name="freshness",
        description="Checks whether artifacts of scheduled recipes are overdue",
        minimum_interval_seconds=_INTERVAL_S,
        default_status=dg.DefaultSensorStatus.RUNNING,
    )
    def freshness(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        known = read_cursor(context.cursor, dict[str, str], {})
        fingerprints, events = dict[str, str](), []
        for check in all_checks:
            for spec, results in check.results(context.instance, datetime.now(UTC)):
                fields = check_event_fields(results)
                event = dg.AssetCheckEvaluation(asset_key=spec.asset_key, check_name=spec.name, **fields)
                name = event.asset_check_key.to_user_string()
                newest = context.instance.fetch_materializations(event.asset_key, limit=1).records
                # A result is reported again after a new materialization, because the UI ignores older ones.
                build = newest[0].storage_id if newest else None
                content = f"{build} {event.passed} {event.description}"
                fingerprints[name] = hashlib.sha256(content.encode()).hexdigest()[:16]
                if known.get(name) != fingerprints[name]:
                    events.append(event)
        return dg.SensorResult(asset_events=events, cursor=json.dumps(fingerprints))

    return freshness
