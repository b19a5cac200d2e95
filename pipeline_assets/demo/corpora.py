"""Made corpora of all five systems: the files of hub datasets and of local sources, equal on every machine.

Datasets have the paths, columns and cards of the real ones. Planted are exact and near duplicates, ids used twice,
leaks of the evaluation set, bad rows, texts that are short, long or not English, and files of several licences.
"""

import bz2
import datetime
import gzip
import html
import io
import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml
import zstandard

from pipeline_assets.corpus.spine import durable
from pipeline_assets.demo.conversations import conversations
from pipeline_assets.demo.texts import (
    Draw,
    Page,
    foreign_texts,
    module,
    page,
    paragraphs,
    place_name,
    sentence,
    translated,
)

Json = dict[str, Any]
Files = Iterator[tuple[str, bytes]]
HUB_FOLDER = "hub"  # of a data root, with datasets for a hub on loopback
SOURCES_FOLDER = "sources"
EDU_DATASET, PAIRS_DATASET, HANDBOOK_DATASET = "HuggingFaceFW/fineweb-edu", "wmt/wmt14", "corpusmill/handbook"
SITE = "coffee.stackexchange.com"
DUMPS = ("CC-MAIN-2013-20", "CC-MAIN-2019-30", "CC-MAIN-2021-04", "CC-MAIN-2023-50")
_ROWS_PER_FILE, _PAGES_PER_DATASET, _MODULES = 150, 75, 75
_ARTICLES, _QUESTIONS, _NOTES, _PAPERS = 48, 40, 36, 40
_COPIED_ARTICLES, _REVISED_ARTICLES, _LEAKED_ARTICLE, _LEAKED_PAPER = (2, 3, 5), (9, 10), 20, 12
_FINEWEB_COLUMNS = "text id dump url date file_path language language_score token_count"
_DOC = '<doc id="{0}" url="https://en.wikipedia.org/wiki?curid={0}" title="{1}">\n{1}\n\n{2}\n\n</doc>\n'
_CARD = """\
---
{head}---
# Made stand-in for {name}

This is not {name} and holds none of its text. It has the same paths and columns, so that a pipeline for the real set
runs on it offline. Everything in it is made up, ids, dates and scores too: no page was crawled, no repository read.
"""


def write_inputs(root: Path, system: str) -> None:
    """Write the made files of a system below a data root; a file that has its bytes already keeps its time."""
    for path, data in FILES[system]():
        if not (root / path).is_file() or (root / path).read_bytes() != data:
            durable.make_folder((root / path).parent)
            durable.write_durably(root / path, data)


def _dataset(name: str, head: Json, files: Mapping[str, Sequence[Json]], rows_per_group: int = 25) -> Files:
    """Yield the files of a hub dataset, the card last."""
    folder = f"{HUB_FOLDER}/datasets/{name}"
    for path, rows in files.items():
        yield f"{folder}/{path}", _encoded(path, rows, rows_per_group)
    said = yaml.safe_dump({"pretty_name": name.partition("/")[2], **head}, sort_keys=False)
    yield f"{folder}/README.md", _CARD.format(head=said, name=name).encode()


def _head(licence: str | list[str], config: str, **paths: str) -> Json:
    files = [{"split": split, "path": path} for split, path in paths.items()]
    return {"license": licence, "configs": [{"config_name": config, "data_files": files}]}


def _encoded(path: str, rows: Sequence[Json], rows_per_group: int = 25) -> bytes:
    """Encode rows as the name of the file says: Parquet, or JSON lines."""
    if path.endswith(".parquet"):
        sink = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(rows), sink, row_group_size=rows_per_group, compression="zstd")
        return sink.getvalue()
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
    lines = gzip_member(lines) if path.endswith(".gz") else lines
    return zstandard.compress(lines) if path.endswith(".zst") else lines


def gzip_member(content: bytes) -> bytes:
    """Compress into one member whose header is the same in every Python: its tenth byte names the system."""
    packed = gzip.compress(content, mtime=0)
    return packed[:9] + b"\x03" + packed[10:]


def web_row(page: Page, dump: str) -> Json:
    """Return a page in FineWeb-Edu's columns; its score is in steps of 1/64, as real ones are."""
    bucket, step = page.digest[0] % 20, int.from_bytes(page.digest[1:3])
    # Three buckets of twenty lie in [1.5, 2.5] and round below 3: the share that `int_score >= 3` drops is about 15 %.
    score = 1.5 + step % 65 / 64 if bucket < 3 else 2.5 + (step % 159 + 1) / 64
    segment, crawl_file = int.from_bytes(page.digest[3:8]) % 10**13, int.from_bytes(page.digest[8:10])
    return {
        "text": page.text,
        "id": f"<urn:uuid:{uuid.UUID(bytes=page.digest[:16])}>",
        "dump": dump,
        "url": page.url,
        "file_path": f"s3://commoncrawl/crawl-data/{dump}/segments/{segment:013d}/warc/made-{crawl_file:05d}.warc.gz",
        "language": "en",
        "language_score": (58_000 + step % 7_500) / 65_536,
        "token_count": len(page.text.encode()) // 4,
        "score": score,
        "int_score": round(score),
    }


def _healing() -> Files:
    """Yield two files of each of four dumps.

    Planted in the next dump: three texts under another id, two ids again, once with the page as it was a paragraph
    earlier, a text with a NUL inside, and an empty text, which is one bad row in a thousand.
    """
    places = [(dump, number) for dump in DUMPS for number in range(2)]
    pages = [page("edu", number) for number in range(_ROWS_PER_FILE * len(places))]
    files = [pages[place * _ROWS_PER_FILE : (place + 1) * _ROWS_PER_FILE] for place in range(len(places))]
    same, revised, last = pages[600], pages[400], pages[-1]
    middle = len(last.text) // 2
    planted = [(one, Page(f"{one.url}?crawl=2", one.text)) for one in pages[:3]]
    planted += [(same, same), (revised, Page(revised.url, revised.text.rpartition("\n\n")[0]))]
    planted += [(last, Page(f"{last.url}?nul", f"{last.text[:middle]}\0{last.text[middle:]}"))]
    planted += [(pages[0], Page(f"{pages[0].url}?empty", ""))]
    for source, made in planted:
        next_dump = (pages.index(source) // _ROWS_PER_FILE // 2 + 1) % len(DUMPS)
        files[2 * next_dump + 1].insert(_ROWS_PER_FILE // 2, made)
    rows = {
        f"data/{dump}/train-{number:05d}-of-00002.parquet": [web_row(one, dump) for one in file]
        for (dump, number), file in zip(places, files, strict=True)
    }
    yield from _dataset(EDU_DATASET, _head("cc0-1.0", "default", train="data/*/*.parquet"), rows, 50)


def _parallel_text() -> Files:
    """Yield sentences beside their "French"."""
    files = {}
    for split, count in {"train": 2000, "validation": 200}.items():
        draw = Draw.named(f"pairs {split}")
        english = [sentence(draw) for _ in range(count)]
        files[f"fr-en/{split}-00000-of-00001.parquet"] = [
            {"translation": {"fr": translated(text), "en": text}} for text in english
        ]
    head = _head("cc0-1.0", "fr-en", train="fr-en/train-*", validation="fr-en/validation-*")
    yield from _dataset(PAIRS_DATASET, head, files, 100)


def _nemotron() -> Files:
    for name, splits in conversations().items():
        head = _head("other", "default", **{split: path for split, (path, _) in splits.items()})
        yield from _dataset(name, head, dict(splits.values()))


def _stage2() -> Files:
    """Yield five datasets of pages and two of modules.

    Planted: in each of the five a text of one sentence and three that aren't English; in C4 three pages of FineWeb and
    one of its own, quoted whole, and that one again with a word changed; in codeparrot modules of other licences, and
    one twice, also in starcoderdata.
    """
    sites = ("web", "articles", "crawl", "sample", "mixed")
    web, articles, crawl, sample, mixed = (_odd_pages(site, order) for order, site in enumerate(sites))
    of_web, of_crawl = ([one for one in pages if len(one.text) > 1_500] for pages in (web, crawl))
    crawl += _quotes([*of_web[:3], of_crawl[0]])

    rows = [web_row(one, DUMPS[number % 4]) | {"date": _date(one)} for number, one in enumerate(web)]
    rows = [{name: row[name] for name in _FINEWEB_COLUMNS.split()} for row in rows]
    head = _head("odc-by", "sample-10BT", train="sample/10BT/*")
    yield from _dataset("HuggingFaceFW/fineweb", head, {"sample/10BT/000_00000.parquet": rows})

    named = [{"id": str(number), "url": one.url, "title": one.url[8:]} for number, one in enumerate(articles, 12)]
    rows = [row | {"text": one.text} for row, one in zip(named, articles, strict=True)]
    head = _head(["cc-by-sa-3.0", "gfdl"], "20231101.en", train="20231101.en/train-*")
    yield from _dataset("wikimedia/wikipedia", head, _halves("20231101.en/train-{:05d}-of-00002.parquet", rows))

    rows = [{"text": one.text, "timestamp": _date(one), "url": one.url} for one in crawl]
    head = _head("odc-by", "en", train="en/c4-train.*.json.gz")
    yield from _dataset("allenai/c4", head, _halves("en/c4-train.{:05d}-of-01024.json.gz", rows))

    metas = [{"timestamp": _date(one)[:-1], "language": "en", "url": one.url} for one in sample]
    rows = [{"text": one.text, "meta": meta} for one, meta in zip(sample, metas, strict=True)]
    crawled = [row | {"meta": json.dumps(row["meta"])} for row in rows[1::2]]
    files = {"arxiv_sample.jsonl": rows[::2], "cc_2023-06_sample.jsonl": crawled}
    yield from _dataset("togethercomputer/RedPajama-Data-1T-Sample", {}, files)

    sets = [{"redpajama_set_name": f"RedPajama{name}"} for name in ("CommonCrawl", "C4", "StackExchange")]
    rows = [{"text": one.text, "meta": sets[number % 3]} for number, one in enumerate(mixed)]
    yield from _dataset("cerebras/SlimPajama-627B", {}, _halves("train/chunk1/example_train_{}.jsonl.zst", rows))

    code, starred = ([module(number) for number in range(start, start + _MODULES)] for start in (0, _MODULES))
    modules = [*((text, "made/tools", "mit") for text in code), (code[0], "made/vendor", "mit")]
    modules += [(module(-number), f"made/{tag}", tag) for number, tag in enumerate(("apache-2.0", "gpl-3.0"), 1)]
    rows = [_code_row(number, *one) for number, one in enumerate(modules)]
    yield from _dataset("codeparrot/codeparrot-clean", {}, _halves("file-{:012d}.json.gz", rows, first=1))

    stars: Json = {"max_stars_repo_name": "made/stars", "max_stars_count": 37}
    named = [{"max_stars_repo_path": f"{number}.py", **stars, "id": str(number)} for number in range(_MODULES + 1)]
    rows = [row | {"content": text} for row, text in zip(named, [*starred, code[0]], strict=True)]
    files = {"python/train-00000-of-00059.parquet": rows}
    yield from _dataset("bigcode/starcoderdata", {"license": "other"}, files)


def _halves(path: str, rows: Sequence[Json], first: int = 0) -> Mapping[str, Sequence[Json]]:
    """Give rows to two files in turn."""
    return {path.format(first + number): rows[number::2] for number in range(2)}


def _odd_pages(site: str, order: int) -> list[Page]:
    odd = [sentence(Draw.named(f"{site} odd")), *foreign_texts(order)]
    odd_pages = [Page(f"https://{site}.example/odd/{number}", text) for number, text in enumerate(odd)]
    return [*(page(site, number) for number in range(_PAGES_PER_DATASET)), *odd_pages]


def _quotes(pages: Sequence[Page]) -> Iterator[Page]:
    """Yield a page around each, and the last one again with a word changed."""
    for number, one in enumerate(pages):
        before, after = (paragraphs(Draw.named(f"{place} {number}"), 2) for place in ("before", "after"))
        yield Page(f"{one.url}?quoted", "\n\n".join([*before, one.text, *after]))
    again = pages[-1].text.replace(" the ", " that ", 1)
    yield Page(f"{pages[-1].url}?again", f"{again}\n\nSo they say.")


def _date(page: Page) -> str:
    seconds = int.from_bytes(page.digest[:4]) // 20
    return f"{(datetime.datetime(2014, 5, 1) + datetime.timedelta(seconds=seconds)).isoformat()}Z"


def _code_row(number: int, text: str, repo: str, licence: str) -> Json:
    lengths = [*map(len, text.splitlines())]
    of_file = {"repo_name": repo, "path": f"{number}.py", "copies": "1", "size": str(len(text)), "content": text}
    of_lines = {"line_mean": sum(lengths) / len(lengths), "line_max": max(lengths)}
    alpha_frac = sum(map(str.isalnum, text)) / len(text)
    return {**of_file, "license": licence, "hash": number, **of_lines, "alpha_frac": alpha_frac, "autogenerated": False}


def _stage_a() -> Files:
    """Yield a hub dataset, four sources of files in their real formats, and an evaluation set.

    Planted: in the dataset pages of one sentence, and an id used twice; copies of articles among the notes, word by
    word or with a word changed; leaks of an article and a paper in the quiz; bad rows in each source.
    """
    handbook = [page("handbook", number) for number in range(120)]
    handbook[::30] = [Page(one.url, one.text.partition("\n")[0]) for one in handbook[::30]]
    rows = [web_row(one, "handbook") for one in handbook]
    rows.append(next(row for row in rows if row["int_score"] >= 3 and len(row["text"]) > 500))
    halves = _halves("data/train-{:05d}-of-00002.parquet", rows)
    yield from _dataset(HANDBOOK_DATASET, _head("cc0-1.0", "default", train="data/*.parquet"), halves)
    articles, papers = [_article(number) for number in range(_ARTICLES)], [_paper(number) for number in range(_PAPERS)]
    for file in range(2):
        numbers = range(file * _ARTICLES // 2, (file + 1) * _ARTICLES // 2)
        dump = "".join(
            _DOC.format(number + 1, place_name(number), html.escape(articles[number], False)) for number in numbers
        )
        yield f"{SOURCES_FOLDER}/wikipedia/AA/wiki_{file:02d}.bz2", bz2.compress(dump.encode())
    lines = "".join(f"  {row}\n" for number in range(_QUESTIONS) for row in _posts(number))
    posts = f'\ufeff<?xml version="1.0" encoding="utf-8"?>\n<posts>\n{lines}</posts>\n'
    yield f"{SOURCES_FOLDER}/{SITE}/Posts.xml", posts.encode()
    yield from _notes([f"{place_name(number)}\n\n{text}" for number, text in enumerate(articles)])
    rows = [
        {
            "doi": f"10.5555/demo.{number}",
            "body": {"title": f"On {place_name(number)}", "text": text},
            "published": f"{2001 + number % 20}-01-01",
            "license": "CC0-1.0" if number % 4 == 3 else "CC-BY-4.0",
        }
        for number, text in enumerate(papers)
    ]
    yield f"{SOURCES_FOLDER}/papers/papers.parquet", _encoded("papers.parquet", rows)
    others = [" ".join(paragraphs(Draw.named(f"item {number}"), 1, 2)) for number in range(4)]
    leaked = [_first_sentences(articles[_LEAKED_ARTICLE]), _first_sentences(papers[_LEAKED_PAPER])]
    items = [{"id": f"q-{number}", "question": item} for number, item in enumerate([*leaked, *others, "Too short?"])]
    yield f"{SOURCES_FOLDER}/quiz/quiz.jsonl", _encoded("quiz.jsonl", items)


def _article(number: int) -> str:
    """Make an article: every twelfth is a stub of one sentence, every twelfth is empty, as redirects are."""
    draw = Draw.named(f"article {number}")
    match number % 12:
        case 7:
            return ""
        case 11:
            return sentence(draw)
    lead = f"{place_name(number)} is a village of {200 + draw.below(8800)} inhabitants."
    return "\n\n".join([lead, *paragraphs(draw, 2 + draw.below(3))])


def _posts(number: int) -> Iterator[str]:
    """Yield a question and two answers. Every fifth question has a score of 0; the last one is deleted."""
    draw, first = Draw.named(f"question {number}"), 3 * number + 1
    date = f"{2011 + number % 14}-03-{number % 28 + 1:02d}T05:06:07.890"
    bodies = [html.escape(f"<p>{text}</p>") for text in paragraphs(draw, 3, 4)]
    title = f"Why is coffee from {place_name(number)} so {draw.choice(('bitter', 'sour', 'strong', 'weak'))}?"
    if number < _QUESTIONS - 1:
        yield (
            f'<row Id="{first}" PostTypeId="1" CreationDate="{date}" Score="{number % 5}" ViewCount="9"'
            f' Body="{bodies[0]}" Title="{title}" Tags="&lt;taste&gt;" AcceptedAnswerId="{first + 2}"'
            f' AnswerCount="2" />'
        )
    for answer in (1, 2):
        yield (
            f'<row Id="{first + answer}" PostTypeId="2" ParentId="{first}" CreationDate="{date}"'
            f' Score="{answer}" Body="{bodies[answer]}" />'
        )


def _notes(articles: Sequence[str]) -> Files:
    """Yield lines of several licences, two of which are refused, copies of articles, and four text files.

    A line is cut off, and one has no text.
    """
    texts = ["\n".join(paragraphs(Draw.named(f"note {number}"), 2)) for number in range(_NOTES)]
    texts += [articles[number] for number in _COPIED_ARTICLES]
    texts += [articles[number].replace(" harbour", " jetty") + " So they say." for number in _REVISED_ARTICLES]
    licences = ("MIT", "CC BY-SA 4.0", None)
    rows: list[Json] = [
        {"text": text, "key": f"note-{number}", "license": "proprietary" if number in (4, 5) else licences[number % 3]}
        for number, text in enumerate(texts)
    ]
    lines = _encoded("notes.jsonl", [*rows, {"text": "", "key": "note-empty", "license": None}]).splitlines(True)
    lines.insert(10, lines[10][:40] + b"\n")
    yield f"{SOURCES_FOLDER}/notes/notes.jsonl", b"".join(lines)
    for number in range(4):
        text = "\n\n".join(paragraphs(Draw.named(f"text {number}"), 3)) + f"\n\nWrite to clerk{number}@{SITE}.\n"
        yield f"{SOURCES_FOLDER}/notes/texts/{number}.txt", text.encode()


def _paper(number: int) -> str:
    """Make a paper: every eighth is mostly what the publisher says on every page."""
    parts = paragraphs(Draw.named(f"paper {number}"), 4)
    return "\n".join([*parts[:1], *["All rights reserved by the publisher."] * 4] if number % 8 == 7 else parts)


def _first_sentences(text: str) -> str:
    """Return two sentences of the first paragraph that has several."""
    longest = next(paragraph for paragraph in text.splitlines() if paragraph.count(". ") > 1)
    return ". ".join(longest.split(". ")[:2]) + "."


FILES: Mapping[str, Callable[[], Files]] = {
    "healing": _healing,
    "stage_a": _stage_a,
    "nemotron": _nemotron,
    "stage2": _stage2,
    "parallel_text": _parallel_text,
}
