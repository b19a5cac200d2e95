"""Which side is wrong: what came out is held against the manifest, and so is what is sealed.

Rows that differ are counted at their places, and the first are shown where they part; memory stays bounded.
"""

import dataclasses
import io
import math
import random
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from forged import forge, overwrite, reseal
from healing_set import HealingSet
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline_assets.corpus.formats.compression import JsonlZstWriter
from pipeline_assets.corpus.formats.memmap import index_bytes
from pipeline_assets.corpus.spine.usage import versions
from pipeline_assets.corpus.trust.differences import (
    SHOWN_ROWS,
    FieldDifference,
    RowDifference,
    RowDifferences,
    StepOutcome,
    changed_versions,
    row_differences,
)
from pipeline_assets.corpus.trust.rebuild import rebuild

Judge = Callable[[str], StepOutcome]
Sides = Callable[..., RowDifferences]
SEVERAL = st.lists(st.integers(0, 2), max_size=12)


@pytest.fixture
def judged(made: HealingSet) -> Callable[[str], StepOutcome]:
    """The outcome of rebuilding one artifact of the set."""
    return lambda name: rebuild(made.folder(name), made.run).outcomes[-1]


def test_another_token_is_a_difference_and_shown(made: HealingSet, judged: Judge) -> None:
    path = made.folder("train") / "tokens.bin"
    ids = np.frombuffer(path.read_bytes(), np.int32).copy()
    then, ids[1] = ids[1], 12345
    forge(made.folder("train"), "tokens.bin", ids.tobytes())

    outcome = judged("train")

    [finding] = outcome.files
    assert outcome.verdict == "different"
    assert (finding.path, finding.damage, finding.is_as_promised) == ("tokens.bin", None, False)
    assert (finding.rows.unit, finding.rows.differing) == ("sequences", 1)
    [field] = finding.rows.first[0].fields
    assert (field.name, f"»{then}«" in str(field.rebuilt)) == ("token 1", True)
    assert "»12345«" in str(field.sealed)


def test_another_text_is_a_difference_named_by_its_document(made: HealingSet, judged: Judge) -> None:
    path = made.folder("snapshot") / "shards" / "00001.jsonl.zst"
    lines = zstandard.ZstdDecompressor().stream_reader(path.read_bytes()).read().splitlines()
    document = msgspec.json.decode(lines[4])
    lines[4] = msgspec.json.encode(document | {"text": document["text"].replace("naïve", "naive")})
    forge(made.folder("snapshot"), "shards/00001.jsonl.zst", zstandard.compress(b"\n".join(lines) + b"\n"))

    [finding] = judged("snapshot").files

    assert finding.rows.first == (
        RowDifference(
            4,
            document["doc_id"],
            [FieldDifference("text", finding.rows.first[0].fields[0].sealed, document["text"].rstrip("\n") + "\n")],
        ),
    )
    assert str(finding.rows.first[0].fields[0].sealed).startswith("Page 14: a naive ")


def test_a_row_that_is_not_made_is_a_difference(made: HealingSet, judged: Judge) -> None:
    folder = made.folder("valid")
    table = pq.read_table(folder / "documents.parquet")
    more = pa.concat_tables([table, table.slice(0, 1)])
    stream = io.BytesIO()
    pq.write_table(more, stream)
    forge(folder, "documents.parquet", stream.getvalue(), rows=len(more))

    [finding] = judged("valid").files

    assert (finding.sealed.rows, finding.rebuilt.rows) == (len(table) + 1, len(table))
    assert (finding.rows.differing, finding.rows.first[0].row) == (1, len(table))


def test_a_file_that_only_one_side_has_is_a_difference(made: HealingSet, judged: Judge) -> None:
    manifest = made.manifest("valid")
    reseal(made.folder("valid"), manifest, files=manifest.identity.files[:-1])

    [finding] = judged("valid").files

    assert (finding.path, finding.sealed, finding.rows) == ("rejects.jsonl.zst", None, None)
    assert finding.rebuilt == manifest.identity.files[-1]


def test_what_differs_outside_of_files_is_named(made: HealingSet, judged: Judge) -> None:
    manifest = made.manifest("snapshot")
    [first, *rest] = manifest.identity.inputs
    counts = {**manifest.identity.counts, "documents": 99}
    decisions = {**manifest.identity.decisions, "doc_id": "by chance"}
    inputs = [{**first, "digest": "sha256:0"}, *rest]
    reseal(made.folder("snapshot"), manifest, counts=counts, decisions=decisions, inputs=inputs)

    outcome = judged("snapshot")

    assert (outcome.verdict, outcome.files) == ("different", [])
    assert outcome.elsewhere == [
        "counts.documents: 99 → 38",
        "decisions.doc_id: by chance → column id",
        f"inputs.{first['name']}.digest: sha256:0 → {first['digest']}",
    ]


def test_a_sealed_file_that_was_damaged_is_the_wrong_one(made: HealingSet, judged: Judge) -> None:
    path = made.folder("train") / "tokens.bin"
    data = bytearray(path.read_bytes())
    data[8] ^= 1
    overwrite(path, bytes(data))

    outcome = judged("train")

    [finding] = outcome.files
    assert (outcome.verdict, outcome.elsewhere) == ("damaged", [])
    assert outcome.rebuilt is not None and outcome.rebuilt.digest == made.manifest("train").digest
    assert finding.is_as_promised
    assert finding.damage is not None and finding.damage.startswith("sha256 is ")
    assert finding.rows is not None and (finding.rows.unit, finding.rows.differing) == ("sequences", 1)


@pytest.mark.parametrize(
    ("data", "damage"), [(None, "the file is missing"), (b"", "has 0 bytes, sealed with")], ids=["missing", "empty"]
)
def test_a_sealed_file_that_is_gone_is_damage_too(
    data: bytes | None, damage: str, made: HealingSet, judged: Judge
) -> None:
    path = made.folder("valid") / "documents.parquet"
    path.unlink() if data is None else overwrite(path, data)

    outcome = judged("valid")

    [finding] = outcome.files
    assert (outcome.verdict, finding.is_as_promised, finding.rows is None) == ("damaged", True, data is None)
    assert str(finding.damage).startswith(damage)


def test_a_file_can_be_damaged_and_come_out_different(made: HealingSet, judged: Judge) -> None:
    folder = made.folder("valid")
    forge(folder, "tokens.bin", bytes(len((folder / "tokens.bin").read_bytes())))
    overwrite(folder / "tokens.bin", b"\1" * len((folder / "tokens.bin").read_bytes()))

    outcome = judged("valid")

    [finding] = outcome.files
    assert outcome.verdict == "different"
    assert not finding.is_as_promised and finding.damage is not None


def test_versions_that_are_others_here_are_named(made: HealingSet) -> None:
    provenance = made.manifest("train").provenance
    libraries = {name: version for name, version in provenance["libraries"].items() if name != "tiktoken"}

    assert changed_versions(provenance, versions()) == []
    older = {**provenance, "python": "3.1", "libraries": {**libraries, "zstandard": "0.1"}}
    changed = changed_versions(older, versions())

    assert [(one.name, one.sealed) for one in changed] == [("python", "3.1"), ("tiktoken", None), ("zstandard", "0.1")]
    assert changed[2].here == versions()["zstandard"]
    assert {one.name for one in changed_versions({}, versions())} >= {"program", "python", "platform", "numpy"}


def test_the_provenance_of_the_sealed_one_has_no_part_in_the_verdict(made: HealingSet, judged: Judge) -> None:
    manifest = made.manifest("selection")
    reseal(made.folder("selection"), dataclasses.replace(manifest, provenance={"builder": 1}))

    outcome = judged("selection")

    assert outcome.verdict == "identical"
    assert [one.sealed for one in outcome.versions] == [None] * len(versions())


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., RowDifferences]:
    """Writes two files of one name by a function, and compares them."""
    folder = tmp_path_factory.mktemp("sides")

    def compare(name: str, write: Callable[..., None], sealed: object, rebuilt: object) -> RowDifferences:
        paths = folder / "sealed" / name, folder / "rebuilt" / name
        for path, content in zip(paths, (sealed, rebuilt), strict=True):
            path.parent.mkdir(exist_ok=True)
            write(path, content)
        return row_differences(*paths)

    return compare


def write_lines(path: Path, rows: Sequence[object]) -> None:
    with JsonlZstWriter(path, level=1) as writer:
        for row in rows:
            writer.write_lines(msgspec.json.encode(row) + b"\n", 1)


def write_parquet(path: Path, table: pa.Table) -> None:
    pq.write_table(table, path, row_group_size=3)


def write_sequences(path: Path, sequences: Sequence[Sequence[int]]) -> None:
    ids = np.array([token for sequence in sequences for token in sequence], np.int32)
    path.with_suffix(".bin").write_bytes(ids.tobytes())
    path.with_suffix(".idx").write_bytes(index_bytes(np.array([len(one) for one in sequences], np.int32)))


def write_bytes(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def places(sealed: Sequence[object], rebuilt: Sequence[object]) -> list[int]:
    """Where two lists are not the same, the slow way."""
    longer = max(len(sealed), len(rebuilt))
    return [row for row in range(longer) if list(sealed[row : row + 1]) != list(rebuilt[row : row + 1])]


def doc_id_alone(value: int) -> dict[str, object]:
    return {"doc_id": f"id-{value}"}


def ends(value: int) -> list[int]:
    return [7] * value + [9]


def write_doc_ids(path: Path, rows: Sequence[dict[str, object]]) -> None:
    write_parquet(path, pa.Table.from_pylist(list(rows), pa.schema({"doc_id": pa.string()})))


@settings(max_examples=30)
@given(sealed=SEVERAL, rebuilt=SEVERAL)
@pytest.mark.parametrize(
    ("name", "write", "unit", "row"),
    [
        ("rows.jsonl.zst", write_lines, "rows", doc_id_alone),
        ("rows.parquet", write_doc_ids, "rows", doc_id_alone),
        ("tokens.bin", write_sequences, "sequences", ends),
        ("tokens.idx", write_sequences, "sequences", ends),
    ],
)
def test_rows_that_differ_are_counted_and_the_first_shown(
    name: str,
    write: Callable[..., None],
    unit: str,
    row: Callable[[int], object],
    sealed: list[int],
    rebuilt: list[int],
    sides: Sides,
) -> None:
    found = sides(name, write, [row(value) for value in sealed], [row(value) for value in rebuilt])

    expected = places(sealed, rebuilt)
    if expected:
        assert (found.unit, found.sealed, found.rebuilt) == (unit, len(sealed), len(rebuilt))
        assert (found.differing, [one.row for one in found.first]) == (len(expected), expected[:SHOWN_ROWS])
    else:
        assert (found.unit, found.differing, found.because) == ("bytes", 0, "its rows are the same")


LONG = "long " * 40
FIRST = [1, 2]


@pytest.mark.parametrize(
    ("name", "write", "sealed", "rebuilt", "first"),
    [
        (
            "00000.jsonl.zst",
            write_lines,
            [{"text": LONG + "tale", "doc_id": "page-3", "meta": {"url": "a", "score": 2}}],
            [{"text": LONG + "tail", "doc_id": "page-3", "meta": {"url": "a", "score": 3, "dump": None}}],
            RowDifference(
                0,
                "page-3",
                [
                    FieldDifference("text", "…ng long long long long long tale", "…ng long long long long long tail"),
                    FieldDifference("meta.score", "2", "3"),
                    FieldDifference("meta.dump", None, "null"),
                ],
            ),
        ),
        (
            "rejects.jsonl.zst",
            write_lines,
            [],
            [{"file": "a.parquet", "row": 7}],
            RowDifference(0, None, [FieldDifference("file", None, "a.parquet"), FieldDifference("row", None, "7")]),
        ),
        (
            "tokens.bin",
            write_sequences,
            [FIRST, [*range(20)]],
            [FIRST, [*range(9), 99, *range(10, 20), 5]],
            RowDifference(
                1,
                None,
                [
                    FieldDifference("token 9", "… 5 6 7 8 »9« 10 11 12 13 …", "… 5 6 7 8 »99« 10 11 12 13 …"),
                    FieldDifference("tokens", "20", "21"),
                ],
            ),
        ),
        *(
            (
                "t.parquet",
                write_parquet,
                *(pa.table({"a": pa.array(rows, kind)}) for kind in (pa.int64(), pa.int32())),
                RowDifference(0, None, [FieldDifference("columns", "a: int64", "a: int32")]),
            )
            for rows in ([], [1, 2])
        ),
    ],
    ids=["values of a document", "a row of one side", "tokens around the first", "schemas, empty", "schemas"],
)
def test_a_difference_is_shown_where_the_sides_part(
    name: str, write: Callable[..., None], sealed: object, rebuilt: object, first: RowDifference, sides: Sides
) -> None:
    found = sides(name, write, sealed, rebuilt)

    assert (found.differing, [*found.first]) == (1, [first])
    assert found.unit == {"t.parquet": "schemas", "tokens.bin": "sequences"}.get(name, "rows")


def test_a_nan_is_no_other_value_than_a_nan(sides: Sides) -> None:
    found = sides("t.parquet", write_parquet, pa.table({"a": [math.nan, 1.0]}), pa.table({"a": [float("nan"), 2.0]}))

    assert [one.row for one in found.first] == [1]


def test_a_file_that_cannot_be_read_is_compared_byte_for_byte_and_says_why(
    sides: Sides,
) -> None:
    whole = zstandard.ZstdCompressor(write_checksum=True).compress(b'{"a":1}\n')
    torn = whole[:10] + bytes([whole[10] ^ 1]) + whole[11:-1]

    found = sides("rows.jsonl.zst", write_bytes, torn, whole)

    assert (found.unit, found.sealed, found.rebuilt, found.differing) == ("bytes", len(whole) - 1, len(whole), 2)
    assert [(one.row, one.fields[0].name) for one in found.first] == [
        (10, "in hexadecimal"),
        (len(whole) - 1, "in hexadecimal"),
    ]
    assert found.first[1].fields[0].sealed is None
    assert found.because is not None and "the zstd stream is" in found.because


def test_an_index_that_does_not_fit_its_tokens_is_compared_byte_for_byte(sides: Sides, tmp_path: Path) -> None:
    def write(path: Path, cut: int) -> None:
        write_sequences(path, [[1, 2, 3]])
        path.with_suffix(".bin").write_bytes(path.with_suffix(".bin").read_bytes()[: 12 - cut])

    found = sides("tokens.bin", write, 4, 0)

    assert (found.unit, found.differing) == ("bytes", 4)
    assert found.because is not None and "lengths and pointers don't fit the tokens" in found.because


@settings(max_examples=30)
@given(sealed=st.binary(max_size=40), rebuilt=st.binary(max_size=40))
def test_bytes_of_other_files_are_counted(sealed: bytes, rebuilt: bytes, sides: Sides) -> None:
    found = sides("input_ids.mmap", write_bytes, sealed, rebuilt)

    expected = places(sealed, rebuilt)
    assert (found.sealed, found.rebuilt, found.differing) == (len(sealed), len(rebuilt), len(expected))
    assert [one.row for one in found.first] == expected[:SHOWN_ROWS]
    assert found.because is None


@pytest.mark.parametrize("name", ["rows.jsonl.zst", "rows.parquet"])
def test_memory_does_not_grow_with_the_rows_that_differ(name: str, tmp_path: Path) -> None:
    """Five MB a side and three times that, of which every row differs."""
    peaks = []

    for rows in (8_000, 24_000):
        paths = [tmp_path / str(rows) / side / name for side in ("sealed", "rebuilt")]
        for path in paths:
            path.parent.mkdir(parents=True)
            noise = random.Random(str(path.parent))
            texts = [noise.randbytes(300).hex() for _ in range(rows)]
            if name == "rows.parquet":
                pq.write_table(pa.table({"text": texts}), path, row_group_size=500)
            else:
                write_lines(path, [{"text": text} for text in texts])
        tracemalloc.start()
        found = row_differences(*paths)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert (found.sealed, found.rebuilt, found.differing, len(found.first)) == (rows, rows, rows, SHOWN_ROWS)

    assert peaks[1] < 1.2 * peaks[0], peaks
