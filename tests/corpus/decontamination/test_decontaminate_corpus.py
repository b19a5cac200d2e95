"""Decontamination of a corpus: kept text, evidence, counts and errors."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from decontamination_build import decontaminate, items_set, read_evidence, read_texts, recipe, write_corpus
from document_corpus import lines_in
from refusals import refusal

from pipeline_assets.corpus.decontamination import item_index
from pipeline_assets.corpus.decontamination.recipe import ContaminatedLine, read_contaminated
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.spine.errors import InputError

Decontaminated = Callable[..., Artifact]
QUESTION = "Which planet of the solar system has the most moons, as far as anybody knows today?"
WORDS = QUESTION.split()
OTHER = "An entirely different page about the history of bread, of ovens, of bakers and of their guilds in Europe."


def test_contaminated_document_is_dropped_with_evidence(decontaminated: Decontaminated) -> None:
    page = f"Trivia night! {QUESTION} Answer below."

    result = decontaminated([OTHER, page], [OTHER.upper() * 2, QUESTION])

    assert read_texts(result) == {"d0": OTHER}
    assert read_evidence(result) == {
        "d1": ContaminatedLine(
            doc_id="d1",
            action="dropped",
            reason="contaminated",
            evaluation_set="quiz",
            item="q1",
            overlap=1.0,
            shared_ngrams=4,
            item_ngrams=4,
            items={"quiz": 1},
            spans=[(14, 14 + len(QUESTION) - 1)],
            excerpt=QUESTION.rstrip("?"),
            source="notes",
            shard="shards/00000.jsonl.zst",
            row=1,
        )
    }


def test_every_row_is_kept_dropped_or_rejected(decontaminated: Decontaminated) -> None:
    result = decontaminated(
        [OTHER, QUESTION, f"{OTHER} {QUESTION} {OTHER}", QUESTION * 2],
        {"quiz": {"a": QUESTION, "b": "too short", "c": QUESTION.lower()}, "exam": {"a": QUESTION, "b": "x y z u v w"}},
        action="cut",
        margin_words=1,
        min_kept_words=5,
    )

    identity = result.manifest.identity
    kept_text = f"{OTHER.removesuffix('Europe.')}{OTHER.removeprefix('An')}"
    assert read_texts(result) == {"d0": OTHER, "d2": kept_text}
    document_counts = {"contaminated_documents": 3, "dropped_documents": 2, "cut_documents": 1}
    text_bytes = len(OTHER) + len(kept_text)
    assert identity.counts == {
        "ledger": {"in": 4, "out": 2, "dropped": {"few_words_left": 2}, "rejected": {}},
        "documents": 2,
        "text_bytes": text_bytes,
        "changed_documents": 1,
        "changes": {"cut/bytes": len(f"{OTHER} {QUESTION} {OTHER}") - len(kept_text), "cut/words": 18},
        "by_source": {
            "notes": {"in": 4, "out": 2, "dropped": 2, "rejected": 0, "cut": 1, "text_bytes": text_bytes, "shards": 2}
        },
        "evaluation": {
            "quiz": {"items": 3, "repeated": 1, "too_short": 1, "without_ngrams": 0} | document_counts,
            "exam": {"items": 2, "repeated": 1, "too_short": 0, "without_ngrams": 0} | document_counts,
        },
        "ngrams": 5,
        "common_ngrams": 0,
    }
    assert read_evidence(result)["d2"].items == {"quiz": 2, "exam": 1}
    assert [(file.path, file.rows) for file in identity.files] == [
        ("shards/notes-00000.jsonl.zst", 2),
        ("shards/notes-00001.jsonl.zst", 0),
        ("contaminated.jsonl.zst", 3),
        ("rejects.jsonl.zst", 0),
    ]


def test_ngrams_of_many_items_contaminate_nothing_and_count_for_no_item(decontaminated: Decontaminated) -> None:
    prompt = "Read the passage carefully and choose the best answer from the four options given below"
    items = [f"{prompt} {' '.join(f'{name}{number}' for name in 'abcde')}" for number in range(4)]

    result = decontaminated([prompt, OTHER, items[2]], items, max_items_per_ngram=3, min_item_overlap="1")

    assert list(read_evidence(result)) == ["d2"]
    assert read_evidence(result)["d2"].item_ngrams == 5
    assert result.manifest.identity.counts["common_ngrams"] == 3


def test_item_with_only_common_ngrams_is_counted(decontaminated: Decontaminated) -> None:
    result = decontaminated([OTHER], [QUESTION, f"{QUESTION} More", f"{QUESTION} Less"], max_items_per_ngram=1)

    assert result.manifest.identity.counts["evaluation"]["quiz"]["without_ngrams"] == 1


def test_corpus_without_kept_documents_is_an_error(decontaminated: Decontaminated, tmp_path: Path) -> None:
    assert refusal(lambda: decontaminated([QUESTION, QUESTION], [QUESTION])) == (
        f"{tmp_path}/clean: none of its 2 documents is kept (2 are contaminated); "
        "remove an evaluation set, or raise `min_item_overlap`"
    )


def test_empty_corpus_remains_empty(decontaminated: Decontaminated) -> None:
    result = decontaminated([], [QUESTION])

    assert result.manifest.identity.counts["ledger"] == {"in": 0, "out": 0, "dropped": {}, "rejected": {}}


def write_many(tmp_path: Path, shard_documents: int) -> Artifact:
    texts = {f"d{number}": f"{OTHER} {number} {QUESTION if number % 7 == 0 else ''} {OTHER}" for number in range(60)}
    return write_corpus(tmp_path / f"by-{shard_documents}", texts, shard_documents)


def test_workers_and_shard_sizes_do_not_change_the_result(tmp_path: Path) -> None:
    rules = recipe(action="cut", margin_words=2)
    sets = [items_set(tmp_path, "quiz", {"a": QUESTION})]

    alone = decontaminate(tmp_path / "a", write_many(tmp_path, 7), sets, rules)
    forked = decontaminate(tmp_path / "b", write_many(tmp_path, 7), sets, rules, RunSettings(2))
    spawned = decontaminate(tmp_path / "c", write_many(tmp_path, 7), sets, rules, RunSettings(2, start_method="spawn"))
    one_shard = decontaminate(tmp_path / "d", write_many(tmp_path, 60), sets, rules)

    assert alone.manifest.digest == forked.manifest.digest == spawned.manifest.digest
    assert lines_in(one_shard) == lines_in(alone)
    counts, one_shard_counts = alone.manifest.identity.counts, one_shard.manifest.identity.counts
    assert counts["by_source"]["notes"] == one_shard_counts["by_source"]["notes"] | {"shards": 9}
    assert one_shard_counts | {"by_source": None} == counts | {"by_source": None}
    assert [line.item for line in read_evidence(one_shard).values()] == ["a"] * 9


def test_sources_are_written_in_order_to_their_own_shards(tmp_path: Path) -> None:
    sets = [items_set(tmp_path, "quiz", {"a": QUESTION})]
    sources = {name: write_many(tmp_path / name, 25) for name in ("notes", "pages")}

    result = decontaminate(tmp_path, sources, sets, recipe())

    names = [f"shards/{name}-{number:05d}.jsonl.zst" for name in sources for number in range(3)]
    assert [file.path for file in result.manifest.identity.files[:6]] == names
    assert lines_in(result) == [
        line for source in sources.values() for line in lines_in(source) if b"planet" not in line
    ]
    evidence = [(line.source, line.shard, line.row) for line in read_contaminated(result)]
    assert evidence[8:10] == [("notes", "shards/00002.jsonl.zst", 6), ("pages", "shards/00000.jsonl.zst", 0)]
    counts = result.manifest.identity.counts["by_source"]
    assert {name: (ledger["in"], ledger["out"], ledger["dropped"]) for name, ledger in counts.items()} == {
        "notes": (60, 51, 9),
        "pages": (60, 51, 9),
    }


def test_evaluation_files_replaced_while_read_stop_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus, sets = write_many(tmp_path, 60), [items_set(tmp_path, "quiz", {"a": QUESTION})]
    write_index, absent_item = item_index.write_index, {"b": "What is asked nowhere in these pages?"}

    def write_then_replace(*arguments: Any) -> Any:
        index = write_index(*arguments)
        items_set(tmp_path / "other", "quiz", absent_item)
        (tmp_path / "other" / "quiz.jsonl").replace(tmp_path / "quiz.jsonl")
        return index

    with monkeypatch.context() as patch, pytest.raises(InputError, match="the first is quiz"):
        patch.setattr(item_index, "write_index", write_then_replace)
        decontaminate(tmp_path, corpus, sets, recipe())
    result = decontaminate(tmp_path, corpus, [items_set(tmp_path, "quiz", absent_item)], recipe())

    assert read_evidence(result) == {}
