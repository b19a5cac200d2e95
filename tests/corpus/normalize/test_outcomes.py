"""Outcomes of rows: Documents and rejects in order, NUL removal, licences."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from pipeline_assets.build.rows.documents import SourceRows
from pipeline_assets.corpus.converted_shards import ShardWriter
from pipeline_assets.corpus.document import Document, Meta
from pipeline_assets.corpus.formats.jsonl_zst import read_line_blocks
from pipeline_assets.corpus.licences import LicenceTable
from pipeline_assets.corpus.normalize import converted
from pipeline_assets.corpus.normalize.converted import write_outcomes
from pipeline_assets.corpus.readers.column_recipe import SourceLabels
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.lineage import Lineage
from pipeline_assets.spine.rejects import Reject
from pipeline_assets.spine.staging import StagingView

derive_id = SourceLabels(source="notes").derive_id


def document(text: str, doc_id: str = "note-1", license_tag: str = "cc0-1.0", evidence: str = "recipe") -> Document:
    return Document(text, "notes", "books", doc_id, license_tag, "", Meta("a.jsonl", 7, evidence))


@dataclass(frozen=True)
class ShardRows:
    """Rows in the shard and their counts."""

    documents: list[Document]
    rejects: list[dict[str, object]]
    counts: dict[str, int]
    outcomes: int


@pytest.fixture
def write(folder: StagingView, licences: LicenceTable, tmp_path: Path) -> object:
    def run(*outcomes: Document | Reject | str) -> ShardRows:
        with ShardWriter(folder, "00000", 3) as writer:
            number = write_outcomes(outcomes, writer, derive_id, licences)
        receipt = writer.receipt()

        def rows(file: int, kind: type) -> Iterable[object]:
            for block in read_line_blocks(folder.path(receipt.files[file].path)):
                yield from msgspec.json.Decoder(kind).decode_lines(block)

        return ShardRows(list(rows(0, Document)), list(rows(2, dict)), receipt.counts, number)  # type: ignore[arg-type]

    return run


def test_documents_and_rejects_keep_their_order_and_drops_are_counted(write) -> None:
    bad = Reject("a.jsonl", 3, "no_text", "null")

    shard = write(document("One.", "1"), bad, "low_score", document("Two.", "2"), "low_score")

    assert [doc.doc_id for doc in shard.documents] == ["1", "2"]
    assert shard.rejects == [{"file": "a.jsonl", "row": 3, "reason": "no_text", "detail": "null"}]
    assert shard.counts == {"documents": 2, "bytes": 8, "rejected/no_text": 1, "dropped/low_score": 2}
    assert shard.outcomes == 5


def test_only_nul_characters_are_removed_and_they_are_counted(write) -> None:
    shard = write(document("  \r\n\tA\0B\0 \u200b\ufeffe\u0301 ", "1"), document("Plain.", "2"))

    assert [doc.text for doc in shard.documents] == ["  \r\n\tAB \u200b\ufeffe\u0301 ", "Plain."]
    assert (shard.counts["nul_documents"], shard.counts["nul_characters_removed"]) == (1, 2)


def test_a_derived_id_ignores_nul_and_a_source_id_is_kept(write) -> None:
    shard = write(document("A\0B", derive_id("A\0B")), document("A\0B", "note-1"))

    assert [doc.doc_id for doc in shard.documents] == [derive_id("AB"), "note-1"]


def test_a_text_of_nul_alone_is_rejected_at_its_row(write) -> None:
    shard = write(document("\0\0"))

    assert (shard.documents, shard.counts) == ([], {"rejected/empty_text": 1})
    assert shard.rejects == [{"file": "a.jsonl", "row": 7, "reason": "empty_text", "detail": "nothing but NUL"}]


@pytest.mark.parametrize(
    ("stated", "evidence", "tag", "rests_on"),
    [
        ("cc0-1.0", "recipe", "cc0-1.0", "recipe"),
        ("CC Zero", "row: license", "cc0-1.0", "row: license"),
        ("my own", "row: license", "unknown", "row: license is 'my own'"),
        ("x" * 200, "row: license", "unknown", f"row: license is '{'x' * 80}'"),
        ("unknown", "row: license", "unknown", "row: license"),
    ],
)
def test_a_licence_becomes_a_tag_of_the_table_or_unknown_with_evidence(
    stated: str, evidence: str, tag: str, rests_on: str, write
) -> None:
    shard = write(document("Text.", license_tag=stated, evidence=evidence))

    [doc] = shard.documents
    assert (doc.license_tag, doc.meta) == (tag, Meta("a.jsonl", 7, rests_on))


def test_the_batch_size_does_not_change_the_result(write, monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes = [document(f"Text \0 {number}.", str(number)) for number in range(50)]
    in_one_batch = write(*outcomes)

    monkeypatch.setattr(converted, "_BATCH_CHARACTERS", 1)

    assert write(*outcomes) == in_one_batch


@pytest.mark.parametrize(
    ("unit", "owners"),
    [
        ("file", {0: "One.\nTwo.\n\nThree.", 5: "One.\nTwo.\n\nThree.", 11: "One.\nTwo.\n\nThree."}),
        ("paragraph", {0: "One.\nTwo.", 5: "One.\nTwo.", 10: None, 11: "Three."}),
        ("line", {0: "One.", 5: "Two.", 10: None, 11: "Three."}),
    ],
)
def test_a_line_of_a_text_file_belongs_only_to_the_document_that_contains_it(
    unit: str, owners: dict[int, str | None], normalized: Callable[..., Artifact]
) -> None:
    keys = {"files": ["*"], "columns": None, "text_unit": unit, "max_reject_fraction": "0.9"}
    files = {"a.txt": "One.\nTwo.\n\nThree.", "b.txt": b"Four.\n\n" * (unit != "file") + b"\xff\nFive."}

    rows = SourceRows(normalized("notes", files, **keys), Lineage(Path()))

    matches = {position: rows.find_by_source("a.txt", position) for position in owners}
    assert {position: row and rows.row_at(row[0]).parts[0].text for position, row in matches.items()} == owners
    position = 0 if unit == "file" else 7
    rejected = ("rejected", Reject("b.txt", position, "invalid_utf8", "invalid start byte at byte 0"))
    assert (rows.find_by_source("b.txt", position), rows.find_reject("b.txt", position)) == (None, rejected)
    assert rows.find_reject("b.txt", position + 2) == (rejected if unit == "file" else None)


def test_only_the_first_line_of_a_wikipedia_page_finds_its_document(normalized: Callable[..., Artifact]) -> None:
    pages = "".join(f'<doc id="{n}" url="u?curid={n}" title="{n}">\n{n}\n\nText.\n\n</doc>\n' for n in (1, 2))
    artifact = normalized("wikipedia_en", {"AA/wiki_00.txt": pages}, files=["**/wiki_*"])

    rows = SourceRows(artifact, Lineage(Path()))

    second = pages.index("<doc", 1)
    places = [rows.find_by_source("AA/wiki_00.txt", position) for position in (0, second, second + 40)]
    assert places == [(0, False), (1, False), None]
