"""Stage `nemotron_inventory`: census of a split's rows.

All rows or a sample are counted. The files are `inventory.json`, `metadata_coverage.md` (a page), and the rejects.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pipeline_assets.corpus.converted_shards import REJECTS_FOLDER, concatenate_lines
from pipeline_assets.corpus.document_shards import REJECTS_FILE
from pipeline_assets.corpus.formats.jsonl_zst import SUFFIX, write_rows
from pipeline_assets.corpus.markdown import code, escape_cell, markdown_table
from pipeline_assets.corpus.nemotron import source_rows
from pipeline_assets.corpus.nemotron.parquet_values import find_object_columns, to_json_row
from pipeline_assets.corpus.nemotron.row_census import COVERAGE_CONDITIONS, TAG_COLUMNS, RowCensus, Tally, add_tally
from pipeline_assets.corpus.nemotron.splits import detect_format
from pipeline_assets.corpus.readers.local_parquet import read_local_footer
from pipeline_assets.corpus.readers.source_folder import SourceFile
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.engine import RunSettings, limit_workers, run_stage
from pipeline_assets.spine.ledger import Ledger, count_rejects
from pipeline_assets.spine.manifest import Identity, StageVersion
from pipeline_assets.spine.metadata_file import REBUILD, MetadataFormat
from pipeline_assets.spine.rejects import Reject
from pipeline_assets.spine.stage import Window
from pipeline_assets.spine.staging import OutputFile, Receipt, StagingDir, StagingView, total_counts

_SHORT_HEADINGS = {
    "difficulty_stated": "stated difficulty",
    "reasoning_label": "label",
    "reasoning_content": "reasoning text",
}
_ALWAYS_SHOWN = frozenset({"uuid", "correctness", "solved", "tools", "reasoning_label", "reasoning_content", "licence"})
_MAX_SHOWN_TAGS = 8
_SIZE_HEADINGS = ["split", "files", "bytes", "format", "rows", "scan", "rejected", "optional columns"]
_ROLE_TALLY_KEYS = ("keys", "calls", "arguments", "types")  # parts of the tally of a role's messages


def render_coverage(inventory: Mapping[str, Any]) -> str:
    """Render an inventory as Markdown: coverage, sizes, tags, unread files, rejects."""
    split = escape_cell(f"{inventory['dataset'].rpartition('/')[2]} {inventory['split']}")
    coverage, scan = inventory["coverage"], inventory["scan"]
    names = [name for name in COVERAGE_CONDITIONS if name in _ALWAYS_SHOWN or coverage[name]["rows"]]
    headings = [_SHORT_HEADINGS.get(name, name.replace("_", " ")) for name in names]
    shares = [_format_percent(coverage[name]["share"]) for name in names]
    size = [
        split,
        f"{len(inventory['files']):,}",
        f"{inventory['bytes']:,}",
        inventory["format"],
        "unknown" if inventory["rows"] is None else f"{inventory['rows']:,}",
        "full" if scan["kind"] == "full" else f"sample of {scan['rows_read']:,} rows",
        f"{sum(inventory['rejected'].values()):,}",
        ", ".join(map(code, inventory["optional_columns"])) or "none",
    ]
    tags = [[split, column, _format_most_frequent(values)] for column, values in inventory["tags"].items()]
    notes = []
    if inventory["left_out"]:
        paths = ", ".join(map(code, inventory["left_out"]))
        notes.append(f"- {split}: {paths} lie beside its {inventory['format']} files, which are read.")
    if inventory["rejected"]:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in inventory["rejected"].items())
        notes.append(f"- {split}: {reasons}; see its rejects.")
    lines = [
        *("# Metadata coverage", "", "Share of rows that have it, of the rows that were read.", ""),
        *markdown_table(["split", "rows read", *headings], [[split, f"{inventory['rows_counted']:,}", *shares]]),
        *("", "| column of this table | there is |", "| --- | --- |"),
        *(f"| {column} | {COVERAGE_CONDITIONS[name]} |" for column, name in zip(headings, names, strict=True)),
        *("", "## Files and rows", ""),
        *markdown_table(_SIZE_HEADINGS, [size]),
        *("", "## Tags", ""),
        *markdown_table(["split", "column", "values"], tags),
        *(["", "## Not read", "", *notes] if notes else []),
    ]
    return "\n".join(lines) + "\n"


def _format_most_frequent(values: Mapping[str, int]) -> str:
    counts = sorted(values.items(), key=lambda item: (-item[1], item[0]))
    listed = ", ".join(f"{code(value)} {count:,}" for value, count in counts[:_MAX_SHOWN_TAGS])
    return listed + (f", and {len(counts) - _MAX_SHOWN_TAGS:,} more" if len(counts) > _MAX_SHOWN_TAGS else "")


def _format_percent(fraction: str) -> str:
    """Format a decimal string of four places as a percentage; `–` if it is empty."""
    if not fraction:
        return "–"
    percent, hundredths = divmod(int(fraction.replace(".", "")), 100)
    return f"{percent}.{hundredths:02d} %" if hundredths else f"{percent} %"


INVENTORY_STAGE = StageVersion("nemotron_inventory", 6)
INVENTORY_JSON = "inventory.json"
INVENTORY_FORMAT: MetadataFormat[dict[str, Any]] = MetadataFormat("inventory", 256 << 20, REBUILD, dict[str, Any])


def take_inventory(
    staging: StagingDir, files: Sequence[SourceFile], pin: Identity, max_rows: int | None, settings: RunSettings
) -> BuildResult:
    """Build the inventory of a split's rows, or of a sample of `max_rows`.

    `pin` is the identity of the artifact that pins the split's files. Raise InputError if a sample has no row
    although the files are not empty.
    """
    shards = source_rows.plan_shards(files, source_rows.SCAN_SHARD_BYTES, max_rows)
    settings = limit_workers(staging, settings, [sum(piece.bytes for piece in shard.pieces) for shard in shards])
    receipts = list(run_stage("inventory", take_census, shards, staging, settings))
    counts = total_counts(receipts)
    if max_rows is not None and not counts.get("in") and any(file.bytes for file in files):
        raise source_rows.empty_sample_error(max_rows, staging.target)
    tally: Tally = {}
    for receipt in receipts:
        add_tally(tally, receipt.notes["tally"])
    inventory = _describe_split(files, pin, max_rows, counts, tally)
    rejects = (receipt.files[0] for receipt in receipts)
    ledger = Ledger(counts.get("in", 0), counts.get("rows", 0), {}, inventory["rejected"]).to_json()
    return BuildResult(
        files=[
            write_text(staging, INVENTORY_JSON, _encode_inventory(inventory)),
            write_text(staging, "metadata_coverage.md", render_coverage(inventory)),
            concatenate_lines(staging, rejects, REJECTS_FILE, settings.zstd_level),
        ],
        counts={"ledger": ledger, "files": len(files), "bytes": inventory["bytes"]},
        decisions={"scan": inventory["scan"], "format": inventory["format"]},
    )


def take_census(shard: source_rows.RowShard, window: Window, folder: StagingView) -> Receipt:
    """Tally the rows of a shard in the notes of its receipt; write the rejects."""
    census, rejects = RowCensus(), []
    parquet = find_object_columns(shard.pieces)
    for row in source_rows.read_shard(shard):
        if isinstance(row, Reject):
            rejects.append(row)
        else:
            census.add_row(row.columns, to_json_row(row.columns, parquet[row.file]) if row.file in parquet else None)
    counts = {"in": census.rows + len(rejects), "rows": census.rows, **count_rejects(rejects)}
    name = f"{REJECTS_FOLDER}/{shard.name}{SUFFIX}"
    return Receipt([write_rows(folder.path(name), name, rejects, zstd_level=3)], counts, {"tally": census.tally()})


def _describe_split(
    files: Sequence[SourceFile], pin_identity: Identity, max_rows: int | None, counts: Mapping[str, int], tally: Tally
) -> dict[str, Any]:
    """Return the inventory of a split; its shares are fractions of the readable rows."""
    rows, read, footers = counts.get("rows", 0), counts.get("in", 0), []
    for file in files:
        if detect_format(file.name) == "parquet":
            metadata = read_local_footer(file)
            schema = {field.name: str(field.type) for field in metadata.schema.to_arrow_schema()}
            footers.append({"path": file.name, "rows": metadata.num_rows, "schema": schema})
    all_rows = read if max_rows is None else None  # unknown for a sample of lines
    if len(footers) == len(files):
        all_rows = sum(footer["rows"] for footer in footers)
    columns, messages, coverage, tags = (tally.get(part, {}) for part in ("columns", "messages", "coverage", "tags"))
    return {
        "dataset": pin_identity.recipe["dataset"],
        "split": pin_identity.recipe["split"],
        "revision": pin_identity.recipe.get("revision"),
        "format": detect_format(files[0].name),
        "found_by": pin_identity.decisions["found_by"],
        "left_out": list(pin_identity.decisions["left_out"]),
        "scan": {"kind": "full" if max_rows is None else "sample", "max_rows": max_rows, "rows_read": read},
        "files": [{"path": file.name, "bytes": file.bytes} for file in files],
        "bytes": sum(file.bytes for file in files),
        "rows": all_rows,
        "rows_counted": rows,
        "rejected": Ledger.from_counts(counts).rejected,
        "columns": _describe_columns(columns, rows),
        "optional_columns": sorted(name for name, types in columns.items() if _count_non_null(types) < rows),
        "metadata": _describe_columns(tally.get("metadata", {}), rows),
        "messages": {
            role: {part: _sort_names(messages[role][part]) for part in _ROLE_TALLY_KEYS if part in messages[role]}
            for role in sorted(messages)
        },
        "coverage": {
            name: {"rows": coverage.get(name, 0), "share": _format_fraction(coverage.get(name, 0), rows)}
            for name in COVERAGE_CONDITIONS
        },
        "tags": {tag: _sort_names(tags[tag]) for tag in TAG_COLUMNS if tag in tags},
        "footers": footers,
    }


def _describe_columns(columns: Tally, rows: int) -> dict[str, Any]:
    """Return each column's types with their counts, and the share of non-null rows."""
    return {
        name: {"types": _sort_names(types), "share": _format_fraction(_count_non_null(types), rows)}
        for name, types in sorted(columns.items())
    }


def _format_fraction(part: int, whole: int) -> str:
    """Format a fraction with four places, rounded half up; empty if the whole is 0."""
    if not whole:
        return ""
    # floor(10,000 · part / whole + 1/2), in integers
    ten_thousandths = (2 * 10_000 * part + whole) // (2 * whole)
    return f"{ten_thousandths // 10_000}.{ten_thousandths % 10_000:04d}"


def _count_non_null(types: Mapping[str, int]) -> int:
    return sum(count for kind, count in types.items() if kind != "null")


def _sort_names(tally: Tally) -> Tally:
    return {name: _sort_names(value) if isinstance(value, dict) else value for name, value in sorted(tally.items())}


def write_text(staging: StagingDir, name: str, text: str) -> OutputFile:
    """Write a UTF-8 file durably to the staging directory; each line counts as a row."""
    return staging.write(name, text.encode("utf-8"), text.count("\n"))


def _encode_inventory(inventory: Mapping[str, Any]) -> str:
    """Encode a split's inventory as `{DATASET: {"splits": {SPLIT: inventory}}}`."""
    content = {key: value for key, value in inventory.items() if key not in ("dataset", "split")}
    datasets = {inventory["dataset"]: {"splits": {inventory["split"]: content}}}
    return json.dumps(datasets, indent=1, ensure_ascii=False) + "\n"


def read_inventory(inventory: Artifact) -> dict[str, Any]:
    """Read the inventory of a split as a dict that includes `dataset` and `split`."""
    [(dataset, splits)] = INVENTORY_FORMAT.read(inventory.path(INVENTORY_JSON)).items()
    [(split, content)] = splits["splits"].items()
    return {"dataset": dataset, "split": split, **content}
