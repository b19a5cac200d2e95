"""docs/scoring.md, typed: what each of its commands answers."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from command_results import DOCS, Corpusmill, Typed, blocks_of, type_page

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def typed(corpusmill: Corpusmill, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Typed]:
    """What each command of the page answered, by its first two words."""
    pytest.importorskip("pipeline_assets.build.pins.model_pin")
    pytest.importorskip("transformers", reason="the extra `scoring` is not installed")
    folder = tmp_path_factory.mktemp("scoring")
    # Typed again below, where a command has less time, it finds all that is there.
    smoke = [Path(sys.executable).with_name("corpusmill"), "nemotron", "smoke", "--score", "--out-dir", "out"]
    subprocess.run(smoke, cwd=folder, check=True, capture_output=True, timeout=600)
    answers = type_page("scoring.md", corpusmill, cwd=folder, env={"CORPUSMILL_WORKERS": "0"})
    return {" ".join(words[:2]): answer for words, answer in answers}


def words_of(line: str) -> list[object]:
    """Words of a line; perplexities of thousands as numbers, for their ninth digit is the processor's."""
    return [float(word.replace(",", "")) if re.fullmatch(r"\d+,[\d,.]+", word) else word for word in line.split()]


def nearly(line: str) -> list[object]:
    return [pytest.approx(word, rel=1e-7) if isinstance(word, float) else word for word in words_of(line)]


def test_answers_are_those_of_the_page(typed: dict[str, Typed]) -> None:
    [_, *means] = blocks_of(DOCS / "scoring.md")[1].splitlines()

    assert (
        "anchor 5, anchor_unverified 24, challenge 1, challenge_unverified 8, learning 4, "
        in typed["nemotron smoke"].stdout
    )
    assert "out/models/other compared with out/models/made, in bits per byte:" in typed["nemotron score"].stdout
    told = [words_of(line) for line in typed["nemotron percentiles"].stdout.splitlines()]
    assert [line for line in means if nearly(line) not in told] == []
    assert "  restoration: 32 rows" in typed["nemotron subsets"].stdout


def test_a_row_leads_to_the_pool_on_the_hub_and_shows_what_counts(typed: dict[str, Typed]) -> None:
    assert "source    loopback/nemotron-instruction-following-chat-v1-pools@" in next(
        answer.stdout for words, answer in typed.items() if words.startswith("trace")
    )
    assert "▌ " in next(answer.stdout for words, answer in typed.items() if words.startswith("peek"))
