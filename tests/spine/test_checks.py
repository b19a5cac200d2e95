"""What checks said is kept beside an artifact, for its digest alone. A blocking one that failed holds it back: it isn't
current, nothing is made of it, and it isn't built again, which would give equal bytes.
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


def test_what_was_said_is_read_back_and_only_a_blocking_failure_holds_back(tmp_path: Path) -> None:
    write_check_results(tmp_path / "words", "sha256:aa", [PASSED, WARNED, FAILED])

    found = read_check_results(tmp_path / "words", "sha256:aa")

    assert found == (PASSED, WARNED, FAILED)
    assert [(one.state, one.is_blocking_failure) for one in found] == [
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
def test_what_is_no_record_says_nothing(content: bytes, tmp_path: Path) -> None:
    (tmp_path / ".words.checks.json").write_bytes(content)

    assert read_check_results(tmp_path / "words", "sha256:aa") is None


def test_a_link_is_no_record_and_writing_follows_none(tmp_path: Path) -> None:
    write_check_results(tmp_path / "other", "sha256:aa", [PASSED])
    planted = tmp_path / ".other.checks.json"
    before = planted.read_bytes()

    (tmp_path / ".words.checks.json").symlink_to(planted)
    of_link = read_check_results(tmp_path / "words", "sha256:aa")
    write_check_results(tmp_path / "words", "sha256:aa", [FAILED])

    assert of_link is None
    assert planted.read_bytes() == before


@dataclass(frozen=True)
class AtMost:
    """A demand on the documents of an artifact."""

    documents: int
    check_name: str = "few_documents"

    def evaluate(self, manifest: Manifest) -> Verdict:
        there = manifest.identity.counts["documents"]
        return Verdict(there <= self.documents, f"{there} documents, {self.documents} at most")


@pytest.fixture
def digest(tmp_path: Path) -> str:
    """Of the words, which are sealed."""
    return build_words(tmp_path, "english").manifest.digest


def say(root: Path, digest: str, *results: CheckResult) -> None:
    write_check_results(root / ENGLISH_WORDS.folder, digest, results)


def test_a_failed_one_says_which_check_and_why_and_a_warning_leaves_it_current(tmp_path: Path, digest: str) -> None:
    say(tmp_path, digest, PASSED, WARNED, FAILED)
    failed = (
        ENGLISH_WORDS.state(tmp_path),
        ENGLISH_WORDS.matches_recipe(tmp_path),
        ENGLISH_WORDS.is_up_to_date(tmp_path),
    )

    say(tmp_path, digest, PASSED, WARNED)

    assert failed == (("failed", "words_are_english failed: 3 of 4 are not"), True, False)
    assert ENGLISH_WORDS.state(tmp_path) == ("current", digest)
    assert ENGLISH_WORDS.is_up_to_date(tmp_path)


def test_one_whose_checks_were_never_asked_is_current_but_not_settled(tmp_path: Path, digest: str) -> None:
    orphans = ENGLISH_WORDS.state(tmp_path)
    say(tmp_path, "sha256:of-what-lay-here-before", FAILED)

    assert orphans == ENGLISH_WORDS.state(tmp_path) == ("current", digest)
    assert not ENGLISH_WORDS.is_up_to_date(tmp_path)


@pytest.mark.parametrize("is_replacing", [False, True])
def test_a_failed_one_is_not_built_again(tmp_path: Path, digest: str, is_replacing: bool) -> None:
    say(tmp_path, digest, FAILED)

    there = build(ENGLISH_WORDS, tmp_path, never, is_replacing)
    members = seal_manifest(ENGLISH_WORDS, tmp_path, lambda: BuildResult([], {}, {}), True, {})

    assert there.manifest.digest == members.manifest.digest == digest


def test_nothing_is_made_of_a_failed_one_and_the_line_names_the_check(tmp_path: Path, digest: str) -> None:
    say(tmp_path, digest, FAILED)

    told = {
        refusal(lambda: build(COUNT, tmp_path, never)),
        refusal(lambda: seal_manifest(COUNT, tmp_path, lambda: BuildResult([], {}, {}), True, {})),
    }

    why = "words_are_english failed: 3 of 4 are not; downstream artifacts are not built until that check passes"
    assert told == {f"{tmp_path / 'words'}: {why}"}
    assert not (tmp_path / COUNT.folder).exists()


def test_once_it_passes_all_goes_on(tmp_path: Path, digest: str) -> None:
    say(tmp_path, digest, FAILED)
    say(tmp_path, digest, CheckResult(FAILED.name, True, True, "all are"))

    build(COUNT, tmp_path, nothing)

    assert ENGLISH_WORDS.state(tmp_path)[0] == COUNT.state(tmp_path)[0] == "current"


def test_what_was_made_of_it_before_is_stale_in_the_inventory_as_long(tmp_path: Path, digest: str) -> None:
    build(COUNT, tmp_path, nothing)
    say(tmp_path, digest, FAILED, WARNED)

    words, count = artifact_statuses(tmp_path, [ENGLISH_WORDS, COUNT])

    assert (words.condition, words.reason) == ("failed", "words_are_english failed: 3 of 4 are not")
    assert words.checks == (FAILED, WARNED)
    assert (count.condition, count.reason) == ("stale", "words/parts words is failed")


def test_what_a_recipe_asks_beyond_the_bytes_is_asked_anew_over_what_was_kept(tmp_path: Path, digest: str) -> None:
    say(tmp_path, digest, CheckResult("few_documents", False, True, "of an older recipe"))
    few, many = (replace(ENGLISH_WORDS, count_limit=AtMost(documents)) for documents in (1, 99))

    assert few.state(tmp_path) == ("failed", "few_documents failed: 6 documents, 1 at most")
    assert many.state(tmp_path) == ("current", digest)
    assert many.check_results(tmp_path, build(many, tmp_path, never).manifest) == (
        CheckResult("few_documents", True, True, "6 documents, 99 at most"),
    )


@pytest.mark.parametrize(
    ("lost", "more"), [(["a"], ""), (["a", "b"], ", and 1 more"), (["a", "b", "c"], ", and 2 more")]
)
def test_the_files_check_names_the_first_damage_and_counts_others(tmp_path: Path, lost: list[str], more: str) -> None:
    artifact = build_words(tmp_path, "english")
    paths = [file.path for file in artifact.manifest.storage][: len(lost)]
    for path in paths:
        (artifact.folder / path).unlink()

    verdict = files_match_manifest(artifact, ENGLISH_WORDS, tmp_path)

    assert verdict.because == f"{paths[0]}: the file is missing{more}: remove the folder, and run its recipe again"
