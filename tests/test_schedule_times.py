"""Dates of scheduled runs use the day and week of the schedule's time zone.

UTC may have another date at that moment.
"""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from daemon_ticks import daemon_workspace, run_between
from dagster._core.instance_for_test import instance_for_test
from materialized import run_job
from stage2_build import CODE, PAGES, WEB, recipe_with, write_datasets

from pipeline_assets.code_location import build_definitions
from pipeline_assets.demo.loopback_hub import LoopbackHub
from pipeline_assets.spine.key_types import UNPINNED

MONDAY = "0 5 * * 1"
NIGHT = "30 0 * * 1"
# Zone, cron, period, local time of the tick, and the first day of the version.
TICKS = {
    "east of UTC, where UTC still has Sunday": ("Asia/Tokyo", MONDAY, "week", "2026-11-23T05:00+09:00", "20261123"),
    "farthest east": ("Pacific/Kiritimati", MONDAY, "week", "2026-11-23T05:00+14:00", "20261123"),
    "by quarters of an hour": ("Asia/Kathmandu", MONDAY, "week", "2026-11-23T05:00+05:45", "20261123"),
    "west of UTC, where UTC has the next day": (
        "America/Los_Angeles", "30 20 * * *", "day", "2026-11-22T20:30-08:00", "20261122"),
    "west of UTC, where UTC has the next week": (
        "America/New_York", "30 23 * * 0", "week", "2026-11-22T23:30-05:00", "20261116"),
    "UTC": ("UTC", MONDAY, "week", "2026-11-23T05:00+00:00", "20261123"),
    "the night after summer time began": ("Europe/Berlin", NIGHT, "week", "2026-03-30T00:30+02:00", "20260330"),
    "the night after summer time ended": ("Europe/Berlin", NIGHT, "week", "2026-10-26T00:30+01:00", "20261026"),
    "the evening on which summer time ends": (
        "America/New_York", "30 23 * * 0", "day", "2026-11-01T23:30-05:00", "20261101"),
    "a night without half past two": ("Europe/Berlin", "30 2 * * *", "day", "2026-03-29T03:00+02:00", "20260329"),
}  # fmt: skip

DAEMON_CASES = (
    "east of UTC, where UTC still has Sunday",
    "west of UTC, where UTC has the next week",
    "the night after summer time began",
)  # a subset, because each run of the daemon starts a process


def write_scheduled_recipes(root: Path, cases: Iterable[str]) -> None:
    """Write `recipe_0`, `recipe_1`, … with a schedule for the tick of each case."""
    schedules = []
    for number, case in enumerate(cases):
        name, (zone, cron, period, _, _) = f"recipe_{number}", TICKS[case]
        recipe_with(root, dict.fromkeys((WEB, PAGES, CODE), UNPINNED), keep_web_only, name)
        schedule = {"name": f"{name}_again", "recipe": name, "cron": cron, "timezone": zone}
        schedules.append(schedule | {"action": "repin", "period": period})
    (root / "schedules.yaml").write_text(yaml.safe_dump({"schedules": schedules}))


def keep_web_only(content: dict[str, Any]) -> None:
    content["sources"] = content["sources"][:1]
    content["sources"][0].pop("filters")
    for section in ("tokenizer", "dedup", "shards", "segments"):
        del content[section]


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackHub]:
    folder = tmp_path_factory.mktemp("hub")
    write_datasets(folder, documents=4)
    with LoopbackHub(folder) as running:
        yield running


@pytest.fixture(scope="module")
def scheduled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dg.Definitions]:
    root = tmp_path_factory.mktemp("data")
    write_scheduled_recipes(root, TICKS)
    return root, build_definitions(root)


@pytest.mark.parametrize("case", TICKS)
def test_a_version_has_the_date_of_the_schedules_zone(
    case: str, scheduled: tuple[Path, dg.Definitions], hub: LoopbackHub, instance: dg.DagsterInstance
) -> None:
    (root, definitions), name = scheduled, f"recipe_{list(TICKS).index(case)}"
    _, _, _, due, first_day = TICKS[case]

    job = definitions.resolve_job_def(f"{name}_again__repin")
    moment = datetime.fromisoformat(due).astimezone(UTC).isoformat()

    assert run_job(job, instance, hub.endpoint, moment).success
    assert [path.stem for path in (root / "recipes").glob(f"{name}_*.yaml")] == [f"{name}_{first_day}"]


@pytest.mark.slow
def test_ticks_of_the_daemon_write_versions_of_the_schedules_zone(tmp_path: Path, hub: LoopbackHub) -> None:
    root = tmp_path / "data"
    write_scheduled_recipes(root, DAEMON_CASES)
    variables = {**hub.client_environment(), "CORPUSMILL_WORKERS": "0"}
    with (
        instance_for_test(synchronous_run_coordinator=True) as instance,
        daemon_workspace(root, instance, variables) as workspace,
    ):
        for number, case in enumerate(DAEMON_CASES):
            name, (_, _, _, due, first_day) = f"recipe_{number}", TICKS[case]
            tick = datetime.fromisoformat(due)
            [run] = run_between(workspace, f"{name}_again", tick - timedelta(minutes=5), tick + timedelta(minutes=5))
            assert run.status == dg.DagsterRunStatus.SUCCESS
            assert [path.stem for path in (root / "recipes").glob(f"{name}_*.yaml")] == [f"{name}_{first_day}"]
