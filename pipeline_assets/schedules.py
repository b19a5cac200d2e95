"""Schedules: what is run again by the clock. `schedules.yaml` names them, in `manifests/` and in the data root; each is
off until it is switched on in the UI.

| action | what it does |
|---|---|
| `run` | builds what the recipe asks for and isn't there as asked |
| `repin` | asks the hub for the heads; where one moved, writes the recipe of that date and builds it |
| `verify` | reads a sample of everything sealed that the recipe asks for, another one each time |

A run that fails, of whatever cause, is told to the address in CORPUSMILL_WEBHOOK, where one is set.
"""

import json
import logging
import re
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

import dagster as dg
import pydantic

from pipeline_assets.assets import as_failure, name_in_dagster
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.recipes.drive import run_targets
from pipeline_assets.corpus.recipes.files import pin_recipe
from pipeline_assets.corpus.recipes.run import Run
from pipeline_assets.corpus.spine import durable
from pipeline_assets.corpus.spine.complaints import RECIPE_FILE
from pipeline_assets.corpus.spine.errors import InputError, UsageError
from pipeline_assets.corpus.spine.recipe import Name, Recipe, RecipePart, read_yaml, refuse_repeated
from pipeline_assets.corpus.spine.rehash import Journal
from pipeline_assets.corpus.trust.result import Scope
from pipeline_assets.corpus.trust.sample import Sample
from pipeline_assets.corpus.trust.verify import hold, look_at_chain
from pipeline_assets.systems.registry import PROJECT_RECIPES, read_recipe, recipe_path
from resources.hub import Hub
from resources.store import Store

FILE = "schedules.yaml"
WEBHOOK = "CORPUSMILL_WEBHOOK"
_TIMEOUT_S = 10.0
_NAME_LINE = re.compile(r"^name:[^\n]*$", re.MULTILINE)


class ScheduleSection(RecipePart):
    """One schedule.

    Attributes:
        cron: five fields, or several of them.
        timezone: of the IANA database.
        sample: of `verify`, the share of the bytes.
    """

    name: Name
    recipe: Name
    cron: str
    timezone: str = "UTC"
    action: Literal["run", "repin", "verify"]
    sample: str = "5%"

    @pydantic.field_validator("sample")
    @classmethod
    def _is_a_share(cls, sample: str) -> str:
        try:
            Sample.parse(sample, "0")
        except UsageError as error:
            raise ValueError(f"{error.what}: {error.fix}") from None
        return sample


class _Schedules(RecipePart):
    schedules: Annotated[tuple[ScheduleSection, ...], pydantic.Field(strict=False)] = ()

    @pydantic.model_validator(mode="after")
    def _can_be_told_apart(self) -> "_Schedules":
        refuse_repeated([one.name for one in self.schedules], "two schedules are called", "give each a name of its own")
        return self


@dataclass(frozen=True)
class Scheduled:
    """What the UI offers by the clock.

    Attributes:
        runs: the sections that run their recipes.
    """

    schedules: Sequence[dg.ScheduleDefinition]
    jobs: Sequence[dg.JobDefinition]
    runs: Sequence[ScheduleSection]


def read_schedules(root: Path) -> tuple[list[ScheduleSection], list[InputError]]:
    """The schedules of a data root, before those of the project that have other names; and what is wrong with files."""
    found: dict[str, ScheduleSection] = {}
    wrong: list[InputError] = []
    for path in (root / FILE, PROJECT_RECIPES.parent / FILE):
        try:
            sections = _Schedules.of(read_yaml(path, "schedule file"), path).schedules if path.exists() else ()
        except InputError as error:
            wrong.append(error)
            continue
        found = {one.name: one for one in sections} | found
    return list(found.values()), wrong


def scheduled(root: Path, recipes: Sequence[Recipe], jobs: Mapping[str, dg.JobDefinition]) -> Scheduled:
    """The schedules of a data root, and the jobs of theirs that recipes don't have already.

    Args:
        jobs: by recipe, those that make all of it.
    """
    sections, wrong = read_schedules(root)
    known = {recipe.name for recipe in recipes}
    made: list[dg.ScheduleDefinition] = []
    own: list[dg.JobDefinition] = []
    runs: list[ScheduleSection] = []
    for section in sections:
        if section.recipe not in known:
            what = f"schedule {section.name} names recipe {section.recipe}, which isn't there"
            wrong.append(UsageError(what, root / FILE, f"there are {', '.join(sorted(known))}"))
            continue
        match section.action:
            case "run":
                job = jobs[section.recipe]
            case "repin":
                job = _job(section, root, _repin, f"Builds {section.recipe} at the heads of its datasets")
                own.append(job)
            case "verify":
                job = _job(section, root, _verify, f"Reads {section.sample} of what {section.recipe} made")
                own.append(job)
        try:
            made.append(_schedule(section, job))
            runs += [section] * (section.action == "run")
        except dg.DagsterInvalidDefinitionError as error:
            fix = "write five fields, such as '0 6 * * 1', and a timezone such as Europe/Berlin"
            wrong.append(UsageError(f"schedule {section.name}: {' '.join(str(error).split())}", root / FILE, fix))
    for one in wrong:
        logging.getLogger("corpusmill").warning("a schedule is left out: %s", one)
    return Scheduled(made, own, runs)


def _schedule(section: ScheduleSection, job: dg.JobDefinition) -> dg.ScheduleDefinition:
    return dg.ScheduleDefinition(
        name=name_in_dagster(section.name),
        job=job,
        cron_schedule=section.cron,
        execution_timezone=section.timezone,
        description=f"{section.action} {section.recipe}",
        tags={"corpusmill/recipe": section.recipe, "corpusmill/action": section.action},
        default_status=dg.DefaultScheduleStatus.STOPPED,
    )


Act = Callable[[dg.OpExecutionContext, ScheduleSection, Run], None]


def _job(section: ScheduleSection, root: Path, act: Act, description: str) -> dg.JobDefinition:
    name = name_in_dagster(f"{section.name}__{section.action}")

    @dg.op(name=f"{name}__op", description=description)
    def act_now(context: dg.OpExecutionContext, store: Store, hub: Hub) -> None:
        with as_failure(root):
            act(context, section, store.run(root, hub.files(root)))

    @dg.job(name=name, description=description)
    def now() -> None:
        act_now()

    return now


def _verify(context: dg.OpExecutionContext, section: ScheduleSection, run: Run) -> None:
    sample, findings = Sample.parse(section.sample, _moment(context).date().isoformat()), []
    for target in read_recipe(recipe_path(section.recipe, run.root)).targets():
        if not target.is_sealed(run.root):
            context.log.info(f"{target.name}: {target.state(run.root)[0]}, not read")
            continue
        scope = Scope(None, sample, False, max(run.settings.workers, 1), run.settings.log_every_s)
        found = look_at_chain(run.root / target.folder, scope)
        hold(found, Journal(None))
        context.log.info(f"{target.name}: {len(found.findings)} findings")
        findings += found.findings
    if findings:
        first = findings[0]
        what = f"{len(findings)} of the files that were read are not as sealed, the first: {first.what}"
        raise InputError(what, first.where, "see `corpusmill verify`, and `rebuild --put-back`")


def _repin(context: dg.OpExecutionContext, section: ScheduleSection, run: Run) -> None:
    path, moved = repinned(section.recipe, run.root, run.hub_for("the heads"), _moment(context))
    if path is None:
        context.log.info("no head moved: nothing is written")
        return
    context.log.info("%s: %s", path, "; ".join(moved))
    for outcome in run_targets(read_recipe(path), run):
        context.log.info("%s: %s", outcome.target.name, outcome.manifest and outcome.manifest.digest)


def repinned(name: str, root: Path, hub: HubFiles, moment: datetime) -> tuple[Path | None, list[str]]:
    """The recipe at the heads of its datasets, under its name and the date: written where one moved.

    Returns:
        (the new file, None where no head moved; what moved, in words)
    Raises:
        InputError: from the hub, or the recipe can't be changed in place.
    """
    before = recipe_path(name, root)
    recipe = read_recipe(before)
    newest = _newest(name, root)
    pinned = dict(read_recipe(newest).revisions())
    heads = {dataset: hub.resolve(dataset, "main") for dataset, _ in recipe.revisions()}
    moved = [f"{one}: {pinned.get(one)} → {head}" for one, head in heads.items() if pinned.get(one) != head]
    if not moved:
        return None, []
    dated = f"{name}_{moment:%Y%m%d}"
    path = root / "recipes" / f"{dated}.yaml"
    durable.make_folder(path.parent)
    text = RECIPE_FILE.bytes_of(before).decode()
    durable.write_durably(path, _NAME_LINE.sub(f"name: {dated}", text, count=1).encode())
    try:
        for dataset, head in heads.items():
            pin_recipe(path, dataset, head)
    except InputError:
        durable.remove(path)
        raise
    return path, moved


def _newest(name: str, root: Path) -> Path:
    """The recipe of the newest date; the one itself where there is none."""
    dated = sorted((root / "recipes").glob(f"{name}_[0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9].yaml"))
    return dated[-1] if dated else recipe_path(name, root)


def _moment(context: dg.OpExecutionContext) -> datetime:
    """When the run was due; now, where no schedule started it."""
    due = context.run.tags.get("dagster/scheduled_execution_time")
    return datetime.fromisoformat(due) if due else datetime.now(UTC)


@dg.run_failure_sensor(
    name="alert",
    description=f"Tells {WEBHOOK} of each run that fails; without it, nobody",
    default_status=dg.DefaultSensorStatus.RUNNING,
)
def alert(context: dg.RunFailureSensorContext) -> None:
    """Posts one line, as JSON: `{"text": …}`."""
    address = dg.EnvVar(WEBHOOK).get_value()
    if not address:
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
    except OSError as error:
        context.log.warning(f"{WEBHOOK} can't be told: {error}")
