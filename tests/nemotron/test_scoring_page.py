"""Commands of docs/scoring.md and their output."""

import re
import shutil
from pathlib import Path

import pytest
from command_results import DOCS, Corpusmill, Result, code_blocks, type_page

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def results(corpusmill: Corpusmill, scored_root: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Result]:
    """Run the commands of the page and return each result by its first two words."""
    folder = tmp_path_factory.mktemp("scoring")
    shutil.copytree(scored_root, folder / "out")  # the first command builds this root, and finds all of it
    answers = type_page("scoring.md", corpusmill, cwd=folder, env={"CORPUSMILL_WORKERS": "0"})
    return {" ".join(words[:2]): answer for words, answer in answers}


def split_line(line: str) -> list[object]:
    """Split a line into words, and perplexities above 999 into rounded numbers."""
    return [float(word.replace(",", "")) if re.fullmatch(r"\d+,[\d,.]+", word) else word for word in line.split()]


def approximate_words(line: str) -> list[object]:
    return [pytest.approx(word, rel=1e-7) if isinstance(word, float) else word for word in split_line(line)]


def test_output_matches_the_page(results: dict[str, Result]) -> None:
    [_, *expected] = code_blocks(DOCS / "scoring.md")[1].splitlines()

    assert (
        "anchor 5, anchor_unverified 24, challenge 1, challenge_unverified 8, learning 4, "
        in results["nemotron smoke"].stdout
    )
    assert "out/models/other compared with out/models/made, in bits per byte:" in results["nemotron score"].stdout
    printed = [split_line(line) for line in results["nemotron percentiles"].stdout.splitlines()]
    assert [line for line in expected if approximate_words(line) not in printed] == []
    assert "  restoration: 32 rows" in results["nemotron subsets"].stdout


def test_row_is_traced_to_its_hub_pool_and_previewed_with_marks(results: dict[str, Result]) -> None:
    assert "source    loopback/nemotron-instruction-following-chat-v1-pools@" in next(
        answer.stdout for words, answer in results.items() if words.startswith("trace")
    )
    assert "▌ " in next(answer.stdout for words, answer in results.items() if words.startswith("peek"))
