"""Tokens and rows of token shards back to the rows that they came from, and forth."""

import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from stage_a_build import INLINE, NO_COMMIT, build, local_source
from stage_a_sources import recipe_content

from pipeline_assets.build.rows.comparison import document_changes
from pipeline_assets.build.rows.follow import follow_document
from pipeline_assets.build.rows.row_stores import RowStores, open_rows, preview
from pipeline_assets.build.rows.source_row import LocalRow
from pipeline_assets.build.rows.token_rows import TokenShardRows
from pipeline_assets.build.rows.trace import trace_id, trace_token
from pipeline_assets.build.run import Run
from pipeline_assets.corpus.shards.recipe import ShardsRecipe
from pipeline_assets.corpus.tokens.families import load_tokenizer
from pipeline_assets.spine.areas import AREAS
from pipeline_assets.spine.artifact import Artifact, open_artifact
from pipeline_assets.spine.errors import InputError, UsageError
from pipeline_assets.spine.lineage import Lineage
from pipeline_assets.systems.registry import SYSTEMS
from pipeline_assets.systems.stage_a import StageARecipe

FILTERS = {"length": {"min_words": 8}}


@pytest.fixture(scope="module", autouse=True)
def _shards_system() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SYSTEMS.pages, "made", "shards_system")
        AREAS.append("made")
        yield
        AREAS.remove("made")


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory, texts: list[str], model: Path) -> Artifact:
    """Token shards of 40 paragraphs, some filtered, the last one in the remainder."""
    from shards_system import SHARDS

    root = tmp_path_factory.mktemp("shards") / "data"
    root.mkdir()
    shutil.copy(model, root / "tokenizer.model")
    rows = [{"text": text, "key": f"p-{number}"} for number, text in enumerate([*texts[:40], "one two three " * 3])]
    content = recipe_content(NO_COMMIT) | {"sources": [local_source(root, "notes", rows, filters=FILTERS)]}
    recipe = StageARecipe.model_validate(content)
    build(recipe, root)
    shards_recipe = {"seq_len": 512, "rows_per_shard": 3}
    sha256 = hashlib.sha256(model.read_bytes()).hexdigest()
    target = SHARDS.target(
        "mixed",
        {"shards": ShardsRecipe.model_validate(shards_recipe).content(), "source": "notes"},
        [recipe.target("stage_a/filtered", "notes")],
        tokenizer={"family": "sentencepiece", "sha256": sha256, "end_of_document": "</s>"},
    )
    return SHARDS.build(target, Run(root, INLINE))


def open_store(shards: Artifact) -> TokenShardRows:
    store = open_rows(shards.folder, SYSTEMS.kinds)
    assert isinstance(store, TokenShardRows)
    return store


def test_every_hundredth_token_is_traced_to_its_line(shards: Artifact) -> None:
    store = open_store(shards)
    stream = [token for row in range(len(store)) for token in store.opened[row].tolist()]

    for position in range(0, len(stream), 101):
        traced = trace_token(store, position)
        [source] = traced.text.source.rows
        assert isinstance(source, LocalRow)
        line = json.loads(source.path.read_bytes()[source.row :].splitlines()[0])
        ids = [*store.tokenizer.encode([line["text"]]).ids.tolist(), store.opened.eos]
        assert (traced.token.position, traced.token.id) == (position, stream[position])
        assert ids[traced.token.number] == stream[position]
        assert line["key"] == traced.text.part.id


def test_a_document_is_found_in_every_row_with_its_tokens(shards: Artifact) -> None:
    store = open_store(shards)
    parts = [(row, part) for row in range(len(store)) for part in store.row_at(row).parts]

    for doc_id in {part.id for _, part in parts}:
        [trace] = trace_id(store, doc_id)
        assert [(row.number, part) for row, part in trace.row_parts] == [pair for pair in parts if pair[1].id == doc_id]
    with pytest.raises(UsageError, match="no part has the doc_id 'x'"):
        trace_id(store, "x")


def test_each_document_is_followed_to_its_tokens_or_to_the_remainder(shards: Artifact) -> None:
    store = open_store(shards)
    limit, outcomes = len(store) * 512 - 1, []

    for number in range(41):
        [followed] = follow_document(RowStores(SYSTEMS.kinds, Lineage(store.lineage.root)), f"p-{number}")
        fates = {fate.artifact.manifest.kind: fate for _, fate in followed.downstream}
        if "made/token_shards" not in fates:
            continue
        fate = fates["made/token_shards"]
        outcomes.append(fate.outcome)
        if fate.row_number is not None:
            [traced] = trace_id(store, f"p-{number}")
            first, end = traced.row_parts[0], traced.row_parts[-1]
            assert fate.place["first_token"] == first[0].first_token + first[1].column
            assert fate.place["last_token"] == min(end[0].first_token + end[1].column + end[1].tokens - 1, limit)
    assert set(outcomes) == {"in_rows", "in_remainder"}
    assert outcomes.count("in_rows") == shards.manifest.identity.counts["documents"]


def test_token_shards_are_previewed_by_licence_and_compare_no_documents(shards: Artifact) -> None:
    tokens = shards.manifest.identity.counts["tokens"]

    assert preview(shards, SYSTEMS.kinds) == [
        {"licence": "cc0-1.0", "of the tokens": "100.00%", "tokens": f"{tokens:,}"}
    ]
    assert list(document_changes(shards, shards, SYSTEMS.kinds, 10)) == []


def test_the_tokenizer_is_found_in_a_moved_data_root(shards: Artifact, tmp_path: Path) -> None:
    root = shards.folder.parents[2]
    shutil.copytree(root, tmp_path / "moved")
    moved = tmp_path / "moved" / shards.folder.relative_to(root)

    assert open_rows(moved, SYSTEMS.kinds).row_at(0).parts[0].text

    (tmp_path / "moved" / "tokenizer.model").unlink()
    load_tokenizer.cache_clear()
    with pytest.raises(
        InputError, match=r"cannot read the tokenizer file .*; put the \.model file there, or correct its path"
    ):
        open_rows(moved, SYSTEMS.kinds).row_at(0)


def test_rows_that_differ_from_their_text_are_an_error(shards: Artifact, tmp_path: Path) -> None:
    root = shards.folder.parents[2]
    shutil.copytree(root, tmp_path / "data")
    other = open_artifact(tmp_path / "data" / shards.folder.relative_to(root))
    path = other.folder / "shard_00000.npy"
    data = bytearray(path.read_bytes())
    data[128] ^= 1
    path.chmod(0o644)
    path.write_bytes(data)

    with pytest.raises(InputError, match="row 0 differs from the tokens of document"):
        trace_token(open_store(other), 0)
