"""Five small sources of stage A in their real formats, and an evaluation set; with planted copies, leaks and bad rows.

| source | format | text |
|---|---|---|
| python_help | Parquet of a hub dataset, in FineWeb-Edu's columns | what `help()` says in the running Python |
| wikipedia_en | wikiextractor's `<doc>` elements, bzip2 | made up |
| coffee.stackexchange.com | `Posts.xml` | made up |
| notes | JSON lines and text files | made up; copies of pages of wikipedia_en |
| papers | Parquet with a nested column | made up |
| quiz | JSON lines: the evaluation set | sentences of a page and of a paper, and others |

What is made up is the same in every Python; what a file says already isn't written again.
"""

import bz2
import html
import io
import json
import sysconfig
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline_assets.corpus.spine import durable
from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.demo_corpus import FINEWEB_EDU_SCHEMA, Row, columns, urn
from pipeline_assets.demo_pages import help_topics, reads_as_english, split_page
from pipeline_assets.demo_sentences import paragraphs, place_name, sentence

HELP_DATASET = "corpusmill/python-help"
SITE = "coffee.stackexchange.com"
SOURCES_FOLDER = "sources"
_HELP_PAGE_CHARACTERS = 2_000
_ROWS_PER_GROUP = 25
_PAGES, _QUESTIONS, _NOTES, _PAPERS = 48, 40, 36, 40
_COPIED_PAGES, _REVISED_PAGES = (2, 3, 5), (9, 10)
_LEAKED_PAGE, _LEAKED_PAPER = 20, 12

HELP_CARD = """---
license: other
license_name: psf-2.0
license_link: https://docs.python.org/3/license.html
language:
- en
pretty_name: What help() says
configs:
- config_name: default
  data_files:
  - split: train
    path: data/*.parquet
---
# What help() says

Help topics that ship with Python, under the Python Software Foundation licence (PSF-2.0), in FineWeb-Edu's columns, for
work without a network. Only the texts are real: scores, dumps and addresses come from hashes. One row repeats an id.
"""


def write_help_dataset(folder: Path) -> None:
    """The hub dataset: two Parquet files and a card, which comes last.

    Raises:
        InputError: this Python ships no help topics.
    """
    topics = Path(sysconfig.get_path("stdlib")) / "pydoc_data" / "topics.py"
    pages = [page for topic in help_topics(topics) for page in split_page(topic, _HELP_PAGE_CHARACTERS)]
    rows = [
        Row(page.text, urn(f"{page.url}#{number}"), "help", page.url)
        for number, page in enumerate(pages)
        if reads_as_english(page.text)
    ]
    if not rows:
        raise InputError("no help topics found", topics, "run a Python installed with its .py files")
    rows.append(next(row for row in rows if float(columns(row)["score"]) >= 3))
    half = len(rows) // 2
    for number, part in enumerate((rows[:half], rows[half:])):
        table = pa.Table.from_pylist([columns(row) for row in part], schema=FINEWEB_EDU_SCHEMA)
        _write(folder / "data" / f"train-{number:05d}-of-00002.parquet", _parquet(table))
    _write(folder / "README.md", HELP_CARD.encode())


def write_sources(folder: Path) -> None:
    """The four sources of files, and the evaluation set, a folder each."""
    pages, papers = _wikipedia_texts(), _paper_texts()
    _write_wikipedia(folder / "wikipedia", pages)
    _write_site(folder / SITE)
    _write_notes(folder / "notes", [f"{place_name(number)}\n\n{text}" for number, text in enumerate(pages)])
    _write_papers(folder / "papers", papers)
    _write_quiz(folder / "quiz", [_first_sentences(pages[_LEAKED_PAGE]), _first_sentences(papers[_LEAKED_PAPER])])


def _wikipedia_texts() -> list[str]:
    """Every twelfth page is a stub of one sentence; every twelfth has nothing but its title, as redirects do."""
    texts = []
    for number in range(_PAGES):
        draw = Random(f"page {number}")
        match number % 12:
            case 7:
                texts.append("")
            case 11:
                texts.append(sentence(draw))
            case _:
                lead = f"{place_name(number)} is a village of {draw.randrange(200, 9000)} inhabitants."
                texts.append("\n\n".join([lead, *paragraphs(draw, draw.randrange(2, 5))]))
    return texts


def _write_wikipedia(folder: Path, texts: list[str]) -> None:
    half = len(texts) // 2
    for file in range(2):
        pages = []
        for number in range(file * half, file * half + half):
            title, url = place_name(number), f"https://en.wikipedia.org/wiki?curid={number + 1}"
            text = html.escape(texts[number], quote=False)
            pages.append(f'<doc id="{number + 1}" url="{url}" title="{title}">\n{title}\n\n{text}\n\n</doc>\n')
        _write(folder / "AA" / f"wiki_{file:02d}.bz2", bz2.compress("".join(pages).encode()))


def _write_site(folder: Path) -> None:
    """Questions with two answers each. Every fifth question has a score of 0; the last one is deleted, its answers are
    not.
    """
    rows = []
    for number in range(_QUESTIONS):
        draw, first = Random(f"question {number}"), 3 * number + 1
        date = f"{2011 + number % 14}-03-{number % 28 + 1:02d}T05:06:07.890"
        if number < _QUESTIONS - 1:
            title = f"Why is coffee from {place_name(number)} so {draw.choice(('bitter', 'sour', 'strong', 'weak'))}?"
            rows.append(
                f'<row Id="{first}" PostTypeId="1" CreationDate="{date}" Score="{number % 5}" ViewCount="9"'
                f' Body="{_body(draw)}" Title="{title}" Tags="&lt;taste&gt;" AcceptedAnswerId="{first + 2}"'
                f' AnswerCount="2" />'
            )
        for answer in (1, 2):
            rows.append(
                f'<row Id="{first + answer}" PostTypeId="2" ParentId="{first}" CreationDate="{date}"'
                f' Score="{answer}" Body="{_body(draw)}" />'
            )
    lines = "".join(f"  {row}\n" for row in rows)
    _write(folder / "Posts.xml", f'\ufeff<?xml version="1.0" encoding="utf-8"?>\n<posts>\n{lines}</posts>\n'.encode())


def _body(draw: Random) -> str:
    return html.escape("".join(f"<p>{text}</p>" for text in paragraphs(draw, 1, 4)))


def _write_notes(folder: Path, pages: list[str]) -> None:
    """Lines of several licences, two of which are refused; pages again, word by word or with a word changed; a line
    that is cut off, and one without text. And four text files.

    Args:
        pages: as Documents have them, with their titles.
    """
    texts = ["\n".join(paragraphs(Random(f"note {number}"), 2)) for number in range(_NOTES)]
    texts += [pages[number] for number in _COPIED_PAGES]
    texts += [pages[number].replace(" harbour", " jetty") + " So they say." for number in _REVISED_PAGES]
    licences = ("MIT", "CC BY-SA 4.0", None)
    rows = [
        {"text": text, "key": f"note-{number}", "license": "proprietary" if number in (4, 5) else licences[number % 3]}
        for number, text in enumerate(texts)
    ]
    rows.append({"text": "", "key": "note-empty", "license": None})
    lines = [json.dumps(row) + "\n" for row in rows]
    lines.insert(10, lines[10][:40] + "\n")
    _write(folder / "notes.jsonl", "".join(lines).encode())
    for number in range(4):
        text = "\n\n".join(paragraphs(Random(f"text {number}"), 3)) + f"\n\nWrite to clerk{number}@{SITE}.\n"
        _write(folder / "texts" / f"{number}.txt", text.encode())


def _paper_texts() -> list[str]:
    """Every eighth is mostly what the publisher says on every page."""
    texts = []
    for number in range(_PAPERS):
        parts = paragraphs(Random(f"paper {number}"), 4)
        texts.append(
            "\n".join([*parts[:1], *["All rights reserved by the publisher."] * 4] if number % 8 == 7 else parts)
        )
    return texts


def _write_papers(folder: Path, texts: list[str]) -> None:
    rows = [
        {
            "doi": f"10.5555/demo.{number}",
            "body": {"title": f"On {place_name(number)}", "text": text},
            "published": f"{2001 + number % 20}-01-01",
            "license": "CC0-1.0" if number % 4 == 3 else "CC-BY-4.0",
        }
        for number, text in enumerate(texts)
    ]
    _write(folder / "papers.parquet", _parquet(pa.Table.from_pylist(rows)))


def _write_quiz(folder: Path, leaked: list[str]) -> None:
    others = [" ".join(sentence(Random(f"item {number}")) for _ in range(2)) for number in range(4)]
    rows = [{"id": f"q-{number}", "question": item} for number, item in enumerate([*leaked, *others, "Too short?"])]
    _write(folder / "quiz.jsonl", "".join(json.dumps(row) + "\n" for row in rows).encode())


def _first_sentences(text: str) -> str:
    """Two of its first paragraph of several sentences."""
    longest = next(paragraph for paragraph in text.splitlines() if paragraph.count(". ") > 1)
    return ". ".join(longest.split(". ")[:2]) + "."


def _parquet(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=_ROWS_PER_GROUP, compression="zstd")
    return sink.getvalue()


def _write(path: Path, data: bytes) -> None:
    """Files keep their times where nothing changed: what was made of them stays current."""
    if not path.is_file() or path.read_bytes() != data:
        durable.make_folder(path.parent)
        durable.write_durably(path, data)
