"""Filtering of a corpus: shards, dropped documents, windows and languages."""

import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from forked_workers import forked_here
from refusals import refusal
from stage_a_build import INLINE, build, local_source, parse_recipe

from pipeline_assets.corpus.dedup import repeated_windows
from pipeline_assets.corpus.filters.language import load_detector
from pipeline_assets.corpus.filters.verdict import DroppedDocument, read_dropped
from pipeline_assets.corpus.sealed_shards import rows_by_shard
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.spine.errors import UsageError

Filtered = Callable[..., Artifact]
Read = Callable[[Artifact], list[dict[str, object]]]
SHARD = "shards/00000.jsonl.zst"


@pytest.fixture
def filtered(tmp_path: Path) -> Filtered:
    """Return a function that filters texts or rows of a source; keys are numbers."""

    def run(
        *texts: str | Mapping[str, Any],
        engine: RunSettings = INLINE,
        root: str = "data",
        shard_text_bytes: int = 1 << 30,
        **filters: object,
    ) -> Artifact:
        rows = [{"text": text} if isinstance(text, str) else text for text in texts]
        keyed = [{"key": f"note-{number}", **row} for number, row in enumerate(rows)]
        source = local_source(tmp_path, "notes", keyed, filters=filters)
        changes = {"refuse_licences": ["proprietary", "cc-by-nc-4.0"], "shard_text_bytes": shard_text_bytes}
        return build(parse_recipe(source, **changes), tmp_path / root, None, engine)["stage_a/filtered/notes"]

    return run


def test_dropped_document_has_an_entry_with_reason_measurement_and_place(filtered: Filtered) -> None:
    artifact = filtered("one two three", "one", "x y z " * 9, "two words", length={"min_words": 3, "max_words": 20})

    assert list(read_dropped(artifact)) == [
        DroppedDocument("note-1", "few_words", 1, 3, SHARD, 1),
        DroppedDocument("note-2", "many_words", 27, 20, SHARD, 2),
        DroppedDocument("note-3", "few_words", 2, 3, SHARD, 3),
    ]
    assert artifact.manifest.identity.counts == {
        "ledger": {"in": 4, "out": 1, "dropped": {"few_words": 2, "many_words": 1}, "rejected": {}},
        "documents": 1,
        "text_bytes": 13,
        "changed_documents": 0,
        "changes": {},
    }
    assert [(file.path, file.rows) for file in artifact.manifest.identity.files] == [
        (SHARD, 1),
        ("dropped.jsonl.zst", 3),
        ("rejects.jsonl.zst", 0),
    ]


def test_source_without_kept_documents_is_an_error_with_reasons_and_is_not_sealed(
    filtered: Filtered, tmp_path: Path
) -> None:
    rows = [{"text": "one two three", "license": "proprietary"}, "one", "two", "x " * 30]

    assert refusal(lambda: filtered(*rows, length={"min_words": 2, "max_words": 20})) == (
        "mixed/notes: none of the 4 documents is kept (2 few_words, 1 refused_licence, 1 many_words); "
        "loosen the filters or remove the source"
    )
    assert not (tmp_path / "data/stage_a/mixed/filtered/notes").exists()
    assert not (tmp_path / "data/stage_a/mixed/report/mixed").exists()


def test_shard_without_kept_documents_is_empty(filtered: Filtered) -> None:
    texts = ["one " * 100 if number < 5 else "x" * 400 for number in range(10)]

    artifact = filtered(*texts, shard_text_bytes=1000, length={"min_words": 2})

    assert list(rows_by_shard(artifact).values()) == [3, 2, 0, 0, 0]
    assert {line.shard for line in read_dropped(artifact)} == {f"shards/0000{number}.jsonl.zst" for number in (2, 3)}


LONG = "This sentence is one of many in a text that is longer than one window of it is, and says little. " * 4


@pytest.mark.parametrize("engine", [INLINE, RunSettings(1), RunSettings(2)], ids=lambda engine: engine.workers)
@pytest.mark.parametrize("shard_text_bytes", [1 << 30, 300])
def test_repeating_documents_are_dropped_before_any_filter_runs(
    engine: RunSettings, shard_text_bytes: int, filtered: Filtered
) -> None:
    rows = [
        {"text": LONG, "license": "proprietary"},
        LONG,
        "short",
        "Before it, something new. " + LONG,
        "Nobody has said this before.",
        "short",
    ]

    artifact = filtered(
        *rows, engine=engine, shard_text_bytes=shard_text_bytes, windows={"every": 16}, length={"min_words": 2}
    )

    assert [(line.doc_id, line.reason, line.value, line.threshold) for line in read_dropped(artifact)] == [
        ("note-0", "refused_licence", "proprietary", None),
        ("note-2", "few_words", 1, 2),
        ("note-3", "repeated_windows", 0.7, 0.5),
        ("note-5", "repeated_windows", 1.0, 0.5),
    ]
    assert artifact.manifest.identity.counts["ledger"] == {
        "in": 6,
        "out": 2,
        "dropped": {"few_words": 1, "refused_licence": 1, "repeated_windows": 2},
        "rejected": {},
    }
    assert artifact.manifest.identity.decisions == {}


@pytest.mark.parametrize(
    ("reason", "filters"),
    [
        ("repeated_windows", {"windows": {"window_bytes": 32, "every": 4}}),
        ("few_words", {"length": {"min_words": 20}}),
    ],
)
def test_workers_do_not_change_the_result(reason: str, filters: dict[str, object], filtered: Filtered) -> None:
    texts = [f"Text of {number % 31} {LONG[: number % 300]}" for number in range(200)]
    alone = filtered(*texts, shard_text_bytes=2000, **filters)

    artifacts = [
        filtered(*texts, engine=RunSettings(workers), root=f"{workers}", shard_text_bytes=2000, **filters)
        for workers in (1, 2)
    ]

    assert len(rows_by_shard(alone)) > 4
    assert alone.manifest.identity.counts["ledger"]["dropped"][reason] > 50
    assert [artifact.manifest.digest for artifact in artifacts] == [alone.manifest.digest] * 2


def test_poison_row_of_the_window_search_is_rejected_and_not_filtered(
    filtered: Filtered, monkeypatch: pytest.MonkeyPatch, read_rejects: Read
) -> None:
    select = repeated_windows.select_windows

    def select_or_die(texts: Sequence[bytes], *settings: int) -> Any:
        if any(b"deadly" in text for text in texts):
            os.kill(os.getpid(), signal.SIGKILL)
        return select(texts, *settings)

    monkeypatch.setattr(repeated_windows, "select_windows", select_or_die)

    with forked_here():
        artifact = filtered("one", "deadly", "two", "one", engine=RunSettings(2), windows={})

    assert [(reject["row"], reject["reason"]) for reject in read_rejects(artifact)] == [(1, "killed_worker")]
    assert [line.doc_id for line in read_dropped(artifact)] == ["note-3"]
    assert artifact.manifest.identity.ledger.adds_up


GERMAN = "Die Minister trafen sich am Dienstag, um über den Haushalt zu sprechen, und niemand war davon überrascht."


def test_documents_in_other_languages_are_dropped_and_the_detector_recorded(filtered: Filtered) -> None:
    english = "The ministers met on Tuesday to discuss the budget, and nobody was surprised by what they had to say."

    artifact = filtered(english, GERMAN, "no", length={"min_words": 2}, language={"threshold": "0.9"})

    [line, short] = read_dropped(artifact)
    assert (line.doc_id, line.reason, line.threshold) == ("note-1", "other_language", "en from 0.9")
    assert str(line.value).startswith("de 0.9") or line.value == "de 1.0"
    assert short.reason == "few_words"
    assert artifact.manifest.identity.decisions == {
        "language": {"detector": "py3langid", "version": metadata.version("py3langid"), "threshold": "0.9"}
    }


def test_missing_detector_is_refused_before_any_output(
    filtered: Filtered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "py3langid", None)
    load_detector.cache_clear()

    refused = refusal(lambda: filtered(GERMAN, language={}), UsageError)

    assert refused.startswith("languages: py3langid is not installed; in the project's folder run ")
    assert not list((tmp_path / "data/stage_a/mixed/filtered").rglob("*.zst"))
