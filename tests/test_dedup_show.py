"""Documents of a group of duplicates, as `dedup show` prints them."""

from pathlib import Path

from command_results import Corpusmill
from document_corpus import numbered
from stage_a_build import NO_COMMIT, build, local_source
from stage_a_sources import recipe_content, with_dedup

from pipeline_assets.systems.stage_a import StageARecipe


def test_the_requested_document_is_the_first_of_the_dropped_ones(tmp_path: Path, corpusmill: Corpusmill) -> None:
    texts = [numbered(0, 40), *(f"{numbered(0, 40)} end{number}" for number in range(8))]
    rows = [{"text": text, "key": f"note-{number}"} for number, text in enumerate(texts)]
    content = recipe_content(NO_COMMIT) | {"sources": [local_source(tmp_path, "notes", rows)]}
    with_dedup(content)
    build(StageARecipe.model_validate(content), tmp_path)

    lines = corpusmill("dedup", "show", "note-7", "--data", tmp_path).stdout.splitlines()

    shown = [line.partition("  (")[0] for line in lines if line.startswith(("kept", "near duplicate"))]
    assert shown[:3] == ["kept  note-0", "near duplicate  note-7", "near duplicate  note-1"]
