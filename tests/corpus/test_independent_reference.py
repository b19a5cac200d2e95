"""The healing set of the demo corpus against a slow independent program."""

import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from plain_sample import sha256

from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.demo.corpora import write_inputs
from pipeline_assets.demo.loopback_hub import LoopbackHub
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.systems.healing import HealingRecipe

DATASET = "HuggingFaceFW/fineweb-edu"
SEED, SOURCE_ROWS, TOKEN_BUDGET, VALID_FRACTION = "healing_text_v1", 785, 200_000, "0.1"


def reference_rows(dataset: Path) -> list[dict[str, object]]:
    """Draw the first source rows: the best row group of each file, then the second."""
    row_groups = []
    for path in sorted(dataset.rglob("*.parquet")):
        name = path.relative_to(dataset).as_posix()
        numbers = range(pq.ParquetFile(path).num_row_groups)
        for turn, number in enumerate(sorted(numbers, key=lambda number, name=name: sha256(SEED, name, number))):
            row_groups.append((turn, sha256(SEED, name), path, number))
    rows = []
    for _, _, path, number in sorted(row_groups, key=lambda row_group: row_group[:2]):
        rows += pq.ParquetFile(path).read_row_group(number).to_pylist()
    return rows[:SOURCE_ROWS]


def reference_documents(rows: list[dict[str, object]]) -> dict[str, str]:
    """Map ids to texts that pass the filter, without NUL, the first text of each id."""
    documents: dict[str, str] = {}
    for row in rows:
        if row["int_score"] >= 3 and row["language"] == "en":
            text = row["text"].replace("\0", "")
            if text and row["id"] not in documents:
                documents[row["id"]] = text
    return documents


def reference_split(
    documents: dict[str, str], split: str, encode: Callable[[str], list[int]]
) -> tuple[list[str], list[int]]:
    """Return the ids of documents that fit the budget of a split, and their tokens."""
    valid_budget = int(Fraction(VALID_FRACTION) * TOKEN_BUDGET)
    budget = valid_budget if split == "valid" else TOKEN_BUDGET - valid_budget
    threshold = int(Fraction(VALID_FRACTION) * 2**64)
    doc_ids, tokens = [], []
    for doc_id, text in documents.items():
        is_valid = int.from_bytes(sha256(doc_id)[:8], "big") < threshold
        if is_valid == (split == "valid"):
            ids = [*encode(text), 199_999]
            if len(tokens) + len(ids) > budget:
                break
            doc_ids.append(doc_id)
            tokens += ids
    return doc_ids, tokens


@pytest.mark.slow
def test_both_programs_write_the_same_documents_and_tokens(
    hub: LoopbackHub,
    hub_files: HubFiles,
    build_snapshot: Callable[..., Artifact],
    build_megatron: Callable[..., Artifact],
    read_docs: Callable[[Artifact], list[dict[str, object]]],
    tiktoken_ids: Callable[[str], list[int]],
    tmp_path: Path,
) -> None:
    # The shipped recipe, made smaller: several shards, a limit inside a row group, a budget that train exceeds.
    write_inputs(hub.folder.parent, "healing")
    dataset = hub.folder / "datasets" / DATASET
    shipped = HealingRecipe.read(Path(__file__).parents[2] / "manifests" / "recipes" / "healing_text_v1.yaml")
    values = json.loads(shipped.model_dump_json())
    values["snapshot"] |= {"revision": hub.commits()[DATASET], "amount": {"documents": SOURCE_ROWS}}
    values["snapshot"] |= {"shard_text_bytes": 300_000, "max_reject_fraction": "0.01"}
    values["megatron"] |= {"token_budget": TOKEN_BUDGET, "valid_fraction": VALID_FRACTION}
    recipe = HealingRecipe.model_validate(values)

    corpus = build_snapshot(recipe, tmp_path / "data")
    built = {split: build_megatron(recipe, tmp_path / "data", split) for split in ("train", "valid")}

    rows = reference_rows(dataset)
    documents = reference_documents(rows)
    assert len(rows) == SOURCE_ROWS
    assert [(document["doc_id"], document["text"]) for document in read_docs(corpus)] == list(documents.items())
    for split, artifact in built.items():
        doc_ids, tokens = reference_split(documents, split, tiktoken_ids)
        assert pq.read_table(artifact.path("documents.parquet"))["doc_id"].to_pylist() == doc_ids
        assert np.fromfile(artifact.path("tokens.bin"), np.int32).tolist() == tokens
        assert len(tokens) > 10_000
    assert built["train"].manifest.identity.counts["ledger"]["dropped"]["over_budget"] > 0
