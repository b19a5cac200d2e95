"""Schedules: what is run again by the clock. `schedules.yaml` names them, in `manifests/` and in the data root; each is
off until it is switched on in the UI.

| action | what it does |
|---|---|
| `run` | builds what the recipe asks for and isn't there as asked |
| `repin` | asks the hub for the heads; where one moved, writes the recipe of that day or week; builds the newest |
| `verify` | reads a sample of everything sealed that the recipe asks for, another one each time |

A run that fails, of whatever cause, is told to the address in CORPUSMILL_WEBHOOK, where one is set.
"""

import http.client
import json
import logging
import urllib.error
import urllib.request
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import dagster as dg
import pydantic

from pipeline_assets.assets import name_in_dagster
from pipeline_assets.build.files import Period
from pipeline_assets.build.recipe_paths import PROJECT_RECIPES
from pipeline_assets.jobs import Act, build_job, repin, verify_sample
from pipeline_assets.spine.errors import InputError, UsageError, one_line
from pipeline_assets.spine.recipe_yaml import read_yaml
from pipeline_assets.spine.section import Name, RecipeSection, reject_duplicate_keys
from pipeline_assets.trust.result import Sample
from resources.webhook import WEBHOOK, webhook_address

FILE = "schedules.yaml"
_TIMEOUT_S = 10.0
_LONGEST_CRON = 200
SENSORS = frozenset({"alert", "external_sources", "freshness", "sealed_artifacts"})  # no schedule can have their names


class ScheduleSection(RecipeSection):
    """One schedule.

    Attributes:
        cron: five fields, or several of them.
        timezone: of the IANA database.
        sample: of `verify`, the share of the bytes.
        period: of `repin`, what has one version: a day, or a week, which is called by its Monday.
    """

    name: Name
    recipe: Name
    cron: Annotated[str, pydantic.Field(max_length=_LONGEST_CRON)]
    timezone: Annotated[str, pydantic.Field(min_length=1)] = "UTC"
    action: Literal["run", "repin", "verify"]
    sample: str = "5%"
    period: Period = "day"

    @pydantic.field_validator("sample")
    @classmethod
    def _is_a_share(cls, sample: str) -> str:
        try:
            Sample.parse(sample, "0")
        except UsageError as error:
            raise ValueError(f"{error.what}: {error.fix}") from None
        return sample


class _Schedules(RecipeSection):
    schedules: Annotated[tuple[ScheduleSection, ...], pydantic.Field(strict=False)] = ()

    @pydantic.model_validator(mode="after")
    def _has_unique_names(self) -> "_Schedules":
        reject_duplicate_keys(
            [one.name for one in self.schedules], "two schedules are called", "give each a name of its own"
        )
        return self


class Scheduled(NamedTuple):
    """A schedule as the UI offers it, with the job that it runs, and the section that says so."""

    section: ScheduleSection
    schedule: dg.ScheduleDefinition
    job: dg.JobDefinition


def read_schedules(root: Path) -> tuple[list[ScheduleSection], list[InputError]]:
    """The schedules of a data root, before those of the project that have other names; and what is wrong with files."""
    found: dict[str, ScheduleSection] = {}
    wrong: list[InputError] = []
    for path in (root / FILE, PROJECT_RECIPES.parent / FILE):
        try:
            sections = (
                _Schedules.from_mapping(read_yaml(path, "schedule file"), path).schedules if path.exists() else ()
            )
        except InputError as error:
            wrong.append(error)
            continue
        found = {one.name: one for one in sections} | found
    return list(found.values()), wrong


def scheduled(root: Path, jobs: Mapping[str, dg.JobDefinition]) -> list[Scheduled]:
    """The schedules of a data root; those that are wrong are left out with a warning.

    Args:
        jobs: by recipe, those that make all of it.
    """
    sections, wrong = read_schedules(root)
    found: list[Scheduled] = []
    for section in sections:
        try:
            found.append(_scheduled(section, root, jobs))
        except UsageError as error:
            wrong.append(error)
        except dg.DagsterInvalidDefinitionError as error:
            fix = "write five fields, such as '0 6 * * 1', and a timezone such as Europe/Berlin"
            wrong.append(UsageError(f"schedule {section.name}: {one_line(error)}", root / FILE, fix))
    for one in wrong:
        logging.getLogger("corpusmill").warning("a schedule is left out: %s", one)
    return found


def _scheduled(section: ScheduleSection, root: Path, jobs: Mapping[str, dg.JobDefinition]) -> Scheduled:
    recipe = section.recipe
    if recipe not in jobs:
        what = f"schedule {section.name} names recipe {recipe}, which isn't there"
        raise UsageError(what, root / FILE, f"there are {', '.join(sorted(jobs))}")
    if name_in_dagster(section.name) in SENSORS or _job_name(section) in {job.name for job in jobs.values()}:
        what = f"schedule {section.name}: a sensor or the job of a recipe has this name"
        raise UsageError(what, root / FILE, "give it another name")
    match section.action:
        case "run":
            job = jobs[recipe]
        case "repin":
            act: Act = partial(repin, recipe=recipe, timezone=section.timezone, period=section.period)
            what = f"Builds {recipe} at the heads of its datasets"
            job = build_job(_job_name(section), what, recipe, root, act)
        case "verify":
            act = partial(verify_sample, recipe=recipe, timezone=section.timezone, sample=section.sample)
            job = build_job(_job_name(section), f"Reads {section.sample} of what {recipe} made", recipe, root, act)
    schedule = dg.ScheduleDefinition(
        name=name_in_dagster(section.name),
        job=job,
        cron_schedule=section.cron,
        execution_timezone=section.timezone,
        description=f"{section.action} {recipe}",
        tags={"corpusmill/recipe": recipe, "corpusmill/action": section.action},
        default_status=dg.DefaultScheduleStatus.STOPPED,
    )
    return Scheduled(section, schedule, job)


def _job_name(section: ScheduleSection) -> str:
    return name_in_dagster(f"{section.name}__{section.action}")


@dg.run_failure_sensor(
    name="alert",
    description=f"Tells {WEBHOOK} of each run that fails; without it, nobody",
    default_status=dg.DefaultSensorStatus.RUNNING,
)
def alert(context: dg.RunFailureSensorContext) -> None:
    """Posts one line, as JSON: `{"text": …}`."""
    address = webhook_address()
    if address is None:
        return
    words = " ".join((context.failure_event.message or "").split())
    failures = [
        getattr(event.event_specific_data, "user_failure_data", None) for event in context.get_step_failure_events()
    ]
    causes = [failure.description or "" for failure in failures if failure is not None]
    text = f"{context.dagster_run.job_name} failed: {'; '.join(filter(None, causes)) or words}"
    request = urllib.request.Request(
        address, json.dumps({"text": text}).encode(), {"Content-Type": "application/json"}, method="POST"
    )
    try:
        urllib.request.urlopen(request, timeout=_TIMEOUT_S).close()
    except urllib.error.HTTPError as error:
        context.log.warning(f"{WEBHOOK} answers with status {error.code}")
    except (OSError, http.client.HTTPException, ValueError) as error:
        # Messages of these errors may contain the address: only the kind of error is logged.
        reason = getattr(error, "reason", error)
        context.log.warning(f"{WEBHOOK} does not answer: {type(reason).__name__}")
