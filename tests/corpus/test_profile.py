"""Profiles: counts of documents by group, which add up over parts."""

import json
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline_assets.corpus.document import Document, Meta
from pipeline_assets.corpus.formats.jsonl_zst import JsonlZstWriter
from pipeline_assets.corpus.profile import (
    DocumentGroup,
    ProfileCounts,
    ProfileShard,
    estimate_tokens,
    merge_profiles,
    profile_from_json,
    profile_shard,
    profile_to_json,
    sum_profile_by,
)
from pipeline_assets.corpus.token_sample import LENGTH_BINS, WEIGHT_ONE, SamplingRule
from pipeline_assets.corpus.tokens.families import TokenizerFile
from pipeline_assets.corpus.tokens.o200k_harmony import VOCABULARY_SHA256, HarmonyRecipe, load_encoder
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.stage import WHOLE_SHARD, Window
from pipeline_assets.spine.staging import StagingView

TOKENIZER = TokenizerFile(HarmonyRecipe())
EVERY_DOCUMENT = SamplingRule(WEIGHT_ONE, 1)
WEB, WIKI = DocumentGroup("fineweb", "web", "odc-by"), DocumentGroup("simplewiki", "encyclopedia", "cc-by-sa-4.0")


def write_shard(folder: Path, documents: list[tuple[DocumentGroup, str]], sampling: SamplingRule) -> ProfileShard:
    path = folder / "00000.jsonl.zst"
    with JsonlZstWriter(path, 3) as writer:
        for number, (group, text) in enumerate(documents):
            document = Document(text, group.source, group.domain, f"id{number}", group.license_tag, "", Meta("a", 0))
            writer.write_lines(msgspec.json.encode(document) + b"\n", 1)
    return ProfileShard("00000", "shards/00000", path, len(documents), sampling)


def measure(
    folder: Path,
    documents: list[tuple[DocumentGroup, str]],
    window: Window = WHOLE_SHARD,
    sampling: SamplingRule = EVERY_DOCUMENT,
) -> dict[DocumentGroup, ProfileCounts]:
    receipt = profile_shard(
        write_shard(folder, documents, sampling), window, StagingView(folder), TOKENIZER, writes_ids=True
    )
    assert [file.path for file in receipt.files] == [".work/ids/00000"]
    assert receipt.counts["rows"] == len(documents[window.start : window.stop])
    return profile_from_json(receipt.notes["groups"])


def test_documents_characters_bytes_tokens_and_lengths_are_counted_by_group(tmp_path: Path) -> None:
    profile = estimate_tokens(measure(tmp_path, [(WEB, "one two three"), (WIKI, "日本語"), (WEB, "x"), (WEB, "")]))

    oracle = load_encoder(VOCABULARY_SHA256).oracle
    tokens = [len(oracle.encode_ordinary(text)) for text in ("one two three", "x", "")]
    assert tokens == [3, 1, 0]
    assert replace(profile[WEB], sample=ProfileCounts().sample) == ProfileCounts(
        3, 14, 14, 4, (2, 1, *(0,) * (LENGTH_BINS - 2))
    )
    assert profile[WEB].is_exact
    assert (profile[WIKI].documents, profile[WIKI].characters, profile[WIKI].utf8_bytes) == (1, 3, 9)
    assert profile[WIKI].tokens == len(oracle.encode_ordinary("日本語"))


texts = st.lists(st.tuples(st.sampled_from([WEB, WIKI]), st.text(st.characters(exclude_categories=["Cs"]))), max_size=8)


@settings(max_examples=30)
@given(texts, st.integers(0, 8))
def test_profiles_of_parts_add_up_to_the_profile_of_the_whole(
    tmp_path_factory: pytest.TempPathFactory, documents: list[tuple[DocumentGroup, str]], cut: int
) -> None:
    folder = tmp_path_factory.mktemp("parts")

    parts = [measure(folder, part) for part in (documents[:cut], documents[cut:])]

    assert merge_profiles(parts) == merge_profiles([measure(folder, documents)])
    assert list(merge_profiles(parts)) == list(merge_profiles(reversed(parts)))


def test_a_window_counts_its_rows_and_a_poison_row_is_an_error(tmp_path: Path) -> None:
    documents = [(WEB, text) for text in ("a", "b", "c", "d")]

    assert measure(tmp_path, documents, Window(1, 4))[WEB].documents == 3
    with pytest.raises(InputError, match="row 2 kills the worker while counting it"):
        measure(tmp_path, documents, Window(poison_rows=frozenset({2})))


def test_groups_add_up_by_any_of_their_fields_largest_first(tmp_path: Path) -> None:
    other = DocumentGroup("fineweb", "web", "unknown")
    profile = estimate_tokens(measure(tmp_path, [(WEB, "one"), (other, "one two three"), (WIKI, "one two")]))

    tokens = {name: counts.tokens for name, counts in sum_profile_by(profile, "source").items()}
    assert tokens == {"fineweb": 4, "simplewiki": 2}
    assert list(sum_profile_by(profile, "license_tag")) == ["unknown", "cc-by-sa-4.0", "odc-by"]
    assert list(sum_profile_by(profile, "domain")) == ["web", "encyclopedia"]


def test_json_keeps_every_count_and_the_order_of_groups(tmp_path: Path) -> None:
    profile = measure(tmp_path, [(WEB, "one"), (WIKI, "two")])

    read_back = profile_from_json(
        json.loads(json.dumps(profile_to_json(profile), sort_keys=True))
    )  # as a receipt has it

    assert read_back == profile
    assert json.dumps(profile_to_json(read_back)) == json.dumps(profile_to_json(profile))


def test_without_a_tokenizer_and_ids_nothing_is_sampled_or_written(tmp_path: Path) -> None:
    shard = write_shard(tmp_path, [(WEB, "one two"), (WIKI, "three")], EVERY_DOCUMENT)

    receipt = profile_shard(shard, WHOLE_SHARD, StagingView(tmp_path), None, writes_ids=False)

    profile = estimate_tokens(profile_from_json(receipt.notes["groups"]))
    assert receipt.files == []
    assert {group: (counts.documents, counts.utf8_bytes, counts.tokens) for group, counts in profile.items()} == {
        WEB: (1, 7, None),
        WIKI: (1, 5, None),
    }


def test_a_group_without_a_sample_has_the_tokens_per_byte_of_its_source(tmp_path: Path) -> None:
    other = DocumentGroup("fineweb", "web", "unknown")
    whole = measure(tmp_path, [(WEB, "one two three four five six"), (WIKI, "日本語")])
    unsampled = {group: replace(counts, sample=ProfileCounts().sample) for group, counts in {other: whole[WEB]}.items()}

    profile = estimate_tokens({**whole, **unsampled})

    assert (profile[other].tokens, profile[other].is_exact) == (6, False)
    assert (profile[WEB].tokens, profile[WEB].is_exact) == (6, True)
