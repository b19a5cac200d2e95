"""A look at one row: a sequence as its ids say, a Document as it lies there, nothing that acts on a terminal."""

from collections.abc import Callable

import pyarrow as pa
from typer.testing import CliRunner

from pipeline_assets.cli import app
from pipeline_assets.corpus.rows.peek import peek
from pipeline_assets.corpus.rows.trace import open_rows
from pipeline_assets.corpus.spine.artifact import Artifact


def test_a_peek_is_the_sequence_decoded_or_the_document_as_it_is(built: Callable[..., dict[str, Artifact]]) -> None:
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
