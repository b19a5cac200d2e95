"""More duplicates than a recipe allows: nothing is made of what is left, however often it is asked for."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from one_line import only_line
from stage_a_build import build, local_source, recipe_of
from stage_a_sources import with_dedup

from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.spine.target import Target
from pipeline_assets.systems.stage_a import StageARecipe

Corpusmill = Callable[..., subprocess.CompletedProcess[str]]
LETTERS = [{"text": f"Dear friend, letter {n // 2} is of the river and its boats.", "key": f"l-{n}"} for n in range(8)]


def write_capped(root: Path, cap: str) -> None:
    """A recipe over letters, of which each is there twice."""
    content: dict[str, Any] = recipe_of(local_source(root.parent / "in", "letters", LETTERS)).content()
    with_dedup(content)
    content |= {"name": "capped", "max_removed": {"every_source": cap}, "outputs": None}
    (root / "recipes").mkdir(parents=True, exist_ok=True)
    (root / "recipes" / "capped.yaml").write_text(yaml.safe_dump(content))


def deduplicated(path: Path) -> Target:
    """What a recipe asks for."""
    return StageARecipe.read(path).target("stage_a/deduplicated")


@pytest.mark.slow
def test_a_run_beyond_the_cap_makes_nothing_of_it_today_or_tomorrow(corpusmill: Corpusmill, tmp_path: Path) -> None:
    root = tmp_path / "data"
    write_capped(root, "0.3")

    first, again = (corpusmill("run", "capped", "--data", root, env={"CORPUSMILL_WORKERS": "0"}) for _ in range(2))

    deduplicated = root / "stage_a" / "capped" / "deduplicated" / "capped"
    for result in (first, again):
        assert result.returncode == 1
        assert only_line(result) == (
            f"{deduplicated}: removals_within_caps failed: letters: 4 of 8 (50.0%, MORE THAN 30.0%): look at some with "
            "`corpusmill dedup show`, then raise `max_removed` in the recipe, or change `dedup`; "
            "it stays, and nothing is made of it until that passes"
        )
        assert "to go on" not in result.stderr
    assert (deduplicated / "manifest.json").is_file()
    assert not (deduplicated.parents[1] / "report").exists()


def test_a_cap_that_is_raised_lets_it_pass_and_one_that_is_lowered_is_told(tmp_path: Path) -> None:
    root = tmp_path / "data"
    write_capped(root, "0.5")
    path = root / "recipes" / "capped.yaml"
    build(StageARecipe.read(path), root)

    within = deduplicated(path).state(root)
    write_capped(root, "0.49")
    beyond = deduplicated(path).state(root)

    assert (within[0], beyond[0]) == ("current", "failed")
    assert "letters: 4 of 8 (50.0%, MORE THAN 49.0%)" in beyond[1]
    with pytest.raises(InputError, match="removals_within_caps failed: letters: 4 of 8"):
        deduplicated(path).refuse_failed(root)


def test_a_run_of_what_is_there_is_told_too(corpusmill: Corpusmill, tmp_path: Path) -> None:
    root = tmp_path / "data"
    write_capped(root, "0.5")
    build(StageARecipe.read(root / "recipes" / "capped.yaml"), root)
    write_capped(root, "0.49")

    told = corpusmill("run", "capped", "--data", root)

    assert told.returncode == 1
    assert "letters: 4 of 8 (50.0%, MORE THAN 49.0%)" in only_line(told)
