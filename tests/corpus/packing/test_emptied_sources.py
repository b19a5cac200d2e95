"""A source that is asked for and has no document left is refused before anything is encoded."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from refusals import refusal
from stage_a_build import build, local_source, recipe_of

from pipeline_assets.corpus.packing.empty_sources import raise_if_source_empty
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.errors import UsageError


def corpus(**counts: Any) -> Artifact:
    """One that is sealed with these counts."""
    return Artifact(Path("corpus"), SimpleNamespace(identity=SimpleNamespace(counts=counts)))  # type: ignore[arg-type]


DEDUPLICATED = corpus(by_source={"a": {"in": 10, "exact_duplicate": 4, "near_duplicate": 3}})
CLEAN = corpus(
    by_source={"a": {"in": 3, "out": 0, "dropped": 3, "text_bytes": 0}, "b": {"in": 9, "out": 9, "text_bytes": 9}}
)


def test_it_is_said_where_its_documents_went() -> None:
    what, _, fix = refusal(
        lambda: raise_if_source_empty({"all": CLEAN}, DEDUPLICATED, ["a", "b"]), UsageError
    ).partition("; ")

    assert what.endswith(
        ": no documents of a remain: 7 of 10 documents were duplicates, 3 of 3 documents were contaminated"
    )
    assert "or list it before the sources that repeat its texts" in fix


def test_duplicates_of_earlier_corpora_are_told_apart_and_another_order_is_not_advised() -> None:
    repeating = corpus(by_source={"a": {"in": 10, "exact_duplicate": 4, "near_duplicate": 3, "of_seen": 7}})

    with pytest.raises(UsageError, match="7 of 10 documents were duplicates of `seen`, 3 of 3 documents") as refused:
        raise_if_source_empty({"all": CLEAN}, repeating, ["a"])

    assert "list it before" not in refused.value.fix


def test_where_none_was_a_duplicate_no_deduplication_is_advised() -> None:
    with pytest.raises(UsageError, match="no documents of a remain: 3 of 3 documents were contaminated") as refused:
        raise_if_source_empty({"all": CLEAN}, None, ["a"])

    assert "list it before" not in refused.value.fix


def test_one_that_is_not_asked_for_may_be_empty() -> None:
    corpora = {"all": CLEAN, "c": corpus(documents=1, text_bytes=1)}

    raise_if_source_empty(corpora, DEDUPLICATED, ["b", "c"])
    with pytest.raises(UsageError, match="no documents of a remain"):
        raise_if_source_empty(corpora, DEDUPLICATED, ["a", "b", "c"])


def test_a_corpus_of_one_source_has_its_name() -> None:
    with pytest.raises(UsageError, match="no documents of c remain"):
        raise_if_source_empty({"c": corpus(documents=0, text_bytes=0)}, None, ["c"])


def test_a_recipe_whose_dedup_leaves_nothing_of_a_source_packs_nothing(tmp_path: Path) -> None:
    rows = [{"text": f"The same text {number}.", "key": f"{number}"} for number in range(3)]
    again = [row | {"key": f"again-{row['key']}"} for row in rows]
    sources = [local_source(tmp_path, "notes", rows), local_source(tmp_path, "copies", again)]
    pack = {"seq_len": 8, "strategy": "sequential", "weights": {"notes": "0.5", "copies": "0.5"}}
    recipe = recipe_of(*sources, dedup={"mode": "exact"}, pack=pack)

    line = refusal(lambda: build(recipe, tmp_path / "data"), UsageError)

    assert "no documents of copies remain: 3 of 3 documents were duplicates; " in line
    assert not [*(tmp_path / "data").glob("stage_a/*/packed/manifest.json")]
