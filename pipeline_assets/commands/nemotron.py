"""nemotron: what the rows of the Nemotron datasets are, and of others of their layout."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipeline_assets.commands.stage_a_settings import (
    LOG_EVERY_S,
    THREADS,
    LogEvery,
    OutDir,
    Replace,
    Threads,
    Verbose,
    build_each,
    name_of,
    place_for,
    prepare,
)
from pipeline_assets.commands.terminal import as_typed, going_on
from pipeline_assets.commands.wrong_use import naming_options
from pipeline_assets.corpus.spine.errors import UsageError

if TYPE_CHECKING:
    from pipeline_assets.corpus.readers.hub_files import HubFiles
    from pipeline_assets.corpus.recipes.nemotron import NemotronRecipe
    from pipeline_assets.corpus.spine.artifact import Artifact

app = typer.Typer()
nemotron_app = typer.Typer(
    help="Rows of the Nemotron datasets, and of others of their layout.",
    epilog="Example: corpusmill nemotron inventory --dataset my/folder --out-dir out",
)
app.add_typer(nemotron_app, name="nemotron", no_args_is_help=True)


@nemotron_app.callback()
def nemotron() -> None:
    """Rows of the Nemotron datasets, and of others of their layout."""


@nemotron_app.command("inventory", epilog="Example: corpusmill nemotron inventory --dataset my/folder --out-dir out")
def inventory(
    dataset: Annotated[str, typer.Option(help="owner/name on the hub, or a folder here of the same layout.")],
    out_dir: OutDir,
    revision: Annotated[
        str | None, typer.Option(help="Branch, tag or commit; its commit is written down. Default: main.")
    ] = None,
    split: Annotated[list[str] | None, typer.Option(help="Only this one, such as low; repeatable.")] = None,
    max_records: Annotated[int | None, typer.Option(min=1, help="Rows of a split at most, from all over it.")] = None,
    cpu_threads: Threads = THREADS,
    log_every: LogEvery = LOG_EVERY_S,
    verbose: Verbose = False,
    replace: Replace = False,
) -> None:
    """Tell what the rows of each split are: files, columns and types, and which share of them has which metadata."""
    from pipeline_assets.corpus.recipes.nemotron import NemotronRecipe
    from pipeline_assets.corpus.recipes.written import write_recipe_of
    from resources.hub import Hub

    prepare(log_every, verbose)
    root = place_for(out_dir)
    hub = Hub().files(root)
    with going_on(as_typed()), naming_options():
        section = _section(dataset, revision, split or (), hub)
        name = "-".join(["inventory", name_of(section["dataset"].rpartition("/")[2]), *map(name_of, split or ())])
        scan = {"max_rows": max_records}
        content = {"system": "nemotron", "name": name, "scan": scan, "datasets": [section]}
        recipe, path = write_recipe_of(NemotronRecipe, content, root, "nemotron", replace)
        typer.echo(f"recipe {path}", err=True)
        _build(recipe, path, root, hub, cpu_threads, log_every, replace)


def _section(dataset: str, revision: str | None, splits: Sequence[str], hub: "HubFiles") -> dict[str, Any]:
    """The dataset as a recipe has it, with the commit that it has now and the splits that are there."""
    from pipeline_assets.corpus.nemotron.split_files import no_such_split
    from pipeline_assets.corpus.nemotron.split_pin import splits_of_folder, splits_on_hub

    path = Path(dataset).absolute()
    if path.is_dir():
        if revision is not None:
            raise UsageError("--revision is given", dataset, "leave it out: a folder has no commits")
        section: dict[str, Any] = {"dataset": path.name, "path": str(path)}
        there = list(splits_of_folder(path))
    else:
        repo = _repo(dataset)
        commit = hub.resolve(repo, revision or "main")
        typer.echo(f"{repo} at {commit}", err=True)
        section = {"dataset": repo, "revision": commit}
        there = list(splits_on_hub(hub, repo, commit))
    if not there:
        raise UsageError("it has no JSON lines and no Parquet", dataset, "give a dataset of rows")
    unknown = next((split for split in splits if split not in there), None)
    if unknown is not None:
        raise no_such_split(unknown, there, dataset)
    return section | {"splits": list(dict.fromkeys(splits)) or there}


def _repo(dataset: str) -> str:
    """The dataset's name on the hub; of the five, the owner can be left out."""
    from pipeline_assets.corpus.nemotron.splits import SPLITS, dataset_key

    known = {dataset_key(name): name for name in SPLITS}
    repo = known.get(dataset.lower(), dataset)
    if repo.count("/") != 1 or repo.startswith((".", "/", "~")):
        raise UsageError("there is no such folder, and it is no owner/name", dataset, "give a folder, or owner/name")
    return repo


def _build(
    recipe: "NemotronRecipe", path: Path, root: Path, hub: "HubFiles", threads: int, log_every: int, replace: bool
) -> None:
    """Builds split after split, then what tells of all of them. Errors as `build_each`."""
    from pipeline_assets.corpus.recipes.kind import RunSettings
    from pipeline_assets.corpus.recipes.systems import KINDS
    from pipeline_assets.corpus.spine.engine import EngineSettings

    settings = RunSettings(EngineSettings(threads, log_every_s=log_every), hub)
    sections = {split: section for section, split in recipe.all_splits()}

    def build_one(split: str) -> None:
        KINDS["nemotron/raw"].build(recipe.raw(sections[split], split), root, replace, settings)
        made = KINDS["nemotron/inventory"].build(recipe.inventory(sections[split], split), root, replace, settings)
        for line in _lines(made):
            typer.echo(line)

    build_each(list(sections), build_one, "splits", path)
    coverage = KINDS["nemotron/metadata_coverage"].build(recipe.metadata_coverage(), root, replace, settings)
    typer.echo(f"{coverage.folder}\n  {coverage.manifest.digest}")
    for file in coverage.manifest.identity.files:
        typer.echo(f"  {coverage.path(file.path)}")


def _lines(made: "Artifact") -> Iterator[str]:
    """What an inventory holds, in a few lines."""
    from pipeline_assets.corpus.document_shards.publish import REJECTS_FILE
    from pipeline_assets.corpus.nemotron.coverage import read_inventory

    found = read_inventory(made)
    scan = "all rows" if found["scan"]["kind"] == "full" else "a sample"
    optional = f", {len(found['optional_columns'])} of them optional" * bool(found["optional_columns"])
    parts = (
        _many(len(found["files"]), "file"),
        _many(found["rows_counted"], "row"),
        _many(len(found["columns"]), "column"),
    )
    yield f"{made.folder}\n  {made.manifest.digest}"
    yield f"  {parts[0]}, {parts[1]} ({scan}), {parts[2]}{optional}"
    if found["left_out"]:
        yield f"  not read, beside {found['format']} files of the same split: {', '.join(found['left_out'])}"
    if found["rejected"]:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in found["rejected"].items())
        yield f"  rows that can't be read: {reasons}; {made.path(REJECTS_FILE)} has them"


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + "s" * (count != 1)
