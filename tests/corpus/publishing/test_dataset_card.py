"""The card of a dataset: read by a hub's client, by `datasets` and by this project, and the same for the same rows."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import datasets
import huggingface_hub
import pyarrow.parquet as pq
import pytest
from candidate_pools import rows_artifact
from datasets.info import DatasetInfosDict
from datasets.utils.metadata import MetadataConfigs
from nemotron_rows import LOOKUP, called
from published_splits import IDENTITY, card_of, content_of, licences_of, normalise, publish, said, split_of

from pipeline_assets.corpus.nemotron.schema import SCHEMA
from pipeline_assets.corpus.nemotron.splits import find_splits
from pipeline_assets.corpus.publishing.dataset_card import (
    CardSource,
    collect_splits_and_sources,
    dataset_card,
    split_names,
)
from pipeline_assets.spine.manifest import Manifest

GOLDEN = Path(__file__).parents[2] / "golden" / "dataset_card.md"
HOSTILE = 'chats: [x\n---\n# "it\'s" *&!|`<b>\u2028 {%'


def test_the_page_is_as_agreed() -> None:
    licences = {None: 1, "cc-by-4.0": 60, "psf-2.0": 30, **{f"house rule {number:02d}": 1 for number in range(30)}}
    low = split_of("low-part", licences=licences_of(licences), rows=121)
    agreement = {"extra_gated_prompt": "Agree."}

    assert card_of(
        split_of(), low, agreement=agreement, notes=["A note.", ""], verification_script="pass"
    ) == GOLDEN.read_text(encoding="utf-8")


def test_names_that_a_hub_does_not_allow_are_told_apart_in_the_order_of_their_splits() -> None:
    splits = [split_of(f"a{mark}b") for mark in "@%+~ -"]

    assert split_names(splits) == {
        "a b": "a_b",
        "a%b": "a_b_2",
        "a+b": "a_b_3",
        "a-b": "a_b_4",
        "a@b": "a_b_5",
        "a~b": "a_b_6",
    }


def test_a_hub_s_client_and_datasets_read_what_the_yaml_says() -> None:
    card = huggingface_hub.DatasetCard(card_of(split_of(), split_of("low-part", rows=1200)))

    assert card.data.license == "cc-by-4.0"
    assert card.data.size_categories == ["1K<n<10K"]
    assert card.data.source_datasets == ["maker/chats"]
    configs = MetadataConfigs.from_dataset_card_data(card.data)
    assert [entry["split"] for entry in configs["default"]["data_files"]] == ["train", "low_part"]
    info = DatasetInfosDict.from_dataset_card_data(card.data)["default"]
    assert info.features == datasets.Features.from_arrow_schema(SCHEMA)
    assert {name: split.num_examples for name, split in info.splits.items()} == {"train": 3, "low_part": 1200}


def test_datasets_loads_every_row_of_every_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    tools = {"messages": [*said("4")["messages"][:1], called({"word": "sum"})], "tools": [LOOKUP]}
    no_row = {"messages": [], "problem": "x" * 400}  # fills a shard of its own
    rows = {
        "train": [said("one", license="cc-by-4.0", used_in=["nano"]), no_row, tools],
        "train-more": [said("four", uuid="f")],
        "high.part": [said("five", expected_answer="5")],
        "all": [said("six")],
    }
    built = [normalise(tmp_path, split, given, 200) for split, given in rows.items()]
    splits, sources = collect_splits_and_sources(built)
    card = replace(content_of(*splits), sources=sources)
    folder = publish(tmp_path / "published", built, dataset_card(card))

    loaded = datasets.load_dataset(str(folder), cache_dir=str(tmp_path / "cache"))

    assert list(loaded) == ["train", "train_more", "high.part", "all_"]
    for split, one in zip(loaded.values(), built, strict=True):
        assert split.features.arrow_schema.equals(SCHEMA)
        files = sorted((one.folder / "data").iterdir())
        assert split.to_list() == [row for path in files for row in pq.ParquetFile(path).read().to_pylist()]
    assert [len(split) for split in loaded.values()] == [2, 1, 1, 1]
    assert any(not pq.ParquetFile(path).metadata.num_rows for path in (folder / "data").iterdir())


def test_a_split_that_keeps_no_row_is_not_on_the_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    built = [normalise(tmp_path, "train", [said("one")], 1 << 20), rows_artifact(tmp_path, [])]

    splits, sources = collect_splits_and_sources(built)

    folder = publish(tmp_path / "published", built, dataset_card(replace(content_of(*splits), sources=sources)))
    loaded = datasets.load_dataset(str(folder), cache_dir=str(tmp_path / "cache"))
    assert {name: len(split) for name, split in loaded.items()} == {"train": 1}


def test_this_project_finds_the_same_files() -> None:
    paths = ["data/low-00000-of-00001.parquet", "data/low-more-00000-of-00001.parquet"]
    card = card_of(*(split_of(name, files=path) for name, path in zip(("low", "low-more"), paths, strict=True)))

    found = find_splits(paths, card, "here")

    assert {split: files.files for split, files in found.items()} == {"low": (paths[0],), "low_more": (paths[1],)}


def test_no_text_leaves_its_place() -> None:
    hostile = split_of(licences=licences_of({HOSTILE: 3}))
    page = card_of(hostile, title=HOSTILE, sources=[CardSource(HOSTILE, "a" * 40)], repository=HOSTILE)

    card = huggingface_hub.DatasetCard(page)
    assert card.data.pretty_name == HOSTILE
    assert card.data.license_name == "chats-x-it-s-b"
    lines = card.text.splitlines()
    assert [line for line in lines if line.startswith("# ")] == [
        '# chats: \\[x --- \\# "it\'s" \\*\\&\\!\\|\\`\\<b\\> {%'
    ]
    assert [line for line in lines if line.startswith("| `maker/chats` | `chats")] == [
        "| `maker/chats` | `chats: [x --- # \"it's\" *&!\\|'&lt;b> {%` | 3 | `other` |  |"
    ]
    assert "---" not in lines


def test_a_folder_of_no_commit_is_no_source_of_a_hub_and_no_row_has_no_licence() -> None:
    page = card_of(split_of(rows=0, licences=Counter()), sources=[CardSource("chats", None)])

    data = huggingface_hub.DatasetCard(page).data
    assert (data.source_datasets, data.license) == (None, "unknown")
    assert "| `chats` | a folder | not stated | not stated |" in page


def test_what_has_no_rows_has_no_configs() -> None:
    page = card_of()

    assert "configs" not in page and "## Columns" not in page
    assert "| `nemotron/normalized_shards` | `chats` | 4 | 3 | `not_json` 1 |" in page


def test_steps_before_the_rows_show_what_they_removed_and_their_filters() -> None:
    recipe = {"filters": {"length": {"min_words": 50, "max_words": None}, "c4": None, "rules": []}}
    ledger = {"in": 9, "out": 5, "dropped": {"few_words": 4}, "rejected": {}}
    step = replace(IDENTITY, recipe=recipe, counts={"ledger": ledger})

    page = card_of(split_of(), upstream_manifests=[Manifest("stage_a/filtered", "made/web", step, [], {})])

    assert page.index("| `stage_a/filtered` | `web` | 9 | 5 | `few_words` 4 |") < page.index("| 4 | 3 | `not_json` 1 |")
    assert '- `made/web`: `{"length": {"min_words": 50}}`' in page and "`c4`" not in page and '"c4"' not in page


def test_the_order_in_which_rows_were_counted_changes_nothing() -> None:
    one, other = (split_of(licences=licences_of(rows)) for rows in ({"mit": 1, "isc": 1}, {"isc": 1, "mit": 1}))

    assert card_of(one) == card_of(other)
