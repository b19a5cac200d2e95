"""Files `schedules.yaml`, with a nightly run of the local notes."""

from collections.abc import Mapping
from pathlib import Path

import yaml

NOTES = {"name": "nightly", "recipe": "mixed", "cron": "30 2 * * *", "timezone": "Europe/Berlin", "action": "run"}


def write_schedules(root: Path, *schedules: Mapping[str, object]) -> None:
    (root / "schedules.yaml").write_text(yaml.safe_dump({"schedules": list(map(dict, schedules))}))
