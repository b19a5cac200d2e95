"""Segments of a continual training run, each with rows that no other segment uses."""

import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import msgspec
import numpy as np

from pipeline_assets.corpus.shards.mixture_figures import SEGMENTS_JSON
from pipeline_assets.corpus.shards.reader import MixtureReader, check_compatible
from pipeline_assets.corpus.shards.recipe import SegmentSection, SegmentsRecipe
from pipeline_assets.corpus.shards.token_shards import TokenShards, open_shards
from pipeline_assets.corpus.weights import apportion
from pipeline_assets.spine.argument_types import check_arguments
from pipeline_assets.spine.artifact import Artifact, open_artifact
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.data_root import find_data_root
from pipeline_assets.spine.errors import InputError, RecipeKey, UsageError
from pipeline_assets.spine.lineage import Lineage
from pipeline_assets.spine.manifest import canonical_sha256
from pipeline_assets.spine.metadata_file import REBUILD, MetadataFormat
from pipeline_assets.spine.staging import StagingDir

logger = logging.getLogger("corpusmill")
_SEGMENTS_KEY = RecipeKey("segments")


class ShardRows(msgspec.Struct, frozen=True):
    """Rows [first, stop) of a shard file, counted from its start, and its sha256."""

    file: str
    rows: tuple[int, int]
    sha256: str


class CorpusRows(msgspec.Struct, frozen=True):
    """Rows [first, stop) of a corpus, and the files that contain these rows."""

    rows: tuple[int, int]
    files: tuple[ShardRows, ...]


class TrainingSegment(msgspec.Struct, frozen=True):
    """Segment of a training run, as stored in segments.json.

    Attributes:
        start: Position of the segment's first token in the whole run.
        stop: Position after the segment's last token in the whole run.
        requested_tokens: Number of tokens before rounding down to whole rows.
        sha256: Hash of `corpora` as canonical JSON.
    """

    name: str
    start: int
    stop: int
    requested_tokens: int = msgspec.field(name="asked_tokens")
    corpora: dict[str, CorpusRows]
    sha256: str

    @property
    def tokens(self) -> int:
        """Number of tokens of the segment, which consists of whole rows."""
        return self.stop - self.start


class _SegmentsFile(msgspec.Struct, frozen=True):
    """Content of segments.json: row length, digest of each corpus, segments in order."""

    seq_len: int
    corpora: dict[str, str]
    segments: tuple[TrainingSegment, ...]


_SEGMENTS_FORMAT: MetadataFormat[_SegmentsFile] = MetadataFormat("plan of segments", 256 << 20, REBUILD, _SegmentsFile)


def build_segments(staging: StagingDir, corpora: Mapping[str, Artifact], recipe: SegmentsRecipe) -> BuildResult:
    """Assign rows of token shards to segments, and write segments.json.

    Each segment gets the next unused rows of each corpus. Row counts follow the weights, rounded by largest remainders.

    Raises:
        UsageError: A segment is shorter than a row or names an unknown corpus, a corpus has too few rows, or the
            corpora differ in row length, dtype or tokenizer.
        InputError: A corpus has no token shards.
    """
    opened = {name: open_shards(corpus.folder, corpus.manifest.digest) for name, corpus in sorted(corpora.items())}
    try:
        check_compatible(opened)
    except ValueError as error:
        fix = "choose corpora with equal row lengths, dtypes and tokenizers"
        raise UsageError(str(error), _SEGMENTS_KEY, fix) from None
    seq_len = next(iter(opened.values())).seq_len
    sha256 = {name: {file.path: file.sha256 for file in corpus.manifest.storage} for name, corpus in corpora.items()}
    used, segments, stop = dict.fromkeys(opened, 0), list[TrainingSegment](), 0
    for section in recipe.segments:
        start, rows = stop, section.tokens // seq_len
        if not rows:
            what = f"segment {section.name} has {section.tokens:,} tokens, fewer than a row of {seq_len:,}"
            raise UsageError(what, _SEGMENTS_KEY, "request at least one row")
        if rows * seq_len < section.tokens:
            logger.info("segment %s: %d tokens, %d in whole rows", section.name, section.tokens, rows * seq_len)
        by_corpus = {}
        for name, (first, last) in _next_rows(section, rows, opened, used).items():
            files = [ShardRows(file, own, sha256[name][file]) for file, own in _file_ranges(opened[name], first, last)]
            by_corpus[name] = CorpusRows((first, last), tuple(files))
        stop += rows * seq_len
        digest = canonical_sha256(msgspec.to_builtins(by_corpus))
        segments.append(TrainingSegment(section.name, start, stop, section.tokens, by_corpus, digest))
    content = _SegmentsFile(seq_len, {name: shards.digest for name, shards in opened.items()}, tuple(segments))
    data = json.dumps(msgspec.to_builtins(content), sort_keys=True, indent=1).encode() + b"\n"
    unused = {name: (len(opened[name]) - rows) * seq_len for name, rows in used.items()}
    rounded = {segment.name: segment.requested_tokens - segment.tokens for segment in segments}
    return BuildResult(
        files=[replace(staging.write(SEGMENTS_JSON, data), rows=len(segments))],
        counts={"segments": len(segments), "tokens": stop, "unused_tokens": unused},
        decisions={"rounded_down_tokens": rounded},
    )


def _next_rows(
    section: SegmentSection, row_count: int, corpora: Mapping[str, TokenShards], used_rows: dict[str, int]
) -> dict[str, tuple[int, int]]:
    """Return the next unused rows for a segment, as ranges by corpus.

    `used_rows` has the number of used rows by corpus, and is updated.
    """
    names = sorted(section.weights)
    for name in names:
        if name not in corpora:
            what = f"segment {section.name} names the unknown corpus {name}"
            raise UsageError(what, _SEGMENTS_KEY, f"known corpora: {', '.join(corpora)}")
    ranges = {}
    for name, share in zip(names, apportion([Fraction(section.weights[n]) for n in names], row_count), strict=True):
        seq_len, unused = corpora[name].seq_len, len(corpora[name]) - used_rows[name]
        if share > unused:
            what = (
                f"segment {section.name} needs {share * seq_len:,} tokens of {name}, "
                f"and only {unused * seq_len:,} are unused"
            )
            raise UsageError(what, _SEGMENTS_KEY, f"request fewer tokens, or give {name} less weight")
        if share:
            ranges[name] = used_rows[name], used_rows[name] + share
            used_rows[name] += share
    return ranges


def _file_ranges(shards: TokenShards, start: int, stop: int) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield (file, row range in the file) for each file with rows in [start, stop)."""
    firsts = shards.first_rows
    low, high = int(np.searchsorted(firsts, start, "right")) - 1, int(np.searchsorted(firsts, stop))
    for number in range(low, high):
        first, rows = int(firsts[number]), shards.files[number].rows  # the overlap with the file, counted in the file
        yield shards.files[number].path, (max(start - first, 0), min(stop - first, rows))


@dataclass(frozen=True)
class TrainingSegments:
    """Opened segments.json, with folder and digest of each corpus's token shards."""

    seq_len: int
    segments: tuple[TrainingSegment, ...]
    folders: Mapping[str, Path]
    digests: Mapping[str, str]

    def __iter__(self) -> Iterator[TrainingSegment]:
        return iter(self.segments)

    def reader(self, name: str, seed: int) -> MixtureReader:
        """Return a reader of a segment, which yields each of the segment's rows once.

        To resume training at a step of a segment, use `reader(name, seed).batches(…, step=step)`. Raise the errors of
        `MixtureReader`, or KeyError for an unknown segment.
        """
        by_name = {segment.name: segment.corpora for segment in self.segments}
        ranges = {corpus: range(*part.rows) for corpus, part in by_name[name].items()}
        folders = {corpus: self.folders[corpus] for corpus in ranges}
        digests = {corpus: self.digests[corpus] for corpus in ranges}
        return MixtureReader(folders, None, seed, ranges=ranges, digests=digests)


@check_arguments
def open_segments(folder: Path | str, corpora: Mapping[str, Path] | None = None) -> TrainingSegments:
    """Open the sealed segments in a folder.

    `corpora` maps each corpus to its folder of token shards. If None, folders are found by digest in the data root.

    Raises:
        InputError: The folder has no sealed segments, segments.json was edited, or a corpus has no token shards.
    """
    artifact = open_artifact(Path(folder))
    path = artifact.path(SEGMENTS_JSON)
    content = _SEGMENTS_FORMAT.read(path)
    for segment in content.segments:
        if canonical_sha256(msgspec.to_builtins(segment.corpora)) != segment.sha256:
            raise InputError(f"digest of segment {segment.name} does not match its rows", path, REBUILD)
    if corpora is None:
        absolute = artifact.folder.absolute()
        lineage = Lineage(find_data_root(absolute) or absolute.parent)
        corpora = {name: lineage.open_by_digest(digest).folder for name, digest in content.corpora.items()}
    return TrainingSegments(content.seq_len, content.segments, corpora, content.corpora)
