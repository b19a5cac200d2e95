"""Traces from tokens to source rows of the hub's own files, and back."""

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from refusals import refusal
from stage_a_build import build, local_source, parse_recipe
from stage_a_sources import with_decontamination, with_dedup, write_quiz

from pipeline_assets.build.rows.follow import follow_source
from pipeline_assets.build.rows.row_stores import RowStores, open_rows
from pipeline_assets.build.rows.splits import SplitRows
from pipeline_assets.build.rows.trace import trace_id, trace_row, trace_token
from pipeline_assets.corpus.document import Document
from pipeline_assets.corpus.formats.jsonl_rows import read_line
from pipeline_assets.spine.artifact import Artifact, open_artifact
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.lineage import Lineage
from pipeline_assets.systems.healing import HealingRecipe
from pipeline_assets.systems.registry import SYSTEMS

Built = Callable[..., dict[str, Artifact]]
MEGATRON = Path("megatron", "healing_text_v1")


@pytest.fixture(scope="module")
def splits(demo_root: Path) -> dict[str, SplitRows]:
    return {split: open_split_rows(demo_root / MEGATRON / split, demo_root) for split in ("train", "valid")}


def open_split_rows(split: Path, root: Path) -> SplitRows:
    store = open_rows(split, SYSTEMS.kinds, Lineage(root))
    assert isinstance(store, SplitRows)
    return store


@pytest.mark.parametrize("split", ["train", "valid"])
def test_random_token_is_traced_to_its_place_in_its_source_row_and_back(
    split: str, splits: dict[str, SplitRows], source_tables: dict[str, list[dict[str, object]]], demo_root: Path
) -> None:
    ids = np.fromfile(demo_root / MEGATRON / split / "tokens.bin", np.int32)
    positions = random.Random(f"{split} tokens").sample(range(len(ids)), 100)
    vocabulary, lineage = splits[split].tokenizer.oracle, Lineage(demo_root)

    for position in [0, len(ids) - 1, *positions]:
        traced = trace_token(splits[split], position)

        [(sequence, part)], [source], token = traced.row_parts, traced.text.source.rows, traced.token
        row = source_tables[source.path][source.row]
        text = row["text"].replace("\0", "").encode()
        prefix = vocabulary.decode_bytes(ids[sequence.first_token : position].tolist())
        token_bytes = b"" if ids[position] == 199_999 else vocabulary.decode_single_token_bytes(int(ids[position]))
        assert part.id == row["id"]
        assert text.startswith(prefix + token_bytes)
        assert (token.byte_offset, token.hex) == (len(prefix), token_bytes.hex())
        assert token.line == len((prefix + b"x").splitlines())
        assert token.is_end_of_document == (ids[position] == 199_999) == (prefix == text)
        assert sequence.first_token + token.number == token.position == position

        [back] = follow_source(RowStores(SYSTEMS.kinds, lineage), source)
        fates = {fate.artifact.folder.name: fate for _, fate in back.downstream}
        split_fate = fates.pop(split)
        assert (back.fate.outcome, back.part.id) == ("document", part.id)
        assert (split_fate.outcome, split_fate.row_number) == ("in_split", sequence.number)
        assert split_fate.place["first_token"] <= position <= split_fate.place["last_token"]
        assert [other.outcome for other in fates.values()] == ["other_split"]


def test_trace_names_the_file_of_the_hub_and_the_document_of_the_shard(
    splits: dict[str, SplitRows], demo_root: Path
) -> None:
    [traced] = trace_row(splits["train"], 7)
    text, part = traced.text, traced.text.part

    [snapshot] = (demo_root / "corpora" / "fineweb_edu").glob("[!.]*")
    listing = json.loads((snapshot / "manifest.json").read_text())["identity"]["inputs"]
    document = read_line(open_artifact(snapshot).path(part.shard), part.shard_row, Document)
    assert {entry["name"]: entry["digest"] for entry in listing}[text.source.rows[0].file] == text.source.digest
    assert (document.doc_id, document.license_tag) == (part.id, text.source.license_tag) == (part.id, "cc0-1.0")
    assert document.text.startswith(text.excerpt)
    assert text.store.artifact.folder == snapshot
    assert traced.token is None
    assert splits["train"].find(part.id) == [7]
    assert trace_token(splits["train"], traced.row_parts[0][0].first_token).row_parts[0][0].number == 7


def test_token_is_shown_with_24_tokens_before_and_after(splits: dict[str, SplitRows]) -> None:
    [(row, part)] = trace_row(splits["train"], 7)[0].row_parts
    tokens = [trace_token(splits["train"], row.first_token + number).token for number in range(part.tokens)]
    texts = [token.text for token in tokens]
    assert "\N{REPLACEMENT CHARACTER}" not in "".join(texts)

    for number in (0, 3, 24, 25, len(tokens) // 2, len(tokens) - 1):
        assert tokens[number].before == "".join(texts[max(0, number - 24) : number])
        assert tokens[number].after == "".join(texts[number + 1 : number + 25])


def test_removed_nul_characters_shift_no_token(
    ingest: Callable[..., Artifact],
    healing_recipe: Callable[..., HealingRecipe],
    build_megatron: Callable[..., Artifact],
    tmp_path: Path,
) -> None:
    texts = ["no NUL"] * 119 + ["\0one NUL\0 or two"]
    corpus = ingest({"a.parquet": pa.table({"text": texts, "id": [f"page-{row}" for row in range(120)]})})
    recipe = healing_recipe(corpus.manifest.identity.recipe["revision"], megatron={"valid_fraction": "0"})
    train = build_megatron(recipe, tmp_path / "data", "train")
    split = open_split_rows(train.folder, tmp_path / "data")
    [traced] = trace_row(split, 119)
    [(row, part)] = traced.row_parts

    tokens = [trace_token(split, row.first_token + number).token for number in range(part.tokens)]

    assert bytes.fromhex("".join(token.hex for token in tokens)) == b"one NUL or two"
    assert [token.byte_offset for token in tokens[:2]] == [0, len(tokens[0].text)]
    assert traced.text.source.rows[0].row == 119


def test_tokens_within_a_character_join_to_the_text(built: Built, tmp_path: Path) -> None:
    train = built()["train"]
    split = open_split_rows(train.folder, tmp_path / "data")
    [traced] = trace_id(split, "page-8")
    [(row, part)] = traced.row_parts

    tokens = [trace_token(split, row.first_token + number).token for number in range(part.tokens)]

    assert bytes.fromhex("".join(token.hex for token in tokens)).decode() == "🧿 token in parts"
    assert tokens[0].text == "�"
    assert [token.is_end_of_document for token in tokens] == [False] * (len(tokens) - 1) + [True]
    assert tokens[-1].text == "<|endoftext|>"
    assert tokens[-1].byte_offset == len("🧿 token in parts".encode())
    assert tokens[-2].after == "<|endoftext|>"
    assert tokens[0].before == "" and tokens[-1].after == ""


@pytest.mark.parametrize(("area", "kind"), [("selections", "train"), ("corpora", "selection")])
def test_missing_upstream_is_refused(built: Built, tmp_path: Path, area: str, kind: str) -> None:
    train = built()["train"]
    root = tmp_path / "data"
    selection = open_artifact(root / "selections" / "pages_v1")
    digest = (train if kind == "train" else selection).manifest.identity.inputs[0]["digest"]
    shutil.rmtree(root / area)

    assert refusal(lambda: trace_row(open_split_rows(train.folder, root), 0)) == (
        f"{root}: no artifact with digest {digest} is below "
        "corpora, selections, megatron, stage_a, nemotron, stage2, parallel_text; "
        "use the data root that contains it, with --data or --out-dir, or build it again from its recipe"
    )


def test_snapshot_that_differs_from_the_split_is_refused(built: Built, tmp_path: Path) -> None:
    train = built()["train"]
    split = open_split_rows(train.folder, tmp_path / "data")
    [traced] = trace_row(split, 1)
    shards = traced.text.store.artifact.folder / "shards"
    (shards / "00000.jsonl.zst").unlink()
    (shards / "00001.jsonl.zst").rename(shards / "00000.jsonl.zst")

    with pytest.raises(InputError, match=r"row 0 is document 'page-1', but .*/train expects 'page-0'"):
        trace_row(split, 0)


@pytest.mark.parametrize(
    ("token", "what"),
    [
        (1, "row 0 differs from the tokens of document 'page-0' at column 0"),
        (300_000, "is not in the vocabulary"),
    ],
)
def test_tokens_that_differ_from_the_text_are_refused(built: Built, tmp_path: Path, token: int, what: str) -> None:
    train = built()["train"].folder
    tokens = np.memmap(train / "tokens.bin", np.int32, "r+")
    tokens[0] = token
    tokens.flush()

    with pytest.raises(InputError, match=what):
        trace_token(open_split_rows(train, tmp_path / "data"), 0)


@pytest.mark.parametrize("role", ["stage_a/deduplicated", "stage_a/decontaminated"])
def test_document_of_a_mixed_corpus_is_traced_to_its_own_source(role: str, tmp_path: Path) -> None:
    """The evaluation set has the name of a source, and both sources have a row 0."""
    content: dict[str, Any] = {}
    with_dedup(content)
    with_decontamination(content, str(tmp_path / "quiz"))
    content["decontamination"]["evaluation"][0]["name"] = "pages"
    write_quiz(tmp_path / "quiz", ["What is it that nobody ever wrote?"])
    sources = [
        local_source(tmp_path, name, [{"text": f"In {name} there is nothing but {name} of {name}.", "key": name}])
        for name in ("notes", "pages")
    ]
    corpus = open_rows(build(parse_recipe(*sources, **content), tmp_path)[role].folder, SYSTEMS.kinds)

    rows = [trace_id(corpus, name)[0].text.source.rows[0] for name in ("notes", "pages")]

    assert [str(row) for row in rows] == [f"{tmp_path}/sources/{name}/rows.jsonl#0" for name in ("notes", "pages")]
