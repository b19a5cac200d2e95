"""stage-a pack: Documents of several sources become rows of tokens."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipeline_assets.commands.build_options import (
    LOG_EVERY_S,
    THREADS,
    LogEvery,
    Replace,
    SealedInputs,
    Threads,
    Verbose,
    place_for,
    prepare,
    sealed_folders,
    warn_of_other_roots,
    warning_last,
)
from pipeline_assets.commands.terminal import Strict, as_typed, going_on
from pipeline_assets.commands.wrong_use import IN_A_ROOT, name_pack_key
from pipeline_assets.corpus.spine.errors import InputError, UsageError

if TYPE_CHECKING:
    from pipeline_assets.corpus.spine.artifact import Artifact

app = typer.Typer()


@app.command(
    "pack",
    epilog="Example: corpusmill stage-a pack --manifest pack.yaml --input out/stage_a/deduplicated/all "
    "--out-dir out/stage_a/packed/all",
)
def pack(
    manifest: Annotated[Path, typer.Option(help="YAML with a section `pack`, or with what that says.")],
    input: SealedInputs,
    out_dir: Annotated[Path, typer.Option(help="Folder of what is made.")],
    num_seqs: Annotated[int | None, typer.Option(min=1, help="Rows. Default: as the manifest says.")] = None,
    cpu_threads: Threads = THREADS,
    log_every: LogEvery = LOG_EVERY_S,
    verbose: Verbose = False,
    replace: Replace = False,
    strict: Strict = False,
) -> None:
    """Pack sources by weight into rows of tokens of one length, of which each token can be traced."""
    from pipeline_assets.commands.given import packed_target
    from pipeline_assets.corpus.packing.recipe import PackSection
    from pipeline_assets.corpus.spine.lineage import root_of
    from pipeline_assets.launch import build_one

    out = place_for(out_dir)
    root = root_of(out) or out.parent
    run = prepare(root, cpu_threads, log_every, verbose, replace)
    with _naming_manifest(manifest, num_seqs):
        section = PackSection.of(_content(manifest, num_seqs), manifest)
    if section.tokenizer_path is not None:
        path = (manifest.absolute().parent / section.tokenizer_path).resolve()
        moves_along = path.is_relative_to(root.resolve())
        place = path.relative_to(root.resolve()) if moves_along else path
        section = section.model_copy(update={"tokenizer_path": str(place)})
    with _naming_manifest(manifest, num_seqs):
        folders = sealed_folders(input)
        target = packed_target(folders, out.relative_to(root), section)
    warn_of_other_roots(folders, out)
    with warning_last([target], root, strict):
        with going_on(as_typed()), _naming_manifest(manifest, num_seqs):
            packed = build_one(target, run, root_of(out)).artifact
        for line in _lines(packed):
            typer.echo(line)
        target.refuse_failed(root)


@contextlib.contextmanager
def _naming_manifest(manifest: Path, num_seqs: int | None) -> Iterator[None]:
    """Errors of the block name the manifest, or the option, that has what they speak of: there is no recipe."""
    try:
        yield
    except InputError as error:
        error.fix = error.fix.replace("correct the recipe", "correct the manifest").replace(*IN_A_ROOT)
        error.fix = error.fix.replace("`name` in the recipe", "--out-dir")
        if num_seqs is not None:
            error.where = "--num-seqs" if error.where == "num_seqs" else error.where
            error.fix = error.fix.replace("`num_seqs`", "--num-seqs")
        name_pack_key(error, manifest)
        raise


def _content(manifest: Path, num_seqs: int | None) -> dict[str, Any]:
    from pipeline_assets.corpus.spine.recipe import read_yaml

    content = read_yaml(manifest, "manifest")
    section = content.get("pack", content)
    if not isinstance(section, dict):
        raise UsageError("its `pack` is no section", manifest, "write `key: value` lines below it")
    beside = [] if "system" in content else sorted(content.keys() - {"pack"})
    if "pack" in content and beside:
        raise UsageError(f"it has `{beside[0]}` beside `pack`", manifest, "move it into that section, or remove it")
    return section if num_seqs is None else section | {"num_seqs": num_seqs}


def _lines(packed: "Artifact") -> Iterator[str]:
    from pipeline_assets.corpus.document_shards import REJECTS_FILE
    from pipeline_assets.corpus.packing.summary import summary_of

    told = summary_of(packed)
    yield f"{packed.folder}\n  {packed.manifest.digest}"
    padding = f"{told.padding_tokens:,} padding ({1 - float(told.packing_efficiency):.2%})"
    yield f"  {told.rows:,} rows: {told.tokens:,} tokens of {told.documents:,} documents, {padding}"
    longer = sum(one["longer_than_a_row"] for one in told.by_source.values())
    cut = f"{told.cut_documents:,} of the documents ({float(told.cut_share):.2%}) are cut: no row holds all of one"
    yield f"  {cut}; {longer:,} are longer than a row"
    width = max(map(len, told.by_source))
    for source, one in told.by_source.items():
        shares = f"asked {float(one['asked_share']):.2%}, reached {float(one['share']):.2%}"
        drawn = f"{one['packed_tokens']:,} tokens, {float(one['epochs']):.2f} epochs"
        yield f"  {source:{width}}  {shares}: {drawn}, {float(one['cut_share']):.2%} of documents cut"
    if told.rejected:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in told.rejected.items())
        yield f"  texts that can't be encoded: {reasons}; {packed.path(REJECTS_FILE)} has them"
