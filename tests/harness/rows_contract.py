"""Contract of row stores: iterate, read, find and trace rows."""

from collections.abc import Callable

import pytest

from pipeline_assets.build.rows.follow import follow_source
from pipeline_assets.build.rows.row_stores import RowStores
from pipeline_assets.build.rows.source_row import AnySourceRow
from pipeline_assets.build.rows.store import RowStore
from pipeline_assets.build.rows.trace import trace_row
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.systems.registry import SYSTEMS

_MAX_ROWS = 8


def check_contract(store: RowStore, is_source_text: Callable[[str, AnySourceRow], bool]) -> None:
    """Check the contract; `is_source_text` compares a text with its source row."""
    contents = list(store)
    assert len(store) > 0, "the contract needs rows"
    assert repr(store) == f"<{type(store).__name__} of {store.artifact.folder}>"
    assert len(contents) == (0 if store.mixes_documents else len(store))
    for number in range(min(len(store), _MAX_ROWS)):
        row = store.row_at(number)
        assert row.number == number
        for content, part in zip(contents[number : number + 1], row.parts, strict=False):
            assert content.id.rpartition("\0")[2] == part.id
            expected = part.text.encode() if row.token_ids is None else row.token_ids.tobytes()
            assert expected in (content.content, content.other_columns)
        traced = trace_row(store, number)
        assert [trace.row_parts[0][1] for trace in traced] == list(row.parts)
        for trace, part in zip(traced, row.parts, strict=True):
            assert part.id in {found.id for place in store.find(part.id) for found in store.row_at(place).parts}
            assert trace.text.part.id == part.id
            assert part.text.removesuffix("<|endoftext|>") in trace.text.part.text
            source = trace.text.source.rows[0]
            assert is_source_text(trace.text.part.text, source)
            assert _way_back(store, source) in (
                "document",
                "kept",
                "cut",
                "in_split",
                "in_rows",
                "drawn",
                "pooled",
                "chosen",
            )
    if row.first_token is not None:
        assert store.row_of_token(row.first_token) == row.number
    for number in (-1, len(store)):
        with pytest.raises(UsageError, match=f" {number:,} not found; choose 0 to {len(store) - 1:,}$"):
            store.row_at(number)


def _way_back(store: RowStore, source: AnySourceRow) -> str:
    """Return the fate of a source row in the artifact of a store."""
    for found in follow_source(RowStores(SYSTEMS.kinds, store.lineage), source):
        for fate in (found.fate, *(fate for _, fate in found.downstream)):
            if fate.artifact.folder == store.artifact.folder:
                return fate.outcome
    raise AssertionError(f"{source} doesn't lead back to {store.artifact.folder}")
