"""Files of a split, pinned by hash, on a hub or in a local folder.

The stage is `nemotron_raw`. Most hub files are fetched whole. To draw a sample from a large, uncompressed file of JSON
lines, only the blocks with the sample's rows are fetched, into a sparse local file of full size. The sample has the
same rows as a sample from whole files.
"""

import contextlib
import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from pipeline_assets.build.pins import raw_pin
from pipeline_assets.build.pins.raw_pin import ChosenFiles, ChosenFolder, HubPin
from pipeline_assets.build.run import Run
from pipeline_assets.build.target import Target
from pipeline_assets.corpus.formats.codecs import detect_codec
from pipeline_assets.corpus.nemotron.source_rows import plan_sample, read_piece
from pipeline_assets.corpus.nemotron.splits import SplitFiles, detect_format, find_split, find_splits
from pipeline_assets.corpus.readers import source_folder
from pipeline_assets.corpus.readers.hub_configs import CARD_FILE, read_card
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.readers.hub_listing import HubFile
from pipeline_assets.corpus.readers.lines import regroup_by_lines, split_lines
from pipeline_assets.corpus.readers.local_parquet import RowGroupRun
from pipeline_assets.corpus.readers.source_folder import ByteRange, SourceFile
from pipeline_assets.spine.artifact import open_artifact
from pipeline_assets.spine.durable import name_file_in_errors
from pipeline_assets.spine.files import require_folder
from pipeline_assets.spine.manifest import Manifest, StageVersion
from pipeline_assets.spine.staging import WORK_FOLDER, StagingView

SPLIT_STAGE = StageVersion("nemotron_raw", 2)


@dataclass(frozen=True)
class SplitFolder(ChosenFolder):
    """Split in a local folder; `patterns` maps splits to the recipe's file patterns."""

    split: str
    patterns: Mapping[str, Sequence[str]]

    def choose_files(self) -> ChosenFiles:
        paths, card = _scan_folder(self.path)
        return _to_chosen_files(find_split(paths, card, self.split, self.patterns, str(self.path)))


def find_folder_splits(folder: Path) -> dict[str, SplitFiles]:
    """Return the files of each split of a local dataset folder, by split name."""
    paths, card = _scan_folder(folder)
    return find_splits(paths, card, str(folder))


def find_hub_splits(hub: HubFiles, dataset: str, revision: str) -> dict[str, SplitFiles]:
    """Return the files of each split of a hub dataset at a commit, by split name."""
    paths = [file.path for file in hub.list_files(dataset, revision)]
    return find_splits(paths, read_card(hub, dataset, revision), f"{dataset}@{revision}")


def find_hub_split(target: Target, run: Run) -> HubPin:
    """Find the files of a split on a hub, fetching only the dataset card."""
    hub, recipe = run.require_hub("this dataset"), target.recipe
    dataset, revision, split, patterns = (recipe[name] for name in ("dataset", "revision", "split", "files"))
    raw_pin.raise_if_unpinned(target, hub, run.root)
    card = "" if split in patterns else read_card(hub, dataset, revision)
    listed = {file.path: file for file in hub.list_files(dataset, revision)}
    chosen = _to_chosen_files(find_split(list(listed), card, split, patterns, f"{dataset}@{revision}"))
    return HubPin(hub, dataset, revision, [listed[path] for path in chosen.names], chosen.decisions)


@contextlib.contextmanager
def split_files(pin_target: Target, run: Run, staging: StagingView, max_rows: int | None) -> Iterator[list[SourceFile]]:
    """Yield local files of a pinned split in the pin's order, for use in the block.

    For a sample of `max_rows` rows, large hub files are sparse: see the module docstring. Raise InputError if files of
    a local folder differ from the pin before or after the block.
    """
    pin = open_artifact(run.root / pin_target.folder).manifest
    if isinstance(pin_target.external_inputs, SplitFolder):
        with source_folder.open_pinned_files(pin_target.external_inputs.resolve_path(run.root).path, pin) as files:
            yield files
        return
    hub_pin = HubPin.from_manifest(run.require_hub("this dataset"), pin)
    if max_rows is None:
        yield hub_pin.fetch_all(f"fetch {pin.name}", run.settings)
    else:
        yield SampledSplit(hub_pin, staging.path(f"{WORK_FOLDER}/sample/0").parent).fetch(max_rows)


def restore_split_folder(manifest: Manifest, root: Path) -> SplitFolder | None:
    """Return the absolute folder of a sealed split pin; None for a split on a hub."""
    path, recipe = source_folder.input_folder_path(manifest, root), manifest.identity.recipe
    return None if path is None else SplitFolder(path, recipe["split"], recipe["files"])


def _to_chosen_files(split: SplitFiles) -> ChosenFiles:
    left_out = list(split.left_out)
    decisions = {"format": split.format, "found_by": split.found_by, "left_out": left_out, "config": split.config}
    return ChosenFiles(split.files, decisions)


def _scan_folder(folder: Path) -> tuple[list[str], str]:
    """Return the names of a folder's visible files, and the text of its card."""
    require_folder(folder, "correct the dataset's `path`")
    card = folder / CARD_FILE
    text = card.read_bytes().decode("utf-8", "replace") if card.is_file() else ""
    return [file.name for file in source_folder.list_files(folder, ["**/*"])], text


BLOCK_BYTES = 1 << 22


@dataclass(frozen=True)
class SampledSplit:
    """Sample of a split on a hub; only parts of large JSON lines files are fetched.

    The parts become sparse files in `folder`, which must be empty at first; other files are in the hub's cache.
    """

    pin: HubPin
    folder: Path

    def fetch(self, row_count: int) -> list[SourceFile]:
        """Return local files with all bytes that a sample of `row_count` rows reads."""
        local_files = [self._fetch_whole_or_head(number, file) for number, file in enumerate(self.pin.files)]
        listed = {local.path: file for file, local in zip(self.pin.files, local_files, strict=True)}
        for shard in plan_sample(local_files, row_count):
            missing = 0  # rows that the pieces so far should have contributed but did not contain
            for piece, limit in zip(shard.pieces, shard.row_limits or (), strict=True):
                missing += limit  # a later piece makes up for them, as in `read_shard`
                if isinstance(piece, ByteRange) and piece.file.path.parent == self.folder:
                    missing -= self._copy_rows(piece, missing, listed[piece.file.path])
                elif isinstance(piece, RowGroupRun):
                    missing -= min(piece.rows, missing)
                else:
                    missing -= sum(1 for _ in read_piece(piece, missing))
        return local_files

    def _fetch_whole_or_head(self, file_number: int, file: HubFile) -> SourceFile:
        """Fetch a file, or only the first block of a large uncompressed JSON lines file."""
        if detect_format(file.path) == "jsonl" and file.size > 2 * BLOCK_BYTES:
            head = next(self._fetch_blocks(file, 0))
            if detect_codec(head[: source_folder.HEAD_BYTES]) is None:
                path = self.folder / f"{file_number}.jsonl"
                with name_file_in_errors(path), open(path, "wb") as sparse:
                    sparse.truncate(file.size)
                    sparse.write(head)
                return SourceFile(path, file.path, file.size)
        return self.pin.fetch(file)

    def _copy_rows(self, piece: ByteRange, max_rows: int, file: HubFile) -> int:
        """Copy a piece's first `max_rows` rows from the hub `file`; return the row count."""
        # Reading starts one byte before the piece: the first newline from there ends the line before the piece, and
        # what follows is the piece's first whole line.
        first = max(piece.start - 1, 0)
        with name_file_in_errors(piece.file.path), open(piece.file.path, "r+b") as sparse:
            lines = split_lines(regroup_by_lines(self._copy_blocks(file, first, sparse), first, file.path), piece.stop)
            offsets = (offset for offset, line in lines if offset >= piece.start and line.strip())
            return sum(1 for _ in itertools.islice(offsets, max_rows))

    def _copy_blocks(self, file: HubFile, start: int, sparse_file: BinaryIO) -> Iterator[bytes]:
        """Copy blocks of a file into the sparse file; yield the bytes from `start` on."""
        offset = start - start % BLOCK_BYTES  # start of the block that contains `start`
        for block in self._fetch_blocks(file, offset):
            os.pwrite(sparse_file.fileno(), block, offset)
            yield block[max(start - offset, 0) :]  # only the first block begins before `start`
            offset += len(block)

    def _fetch_blocks(self, file: HubFile, start: int) -> Iterator[bytes]:
        """Fetch and yield blocks of a file from byte `start`, a multiple of BLOCK_BYTES."""
        for offset in range(start, file.size, BLOCK_BYTES):
            stop = min(offset + BLOCK_BYTES, file.size)
            yield self.pin.hub.fetch(self.pin.repo, self.pin.commit, file, offset, stop).path.read_bytes()
