"""Pass 2: a bucket of posts → one Document a question thread, and what becomes of every other post."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import compress

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.document import Document
from pipeline_assets.corpus.readers.stackexchange.body_text import body_text
from pipeline_assets.corpus.readers.stackexchange.buckets import Bucket, read_bucket
from pipeline_assets.corpus.readers.stackexchange.escapes import unescaped
from pipeline_assets.corpus.readers.stackexchange.posts import QUESTION, Places, Posts
from pipeline_assets.corpus.readers.stackexchange.thread_document import Site, thread_documents
from pipeline_assets.corpus.spine.ledger import Reject
from pipeline_assets.corpus.spine.worker import KILLED_WORKER, WHOLE, Window

_BATCH_POSTS = 1024


@dataclass(frozen=True)
class ThreadRules:
    """Which threads are kept, and which answers in them; None for no limit. Answers are counted last."""

    min_question_score: int | None
    min_answer_score: int | None
    min_answers: int


EVERY_THREAD = ThreadRules(None, None, 0)


@dataclass(frozen=True)
class Dropped:
    """A post that a rule keeps out: where it was, and the rule's code."""

    file: str
    row: int
    reason: str


Outcome = Document | Reject | Dropped


def read_threads(bucket: Bucket, site: Site, rules: ThreadRules, window: Window = WHOLE) -> Iterator[Outcome]:
    """What becomes of every row of a bucket: first the rejects and what the rules drop, then Documents by question id.

    The accepted answer comes first, then the others by score from high to low, then by id. A Document's posts are its
    question, at `source_row`, and those that `meta.answers` lists.

    Reject reasons: `invalid_character`, `invalid_utf8`, `missing_attribute`, `wrong_type`; `duplicate_post`, an id that
    came before in the thread; `no_question`, an answer to a question that isn't there; `killed_worker`. Dropped:
    `low_question_score`, `low_answer_score`, `few_answers`, each for every post it takes; `empty_answer`, one without
    text.

    Args:
        window: rows are numbered in the order of questions, then of the file.
    Raises:
        InputError: a spilled run is damaged.
    """
    rows = read_bucket(bucket)
    order = np.lexsort((rows.numbers, rows.keys))
    is_fatal = np.isin(np.arange(len(order)), list(window.fatal))
    in_window = slice(window.start, window.stop)
    for place in order[in_window][is_fatal[in_window]].tolist():
        yield Reject(site.source_file, int(rows.numbers[place]), KILLED_WORKER)
    places = order[in_window][~is_fatal[in_window]]
    posts = Posts(rows, places)
    places, rejects = _without_rejects(posts, places, site.source_file)
    yield from rejects
    places, dropped = _without_low_scores(posts, places, site.source_file, rules)
    yield from dropped
    yield from _documents(posts, _in_text_order(posts, places), site, rules.min_answers)


def _without_rejects(posts: Posts, places: Places, file: str) -> tuple[Places, list[Reject]]:
    """Posts of threads that have their question, each once; and what is wrong with the rest."""
    faults = {place: posts.reason(place) for place in places[posts.keys[places] < 0].tolist()}
    places = places[posts.keys[places] >= 0]
    faults |= posts.faults(places)
    places = places[~np.isin(places, list(faults))]
    keys, ids = posts.keys[places], posts.integers("Id", places)
    by_id = np.lexsort((posts.numbers[places], ids, keys))
    repeats = (np.diff(keys[by_id]) == 0) & (np.diff(ids[by_id]) == 0)
    is_repeat = np.zeros(len(places), bool)
    is_repeat[by_id[1:][repeats]] = True
    faults |= {place: ("duplicate_post", "its Id came before") for place in places[is_repeat].tolist()}
    places = places[~is_repeat]
    has_question = np.isin(posts.keys[places], posts.keys[places[_is_question(posts, places)]])
    for place in places[~has_question].tolist():
        faults[place] = "no_question", f"question {posts.keys[place]} is not in the file, or rejected"
    numbered = sorted((int(posts.numbers[place]), fault) for place, fault in faults.items())
    return places[has_question], [Reject(file, number, *fault) for number, fault in numbered]


def _is_question(posts: Posts, places: Places) -> NDArray[np.bool_]:
    return np.asarray(posts.integers("PostTypeId", places) == QUESTION)


def _without_low_scores(posts: Posts, places: Places, file: str, rules: ThreadRules) -> tuple[Places, list[Dropped]]:
    scores, is_question = posts.integers("Score", places), _is_question(posts, places)
    is_kept = np.ones(len(places), bool)
    dropped: list[Dropped] = []
    if rules.min_question_score is not None:
        low = posts.keys[places[is_question & (scores < rules.min_question_score)]]
        is_kept = ~np.isin(posts.keys[places], low)
        dropped += [Dropped(file, number, "low_question_score") for number in posts.numbers[places[~is_kept]].tolist()]
    if rules.min_answer_score is not None:
        is_low = is_kept & ~is_question & (scores < rules.min_answer_score)
        is_kept &= ~is_low
        dropped += [Dropped(file, number, "low_answer_score") for number in posts.numbers[places[is_low]].tolist()]
    return places[is_kept], dropped


def _in_text_order(posts: Posts, places: Places) -> Places:
    """Threads by id of their questions; in each the question, the accepted answer, the others by score, then id."""
    keys, ids, is_question = posts.keys[places], posts.integers("Id", places), _is_question(posts, places)
    questions = places[is_question]
    accepted = posts.integers("AcceptedAnswerId", questions)[np.searchsorted(posts.keys[questions], keys)]
    return places[np.lexsort((ids, -posts.integers("Score", places), ids != accepted, ~is_question, keys))]


def _documents(posts: Posts, places: Places, site: Site, min_answers: int) -> Iterator[Document | Dropped]:
    """Batch by batch of whole threads."""
    questions = np.flatnonzero(_is_question(posts, places))
    start = 0
    while start < len(places):
        later = np.searchsorted(questions, start + _BATCH_POSTS)
        stop = int(questions[later]) if later < len(questions) else len(places)
        yield from _batch(posts, places[start:stop], site, min_answers)
        start = stop


def _batch(posts: Posts, places: Places, site: Site, min_answers: int) -> Iterator[Document | Dropped]:
    bodies = "\0".join(body or "" for body in posts.texts("Body", places))  # a character that XML doesn't have
    texts = [body_text(body) for body in unescaped(bodies).split("\0")]
    is_question = _is_question(posts, places)
    is_kept = is_question | np.fromiter(map(bool, texts), bool, len(texts))
    for number in posts.numbers[places[~is_kept]].tolist():
        yield Dropped(site.source_file, number, "empty_answer")
    firsts = np.flatnonzero(is_question[is_kept])
    sizes = np.diff(firsts, append=is_kept.sum())
    has_answers = np.repeat(sizes > min_answers, sizes)
    for number in posts.numbers[places[is_kept][~has_answers]].tolist():
        yield Dropped(site.source_file, number, "few_answers")
    is_kept[is_kept] = has_answers
    kept_texts = list(compress(texts, is_kept.tolist()))
    yield from thread_documents(posts, places[is_kept], sizes[sizes > min_answers].tolist(), kept_texts, site)
