"""The Document of a question thread.

Its text is the title, the question, and each answer under a line `Answer:`, a blank line between each:

    Why is the sky blue?

    My teacher says it reflects the sea.

    Answer:

    Rayleigh scattering.

Names of users are left out. The ids of their accounts, and the address of the thread, by which the licence asks to
name them, are in `meta`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from pipeline_assets.corpus.document import Document
from pipeline_assets.corpus.readers.stackexchange.escapes import tag_names, unescaped
from pipeline_assets.corpus.readers.stackexchange.licences import Licence, licence_of_post, licence_of_thread
from pipeline_assets.corpus.readers.stackexchange.posts import Places, Posts

_INTEGERS = {
    "score": "Score",
    "view_count": "ViewCount",
    "answer_count": "AnswerCount",
    "comment_count": "CommentCount",
    "favorite_count": "FavoriteCount",
    "accepted_answer_id": "AcceptedAnswerId",
    "owner_user_id": "OwnerUserId",
}
_TEXTS = {
    "last_edit_date": "LastEditDate",
    "last_activity_date": "LastActivityDate",
    "closed_date": "ClosedDate",
    "community_owned_date": "CommunityOwnedDate",
    "content_license": "ContentLicense",
}


@dataclass(frozen=True)
class Site:
    """Where posts come from.

    Attributes:
        host: `beer.stackexchange.com`.
        source_file: the dump's file, as the manifest lists it.
        source, domain: of the Documents.
    """

    host: str
    source_file: str
    source: str
    domain: str


def thread_documents(
    posts: Posts, places: Places, sizes: Sequence[int], texts: Sequence[str], site: Site
) -> Iterator[Document]:
    """
    Args:
        places: posts of threads, one thread behind the other, each with its question first.
        sizes: posts, by thread.
        texts: of the posts.
    """
    if not sizes:
        return
    created = [date or "" for date in posts.texts("CreationDate", places)]
    tags = posts.texts("ContentLicense", places)
    licences = [licence_of_post(tag, date[:10]) for tag, date in zip(tags, created, strict=True)]
    rows = posts.numbers[places].tolist()
    answers = _answers(posts, places, created, licences, rows)
    stops = list(accumulate(sizes))
    firsts = [0, *stops[:-1]]
    questions = places[firsts]
    titles = posts.texts("Title", questions)
    thread_licences = [licence_of_thread(licences[first:stop]) for first, stop in zip(firsts, stops, strict=True)]
    question_ids = posts.integers("Id", questions).tolist()
    columns = {
        "site": [site.host] * len(firsts),
        "url": [f"https://{site.host}/questions/{question_id}" for question_id in question_ids],
        **_question_columns(posts, questions),
        "license_evidence": [licence.evidence for licence in thread_licences],
        "answers": [answers[first + 1 : stop] for first, stop in zip(firsts, stops, strict=True)],
        "source_file": [site.source_file] * len(firsts),
        "source_row": [rows[first] for first in firsts],
    }
    names, metas = tuple(columns), zip(*columns.values(), strict=True)
    threads = zip(firsts, stops, question_ids, titles, thread_licences, metas, strict=True)
    for first, stop, question_id, title, licence, meta in threads:
        parts = [" ".join(unescaped(title or "").split()), texts[first]]
        parts += [f"Answer:\n\n{text}" for text in texts[first + 1 : stop]]
        yield Document(
            text="\n\n".join(filter(None, parts)),
            source=site.source,
            domain=site.domain,
            doc_id=f"stackexchange:{site.host}:{question_id}",
            license_tag=licence.tag,
            created_at=created[first],
            meta=dict(zip(names, meta, strict=True)),
        )


def _answers(
    posts: Posts, places: Places, created: Sequence[str], licences: Sequence[Licence], rows: Sequence[int]
) -> list[dict[str, Any]]:
    """What `meta` says of each post, were it an answer."""
    ids, scores = posts.integers("Id", places).tolist(), posts.integers("Score", places).tolist()
    owners = posts.optional_integers("OwnerUserId", places)
    return [
        {
            "id": post_id,
            "score": score,
            "owner_user_id": owner,
            "created_at": date,
            "license_tag": licence.tag,
            "source_row": row,
        }
        for post_id, score, owner, date, licence, row in zip(ids, scores, owners, created, licences, rows, strict=True)
    ]


def _question_columns(posts: Posts, questions: Places) -> dict[str, Sequence[Any]]:
    """The columns of questions that `meta` keeps, under their names in snake case."""
    columns: dict[str, Sequence[Any]] = {
        name: posts.optional_integers(attribute, questions) for name, attribute in _INTEGERS.items()
    }
    columns |= {name: posts.texts(attribute, questions) for name, attribute in _TEXTS.items()}
    return columns | {"tags": [tag_names(tags) for tags in posts.texts("Tags", questions)]}
