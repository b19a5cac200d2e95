"""The stage `filter`: what is written of a shard, what is counted, and that nothing is lost."""

import functools
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest

from pipeline_assets.corpus.document import Document, Meta
from pipeline_assets.corpus.document_shards import DocumentShard
from pipeline_assets.corpus.filters import filter_corpus as stage
from pipeline_assets.corpus.filters.filter_corpus import filter_shard, load_filters
from pipeline_assets.corpus.filters.recipe import FilterRecipe
from pipeline_assets.corpus.formats.jsonl_zst import JsonlZstWriter, read_line_blocks
from pipeline_assets.corpus.spine.engine import RunSettings, run_stage
from pipeline_assets.corpus.spine.errors import InputError, UsageError
from pipeline_assets.corpus.spine.sealing import RECEIPTS
from pipeline_assets.corpus.spine.staging import BuildFolder, Receipt
from pipeline_assets.corpus.spine.worker import WHOLE, Window

PATH = "shards/00000.jsonl.zst"
SHORT = FilterRecipe.model_validate({"length": {"min_words": 2}})
Lines = Callable[[Receipt, int], list[bytes]]


def document(number: int, text: str, **meta: object) -> Document:
    return Document(text, "pages", "web", f"page-{number}", "cc0", "", Meta.of("a", number, meta))


@pytest.fixture
def shard(tmp_path: Path) -> Callable[..., DocumentShard]:
    """A shard of documents, or of lines as they are given."""

    def write(*documents: Document | bytes, name: str = "00000") -> DocumentShard:
        lines = [line if isinstance(line, bytes) else msgspec.json.encode(line) for line in documents]
        path = tmp_path / f"in-{name}.jsonl.zst"
        with JsonlZstWriter(path, 3) as writer:
            writer.write_lines(b"".join(line + b"\n" for line in lines), len(lines))
        return DocumentShard(name, f"shards/{name}.jsonl.zst", path, len(lines))

    return write


@pytest.fixture
def filtered(tmp_path: Path) -> Callable[..., Receipt]:
    def run(shard: DocumentShard, recipe: FilterRecipe, window: Window = WHOLE) -> Receipt:
        return filter_shard(shard, window, BuildFolder(tmp_path), recipe, zstd_level=3)

    return run


@pytest.fixture
def lines_of(tmp_path: Path) -> Lines:
    """Lines of the receipt's first, second or third file."""
    return lambda receipt, file: b"".join(read_line_blocks(tmp_path / receipt.files[file].path)).splitlines()


def test_kept_documents_keep_order_and_bytes_and_each_dropped_one_leaves_a_line(
    shard: Callable[..., DocumentShard], filtered: Callable[..., Receipt], lines_of: Lines
) -> None:
    kept = b'{"doc_id":"page-0","text":"two \\u0077ords","meta":{"score":1e0},  "license_tag":"cc0"}'
    documents = shard(kept, document(1, "one"), document(2, "three more words"))

    receipt = filtered(documents, SHORT)

    assert lines_of(receipt, 0) == [kept, msgspec.json.encode(document(2, "three more words"))]
    assert [json.loads(line) for line in lines_of(receipt, 1)] == [
        {"doc_id": "page-1", "reason": "few_words", "value": 1, "threshold": 2, "shard": PATH, "row": 1}
    ]
    assert lines_of(receipt, 2) == []
    assert receipt.counts == {"rows": 3, "documents": 2, "bytes": 25, "changed": 0, "dropped/few_words": 1}
    assert [file.path for file in receipt.files] == [
        "shards/00000.jsonl.zst",
        ".work/dropped/00000.jsonl.zst",
        ".work/rejects/00000.jsonl.zst",
    ]
    assert [file.rows for file in receipt.files] == [2, 1, 0]


def test_a_document_whose_text_changes_keeps_every_other_byte(
    shard: Callable[..., DocumentShard], filtered: Callable[..., Receipt], lines_of: Lines
) -> None:
    recipe = FilterRecipe.model_validate({"masking": {"emails": True, "public_ips": True}})
    line = (
        b'{"text":"a@b.c \\ud83d\\ude00 8.8.8.8","source":"pages","domain":"web","doc_id":"page-0","license_tag":"cc0",'
        b'"created_at":"","meta":{"score":3.10,"big":123456789012345678901234567890,"\\u0041":1e400}}'
    )

    receipt = filtered(shard(line, document(1, "nothing to mask")), recipe)

    assert lines_of(receipt, 0)[0] == line.replace(
        b"a@b.c \\ud83d\\ude00 8.8.8.8", "email@example.com 😀 22.214.171.124".encode()
    )
    assert receipt.counts == {
        "rows": 2, "documents": 2, "bytes": 52, "changed": 1, "masked/email": 1, "masked/ip": 1,
    }  # fmt: skip


def test_what_is_removed_or_masked_is_counted_in_kept_documents_alone(
    shard: Callable[..., DocumentShard], filtered: Callable[..., Receipt], lines_of: Lines
) -> None:
    recipe = FilterRecipe.model_validate(
        {
            "c4": {"remove_lines": True, "terminal_punctuation": ".", "min_sentences": 2},
            "masking": {"emails": True, "public_ips": False},
        }
    )
    documents = shard(
        document(0, "A heading\nOne. Two at a@b.c is."), document(1, "A heading\nOnly one at a@b.c it is.")
    )

    receipt = filtered(documents, recipe)

    assert json.loads(lines_of(receipt, 0)[0])["text"] == "One. Two at email@example.com is."
    assert receipt.counts == {
        "rows": 2,
        "documents": 1,
        "bytes": 33,
        "changed": 1,
        "dropped/few_sentences": 1,
        "removed_lines/no_terminal_punctuation": 1,
        "masked/email": 1,
    }


def test_rules_look_at_the_columns_in_the_meta(
    shard: Callable[..., DocumentShard], filtered: Callable[..., Receipt], lines_of: Lines
) -> None:
    recipe = FilterRecipe.model_validate({"rules": ["score >= 3", 'language == "en"']})
    documents = shard(
        document(0, "a", score=3.5, language="en"),
        document(1, "b", score=2, language="de"),
        document(2, "c", score=None, language="en"),
        document(3, "d", score=3, language="de"),
    )

    receipt = filtered(documents, recipe)

    assert [json.loads(line)["doc_id"] for line in lines_of(receipt, 0)] == ["page-0"]
    assert [[*json.loads(line).values()][1:4] for line in lines_of(receipt, 1)] == [
        ["score >= 3", 2, 3],
        ["score >= 3", None, 3],
        ['language == "en"', "de", "en"],
    ]


def test_rules_look_at_the_place_of_a_document_and_at_what_its_licence_rests_on(
    shard: Callable[..., DocumentShard], filtered: Callable[..., Receipt], lines_of: Lines
) -> None:
    recipe = FilterRecipe.model_validate(
        {"rules": ['source_file == "a"', 'license_evidence == "recipe"', "source_row < 1"]}
    )

    receipt = filtered(shard(document(0, "a", source_row=7), document(1, "b", source_row=0)), recipe)

    assert [json.loads(line)["doc_id"] for line in lines_of(receipt, 0)] == ["page-0"]
    assert [[*json.loads(line).values()][:4] for line in lines_of(receipt, 1)] == [["page-1", "source_row < 1", 1, 1]]


@pytest.mark.parametrize(
    ("rule", "column"), [("score >= 3", "score"), ('language == "en"', "language"), ('title != ""', "title")]
)
def test_a_rule_over_a_column_that_is_not_there_is_a_usage_error(
    rule: str, column: str, shard: Callable[..., DocumentShard], filtered: Callable[..., Receipt]
) -> None:
    with pytest.raises(UsageError) as error:
        filtered(shard(document(0, "a", url="https://a")), FilterRecipe.model_validate({"rules": [rule]}))

    assert str(error.value) == (
        f"rule `{rule}`: there is no column `{column}`; correct the rule; "
        "there are url, source_file, source_row, license_evidence"
    )


def test_no_documents_and_no_kept_documents_leave_empty_files(
    shard: Callable[..., DocumentShard], filtered: Callable[..., Receipt], lines_of: Lines
) -> None:
    empty = filtered(shard(), SHORT)
    none_kept = filtered(shard(document(0, "one")), SHORT)

    assert empty.counts == {"rows": 0, "documents": 0, "bytes": 0, "changed": 0}
    assert lines_of(none_kept, 0) == []
    assert none_kept.counts["dropped/few_words"] == 1


def test_blocks_of_lines_have_no_part_in_the_result(
    shard: Callable[..., DocumentShard], filtered: Callable[..., Receipt], monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = ["a@b.c", "two words\u2028here", "Zwei Wörter", "8.8.8.8 is\r\nan address"]
    recipe = FilterRecipe.model_validate({**SHORT.content(), "masking": {"emails": True, "public_ips": True}})
    documents = shard(*[document(number, texts[number % 4]) for number in range(200)])
    whole = filtered(documents, recipe)

    monkeypatch.setattr(stage, "_BLOCK_BYTES", 1)
    in_blocks = filtered(documents, recipe)

    assert in_blocks == whole
    assert whole.counts["dropped/few_words"] == whole.counts["masked/ip"] == 50


def test_a_row_that_kills_its_worker_is_rejected_unread_and_a_window_reads_its_rows_alone(
    shard: Callable[..., DocumentShard], filtered: Callable[..., Receipt], lines_of: Lines
) -> None:
    documents = shard(document(0, "one"), b"not even JSON", document(2, "two words"), document(3, "one"))

    fatal = filtered(documents, SHORT, Window(fatal=frozenset({1})))
    rejects = [json.loads(line) for line in lines_of(fatal, 2)]
    part = filtered(documents, SHORT, Window(start=2, stop=4))

    assert rejects == [{"file": PATH, "row": 1, "reason": "killed_worker", "detail": ""}]
    assert fatal.counts["rows"] == 4 == fatal.counts["documents"] + fatal.counts["dropped/few_words"] + 1
    assert part.counts["rows"] == 2
    assert [json.loads(line)["row"] for line in lines_of(part, 1)] == [3]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (b'{"doc_id":"page-1","meta":{}}', "Object missing required field `text`"),
        (b'{"doc_id":"page-1","text":7,"meta":{}}', "Expected `str`, got `int` - at `$.text`"),
        (b'{"doc_id":"page-1","te', "Input data was truncated"),
        (b"", "Input data was truncated"),
        (
            b'{"doc_id":"page-1","text":"\xff","meta":{}}',
            "'utf-8' codec can't decode byte 0xff in position 0: invalid start byte",
        ),
    ],
)
def test_a_line_that_is_no_document_is_an_error_that_names_file_and_row(
    shard: Callable[..., DocumentShard], filtered: Callable[..., Receipt], line: bytes, complaint: str
) -> None:
    documents = shard(document(0, "two words"), line)

    with pytest.raises(InputError) as error:
        filtered(documents, SHORT)

    assert str(error.value) == (
        f"{documents.file}: row 1 is no Document ({complaint}); verify the corpus, then rebuild it"
    )


def test_workers_make_the_same_files_as_no_workers(shard: Callable[..., DocumentShard], tmp_path: Path) -> None:
    recipe = FilterRecipe.model_validate({**SHORT.content(), "masking": {"emails": True, "public_ips": True}})
    shards = [
        shard(
            *[document(number, f"a@b.c {number}" if number % 3 else "one") for number in range(50)], name=f"{part:05d}"
        )
        for part in range(3)
    ]

    def receipts(workers: int) -> Sequence[Receipt]:
        folder = BuildFolder(tmp_path / str(workers))
        (folder.folder / RECEIPTS).mkdir(parents=True)
        work = functools.partial(filter_shard, recipe=recipe, zstd_level=3)
        warm_up = functools.partial(load_filters, recipe)
        return list(run_stage("filter", work, shards, folder, RunSettings(workers), warm_up))

    assert receipts(2) == receipts(0)
