"""The stage `nemotron_raw`: which files a split is made of, each by its hash. No byte is copied."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pipeline_assets.corpus.nemotron.split_files import SplitFiles, files_of_split, find_splits
from pipeline_assets.corpus.normalize.raw_source import raw_of_folder
from pipeline_assets.corpus.readers.hub_configs import CARD
from pipeline_assets.corpus.readers.hub_files import HubFile, HubFiles
from pipeline_assets.corpus.readers.source_files import SourceFile, list_files
from pipeline_assets.corpus.readers.source_folder import SourceFolder, folder_path
from pipeline_assets.corpus.spine.engine import EngineSettings
from pipeline_assets.corpus.spine.errors import InputError, UsageError
from pipeline_assets.corpus.spine.manifest import Manifest, StageVersion
from pipeline_assets.corpus.spine.progress import Progress
from pipeline_assets.corpus.spine.target import Content

RAW_STAGE = StageVersion("nemotron_raw", 2)
UNPINNED = "0" * 40  # a revision that nobody has looked up yet


@dataclass(frozen=True)
class SplitFolder:
    """A split in a folder of this machine that has the layout of a dataset. Where it lies changes no digest.

    Attributes:
        path: absolute, or below the data root.
        patterns: files by split, where a recipe says them.
    """

    path: Path
    split: str
    patterns: Mapping[str, Sequence[str]]

    def below(self, root: Path) -> "SplitFolder":
        """The same, its path absolute."""
        return replace(self, path=(root / self.path).absolute())

    def chosen(self) -> SplitFiles:
        """Its files, as they are now; the path is absolute.

        Raises:
            UsageError, InputError: from `files_of_split`, or there is no such folder.
        """
        paths, card = _folder(self.path)
        return files_of_split(paths, card, self.split, self.patterns, str(self.path))

    def source_folder(self) -> SourceFolder:
        """The folder, with those files alone."""
        return SourceFolder(self.path, self.chosen().files)

    def changed(self, root: Path, manifest: Manifest) -> str | None:
        """What is not as it was when the manifest was sealed; None if all is. A folder that is gone has not changed."""
        here = self.below(root)
        if not here.path.is_dir():
            return None
        try:
            return here.source_folder().changed(root, manifest)
        except InputError as error:
            return error.what


def splits_of_folder(path: Path) -> dict[str, SplitFiles]:
    """Every split of a folder.

    Raises:
        UsageError: there is no such folder.
        InputError: from `find_splits`.
    """
    paths, card = _folder(path)
    return find_splits(paths, card, str(path))


def splits_on_hub(hub: HubFiles, dataset: str, revision: str) -> dict[str, SplitFiles]:
    """Every split of a hub dataset at a commit.

    Raises:
        InputError: from the hub, or `find_splits`.
    """
    return find_splits(_paths(hub, dataset, revision), _card(hub, dataset, revision), f"{dataset}@{revision}")


def pin_of_hub(
    hub: HubFiles, dataset: str, revision: str, split: str, patterns: Mapping[str, Sequence[str]]
) -> Content:
    """The files of a split at a commit, by the listing; nothing but the card is fetched.

    Raises:
        UsageError: no revision is pinned yet, or no such split (names the nearest).
        InputError: from the hub, or `files_of_split`.
    """
    if revision == UNPINNED:
        fix = f"run corpusmill pin {dataset} --recipe with the recipe's name: it writes the commit there"
        raise UsageError("no revision is pinned yet", dataset, fix)
    where = f"{dataset}@{revision}"
    card = "" if split in patterns else _card(hub, dataset, revision)
    chosen = files_of_split(_paths(hub, dataset, revision), card, split, patterns, where)
    listed = {file.path: file for file in hub.list_files(dataset, revision)}
    files = [listed[path] for path in chosen.files]
    inputs = [{"name": f"{where}:{file.path}", "digest": file.digest, "bytes": file.size} for file in files]
    counts = {"files": len(files), "bytes": sum(file.size for file in files)}
    return Content([], counts, _decisions(chosen), outside=inputs)


def pin_of_folder(folder: SplitFolder, root: Path, settings: EngineSettings) -> Content:
    """The files of a split in a folder, hashed.

    Raises:
        UsageError, InputError: from `chosen`; a file can't be read, or changes meanwhile.
    """
    here = folder.below(root)
    chosen = here.chosen()
    return replace(raw_of_folder(here.source_folder(), root, settings), decisions=_decisions(chosen))


def fetch_split(hub: HubFiles, pin: Manifest, threads: int, log_every_s: float) -> list[SourceFile]:
    """The files that a pin lists, whole, in the cache, each checked against its hash.

    Raises:
        InputError: from the hub.
    """
    dataset, revision, listed = pinned_files(pin)
    progress = Progress(f"fetch {pin.name}", sum(file.size for file in listed), "bytes", log_every_s)

    def fetch(file: HubFile) -> SourceFile:
        return SourceFile(hub.fetch(dataset, revision, file).local, file.path, file.size)

    files = []
    pool = ThreadPoolExecutor(threads)
    try:
        for file in pool.map(fetch, listed):
            files.append(file)
            progress.add(file.bytes, {})
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
    return files


def pinned_files(pin: Manifest) -> tuple[str, str, list[HubFile]]:
    """Dataset, commit and files of a pin of a hub, in order."""
    dataset, revision = str(pin.identity.recipe["dataset"]), str(pin.identity.recipe["revision"])
    start = len(f"{dataset}@{revision}:")
    files = [HubFile(entry["name"][start:], entry["bytes"], entry["digest"]) for entry in pin.identity.inputs]
    return dataset, revision, files


def split_folder_of(manifest: Manifest, root: Path) -> SplitFolder | None:
    """The folder that a pin was made of, its path absolute; None for one of a hub."""
    path, recipe = folder_path(manifest, root), manifest.identity.recipe
    return None if path is None else SplitFolder(path, recipe["split"], recipe["files"])


def _decisions(chosen: SplitFiles) -> dict[str, Any]:
    left_out = list(chosen.left_out)
    return {"format": chosen.format, "found_by": chosen.found_by, "left_out": left_out, "config": chosen.config}


def _folder(path: Path) -> tuple[list[str], str]:
    """All files of a folder, and the text of its card.

    Raises:
        UsageError: there is no such folder, or nothing in it.
    """
    if not path.is_dir():
        raise UsageError("there is no such folder", path, "correct the dataset's `path`")
    card = path / CARD
    text = card.read_bytes().decode("utf-8", "replace") if card.is_file() else ""
    return [file.name for file in list_files(path, ["**/*"])], text


def _paths(hub: HubFiles, dataset: str, revision: str) -> list[str]:
    return [file.path for file in hub.list_files(dataset, revision)]


def _card(hub: HubFiles, dataset: str, revision: str) -> str:
    """The text of a dataset's card; empty where it has none."""
    card = next((file for file in hub.list_files(dataset, revision) if file.path == CARD), None)
    return "" if card is None else hub.fetch(dataset, revision, card).local.read_bytes().decode("utf-8", "replace")
