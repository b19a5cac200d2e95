"""Rows of a small source for reports on corpora, with readers of these reports."""

import json
import re
from typing import Any

from pipeline_assets.spine.artifact import Artifact

Rows = list[dict[str, Any]]
PAGES: Rows = [{"text": "日本語 is spoken in this page <b>here</b>.", "key": "p-0"}]


def numbers(report: Artifact) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(report.path("report.json").read_text(encoding="utf-8"))
    return values


def words(page: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", page))
