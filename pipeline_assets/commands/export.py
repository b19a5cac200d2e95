"""export: a text artifact as a folder that other programs read."""

import os
from pathlib import Path
from typing import Annotated, Literal

import typer

from pipeline_assets.commands.terminal import OptionalRoot, as_bytes, data_root
from pipeline_assets.corpus.recipes.run import Run
from pipeline_assets.corpus.spine.artifact import sealed_manifest
from pipeline_assets.corpus.spine.files import unreplaced
from pipeline_assets.corpus.spine.lineage import Lineage


def export(
    folder: Annotated[Path, typer.Argument(help="Folder of documents, or of normalised rows.")],
    out: Annotated[Path, typer.Option(help="Folder that is made.")],
    to: Annotated[
        Literal["parquet", "jsonl", "hf"], typer.Option(help="parquet, jsonl, or hf: as a hub has it.")
    ] = "parquet",
    data: OptionalRoot = None,
) -> None:
    """Example: corpusmill export data/stage_a/notes/deduplicated/notes --to hf --out exported/notes"""
    from pipeline_assets.corpus.publishing.export import export as export_rows
    from pipeline_assets.corpus.rows.trace import open_rows

    root = data_root(folder, data)
    with unreplaced(folder):
        sealed_manifest(folder)
        made = export_rows(open_rows(folder, Lineage(root)), to, out, Run.of(root, os.environ).settings.zstd_level)
    typer.echo(f"{out}: {made.rows:,} rows in {len(made.files):,} files, {as_bytes(made.bytes)}, and README.md")
