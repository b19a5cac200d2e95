"""A split is opened and its sequences are found; another folder, token or row is refused by what is there."""

from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline_assets.corpus.rows.peek import peek as peek_at
from pipeline_assets.corpus.rows.store import Row
from pipeline_assets.corpus.rows.trace import open_rows, trace_id
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.errors import UsageError

MEGATRON = Path("megatron", "healing_text_v1")


def peek(folder: Path, row: int | None = None, token: int | None = None) -> Row:
    return peek_at(open_rows(folder), row, token)


def test_a_token_a_row_or_a_document_that_is_not_there(built: Callable[..., dict[str, Artifact]]) -> None:
    artifacts = built()
    train, snapshot = artifacts["train"], artifacts["snapshot"]
    counts = train.manifest.identity.counts
    documents = snapshot.manifest.identity.counts["documents"]
    cases = [
        (lambda: peek(train.folder, token=counts["tokens"]), "token", counts["tokens"], counts["tokens"]),
        (lambda: peek(train.folder, token=-1), "token", -1, counts["tokens"]),
        (lambda: peek(train.folder, row=counts["documents"]), "row", counts["documents"], counts["documents"]),
        (lambda: peek(snapshot.folder, row=documents), "row", documents, documents),
    ]

    for look, what, number, count in cases:
        with pytest.raises(UsageError) as refused:
            look()
        assert f"there is no {what} {number}; give 0 to {count - 1}" in str(refused.value)
    with pytest.raises(UsageError) as refused:
        trace_id(open_rows(train.folder), "page-1")
    assert str(refused.value) == (
        f"{train.folder}: no document has doc_id 'page-1'; "
        "it may be in another split; `corpusmill trace --source` tells what became of a source row"
    )


def test_an_empty_split(built: Callable[..., dict[str, Artifact]]) -> None:
    valid = built(token_budget=1)["valid"]

    for ask in ({"token": 0}, {"row": 0}):
        with pytest.raises(UsageError, match="it is empty: look into another one"):
            peek(valid.folder, **ask)


def test_a_folder_of_another_kind(built: Callable[..., dict[str, Artifact]], demo_root: Path) -> None:
    snapshot, selection = built()["snapshot"].folder, demo_root / "selections" / "healing_text_v1"
    dataset = demo_root / MEGATRON

    with pytest.raises(UsageError) as other:
        open_rows(selection)
    with pytest.raises(UsageError) as whole:
        open_rows(dataset)
    with pytest.raises(UsageError) as tokens:
        peek(snapshot, token=0)

    assert str(other.value) == (
        f"{selection}: this is healing/healing_text_manifest, no Megatron split; "
        "give the folder of a split, such as megatron/<name>/train, or of a corpus of documents"
    )
    assert str(whole.value) == (f"{dataset}: this is a dataset of splits; give one of {dataset}/train, {dataset}/valid")
    assert str(tokens.value) == f"{snapshot}: it has documents, no tokens; give --row"
