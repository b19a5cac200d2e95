"""Fixtures for tests of the Stack Exchange reader."""

from collections.abc import Callable
from pathlib import Path

import pytest
from posts_xml import site

from pipeline_assets.corpus.document import Document
from pipeline_assets.corpus.readers.stackexchange.spill import (
    RANGE_BYTES,
    RUN_BYTES,
    plan_buckets,
    plan_spill,
    spill_rows,
)
from pipeline_assets.corpus.readers.stackexchange.threads import Outcome, SiteRecipe, read_threads
from pipeline_assets.spine.stage import WHOLE_SHARD, Window
from pipeline_assets.spine.staging import StagingView

Read = Callable[..., list[Outcome]]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Return a function that reads a file or Posts.xml into all its outcomes."""
    runs = iter(range(1000))

    def read(
        posts: Path | bytes,
        recipe: SiteRecipe | None = None,
        range_bytes: int = RANGE_BYTES,
        run_bytes: int = RUN_BYTES,
        bucket_bytes: int = 1 << 24,
        file: str = "garden.7z",
        window: Window = WHOLE_SHARD,
    ) -> list[Outcome]:
        root = tmp_path / f"read{next(runs)}"
        root.mkdir()
        if isinstance(posts, bytes):
            (root / "Posts.xml").write_bytes(posts)
            posts = root / "Posts.xml"
        folder = StagingView(root)
        shards = plan_spill(posts, range_bytes)
        receipts = [spill_rows(shard, WHOLE_SHARD, folder, run_bytes) for shard in shards]
        buckets = plan_buckets(folder, receipts, bucket_bytes)
        return [outcome for bucket in buckets for outcome in read_threads(bucket, file, recipe or site(), window)]

    return read


@pytest.fixture
def read_documents(read: Read) -> Callable[..., list[Document]]:
    """Return a function that reads posts and checks that all become documents."""

    def read_documents(posts: Path | bytes, **settings: object) -> list[Document]:
        outcomes = read(posts, **settings)
        assert all(isinstance(outcome, Document) for outcome in outcomes), outcomes
        return outcomes

    return read_documents
