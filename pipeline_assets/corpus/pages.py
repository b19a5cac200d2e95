"""Pages for people: reports as HTML, by one template over their JSON, with nothing loaded from elsewhere; and Markdown,
with texts from elsewhere that can't leave their place.
"""

import functools
import importlib.resources
import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from pipeline_assets.corpus import plots
from pipeline_assets.spine.manifest import Manifest
from pipeline_assets.spine.staging import OutputFile, StagingView
from pipeline_assets.spine.visible import VISIBLE

if TYPE_CHECKING:
    import jinja2  # which only writers of reports load

_MARKS = re.compile(r"[\\`*\[\]<>#|~$&!]|(?<![^\W_])_|_(?![^\W_])")  # inside a word `_` is none
_ADDRESS = re.compile(r"://|www\.|@|mailto:|xmpp:", re.IGNORECASE)
_PIPE = re.compile(r"(\\*)\|")


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str | int]]) -> list[str]:
    """The lines of a table whose cells are Markdown already, or numbers, which are grouped; without rows, one that says
    so.
    """
    if not rows:
        return ["(none)"]
    cells = [[f"{cell:,}" if isinstance(cell, int) else cell for cell in row] for row in rows]
    return ["| " + " | ".join(line) + " |" for line in (head, ["---"] * len(head), *cells)]


def code(text: str) -> str:
    """Text as code, in a cell or outside."""
    return f"`{cell(text)}`"


def cell(text: str) -> str:
    """Text that can't leave its cell."""
    return " ".join(text.split()).replace("|", "\\|").replace("`", "'").replace("<", "&lt;")


def plain(text: str) -> str:
    """Text on one line, in a cell or outside, of which nothing is a mark, so that nothing of it is fetched or clicked.

    One that holds what may be an address is shown as code: those who read GitHub's Markdown, such as the UI, make links
    of addresses after escapes are gone, but none of code.
    """
    line = " ".join(text.split()).translate(VISIBLE)
    if not _ADDRESS.search(line):
        return _MARKS.sub(r"\\\g<0>", line)
    fence = "`" * (1 + max(map(len, re.findall("`+", line)), default=0))
    pad = " " if "`" in (line[0], line[-1]) else ""
    # A pipe ends a cell in code too, unless it is escaped; before it a backslash is one only if it is escaped itself.
    return fence + pad + _PIPE.sub(r"\1\1\\|", line) + pad + fence


REPORT_JSON, REPORT_HTML = "report.json", "report.html"
_DECIMALS = ("share", "efficiency", "fraction", "epochs")  # ends of keys whose values are decimals in texts


def write_report(building: StagingView, report: object) -> OutputFile:
    """Write `report.json`, which has all that the page shows."""
    content = json.dumps(msgspec.to_builtins(report), indent=1, ensure_ascii=False)
    return building.write(REPORT_JSON, content.encode() + b"\n")


def write_page(building: StagingView, manifest: Manifest) -> OutputFile:
    """Write `report.html`: `report.json` below the recipe, digest, date and command of the manifest."""
    report = json.loads(building.path(REPORT_JSON).read_bytes())
    return building.write(REPORT_HTML, render(report, manifest).encode())


def render(report: Mapping[str, Any], manifest: Manifest) -> str:
    """Render a report. Every value is escaped: a page of the web must not run in a report that quotes it."""
    return _template().render(report=report, manifest=manifest).strip() + "\n"


@functools.cache
def _template() -> "jinja2.Template":
    import jinja2

    environment = jinja2.Environment(
        autoescape=True,
        finalize=_shown,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.do"],
    )
    environment.filters |= {"at": _at, "columns": _columns, "named": _named}
    environment.globals |= {"length_bars": plots.length_bars, "score_bars": plots.score_bars}
    source = importlib.resources.files("pipeline_assets.corpus").joinpath("report.html.jinja").read_text("utf-8")
    return environment.from_string(source)


def _shown(value: object) -> object:
    """Group the digits of whole numbers, and make control characters of texts visible."""
    if isinstance(value, int):
        return f"{value:,}"
    return value.translate(VISIBLE) if type(value) is str else value  # a Markup is the template's own


def _named(records: Mapping[str, Any] | Sequence[Any]) -> list[tuple[str, Any]]:
    """Return records with their names, which those of a list lack."""
    return list(records.items()) if isinstance(records, Mapping) else [("", record) for record in records]


def _columns(keys: str) -> list[tuple[str, str]]:
    """Return paths of values with their heads: a path is its own head, unless another one follows after `=`."""
    pairs = [key.partition("=") for key in keys.split()]
    return [(path, (head or path).replace("_", " ")) for path, _, head in pairs]


def _at(record: Any, path: str) -> Any:
    """Return the value at a path of names and numbers, None if there is none, and decimals as numbers."""
    for part in filter(None, path.split(".")):
        record = record[int(part)] if isinstance(record, list) else record.get(part)
    return float(record) if isinstance(record, str) and path.endswith(_DECIMALS) else record
