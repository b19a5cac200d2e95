"""Four small sources of stage A in their real formats, and an evaluation set; with planted copies, leaks and bad rows.

| source | format | text |
|---|---|---|
| wikipedia_en | wikiextractor's `<doc>` elements, bzip2 | made up |
| coffee.stackexchange.com | `Posts.xml` | made up |
| notes | JSON lines and text files | made up; copies of pages of wikipedia_en |
| papers | Parquet with a nested column | made up |
| quiz | JSON lines: the evaluation set | sentences of a page and of a paper, and others |

What is made up is the same in every Python; what a file says already isn't written again.
"""

import bz2
import html
import json
from pathlib import Path
from random import Random

import pyarrow as pa

from pipeline_assets.demo_library import parquet, write_changed

SITE = "coffee.stackexchange.com"
SOURCES_FOLDER = "sources"
_ROWS_PER_GROUP = 25
_PAGES, _QUESTIONS, _NOTES, _PAPERS = 48, 40, 36, 40
_COPIED_PAGES, _REVISED_PAGES = (2, 3, 5), (9, 10)
_LEAKED_PAGE, _LEAKED_PAPER = 20, 12


def _words(text: str, separator: str = " ") -> list[str]:
    return " ".join(text.split()).split(separator)


_ADJECTIVES = _words("""
    old new quiet narrow broad distant early late common rare bright dark heavy light northern southern wooden
    stone shallow deep gentle steep busy empty""")
_NOUNS = _words("""
    harbour valley market bridge orchard mill library garden river forest workshop station tower school museum
    lighthouse quarry canal chapel meadow theatre railway brewery courtyard""")
_VERBS = _words("""
    supplied joined served crossed sheltered replaced resembled followed surrounded outlived inspired faced
    divided fed overlooked financed rebuilt repaired welcomed attracted""")
_ENDINGS = _words(
    """
    after the second winter, for nearly forty years, until the road was moved, in spite of the floods,
    long before the census, according to several letters, as the guild had asked, without any public money,
    during the dry summers, near the eastern border, on the advice of its council, with stone from the coast,
    while the ferry still ran, because the harvest failed, at the end of the century, to the surprise of visitors""",
    ", ",
)
_SYLLABLES = ("Ash", "Brack", "Cold", "Dun", "Elder", "Fen", "Gran", "Harrow", "Ivel", "Kings", "Long", "Mar")
_ENDS = ("mere", "wick", "ford", "ley", "holm", "stead", "combe", "thorpe")


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
        write_changed(folder / "AA" / f"wiki_{file:02d}.bz2", bz2.compress("".join(pages).encode()))


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
    write_changed(
        folder / "Posts.xml", f'\ufeff<?xml version="1.0" encoding="utf-8"?>\n<posts>\n{lines}</posts>\n'.encode()
    )


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
    write_changed(folder / "notes.jsonl", "".join(lines).encode())
    for number in range(4):
        text = "\n\n".join(paragraphs(Random(f"text {number}"), 3)) + f"\n\nWrite to clerk{number}@{SITE}.\n"
        write_changed(folder / "texts" / f"{number}.txt", text.encode())


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
    write_changed(folder / "papers.parquet", parquet(pa.Table.from_pylist(rows), _ROWS_PER_GROUP))


def _write_quiz(folder: Path, leaked: list[str]) -> None:
    others = [" ".join(sentence(Random(f"item {number}")) for _ in range(2)) for number in range(4)]
    rows = [{"id": f"q-{number}", "question": item} for number, item in enumerate([*leaked, *others, "Too short?"])]
    write_changed(folder / "quiz.jsonl", "".join(json.dumps(row) + "\n" for row in rows).encode())


def _first_sentences(text: str) -> str:
    """Two of its first paragraph of several sentences."""
    longest = next(paragraph for paragraph in text.splitlines() if paragraph.count(". ") > 1)
    return ". ".join(longest.split(". ")[:2]) + "."


def sentence(draw: Random) -> str:
    """Eleven words or more; hardly ever the same one twice."""
    first, second = draw.choice(_ADJECTIVES), draw.choice(_ADJECTIVES)
    subject, verb, thing = draw.choice(_NOUNS), draw.choice(_VERBS), draw.choice(_NOUNS)
    return f"The {first} {subject} {verb} the {second} {thing} {draw.choice(_ENDINGS)}."


def paragraphs(draw: Random, count: int, sentences: int = 5) -> list[str]:
    """Paragraphs of so many sentences each."""
    return [" ".join(sentence(draw) for _ in range(sentences)) for _ in range(count)]


def place_name(number: int) -> str:
    """The name of a place; numbers below 96 have different ones."""
    return _SYLLABLES[number % len(_SYLLABLES)] + _ENDS[number // len(_SYLLABLES) % len(_ENDS)]
