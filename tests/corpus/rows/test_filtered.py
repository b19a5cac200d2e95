"""Kept documents filtered again: what one document tells is proven, and what it doesn't is said."""

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest
from stage_a_build import build, local_source, recipe_of

from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.rehash import Journal
from pipeline_assets.corpus.trust.result import Proven, Scope
from pipeline_assets.corpus.trust.sample import Sample
from pipeline_assets.corpus.trust.verify import hold, look_at_chain

ENGLISH = "The ministers met on Tuesday to discuss the budget, and nobody was surprised by what they had to say."
TEXTS = [ENGLISH, "Und niemand war davon überrascht, was sie sagten.", ENGLISH, f"{ENGLISH} That was all."]
Build = Callable[..., Artifact]


@pytest.fixture
def filtered(tmp_path: Path) -> Build:
    """The four texts through filters."""

    def run(**filters: object) -> Artifact:
        rows = [{"text": text, "key": f"note-{number}"} for number, text in enumerate(TEXTS)]
        recipe = recipe_of(local_source(tmp_path, "notes", rows, filters=filters))
        return build(recipe, tmp_path)["stage_a/filtered/notes"]

    return run


def proven(artifact: Artifact, root: Path) -> tuple[Proven, list[str]]:
    """What is proven of all its documents, and what is wrong with them."""
    found = look_at_chain(artifact.folder, Scope(root, Sample(Fraction(1))))
    hold(found, Journal(None))
    [own] = [one for one in found.proofs if one.artifact.folder == artifact.folder]
    return own, [finding.what for finding in found.findings]


def test_all_are_proven_by_what_each_tells_and_it_says_that_windows_are_not(filtered: Build, tmp_path: Path) -> None:
    artifact = filtered(windows={})

    found, wrong = proven(artifact, tmp_path)

    assert (found.documents, found.how, wrong) == (3, "filtered again, but for repeated windows", [])
