"""Converted shards become an artifact unless rejects or NUL are too many."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from refusals import refusal
from stage_a_build import ledger

from pipeline_assets.corpus.readers.column_recipe import SourceLabels
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.errors import InputError

Normalized = Callable[..., Artifact]
Read = Callable[[Artifact], list[dict[str, object]]]
BY_KEY = {"text": "text", "id": "key", "created_at": None, "license": None}


def lines(*rows: object) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def test_too_many_rejects_stop_the_build_and_show_the_first_five(normalized: Normalized, tmp_path: Path) -> None:
    rows = [{"text": None, "key": str(n)} if n < 7 else {"text": "Text.", "key": str(n)} for n in range(100)]

    with pytest.raises(InputError) as error:
        normalized("notes", {"a.jsonl": lines(*rows)}, columns=BY_KEY, max_reject_fraction="0.05")

    preview = "; ".join(f"a.jsonl line {number + 1} (byte {27 * number}): no_text (null)" for number in range(5))
    what = f"7 of 100 rows are rejected (7 no_text), above `max_reject_fraction` 0.05 (the first: {preview})"
    assert error.value.what == what
    assert error.value.where == str(tmp_path / "data" / "stage_a" / "mixed" / "normalized" / "notes")
    assert not Path(error.value.where).exists()


def test_empty_text_files_are_rejects_that_do_not_count_as_bad(normalized: Normalized, read_rejects: Read) -> None:
    files = {"a.txt": "Text.", "b.md": "", "c.txt.gz": gzip.compress(b""), "d.txt": "More text."}

    artifact = normalized("notes", files, columns=None, text_unit="file", files=["*"], max_reject_fraction="0")

    assert ledger(artifact) == {"in": 4, "out": 2, "dropped": {}, "rejected": {"empty_text": 2}}
    assert [reject["file"] for reject in read_rejects(artifact)] == ["b.md", "c.txt.gz"]


def test_files_of_only_nul_characters_and_rows_with_empty_texts_count_as_rejected(normalized: Normalized) -> None:
    files = {"a.txt": "Text.", "b.txt": "", "c.txt": "\0", "d.jsonl": lines({"text": ""})}

    with pytest.raises(InputError, match=r"^.*: 2 of 4 rows are rejected \(2 empty_text\), .* c.txt .* d.jsonl"):
        normalized("notes", files, columns=BY_KEY, text_unit="file", files=["*"], max_reject_fraction="0.25")


def test_a_source_without_documents_is_an_error_and_seals_nothing(normalized: Normalized, tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        normalized("notes", {"a.jsonl": lines({"text": ""}, {"text": None})}, columns=BY_KEY, max_reject_fraction="1")

    assert error.value.what == "none of the 2 rows became a document (1 empty_text, 1 no_text)"
    assert not Path(error.value.where).exists()


def test_texts_that_differ_only_in_nul_are_repeats(normalized: Normalized, read_docs: Read) -> None:
    rows = [{"text": "A\0B"}, {"text": "AB"}, *({"text": f"Text {n}."} for n in range(100))]
    derived = SourceLabels(source="notes").derive_id("AB")

    artifact = normalized("notes", {"a.jsonl": lines(*rows)}, columns=BY_KEY)

    assert [doc["doc_id"] for doc in read_docs(artifact)][:2] == [derived, f"{derived}#2"]
    assert artifact.manifest.identity.counts["nul_documents"] == 1


def test_nul_characters_in_too_many_documents_stop_the_build(normalized: Normalized) -> None:
    rows = [{"text": f"Te\0xt {n}." if n in (50, 99) else f"Text {n}."} for n in range(100)]
    files = {"a.jsonl": lines(*rows[:40]), "b.jsonl": lines(*rows[40:])}

    assert refusal(lambda: normalized("notes", files, columns=BY_KEY)).endswith(
        ": 2 of 100 documents contain NUL characters, more than 1 % (the first: b.jsonl line 11 (byte 210): U+0000); "
        "the text may be corrupt; remove these characters from its files, or choose another commit or source"
    )
