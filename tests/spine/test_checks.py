"""Check results are stored next to an artifact, for its digest alone.

An artifact with a failed blocking check is not up to date and has no downstream builds, but is not rebuilt.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from refusals import refusal
from word_artifact import build_words
from word_targets import COUNT, ENGLISH_WORDS, build, never, nothing

from pipeline_assets.build.build_target import seal_manifest
from pipeline_assets.build.checks import files_match_manifest
from pipeline_assets.build.inventory import artifact_statuses
from pipeline_assets.spine.artifact import CheckResult, Verdict, read_check_results, write_check_results
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.manifest import Manifest

PASSED = CheckResult("ledger_adds_up", True, True, "2 in = 2 out")
WARNED = CheckResult("shares_reached", False, False, "b: asked 50.00%, reached 9.00%")
FAILED = CheckResult("words_are_english", False, True, "3 of 4 are not")


def test_check_results_are_read_back_and_only_blocking_failures_block(tmp_path: Path) -> None:
    write_check_results(tmp_path / "words", "sha256:aa", [PASSED, WARNED, FAILED])

    results = read_check_results(tmp_path / "words", "sha256:aa")

    assert results == (PASSED, WARNED, FAILED)
    assert [(result.state, result.is_blocking_failure) for result in results] == [
        ("passed", False),
        ("WARNING", False),
        ("FAILED", True),
    ]
    assert [path.name for path in tmp_path.iterdir()] == [".words.checks.json"]


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b'{"schema": "corpusmill/checks/1", "digest": "sha256:aa", "results": [{"name": "x", "passed": "no"}]}',
        b'{"schema": "corpusmill/checks/9", "digest": "sha256:aa", "results": []}',
    ],
    ids=["torn", "no result", "another schema"],
)
def test_unreadable_record_has_no_results(content: bytes, tmp_path: Path) -> None:
    (tmp_path / ".words.checks.json").write_bytes(content)

    assert read_check_results(tmp_path / "words", "sha256:aa") is None


def test_record_is_not_read_or_written_through_a_link(tmp_path: Path) -> None:
    write_check_results(tmp_path / "other", "sha256:aa", [PASSED])
    planted = tmp_path / ".other.checks.json"
    before = planted.read_bytes()

    (tmp_path / ".words.checks.json").symlink_to(planted)
    linked = read_check_results(tmp_path / "words", "sha256:aa")
    write_check_results(tmp_path / "words", "sha256:aa", [FAILED])

    assert linked is None
    assert planted.read_bytes() == before


@dataclass(frozen=True)
class MaxDocuments:
    """Limit on the documents of an artifact."""

    documents: int
    check_name: str = "few_documents"

    def evaluate(self, manifest: Manifest) -> Verdict:
        documents = manifest.identity.counts["documents"]
        return Verdict(documents <= self.documents, f"{documents} documents, {self.documents} at most")


@pytest.fixture
def digest(tmp_path: Path) -> str:
    """Seal the words and return their digest."""
    return build_words(tmp_path, "english").manifest.digest


def write_results(root: Path, digest: str, *results: CheckResult) -> None:
    write_check_results(root / ENGLISH_WORDS.folder, digest, results)


def test_failed_check_is_the_state_with_its_reason_and_a_warning_is_not(tmp_path: Path, digest: str) -> None:
    write_results(tmp_path, digest, PASSED, WARNED, FAILED)

    assert ENGLISH_WORDS.state(tmp_path) == ("failed", "words_are_english failed: 3 of 4 are not")
    assert ENGLISH_WORDS.matches_recipe(tmp_path) and not ENGLISH_WORDS.is_up_to_date(tmp_path)
    write_results(tmp_path, digest, PASSED, WARNED)
    assert ENGLISH_WORDS.state(tmp_path) == ("current", digest)
    assert ENGLISH_WORDS.is_up_to_date(tmp_path)


def test_artifact_without_check_results_is_current_but_not_up_to_date(tmp_path: Path, digest: str) -> None:
    without_record = ENGLISH_WORDS.state(tmp_path)
    write_results(tmp_path, "sha256:of-what-lay-here-before", FAILED)

    assert without_record == ENGLISH_WORDS.state(tmp_path) == ("current", digest)
    assert not ENGLISH_WORDS.is_up_to_date(tmp_path)


@pytest.mark.parametrize("is_replacing", [False, True])
def test_failed_artifact_is_not_rebuilt(tmp_path: Path, digest: str, is_replacing: bool) -> None:
    write_results(tmp_path, digest, FAILED)

    artifact = build(ENGLISH_WORDS, tmp_path, never, is_replacing)
    members = seal_manifest(ENGLISH_WORDS, tmp_path, lambda: BuildResult([], {}, {}), True, {})

    assert artifact.manifest.digest == members.manifest.digest == digest


def test_failed_artifact_has_no_downstream_builds_until_the_named_check_passes(tmp_path: Path, digest: str) -> None:
    write_results(tmp_path, digest, FAILED)

    messages = {
        refusal(lambda: build(COUNT, tmp_path, never)),
        refusal(lambda: seal_manifest(COUNT, tmp_path, lambda: BuildResult([], {}, {}), True, {})),
    }
    assert not (tmp_path / COUNT.folder).exists()
    write_results(tmp_path, digest, CheckResult(FAILED.name, True, True, "all are"))
    build(COUNT, tmp_path, nothing)

    why = "words_are_english failed: 3 of 4 are not; downstream artifacts are not built until that check passes"
    assert messages == {f"{tmp_path / 'words'}: {why}"}
    assert ENGLISH_WORDS.state(tmp_path)[0] == COUNT.state(tmp_path)[0] == "current"


def test_downstream_artifact_of_a_failed_artifact_is_stale(tmp_path: Path, digest: str) -> None:
    build(COUNT, tmp_path, nothing)
    write_results(tmp_path, digest, FAILED, WARNED)

    words, count = artifact_statuses(tmp_path, [ENGLISH_WORDS, COUNT])

    assert (words.display_state, words.reason) == ("failed", "words_are_english failed: 3 of 4 are not")
    assert words.checks == (FAILED, WARNED)
    assert (count.display_state, count.reason) == ("stale", "words/parts words is failed")


def test_count_limit_of_a_recipe_overrides_its_stored_result(tmp_path: Path, digest: str) -> None:
    write_results(tmp_path, digest, CheckResult("few_documents", False, True, "of an older recipe"))
    few, many = (replace(ENGLISH_WORDS, count_limit=MaxDocuments(documents)) for documents in (1, 99))

    assert few.state(tmp_path) == ("failed", "few_documents failed: 6 documents, 1 at most")
    assert many.state(tmp_path) == ("current", digest)
    assert many.check_results(tmp_path, build(many, tmp_path, never).manifest) == (
        CheckResult("few_documents", True, True, "6 documents, 99 at most"),
    )


@pytest.mark.parametrize(
    ("lost", "more"), [(["a"], ""), (["a", "b"], ", and 1 more"), (["a", "b", "c"], ", and 2 more")]
)
def test_files_check_names_the_first_damage_and_counts_others(tmp_path: Path, lost: list[str], more: str) -> None:
    artifact = build_words(tmp_path, "english")
    paths = [file.path for file in artifact.manifest.storage][: len(lost)]
    for path in paths:
        (artifact.folder / path).unlink()

    verdict = files_match_manifest(artifact, ENGLISH_WORDS, tmp_path)

    assert verdict.because == f"{paths[0]}: the file is missing{more}: remove the folder, and run its recipe again"
