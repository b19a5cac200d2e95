"""Recipes and their artifacts are replaced only with --replace."""

from pathlib import Path

import pytest
from command_results import Corpusmill, Result, Wrong


def test_handwritten_recipe_is_not_overwritten(wrong: Wrong, work: Path) -> None:
    path = work / "bad" / "recipes" / "mine.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("system: stage_a\n", encoding="utf-8")

    status, line = wrong(
        "normalize", "--input", "notes/*.jsonl", "--out-dir", "bad", "--domain", "d", "--source", "mine"
    )

    assert status == 2
    assert line == "bad/recipes/mine.yaml: another recipe exists; rename that file, or run with --replace"
    assert path.read_text(encoding="utf-8") == "system: stage_a\n"


@pytest.mark.slow
def test_edited_recipe_is_not_overwritten(wrong: Wrong, corpusmill: Corpusmill, work: Path) -> None:
    common = ("normalize", "--input", "notes/*.jsonl", "--out-dir", "edited", "--domain", "d", "--source", "n")
    columns = ("--text-column", "body.text")
    assert corpusmill("stage-a", *common, *columns, cwd=work).returncode == 0
    path = work / "edited" / "recipes" / "n.yaml"
    edited = path.read_text().replace("shard_text_bytes: 67108864", "shard_text_bytes: 1000")
    path.write_text(edited)

    status, line = wrong(*common, *columns)

    assert status == 2
    problem = "the recipe was edited after corpusmill wrote it"
    assert line.startswith(f"edited/recipes/n.yaml: {problem}; run it with `corpusmill run ")
    assert path.read_text() == edited


@pytest.mark.slow
def test_filter_recipe_with_fewer_sources_is_refused(wrong: Wrong, typed: dict[str, Result]) -> None:
    status, line = wrong("filter", "--filters", "web.yaml", "--out-dir", "out", "--source", "notes")

    assert status == 2
    assert "the new one does not; rename that file, or run with --replace" in line
