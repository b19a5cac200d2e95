"""Inventories of splits as one page of Markdown: which share of their rows has what."""

from collections.abc import Mapping, Sequence
from typing import Any

from pipeline_assets.corpus.markdown import cell, code, table
from pipeline_assets.corpus.nemotron.row_census import COVERAGE

_SHORT = {"difficulty_stated": "stated difficulty", "reasoning_label": "label", "reasoning_content": "reasoning text"}
_ALWAYS = frozenset({"uuid", "correctness", "difficulty", "tools", "reasoning_label", "reasoning_content", "licence"})
_MOST_TAGS = 8


def coverage_markdown(inventories: Sequence[Mapping[str, Any]]) -> str:
    """A table of shares, one of sizes, the tags of each split, and what was left unread or couldn't be read."""
    names = [name for name in COVERAGE if name in _ALWAYS or any(one["coverage"][name]["rows"] for one in inventories)]
    shares = [
        [_split(one), f"{one['rows_counted']:,}", *(_percent(one["coverage"][name]["share"]) for name in names)]
        for one in inventories
    ]
    lines = ["# Metadata coverage", "", "Share of rows that have it, of the rows that were read.", ""]
    lines += table(["split", "rows read", *(_SHORT.get(name, name.replace("_", " ")) for name in names)], shares)
    lines += ["", "| column of this table | there is |", "| --- | --- |"]
    lines += [f"| {_SHORT.get(name, name.replace('_', ' '))} | {COVERAGE[name]} |" for name in names]
    lines += ["", "## Files and rows", ""]
    lines += table(
        ["split", "files", "bytes", "format", "rows", "scan", "rejected", "optional columns"],
        [*map(_size, inventories)],
    )
    lines += ["", "## Tags", ""]
    lines += table(["split", "column", "values"], [row for one in inventories for row in _tags(one)])
    notes = [note for one in inventories for note in _notes(one)]
    if notes:
        lines += ["", "## Not read", "", *notes]
    return "\n".join(lines) + "\n"


def _size(one: Mapping[str, Any]) -> list[str]:
    scan = one["scan"]
    is_full = scan["kind"] == "full"
    return [
        _split(one),
        f"{len(one['files']):,}",
        f"{one['bytes']:,}",
        one["format"],
        "unknown" if one["rows"] is None else f"{one['rows']:,}",
        "full" if is_full else f"sample of {scan['rows_read']:,} rows",
        f"{sum(one['rejected'].values()):,}",
        ", ".join(map(code, one["optional_columns"])) or "none",
    ]


def _tags(one: Mapping[str, Any]) -> list[list[str]]:
    """The most frequent values of each column that is told by value."""
    rows = []
    for column, values in one["tags"].items():
        most = sorted(values.items(), key=lambda item: (-item[1], item[0]))
        shown = ", ".join(f"{code(value)} {many:,}" for value, many in most[:_MOST_TAGS])
        more = f", and {len(most) - _MOST_TAGS:,} more" if len(most) > _MOST_TAGS else ""
        rows.append([_split(one), column, shown + more])
    return rows


def _notes(one: Mapping[str, Any]) -> list[str]:
    notes = []
    if one["left_out"]:
        paths = ", ".join(map(code, one["left_out"]))
        notes.append(f"- {_split(one)}: {paths} lie beside its {one['format']} files, which are read.")
    if one["rejected"]:
        reasons = ", ".join(f"{many:,} {reason}" for reason, many in one["rejected"].items())
        notes.append(f"- {_split(one)}: {reasons}; see its rejects.")
    return notes


def _split(one: Mapping[str, Any]) -> str:
    return cell(f"{one['dataset'].rpartition('/')[2]} {one['split']}")


def _percent(fraction: str) -> str:
    """A decimal string of four places as a percentage; `–` where there was no row."""
    if not fraction:
        return "–"
    whole, _, places = fraction.partition(".")
    hundredths = int(whole) * 10_000 + int(places)
    return f"{hundredths // 100}.{hundredths % 100:02d} %" if hundredths % 100 else f"{hundredths // 100} %"
