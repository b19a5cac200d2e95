"""Cards of exports for trainers."""

from pathlib import Path

import pytest
from command_results import Export

from pipeline_assets.corpus.tokens.o200k_harmony import VOCABULARY_SHA256
from pipeline_assets.spine.artifact import Artifact, open_artifact

END = 199_999


def test_the_card_names_licences_the_source_and_how_to_read(corpus: Path, export: Export) -> None:
    card = (export(corpus, "olmo") / "README.md").read_text()

    assert open_artifact(corpus).manifest.digest in card
    assert "license:\n- cc0-1.0\n- mit\n- cc-by-sa-4.0\n- unknown\n" in card
    assert 'NumpyFSLDatasetConfig(paths=["this/folder/tokens.npy"], dtype="uint32"' in card


@pytest.mark.parametrize("to", ["megatron", "nanochat"])
def test_the_card_has_a_title_each_step_and_the_tokenizer(to: str, corpus: Path, export: Export) -> None:
    card = (export(corpus, to) / "README.md").read_text()

    assert "pretty_name: notes\n" in card and "\n# notes\n" in card
    steps = [
        line.split("`")[1] for line in card.splitlines() if line.startswith("| `stage_a/") and line.count("|") == 6
    ]
    assert steps == ["stage_a/normalized", "stage_a/filtered"]
    assert '"tokenizer": null' not in card
    tokenizer = f'{{"family": "o200k_harmony", "sha256": "{VOCABULARY_SHA256}"}}'
    assert (f"Tokenizer `{tokenizer}`; `{END}` ends each document." in card) is (to == "megatron")


def test_the_card_of_packed_rows_claims_no_columns_that_they_lack(subsets: Artifact, export: Export) -> None:
    packed = (export(subsets.folder, "sft") / "README.md").read_text()
    messages = (export(subsets.folder, "messages") / "README.md").read_text()

    names_rows = "Each row names the row of the source dataset"
    name = subsets.manifest.name  # the artifact has no partition
    assert f"pretty_name: {name}\n" in messages and f"\n# {name}\n" in messages
    assert names_rows in messages and names_rows not in packed
    assert "Each row lists the splits and ids of its conversations, as in the artifact above." in packed
    assert "Each row keeps the licence" not in packed
    assert "The rows of the exported artifact state these licences:" in packed
