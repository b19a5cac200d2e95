"""A small snapshot and its splits with a row of every fate, for the tests of tracing."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.systems.healing import HealingRecipe

TEXTS = ["one", None, "", "again", "low", "with care", " " * 999_999, "🧿 token in parts", "long " * 40, "behind"]
IDS = ["page-0", "page-3", "page-4", "page-0", "page-5", "page-6", "page-7", "page-8", "page-9", "page-11"]
CHANGES = {"rules": ["score >= 3"], "max_reject_fraction": "0.5", "shard_text_bytes": 1}


@pytest.fixture
def built(
    take: Callable[..., Artifact],
    healing_recipe: Callable[..., HealingRecipe],
    build_megatron: Callable[..., Artifact],
    tmp_path: Path,
) -> Callable[..., dict[str, Artifact]]:
    """Snapshot and both splits of the ten rows above and ten more; page-1 and page-2 are valid, the others train."""

    def build(
        token_budget: int = 100, shards: tuple[str, ...] = ("shards/*",), **changes: object
    ) -> dict[str, Artifact]:
        table = pa.table({"text": TEXTS, "id": IDS, "score": [5, 5, 5, 5, 1, 5, 5, 5, 5, 5]})
        ids = [f"page-{number}" for number in (1, 2, *range(20, 26), 28, 29)]
        more = pa.table({"text": [f"more {name}" for name in ids], "id": ids, "score": [5] * 10})
        files = {"a.parquet": pa.concat_tables([table, more]), "b.parquet": more.slice(0, 0)}
        everything = CHANGES | changes
        corpus = take(files, rows_per_group=10, **everything)
        megatron = {"token_budget": token_budget, "valid_fraction": "0.1"}
        recipe = healing_recipe(corpus.manifest.identity.recipe["revision"], everything, megatron, shards)
        return {"snapshot": corpus} | {
            split: build_megatron(recipe, tmp_path / "data", split) for split in ("train", "valid")
        }

    return build
