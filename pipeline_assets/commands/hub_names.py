"""What a user names: a folder of this machine, or a dataset or a model on a hub, by the commit that it has now."""

from pathlib import Path

import typer

from pipeline_assets.corpus.readers.hub_files import HubFiles, is_name
from pipeline_assets.corpus.spine.errors import InputError, UsageError


def folder_named(given: str, option: str) -> Path | None:
    """The folder, absolute; None where nothing lies there: it may be a name on a hub.

    Raises:
        UsageError: it is empty, or a file.
    """
    path = Path(given).absolute()
    if not given:
        raise UsageError("it is empty", option, "give a folder, or owner/name")
    if path.is_file():
        raise UsageError("this is a file", given, "give the folder that it lies in")
    return path if path.is_dir() else None


def commit_of(hub: HubFiles, name: str, revision: str | None) -> str:
    """The commit that a name on a hub has now at a branch or a tag, `main` by default; tells it.

    Raises:
        UsageError: it is no name, or nothing has it, or not at this revision.
        InputError: from the hub.
    """
    if not is_name(name, hub.repo_type):
        raise UsageError("there is no such folder, and it is no owner/name", name, "give a folder, or owner/name")
    try:
        commit = hub.resolve(name, revision or "main")
    except InputError as error:
        if f"no such {hub.repo_type}" not in error.what:
            raise
        what = f"there is no such folder here, and on the hub: {error.what}"
        raise type(error)(what, error.where, error.fix) from None
    typer.echo(f"{name} at {commit}", err=True)
    return commit
