"""Rows of a small source for reports, with readers of the files of any report."""

import json
import re
from typing import Any

from pipeline_assets.spine.artifact import Artifact

Rows = list[dict[str, Any]]
PAGES: Rows = [{"text": "日本語 is spoken in this page <b>here</b>.", "key": "p-0"}]


def read_figures(report: Artifact) -> dict[str, Any]:
    figures: dict[str, Any] = json.loads(report.path("report.json").read_bytes())
    return figures


def read_page(report: Artifact) -> str:
    return report.path("report.html").read_text(encoding="utf-8")


def words(page: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", page))
