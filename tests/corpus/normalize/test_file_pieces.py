"""Files of a local source become Document shards by pieces planned from sizes."""

import json
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest
from refusals import refusal
from stage_a_build import ledger

from pipeline_assets.corpus.normalize.stage import piece_shards
from pipeline_assets.corpus.normalize.wikipedia import pages_add_up
from pipeline_assets.corpus.readers.source_folder import ByteRange, SourceFile
from pipeline_assets.corpus.sealed_shards import rows_by_shard
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.manifest import Identity, Manifest, StageVersion

Normalized = Callable[..., Artifact]
Read = Callable[[Artifact], list[dict[str, object]]]
COLUMNS = {"text": "text", "id": None, "created_at": None, "license": None}


def lines(*rows: object) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def page(number: int, body: str, url: str = "https://en.wikipedia.org/wiki?curid={}") -> str:
    title = f"Page {number}"
    return f'<doc id="{number}" url="{url.format(number)}" title="{title}">\n{title}\n\n{body}\n\n</doc>\n'


def test_a_shard_is_closed_by_the_piece_that_brings_it_to_its_size() -> None:
    file = SourceFile(Path("a.jsonl"), "a.jsonl", 100)
    pieces = [ByteRange(file, start, start + size) for start, size in ((0, 4), (4, 6), (10, 12), (22, 3))]

    shards = piece_shards(pieces, 10)

    assert [(shard.name, len(shard.pieces)) for shard in shards] == [("00000", 2), ("00001", 1), ("00002", 1)]


def test_rows_become_documents_in_the_order_of_files_and_lines(normalized: Normalized, read_docs: Read) -> None:
    rows = [{"text": f"Text {number}."} for number in range(500)]
    files = {"b.jsonl": lines(*rows[3:]), "a.jsonl": lines(*rows[:3]), "c.jsonl": ""}

    artifact = normalized("notes", files, columns=COLUMNS)

    assert [doc["text"] for doc in read_docs(artifact)] == [row["text"] for row in rows]
    assert read_docs(artifact)[3]["doc_id"] == "12c03bfbedbd16926236f4e6a5a211f2e548d0c2a6aa8b6b6194cebd1789412c"
    assert len(rows_by_shard(artifact)) > 5
    assert ledger(artifact) == {"in": 500, "out": 500, "dropped": {}, "rejected": {}}


def test_a_mixed_folder_has_its_extractors_in_the_digest(normalized: Normalized, read_docs: Read) -> None:
    cells = {"cells": [{"cell_type": "markdown", "source": "A notebook."}]}
    files = {
        "a.csv": 'text,n\n"A row\nof two lines.",1\nA bad row.\n',
        "b.html": "<title>Page</title><p>A page.</p>",
        "c.ipynb": json.dumps(cells),
        "d.json": json.dumps([{"text": "An element."}, {"text": "Another."}], indent=1),
        "e.html": "<p> </p>",
    }

    artifact = normalized("notes", files, files=["*"], columns=COLUMNS, max_reject_fraction=0.2)

    texts = ["A row\nof two lines.", "A page.", "A notebook.", "An element.", "Another."]
    assert [doc["text"] for doc in read_docs(artifact)] == texts
    assert ledger(artifact) == {"in": 7, "out": 5, "dropped": {}, "rejected": {"empty_text": 1, "wrong_columns": 1}}
    assert artifact.manifest.identity.decisions == {"extractors": {"selectolax": metadata.version("selectolax")}}


def test_pages_are_articles_or_titles_alone_which_do_not_count_as_bad(
    normalized: Normalized, read_docs: Read, read_rejects: Read
) -> None:
    files = {"AA/wiki_00": page(1, "Text of one.") + page(2, ""), "AB/wiki_00": page(3, "Text of three.")}

    artifact = normalized("wikipedia_en", files, max_reject_fraction="0")

    assert [doc["doc_id"] for doc in read_docs(artifact)] == ["wikipedia:en:1", "wikipedia:en:3"]
    assert [(reject["file"], reject["reason"]) for reject in read_rejects(artifact)] == [("AA/wiki_00", "title_only")]
    assert artifact.manifest.identity.counts["pages"] == 3
    assert ledger(artifact) == {"in": 3, "out": 2, "dropped": {}, "rejected": {"title_only": 1}}


def test_an_extraction_without_a_page_is_an_error(normalized: Normalized) -> None:
    line = refusal(lambda: normalized("wikipedia_en", {"AA/wiki_00": ""}))

    assert ": the extraction contains no page; extract again: wikiextractor finds pages only where" in line


def sealed_artifact(**counts: object) -> Artifact:
    identity = Identity(StageVersion("normalize", 1), {}, [], None, {}, counts, [])
    return Artifact(Path("anywhere"), Manifest("stage_a/normalized", "wikipedia", identity, [], {}))


@pytest.mark.parametrize(
    ("pages", "documents", "rejected", "passes"),
    [
        (5, 3, {"title_only": 2}, True),
        (5, 3, {"title_only": 1, "duplicate_doc_id": 1}, True),
        (5, 3, {"title_only": 1}, False),
        (5, 3, {"title_only": 3}, False),
        (0, 0, {}, False),
    ],
)
def test_pages_are_articles_and_rejects(pages: int, documents: int, rejected: dict[str, int], passes: bool) -> None:
    verdict = pages_add_up(sealed_artifact(pages=pages, documents=documents, ledger={"rejected": rejected}))

    assert verdict.passed is passes
    assert verdict.because == f"{pages} pages in = {documents} articles + {sum(rejected.values())} rejected"
    assert verdict.numbers == {"pages": pages, "articles": documents}


def test_other_sources_have_no_pages() -> None:
    verdict = pages_add_up(sealed_artifact(documents=3, ledger={"rejected": {}}))

    assert (verdict.passed, verdict.applies, verdict.because) == (True, False, "not a Wikipedia extraction")
