"""The stage `decontaminate`: windows, poison rows, blocks and unreadable lines."""

import functools
import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from decontamination_build import items_set, recipe

from pipeline_assets.corpus.corpus_shard import CorpusShard
from pipeline_assets.corpus.decontamination import decontaminate_corpus
from pipeline_assets.corpus.decontamination.decontaminate_corpus import DecontaminationRules, decontaminate_shard
from pipeline_assets.corpus.decontamination.item_index import write_index
from pipeline_assets.corpus.document import Document, Meta
from pipeline_assets.corpus.document_lines import read_lines
from pipeline_assets.corpus.formats.jsonl_zst import JsonlZstWriter, read_line_blocks
from pipeline_assets.spine.rejects import Reject
from pipeline_assets.spine.stage import WHOLE_SHARD, Window
from pipeline_assets.spine.staging import Receipt, StagingView

PATH = "shards/00000.jsonl.zst"
LEAK = "what is the name of the river that flows through the city of Budapest"
Run = Callable[..., tuple[Receipt, list[list[bytes]]]]


def line(number: int, text: str) -> bytes:
    return msgspec.json.encode(Document(text, "pages", "web", f"page-{number}", "cc0", "", Meta("a", number)))


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Return a function that runs the stage, which cuts `LEAK`, on lines."""

    def stage(lines: list[bytes], window: Window = WHOLE_SHARD) -> tuple[Receipt, list[list[bytes]]]:
        path = tmp_path / "in.jsonl.zst"
        with JsonlZstWriter(path, 3) as writer:
            writer.write_lines(b"".join(row + b"\n" for row in lines), len(lines))
        folder, rules = StagingView(tmp_path / "building"), recipe(action="cut", min_kept_words=2)
        folder.folder.mkdir(exist_ok=True)
        index = write_index([items_set(tmp_path, "quiz", {"a": LEAK})], rules, folder)
        digests = tuple(file.sha256 for file in index.files)
        decontamination = DecontaminationRules(rules, ("quiz",), folder.folder, digests)
        shard = CorpusShard("00000", PATH, path, len(lines), "pages", 0)
        receipt = decontaminate_shard(shard, window, folder, decontamination, zstd_level=3)
        written = [b"".join(read_line_blocks(folder.path(file.path))).splitlines() for file in receipt.files]
        return receipt, written

    return stage


def test_poison_row_is_rejected_unread_and_a_window_reads_only_its_rows(run: Run) -> None:
    lines = [line(0, "one"), b"not even JSON", line(2, LEAK), line(3, f"And so: {LEAK}")]

    receipt, (_, _, rejects) = run(lines, Window(poison_rows=frozenset({1})))
    window_receipt, (_, contaminated, _) = run(lines, Window(start=2, stop=4))

    assert [json.loads(reject) for reject in rejects] == [Reject(PATH, 1, "killed_worker").to_json()]
    assert receipt.counts == {
        "rows": 4,
        "documents": 2,
        "bytes": len("one") + len("And so: "),
        "changed": 1,
        "cut/words": 14,
        "cut/bytes": len(LEAK),
        "contaminated/quiz": 2,
        "cut_for/quiz": 1,
        "dropped/few_words_left": 1,
        "rejected/killed_worker": 1,
    }
    assert window_receipt.counts["rows"] == 2
    assert [json.loads(entry)["row"] for entry in contaminated] == [2, 3]


def test_cut_changes_only_the_text_of_a_document(run: Run) -> None:
    odd = (
        b'{"text":"And so: LEAK \\ud83d\\ude00","source":"pages","domain":"web","doc_id":"page-0","license_tag":"cc0",'
        b'"created_at":"","meta":{"score":3.10,"big":123456789012345678901234567890,"\\u0041":1e400}}'
    )
    kept = (
        b'{"doc_id":"page-0","text":"two \\u0077ords","meta":{"score":1e0},  "license_tag":"cc0","source":"pages",'
        b'"domain":"web","created_at":""}'
    )

    _, (documents, *_) = run([kept, odd.replace(b"LEAK", LEAK.encode())])

    assert documents == [kept, odd.replace(b"LEAK \\ud83d\\ude00", " 😀".encode())]


def test_blocks_of_lines_change_no_result(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["nothing", LEAK, f"{LEAK}\u2028 and more of it", "", f"See {LEAK} and then {LEAK}."]
    lines = [line(number, texts[number % 5]) for number in range(100)]
    whole = run(lines)

    monkeypatch.setattr(decontaminate_corpus, "read_lines", functools.partial(read_lines, block_bytes=1))
    in_blocks = run(lines)

    assert in_blocks == whole
    assert (whole[0].counts["dropped/few_words_left"], whole[0].counts["changed"]) == (20, 40)


def test_no_documents_leave_empty_files(run: Run) -> None:
    receipt, written = run([])

    assert receipt.counts == {"rows": 0, "documents": 0, "bytes": 0, "changed": 0}
    assert written == [[], [], []]
