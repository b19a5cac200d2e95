"""Search of published repos for forgotten rows: ids with numbers, damaged files."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from history_hub import HistoryHub
from hub_pools import NAME, open_place

from pipeline_assets.corpus.publishing.repo_search import RepoSearch, read_row_keys
from pipeline_assets.corpus.removal_entries import add_entries
from pipeline_assets.corpus.removal_list import read_removal_list
from pipeline_assets.corpus.tokens.o200k_harmony import VOCABULARY_SHA256, load_encoder

pytestmark = pytest.mark.usefixtures("unloaded")


def test_a_repeated_id_is_also_searched_without_its_number(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": ["row-3#2"], "text": ["a#9"]}), tmp_path / "rows.parquet")

    ids = [row.id for row in read_row_keys(tmp_path / "rows.parquet")]

    assert sorted(filter(None, ids)) == ["row-3", "row-3#2"]


def test_a_parquet_file_with_damaged_pages_is_listed_as_unread(tmp_path: Path) -> None:
    table, sink = pa.table({"text": [f"text {number}" for number in range(1000)]}), pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    content = bytearray(sink.getvalue().to_pybytes())
    content[200:220] = bytes(20)  # compressed bytes of the first page, which pyarrow refuses with an OSError
    add_entries(tmp_path, [("id", "row-3")], "request 7", "2026-11-20")
    decode = load_encoder(VOCABULARY_SHA256).decode
    search = RepoSearch(read_removal_list(tmp_path), decode, tmp_path / "downloads")

    for place in open_place(tmp_path / "hub", hub_type=HistoryHub):
        assert isinstance(place.hub, HistoryHub)
        (place.hub.folder / "datasets" / NAME).mkdir(parents=True)
        commit = place.hub.add_commit(NAME, {"more.rows": bytes(content)})
        place.hub.set_ref(NAME, "refs/heads/main", commit)
        with (repo := place.repo()).limit_requests():
            result = search.search(repo, {"refs/heads/main": [commit]})

    assert result.unread_places == [f"refs/heads/main@{commit}:more.rows"]
