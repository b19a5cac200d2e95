"""Schedules of recipes, read from `schedules.yaml`.

The file is in `manifests/` or in the data root. A schedule is off until it is switched on in the UI.

| action | effect |
|---|---|
| `run` | builds missing artifacts; rebuilds stale artifacts if `replace: true` is set, otherwise fails on them |
| `repin` | if a hub head or a local file changed, writes a recipe for the day or week; builds the newest recipe |
| `verify` | reads a new sample each day from each artifact of the recipe and its versions; skips stale artifacts |
"""

import contextlib
import logging
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, Self

import dagster as dg
import pydantic

from pipeline_assets.assets import dagster_name
from pipeline_assets.build.recipe_paths import PROJECT_RECIPES_FOLDER
from pipeline_assets.build.recipe_versions import Period
from pipeline_assets.jobs import RECIPE_TAG, JobWork, build_job, invalid_recipe_job, repin, verify_sample
from pipeline_assets.spine.errors import InputError, UsageError
from pipeline_assets.spine.key_types import Name
from pipeline_assets.spine.recipe_validation import validate_section
from pipeline_assets.spine.recipe_yaml import locate_key, read_yaml
from pipeline_assets.spine.section import RecipeSection
from pipeline_assets.trust.result import FileSample

_SCHEDULES_FILE = "schedules.yaml"
_RENAME_HINT = "give each its own name; until then none of them runs"
_ACTION_BY_KEY = {"replace": "run", "keep_versions": "repin"}  # keys for the resource `store`
_AUTOMATION_SENSOR = "default_automation_condition_sensor"  # Dagster's own
# No schedule may have the name of a sensor.
SENSOR_NAMES = frozenset({"alert", "external_sources", "freshness", "old_runs", "sealed_artifacts", _AUTOMATION_SENSOR})


class ScheduleSection(RecipeSection):
    """Section of one schedule.

    Attributes:
        cron: Cron expression of five fields.
        timezone: Time zone of the IANA database.
        sample: Share of the bytes that `verify` reads.
        period: Period of each version that `repin` writes: a day or a week. A week is named by its Monday.
        replace: Whether `run` replaces stale and damaged artifacts.
        keep_versions: Number of versions whose artifacts `repin` keeps; None keeps all.
    """

    name: Name
    recipe: Name
    cron: Annotated[str, pydantic.Field(max_length=200)]
    timezone: Annotated[str, pydantic.Field(min_length=1)] = "UTC"
    action: Literal["run", "repin", "verify"]
    sample: str = "5%"
    period: Period = "day"
    replace: bool = False
    keep_versions: Annotated[int, pydantic.Field(ge=1)] | None = None

    @pydantic.field_validator("sample")
    @classmethod
    def _check_sample(cls, sample: str) -> str:
        try:
            FileSample.parse(sample, "0")
        except UsageError as error:
            raise ValueError(f"{error.what}; {error.fix}") from None
        return sample

    @pydantic.model_validator(mode="after")
    def _check_action(self) -> Self:
        for key, action in _ACTION_BY_KEY.items():
            if getattr(self, key) and self.action != action:
                raise ValueError(f"`{key}` requires the action {action}, got {self.action}")
        return self


class _Schedules(RecipeSection):
    schedules: Annotated[tuple[ScheduleSection, ...], pydantic.Field(strict=False)] = ()


class ScheduledJob(NamedTuple):
    """Dagster schedule with its section and its job."""

    section: ScheduleSection
    schedule: dg.ScheduleDefinition
    job: dg.JobDefinition


def read_schedules(root: Path) -> tuple[dict[ScheduleSection, Path], list[InputError]]:
    """Return the valid schedules of a data root and the project, and the errors.

    Each schedule is returned with its file. A schedule of the data root overrides the project's schedule of the same
    name. From an invalid file, the valid schedules with unique names are still returned.
    """
    entries: dict[str, tuple[ScheduleSection, Path]] = {}
    errors: list[InputError] = []
    for path in (root / _SCHEDULES_FILE, PROJECT_RECIPES_FOLDER.parent / _SCHEDULES_FILE):
        if not os.path.lexists(path):  # a link to a missing file is an error
            continue
        content, schedules = dict[str, object](), tuple[ScheduleSection, ...]()
        try:
            content = read_yaml(path, "schedule file")
            schedules = validate_section(_Schedules, content, partial(locate_key, path)).schedules
        except InputError as error:
            errors += [error, *error.others]
            schedules = tuple(_valid_sections(content.get("schedules")))
        uses = Counter(section.name for section in schedules)
        repeated = [name for name, number in uses.items() if number > 1]
        errors += [UsageError(f"several schedules are called {name}", path, _RENAME_HINT) for name in repeated]
        entries = {section.name: (section, path) for section in schedules if uses[section.name] == 1} | entries
    return dict(entries.values()), errors


def _valid_sections(entries: object) -> Iterator[ScheduleSection]:
    """Yield the valid schedules of a list."""
    for entry in entries if isinstance(entries, list) else ():
        with contextlib.suppress(InputError):
            if isinstance(entry, dict):
                yield ScheduleSection.from_mapping(entry, "")


def build_schedules(root: Path, jobs: Mapping[str, dg.JobDefinition]) -> tuple[list[ScheduledJob], list[InputError]]:
    """Build the schedules of a data root; log and return their errors.

    Invalid schedules are skipped. A schedule with a missing recipe is built, but its runs fail. `jobs` maps a recipe's
    name to the job that builds the recipe.
    """
    files, errors = read_schedules(root)
    schedules: list[ScheduledJob] = []
    all_jobs = {**jobs}
    for section, file in files.items():
        if section.recipe not in jobs:
            what = f"schedule {section.name}: recipe {section.recipe} not found"
            errors.append(UsageError(what, file, f"name one of {', '.join(sorted(jobs))}"))
            # A daemon with earlier definitions runs this job under the same name.
            all_jobs.setdefault(section.recipe, invalid_recipe_job(section.recipe, errors[-1], root))
    for section, file in files.items():
        try:
            schedules.append(_build_schedule(section, file, root, all_jobs))
        except UsageError as error:
            errors.append(error)
        except dg.DagsterInvalidDefinitionError:
            got = f"`cron` {section.cron!r} with `timezone` {section.timezone!r}"
            what = f"schedule {section.name}: {got} is never due"
            fix = "write five fields that fall on a date, such as '0 6 * * 1', and a time zone such as Europe/Berlin"
            errors.append(UsageError(what, file, fix))
    for problem in errors:
        logging.getLogger("corpusmill").warning("invalid schedule: %s", problem)
    return schedules, errors


def _build_schedule(
    section: ScheduleSection, file: Path, root: Path, jobs: Mapping[str, dg.JobDefinition]
) -> ScheduledJob:
    recipe = section.recipe
    if dagster_name(section.name) in SENSOR_NAMES or _job_name(section) in {job.name for job in jobs.values()}:
        what = f"schedule {section.name}: a sensor or the job of a recipe has this name"
        raise UsageError(what, file, "rename the schedule")
    match section.action:
        case "run":
            job = jobs[recipe]
        case "repin":
            work: JobWork = partial(repin, recipe_name=recipe, timezone=section.timezone, period=section.period)
            what = f"Builds {recipe} at the heads of its datasets"
            job = build_job(_job_name(section), what, recipe, root, work)
        case "verify":
            work = partial(verify_sample, recipe_name=recipe, timezone=section.timezone, sample=section.sample)
            what = f"Verifies {section.sample} of the artifacts of {recipe}"
            job = build_job(_job_name(section), what, recipe, root, work)
    settings = {key: value for key in _ACTION_BY_KEY if (value := getattr(section, key))}
    schedule = dg.ScheduleDefinition(
        name=dagster_name(section.name),
        job=job,
        cron_schedule=section.cron,
        execution_timezone=section.timezone,
        description=f"{section.action} {recipe}",
        tags={RECIPE_TAG: recipe, "corpusmill/action": section.action},
        default_status=dg.DefaultScheduleStatus.STOPPED,
        run_config={"resources": {"store": {"config": settings}}} if settings else None,
    )
    return ScheduledJob(section, schedule, job)


def _job_name(section: ScheduleSection) -> str:
    return dagster_name(f"{section.name}__{section.action}")
