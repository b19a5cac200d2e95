"""Every token leads to its source row, held against the hub's own files, and the row leads back to the token."""

import json
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline_assets.corpus.spine.artifact import Artifact, open_artifact
from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.trace.snapshot_rows import read_document
from pipeline_assets.corpus.trace.source_fates import trace_source
from pipeline_assets.corpus.trace.split_sequences import sequence_of_doc_id
from pipeline_assets.corpus.trace.token_to_source import Lineage, open_lineage, trace_sequence, trace_token
from pipeline_assets.systems.healing import HealingRecipe

HUB = Path("hub", "datasets", "HuggingFaceFW", "fineweb-edu")
MEGATRON = Path("megatron", "healing_text_v1")


@pytest.fixture(scope="module")
def lineages(demo_root: Path) -> dict[str, Lineage]:
    return {split: open_lineage(demo_root / MEGATRON / split, demo_root) for split in ("train", "valid")}


@pytest.fixture(scope="module")
def source_tables(demo_root: Path) -> dict[str, list[dict[str, object]]]:
    """The rows of the hub's files, by path."""
    folder = demo_root / HUB
    return {
        path.relative_to(folder).as_posix(): pq.read_table(path).to_pylist()
        for path in sorted(folder.rglob("*.parquet"))
    }


@pytest.mark.parametrize("split", ["train", "valid"])
def test_a_random_token_is_in_its_source_row_at_its_place_and_the_row_leads_back(
    split: str, lineages: dict[str, Lineage], source_tables: dict[str, list[dict[str, object]]], demo_root: Path
) -> None:
    ids = np.fromfile(demo_root / MEGATRON / split / "tokens.bin", np.int32)
    positions = random.Random(f"{split} tokens").sample(range(len(ids)), 100)
    vocabulary = lineages[split].encoder.oracle

    for position in [0, len(ids) - 1, *positions]:
        found = trace_token(lineages[split], position)

        row = source_tables[found.source.path][found.source.row]
        text = row["text"].replace("\0", "").encode()
        prefix = vocabulary.decode_bytes(ids[found.first_token : position].tolist())
        own = b"" if ids[position] == 199_999 else vocabulary.decode_single_token_bytes(int(ids[position]))
        assert found.doc_id == row["id"]
        assert text.startswith(prefix + own)
        assert (found.token.byte_offset, found.token.hex) == (len(prefix), own.hex())
        assert found.token.is_end_of_text == (ids[position] == 199_999) == (prefix == text)
        assert found.first_token + found.token.number == found.token.position == position

        [fate] = trace_source(demo_root, found.source)
        fates = {place.split.name: place for place in fate.splits}
        there = fates.pop(split)
        assert (fate.outcome, fate.doc_id) == ("document", found.doc_id)
        assert (there.outcome, there.sequence) == ("in_split", found.sequence)
        assert there.first_token <= position <= there.last_token
        assert [other.outcome for other in fates.values()] == ["other_split"]


def test_a_trace_names_the_file_as_the_hub_lists_it_and_the_document_as_its_shard_holds_it(
    lineages: dict[str, Lineage], demo_root: Path
) -> None:
    found = trace_sequence(lineages["train"], 7)

    [snapshot] = (demo_root / "corpora" / "fineweb_edu").glob("[!.]*")
    listing = json.loads((snapshot / "manifest.json").read_text())["identity"]["inputs"]
    document = read_document(snapshot / found.shard, found.shard_row)
    assert {entry["name"]: entry["digest"] for entry in listing}[found.source.file] == found.source_digest
    assert (document.doc_id, document.license_tag) == (found.doc_id, found.license_tag) == (found.doc_id, "psf-2.0")
    assert document.text.startswith(found.beginning)
    assert found.snapshot == snapshot
    assert found.token is None
    assert sequence_of_doc_id(lineages["train"].split, found.doc_id) == 7
    assert trace_token(lineages["train"], found.first_token).sequence == 7


def test_nul_characters_that_were_removed_shift_no_token(
    take: Callable[..., Artifact],
    healing_recipe: Callable[..., HealingRecipe],
    build_megatron: Callable[..., Artifact],
    tmp_path: Path,
) -> None:
    texts = ["no NUL"] * 119 + ["\0one NUL\0 or two"]
    corpus = take({"a.parquet": pa.table({"text": texts, "id": [f"page-{row}" for row in range(120)]})})
    recipe = healing_recipe(corpus.manifest.identity.recipe["revision"], megatron={"valid_fraction": "0"})
    train = build_megatron(recipe, tmp_path / "data", "train")
    lineage = open_lineage(train.folder, tmp_path / "data")
    found = trace_sequence(lineage, 119)

    tokens = [trace_token(lineage, found.first_token + number).token for number in range(found.tokens)]

    assert bytes.fromhex("".join(token.hex for token in tokens)) == b"one NUL or two"
    assert [token.byte_offset for token in tokens[:2]] == [0, len(tokens[0].text)]
    assert found.source.row == 119


def test_tokens_that_are_parts_of_a_character_make_the_text_together(
    built: Callable[..., dict[str, Artifact]], tmp_path: Path
) -> None:
    train = built()["train"]
    lineage = open_lineage(train.folder, tmp_path / "data")
    found = trace_sequence(lineage, sequence_of_doc_id(train, "page-8"))

    tokens = [trace_token(lineage, found.first_token + number).token for number in range(found.tokens)]

    assert bytes.fromhex("".join(token.hex for token in tokens)).decode() == "🧿 token in parts"
    assert tokens[0].text == "�"
    assert [token.is_end_of_text for token in tokens] == [False] * (len(tokens) - 1) + [True]
    assert tokens[-1].text == "<|endoftext|>"
    assert tokens[-1].byte_offset == len("🧿 token in parts".encode())
    assert tokens[-2].after == "<|endoftext|>"
    assert tokens[0].before == "" and tokens[-1].after == ""


@pytest.mark.parametrize(("area", "kind"), [("selections", "train"), ("corpora", "selection")])
def test_upstream_that_is_gone(built: Callable[..., dict[str, Artifact]], tmp_path: Path, area: str, kind: str) -> None:
    train = built()["train"]
    root = tmp_path / "data"
    selection = open_artifact(root / "selections" / "pages_v1")
    wanted = (train if kind == "train" else selection).manifest.identity.inputs[0]["digest"]
    shutil.rmtree(root / area)

    with pytest.raises(InputError) as refused:
        open_lineage(train.folder, root)

    assert str(refused.value) == (
        f"{root}: no artifact with digest {wanted} is below corpora, selections, megatron, stage_a, nemotron; "
        "give the data root that has it with --data, or build it again from its recipe"
    )


def test_a_snapshot_that_is_another_than_the_split_says(
    built: Callable[..., dict[str, Artifact]], tmp_path: Path
) -> None:
    train = built()["train"]
    lineage = open_lineage(train.folder, tmp_path / "data")
    found = trace_sequence(lineage, 0)
    lines = lineage.snapshot.folder / "shards"
    (lines / "00000.jsonl.zst").unlink()
    (lines / "00001.jsonl.zst").rename(lines / "00000.jsonl.zst")

    with pytest.raises(InputError, match="row 0 is document 'page-1', the split has 'page-0' from it"):
        trace_sequence(lineage, found.sequence)


def test_tokens_that_are_not_the_text(built: Callable[..., dict[str, Artifact]], tmp_path: Path) -> None:
    lineage = open_lineage(built()["train"].folder, tmp_path / "data")
    tokens = np.array(lineage.dataset.tokens)
    tokens[0] += 1
    other = replace(lineage, dataset=replace(lineage.dataset, tokens=tokens))
    tokens = tokens.copy()
    tokens[0] = 300_000
    none = replace(lineage, dataset=replace(lineage.dataset, tokens=tokens))

    with pytest.raises(InputError, match="token 0 is not at byte 0 of the text of 'page-0'"):
        trace_token(other, 0)
    with pytest.raises(InputError, match="is no id of the vocabulary"):
        trace_token(none, 0)
