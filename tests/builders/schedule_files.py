"""Files `schedules.yaml` with a nightly run of local notes, and failed runs."""

from collections.abc import Mapping
from pathlib import Path

import dagster as dg
import yaml

NOTES = {"name": "nightly", "recipe": "mixed", "cron": "30 2 * * *", "timezone": "Europe/Berlin", "action": "run"}


def write_schedules(root: Path, *schedules: Mapping[str, object]) -> None:
    (root / "schedules.yaml").write_text(yaml.safe_dump({"schedules": list(map(dict, schedules))}))


def failure_text(result: dg.ExecuteInProcessResult) -> str:
    """Return the description of the only failed step of a run."""
    [event] = result.get_step_failure_events()
    failure = event.step_failure_data.user_failure_data
    assert failure is not None and failure.description is not None
    return failure.description
