"""A requested source without documents is refused before encoding."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from refusals import refusal
from stage_a_build import build, local_source, parse_recipe

from pipeline_assets.corpus.packing.empty_sources import raise_if_source_empty
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.errors import UsageError


def corpus(**counts: Any) -> Artifact:
    """Return a corpus sealed with these counts."""
    return Artifact(Path("corpus"), SimpleNamespace(identity=SimpleNamespace(counts=counts)))  # type: ignore[arg-type]


LOST = {"in": 10, "exact_duplicate": 4, "near_duplicate": 3}
DEDUPLICATED, OF_SEEN = corpus(by_source={"a": LOST}), corpus(by_source={"a": LOST | {"of_seen": 7}})
CLEAN = corpus(
    by_source={"a": {"in": 3, "out": 0, "dropped": 3, "text_bytes": 0}, "b": {"in": 9, "out": 9, "text_bytes": 9}}
)


@pytest.mark.parametrize(
    ("deduplicated", "lost", "names_order"),
    [
        (DEDUPLICATED, "7 of 10 documents were duplicates, 3 of 3 documents were contaminated", True),
        (OF_SEEN, "7 of 10 documents were duplicates of `seen`, 3 of 3 documents were contaminated", False),
        (None, "3 of 3 documents were contaminated", False),
    ],
)
def test_the_error_counts_duplicate_and_contaminated_documents(
    deduplicated: Artifact | None, lost: str, names_order: bool
) -> None:
    message, _, fix = refusal(
        lambda: raise_if_source_empty({"all": CLEAN}, deduplicated, ["a", "b"]), UsageError
    ).partition("; ")

    assert message.endswith(f": no documents of a remain: {lost}")
    assert ("or list it before the sources that repeat its texts" in fix) == names_order


def test_a_source_that_is_not_requested_may_be_empty() -> None:
    corpora = {"all": CLEAN, "c": corpus(documents=1, text_bytes=1)}

    raise_if_source_empty(corpora, DEDUPLICATED, ["b", "c"])
    with pytest.raises(UsageError, match="no documents of a remain"):
        raise_if_source_empty(corpora, DEDUPLICATED, ["a", "b", "c"])


def test_the_error_names_the_only_source_of_a_corpus() -> None:
    with pytest.raises(UsageError, match="no documents of c remain"):
        raise_if_source_empty({"c": corpus(documents=0, text_bytes=0)}, None, ["c"])


def test_a_source_emptied_by_dedup_stops_the_packing(tmp_path: Path) -> None:
    rows = [{"text": f"The same text {number}.", "key": f"{number}"} for number in range(3)]
    again = [row | {"key": f"again-{row['key']}"} for row in rows]
    sources = [local_source(tmp_path, "notes", rows), local_source(tmp_path, "copies", again)]
    pack = {"seq_len": 8, "strategy": "sequential", "weights": {"notes": "0.5", "copies": "0.5"}}
    recipe = parse_recipe(*sources, dedup={"mode": "exact"}, pack=pack)

    message = refusal(lambda: build(recipe, tmp_path / "data"), UsageError)

    assert "no documents of copies remain: 3 of 3 documents were duplicates; " in message
    assert not [*(tmp_path / "data").glob("stage_a/*/packed/manifest.json")]
