"""Dagster metadata of a sealed artifact."""

import urllib.parse

import dagster as dg
import pyarrow as pa
from pyarrow.types import is_struct

from pipeline_assets.build.figures import figure_outcomes
from pipeline_assets.build.inventory import sealed_at
from pipeline_assets.build.rows.row_stores import preview, row_store_for
from pipeline_assets.build.rows.store import RowStore
from pipeline_assets.build.target import Kinds
from pipeline_assets.corpus import document
from pipeline_assets.corpus.markdown import escape, markdown_table
from pipeline_assets.corpus.nemotron import schema as row_schema
from pipeline_assets.corpus.pages import REPORT_HTML
from pipeline_assets.corpus.scoring import subsets
from pipeline_assets.corpus.tokens.sealed_losses import read_losses
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.data_root import find_data_root
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.spine.manifest import MANIFEST_FILE, Manifest

REPORTS_VARIABLE = "CORPUSMILL_REPORTS"  # address at which `corpusmill ui` serves report pages
_COUNT_NAMES = (
    *("documents", "tokens", "estimated_tokens", "completion_tokens", "text_bytes", "pools", "subsets", "millinats"),
    *("messages_as_json", "invalid_harmony", "unread_message_keys", "think_tags"),
    *("unknown_channels", "control_characters", "stalled_calls"),
)
_NEMOTRON_COLUMNS = {**row_schema.COLUMN_DESCRIPTIONS, **subsets.COLUMN_DESCRIPTIONS}
_MB_NAMES = {"bytes_fetched": "fetched_mb", "peak_disk_bytes": "peak_disk_mb", "peak_memory_bytes": "peak_memory_mb"}


def artifact_metadata(artifact: Artifact, kinds: Kinds, was_current: bool) -> dict[str, dg.MetadataValue]:
    """Return Dagster metadata of an artifact, such as its digest, counts and preview.

    `was_current` means that the artifact was up to date, so nothing was built.
    """
    manifest = artifact.manifest
    counts, provenance = manifest.identity.counts, manifest.provenance
    seconds = float(provenance.get("seconds", 0))
    size = sum(file.bytes for part in [manifest, *artifact.members()] for file in part.storage)
    values: dict[str, dg.MetadataValue] = {
        "digest": dg.MetadataValue.text(manifest.digest),
        "path": dg.MetadataValue.path(str(artifact.folder)),
        "recipe_sha256": dg.MetadataValue.text(manifest.identity.to_json()["recipe_sha256"]),
        "built": dg.MetadataValue.bool(not was_current),
        "bytes": dg.MetadataValue.int(size),
        "seconds": dg.MetadataValue.float(seconds),
        **({"built_at": dg.MetadataValue.timestamp(sealed_s)} if (sealed_s := sealed_at(provenance)) else {}),
        "manifest": dg.MetadataValue.path(str(artifact.folder / MANIFEST_FILE)),
    }
    for name in _COUNT_NAMES:
        if isinstance(counts.get(name), int):
            values[name] = dg.MetadataValue.int(counts[name])
        elif isinstance(counts.get(name), dict):
            values |= {f"{name}_{part}": dg.MetadataValue.int(count) for part, count in counts[name].items()}
    for source, losses in (read_losses(manifest) or {}).items():
        values[f"unknown_fraction_{source}"] = dg.MetadataValue.float(float(losses.fraction))
    store = row_store_for(artifact, kinds)
    tables = [file.rows for file in manifest.identity.files if file.path.endswith(".parquet")]
    if store is not None or len(tables) == 1:  # without a store, a single table has the artifact's rows
        values["dagster/row_count"] = dg.MetadataValue.int(len(store) if store is not None else tables[0])
    text_bytes = provenance.get("text_bytes_encoded", counts.get("text_bytes"))
    if text_bytes and not was_current:
        values["mb_per_second"] = dg.MetadataValue.float(round(text_bytes / 1e6 / max(seconds, 1e-3), 3))
    if manifest.identity.tokenizer is not None:
        values["tokenizer"] = dg.MetadataValue.text(" ".join(map(str, manifest.identity.tokenizer.values())))
    if command := provenance.get("command"):
        values["command"] = dg.MetadataValue.text(command["typed"])
    if published := provenance.get("published"):
        values["published"] = dg.MetadataValue.url(published["url"])
        values["commit"] = dg.MetadataValue.text(published["commit"])
    values |= _cost_metadata(manifest) | _column_metadata(store)
    if "ledger" in counts:
        ledger = manifest.identity.ledger
        fates = ((f"{fate}: {reason}" if reason else fate, count) for fate, reason, count in ledger.other_outcomes())
        table = [("in", ledger.rows_in), ("out", ledger.out), *fates]
        lines = [{"rows": fate, "count": f"{count:,}"} for fate, count in table]
        values["ledger"] = dg.MetadataValue.md(preview_table(lines))
    if REPORT_HTML in {file.path for file in manifest.storage} and (address := dg.EnvVar(REPORTS_VARIABLE).get_value()):
        root = find_data_root(artifact.folder)
        folder = artifact.folder.relative_to(root) if root is not None else artifact.folder
        values["report"] = dg.MetadataValue.url(f"{address}/{urllib.parse.quote(folder.as_posix())}/{REPORT_HTML}")
    if rows := preview(artifact, kinds):
        values["preview"] = dg.MetadataValue.md(preview_table(rows))
    return values


def _column_metadata(store: RowStore | None) -> dict[str, dg.MetadataValue]:
    """Return a table's column names, types and descriptions.

    Fields of structs are named `column.field`.
    """
    try:
        shards = [] if store is None else store.table_shards()
    except UsageError:  # rows without text
        shards = []
    schema = shards[0].schema if shards else pa.schema([])
    fields: list[tuple[str, pa.DataType]] = []
    for field in schema:
        inner = field.type if is_struct(field.type) else ()
        fields += [(f"{field.name}.{part.name}", part.type) for part in inner] or [(field.name, field.type)]
    is_nemotron, is_documents = row_schema.has_row_columns(schema.names), "meta" in schema.names
    descriptions = _NEMOTRON_COLUMNS if is_nemotron else document.COLUMN_DESCRIPTIONS if is_documents else {}
    columns = [dg.TableColumn(name, str(type_), descriptions.get(name)) for name, type_ in fields]
    return {"dagster/column_schema": dg.MetadataValue.table_schema(dg.TableSchema(columns))} if columns else {}


def _cost_metadata(manifest: Manifest) -> dict[str, dg.MetadataValue]:
    """Return the measured costs of a build, and a table of planned and real costs."""
    values: dict[str, dg.MetadataValue] = {}
    rows = []
    for outcome in figure_outcomes(manifest):
        name, real, planned = outcome.figure, outcome.real, outcome.planned
        if real is not None and name in _MB_NAMES:
            values[_MB_NAMES[name]] = dg.MetadataValue.float(round(real / 1e6, 3))
        elif real is not None and name.endswith("_seconds"):
            values[name] = dg.MetadataValue.float(float(real))
        if planned is not None:
            measured = "" if real is None else f"{real:,}"
            rows.append({"": name, "planned": f"{planned.value:,}", "basis": planned.basis, "real": measured})
    if rows:
        values["planned"] = dg.MetadataValue.md(preview_table(rows))
    return values


def preview_table(rows: list[dict[str, str]]) -> str:
    """Format rows with equal keys as a Markdown table, with escaped values."""
    return "\n".join(markdown_table(list(rows[0]) if rows else [], [[*map(escape, row.values())] for row in rows]))
