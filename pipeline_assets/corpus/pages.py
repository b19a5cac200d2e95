"""HTML pages of reports, rendered from their JSON without remote resources."""

import functools
import importlib.resources
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from pipeline_assets.corpus import plots
from pipeline_assets.spine.manifest import Manifest
from pipeline_assets.spine.staging import OutputFile, StagingView
from pipeline_assets.spine.visible import VISIBLE_TABLE

if TYPE_CHECKING:
    import jinja2  # imported only when a page is rendered

REPORT_JSON, REPORT_HTML = "report.json", "report.html"
_DECIMAL_SUFFIXES = ("share", "efficiency", "fraction", "epochs")  # of keys whose values are decimals as text


def write_report(staging: StagingView, report: object) -> OutputFile:
    """Write `report.json`, from which `report.html` is rendered."""
    content = json.dumps(msgspec.to_builtins(report), indent=1, ensure_ascii=False)
    return staging.write(REPORT_JSON, content.encode() + b"\n")


def write_page(staging: StagingView, manifest: Manifest) -> OutputFile:
    """Write `report.html` from `report.json` and the manifest."""
    report = json.loads(staging.path(REPORT_JSON).read_bytes())
    return staging.write(REPORT_HTML, render_report(report, manifest).encode())


def render_report(report: Mapping[str, Any], manifest: Manifest) -> str:
    """Render a report as HTML; values are escaped, because reports quote web pages."""
    return _template().render(report=report, manifest=manifest).strip() + "\n"


@functools.cache
def _template() -> "jinja2.Template":
    import jinja2

    environment = jinja2.Environment(
        autoescape=True,
        finalize=format_value,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.do"],
    )
    environment.filters |= {"at": value_at, "columns": _parse_columns, "named": _named_records}
    environment.tests["estimate"] = lambda value: isinstance(value, Estimate)
    environment.globals |= {"length_bars": plots.length_bars, "score_bars": plots.score_bars}
    source = importlib.resources.files("pipeline_assets.corpus").joinpath("report.html.jinja").read_text("utf-8")
    return environment.from_string(source)


class Estimate(int):
    """Number that is estimated, not counted."""


def format_value(value: object) -> object:
    """Group digits, mark estimates, and make control characters in text visible."""
    if isinstance(value, Estimate):  # with three digits, because further digits are not significant
        return f"≈ {round(value, 3 - len(str(value))):,}"
    if isinstance(value, int):
        return f"{value:,}"
    return value.translate(VISIBLE_TABLE) if type(value) is str else value  # Markup comes from the template itself


def _named_records(records: Mapping[str, Any] | Sequence[Any]) -> list[tuple[str, Any]]:
    """Return (name, record) pairs; records of a list have an empty name."""
    return list(records.items()) if isinstance(records, Mapping) else [("", record) for record in records]


def _parse_columns(keys: str) -> list[tuple[str, str]]:
    """Split `PATH` and `PATH=HEAD` keys, separated by spaces, into (path, head) pairs."""
    pairs = [key.partition("=") for key in keys.split()]
    return [(path, (head or path).replace("_", " ")) for path, _, head in pairs]


def value_at(record: Any, path: str) -> Any:
    """Return the value at a dotted path in a record; None if the last key is missing.

    All earlier keys must exist. A part of the path that applies to a list is an index. If a mapping has a value at
    `estimated_KEY`, this value replaces the value at KEY, as an `Estimate`. A string becomes a float if `path` ends
    with one of `_DECIMAL_SUFFIXES`.
    """
    for part in filter(None, path.split(".")):
        if isinstance(record, list):
            record = record[int(part)]
        elif (estimate := record.get(f"estimated_{part}")) is not None:
            record = Estimate(estimate)
        else:
            record = record.get(part)
    return float(record) if isinstance(record, str) and path.endswith(_DECIMAL_SUFFIXES) else record
