"""Commands of docs/scoring.md and their output."""

import re
import shutil
from pathlib import Path

import pytest
from command_results import DOCS, Corpusmill, code_blocks, type_page

from pipeline_assets.corpus.nemotron.pools_recipe import DEFAULT_RULES

pytestmark = pytest.mark.slow


def split_line(line: str) -> list[object]:
    """Split a line into words, and perplexities above 999 into rounded numbers."""
    return [float(word.replace(",", "")) if re.fullmatch(r"\d+,[\d,.]+", word) else word for word in line.split()]


def approximate_words(line: str) -> list[object]:
    return [pytest.approx(word, rel=1e-7) if isinstance(word, float) else word for word in split_line(line)]


def test_commands_of_the_page_print_its_output(corpusmill: Corpusmill, scored_root: Path, tmp_path: Path) -> None:
    shutil.copytree(scored_root, tmp_path / "out")  # the first command builds this root, and finds all of it
    [_, *expected] = code_blocks(DOCS / "scoring.md")[1].splitlines()

    typed = type_page("scoring.md", corpusmill, cwd=tmp_path, env={"CORPUSMILL_WORKERS": "0"})

    smoke, score, percentiles, subsets, traced, preview, _ = (result.stdout for _, result in typed)
    assert "all artifacts are up to date" in smoke
    assert "pools of 6 datasets published on loopback" in smoke
    pools = [line.split(maxsplit=4)[4] for line in smoke.splitlines()[1:7]]
    purposes = {part.split()[0] for line in pools for part in line.split(", ")}
    # All shipped pools but one have rows: no generated row was solved in half to three quarters of its tries.
    assert set(DEFAULT_RULES) - purposes == {"medium_correctness"}
    assert "anchor 5, anchor_unverified 24, challenge 1, challenge_unverified 8, learning 4, " in smoke
    assert "out/models/other compared with out/models/made, in bits per byte:" in score
    printed = [split_line(line) for line in percentiles.splitlines()]
    assert [line for line in expected if approximate_words(line) not in printed] == []
    assert "  restoration: 32 rows" in subsets
    assert "source    loopback/nemotron-instruction-following-chat-v1-pools@" in traced
    assert "▌ " in preview
