"""A Stack Exchange site becomes one Document per question thread."""

from collections.abc import Callable
from pathlib import Path

from posts_xml import answer, dump, question, row
from refusals import refusal
from stage_a_build import ledger

from pipeline_assets.build.checks import ledger_adds_up
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.errors import UsageError

Normalized = Callable[..., Artifact]
Read = Callable[[Artifact], list[dict[str, object]]]
SITE = "beer.stackexchange.com"


def test_every_post_is_kept_merged_dropped_or_rejected(
    normalized: Normalized, read_docs: Read, read_rejects: Read
) -> None:
    posts = dump(
        question(1), answer(2, 1), answer(3, 1, Body=""),  # an answer without text
        question(4),  # without an answer
        question(5, Score=0), answer(6, 5),
        answer(7, 99),  # its question isn't there
        row(Id=8, PostTypeId=5, Body="a tag's wiki"),
        row(Id="nine", PostTypeId=1),
        answer(2, 1, Score="many"), question(1),  # ids that came before
    )  # fmt: skip

    artifact = normalized(SITE, {"Posts.xml": posts}, max_reject_fraction="1")

    assert ledger(artifact) == {
        "in": 11,
        "out": 1,
        "merged": 1,
        "dropped": {"empty_answer": 1, "few_answers": 1, "low_question_score": 2, "tag_wiki": 1},
        "rejected": {"duplicate_post": 1, "missing_attribute": 1, "no_question": 1, "wrong_type": 1},
    }
    assert ledger_adds_up(artifact).because == "11 in = 1 out + 1 merged + 5 dropped + 4 rejected"
    [document] = read_docs(artifact)
    assert (document["doc_id"], document["text"]) == (
        f"stackexchange:{SITE}:1",
        "Title 1\n\nBody 1\n\nAnswer:\n\nBody 2",
    )
    assert sorted(int(str(reject["row"])) for reject in read_rejects(artifact)) == [6, 8, 9, 10]


def test_a_site_without_answers_has_no_merged_posts(normalized: Normalized) -> None:
    artifact = normalized(SITE, {"Posts.xml": dump(question(1), question(2))}, min_answers=0)

    assert ledger(artifact) == {"in": 2, "out": 2, "dropped": {}, "rejected": {}}


def test_a_source_of_two_sites_is_refused(normalized: Normalized, tmp_path: Path) -> None:
    files = dict.fromkeys(("a/Posts.xml", "b/Posts.xml"), dump(question(1), answer(2, 1)))

    assert refusal(lambda: normalized(SITE, files, files=["*/Posts.xml"]), UsageError) == (
        f"{tmp_path / 'source'}: 2 files match, expected one file of one site: a/Posts.xml, b/Posts.xml; "
        "write a source for each file"
    )
