"""A profile counts what is there, and the profiles of parts add up to that of the whole."""

import json
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline_assets.corpus.document import Document, Meta
from pipeline_assets.corpus.document_shards import DocumentShard
from pipeline_assets.corpus.formats.jsonl_zst import JsonlZstWriter
from pipeline_assets.corpus.profile import LENGTH_BINS, Counts, Group, from_json, merge, profile_shard, sum_by, to_json
from pipeline_assets.corpus.tokens.o200k_harmony import VOCABULARY_SHA256, load_encoder
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.stage import WHOLE_SHARD, Window
from pipeline_assets.spine.staging import StagingView

WEB, WIKI = Group("fineweb", "web", "odc-by"), Group("simplewiki", "encyclopedia", "cc-by-sa-4.0")


def shard_of(folder: Path, documents: list[tuple[Group, str]]) -> DocumentShard:
    path = folder / "00000.jsonl.zst"
    with JsonlZstWriter(path, 3) as writer:
        for number, (group, text) in enumerate(documents):
            document = Document(text, group.source, group.domain, f"id{number}", group.license_tag, "", Meta("a", 0))
            writer.write_lines(msgspec.json.encode(document) + b"\n", 1)
    return DocumentShard("00000", "shards/00000", path, len(documents))


def profiled(folder: Path, documents: list[tuple[Group, str]], window: Window = WHOLE_SHARD) -> dict[Group, Counts]:
    receipt = profile_shard(shard_of(folder, documents), window, StagingView(folder), VOCABULARY_SHA256)
    assert [file.path for file in receipt.files] == [".work/ids/00000"]
    assert receipt.counts["rows"] == len(documents[window.start : window.stop])
    return from_json(receipt.notes["groups"])


def test_documents_characters_bytes_tokens_and_lengths_are_counted_by_group(tmp_path: Path) -> None:
    profile = profiled(tmp_path, [(WEB, "one two three"), (WIKI, "日本語"), (WEB, "x"), (WEB, "")])

    oracle = load_encoder(VOCABULARY_SHA256).oracle
    tokens = [len(oracle.encode_ordinary(text)) for text in ("one two three", "x", "")]
    assert tokens == [3, 1, 0]
    assert profile[WEB] == Counts(3, 14, 14, 4, (2, 1, *(0,) * (LENGTH_BINS - 2)))
    assert (profile[WIKI].documents, profile[WIKI].characters, profile[WIKI].utf8_bytes) == (1, 3, 9)
    assert profile[WIKI].tokens == len(oracle.encode_ordinary("日本語"))


texts = st.lists(st.tuples(st.sampled_from([WEB, WIKI]), st.text(st.characters(exclude_categories=["Cs"]))), max_size=8)


@settings(max_examples=30)
@given(texts, st.integers(0, 8))
def test_parts_add_up_to_the_whole(
    tmp_path_factory: pytest.TempPathFactory, documents: list[tuple[Group, str]], cut: int
) -> None:
    folder = tmp_path_factory.mktemp("parts")

    parts = [profiled(folder, part) for part in (documents[:cut], documents[cut:])]

    assert merge(parts) == merge([profiled(folder, documents)])
    assert list(merge(parts)) == list(merge(reversed(parts)))


def test_a_window_counts_its_rows_and_leaves_out_none_that_kills(tmp_path: Path) -> None:
    documents = [(WEB, text) for text in ("a", "b", "c", "d")]

    assert profiled(tmp_path, documents, Window(1, 4))[WEB].documents == 3
    with pytest.raises(InputError, match="row 2 kills the worker while counting it"):
        profiled(tmp_path, documents, Window(poison_rows=frozenset({2})))


def test_groups_add_up_by_any_of_their_fields_largest_first(tmp_path: Path) -> None:
    other = Group("fineweb", "web", "unknown")
    profile = profiled(tmp_path, [(WEB, "one"), (other, "one two three"), (WIKI, "one two")])

    tokens = {name: counts.tokens for name, counts in sum_by(profile, "source").items()}
    assert tokens == {"fineweb": 4, "simplewiki": 2}
    assert list(sum_by(profile, "license_tag")) == ["unknown", "cc-by-sa-4.0", "odc-by"]
    assert all(first.tokens >= second.tokens for first, second in pairwise(sum_by(profile, "domain").values()))


def test_json_keeps_every_count_and_its_own_order_of_keys(tmp_path: Path) -> None:
    profile = profiled(tmp_path, [(WEB, "one"), (WIKI, "two")])

    read_back = from_json(json.loads(json.dumps(to_json(profile), sort_keys=True)))  # as a receipt has it

    assert read_back == profile
    assert json.dumps(to_json(read_back)) == json.dumps(to_json(profile))
