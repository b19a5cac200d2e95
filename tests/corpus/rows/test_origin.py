"""Which of several inputs the Documents of a source came by."""

from pathlib import Path
from typing import Any

import pytest
from stage_a_build import build, local_source, recipe_of
from stage_a_sources import with_decontamination, with_dedup, write_quiz

from pipeline_assets.corpus.rows.trace import open_rows, trace_id


@pytest.mark.parametrize("role", ["stage_a/deduplicated", "stage_a/decontaminated"])
def test_a_document_of_a_corpus_of_several_sources_came_from_its_own(role: str, tmp_path: Path) -> None:
    """An evaluation set has the name of a source, and the same place is a row in both sources."""
    content: dict[str, Any] = {}
    with_dedup(content)
    with_decontamination(content, str(tmp_path / "quiz"))
    content["decontamination"]["evaluation"][0]["name"] = "pages"
    write_quiz(tmp_path / "quiz", ["What is it that nobody ever wrote?"])
    sources = [
        local_source(tmp_path, name, [{"text": f"In {name} there is nothing but {name} of {name}.", "key": name}])
        for name in ("notes", "pages")
    ]
    corpus = open_rows(build(recipe_of(*sources, **content), tmp_path)[role].folder)

    rows = [trace_id(corpus, name)[0].text.source.rows[0] for name in ("notes", "pages")]

    assert [str(row) for row in rows] == [f"{tmp_path}/sources/{name}/rows.jsonl#0" for name in ("notes", "pages")]
