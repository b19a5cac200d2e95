"""A look at one row: a sequence as its ids say, a Document as it lies there, nothing that acts on a terminal.

Another folder, token or row is refused by what is there.
"""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from pipeline_assets.cli import app
from pipeline_assets.corpus.rows.trace import open_rows, peek, trace_id
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.errors import UsageError

Built = Callable[..., dict[str, Artifact]]
MEGATRON = Path("megatron", "healing_text_v1")


def test_a_peek_is_the_sequence_decoded_or_the_document_as_it_is(built: Built) -> None:
    artifacts = built()
    train, snapshot = (open_rows(artifacts[name].folder) for name in ("train", "snapshot"))

    [sequence] = peek(train, row=1).parts
    [document] = peek(snapshot, row=1).parts

    assert (sequence.text, sequence.id, sequence.tokens) == ("with care<|endoftext|>", "page-6", 3)
    assert (document.text, document.id, document.tokens) == ("with care", "page-6", None)
    assert (sequence.shard, sequence.shard_row) == (document.shard, document.shard_row) == ("shards/00000.jsonl.zst", 1)
    assert peek(train, token=peek(train, row=1).first_token).parts == (sequence,)
    assert peek(train).number == peek(snapshot).number == 0
    documents = artifacts["snapshot"].manifest.identity.counts["documents"]
    assert peek(snapshot, row=documents - 1).parts[0].id == "page-29"


def test_escape_sequences_of_a_page_are_shown_and_not_obeyed(take: Callable[..., Artifact]) -> None:
    snapshot = take({"a.parquet": pa.table({"text": ["\x1b[31mred\n\x9b1m\ttab"], "id": ["page-0"]})})

    shown = CliRunner().invoke(app, ["peek", str(snapshot.folder)]).stdout

    assert shown.endswith("\n\n␛[31mred\n�1m\ttab\n")


def test_a_token_a_row_or_a_document_that_is_not_there(built: Built) -> None:
    artifacts = built()
    train, snapshot = artifacts["train"], artifacts["snapshot"]
    counts = train.manifest.identity.counts
    documents = snapshot.manifest.identity.counts["documents"]
    cases = [
        (lambda: peek(open_rows(train.folder), token=counts["tokens"]), "token", counts["tokens"], counts["tokens"]),
        (lambda: peek(open_rows(train.folder), token=-1), "token", -1, counts["tokens"]),
        (
            lambda: peek(open_rows(train.folder), row=counts["documents"]),
            "row",
            counts["documents"],
            counts["documents"],
        ),
        (lambda: peek(open_rows(snapshot.folder), row=documents), "row", documents, documents),
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


def test_an_empty_split(built: Built) -> None:
    valid = built(token_budget=1)["valid"]

    for ask in ({"token": 0}, {"row": 0}):
        with pytest.raises(UsageError, match="it is empty: look into another one"):
            peek(open_rows(valid.folder), **ask)


def test_a_folder_of_another_kind(built: Built, demo_root: Path) -> None:
    snapshot, selection = built()["snapshot"].folder, demo_root / "selections" / "healing_text_v1"
    dataset = demo_root / MEGATRON

    with pytest.raises(UsageError) as other:
        open_rows(selection)
    with pytest.raises(UsageError) as whole:
        open_rows(dataset)
    with pytest.raises(UsageError) as tokens:
        peek(open_rows(snapshot), token=0)

    assert str(other.value) == (
        f"{selection}: this is healing/healing_text_manifest, which has no rows; "
        "give the folder of documents, of a packed set, or of a split, such as megatron/<name>/train"
    )
    assert str(whole.value) == (f"{dataset}: this is a dataset of splits; give one of {dataset}/train, {dataset}/valid")
    assert str(tokens.value) == f"{snapshot}: it has documents, no tokens; give --row"
