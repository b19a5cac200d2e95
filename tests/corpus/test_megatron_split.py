"""Token files of a Megatron split: ledger, budget, traceability and checks."""

import json
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pydantic
import pytest

from pipeline_assets.corpus.formats.megatron import read_indexed_dataset
from pipeline_assets.corpus.megatron_checks import token_budget_met
from pipeline_assets.corpus.megatron_split import describe_dataset
from pipeline_assets.corpus.tokens.o200k_harmony import VOCABULARY_SHA256, load_encoder
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.systems.healing import HealingRecipe


def pages(lengths: list[int]) -> pa.Table:
    """Build documents with these numbers of tokens, including the end of document."""
    texts = ["a" + " a" * (tokens - 2) for tokens in lengths]
    return pa.table({"text": texts, "id": [f"page-{number}" for number in range(len(lengths))]})


BUILD = """
import pickle, sys
from pathlib import Path
from pipeline_assets.corpus.megatron_split import build_split
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.spine.opening import open_staging_dir

with open_staging_dir(Path(sys.argv[1]), {}) as staging:
    build_split(staging, *pickle.load(sys.stdin.buffer), "train", RunSettings())
print(*sys.modules)
"""


@pytest.fixture
def split(
    ingest: Callable[..., Artifact],
    build_megatron: Callable[..., Artifact],
    healing_recipe: Callable[..., HealingRecipe],
    tmp_path: Path,
) -> Callable[..., Artifact]:
    """Return a function that builds a split of a table, 10 rows per shard."""

    def build(
        table: pa.Table,
        token_budget: int = 1_000_000,
        valid_fraction: str = "0",
        split: str = "train",
        root: str = "data",
        shards: tuple[str, ...] = ("shards/*",),
        **settings: object,
    ) -> Artifact:
        corpus = ingest({"a.parquet": table}, rows_per_group=10, root=root, shard_text_bytes=1)
        megatron = {"token_budget": token_budget, "valid_fraction": valid_fraction}
        recipe = healing_recipe(corpus.manifest.identity.recipe["revision"], {"shard_text_bytes": 1}, megatron, shards)
        return build_megatron(recipe, tmp_path / root, split, **settings)

    return build


def test_the_ledger_counts_written_documents_and_those_of_the_other_split(split: Callable[..., Artifact]) -> None:
    train = split(pages([10] * 30), valid_fraction="0.1", split="train")
    valid = split(pages([10] * 30), valid_fraction="0.1", split="valid")

    # By their hashes page-1, page-2 and page-27 are valid.
    assert train.manifest.identity.counts == {
        "ledger": {"in": 30, "out": 27, "dropped": {"other_split": 3, "over_budget": 0}, "rejected": {}},
        "documents": 27,
        "tokens": 270,
    }
    assert valid.manifest.identity.counts == {
        "ledger": {"in": 30, "out": 3, "dropped": {"other_split": 27, "over_budget": 0}, "rejected": {}},
        "documents": 3,
        "tokens": 30,
    }
    assert pq.read_table(valid.path("documents.parquet"))["doc_id"].to_pylist() == ["page-1", "page-2", "page-27"]


@pytest.mark.parametrize(
    ("budget", "documents", "read", "unread", "is_met"),
    [
        (1, 0, 10, ["shards/00001.jsonl.zst", "shards/00002.jsonl.zst"], True),
        (99, 9, 10, ["shards/00001.jsonl.zst", "shards/00002.jsonl.zst"], True),
        (100, 10, 10, ["shards/00001.jsonl.zst", "shards/00002.jsonl.zst"], True),
        (101, 10, 20, ["shards/00002.jsonl.zst"], True),
        (145, 14, 20, ["shards/00002.jsonl.zst"], True),
        (299, 29, 30, [], True),
        (300, 30, 30, [], True),
        (301, 30, 30, [], False),
        (10**12, 30, 30, [], False),
    ],
)
def test_the_budget_may_end_inside_a_shard_and_later_shards_are_unread(
    split: Callable[..., Artifact], budget: int, documents: int, read: int, unread: list[str], is_met: bool
) -> None:
    train = split(pages([10] * 30), token_budget=budget)

    identity = train.manifest.identity
    assert identity.counts == {
        "ledger": {
            "in": read,
            "out": documents,
            "dropped": {"other_split": 0, "over_budget": read - documents},
            "rejected": {},
        },
        "documents": documents,
        "tokens": 10 * documents,
    }
    assert identity.decisions["unread_shards"] == unread
    assert identity.decisions["budget_met"] is is_met
    assert identity.decisions["token_budget"] == budget
    assert [file.rows for file in identity.files] == [documents, documents, documents, 0]
    assert train.path("tokens.bin").stat().st_size == 40 * documents
    assert train.path("tokens.idx").stat().st_size == 42 + 20 * documents
    assert len(read_indexed_dataset(train.folder / "tokens").lengths) == documents


def test_the_first_document_over_budget_ends_the_split_before_shorter_ones(split: Callable[..., Artifact]) -> None:
    table = pa.table({"text": ["a a a", "a a a a a a", "a"], "id": ["page-0", "page-3", "page-4"]})

    train = split(table, token_budget=10)

    assert train.manifest.identity.counts["tokens"] == 4
    assert train.manifest.identity.counts["ledger"]["dropped"] == {"other_split": 0, "over_budget": 2}


def test_the_valid_split_may_be_empty(split: Callable[..., Artifact]) -> None:
    valid = split(pages([10] * 30), valid_fraction="0", split="valid")

    assert valid.path("tokens.bin").stat().st_size == 0
    assert valid.path("tokens.idx").stat().st_size == 42
    assert pq.read_table(valid.path("documents.parquet")).num_rows == 0
    assert valid.manifest.identity.counts["tokens"] == 0
    assert valid.manifest.identity.decisions["budget_met"] is True
    assert len(read_indexed_dataset(valid.folder / "tokens").lengths) == 0


def test_each_row_of_documents_names_the_shard_row_with_its_text(
    split: Callable[..., Artifact], jsonl: Callable[[Path], list[dict[str, object]]], tmp_path: Path
) -> None:
    texts = [f"Page {number} says “{'ho ' * number}”" for number in range(25)]
    table = pa.table({"text": texts, "id": [f"page-{number}" for number in range(25)]})

    train = split(table, valid_fraction="0.1", token_budget=600)

    rows = pq.read_table(train.path("documents.parquet")).to_pylist()
    dataset = read_indexed_dataset(train.folder / "tokens")
    encoder = load_encoder(VOCABULARY_SHA256)
    corpus = next((tmp_path / "data/corpora/pages").iterdir())
    lines = {path: jsonl(corpus / path) for path in sorted({row["source_shard"] for row in rows})}
    assert len(lines) == 3
    assert [row["tokens"] for row in rows] == dataset.lengths.tolist()
    for number, row in enumerate(rows):
        document = lines[row["source_shard"]][row["row"]]
        *ids, end = dataset.document(number)
        assert document["doc_id"] == row["doc_id"]
        assert encoder.decode(pa.array(ids, pa.int32()).to_numpy()) == document["text"]
        assert end == 199_999


def test_rejects_are_in_the_ledger_and_in_the_reject_file(
    split: Callable[..., Artifact], read_rejects: Callable[[Artifact], list[dict[str, object]]]
) -> None:
    table = pa.table({"text": ["a", " " * 999_999, "a"], "id": ["page-0", "page-3", "page-4"]})

    train = split(table)

    assert train.manifest.identity.counts["ledger"] == {
        "in": 3,
        "out": 2,
        "dropped": {"other_split": 0, "over_budget": 0},
        "rejected": {"blanks": 1},
    }
    assert [(reject["file"], reject["row"]) for reject in read_rejects(train)] == [("shards/00000.jsonl.zst", 1)]


def test_workers_and_driver_do_not_change_the_digest(split: Callable[..., Artifact]) -> None:
    table, settings = pages([10] * 40), {"valid_fraction": "0.1", "token_budget": 300}

    inline = split(table, **settings)
    forked = split(table, root="fork", engine=RunSettings(2), **settings)
    slow = split(table, root="slow", driver="tiktoken", **settings)

    assert inline.manifest.digest == forked.manifest.digest == slow.manifest.digest
    assert slow.manifest.provenance["tokenizer_driver"] == ["tiktoken"]


def test_only_selected_shards_are_read(split: Callable[..., Artifact]) -> None:
    train = split(pages([10] * 30), shards=("shards/00002.*", "shards/00000.*"))

    rows = pq.read_table(train.path("documents.parquet")).to_pylist()
    assert [row["doc_id"] for row in rows] == [f"page-{number}" for number in [*range(10), *range(20, 30)]]


def test_a_dataset_of_both_splits_records_documents_tokens_and_budget(
    split: Callable[..., Artifact], healing_recipe: Callable[..., HealingRecipe]
) -> None:
    recipe = healing_recipe("0" * 40, megatron={"token_budget": 250, "valid_fraction": "0.1"})
    settings = {"token_budget": 250, "valid_fraction": "0.1"}
    splits = {name: split(pages([10] * 30), split=name, **settings) for name in ("train", "valid")}

    content = describe_dataset(splits, recipe.megatron)  # type: ignore[arg-type]

    assert content.counts == {"documents": {"train": 22, "valid": 2}, "tokens": {"train": 220, "valid": 20}}
    assert (content.decisions["token_budget"], content.decisions["tokens_reached"]) == (250, 240)
    json.dumps(content.decisions)


@pytest.mark.parametrize(
    ("megatron", "message"),
    [
        ({"token_budget": 0}, "Input should be greater than 0"),
        ({"valid_fraction": "1.01"}, "must be in \\[0, 1\\]"),
        ({"valid_fraction": "-0.1"}, "must be in \\[0, 1\\]"),
        ({"valid_fraction": None}, "must be a decimal number"),
    ],
)
def test_a_budget_or_fraction_out_of_range_is_refused(
    healing_recipe: Callable[..., HealingRecipe], megatron: dict[str, object], message: str
) -> None:
    with pytest.raises(pydantic.ValidationError, match=message):
        healing_recipe("0" * 40, megatron=megatron)


@pytest.mark.parametrize(
    ("lengths", "budget", "description", "is_slight"),
    [
        ([10] * 13 + [900] + [10] * 100, 1000, "130 of 1,000 tokens, 87.0% missing: {}, page-13 of 900", False),
        ([10] * 30, 109, "100 of 109 tokens, 8.3% missing: {}, page-10 of 10", True),
    ],
    ids=["one long document", "a budget small for its documents"],
)
def test_the_document_that_ends_a_split_early_is_named(
    split: Callable[..., Artifact], lengths: list[int], budget: int, description: str, is_slight: bool
) -> None:
    verdict = token_budget_met(split(pages(lengths), token_budget=budget))

    assert (verdict.passed, verdict.is_minor) == (False, is_slight)
    where = description.format("the next document exceeds the budget")
    assert verdict.because.startswith(f"{where} tokens (shards/00001.jsonl.zst row ")
    assert verdict.because.endswith("; drop such documents by a rule, or change `token_budget`")


@pytest.mark.parametrize(("budget", "passes"), [(300, True), (303, True), (304, False)])
def test_a_corpus_may_lack_one_per_cent_of_the_budget(
    split: Callable[..., Artifact], budget: int, passes: bool
) -> None:
    verdict = token_budget_met(split(pages([10] * 30), token_budget=budget))

    assert (verdict.passed, verdict.is_minor) == (passes, False)
    advice = "increase `snapshot.amount` if the dataset has more rows, select more shards, or lower `token_budget`"
    assert (f"ends before the budget; {advice}" in verdict.because) == (not passes)
    assert "page-" not in verdict.because


def test_a_build_imports_no_unneeded_large_library(
    ingest: Callable[..., Artifact], healing_recipe: Callable[..., HealingRecipe], tmp_path: Path
) -> None:
    corpus = ingest({"a.parquet": pages([10] * 3)})
    recipe = healing_recipe(corpus.manifest.identity.recipe["revision"])
    shards = [file for file in corpus.manifest.identity.files if file.path.startswith("shards/")]
    arguments = pickle.dumps((corpus, shards, recipe.megatron))

    completed = subprocess.run(
        [sys.executable, "-c", BUILD, str(tmp_path / "split")], input=arguments, capture_output=True, check=True
    )

    assert {"gigatoken", "pyarrow"} <= {*completed.stdout.decode().split()}
    assert not {"awkward", "pandas", "tiktoken"} & {*completed.stdout.decode().split()}
