"""Log lines as JSON, for programs that collect logs."""

import datetime
import json
import logging
import os
from collections.abc import Mapping
from typing import ClassVar

from pipeline_assets.spine.errors import UsageError

LOG_VARIABLE = "CORPUSMILL_LOG"


def check_log_format(variables: Mapping[str, str]) -> None:
    """Raise UsageError if CORPUSMILL_LOG has an unknown value."""
    if (form := variables.get(LOG_VARIABLE) or "text") not in ("text", "json"):
        raise UsageError(f"must be text or json, got {form!r}", LOG_VARIABLE, "correct it")


def is_json_log() -> bool:
    return os.environ.get(LOG_VARIABLE) == "json"


class JsonFormatter(logging.Formatter):
    """Formatter that writes each log record as a JSON object on one line.

    Each object has the keys `time` (UTC), `level`, `message` and `artifact`: the folder that this process is building,
    or null. If a record has `facts`, their keys, such as `stage` and `counts`, are added.
    """

    artifact: ClassVar[str | None] = None

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.datetime.fromtimestamp(record.created, datetime.UTC).isoformat(timespec="milliseconds")
        values = {"time": time, "level": record.levelname.lower(), "message": record.getMessage()}
        return json.dumps(values | {"artifact": self.artifact} | getattr(record, "facts", {}))
