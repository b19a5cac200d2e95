"""Dates of scheduled runs: day and week in the schedule's own time zone.

UTC may have another date at that moment.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest
import yaml
from daemon_ticks import daemon_of, run_between
from dagster._core.instance_for_test import instance_for_test
from materialized import run_job
from stage2_build import CODE, PAGES, WEB, recipe_with, write_datasets

from pipeline_assets.code_location import build_definitions
from pipeline_assets.demo.loopback_hub import LoopbackHub
from pipeline_assets.spine.section import UNPINNED

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

OF_DAEMON = (
    "east of UTC, where UTC still has Sunday",
    "west of UTC, where UTC has the next week",
    "the night after summer time began",
)  # a run of the daemon is a process of its own


def schedule_of(recipe: str, zone: str, cron: str, period: str) -> dict[str, str]:
    schedule = {"name": f"{recipe}_again", "recipe": recipe, "cron": cron, "timezone": zone}
    return schedule | {"action": "repin", "period": period}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "data"
    write_datasets(tmp_path / "hub", documents=4)
    return root


@pytest.fixture
def hub(root: Path, tmp_path: Path) -> Iterator[LoopbackHub]:
    with LoopbackHub(tmp_path / "hub") as running:
        yield running


def add_recipe(root: Path, name: str) -> None:
    def only_web(content: dict[str, object]) -> None:
        sources = content.pop("sources")
        assert isinstance(sources, list)
        sources[0].pop("filters")
        for section in ("tokenizer", "dedup", "shards", "segments"):
            del content[section]
        content["sources"] = sources[:1]

    recipe_with(root, dict.fromkeys((WEB, PAGES, CODE), UNPINNED), only_web, name)


@pytest.mark.parametrize("case", TICKS)
def test_a_version_has_the_date_of_the_schedules_zone(
    case: str, root: Path, hub: LoopbackHub, instance: dg.DagsterInstance
) -> None:
    zone, cron, period, due, first_day = TICKS[case]
    add_recipe(root, "small")
    (root / "schedules.yaml").write_text(yaml.safe_dump({"schedules": [schedule_of("small", zone, cron, period)]}))

    job = build_definitions(root).resolve_job_def("small_again__repin")
    moment = datetime.fromisoformat(due).astimezone(UTC).isoformat()

    assert run_job(job, instance, hub.endpoint, moment).success
    assert [path.stem for path in (root / "recipes").glob("small_*.yaml")] == [f"small_{first_day}"]


@pytest.mark.slow
def test_ticks_of_the_daemon_write_versions_of_the_schedules_zone(root: Path, hub: LoopbackHub) -> None:
    ticks = {f"recipe_{number}": TICKS[case] for number, case in enumerate(OF_DAEMON)}
    schedules = []
    for name, (zone, cron, period, _, _) in ticks.items():
        add_recipe(root, name)
        schedules.append(schedule_of(name, zone, cron, period))
    (root / "schedules.yaml").write_text(yaml.safe_dump({"schedules": schedules}))

    variables = {**hub.client_environment(), "CORPUSMILL_WORKERS": "0"}
    with (
        instance_for_test(synchronous_run_coordinator=True) as instance,
        daemon_of(root, instance, variables) as workspace,
    ):
        for name, (_, _, _, due, first_day) in ticks.items():
            tick = datetime.fromisoformat(due)
            [run] = run_between(workspace, f"{name}_again", tick - timedelta(minutes=5), tick + timedelta(minutes=5))
            assert run.status == dg.DagsterRunStatus.SUCCESS
            assert [path.stem for path in (root / "recipes").glob(f"{name}_*.yaml")] == [f"{name}_{first_day}"]
