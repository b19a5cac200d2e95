"""Documents of a snapshot are read by shard and row; a row that is not there is refused."""

from pathlib import Path

import pytest

from pipeline_assets.corpus.rows.documents import read_document
from pipeline_assets.corpus.spine.artifact import open_artifact
from pipeline_assets.corpus.spine.errors import InputError


def test_a_shard_without_the_row(demo_root: Path) -> None:
    [folder] = (demo_root / "corpora" / "fineweb_edu").glob("[!.]*")

    with pytest.raises(InputError, match=r"rows, none is row 100,000; run `corpusmill verify` on its folder"):
        read_document(open_artifact(folder), "shards/00000.jsonl.zst", 100_000)
