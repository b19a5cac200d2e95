"""Kept documents filtered again: what one document tells is proven, and what it doesn't is said."""

import shutil
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest
from stage_a_build import build, local_source, recipe_of

from pipeline_assets.corpus.filters import language
from pipeline_assets.corpus.rows.trace import open_rows
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.rehash import Journal
from pipeline_assets.corpus.trust.result import Proven, Sample, Scope
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
    artifact = filtered(windows={}, language={})

    found, wrong = proven(artifact, tmp_path)

    assert (found.documents, found.how, wrong) == (2, "filtered again, but for repeated windows", [])


def test_without_windows_it_says_nothing_of_them(filtered: Build, tmp_path: Path) -> None:
    found, wrong = proven(filtered(language={"keep": ["en", "de"], "threshold": "0.1"}), tmp_path)

    assert (found.documents, found.how, wrong) == (4, "filtered again", [])


def test_another_version_of_what_tells_languages_proves_nothing_and_says_why(
    filtered: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifact = filtered(language={"threshold": "0.9"})
    here = language.detector("py3langid")
    monkeypatch.setattr(language, "detector", lambda name: language.Detector("9.9.9", here.identify))

    found, wrong = proven(artifact, tmp_path)

    assert found.why_not == (
        f"{artifact.folder}: languages were told by py3langid {here.version} 0.9, "
        "here they would be by py3langid 9.9.9 0.9; use the versions that made it"
    )
    assert (found.documents, wrong) == (0, [])


def test_a_document_in_another_language_that_was_put_in_is_found(filtered: Build, tmp_path: Path) -> None:
    artifact = filtered(language={})
    store, all_of_them = open_rows(artifact.folder), tmp_path / "stage_a/mixed/normalized/notes"
    shard = "shards/00000.jsonl.zst"
    (artifact.folder / shard).chmod(0o644)
    shutil.copyfile(all_of_them / shard, artifact.folder / shard)

    wrong = [what for what in store.prove(shard, lambda doc_id: True) if isinstance(what, str)]

    assert wrong == ["document 'note-1' should have been dropped"]
