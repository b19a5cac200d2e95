"""Options derived from recipe sections: their help and the resulting content."""

from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from pipeline_assets.cli import add_command
from pipeline_assets.commands.build import BuildFlags
from pipeline_assets.commands.options import RecipeContent, SectionOptions
from pipeline_assets.corpus.dedup.recipe import DedupRecipe
from pipeline_assets.corpus.nemotron.sections import Scan
from pipeline_assets.corpus.normalize.sources import WikipediaSource

DEDUP = SectionOptions(DedupRecipe)
WIKIPEDIA = SectionOptions(WikipediaSource)
SCAN = SectionOptions(Scan)


def run_options(section: SectionOptions, *words: str) -> tuple[str, Any]:
    app, results = typer.Typer(rich_markup_mode=None), []
    app.callback()(lambda: None)

    def show_content(content: Annotated[RecipeContent, section], flags: BuildFlags) -> None:
        results.append(content)

    add_command(app, "make", "Makes it.", lambda: show_content)
    result = CliRunner().invoke(app, ["make", *words])
    assert result.exit_code == 0, result.output
    return " ".join(result.output.split()), results[0] if results else None


def test_help_has_the_descriptions_of_the_sections_keys() -> None:
    text, _ = run_options(DEDUP, "--help")

    assert "--near-selection <str> Duplicate to keep: first, longest or quality. [default: first]" in text
    assert "--permutations <int> Hash values per signature: bands times rows. [default: 112; 1<=x<=4096]" in text
    assert text.count("--shingle-words") == text.count("--seed") == 1, "both proposers have them"
    assert text.count("--workers") == text.count("--strict") == 1


@pytest.mark.parametrize(
    ("section", "words", "content"),
    [
        (SCAN, "", {"max_rows": None}),
        (SCAN, "--max-records 3", {"max_rows": 3}),
        (
            WIKIPEDIA,
            "--license cc-by-sa-4.0",
            {
                "source": "wikipedia",
                "domain": "encyclopedia",
                "language": None,
                "dump_date": None,
                "license_tag": "cc-by-sa-4.0",
                "max_reject_fraction": "0.001",
            },
        ),
    ],
)
def test_options_become_the_content_of_the_section(section: SectionOptions, words: str, content: RecipeContent) -> None:
    assert run_options(section, *words.split())[1] == content


def test_an_option_of_several_sections_sets_its_value_in_each() -> None:
    near = run_options(DEDUP, "--shingle-words", "7")[1]["near"]

    assert near["minhash"] == {"shingle_words": 7, "permutations": 112, "seed": 1}
    assert near["faiss"] == {"shingle_words": 7, "bits": 256, "seed": 1}
