"""Documents of a snapshot are read by shard and row; a row that is not there is refused."""

from pathlib import Path

import pytest

from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.trace.snapshot_rows import read_document


def test_a_shard_without_the_row(demo_root: Path) -> None:
    shard = next((demo_root / "corpora").rglob("shards/00000.jsonl.zst"))

    with pytest.raises(InputError, match=r"rows, none is row 100,000; run `corpusmill verify` on its folder"):
        read_document(shard, 100_000)
