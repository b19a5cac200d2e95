"""Segments of a continual training: token shards of several corpora cut in order, each segment with its own mixture."""

import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from pipeline_assets.corpus.shards.mixture_figures import SEGMENTS_JSON
from pipeline_assets.corpus.shards.reader import MixtureReader, check_compatible
from pipeline_assets.corpus.shards.recipe import SegmentSection, SegmentsRecipe
from pipeline_assets.corpus.shards.token_shards import TokenShards, open_shards
from pipeline_assets.corpus.weights import largest_remainders
from pipeline_assets.spine.artifact import Artifact, open_artifact
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.errors import InputError, RecipeKey, UsageError
from pipeline_assets.spine.lineage import Lineage, find_data_root
from pipeline_assets.spine.manifest import canonical_sha256
from pipeline_assets.spine.metadata_file import REBUILD, MetadataFile
from pipeline_assets.spine.staging import StagingDir

logger = logging.getLogger("corpusmill")
_WHERE = RecipeKey("segments")


class FileRows(msgspec.Struct, frozen=True):
    """The rows from the first to before the second of a shard, and the sha256 of all of it."""

    file: str
    rows: tuple[int, int]
    sha256: str


class CorpusRows(msgspec.Struct, frozen=True):
    """The rows from the first to before the second of a corpus, and where they lie."""

    rows: tuple[int, int]
    files: tuple[FileRows, ...]


class Segment(msgspec.Struct, frozen=True):
    """A segment as segments.json has it.

    Attributes:
        start, stop: its tokens in the whole training, `stop` excluded.
        requested_tokens: before they were rounded down.
        sha256: of `corpora`, as canonical JSON.
    """

    name: str
    start: int
    stop: int
    requested_tokens: int = msgspec.field(name="asked_tokens")
    corpora: dict[str, CorpusRows]
    sha256: str

    @property
    def tokens(self) -> int:
        return self.stop - self.start


class _Written(msgspec.Struct, frozen=True):
    """segments.json: digests of the corpora, and the segments in order."""

    seq_len: int
    corpora: dict[str, str]
    segments: tuple[Segment, ...]


_FILE: MetadataFile[_Written] = MetadataFile("plan of segments", 256 << 20, REBUILD, _Written)


def build_segments(building: StagingDir, corpora: Mapping[str, Artifact], recipe: SegmentsRecipe) -> BuildResult:
    """`segments.json`. Each segment takes of each corpus the next rows that no segment before it has: its exact share,
    by largest remainders.

    Raises:
        UsageError: a segment of less than a row, or of a corpus that isn't there; a corpus that runs out, with how much
            of it is left; corpora that can't be read together.
        InputError: a corpus is no token shards.
    """
    opened = {name: open_shards(corpus.folder, corpus.manifest.digest) for name, corpus in sorted(corpora.items())}
    try:
        check_compatible(opened)
    except ValueError as error:
        raise UsageError(str(error), _WHERE, "give corpora that were sharded alike") from None
    seq_len = next(iter(opened.values())).seq_len
    sha256 = {name: {file.path: file.sha256 for file in one.manifest.storage} for name, one in corpora.items()}
    taken, segments, stop = dict.fromkeys(opened, 0), list[Segment](), 0
    for section in recipe.segments:
        start, rows = stop, section.tokens // seq_len
        if not rows:
            what = f"segment {section.name} has {section.tokens:,} tokens, and a row has {seq_len:,}"
            raise UsageError(what, _WHERE, "ask for a row at least")
        if rows * seq_len < section.tokens:
            logger.info("segment %s: %d tokens, %d in whole rows", section.name, section.tokens, rows * seq_len)
        held = {}
        for name, (first, last) in _next_rows(section, rows, opened, taken).items():
            files = [FileRows(file, own, sha256[name][file]) for file, own in _files(opened[name], first, last)]
            held[name] = CorpusRows((first, last), tuple(files))
        stop += rows * seq_len
        digest = canonical_sha256(msgspec.to_builtins(held))
        segments.append(Segment(section.name, start, stop, section.tokens, held, digest))
    written = _Written(seq_len, {name: shards.digest for name, shards in opened.items()}, tuple(segments))
    data = json.dumps(msgspec.to_builtins(written), sort_keys=True, indent=1).encode() + b"\n"
    left = {name: (len(opened[name]) - rows) * seq_len for name, rows in taken.items()}
    return BuildResult(
        files=[replace(building.write(SEGMENTS_JSON, data), rows=len(segments))],
        counts={"segments": len(segments), "tokens": stop, "unused_tokens": left},
        decisions={"rounded_down_tokens": {one.name: one.requested_tokens - one.tokens for one in segments}},
    )


def _next_rows(
    section: SegmentSection, rows: int, corpora: Mapping[str, TokenShards], taken: dict[str, int]
) -> dict[str, tuple[int, int]]:
    """The rows that a segment takes of each corpus, of which it takes some; they are `taken` then."""
    names = sorted(section.weights)
    for name in names:
        if name not in corpora:
            what = f"segment {section.name} weighs {name}, and there is no such corpus"
            raise UsageError(what, _WHERE, f"there are {', '.join(corpora)}")
    ranges = {}
    for name, share in zip(names, largest_remainders([Fraction(section.weights[n]) for n in names], rows), strict=True):
        seq_len, left = corpora[name].seq_len, len(corpora[name]) - taken[name]
        if share > left:
            what = f"segment {section.name} takes {share * seq_len:,} tokens of {name}, and {left * seq_len:,} are left"
            raise UsageError(what, _WHERE, f"ask for fewer tokens, or give {name} less weight")
        if share:
            ranges[name] = taken[name], taken[name] + share
            taken[name] += share
    return ranges


def _files(shards: TokenShards, start: int, stop: int) -> Iterator[tuple[str, tuple[int, int]]]:
    """The files that rows of a corpus lie in, each with the range of its own rows."""
    firsts = shards.first_rows
    low, high = int(np.searchsorted(firsts, start, "right")) - 1, int(np.searchsorted(firsts, stop))
    for number in range(low, high):
        first, rows = int(firsts[number]), shards.files[number].rows
        yield shards.files[number].path, (max(start - first, 0), min(stop - first, rows))


@dataclass(frozen=True)
class Segments:
    """Segments, open, in the order in which they are trained on.

    Attributes:
        folders: of the corpora.
        digests: of the corpora.
    """

    seq_len: int
    segments: tuple[Segment, ...]
    folders: Mapping[str, Path]
    digests: Mapping[str, str]

    def __iter__(self) -> Iterator[Segment]:
        return iter(self.segments)

    def reader(self, name: str, seed: int) -> MixtureReader:
        """The rows of a segment, each once, mixed by its weights: training goes on at a step of a segment by
        `reader(name, seed).batches(…, step=step)`.

        Raises:
            KeyError: there is no such segment. InputError, RetryableError: a corpus isn't what it was cut of.
        """
        found: dict[str, Any] = {one.name: one.corpora for one in self.segments}
        ranges = {corpus: range(*held.rows) for corpus, held in found[name].items()}
        folders = {corpus: self.folders[corpus] for corpus in ranges}
        return MixtureReader(folders, None, seed, ranges=ranges, digests=self.digests)


def open_segments(folder: Path | str, corpora: Mapping[str, Path] | None = None) -> Segments:
    """The segments that are sealed in a folder.

    Args:
        corpora: folders of the token shards; None to look for them, by their digests, below the folder's data root.
    Raises:
        InputError: nothing of the kind is sealed there, it was edited, or a corpus is gone.
    """
    artifact = open_artifact(Path(folder))
    path = artifact.path(SEGMENTS_JSON)
    written = _FILE.read(path)
    for one in written.segments:
        if canonical_sha256(msgspec.to_builtins(one.corpora)) != one.sha256:
            raise InputError(f"segment {one.name} has another digest than its rows", path, REBUILD)
    if corpora is None:
        place = artifact.folder.absolute()
        lineage = Lineage(find_data_root(place) or place.parent)
        corpora = {name: lineage.locate(digest).folder for name, digest in written.corpora.items()}
    return Segments(written.seq_len, written.segments, corpora, written.corpora)
