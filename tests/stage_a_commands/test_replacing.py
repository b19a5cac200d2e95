"""What is there, recipes and what they made, is replaced when that is asked for and not before."""

from pathlib import Path

import pytest
from command_results import Corpusmill, Typed, Wrong


def test_a_recipe_written_by_hand_is_not_overwritten(wrong: Wrong, work: Path) -> None:
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
def test_a_recipe_that_was_edited_is_not_overwritten(wrong: Wrong, corpusmill: Corpusmill, work: Path) -> None:
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
def test_filters_for_fewer_sources_would_lose_what_the_recipe_made(wrong: Wrong, typed: dict[str, Typed]) -> None:
    status, line = wrong("filter", "--filters", "web.yaml", "--out-dir", "out", "--source", "notes")

    assert status == 2
    assert "the new one does not; rename that file, or run with --replace" in line
