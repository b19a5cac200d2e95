"""Exports of text artifacts as folders that other programs read.

    parquet   00000.parquet, …                          README.md  manifest.json
    jsonl     00000.jsonl.zst, …                        README.md  manifest.json
    hf        data/train-00000-of-0000N.parquet, …      README.md  manifest.json      layout of a hub dataset

Repeated exports of an artifact at one compression level write identical row files. The folder gets its name only when
it is complete.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pyarrow as pa

from pipeline_assets.build.rows.store import RowStore
from pipeline_assets.build.rows.table_shard import TableShard
from pipeline_assets.corpus.formats.jsonl_zst import SUFFIX, JsonlZstWriter
from pipeline_assets.corpus.formats.parquet_tables import regroup_rows, write_table
from pipeline_assets.corpus.nemotron.schema import COLUMN_DESCRIPTIONS, has_row_columns
from pipeline_assets.corpus.publishing.dataset_card import CardContent, CardSplit, dataset_card
from pipeline_assets.corpus.publishing.hub_metadata import DEFAULT_CONFIG
from pipeline_assets.spine import durable
from pipeline_assets.spine.artifact import Artifact, open_artifact
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.spine.lineage import Lineage, collect_chain
from pipeline_assets.spine.manifest import MANIFEST_FILE, Manifest
from pipeline_assets.spine.replacement import forbid_replacement
from pipeline_assets.spine.temporary_names import temporary_path
from pipeline_assets.spine.verified_reads import verify_reads

ExportFormat = Literal["parquet", "jsonl", "hf"]
_ROW_GROUP_ROWS = 4096  # tens of megabytes if texts are long
_SOURCE_COLUMNS, _LICENCE_COLUMNS = ("source", "source_dataset", "dataset"), ("license_tag", "meta_license")


def export(store: RowStore, export_format: ExportFormat, folder: Path, zstd_level: int) -> CardSplit:
    """Write the rows of an artifact into a new folder; return its files and sizes.

    Raise UsageError if `folder` exists or the rows are not text; InputError if a file does not have its sealed hash.
    """
    raise_if_exists(folder)
    if folder.parent.is_dir():
        durable.remove_abandoned(folder.parent)
    staging = temporary_path(folder)
    try:
        with forbid_replacement(store.artifact.folder), verify_reads():  # both fail before the copy gets its name
            open_artifact(store.artifact.folder, store.artifact.manifest.digest)
            written = _write_copy(store, export_format, staging, zstd_level)
        durable.rename(staging, folder)
    except BaseException as error:
        with contextlib.suppress(OSError):  # the first error is the one to report
            durable.remove(staging)
        if isinstance(error, OSError):
            raise_if_exists(folder)
        raise
    return written


def raise_if_exists(path: Path) -> None:
    """Raise UsageError if a path exists, even if it is a broken link."""
    if path.is_dir():
        raise UsageError("folder already exists", path, "choose another folder, or remove this one")
    if os.path.lexists(path):
        raise UsageError("expected a folder, got a file", path, "choose another folder, or move the file away")


def _write_copy(store: RowStore, export_format: ExportFormat, staging: Path, zstd_level: int) -> CardSplit:
    shards, files = store.table_shards(), list[str]()
    durable.make_folder(staging / "data" if export_format == "hf" else staging)
    split = CardSplit(DEFAULT_CONFIG, "train", files, shards[0].schema if shards else pa.schema([]))
    for number, shard in enumerate(shards):
        ending = SUFFIX if export_format == "jsonl" else ".parquet"
        stem = f"data/train-{number:05d}-of-{len(shards):05d}" if export_format == "hf" else f"{number:05d}"
        name = f"{stem}{ending}"
        path, tables = staging / name, _read_and_count(shard, split)
        if export_format == "jsonl":
            with JsonlZstWriter(path, zstd_level) as writer:
                for rows in tables:
                    writer.write_rows(rows.to_pylist())
        else:
            write_table(path, name, regroup_rows(tables, shard.schema, _ROW_GROUP_ROWS), shard.schema)
        files.append(name)
        split.bytes += path.stat().st_size
    durable.write_durably(staging / "README.md", _render_card(store, split))
    durable.write_durably(staging / MANIFEST_FILE, (store.artifact.folder / MANIFEST_FILE).read_bytes())
    return split


def _read_and_count(shard: TableShard, split: CardSplit) -> Iterator[pa.Table]:
    """Yield a shard's tables; count their rows, bytes and licences in `split`."""
    stored = shard.schema.names
    known = (_SOURCE_COLUMNS, _LICENCE_COLUMNS)
    columns = [next((name for name in names if name in stored), None) for names in known]
    for rows in shard.tables():
        split.rows += rows.num_rows
        split.uncompressed_bytes += rows.nbytes
        sources, licences = ([None] * rows.num_rows if name is None else rows[name].to_pylist() for name in columns)
        split.licences.update((source or "", licence) for source, licence in zip(sources, licences, strict=True))
        yield rows


def _render_card(store: RowStore, split: CardSplit) -> bytes:
    title, manifest = card_title(store.artifact.manifest), store.artifact.manifest
    columns = COLUMN_DESCRIPTIONS if has_row_columns(split.schema.names) else {}
    splits, steps = [split] if split.rows else [], upstream_manifests(store.artifact, store.lineage)
    card = CardContent(title, "path/of/this/folder", splits, [], [manifest], steps, column_descriptions=columns)
    return dataset_card(card).encode()


def card_title(manifest: Manifest) -> str:
    """Return the name of an artifact without the part up to the first slash."""
    return manifest.name.partition("/")[2] or manifest.name


def upstream_manifests(artifact: Artifact, lineage: Lineage) -> list[Manifest]:
    """Return the manifests of existing upstream artifacts, the farthest first."""
    return [upstream.manifest for upstream in collect_chain(artifact.folder, lineage.root).artifacts[:0:-1]]
