"""Views of single rows: a decoded sequence, or a stored document."""

from collections.abc import Callable
from operator import methodcaller

import pyarrow as pa
import pytest
from refusals import refusal
from typer.testing import CliRunner

from pipeline_assets.build.rows.row_stores import open_rows, preview
from pipeline_assets.build.rows.trace import trace_id
from pipeline_assets.cli import app
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.systems.registry import SYSTEMS

Built = Callable[..., dict[str, Artifact]]


@pytest.mark.parametrize(("budget", "names"), [(100, 5), (4, 1)])
def test_preview_has_at_most_the_first_five_rows(built: Built, budget: int, names: int) -> None:
    train = built(token_budget=budget)["train"]
    store = open_rows(train.folder, SYSTEMS.kinds)

    rows = preview(train, SYSTEMS.kinds)

    assert [row["doc_id"] for row in rows] == [store.row_at(number).parts[0].id for number in range(names)]


def test_peek_shows_a_decoded_sequence_or_a_document(built: Built) -> None:
    artifacts = built()
    train, snapshot = (open_rows(artifacts[name].folder, SYSTEMS.kinds) for name in ("train", "snapshot"))

    [sequence] = train.row_at(1).parts
    [document] = snapshot.row_at(1).parts

    assert (sequence.text, sequence.id, sequence.tokens) == ("with care<|endoftext|>", "page-6", 3)
    assert (document.text, document.id, document.tokens) == ("with care", "page-6", None)
    assert (sequence.shard, sequence.shard_row) == (document.shard, document.shard_row) == ("shards/00000.jsonl.zst", 1)
    assert train.row_at(train.row_of_token(train.row_at(1).first_token or 0)).parts == (sequence,)
    assert train.row_at(0).number == snapshot.row_at(0).number == 0
    documents = artifacts["snapshot"].manifest.identity.counts["documents"]
    assert snapshot.row_at(documents - 1).parts[0].id == "page-29"


def test_terminal_escape_sequences_of_a_page_are_escaped(ingest: Callable[..., Artifact]) -> None:
    snapshot = ingest({"a.parquet": pa.table({"text": ["\x1b[31mred\n\x9b1m\ttab"], "id": ["page-0"]})})

    output = CliRunner().invoke(app, ["peek", str(snapshot.folder)]).stdout

    assert output.endswith("\n\n␛[31mred\n\\u009b1m\ttab\n")


def test_missing_row_or_document_is_refused(built: Built) -> None:
    train = open_rows(built()["train"].folder, SYSTEMS.kinds)

    with pytest.raises(UsageError, match=f"row {len(train)} not found; choose 0 to {len(train) - 1}"):
        train.row_at(len(train))
    assert refusal(lambda: trace_id(train, "page-1"), UsageError) == (
        f"{train.artifact.folder}: no sequence has the doc_id 'page-1'; "
        "the document may be in another split; `corpusmill trace --source` shows the fate of a source row"
    )


def test_peek_into_an_empty_split_is_refused(built: Built) -> None:
    valid = built(token_budget=1)["valid"]

    for read in (methodcaller("row_of_token", 0), methodcaller("row_at", 0)):
        with pytest.raises(UsageError, match="choose another artifact; this one is empty"):
            read(open_rows(valid.folder, SYSTEMS.kinds))
