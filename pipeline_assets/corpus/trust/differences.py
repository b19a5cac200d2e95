"""What a rebuilt artifact says of the sealed one: the same, another, or which of the two is wrong.

Files whose contents differ are read side by side, once, in blocks: which rows differ, and what they hold there.
"""

import itertools
import json
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pipeline_assets.corpus.formats.compression import SUFFIX, read_line_blocks
from pipeline_assets.corpus.formats.memmap import read_indexed_dataset
from pipeline_assets.corpus.formats.parquet import open_parquet
from pipeline_assets.corpus.rows.comparison import dotted
from pipeline_assets.corpus.spine.artifact import damage_of, read_manifest
from pipeline_assets.corpus.spine.errors import InputError, RetryableError, one_line
from pipeline_assets.corpus.spine.manifest import FileContent, Identity, Manifest
from pipeline_assets.corpus.spine.target import Target
from pipeline_assets.corpus.spine.usage import versions, versions_of

Unit = Literal["rows", "sequences", "schemas", "bytes"]
SHOWN_ROWS = 5
_SHOWN_CHARACTERS = 60
_SHOWN_TOKENS = 4
_BATCH_ROWS = 1024
_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True)
class FieldDifference:
    """A value on both sides, cut to where they part; None on a side that has no such field."""

    name: str
    sealed: str | None
    rebuilt: str | None


@dataclass(frozen=True)
class RowDifference:
    """One row, from 0, and the fields of it that differ; `name` is its doc_id where it has one."""

    row: int
    name: str | None
    fields: Sequence[FieldDifference]


@dataclass(frozen=True)
class RowDifferences:
    """How two files differ, row for row: how many rows each has, how many are not the same at their place, or are there
    on one side only, and the first of those.

    Attributes:
        unit: what is counted; schemas where the columns aren't the same, bytes where nothing better can be told.
        because: why bytes are compared and not rows; None where that needs no reason.
    """

    unit: Unit
    sealed: int
    rebuilt: int
    differing: int
    first: Sequence[RowDifference]
    because: str | None = None


def row_differences(sealed: Path, rebuilt: Path) -> RowDifferences:
    """How two files of one name differ, by the rows that their format has; byte for byte where one can't be read.

    Lines of `.jsonl.zst`, rows of `.parquet`, sequences of a `.bin` and `.idx` pair; of any other file its bytes.
    """
    compare = next((compare for suffix, compare in _BY_SUFFIX.items() if sealed.name.endswith(suffix)), None)
    because = None
    if compare is not None:
        try:
            found = compare(sealed, rebuilt)
            if found.differing:
                return found
            because = "its rows are the same"
        except (InputError, pa.ArrowException, OSError, ValueError) as error:
            because = one_line(error)
    return _compare_bytes(sealed, rebuilt, because)


def _side_by_side(
    unit: Unit,
    sealed: Iterable[Any],
    rebuilt: Iterable[Any],
    are_equal: Callable[[Any, Any], bool],
    describe: Callable[[int, Any, Any], RowDifference],
) -> RowDifferences:
    rows_sealed = rows_rebuilt = differing = 0
    first: list[RowDifference] = []
    for row, (one, other) in enumerate(itertools.zip_longest(sealed, rebuilt)):
        rows_sealed += one is not None
        rows_rebuilt += other is not None
        if one is None or other is None or not are_equal(one, other):
            differing += 1
            if len(first) < SHOWN_ROWS:
                first.append(describe(row, one, other))
    return RowDifferences(unit, rows_sealed, rows_rebuilt, differing, tuple(first))


def _compare_lines(sealed: Path, rebuilt: Path) -> RowDifferences:
    def lines(path: Path) -> Iterator[bytes]:
        return itertools.chain.from_iterable(block.splitlines() for block in read_line_blocks(path))

    def describe(row: int, *sides: bytes | None) -> RowDifference:
        return _record_difference(row, *(None if line is None else _record(line) for line in sides))

    return _side_by_side("rows", lines(sealed), lines(rebuilt), operator.eq, describe)


def _record(line: bytes) -> Mapping[str, Any]:
    try:
        value = json.loads(line)
    except ValueError:
        value = line.decode("utf-8", "replace")
    return value if isinstance(value, dict) else {"line": value}


def _compare_tables(sealed: Path, rebuilt: Path) -> RowDifferences:
    def records(file: pq.ParquetFile) -> Iterator[dict[str, Any]]:
        for batch in file.iter_batches(_BATCH_ROWS, use_threads=False):
            yield from batch.to_pylist()

    def are_equal(one: object, other: object) -> bool:
        return one == other or repr(one) == repr(other)  # a NaN is no other value than a NaN

    with open_parquet(sealed) as one, open_parquet(rebuilt) as other:
        if one.schema_arrow != other.schema_arrow:
            columns = FieldDifference("columns", *_excerpts(str(one.schema_arrow), str(other.schema_arrow)))
            return RowDifferences("schemas", 1, 1, 1, [RowDifference(0, None, [columns])])
        return _side_by_side("rows", records(one), records(other), are_equal, _record_difference)


def _record_difference(row: int, sealed: Mapping[str, Any] | None, rebuilt: Mapping[str, Any] | None) -> RowDifference:
    one, other = dict(_leaves(sealed or {})), dict(_leaves(rebuilt or {}))
    doc_id = one.get("doc_id") or other.get("doc_id")
    names = [name for name in {**one, **other} if one.get(name) != other.get(name)]
    fields = [FieldDifference(name, *_excerpts(one.get(name), other.get(name))) for name in names]
    return RowDifference(row, doc_id, fields)


def _leaves(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value if isinstance(value, str) else json.dumps(value, default=str)


def _excerpts(sealed: str | None, rebuilt: str | None) -> tuple[str | None, str | None]:
    """Both texts from a little before their first different character on."""
    pairs = enumerate(zip(sealed or "", rebuilt or "", strict=False))
    parts_at = next((at for at, (one, other) in pairs if one != other), min(len(sealed or ""), len(rebuilt or "")))
    start = max(0, parts_at - _SHOWN_CHARACTERS // 2)
    stop = start + _SHOWN_CHARACTERS

    def excerpt(text: str | None) -> str | None:
        if text is None:
            return None
        return ("…" if start else "") + text[start:stop] + ("…" if len(text) > stop else "")

    return excerpt(sealed), excerpt(rebuilt)


def _compare_sequences(sealed: Path, rebuilt: Path) -> RowDifferences:
    def sequences(path: Path) -> Iterator[NDArray[Any]]:
        dataset = read_indexed_dataset(path.with_suffix(""))
        return (dataset.document(number) for number in range(len(dataset.document_index) - 1))

    return _side_by_side("sequences", sequences(sealed), sequences(rebuilt), np.array_equal, _sequence_difference)


def _sequence_difference(row: int, sealed: NDArray[Any] | None, rebuilt: NDArray[Any] | None) -> RowDifference:
    one, other = (np.empty(0, np.int32) if ids is None else ids for ids in (sealed, rebuilt))
    shared = min(len(one), len(other))
    differing = np.flatnonzero(one[:shared] != other[:shared])
    token = int(differing[0]) if len(differing) else shared
    fields = [FieldDifference(f"token {token:,}", *(_ids(ids, token) for ids in (sealed, rebuilt)))]
    if len(one) != len(other):
        lengths = (None if ids is None else f"{len(ids):,}" for ids in (sealed, rebuilt))
        fields.append(FieldDifference("tokens", *lengths))
    return RowDifference(row, None, fields)


def _ids(ids: NDArray[Any] | None, at: int) -> str | None:
    """Ids around a token, itself between » and «."""
    if ids is None:
        return None
    start, stop = max(0, at - _SHOWN_TOKENS), at + 1 + _SHOWN_TOKENS
    shown = [f"»{token}«" if number == at else str(token) for number, token in enumerate(ids[start:stop], start)]
    return " ".join([*(["…"] if start else []), *shown, *(["…"] if stop < len(ids) else [])])


_BY_SUFFIX = {
    SUFFIX: _compare_lines,
    ".parquet": _compare_tables,
    ".bin": _compare_sequences,
    ".idx": _compare_sequences,
}


def _compare_bytes(sealed: Path, rebuilt: Path, because: str | None) -> RowDifferences:
    differing = position = 0
    first: list[RowDifference] = []
    with open(sealed, "rb") as one, open(rebuilt, "rb") as other:
        while True:
            left, right = one.read(_BLOCK_BYTES), other.read(_BLOCK_BYTES)
            if not left and not right:
                break
            shared = min(len(left), len(right))
            places = np.flatnonzero(np.frombuffer(left, np.uint8, shared) != np.frombuffer(right, np.uint8, shared))
            differing += len(places) + abs(len(left) - len(right))
            for place in [*places.tolist(), *range(shared, max(len(left), len(right)))][: SHOWN_ROWS - len(first)]:
                values = (block[place : place + 1].hex() or None for block in (left, right))
                first.append(RowDifference(position + place, None, [FieldDifference("in hexadecimal", *values)]))
            position += max(len(left), len(right))
    return RowDifferences("bytes", sealed.stat().st_size, rebuilt.stat().st_size, differing, first, because)


Verdict = Literal["identical", "different", "damaged", "not rebuilt"]


@dataclass(frozen=True)
class FileFinding:
    """One file with something to say: as the manifests have it; what is wrong with the sealed one, if it is damaged;
    how its rows differ, if there are two files to compare.
    """

    path: str
    sealed: FileContent | None
    rebuilt: FileContent | None
    damage: str | None
    rows: RowDifferences | None

    @property
    def is_as_promised(self) -> bool:
        """Whether the rebuilt file says what the sealed manifest says: then a damaged sealed file is the wrong one."""
        return self.sealed == self.rebuilt


@dataclass(frozen=True)
class Version:
    """Something that could have a part in the bytes, as it was then and is now; None where it isn't known."""

    name: str
    sealed: str | None
    here: str | None


@dataclass(frozen=True)
class Step:
    """One artifact that is built again: its target, as read from the manifest that it has to come out as, and the place
    where it is sealed; None where only a copy of the manifest is left.
    """

    target: Target
    manifest: Manifest
    place: Path | None


@dataclass(frozen=True)
class StepOutcome:
    """What became of one step.

    Attributes:
        verdict: `damaged` where the rebuild is what the manifest says and the sealed files are not; `not rebuilt` where
            something that it is made from came out different.
        rebuilt: its new manifest; None if it wasn't rebuilt.
        files: those whose content differs, or that are damaged where they are sealed.
        elsewhere: what else of the identity differs: counts, decisions, inputs; a line each.
        stored_otherwise: files of equal content in other bytes, which is no difference.
        versions: of libraries and the like that changed since it was sealed.
        replaced: where the damaged artifact is kept whose place the copy took; None if it took none.
        is_sealed_intact: whether the sealed files were read and are as they were sealed.
    """

    step: Step
    verdict: Verdict
    rebuilt: Manifest | None = None
    is_sealed_intact: bool = False
    replaced: Path | None = None
    files: Sequence[FileFinding] = ()
    elsewhere: Sequence[str] = ()
    stored_otherwise: Sequence[str] = ()
    versions: Sequence[Version] = ()


def judge(step: Step, rebuilt: Manifest, copy: Path, holds_sealed: bool) -> StepOutcome:
    """The rebuilt artifact in `copy` held against the manifest of the step; on demand the sealed files too, of which
    every byte is read. Raises RetryableError where the sealed artifact was replaced meanwhile.
    """
    sealed = step.manifest
    if step.place is not None and read_manifest(step.place) != sealed:
        raise RetryableError("it was replaced meanwhile", step.place, "run the same command again")
    damage = {}
    if holds_sealed and step.place is not None:
        damage = {item.path: item.what for item in damage_of(step.place, sealed)}
    is_same = rebuilt.digest == sealed.digest
    contents, contents_now = ({file.path: file for file in one.identity.files} for one in (sealed, rebuilt))
    stored, stored_now = ({file.path: file.sha256 for file in one.storage} for one in (sealed, rebuilt))
    files = []
    for path in {**contents, **contents_now, **damage}:
        one, other = contents.get(path), contents_now.get(path)
        if one != other or path in damage:
            rows = None
            if one and other and step.place is not None and (step.place / path).is_file():
                rows = row_differences(step.place / path, copy / path)
            files.append(FileFinding(path, one, other, damage.get(path), rows))
    same = [path for path, file in contents.items() if file == contents_now.get(path)]
    return StepOutcome(
        step=step,
        verdict="different" if not is_same else "damaged" if damage else "identical",
        rebuilt=rebuilt,
        is_sealed_intact=holds_sealed and not damage,
        files=files,
        elsewhere=[] if is_same else list(_elsewhere(sealed.identity, rebuilt.identity)),
        stored_otherwise=[path for path in same if stored.get(path) != stored_now[path]],
        versions=changed_versions(sealed.provenance, versions()),
    )


def changed_versions(provenance: Mapping[str, Any], here: Mapping[str, str | None]) -> list[Version]:
    """What is another one here than a manifest's provenance tells."""
    then = versions_of(provenance)
    return [Version(name, then.get(name), here[name]) for name in here if then.get(name) != here[name]]


def _elsewhere(sealed: Identity, rebuilt: Identity) -> Iterator[str]:
    one, other = dict(dotted(_rest(sealed))), dict(dotted(_rest(rebuilt)))
    for name in {**one, **other}:
        if one.get(name) != other.get(name):
            yield f"{name}: {one.get(name, 'none')} → {other.get(name, 'none')}"


def _rest(identity: Identity) -> dict[str, Any]:
    """Counts, decisions and inputs of an identity: its other parts are files, or the same by construction."""
    inputs = {entry["name"]: {key: entry[key] for key in entry if key != "name"} for entry in identity.inputs}
    return {"counts": identity.counts, "decisions": identity.decisions, "inputs": inputs}
