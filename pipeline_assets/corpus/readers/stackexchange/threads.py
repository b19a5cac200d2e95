"""The spilled rows of a site → one Document a question thread, and what becomes of every other post.

A Document's text is the title, the question, and each answer under a line `Answer:`, a blank line between each:

    Why is the sky blue?

    My teacher says it reflects the sea.

    Answer:

    Rayleigh scattering.

Names of users are left out. The ids of their accounts, and the address of the thread, by which the licence asks to
name them, are in `meta`.

Contributions before 2011-04-08 (UTC) are under CC BY-SA 2.5, from then to before 2018-05-02 under 3.0, from then on
under 4.0 (stackoverflow.com/help/licensing). Newer dumps say it for each post in `ContentLicense`. A thread is tagged
with the newest licence of its posts: each version lets an adaptation, as a joined text is, be under a later one (2.5
§4b, 3.0 §4b). Each post's own stays in `meta`. One post of an unknown licence makes it `unknown`.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Annotated

import pydantic

from pipeline_assets.corpus.document import Document, Meta, parse_moment
from pipeline_assets.corpus.licences import UNKNOWN, Licensed
from pipeline_assets.corpus.readers.columns import Fault
from pipeline_assets.corpus.readers.stackexchange.body_text import body_text
from pipeline_assets.corpus.readers.stackexchange.posts import QUESTION, Post
from pipeline_assets.corpus.readers.stackexchange.spill import Bucket, read_bucket
from pipeline_assets.spine.ledger import Reject
from pipeline_assets.spine.section import Option, RecipeSection
from pipeline_assets.spine.stage import KILLED_WORKER, WHOLE, Window

_SINCE = (("2018-05-02", "cc-by-sa-4.0"), ("2011-04-08", "cc-by-sa-3.0"), ("", "cc-by-sa-2.5"))
_LICENCE_NAME = re.compile(r"CC BY-SA (2\.5|3\.0|4\.0)")
_TAG_NAME = re.compile(r"[^<>|]+")  # in `<a><b>`, as it was, and in `|a|b|`, as newer dumps have it
_META = Post.__struct_fields__[7:-1]  # from `score` on


class SiteRecipe(RecipeSection):
    """One site, and which of its threads are kept, and which answers in them.

    Attributes:
        host: `beer.stackexchange.com`.
        min_answers: answers that are kept count.
    """

    source: str
    domain: Annotated[str, Option("What kind of text.")] = "questions"
    host: str
    min_question_score: Annotated[int | None, Option("Threads below are left out.")] = None
    min_answer_score: Annotated[int | None, Option("Answers below are left out.")] = None
    min_answers: Annotated[int, Option("Threads with fewer are left out.")] = pydantic.Field(0, ge=0)


Outcome = Document | Reject | str
"""Of a post that a rule keeps out, the rule's code."""


def read_threads(bucket: Bucket, file: str, recipe: SiteRecipe, window: Window = WHOLE) -> Iterator[Outcome]:
    """What becomes of every row of a bucket: Documents by question id and what the rules drop; last the rejects by row.

    The accepted answer comes first, then the others by score from high to low, then by id. A Document's posts are its
    question, at `source_row`, and those that `answers` lists, in `extra` of its `meta`.

    Reject reasons: `invalid_character`, `invalid_utf8`, `malformed_row`, `missing_attribute`, `wrong_type`;
    `duplicate_post`, an id that came before in the thread; `no_question`, an answer to a question that isn't there;
    `killed_worker`, which come first. Dropped: `low_question_score`, `low_answer_score`, `few_answers`, each for every
    post it takes; `empty_answer`, one without text.

    Args:
        file: the dump's, as the manifest lists it.
        window: rows are numbered in the order of questions, then of the file.
    Raises:
        InputError: a spilled run is damaged.
    """
    rows = []
    for place, row in window.enumerate_rows(read_bucket(bucket), 0):
        if place in window.poison_rows:
            yield Reject(file, row[1], KILLED_WORKER)
        else:
            rows.append(row)
    rejects: list[Reject] = []
    for question_id, members in groupby(rows, itemgetter(0)):
        posts: dict[int, Post] = {}
        for _, number, said in members:
            if isinstance(said, Fault):
                rejects.append(said.rejected(file, number))
            elif said.id in posts:
                rejects.append(Reject(file, number, "duplicate_post", "its Id came before"))
            else:
                posts[said.id], said.row = said, number
        if any(post.post_type_id == QUESTION for post in posts.values()):
            yield from _thread(posts.values(), file, recipe)
        else:
            detail = f"question {question_id} is not in the file, or rejected"
            rejects += [Reject(file, post.row, "no_question", detail) for post in posts.values()]
    yield from sorted(rejects, key=attrgetter("row"))


def _thread(posts: Collection[Post], file: str, recipe: SiteRecipe) -> Iterator[Document | str]:
    """Yield the Document of the posts of one thread, and for each post that is not in it the code of a rule."""
    [question] = (post for post in posts if post.post_type_id == QUESTION)
    if recipe.min_question_score is not None and question.score < recipe.min_question_score:
        yield from ["low_question_score"] * len(posts)
        return
    answers: list[tuple[Post, str]] = []
    accepted = question.accepted_answer_id
    for post in sorted(posts, key=lambda post: (post.id != accepted, -post.score, post.id)):
        if post is question:
            continue
        if recipe.min_answer_score is not None and post.score < recipe.min_answer_score:
            yield "low_answer_score"
        elif text := body_text(post.body):
            answers.append((post, text))
        else:
            yield "empty_answer"
    if len(answers) < recipe.min_answers:
        yield from ["few_answers"] * (1 + len(answers))
    else:
        yield _document(question, answers, file, recipe)


def _document(question: Post, answers: Sequence[tuple[Post, str]], file: str, recipe: SiteRecipe) -> Document:
    """Of a question and its answers, with their texts."""
    posts = [question, *(post for post, _ in answers)]
    licences = [_licence_of_post(post.content_license, post.creation_date[:10]) for post in posts]
    licence = _licence_of_thread(licences)
    parts = [" ".join((question.title or "").split()), body_text(question.body)]
    parts += [f"Answer:\n\n{text}" for _, text in answers]
    columns = {
        "site": recipe.host,
        "url": f"https://{recipe.host}/questions/{question.id}",
        "title": question.title or "",
        **{name: getattr(question, name) for name in _META},
        "tags": _TAG_NAME.findall(question.tags or ""),
        "answers": [
            {
                "id": post.id,
                "score": post.score,
                "owner_user_id": post.owner_user_id,
                "created_at": parse_moment(post.creation_date),
                "license_tag": licence.tag,
                "source_row": post.row,
            }
            for post, licence in zip(posts[1:], licences[1:], strict=True)
        ],
    }
    return Document(
        text="\n\n".join(filter(None, parts)),
        source=recipe.source,
        domain=recipe.domain,
        doc_id=f"stackexchange:{recipe.host}:{question.id}",
        license_tag=licence.tag,
        created_at=parse_moment(question.creation_date),
        meta=Meta.from_mapping(file, question.row, columns, licence.evidence),
    )


@lru_cache(maxsize=10_000)
def _licence_of_post(content_license: str | None, created_on: str) -> Licensed:
    """By the attribute, None where the dump has none; else by the post's date, ISO 8601 and UTC."""
    if content_license is not None:
        version = _LICENCE_NAME.fullmatch(content_license)
        tag = f"cc-by-sa-{version[1]}" if version else UNKNOWN
        return Licensed(tag, "row: ContentLicense" if version else f"row: ContentLicense {content_license}")
    tag = next(tag for since, tag in _SINCE if created_on >= since)
    return Licensed(tag, f"date: {created_on}")


def _licence_of_thread(posts: Sequence[Licensed]) -> Licensed:
    """The newest licence of its posts, the question's first; the evidence counts them if they differ."""
    if len({licence.tag for licence in posts}) == 1:
        return posts[0]
    tags = Counter(licence.tag for licence in posts)
    newest = max(posts, key=lambda licence: (licence.tag == UNKNOWN, licence.tag))
    counted = ", ".join(f"{count} {tag}" for tag, count in sorted(tags.items()))
    return Licensed(newest.tag, f"{newest.evidence}; newest of {counted}")
