"""Rows of a Stack Exchange site → one Document per question thread.

The text of a Document is the title, the question, and each answer after a line `Answer:`, separated by blank lines.
User names are omitted; `meta` has the account ids and the URL of the thread, as the licence requires for attribution.

Contributions before 2011-04-08 (UTC) are under CC BY-SA 2.5, from then until 2018-05-01 under 3.0, later ones under 4.0
(stackoverflow.com/help/licensing). Newer dumps state the licence of each post in `ContentLicense`. A thread has the
newest licence of its posts, because each version allows adaptations under a later version (2.5 §4b, 3.0 §4b). `meta`
keeps the stated licence of each post. If one post has an unknown licence, the thread is `unknown`.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Annotated

import pydantic

from pipeline_assets.corpus.document import Document, Meta, to_iso_time
from pipeline_assets.corpus.licences import UNKNOWN, LicenceTag
from pipeline_assets.corpus.readers.faults import Fault
from pipeline_assets.corpus.readers.stackexchange.body_text import body_text
from pipeline_assets.corpus.readers.stackexchange.posts import QUESTION, Post
from pipeline_assets.corpus.readers.stackexchange.spill import Bucket, read_bucket
from pipeline_assets.spine.command_option import Option
from pipeline_assets.spine.key_types import pattern_rule
from pipeline_assets.spine.rejects import Reject
from pipeline_assets.spine.section import RecipeSection
from pipeline_assets.spine.stage import KILLED_WORKER, WHOLE_SHARD, Window

_LICENCES = (("2018-05-02", "cc-by-sa-4.0"), ("2011-04-08", "cc-by-sa-3.0"), ("", "cc-by-sa-2.5"))
_LICENCE_NAME = re.compile(r"CC BY-SA (2\.5|3\.0|4\.0)")
_TAG_NAME = re.compile(r"[^<>|]+")  # old dumps write `<a><b>`, newer ones `|a|b|`
_META_FIELDS = Post.__struct_fields__[7:-1]  # `score` and the fields after it


_HOST_RULE = "must be a host name in lower case, such as beer.stackexchange.com"
Host = Annotated[str, pattern_rule(r"[a-z0-9-]+(\.[a-z0-9-]+)+", _HOST_RULE)]


class SiteRecipe(RecipeSection):
    """Stack Exchange site, with rules for its threads and answers.

    Attributes:
        host: Host name of the site, such as `beer.stackexchange.com`; ids and URLs contain it.
        min_answers: Minimum number of answers in a thread, counting only answers with text and the minimum score.
    """

    source: str
    domain: Annotated[str, Option("Domain label of the documents.")] = "questions"
    host: Host
    min_question_score: Annotated[int | None, Option("Minimum score of a question.")] = None
    min_answer_score: Annotated[int | None, Option("Minimum score of an answer.")] = None
    min_answers: Annotated[int, Option("Minimum number of answers in a thread.")] = pydantic.Field(0, ge=0)


Outcome = Document | Reject | str
"""Result for a post; a string is the code of the rule that dropped it."""


def read_threads(bucket: Bucket, file_name: str, recipe: SiteRecipe, window: Window = WHOLE_SHARD) -> Iterator[Outcome]:
    """Join the posts in a window of a bucket; yield Documents, rejects and drop codes.

    A Document contains a question and its answers; a reject or code is for a single row. Order: first rejects of poison
    rows, then Documents and codes by question id, then other rejects by row. In a Document, the accepted answer comes
    first, then the others by descending score, then by id. `source_row` is the row of the question; `answers` in `meta`
    has the rows of the answers. `window` has positions in the bucket, whose rows are sorted by question id and row
    number. `file_name` is the name of the dump in the manifest.

    Reject reasons: `invalid_character`, `invalid_utf8`, `malformed_row`, `missing_attribute`, `wrong_type`;
    `duplicate_post`, an id that occurred earlier in the thread; `no_question`, an answer without its question;
    `killed_worker`. Codes, one per dropped post: `low_question_score`, `low_answer_score`, `few_answers`,
    `empty_answer`.
    """
    rows = []
    for position, row in window.enumerate_rows(read_bucket(bucket), 0):
        if position in window.poison_rows:
            yield Reject(file_name, row[1], KILLED_WORKER)
        else:
            rows.append(row)
    rejects: list[Reject] = []
    for question_id, thread_rows in groupby(rows, itemgetter(0)):
        posts: dict[int, Post] = {}
        for _, number, post in thread_rows:
            if isinstance(post, Fault):
                rejects.append(post.to_reject(file_name, number))
            elif post.id in posts:
                rejects.append(Reject(file_name, number, "duplicate_post", "its Id came before"))
            else:
                posts[post.id], post.row = post, number
        if any(post.post_type_id == QUESTION for post in posts.values()):
            yield from _convert_thread(posts.values(), file_name, recipe)
        else:
            detail = f"question {question_id} is not in the file, or rejected"
            rejects += [Reject(file_name, post.row, "no_question", detail) for post in posts.values()]
    yield from sorted(rejects, key=attrgetter("row"))


def _convert_thread(posts: Collection[Post], file_name: str, recipe: SiteRecipe) -> Iterator[Document | str]:
    """Yield a drop code for each dropped post, then the thread's Document, if any."""
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
        yield _build_document(question, answers, file_name, recipe)


def _build_document(
    question: Post, answers: Sequence[tuple[Post, str]], file_name: str, recipe: SiteRecipe
) -> Document:
    """Build a Document from a question and its answers, each paired with its text."""
    posts = [question, *(post for post, _ in answers)]
    licences = [_post_licence(post.content_license, to_iso_time(post.creation_date)[:10]) for post in posts]
    licence = _thread_licence(licences)
    parts = [" ".join((question.title or "").split()), body_text(question.body)]
    parts += [f"Answer:\n\n{text}" for _, text in answers]
    columns = {
        "site": recipe.host,
        "url": f"https://{recipe.host}/questions/{question.id}",
        "title": question.title or "",
        **{name: getattr(question, name) for name in _META_FIELDS},
        "tags": _TAG_NAME.findall(question.tags or ""),
        "answers": [
            {
                "id": post.id,
                "score": post.score,
                "owner_user_id": post.owner_user_id,
                "created_at": to_iso_time(post.creation_date),
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
        created_at=to_iso_time(question.creation_date),
        meta=Meta.from_mapping(file_name, question.row, columns, licence.evidence),
    )


@lru_cache(maxsize=10_000)
def _post_licence(content_license: str | None, created_on: str) -> LicenceTag:
    """Return a post's licence from `ContentLicense`; if missing, from its UTC date."""
    if content_license is not None:
        version = _LICENCE_NAME.fullmatch(content_license)
        tag = f"cc-by-sa-{version[1]}" if version else UNKNOWN
        return LicenceTag(tag, "row: ContentLicense" if version else f"row: ContentLicense {content_license}")
    tag = next(tag for since, tag in _LICENCES if created_on >= since)
    return LicenceTag(tag, f"date: {created_on}")


def _thread_licence(licences: Sequence[LicenceTag]) -> LicenceTag:
    """Return the newest licence of the posts; `unknown` if any of them is unknown."""
    if len({licence.tag for licence in licences}) == 1:
        return licences[0]
    tags = Counter(licence.tag for licence in licences)
    newest = max(licences, key=lambda licence: (licence.tag == UNKNOWN, licence.tag))
    counted = ", ".join(f"{count} {tag}" for tag, count in sorted(tags.items()))
    return LicenceTag(newest.tag, f"{newest.evidence}; newest of {counted}")
