"""Documents of a group of duplicates, as `dedup show` prints them."""

import shutil
from pathlib import Path

import pytest
from command_results import Corpusmill
from document_corpus import numbered
from stage_a_build import NO_COMMIT, build, local_source, step
from stage_a_sources import recipe_content, with_dedup

from pipeline_assets.systems.stage_a import StageARecipe


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a text with seven near duplicates, one with an odd id, and a unique text."""
    root = tmp_path_factory.mktemp("groups")
    text = numbered(0, 40)
    texts = {"kept": text, "two\nlines": f"{text} end", "copy": f"{text} End!"}
    texts |= {f"copy-{number}": f"{text} end{number}" for number in range(5)}
    rows = [{"text": text, "key": key} for key, text in (texts | {"alone": numbered(900, 40)}).items()]
    content = recipe_content(NO_COMMIT) | {"sources": [local_source(root, "notes", rows)]}
    with_dedup(content)
    build(StageARecipe.model_validate(content), root)
    return root


def test_requested_document_is_the_first_of_the_dropped_ones(root: Path, corpusmill: Corpusmill) -> None:
    lines = corpusmill("dedup", "show", "copy-4", "--data", root).stdout.splitlines()

    documents = [line.partition("  (")[0] for line in lines if line.startswith(("kept", "near duplicate"))]
    assert documents[:3] == ["kept  kept", "near duplicate  copy-4", "near duplicate  two⏎lines"]
    assert len(documents) == 6 and lines[-1] == "and 2 more (--all)"


def test_id_of_two_lines_is_printed_in_one_and_a_unique_document_as_kept(root: Path, corpusmill: Corpusmill) -> None:
    copy, alone = (corpusmill("dedup", "show", name, "--data", root).stdout.splitlines() for name in ("copy", "alone"))

    assert "  same words as two⏎lines" in copy
    assert alone[0] == f"{step(root, 'deduplicated', 'mixed')}: kept, without duplicates"


def test_group_is_printed_if_a_source_is_missing(root: Path, tmp_path: Path, corpusmill: Corpusmill) -> None:
    shutil.copytree(root / "stage_a", tmp_path / "stage_a")
    shutil.rmtree(step(tmp_path, "filtered", "notes"))

    result = corpusmill("dedup", "show", "copy", "--data", tmp_path)

    lines = result.stdout.splitlines()
    assert (result.returncode, lines[:2], lines[3:5]) == (
        0,
        [
            f"{step(tmp_path, 'deduplicated', 'mixed')}: 8 duplicates, one is kept",
            "kept  kept  (notes, shards/00000.jsonl.zst row 0)",
        ],
        [
            "near duplicate  copy  (notes, shards/00000.jsonl.zst row 2)",
            "  similarity 0.9744, 97.4% of its shingles are in the kept one",
        ],
    )
    assert lines[2].startswith("  (its text is missing: no artifact with digest sha256:")
