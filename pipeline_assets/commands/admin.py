"""pin, hub, tokenizer, manifests: what builds are made from, and what of them is kept in git."""

import json
from pathlib import Path
from typing import Annotated

import typer

from pipeline_assets.commands.terminal import AsJson, Root, answer, log_to_stderr
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.spine.durable import write_durably
from pipeline_assets.corpus.spine.errors import UsageError
from pipeline_assets.corpus.spine.manifest import MANIFEST_FILE, Manifest
from pipeline_assets.systems.registry import read_recipe, recipe_path
from resources import loopback_hub
from resources.loopback_faults import Fault


def pin(
    dataset: Annotated[str, typer.Argument(help="owner/name on the hub.")],
    model: Annotated[bool, typer.Option("--model", help="It is a model; its commit is printed.")] = False,
    revision: Annotated[
        str | None, typer.Option(help="Branch, tag or commit; default: the recipe's branch, else main.")
    ] = None,
    recipe: Annotated[str | None, typer.Option(help="Write the commit into this recipe.")] = None,
    tries: Annotated[int, typer.Option(min=1, envvar="CORPUSMILL_HUB_TRIES", help="Tries of a call to the hub.")] = 6,
    data: Root = Path("data"),
    as_json: AsJson = False,
) -> None:
    """Example: corpusmill pin HuggingFaceFW/fineweb-edu --recipe healing_text_v1"""
    from pipeline_assets.corpus.recipes.files import is_commit, pin_recipe, revision_in

    log_to_stderr()
    if model and recipe is not None:
        raise UsageError("no recipe is pinned to a model", "--recipe", "leave it out, and write there what is printed")
    path = None if recipe is None else recipe_path(recipe, data)
    before = None if path is None else revision_in(path, dataset)
    asked = revision or (before if before and not is_commit(before) else "main")
    hub = HubFiles(data / "hub_cache", tries=tries)
    commit = (hub.of_models() if model else hub).resolve(dataset, asked)
    if path is not None:
        pin_recipe(path, dataset, commit)
    answer(as_json, {"dataset": dataset, "commit": commit, "before": before}, [commit])
    if before is not None and not as_json:
        moved = f"{before or 'no revision'} → {commit}"
        typer.echo(f"{recipe}: {moved if before != commit else 'already there'}", err=True)


def export(
    to: Annotated[
        Path | None, typer.Option(help="Folder in git; default: manifests/ of the clone of corpusmill you are in.")
    ] = None,
    data: Root = Path("data"),
) -> None:
    """Example: corpusmill manifests export"""
    sources = sorted((data / "manifests").glob("*.json"))
    if not sources:
        raise UsageError("no manifest was built here", data / "manifests", "run a recipe first")
    to = to or _manifests_here()
    to.mkdir(parents=True, exist_ok=True)
    for source in sources:
        written = MANIFEST_FILE.bytes_of(source)
        manifest = Manifest.from_bytes(written, source)
        write_durably(to / source.name, written)
        typer.echo(f"{to / source.name}  {manifest.digest}")
    for inventory in sorted((data / "stage2").glob("*/inventory/inventory.json")):
        _export_mixture(inventory, to / "stage2", data)


def _export_mixture(inventory: Path, to: Path, data: Path) -> None:
    """Recipe, figures and inventory of a version of a mixture, in a folder of its name."""
    of_recipe = inventory.parents[1]
    version = to / of_recipe.name
    recipe = recipe_path(of_recipe.name, data)
    targets = read_recipe(recipe).targets()
    if not any(target.kind == "stage2/inventory" and target.is_sealed(data) for target in targets):
        typer.echo(f"left out {of_recipe.name}: its recipe was changed since it was built", err=True)
        return
    version.mkdir(parents=True, exist_ok=True)
    figures = sorted((of_recipe / "mixtures").glob("*.json"))
    for source in (recipe, *figures, inventory, inventory.with_suffix(".md")):
        name = source.name.removeprefix(f"{of_recipe.name}_") if source in figures else source.name
        write_durably(version / name, source.read_bytes())
    typer.echo(f"{version}  recipe, inventory and {len(figures)} files of figures")


def _manifests_here() -> Path:
    """`manifests/` of the clone of corpusmill that the command is typed in.

    Raises:
        UsageError: it is typed elsewhere: the clone that the program runs from may be anybody's.
    """
    here = Path.cwd()
    tree = next((folder for folder in (here, *here.parents) if (folder / ".git").exists()), here)
    project = tree / "pyproject.toml"
    if not project.is_file() or b'name = "corpusmill"' not in project.read_bytes():
        raise UsageError("this is no clone of corpusmill", here, "say with --to which folder the manifests go to")
    return tree / "manifests"


def check(
    path: Annotated[Path, typer.Argument(help="A .tiktoken vocabulary file, or a SentencePiece .model.")],
    expected_sha256: Annotated[
        str, typer.Option(help="The pinned hash; default: that of the shipped file, of a .model in its checksum.json.")
    ] = "",
    metadata_json: Annotated[Path | None, typer.Option(help="Write what was found to this file.")] = None,
) -> None:
    """Example: corpusmill tokenizer check o200k_base.tiktoken"""
    from pipeline_assets.corpus.tokens.families import describe_sentencepiece
    from pipeline_assets.corpus.tokens.o200k_harmony import VOCABULARY_SHA256, describe_tokenizer

    if not path.is_file():
        raise UsageError("there is no such file", path, "give a .tiktoken or .model file")
    if path.suffix == ".model":
        description = describe_sentencepiece(path, expected_sha256)
    else:
        description = describe_tokenizer(path, expected_sha256 or VOCABULARY_SHA256)
    text = json.dumps(description, indent=1, sort_keys=True)
    if metadata_json is not None:
        write_durably(metadata_json, text.encode() + b"\n")
    typer.echo(text)


def serve(
    folder: Annotated[Path, typer.Argument(help="Holds datasets/<owner>/<name>/… and models/<owner>/<name>/…")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 picks a free one.")] = 0,
    fault: Annotated[
        list[str] | None, typer.Option(help="KIND[:PATTERN[:COUNT]], such as 503 or cut-body:*.parquet:2; repeatable.")
    ] = None,
    writable: Annotated[bool, typer.Option("--writable", help="Datasets can be made, and written to.")] = False,
) -> None:
    """Example: corpusmill hub serve ./hub --port 8123"""
    loopback_hub.serve(folder, port, [Fault.parse(text) for text in fault or ()], writable=writable)
