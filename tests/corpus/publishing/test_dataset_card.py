"""The card of a dataset: read by a hub's client, by `datasets` and by this project, and the same for the same rows."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import datasets
import huggingface_hub
import pyarrow.parquet as pq
import pytest
from datasets.info import DatasetInfosDict
from datasets.utils.metadata import MetadataConfigs
from published import CONTENT, SPLIT, card_of, normalise, publish, said
from rows_made import LOOKUP, called

from pipeline_assets.corpus.nemotron.schema import SCHEMA
from pipeline_assets.corpus.nemotron.splits import find_splits
from pipeline_assets.corpus.publishing.dataset_card import card_split, dataset_card

GOLDEN = Path(__file__).parents[2] / "golden" / "dataset_card.md"
HOSTILE = 'chats: [x\n---\n# "it\'s" *&!|`<b>\u2028 {%'


def test_the_page_is_as_agreed() -> None:
    licences = {None: 1, "cc-by-4.0": 60, "psf-2.0": 30, **{f"house rule {number:02d}": 1 for number in range(30)}}
    rejected = {"not_json": 2, "no_messages": 1}
    low = replace(SPLIT, name="low-part", licences=licences, rejected=rejected, rows=121, filled={"id": 121})

    assert card_of(SPLIT, low) == GOLDEN.read_text(encoding="utf-8")


def test_a_hub_s_client_and_datasets_read_what_the_yaml_says() -> None:
    card = huggingface_hub.DatasetCard(card_of(SPLIT, replace(SPLIT, name="low-part", rows=1200)))

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
    splits = [card_split(one) for one in built]
    folder = publish(tmp_path / "published", built, dataset_card(replace(CONTENT, splits=splits)))

    loaded = datasets.load_dataset(str(folder), cache_dir=str(tmp_path / "cache"))

    assert list(loaded) == ["train", "train_more", "high.part", "all_"]
    for split, one in zip(loaded.values(), built, strict=True):
        assert split.features.arrow_schema.equals(SCHEMA)
        files = sorted((one.folder / "data").iterdir())
        assert split.to_list() == [row for path in files for row in pq.ParquetFile(path).read().to_pylist()]
    assert [len(split) for split in loaded.values()] == [2, 1, 1, 1]
    assert any(not pq.ParquetFile(path).metadata.num_rows for path in (folder / "data").iterdir())


def test_this_project_finds_the_same_files() -> None:
    paths = ["data/low-00000-of-00001.parquet", "data/low-more-00000-of-00001.parquet"]
    low = replace(SPLIT, name="low", files=1)

    found = find_splits(paths, card_of(low, replace(low, name="low-more")), "here")

    assert {split: files.files for split, files in found.items()} == {"low": (paths[0],), "low_more": (paths[1],)}


def test_no_text_leaves_its_place() -> None:
    hostile = replace(SPLIT, licences={HOSTILE: 3})
    page = card_of(hostile, title=HOSTILE, source=HOSTILE, repository=HOSTILE, revision=None)

    card = huggingface_hub.DatasetCard(page)
    assert card.data.pretty_name == HOSTILE
    assert card.data.license_name == "chats-x-it-s-b"
    lines = card.text.splitlines()
    assert [line for line in lines if line.startswith("# ")] == [
        '# chats: \\[x --- \\# "it\'s" \\*\\&\\!\\|\\`\\<b\\> {%'
    ]
    assert [line for line in lines if line.startswith("| `train` | `chats")] == [
        "| `train` | `chats: [x --- # \"it's\" *&!\\|'&lt;b> {%` | `other` | 3 |"
    ]
    assert "---" not in lines


def test_a_folder_of_no_commit_is_no_source_of_a_hub() -> None:
    page = card_of(SPLIT, revision=None)

    assert huggingface_hub.DatasetCard(page).data.source_datasets is None
    assert "in a folder, of no commit" in page


def test_plain_texts_are_not_called_harmony() -> None:
    assert huggingface_hub.DatasetCard(card_of(SPLIT, template="plain/1")).data.tags == ["corpusmill", "plain"]


def test_a_split_without_rows_has_a_card() -> None:
    page = card_of(replace(SPLIT, rows=0, licences={}, filled={}))

    assert huggingface_hub.DatasetCard(page).data.license == "unknown"
    assert "(none)" in page


def test_the_order_in_which_rows_were_counted_changes_nothing() -> None:
    one = replace(SPLIT, licences=Counter({"mit": 1, "isc": 1}), rejected={"not_json": 1, "cut_off": 1})
    other = replace(SPLIT, licences=Counter({"isc": 1, "mit": 1}), rejected={"cut_off": 1, "not_json": 1})

    assert card_of(one) == card_of(other)


@pytest.mark.parametrize("splits", [[], [SPLIT, SPLIT]])
def test_a_card_is_of_splits_each_once(splits: list[object]) -> None:
    with pytest.raises(ValueError, match="one or more splits, each once"):
        card_of(*splits)
