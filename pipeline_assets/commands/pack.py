"""stage-a pack: Documents of several sources become rows of tokens."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipeline_assets.commands.building import OutFolder, Place, SealedInputs, StrictFlags, sealed_folders, warning_last
from pipeline_assets.commands.sections import NAMES, Content, Section, command, option_finder
from pipeline_assets.commands.terminal import naming
from pipeline_assets.corpus.spine.errors import UsageError

if TYPE_CHECKING:
    from pipeline_assets.corpus.spine.artifact import Artifact

app = typer.Typer()


@command(
    app,
    "pack",
    "stage-a pack --manifest pack.yaml --input out/stage_a/deduplicated/all --out-dir out/stage_a/packed/all",
)
def pack(
    manifest: Annotated[Path, typer.Option(help="YAML with a section `pack`, or with what that says.")],
    input: SealedInputs,
    out_dir: OutFolder,
    said: Annotated[Content, Section("corpus.packing.recipe.PackSection")],
    flags: StrictFlags,
) -> None:
    """Pack sources by weight into rows of tokens of one length, of which each token can be traced."""
    from pipeline_assets.commands.given import packed_target
    from pipeline_assets.corpus.packing.recipe import PackSection

    place = Place.at(out_dir)
    run = flags.run(place.root)
    typed = option_finder({key: f"--{key.replace('_', '-')}" for key in said}, NAMES | {"": "manifest"})
    with naming(manifest, typed, within="pack."):
        section = PackSection.of(_content(manifest) | said, manifest)
        if section.tokenizer_path is not None:
            path, root = (manifest.absolute().parent / section.tokenizer_path).resolve(), place.root.resolve()
            lies_at = path.relative_to(root) if path.is_relative_to(root) else path
            section = section.model_copy(update={"tokenizer_path": str(lies_at)})
        folders = sealed_folders(input)
        target = packed_target(folders, place.below, section)
        place.warn_of_other_roots(folders)
        with warning_last([target], place.root, flags.strict):
            packed = place.build(target, run)
            for line in _lines(packed):
                typer.echo(line)
            target.refuse_failed(place.root)


def _content(manifest: Path) -> dict[str, Any]:
    from pipeline_assets.corpus.spine.recipe import read_yaml

    content = read_yaml(manifest, "manifest")
    section = content.get("pack", content)
    if not isinstance(section, dict):
        raise UsageError("its `pack` is no section", manifest, "write `key: value` lines below it")
    beside = [] if "system" in content else sorted(content.keys() - {"pack"})
    if "pack" in content and beside:
        raise UsageError(f"it has `{beside[0]}` beside `pack`", manifest, "move it into that section, or remove it")
    return section


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
