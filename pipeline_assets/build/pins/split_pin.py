"""The files of a split: pinned by hash (the stage `nemotron_raw`), and fetched from a hub, whole or for a sample.

Of large files of lines a sample fetches the bytes that it reads: a thousand rows of 20 GB are no 20 GB of traffic.
Each file is one of its full size here, with holes (a sparse file) where nothing will be read. Files of Parquet,
compressed ones and small ones are fetched whole. The rows are those of a sample of the whole files: `plan_sample` looks
at sizes alone, and how many rows a piece gives for those before it is counted here as `read_shard` counts it.
"""

import contextlib
import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from pipeline_assets.build.pins import raw_pin
from pipeline_assets.build.run import Run
from pipeline_assets.build.target import Target
from pipeline_assets.corpus.formats.compression import detect_codec
from pipeline_assets.corpus.nemotron.source_rows import is_blank, plan_sample, read_piece
from pipeline_assets.corpus.nemotron.splits import SplitFiles, detect_format, files_of_split, find_splits
from pipeline_assets.corpus.readers.hub_configs import CARD, read_card
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.readers.hub_listing import HubFile
from pipeline_assets.corpus.readers.lines import lines_with_offsets, read_lines
from pipeline_assets.corpus.readers.listing import Listing
from pipeline_assets.corpus.readers.local_parquet import RowGroupRun
from pipeline_assets.corpus.readers.source_folder import (
    HEAD_BYTES,
    ByteRange,
    InputFolder,
    SourceFile,
    SourceFolder,
    files_while_read,
    folder_path,
    list_files,
)
from pipeline_assets.spine.artifact import open_artifact
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.durable import naming_file
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.spine.manifest import Manifest, StageVersion
from pipeline_assets.spine.staging import WORK, StagingView

RAW_STAGE = StageVersion("nemotron_raw", 2)


@dataclass(frozen=True)
class SplitFolder(InputFolder):
    """A split in a folder of this machine that has the layout of a dataset.

    Attributes:
        patterns: files by split, where a recipe says them.
    """

    split: str
    patterns: Mapping[str, Sequence[str]]

    def names(self) -> Sequence[str]:
        return self.chosen().files

    def chosen(self) -> SplitFiles:
        """Its files, as they are now; the path is absolute.

        Raises:
            UsageError, InputError: from `files_of_split`, or there is no such folder.
        """
        paths, card = _folder(self.path)
        return files_of_split(paths, card, self.split, self.patterns, str(self.path))


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
    return find_splits(_paths(hub, dataset, revision), read_card(hub, dataset, revision), f"{dataset}@{revision}")


def pin_split(target: Target, run: Run) -> BuildResult:
    """The files of a split, each by its hash: of a folder, which are read, or of a hub at a commit, by its listing.

    Raises:
        UsageError: no revision is pinned yet, or no such split (names the nearest), or no such folder.
        InputError: from the hub, or `files_of_split`; a file can't be read, or changes meanwhile.
    """
    if target.external_inputs is None:
        return _pin_of_hub(target, run)
    assert isinstance(target.external_inputs, SplitFolder)
    here = target.external_inputs.below(run.root)
    chosen = here.chosen()
    return raw_pin.pin_of_folder(SourceFolder(here.path, chosen.files), run.root, run.settings, _decisions(chosen))


def _pin_of_hub(target: Target, run: Run) -> BuildResult:
    """Nothing but the card is fetched."""
    hub, recipe = run.require_hub("this dataset"), target.recipe
    dataset, revision, split, patterns = (recipe[name] for name in ("dataset", "revision", "split", "files"))
    raw_pin.refuse_unpinned(dataset, revision, target.name.partition("/")[0], hub)
    card = "" if split in patterns else read_card(hub, dataset, revision)
    chosen = files_of_split(_paths(hub, dataset, revision), card, split, patterns, f"{dataset}@{revision}")
    listed = {file.path: file for file in hub.list_files(dataset, revision)}
    return raw_pin.pin_of_hub(dataset, revision, [listed[path] for path in chosen.files], _decisions(chosen))


def list_split(target: Target, run: Run) -> Listing:
    """The files of a split, none of which is fetched to pin it. Errors as `pin_split`."""
    if target.external_inputs is None:
        return Listing(tuple(_pin_of_hub(target, run).external_inputs))
    assert isinstance(target.external_inputs, SplitFolder)
    return Listing.from_files(target.external_inputs.below(run.root).files())


def list_rows(target: Target, run: Run) -> Listing:
    """What the first of those fetches that read a split; a sample takes less."""
    [raw] = target.upstream
    if raw.external_inputs is not None:
        return Listing()
    files = raw_pin.listed_files(list_split(raw, run).inputs)
    return Listing.from_fetched(run.require_hub("this dataset"), raw.recipe["dataset"], files)


@contextlib.contextmanager
def split_files(raw: Target, run: Run, building: StagingView, max_rows: int | None) -> Iterator[list[SourceFile]]:
    """The files of a pinned split, in order, on this machine, while they are read.

    Args:
        max_rows: of large files on a hub only what a sample of so many rows reads is fetched; None for all.

    Raises:
        InputError: from the hub; files of a folder are not as they are listed, before or after.
    """
    pin = open_artifact(run.root / raw.folder).manifest
    if raw.external_inputs is None:
        hub = run.require_hub("this dataset")
        if max_rows is None:
            yield raw_pin.fetch_pinned(hub, pin, run.settings.fetch_threads, run.settings.log_every_s)
        else:
            sample = building.path(f"{WORK}/sample/0").parent
            yield SampledSplit(hub, *raw_pin.pinned_files(pin), sample).fetch(max_rows)
        return
    assert isinstance(raw.external_inputs, SplitFolder)
    with files_while_read(raw.external_inputs.below(run.root).path, pin) as files:
        yield files


def split_folder(manifest: Manifest, root: Path) -> SplitFolder | None:
    """The folder that a pin was made of, its path absolute; None for one of a hub."""
    path, recipe = folder_path(manifest, root), manifest.identity.recipe
    return None if path is None else SplitFolder(path, recipe["split"], recipe["files"])


def _decisions(chosen: SplitFiles) -> dict[str, Any]:
    left_out = list(chosen.left_out)
    return {"format": chosen.format, "found_by": chosen.found_by, "left_out": left_out, "config": chosen.config}


def _folder(path: Path) -> tuple[list[str], str]:
    """Return all files of a folder, and the text of its card."""
    if not path.is_dir():
        raise UsageError("there is no such folder", path, "correct the dataset's `path`")
    card = path / CARD
    text = card.read_bytes().decode("utf-8", "replace") if card.is_file() else ""
    return [file.name for file in list_files(path, ["**/*"])], text


def _paths(hub: HubFiles, dataset: str, revision: str) -> list[str]:
    return [file.path for file in hub.list_files(dataset, revision)]


BLOCK_BYTES = 1 << 22


@dataclass(frozen=True)
class SampledSplit:
    """The files of a split on a hub, and the folder where what is read of them is put.

    Attributes:
        files: as the listing has them, in order.
        folder: empty, of the build.
    """

    hub: HubFiles
    dataset: str
    revision: str
    files: Sequence[HubFile]
    folder: Path

    def fetch(self, rows: int) -> list[SourceFile]:
        """The files, of which at least what `plan_sample` reads for so many rows is here.

        Raises:
            InputError: from the hub.
        """
        found = [self._open_partial(number, file) for number, file in enumerate(self.files)]
        listed = {local.path: file for file, local in zip(self.files, found, strict=True)}
        for shard in plan_sample(found, rows):
            missing = 0
            for piece, limit in zip(shard.pieces, shard.limits or (), strict=True):
                missing += limit
                if isinstance(piece, ByteRange) and piece.file.path.parent == self.folder:
                    missing -= self._fill(piece, missing, listed[piece.file.path])
                elif isinstance(piece, RowGroupRun):
                    missing -= min(piece.rows, missing)
                else:
                    missing -= sum(1 for _ in read_piece(piece, missing))
        return found

    def _open_partial(self, number: int, file: HubFile) -> SourceFile:
        """The whole file, or one with its first block alone."""
        if detect_format(file.path) == "jsonl" and file.size > 2 * BLOCK_BYTES:
            head = next(self._blocks(file, 0))
            if detect_codec(head[:HEAD_BYTES]) is None:
                path = self.folder / f"{number}.jsonl"
                with naming_file(path), open(path, "wb") as sparse:
                    sparse.truncate(file.size)
                    sparse.write(head)
                return SourceFile(path, file.path, file.size)
        return SourceFile(self.hub.fetch(self.dataset, self.revision, file).local, file.path, file.size)

    def _fill(self, piece: ByteRange, limit: int, file: HubFile) -> int:
        """Puts the first `limit` rows that begin in the piece where they belong, and what is read on the way to them;
        how many there are.

        The line before a piece ends at its first newline, from one byte before its start on.
        """
        first = max(piece.start - 1, 0)
        with naming_file(piece.file.path), open(piece.file.path, "r+b") as sparse:
            placed = read_lines(lines_with_offsets(self._put(file, first, sparse), first, file.path), piece.stop)
            found = (place for place, line in placed if place >= piece.start and not is_blank(line))
            return sum(1 for _ in itertools.islice(found, limit))

    def _put(self, file: HubFile, first: int, sparse: BinaryIO) -> Iterator[bytes]:
        """The bytes of a file from `first` on, put where they belong before they are given."""
        place = first - first % BLOCK_BYTES
        for block in self._blocks(file, place):
            os.pwrite(sparse.fileno(), block, place)
            yield block[max(first - place, 0) :]
            place += len(block)

    def _blocks(self, file: HubFile, start: int) -> Iterator[bytes]:
        """Blocks of the file from `start` on, a multiple of their size, each kept in the cache."""
        for place in range(start, file.size, BLOCK_BYTES):
            stop = min(place + BLOCK_BYTES, file.size)
            yield self.hub.fetch(self.dataset, self.revision, file, place, stop).local.read_bytes()
