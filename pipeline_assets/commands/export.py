"""The command `export`, which writes rows in the formats of other programs."""

import contextlib
import os
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from pipeline_assets.build.run import Run
from pipeline_assets.commands.build import build_targets, resolve_output_folder
from pipeline_assets.commands.inputs import sealed_target, warn_of_listed_rows
from pipeline_assets.commands.lines import lines_with_losses
from pipeline_assets.commands.options import SetsKeys
from pipeline_assets.commands.terminal import OptionalRoot, data_root, echo, format_bytes, print_lines
from pipeline_assets.corpus.tokens.loss_limit import LossLimit
from pipeline_assets.spine import durable
from pipeline_assets.spine.areas import AREAS
from pipeline_assets.spine.artifact import Artifact, check_record_path, open_artifact
from pipeline_assets.spine.errors import InputError, UsageError
from pipeline_assets.spine.files import file_sha256
from pipeline_assets.spine.lineage import Lineage
from pipeline_assets.spine.lock import locked
from pipeline_assets.spine.plural import pluralize
from pipeline_assets.spine.replacement import forbid_replacement
from pipeline_assets.spine.sealed_folder import require_manifest
from pipeline_assets.systems.registry import SYSTEMS

if TYPE_CHECKING:
    from pipeline_assets.build.rows.store import RowStore
    from pipeline_assets.build.target import Target

ExportFormat = Literal["parquet", "jsonl", "hf", "megatron", "olmo", "nanochat", "messages", "sft"]
_PLAIN_FORMATS = ("parquet", "jsonl", "hf")


def export(
    folder: Annotated[Path, typer.Argument(help="Folder of documents or of nemotron's rows.")],
    out: Annotated[Path, typer.Option(help="Output folder.")],
    to: Annotated[ExportFormat, typer.Option(help="Format, or the trainer that reads it.")] = "parquet",
    tokenizer: Annotated[
        Path | None, typer.Option(help="tokenizer.json or SentencePiece model. Default: o200k Harmony.")
    ] = None,
    end_of_document: Annotated[
        str | None,
        typer.Option(help="Token after each document, for --tokenizer."),
        SetsKeys("pack.tokenizer.end_of_document"),
    ] = None,
    max_unknown_fraction: Annotated[
        float | None,
        typer.Option(help="Maximum share of text lost by --tokenizer. Default: 0.05.", min=0, max=1),
        SetsKeys("max_unknown_fraction"),
    ] = None,
    seq_len: Annotated[
        int | None, typer.Option(help="Tokens in a row of sft. Default: 4096.", min=2, max=1 << 20)
    ] = None,
    data: OptionalRoot = None,
) -> None:
    """Write documents or rows for a trainer, or as Parquet.

    Exit status 1: the tokenizer loses more text of a source than the limit. The exported folder is still complete.

    Example: corpusmill export data/stage_a/notes/deduplicated/notes --to megatron --out exported/notes
    """
    from pipeline_assets.build.rows.export import export as export_rows
    from pipeline_assets.build.rows.export import raise_if_exists

    values = {
        "tokenizer": tokenizer,
        "end_of_document": end_of_document,
        "max_unknown_fraction": max_unknown_fraction,
        "seq_len": seq_len,
    }
    options = {name: value for name, value in values.items() if value is not None}
    root = data_root(folder, data)
    require_manifest(folder)
    out = Path(os.path.normpath(out))
    resolve_output_folder(out)  # raises if it is inside an artifact
    store, run = _open_rows(folder, root, to), Run.from_settings(root, os.environ)
    warn_of_listed_rows(folder, root)
    if to in ("parquet", "jsonl", "hf"):
        _raise_if_unused(to, options, frozenset())
        if any(out.resolve().is_relative_to((root / area).resolve()) for area in AREAS):
            fix = f"choose a folder outside of {', '.join(AREAS)} of the data root"
            raise UsageError("a copy in this folder would be taken for its artifact", out, fix)
        with forbid_replacement(folder):
            exported = export_rows(store, to, out, run.settings.zstd_level)
        written = format_bytes(exported.bytes)
        sizes = f"{pluralize(exported.rows, 'row')} in {pluralize(len(exported.data_files), 'file')}, {written}"
        echo(f"{out}: {sizes}, and README.md")
        _warn_of_repeated_rows(store.artifact, exported.rows)
        return
    target = _export_target(store, to, out, options)
    if not target.matches_recipe(root):
        raise_if_exists(out)
    try:
        exported_tokens = build_targets([target], run, format_lines=lines_with_losses)
        limit = LossLimit() if max_unknown_fraction is None else LossLimit(str(max_unknown_fraction))
        verdict = limit.evaluate(exported_tokens.manifest)
        if not verdict.passed and not verdict.is_minor:
            raise InputError(verdict.because, out, "or raise `max_unknown_fraction`")
        print_lines([] if verdict.passed else [f"WARNING: {verdict.because}"], err=True)
    finally:  # leave no check record and no lock next to the folder
        with contextlib.suppress(InputError, OSError), locked(out.absolute()) as lock:
            durable.remove(check_record_path(out))
            durable.remove(lock.path)


def _warn_of_repeated_rows(artifact: Artifact, row_count: int) -> None:
    """Warn if the export repeats rows that are in several pools or subsets."""
    identity = artifact.manifest.identity
    repeats = row_count - identity.ledger.out if "ledger" in identity.counts else 0  # the ledger counts a row once
    if repeats > 0:
        what = f"{repeats:,} of {row_count:,} rows repeat rows that are in several pools or subsets"
        echo(f"warning: {what}; each pool or subset has its own folder in {artifact.folder}", err=True)


def _open_rows(folder: Path, root: Path, export_format: str) -> "RowStore":
    """Open the rows of a folder; raise UsageError if the format does not take them."""
    from pipeline_assets.build.rows.file_rows import FileRows
    from pipeline_assets.build.rows.row_stores import row_store_for
    from pipeline_assets.build.trainer_exports import FORMATS, PLAIN_CONTENTS

    artifact, form = open_artifact(folder), FORMATS.get(export_format)
    store = row_store_for(artifact, SYSTEMS.kinds, Lineage(root))
    if isinstance(store, FileRows if form is None else form.row_store_class):
        return store
    formats = [name for name, other in FORMATS.items() if isinstance(store, other.row_store_class)]
    fitting = " or ".join(f"--to {name}" for name in (*_PLAIN_FORMATS, *formats) if isinstance(store, FileRows))
    fix = "choose such a folder" + (f", or for this one {fitting}" if fitting else "")
    contents = PLAIN_CONTENTS if form is None else form.contents
    raise UsageError(f"--to {export_format} takes {contents}, got {artifact.manifest.kind}", folder, fix)


def _export_target(store: "RowStore", export_format: str, output_folder: Path, options: dict[str, Any]) -> "Target":
    """Return an export's target; raise UsageError for unsuitable options."""
    from pipeline_assets.build.trainer_exports import FORMATS, KINDS
    from pipeline_assets.corpus.packing.recipe import TokenizerPath

    form, source = FORMATS[export_format], store.artifact.folder
    _raise_if_unused(export_format, options, form.options)
    row_length = {"seq_len": options.get("seq_len", 4096)} if export_format == "sft" else {}
    content: dict[str, Any] = {"to": export_format, **row_length}
    more: dict[str, Any] = {}
    if "tokenizer" in form.options:
        file = options.get("tokenizer")
        more["tokenizer"] = _tokenizer_content(file, options.get("end_of_document"))
        more["external_inputs"] = None if file is None else TokenizerPath(file.absolute())
    upstream = [sealed_target(source, *SYSTEMS.kinds.values())]
    # No copy of the manifest: a user who may only read the data root can export from it.
    folder = resolve_output_folder(output_folder)
    return KINDS[export_format].target(output_folder.name, content, upstream, folder=folder, copy_name=None, **more)


def _raise_if_unused(export_format: str, options: Collection[str], used_options: Collection[str]) -> None:
    if unused := [name for name in options if name not in used_options]:
        option = f"--{unused[0].replace('_', '-')}"
        raise UsageError(f"--to {export_format} does not use {option}", option, "omit it, or choose another --to")


def _tokenizer_content(file: Path | None, end_of_document: str | None) -> dict[str, Any]:
    """Return recipe content for a tokenizer file; for o200k Harmony if `file` is None."""
    from pipeline_assets.corpus.tokens.o200k_harmony import HarmonyRecipe
    from pipeline_assets.corpus.tokens.pinned_file import FileTokenizerRecipe

    if file is None:
        if end_of_document is not None:
            what = "o200k Harmony has its own end of a document"
            raise UsageError(what, "--end-of-document", "omit it, or pass a --tokenizer")
        return HarmonyRecipe().content()
    if end_of_document is None:
        what = f"{file.name} needs the token that ends a document"
        raise UsageError(what, "--end-of-document", "pass its text, such as '</s>'")
    try:
        sha256 = file_sha256(file)
    except OSError as error:
        what, fix = f"cannot read the tokenizer file ({error.strerror})", "pass a tokenizer.json or a .model file"
        raise UsageError(what, file, fix) from None
    family: Literal["hf_tokenizer", "sentencepiece"] = "hf_tokenizer" if file.suffix == ".json" else "sentencepiece"
    return FileTokenizerRecipe(family=family, sha256=sha256, end_of_document=end_of_document).content()
