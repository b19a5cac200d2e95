"""Text manifests: shards of a snapshot, selected by pattern and hashed again."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from refusals import refusal

from pipeline_assets.corpus.training_set import TextRecipe, select_shards
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.errors import InputError, UsageError
from pipeline_assets.spine.verified_reads import verify_reads


@pytest.fixture
def corpus(ingest: Callable[..., Artifact]) -> Artifact:
    """Build a snapshot of three shards of 50, 50 and 25 documents; one NUL is removed."""
    texts = [f"Page {number}" for number in range(124)] + ["Page\0"]
    pages = pa.table({"text": texts, "id": [f"page-{number}" for number in range(125)]})
    return ingest({"a.parquet": pages}, rows_per_group=50, shard_text_bytes=1)


def text_recipe(*patterns: str) -> TextRecipe:
    return TextRecipe(shards=patterns, valid_fraction="0.1")


def select_paths(patterns: tuple[str, ...], corpus: Artifact) -> list[str]:
    return [shard["path"] for shard in select_shards(corpus, text_recipe(*patterns)).decisions["shards"]]


def test_patterns_choose_shards_in_manifest_order(corpus: Artifact) -> None:
    assert select_paths(("shards/*",), corpus) == [f"shards/0000{number}.jsonl.zst" for number in range(3)]
    assert select_paths(("shards/00002*", "shards/00000*", "shards/*0.jsonl.zst"), corpus) == [
        "shards/00000.jsonl.zst",
        "shards/00002.jsonl.zst",
    ]


def test_a_selection_records_its_documents_and_their_invariants(corpus: Artifact) -> None:
    content = select_shards(corpus, text_recipe("shards/00000*", "shards/00002*"))

    assert content.counts == {"documents": 75, "shards": 2}
    assert content.files == []
    assert content.decisions["invariants"] == {
        "doc_ids_unique": True,
        "doc_id": "column id",
        "english_filter_applied": False,
        "normalisation": "text stays as it came; only its NUL characters (U+0000) are removed",
        "nul_characters_removed": 1,
        "split": {
            "name": "sha256_first_64_bits",
            "in_words": "a document is valid if the first 64 bits of its doc_id's sha256, taken as a number, are below "
            "valid_fraction of 2**64; else it is train",
            "formula": (
                "int.from_bytes(sha256(doc_id as UTF-8)[:8], 'big') < int(Fraction(valid_fraction) * 2**64) is valid"
            ),
            "valid_fraction": "0.1",
        },
    }


def test_a_pattern_without_a_match_is_reported_with_the_existing_shards(corpus: Artifact) -> None:
    assert refusal(lambda: select_shards(corpus, text_recipe("shards/*", "rejects*")), UsageError) == (
        f"{corpus.folder}: no shard matches 'rejects*'; correct `selection.shards`; "
        "existing shards: shards/00000.jsonl.zst to shards/00002.jsonl.zst"
    )


def test_a_shard_edited_after_its_seal_is_refused_despite_equal_size(corpus: Artifact) -> None:
    shard = corpus.path("shards/00001.jsonl.zst")
    content = bytearray(shard.read_bytes())
    content[-1] ^= 1
    shard.chmod(0o644)
    Path(shard).write_bytes(content)

    with pytest.raises(InputError) as error, verify_reads():
        select_shards(corpus, text_recipe("shards/*"))

    sealed = corpus.manifest.storage[1].sha256
    assert error.value.what.startswith("sha256 is ") and error.value.what.endswith(f", sealed with {sealed}")
    assert error.value.where == str(shard)
    assert error.value.fix == f"remove {corpus.folder}, and run its recipe again"
