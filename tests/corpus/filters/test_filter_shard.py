"""The stage `filter`: output files and counts of a shard, without lost rows."""

import functools
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from pipeline_assets.corpus import document_lines
from pipeline_assets.corpus.document import Document, Meta
from pipeline_assets.corpus.document_shards import DocumentShard
from pipeline_assets.corpus.filters.filter_corpus import filter_shard
from pipeline_assets.corpus.filters.recipe import FilterRecipe
from pipeline_assets.corpus.formats.jsonl_zst import JsonlZstWriter, read_line_blocks
from pipeline_assets.spine.stage import WHOLE_SHARD, Window
from pipeline_assets.spine.staging import Receipt, StagingView

PATH = "shards/00000.jsonl.zst"
SHORT = FilterRecipe.model_validate({"length": {"min_words": 2}})
MASKING = FilterRecipe.model_validate({"masking": {"emails": True, "public_ips": True}})


def document(number: int, text: str, **meta: object) -> Document:
    return Document(text, "pages", "web", f"page-{number}", "cc0", "", Meta.from_mapping("a", number, meta))


def write_shard(folder: Path, *documents: Document | bytes, name: str = "00000") -> DocumentShard:
    """Write a shard of documents or raw lines."""
    lines = [line if isinstance(line, bytes) else msgspec.json.encode(line) for line in documents]
    path = folder / f"in-{name}.jsonl.zst"
    with JsonlZstWriter(path, 3) as writer:
        writer.write_lines(b"".join(line + b"\n" for line in lines), len(lines))
    return DocumentShard(name, f"shards/{name}.jsonl.zst", path, len(lines))


class Filtered(NamedTuple):
    """Output of a filtered shard."""

    receipt: Receipt
    kept: list[bytes]
    dropped: list[dict[str, Any]]
    rejects: list[dict[str, Any]]

    @property
    def counts(self) -> Mapping[str, int]:
        return self.receipt.counts

    @property
    def kept_ids(self) -> list[str]:
        return [json.loads(line)["doc_id"] for line in self.kept]


@pytest.fixture
def filtered(tmp_path: Path) -> Callable[..., Filtered]:
    """Return a function that filters documents or raw lines."""

    def run(*documents: Document | bytes, recipe: FilterRecipe = SHORT, window: Window = WHOLE_SHARD) -> Filtered:
        receipt = filter_shard(write_shard(tmp_path, *documents), window, StagingView(tmp_path), recipe, zstd_level=3)
        kept, dropped, rejects = (
            b"".join(read_line_blocks(tmp_path / file.path)).splitlines() for file in receipt.files
        )
        return Filtered(receipt, kept, [*map(json.loads, dropped)], [*map(json.loads, rejects)])

    return run


def test_kept_documents_keep_order_and_bytes_and_dropped_ones_are_listed(filtered: Callable[..., Filtered]) -> None:
    kept = (
        b'{"doc_id":"page-0","text":"two \\u0077ords","meta":{"score":1e0},  "license_tag":"cc0","source":"pages",'
        b'"domain":"web","created_at":""}'
    )

    result = filtered(kept, document(1, "one"), document(2, "three more words"))

    assert result.kept == [kept, msgspec.json.encode(document(2, "three more words"))]
    assert result.dropped == [
        {"doc_id": "page-1", "reason": "few_words", "value": 1, "threshold": 2, "shard": PATH, "row": 1}
    ]
    assert result.rejects == []
    assert result.counts == {"rows": 3, "documents": 2, "bytes": 25, "changed": 0, "dropped/few_words": 1}
    assert [(file.path, file.rows) for file in result.receipt.files] == [
        ("shards/00000.jsonl.zst", 2),
        (".work/dropped/00000.jsonl.zst", 1),
        (".work/rejects/00000.jsonl.zst", 0),
    ]


def test_changed_document_keeps_every_byte_outside_its_text(filtered: Callable[..., Filtered]) -> None:
    line = (
        b'{"text":"a@b.c \\ud83d\\ude00 8.8.8.8","source":"pages","domain":"web","doc_id":"page-0","license_tag":"cc0",'
        b'"created_at":"","meta":{"score":3.10,"big":123456789012345678901234567890,"\\u0041":1e400}}'
    )

    result = filtered(line, document(1, "nothing to mask"), recipe=MASKING)

    assert result.kept[0] == line.replace(
        b"a@b.c \\ud83d\\ude00 8.8.8.8", "email@example.com 😀 22.214.171.124".encode()
    )
    assert result.counts == {
        "rows": 2, "documents": 2, "bytes": 52, "changed": 1, "masked/email": 1, "masked/ip": 1,
    }  # fmt: skip


def test_removals_and_masks_are_counted_only_in_kept_documents(filtered: Callable[..., Filtered]) -> None:
    c4 = {"remove_lines": True, "terminal_punctuation": ".", "min_sentences": 2}
    recipe = FilterRecipe.model_validate({"c4": c4, "masking": {"emails": True, "public_ips": False}})

    result = filtered(
        document(0, "A heading\nOne. Two at a@b.c is."),
        document(1, "A heading\nOnly one at a@b.c it is."),
        recipe=recipe,
    )

    assert json.loads(result.kept[0])["text"] == "One. Two at email@example.com is."
    assert result.counts == {
        "rows": 2,
        "documents": 1,
        "bytes": 33,
        "changed": 1,
        "dropped/few_sentences": 1,
        "removed_lines/no_terminal_punctuation": 1,
        "masked/email": 1,
    }


def test_rules_read_metadata_place_and_licence_evidence(filtered: Callable[..., Filtered]) -> None:
    rules = ["score >= 3", 'language == "en"', 'source_file == "a"', 'license_evidence == "recipe"', "source_row < 4"]
    result = filtered(
        document(0, "a", score=3.5, language="en", source_row=7),
        document(1, "b", score=2, language="de"),
        document(2, "c", score=None, language="en"),
        document(3, "d", score=3, language="de"),
        document(4, "e", score=3, language="en", source_row=0),
        recipe=FilterRecipe.model_validate({"rules": rules}),
    )

    assert result.kept_ids == ["page-0"]
    assert [(line["reason"], line["value"], line["threshold"]) for line in result.dropped] == [
        ("score >= 3", 2, 3),
        ("score >= 3", None, 3),
        ('language == "en"', "de", "en"),
        ("source_row < 4", 4, 4),
    ]


def test_no_documents_and_no_kept_documents_leave_empty_files(filtered: Callable[..., Filtered]) -> None:
    empty = filtered()
    none_kept = filtered(document(0, "one"))

    assert empty.counts == {"rows": 0, "documents": 0, "bytes": 0, "changed": 0}
    assert none_kept.kept == []
    assert none_kept.counts["dropped/few_words"] == 1


def test_blocks_of_lines_change_no_result(filtered: Callable[..., Filtered], monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["a@b.c", "two words\u2028here", "Zwei Wörter", "8.8.8.8 is\r\nan address"]
    recipe = FilterRecipe(length=SHORT.length, masking=MASKING.masking)
    documents = [document(number, texts[number % 4]) for number in range(200)]
    whole = filtered(*documents, recipe=recipe)

    monkeypatch.setattr(document_lines, "read_lines", functools.partial(document_lines.read_lines, block_bytes=1))
    in_blocks = filtered(*documents, recipe=recipe)

    assert in_blocks == whole
    assert whole.counts["dropped/few_words"] == whole.counts["masked/ip"] == 50


def test_poison_row_is_rejected_unread_and_a_window_reads_only_its_rows(
    filtered: Callable[..., Filtered],
) -> None:
    documents = document(0, "one"), b"not even JSON", document(2, "two words"), document(3, "one")

    poisoned = filtered(*documents, window=Window(poison_rows=frozenset({1})))
    in_window = filtered(*documents, window=Window(start=2, stop=4))

    assert poisoned.rejects == [{"file": PATH, "row": 1, "reason": "killed_worker", "detail": ""}]
    assert poisoned.counts["rows"] == 4 == poisoned.counts["documents"] + poisoned.counts["dropped/few_words"] + 1
    assert in_window.counts["rows"] == 2
    assert [line["row"] for line in in_window.dropped] == [3]
