"""A dataset as it is typed → as a recipe has it: its commit, and the splits that are there."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipeline_assets.corpus.spine.errors import InputError, UsageError

if TYPE_CHECKING:
    from pipeline_assets.corpus.readers.hub_files import HubFiles

Dataset = Annotated[str, typer.Option("--dataset", help="owner/name on the hub, or a folder here of the same layout.")]
Revision = Annotated[
    str | None,
    typer.Option("--revision", help="Branch, tag or commit; its commit is written down. Default: main."),
]
Splits = Annotated[list[str] | None, typer.Option("--split", help="Only this one, such as low; repeatable.")]
MaxRecords = Annotated[
    int | None, typer.Option("--max-records", min=1, help="Rows of a split at most, from all over it.")
]


def dataset_section(dataset: str, revision: str | None, splits: Sequence[str], hub: "HubFiles") -> dict[str, Any]:
    """The dataset as a recipe has it, with the commit that it has now and the splits that are there.

    Raises:
        UsageError: there is no such dataset, commit, folder or split, or it holds no rows.
        InputError: from the hub; or its card can't be read.
    """
    from pipeline_assets.corpus.nemotron.split_pin import splits_of_folder, splits_on_hub
    from pipeline_assets.corpus.nemotron.splits import no_such_split

    path = Path(dataset).absolute()
    if not dataset:
        raise UsageError("it is empty", "--dataset", "give a folder, or owner/name")
    if path.is_file():
        raise UsageError("this is a file", dataset, "give the folder that it lies in")
    if path.is_dir():
        if revision is not None:
            raise UsageError("--revision is given", dataset, "leave it out: a folder has no commits")
        section: dict[str, Any] = {"dataset": path.name, "path": str(path)}
        there = list(splits_of_folder(path))
    else:
        repo = _repo(dataset)
        commit = _commit_of(hub, repo, revision or "main")
        typer.echo(f"{repo} at {commit}", err=True)
        section = {"dataset": repo, "revision": commit}
        there = list(splits_on_hub(hub, repo, commit))
    if not there:
        raise UsageError("it has no JSON lines and no Parquet", dataset, "give a dataset of rows")
    unknown = next((split for split in splits if split not in there), None)
    if unknown is not None:
        raise no_such_split(unknown, there, dataset)
    return section | {"splits": list(dict.fromkeys(splits)) or there}


def _commit_of(hub: "HubFiles", repo: str, revision: str) -> str:
    try:
        return hub.resolve(repo, revision)
    except InputError as error:
        if "no such dataset" in error.what:
            error.what = f"there is no such folder here, and on the hub: {error.what}"
        raise


def _repo(dataset: str) -> str:
    """The dataset's name on the hub; of the five, the owner can be left out."""
    from pipeline_assets.corpus.nemotron.splits import SPLITS, dataset_key

    known = {dataset_key(name): name for name in SPLITS}
    repo = known.get(dataset.lower(), dataset)
    if repo.count("/") != 1 or repo.startswith((".", "/", "~")):
        raise UsageError("there is no such folder, and it is no owner/name", dataset, "give a folder, or owner/name")
    return repo
