"""Dataset cards, read by the hub's client, `datasets` and this project."""

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
from published_splits import IDENTITY, answered, by_licence, card_content, card_split, normalise, publish, render_card

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


def test_the_card_equals_its_golden_file() -> None:
    licences = {None: 1, "cc-by-4.0": 60, "psf-2.0": 30, **{f"house rule {number:02d}": 1 for number in range(30)}}
    low = card_split("low-part", licences=by_licence(licences), rows=121)
    agreement = {"extra_gated_prompt": "Agree."}

    assert render_card(
        card_split(), low, agreement=agreement, notes=["A note.", ""], verification_script="pass"
    ) == GOLDEN.read_text(encoding="utf-8")


def test_colliding_split_names_are_numbered_in_the_order_of_splits() -> None:
    splits = [card_split(f"a{mark}b") for mark in "@%+~ -"]

    assert split_names(splits) == {
        "a b": "a_b",
        "a%b": "a_b_2",
        "a+b": "a_b_3",
        "a-b": "a_b_4",
        "a@b": "a_b_5",
        "a~b": "a_b_6",
    }


def test_the_hub_client_and_datasets_read_the_yaml() -> None:
    card = huggingface_hub.DatasetCard(render_card(card_split(), card_split("low-part", rows=1200)))

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
    tools = {"messages": [*answered("4")["messages"][:1], called({"word": "sum"})], "tools": [LOOKUP]}
    no_row = {"messages": [], "problem": "x" * 400}  # fills a shard of its own
    rows = {
        "train": [answered("one", license="cc-by-4.0", used_in=["nano"]), no_row, tools],
        "train-more": [answered("four", uuid="f")],
        "high.part": [answered("five", expected_answer="5")],
        "all": [answered("six")],
    }
    built = [normalise(tmp_path, split, split_rows, 200) for split, split_rows in rows.items()]
    splits, sources = collect_splits_and_sources(built)
    card = replace(card_content(*splits), sources=sources)
    folder = publish(tmp_path / "published", built, dataset_card(card))

    loaded = datasets.load_dataset(str(folder), cache_dir=str(tmp_path / "cache"))

    assert list(loaded) == ["train", "train_more", "high.part", "all_"]
    for split, artifact in zip(loaded.values(), built, strict=True):
        assert split.features.arrow_schema.equals(SCHEMA)
        files = sorted((artifact.folder / "data").iterdir())
        assert split.to_list() == [row for path in files for row in pq.ParquetFile(path).read().to_pylist()]
    assert [len(split) for split in loaded.values()] == [2, 1, 1, 1]
    assert any(not pq.ParquetFile(path).metadata.num_rows for path in (folder / "data").iterdir())


def test_a_split_without_rows_is_not_on_the_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    built = [normalise(tmp_path, "train", [answered("one")], 1 << 20), rows_artifact(tmp_path, [])]

    splits, sources = collect_splits_and_sources(built)

    folder = publish(tmp_path / "published", built, dataset_card(replace(card_content(*splits), sources=sources)))
    loaded = datasets.load_dataset(str(folder), cache_dir=str(tmp_path / "cache"))
    assert {name: len(split) for name, split in loaded.items()} == {"train": 1}


def test_this_project_finds_the_files_of_the_splits() -> None:
    names, paths = ("low", "low-more"), ["data/low-00000-of-00001.parquet", "data/low-more-00000-of-00001.parquet"]
    card = render_card(*(card_split(name, data_files=path) for name, path in zip(names, paths, strict=True)))

    splits = find_splits(paths, card, "here")

    assert {split: files.files for split, files in splits.items()} == {"low": (paths[0],), "low_more": (paths[1],)}


def test_hostile_text_is_escaped_everywhere() -> None:
    hostile = card_split(licences=by_licence({HOSTILE: 3}))
    page = render_card(hostile, title=HOSTILE, sources=[CardSource(HOSTILE, "a" * 40)], repository=HOSTILE)

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


def test_a_local_folder_is_not_a_hub_source_and_no_rows_have_no_licence() -> None:
    page = render_card(card_split(rows=0, licences=Counter()), sources=[CardSource("chats", None)])

    data = huggingface_hub.DatasetCard(page).data
    assert (data.source_datasets, data.license) == (None, "unknown")
    assert "| `chats` | a folder | not stated | not stated |" in page


def test_a_card_without_rows_has_no_configs() -> None:
    page = render_card()

    assert "configs" not in page and "## Columns" not in page
    assert "| `nemotron/normalized_shards` | `chats` | 4 | 3 | `not_json` 1 |" in page


def test_upstream_stages_show_their_drops_and_filters() -> None:
    recipe = {"filters": {"length": {"min_words": 50, "max_words": None}, "c4": None, "rules": []}}
    ledger = {"in": 9, "out": 5, "dropped": {"few_words": 4}, "rejected": {}}
    step = replace(IDENTITY, recipe=recipe, counts={"ledger": ledger})

    page = render_card(card_split(), upstream_manifests=[Manifest("stage_a/filtered", "made/web", step, [], {})])

    assert page.index("| `stage_a/filtered` | `web` | 9 | 5 | `few_words` 4 |") < page.index("| 4 | 3 | `not_json` 1 |")
    assert '- `made/web`: `{"length": {"min_words": 50}}`' in page and "`c4`" not in page and '"c4"' not in page


def test_the_order_of_counted_rows_does_not_change_the_card() -> None:
    card, other_card = (card_split(licences=by_licence(rows)) for rows in ({"mit": 1, "isc": 1}, {"isc": 1, "mit": 1}))

    assert render_card(card) == render_card(other_card)
