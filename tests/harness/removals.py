"""Removals of garbage in a data root of graphs, with checks of the rest."""

from pathlib import Path

from graph_system import SYSTEMS

from pipeline_assets.build.garbage import Survey
from pipeline_assets.build.inventory import artifact_statuses
from pipeline_assets.spine.lineage import Lineage
from pipeline_assets.trust.result import VerificationScope
from pipeline_assets.trust.verify import read_and_check, scan_chain


def collect(root: Path, **options: object) -> list[str]:
    """Find and remove garbage; return its folders in order."""
    survey = Survey(root, SYSTEMS, **options)  # type: ignore[arg-type]
    survey.remove(survey.garbage)
    return [str(entry.folder.relative_to(root)) for entry in survey.garbage]


def sealed_in(root: Path) -> set[str]:
    return {str(folder.relative_to(root)) for folder in Lineage(root).manifests}


def assert_whole(root: Path) -> None:
    """Assert that every artifact is intact, with all its inputs."""
    for folder in Lineage(root).manifests:
        verification = scan_chain(folder, VerificationScope(root, None, False, 1, 60.0), SYSTEMS.label_names)
        read_and_check(verification)
        assert verification.verdict == "intact", verification.findings


def states(root: Path) -> dict[str, str]:
    recipes, errors = SYSTEMS.load_recipes(root)
    assert not errors
    return {
        str(status.target.folder): f"{status.display_state} {status.reason}"
        for recipe in recipes
        for status in artifact_statuses(root, recipe.targets())
    }
