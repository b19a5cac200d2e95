"""Paths of sources that are in object stores, in hub buckets or nowhere."""

from pathlib import Path

import pytest
import yaml
from object_server import SECRET
from stage_a_build import local_source
from stage_a_sources import recipe_content

from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.stores.object_source import source_path, source_url
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.systems.stage_a import StageARecipe

pytest.importorskip("obstore", reason="obstore is not installed")


@pytest.mark.parametrize(
    ("path", "got"),
    [
        ("hf://datasets/me/pool", "hf://datasets/me/pool"),
        ("https://host/x", "https://host/x"),
        ("s3://", "s3://"),
        ("s3://bucket/../../recipes", "s3://bucket/../../recipes"),
        ("s3://../recipes", "s3://../recipes"),
        (f"s3://key:{SECRET}@bucket/x", "s3://…@bucket/x"),
        (f"az://bucket/x?sig={SECRET}", "az://bucket/x?…"),
    ],
)
def test_a_path_that_is_neither_folder_nor_object_store_is_refused(root: Path, path: str, got: str) -> None:
    rule = "must be a folder, or s3://, gs:// or az:// with BUCKET/PREFIX alone"
    assert read_refusal(path, root) == f"`sources.0.path` {rule}, got '{got}'"


def test_a_hub_bucket_is_refused_as_a_source_and_as_a_pin(root: Path) -> None:
    bucket = "hf://buckets/me/pool"

    rule = "must not be a hub bucket, which has no commits to pin"
    assert read_refusal(bucket, root) == f"`sources.0.path` {rule}, got '{bucket}'"
    with pytest.raises(UsageError, match=f"{bucket}: a bucket has no commits, so it cannot be pinned; copy its files"):
        HubFiles(root).resolve(bucket)


def read_refusal(path: str, root: Path) -> str:
    """Return the only error about a recipe whose source has this path."""
    section = local_source(root, "notes", [], path=path)
    (root / "recipe.yaml").write_text(yaml.safe_dump(recipe_content("ab" * 20) | {"sources": [section]}))
    with pytest.raises(UsageError) as refusal:
        StageARecipe.read(root / "recipe.yaml")
    assert list(refusal.value.others) == []
    return refusal.value.what


@pytest.mark.parametrize("url", ["s3://bucket", "s3://bucket/a", "gs://bucket/a/b", "az://container/a"])
def test_the_folder_of_a_copy_has_the_url_of_its_source(url: str, root: Path) -> None:
    assert source_url(source_path(url)) == url
    assert source_url(root / source_path(f"{url}/")) == url
    assert source_url(root / "notes") is None
    assert source_path("sources/notes") == Path("sources/notes")
