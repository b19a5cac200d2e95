"""Threads of real and synthetic sites equal those of an independent reader."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from plain_stackexchange import read_site
from posts_xml import answer, dump, question, site
from real_samples import sample

from pipeline_assets.corpus.document import Document
from pipeline_assets.corpus.readers.stackexchange.threads import Outcome
from pipeline_assets.spine.rejects import Reject
from pipeline_assets.spine.stage import Window

SITES = ["beer.stackexchange.com", "coffee.stackexchange.com", "conlang.meta.stackexchange.com"]
Read = Callable[..., list[Outcome]]
ReadDocuments = Callable[..., list[Document]]


@pytest.fixture
def find_posts(real: bool, tmp_path: Path) -> Callable[[str], Path]:
    """Return a function that finds the Posts.xml of a site or writes one."""

    def posts(name: str) -> Path:
        if real:
            return sample(f"stackexchange/{name}/Posts.xml")
        path = tmp_path / name / "Posts.xml"
        path.parent.mkdir()
        path.write_bytes(build_site(name))
        return path

    return posts


def build_site(name: str) -> bytes:
    """Build a dump of 120 questions, some empty answers and one orphaned answer."""
    draw, rows = random.Random(name), []
    for number in range(1, 600, 5):
        answers = draw.randint(0, 3)
        title = f"How is {draw.choice(['beer', 'tea'])} {number} made & kept?"
        accepted = number + answers if answers and draw.random() < 0.5 else None
        rows.append(question(number, Title=title, Body=build_body(draw), AcceptedAnswerId=accepted))
        for offset in range(1, answers + 1):
            body = "" if draw.random() < 0.1 else build_body(draw)
            rows.append(answer(number + offset, number, Body=body, Score=draw.randint(-2, 9)))
    draw.shuffle(rows)
    return dump(*rows, answer(9_999, 9_998))


def build_body(draw: random.Random) -> str:
    """Return one to five blocks of HTML, some of them empty."""
    words = " ".join(draw.choices(["hops", "malt", "<em>yeast</em>", "water &amp; salt", "8 &lt; 9", "über"], k=12))
    blocks = [
        f"<p>{words}<br>{words}</p>",
        f"<ul>\n<li>{words}</li>\n<li><p>{words}</p><ol><li>deep</li></ol></li>\n</ul>",
        f"<pre><code>if malt &gt; 5:\n\t{draw.randint(0, 9)}\n</code></pre>",
        f"<blockquote><p>{words}</p></blockquote><h2>{words}</h2>",
        f'<p><a href="x">{words}</a> m<sup>2</sup> <img src="y" alt="a keg"></p>',
        "<p></p>",
    ]
    return "\n\n".join(draw.choices(blocks, k=draw.randint(1, 5)))


def keep_documents(outcomes: list[Outcome]) -> list[Document]:
    return [outcome for outcome in outcomes if isinstance(outcome, Document)]


@pytest.mark.parametrize("name", SITES)
def test_an_independent_reader_finds_the_same_threads(read: Read, find_posts: Callable[[str], Path], name: str) -> None:
    posts = find_posts(name)
    reference = read_site(posts)

    outcomes = read(posts, site(name), file="Posts.xml")

    documents = keep_documents(outcomes)
    assert len(documents) > 20
    assert [document.text for document in documents] == [thread.text for thread in reference.threads]
    for document, thread in zip(documents, reference.threads, strict=True):
        assert document.doc_id == f"stackexchange:{name}:{thread.question['Id']}"
        assert document.meta.source_row == int(thread.question["row"])
        assert document.meta.title == thread.question["Title"]
        assert [answer["source_row"] for answer in document.meta.columns()["answers"]] == [
            int(post["row"]) for post in thread.answers
        ]
    assert outcomes.count("empty_answer") == reference.not_used["empty_answer"]
    lost = [reject for reject in outcomes if isinstance(reject, Reject) and reject.reason == "no_question"]
    assert len(lost) == reference.not_used["no_question"]


@pytest.mark.real
@pytest.mark.parametrize("name", SITES[:2])
def test_a_real_archive_equals_the_file_in_it(read: Read, name: str) -> None:
    assert read(sample(f"stackexchange/{name}.7z")) == read(sample(f"stackexchange/{name}/Posts.xml"))


def test_documents_do_not_depend_on_sizes_of_runs_and_buckets(read: Read, find_posts: Callable[[str], Path]) -> None:
    posts = find_posts(SITES[1])

    whole = read(posts)
    split = read(posts, run_bytes=50_000, bucket_bytes=60_000)

    assert len(keep_documents(whole)) > 20
    assert keep_documents(split) == keep_documents(whole)


def test_the_accepted_answer_is_first_then_answers_by_score_and_age(read_documents: ReadDocuments) -> None:
    answers = [answer(n, 1, Score=score) for n, score in ((2, 5), (3, 9), (4, -1), (5, 9))]
    rows = [answers[0], question(1, AcceptedAnswerId=4), *answers[1:]]  # in any order of rows

    [document] = read_documents(dump(*rows))

    order = ["Title 1", "Body 1", "Answer:", "Body 4", "Answer:", "Body 3", "Answer:", "Body 5", "Answer:", "Body 2"]
    assert document.text == "\n\n".join(order)
    assert document.meta.source_file == "garden.7z"


def test_the_date_of_a_licence_is_in_utc(read_documents: ReadDocuments) -> None:
    [document] = read_documents(dump(question(1, CreationDate="2018-05-01T23:00:00-05:00")))

    assert (document.license_tag, document.meta.license_evidence) == ("cc-by-sa-4.0", "date: 2018-05-02")


def test_a_poison_row_is_rejected_unread(read: Read) -> None:
    outcomes = read(dump(question(1), answer(2, 1), question(3)), window=Window(poison_rows=frozenset({1})))

    assert [document.text for document in keep_documents(outcomes)] == ["Title 1\n\nBody 1", "Title 3\n\nBody 3"]
    assert outcomes[0] == Reject("garden.7z", 1, "killed_worker")


@pytest.mark.parametrize(
    ("rules", "texts"),
    [
        ({"min_answers": 1}, ["Title 1\n\nBody 1\n\nAnswer:\n\nBody 2\n\nAnswer:\n\nBody 3"]),
        ({"min_question_score": 4}, ["Title 9\n\nBody 9"]),
        ({"min_answer_score": 2}, ["Title 1\n\nBody 1\n\nAnswer:\n\nBody 2", "Title 9\n\nBody 9"]),
    ],
)
def test_rules_drop_threads_and_answers_and_count_them(read: Read, rules: dict[str, int], texts: list[str]) -> None:
    rows = [question(1, Score=3), answer(2, 1, Score=2), answer(3, 1, Score=1), question(9, Score=4)]

    outcomes = read(dump(*rows), site(**rules))

    assert [document.text for document in keep_documents(outcomes)] == texts
    used = sum(1 + len(document.meta.columns()["answers"]) for document in keep_documents(outcomes))
    assert used + sum(isinstance(outcome, str) for outcome in outcomes) == len(rows)
