"""What becomes of rows: Documents and rejects in their order, NUL characters out, licences as the table has them."""

import functools
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
from pipeline_assets.corpus.normalize.derived_ids import local_doc_id
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.lineage import Lineage
from pipeline_assets.spine.rejects import Reject
from pipeline_assets.spine.staging import StagingView

derive_id = functools.partial(local_doc_id, "notes")


LOW_SCORE = "low_score"


def document(text: str, doc_id: str = "note-1", license_tag: str = "cc0-1.0", evidence: str = "recipe") -> Document:
    return Document(text, "notes", "books", doc_id, license_tag, "", Meta("a.jsonl", 7, evidence))


@dataclass(frozen=True)
class Written:
    """What lies in the shard: Documents and rejects, and what was counted."""

    documents: list[Document]
    rejects: list[dict[str, object]]
    counts: dict[str, int]
    outcomes: int


@pytest.fixture
def write(folder: StagingView, licences: LicenceTable, tmp_path: Path) -> object:
    def run(*given: Document | Reject | str) -> Written:
        with ShardWriter(folder, "00000", 3) as writer:
            number = write_outcomes(given, writer, derive_id, licences)
        receipt = writer.receipt()

        def rows(file: int, kind: type) -> Iterable[object]:
            for block in read_line_blocks(folder.path(receipt.files[file].path)):
                yield from msgspec.json.Decoder(kind).decode_lines(block)

        return Written(list(rows(0, Document)), list(rows(2, dict)), receipt.counts, number)  # type: ignore[arg-type]

    return run


def test_documents_and_rejects_keep_their_order_and_what_is_dropped_is_counted(write) -> None:
    bad = Reject("a.jsonl", 3, "no_text", "null")

    written = write(document("One.", "1"), bad, LOW_SCORE, document("Two.", "2"), LOW_SCORE)

    assert [one.doc_id for one in written.documents] == ["1", "2"]
    assert written.rejects == [{"file": "a.jsonl", "row": 3, "reason": "no_text", "detail": "null"}]
    assert written.counts == {"documents": 2, "bytes": 8, "rejected/no_text": 1, "dropped/low_score": 2}
    assert written.outcomes == 5


def test_nul_characters_are_removed_and_counted_and_nothing_else_is_touched(write) -> None:
    written = write(document("  \r\n\tA\0B\0 \u200b\ufeffe\u0301 ", "1"), document("Plain.", "2"))

    assert [one.text for one in written.documents] == ["  \r\n\tAB \u200b\ufeffe\u0301 ", "Plain."]
    assert (written.counts["nul_documents"], written.counts["nul_characters_removed"]) == (1, 2)


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("Text.", {"documents": 1, "bytes": 5}),
        ("", {"documents": 1}),
        ("A\0B\0", {"documents": 1, "bytes": 2, "nul_documents": 1, "nul_characters_removed": 2}),
        ("\0\0", {"rejected/empty_text": 1}),
    ],
)
def test_nul_characters_are_counted_where_a_text_is_left(text: str, counts: dict[str, int], write) -> None:
    assert write(document(text, "1")).counts == counts


def test_a_derived_id_is_that_of_the_text_without_nul_and_a_source_id_stays(write) -> None:
    written = write(document("A\0B", derive_id("A\0B")), document("A\0B", "note-1"))

    assert [one.doc_id for one in written.documents] == [derive_id("AB"), "note-1"]


def test_a_text_of_nothing_but_nul_is_rejected_at_its_row(write) -> None:
    written = write(document("\0\0"))

    assert written.documents == []
    assert written.rejects == [
        {"file": "a.jsonl", "row": 7, "reason": "empty_text", "detail": "nothing but NUL"},
    ]  # fmt: skip
    assert written.counts == {"rejected/empty_text": 1}


@pytest.mark.parametrize(
    ("said", "evidence", "tag", "rests_on"),
    [
        ("cc0-1.0", "recipe", "cc0-1.0", "recipe"),
        ("CC Zero", "row: license", "cc0-1.0", "row: license"),
        ("my own", "row: license", "unknown", "row: license is 'my own'"),
        ("x" * 200, "row: license", "unknown", f"row: license is '{'x' * 80}'"),
        ("unknown", "row: license", "unknown", "row: license"),
    ],
)
def test_a_licence_is_the_tables_tag_and_one_it_does_not_have_is_unknown_with_what_was_said(
    said: str, evidence: str, tag: str, rests_on: str, write
) -> None:
    written = write(document("Text.", license_tag=said, evidence=evidence))

    [found] = written.documents
    assert (found.license_tag, found.meta) == (tag, Meta("a.jsonl", 7, rests_on))


def test_batches_have_no_part_in_the_result(write, monkeypatch: pytest.MonkeyPatch) -> None:
    given = [document(f"Text \0 {number}.", str(number)) for number in range(50)]
    at_once = write(*given)

    monkeypatch.setattr(converted, "_BATCH_CHARACTERS", 1)

    assert write(*given) == at_once


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

    found = {place: rows.find_by_source("a.txt", place) for place in owners}
    assert {place: row and rows.row_at(row[0]).parts[0].text for place, row in found.items()} == owners
    place = 0 if unit == "file" else 7
    rejected = ("rejected", Reject("b.txt", place, "invalid_utf8", "invalid start byte at byte 0"))
    assert (rows.find_by_source("b.txt", place), rows.find_reject("b.txt", place)) == (None, rejected)
    assert rows.find_reject("b.txt", place + 2) == (rejected if unit == "file" else None)


def test_a_line_within_a_wikipedia_page_belongs_to_no_other_page(normalized: Callable[..., Artifact]) -> None:
    pages = "".join(f'<doc id="{n}" url="u?curid={n}" title="{n}">\n{n}\n\nText.\n\n</doc>\n' for n in (1, 2))
    found = normalized("wikipedia_en", {"AA/wiki_00.txt": pages}, files=["**/wiki_*"])

    rows = SourceRows(found, Lineage(Path()))

    second = pages.index("<doc", 1)
    places = [rows.find_by_source("AA/wiki_00.txt", place) for place in (0, second, second + 40)]
    assert places == [(0, False), (1, False), None]
