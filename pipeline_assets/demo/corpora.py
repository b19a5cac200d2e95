"""Generated corpora of all five systems, identical on every machine.

Hub datasets have the paths, cards and columns of the real datasets, or at least the columns that recipes read.
"""

import bz2
import datetime
import gzip
import html
import io
import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

import pyarrow as pa
import pyarrow.parquet as pq
import yaml
import zstandard

from pipeline_assets.corpus.formats.python_columns import rows_to_table
from pipeline_assets.demo import texts
from pipeline_assets.demo.conversations import conversations
from pipeline_assets.demo.loopback_hub import HUB_FOLDER
from pipeline_assets.demo.texts import Chooser, DemoPage
from pipeline_assets.spine import durable

Row = dict[str, Any]
Rows = Sequence[Row]
Files = Iterator[tuple[str, bytes]]
EDU_DATASET, PAIRS_DATASET, HANDBOOK_DATASET = "HuggingFaceFW/fineweb-edu", "wmt/wmt14", "corpusmill/handbook"
STACKEXCHANGE_SITE = "coffee.stackexchange.com"
DUMPS = ("CC-MAIN-2013-20", "CC-MAIN-2019-30", "CC-MAIN-2021-04", "CC-MAIN-2023-50")
_WEB_COLUMNS = "text id dump url date file_path language language_score token_count"
EDU_COLUMNS = _WEB_COLUMNS.replace(" date", "") + " score int_score"
_DOC_TEMPLATE = '<doc id="{0}" url="https://en.wikipedia.org/wiki?curid={0}" title="{1}">\n{1}\n\n{2}\n\n</doc>\n'
_CARD_TEMPLATE = """\
---
{head}---
# Made stand-in for {name}

This is not {name} and holds none of its text. It has the same paths, and the columns that are read, so that a
pipeline for the real set runs on it offline. Everything in it is made up, ids, dates and scores too: no page was
crawled, no repository read.
"""


def write_inputs(root: Path, system: str) -> None:
    """Write a system's generated files below a data root; skip unchanged files."""
    for path, data in FILE_GENERATORS[system]():
        if not (root / path).is_file() or (root / path).read_bytes() != data:
            durable.make_folder((root / path).parent)
            durable.write_durably(root / path, data)


def _dataset_files(name: str, licence: str | list[str], config: str, **splits: Mapping[str, Rows]) -> Files:
    """Yield a hub dataset's files: the files of each split, then the card."""
    folder = f"{HUB_FOLDER}/datasets/{name}"
    for files in splits.values():
        yield from _encode_files(folder, files)
    data_files = [{"split": split, "path": [*files]} for split, files in splits.items()]
    configs = [{"config_name": config, "data_files": data_files}]
    head = {"pretty_name": name.partition("/")[2], "license": licence, "configs": configs}
    yield f"{folder}/README.md", _CARD_TEMPLATE.format(head=yaml.safe_dump(head, sort_keys=False), name=name).encode()


def page_rows(pages: Iterable[DemoPage], path_template: str, columns: str, dump: str = "made") -> Mapping[str, Rows]:
    """Map file paths to rows of pages, in the order of the pages.

    `path_template` has fields of `_page_fields` in braces. `columns` lists fields, each as `field` or `column=field`.
    """
    files: dict[str, list[Row]] = {}
    fields = [column.partition("=") for column in columns.split()]
    for number, page in enumerate(pages):
        record = _page_fields(page, number, dump)
        row = {column: record[field or column] for column, _, field in fields}
        files.setdefault(path_template.format_map(record), []).append(row)
    return files


def _page_fields(page: DemoPage, page_number: int, dump: str) -> Row:
    """Return all fields of a page, from which each dataset takes its columns."""
    bucket, step, half = page.url_hash[0] % 20, int.from_bytes(page.url_hash[1:3]), page_number % 2
    # Scores have steps of 1/64. In 3 of 20 buckets, the score is in [1.5, 2.5], which rounds to 2 (2.5 rounds to even).
    # In the others, it is in (2.5, 5), which rounds to 3 or more. So `int_score >= 3` drops about 15 %.
    score = 1.5 + step % 65 / 64 if bucket < 3 else 2.5 + (step % 159 + 1) / 64
    date = (datetime.datetime(2014, 5, 1) + datetime.timedelta(hours=step)).isoformat()
    meta = {"timestamp": date, "language": "en", "url": page.url}
    segment, crawl_file = int.from_bytes(page.url_hash[3:8]) % 10**13, int.from_bytes(page.url_hash[8:10])
    return {
        "number": str(page_number),
        "half": half,
        "part": half + 1,
        "text": page.text,
        "url": page.url,
        "title": page.title,
        "license": page.licence,
        "id": f"<urn:uuid:{uuid.UUID(bytes=page.url_hash[:16])}>",
        "date": f"{date}Z",
        "dump": dump,
        "file_path": f"s3://commoncrawl/crawl-data/{dump}/segments/{segment:013d}/warc/made-{crawl_file:05d}.warc.gz",
        "language": "en",
        "language_score": (58_000 + step % 7_500) / 65_536,
        "token_count": len(page.text.encode()) // 4,
        "score": score,
        "int_score": round(score),
        "sample": ("arxiv", "cc_2023-06")[half],
        "meta": json.dumps(meta) if half else meta,
        "set": {"redpajama_set_name": "RedPajamaC4"},
        "doi": f"10.5555/demo.{page_number}",
        "note": f"note-{page_number}",
        "item": f"q-{page_number}",
        "body": {"title": page.title, "text": page.text},
        "pair": {"fr": texts.translate(page.text), "en": page.text},
    }


def _encode_files(folder: str, files: Mapping[str, Rows]) -> Files:
    """Yield (path, bytes) of files; the suffix selects Parquet or JSON lines."""
    pack: dict[str, Callable[[bytes], bytes]] = {".gz": gzip_member, ".zst": zstandard.compress}
    for path, rows in files.items():
        suffix = Path(path).suffix
        if suffix == ".parquet":
            sink = io.BytesIO()
            schema = pa.schema(_arrow_type(rows[0]).fields)
            pq.write_table(rows_to_table(rows, schema), sink, row_group_size=50, compression="zstd")
            data = sink.getvalue()
        else:
            lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
            data = pack.get(suffix, bytes)(lines.encode())
        yield f"{folder}/{path}", data


def _arrow_type(value: object) -> pa.DataType:
    if isinstance(value, dict):
        return pa.struct([(name, _arrow_type(item)) for name, item in value.items()])
    return {str: pa.string(), int: pa.int64(), float: pa.float64()}[type(value)]


def gzip_member(content: bytes) -> bytes:
    """Compress content into a gzip member that is byte-equal in all Python versions."""
    packed = gzip.compress(content, mtime=0)
    return packed[:9] + b"\x03" + packed[10:]  # byte 9 names the operating system: 3 is Unix


def _healing_files() -> Files:
    """Yield two files for each of four dumps, then a card; plant copies of pages.

    A copy is in the dump after its page's dump; if the page is in the last dump, the copy is in the first. Of the seven
    copies, three are valid rows with new ids. Two have the same id as their page, and one of these lacks the last
    paragraph. Two are bad rows with new ids: the text of one contains a NUL, and the other has no text.
    """
    pages = texts.pages("edu", 1200)
    files = [pages[first : first + 150] for first in range(0, len(pages), 150)]
    same, revised, last = pages[600], pages[400], pages[-1]
    planted = [(same, same), (revised, replace(revised, text=revised.text.rpartition("\n\n")[0]))]
    planted = [(page, page.variant("crawl=2", page.text)) for page in pages[:3]] + planted
    middle = len(last.text) // 2
    planted += [(last, last.variant("nul", f"{last.text[:middle]}\0{last.text[middle:]}"))]
    planted += [(pages[0], pages[0].variant("empty", ""))]
    for page, copy in planted:
        next_dump = pages.index(page) // 300 + 1
        files[(2 * next_dump + 1) % len(files)].insert(75, copy)
    rows: dict[str, Rows] = {}
    for place, file in enumerate(files):
        dump = DUMPS[place // 2]
        rows |= page_rows(file, f"data/{dump}/train-{place % 2:05d}-of-00002.parquet", EDU_COLUMNS, dump)
    return _dataset_files(EDU_DATASET, "cc0-1.0", "default", train=rows)


def _parallel_text_files() -> Files:
    """Yield files with pairs of English sentences and their generated "French"."""
    rng, splits = Chooser.from_name("pairs"), {}
    for split, count in {"train": 2000, "validation": 200}.items():
        pages = [DemoPage("", texts.sentence(rng)) for _ in range(count)]
        splits[split] = page_rows(pages, f"fr-en/{split}-00000-of-00001.parquet", "translation=pair")
    yield from _dataset_files(PAIRS_DATASET, "cc0-1.0", "fr-en", **splits)


def _nemotron_files() -> Files:
    for name, splits in conversations().items():
        yield from _dataset_files(name, "other", "default", **splits)


def _stage2_files() -> Files:
    """Yield the files of five datasets of pages and two datasets of Python modules.

    Each dataset of pages also has a page of one English sentence and three pages in other languages. C4 has five more
    pages: four quote other pages (three of FineWeb, one of C4), and one is a near duplicate of the quoted C4 page.
    codeparrot has two modules that are not under the MIT licence. It has one module twice; starcoderdata also has that
    module.
    """
    sites = ("web", "articles", "crawl", "sample", "mixed")
    web, articles, crawl, sample, mixed = (
        texts.pages(site, 75) + texts.unwanted_pages(site, order) for order, site in enumerate(sites)
    )
    web_pages, crawl_pages = ([page for page in pages if len(page.text) > 1_500] for pages in (web, crawl))
    crawl += [page.variant("quoted", texts.quote(page.text)) for page in (*web_pages[:3], crawl_pages[0])]
    crawl.append(crawl_pages[0].variant("again", texts.reword(crawl_pages[0].text)))
    tags = ("apache-2.0", "gpl-3.0", *["mit"] * 150)
    code = [DemoPage(f"{number}.py", texts.python_module(number), licence=tag) for number, tag in enumerate(tags)]

    rows = page_rows(web, "sample/10BT/000_00000.parquet", _WEB_COLUMNS)
    yield from _dataset_files("HuggingFaceFW/fineweb", "odc-by", "sample-10BT", train=rows)
    rows = page_rows(articles, "20231101.en/train-{half:05d}-of-00002.parquet", "id=number url title text")
    yield from _dataset_files("wikimedia/wikipedia", ["cc-by-sa-3.0", "gfdl"], "20231101.en", train=rows)
    rows = page_rows(crawl, "en/c4-train.{half:05d}-of-01024.json.gz", "text timestamp=date url")
    yield from _dataset_files("allenai/c4", "odc-by", "en", train=rows)
    rows = page_rows(sample, "{sample}_sample.jsonl", "text meta")
    yield from _dataset_files("togethercomputer/RedPajama-Data-1T-Sample", "other", "default", train=rows)
    rows = page_rows(mixed, "train/chunk1/example_train_{half}.jsonl.zst", "text meta=set")
    yield from _dataset_files("cerebras/SlimPajama-627B", "other", "default", train=rows)
    rows = page_rows([*code[:77], code[76]], "file-{part:012d}.json.gz", "path=url content=text license")
    yield from _dataset_files("codeparrot/codeparrot-clean", "other", "default", train=rows)
    columns = "max_stars_repo_path=url id=number content=text"
    rows = page_rows(code[76:], "python/train-00000-of-00059.parquet", columns)
    yield from _dataset_files("bigcode/starcoderdata", "other", "default", train=rows)


def _stage_a_files() -> Files:
    """Yield files of a hub dataset, four local sources and an evaluation set.

    The hub dataset has some pages of only one paragraph, and one page twice. Wikipedia has empty articles and stubs.
    The notes have exact and reworded copies of articles, bad rows, and two notes with a refused licence. Some papers
    are mostly boilerplate of the publisher. The evaluation set repeats sentences of an article and a paper.
    """
    handbook = texts.pages("handbook", 120)
    handbook[::30] = [replace(page, text=page.text.partition("\n")[0]) for page in handbook[::30]]
    rows = page_rows([*handbook, handbook[1]], "data/train-{half:05d}-of-00002.parquet", EDU_COLUMNS)
    yield from _dataset_files(HANDBOOK_DATASET, "cc0-1.0", "default", train=rows)

    articles = texts.pages("wiki", 48)
    articles[7::12] = [replace(page, text="") for page in articles[7::12]]
    articles[11::12] = [replace(page, text=page.text.partition("\n")[0]) for page in articles[11::12]]
    pages = enumerate(articles, 1)
    docs = [_DOC_TEMPLATE.format(number, page.title, html.escape(page.text, False)) for number, page in pages]
    for half in range(2):
        yield f"sources/wikipedia/AA/wiki_{half:02d}.bz2", bz2.compress("".join(docs[half::2]).encode())

    posts = (" ".join(f"{name}={quoteattr(str(value))}" for name, value in post.items()) for post in _posts())
    rows_of_posts = "".join(f"  <row {post} />\n" for post in posts)
    dump = f'\ufeff<?xml version="1.0" encoding="utf-8"?>\n<posts>\n{rows_of_posts}</posts>\n'
    yield f"sources/{STACKEXCHANGE_SITE}/Posts.xml", dump.encode()

    notes = texts.pages("notes", 36, licences=("MIT", "CC BY-SA 4.0", None))
    notes[4:6] = [replace(page, licence="proprietary") for page in notes[4:6]]
    copies = [replace(page, text=f"{page.title}\n\n{page.text}") for page in articles]
    notes += [copies[number] for number in (2, 3, 5)]
    notes += [replace(page, text=texts.reword(page.text)) for page in copies[9:11]]
    rows = page_rows([*notes, DemoPage("", "")], "notes.jsonl", "text key=note license")
    for path, data in _encode_files("sources/notes", rows):
        lines = data.splitlines(True)
        yield path, b"".join([*lines[:10], lines[10][:40] + b"\n", *lines[10:]])
    for number, page in enumerate(texts.pages("texts", 4)):
        text = f"{page.text}\n\nWrite to clerk{number}@{STACKEXCHANGE_SITE}.\n"
        yield f"sources/notes/texts/{number}.txt", text.encode()

    papers = texts.pages("papers", 40, licences=("CC-BY-4.0", "CC-BY-4.0", "CC-BY-4.0", "CC0-1.0"))
    phrase = "\nAll rights reserved by the publisher."
    papers[7::8] = [replace(page, text=page.text.partition("\n")[0] + 4 * phrase) for page in papers[7::8]]
    yield from _encode_files("sources/papers", page_rows(papers, "papers.parquet", "doi body published=date license"))

    items = [". ".join(page.text.split("\n\n")[1].split(". ")[:2]) for page in (articles[20], papers[12])]
    rngs = [Chooser.from_name(f"item {number}") for number in range(4)]
    items += [*(" ".join(texts.paragraphs(rng, 1, 2)) for rng in rngs), "Too short?"]
    quiz = [DemoPage("", item) for item in items]
    yield from _encode_files("sources/quiz", page_rows(quiz, "quiz.jsonl", "id=item question=text"))


def _posts() -> Iterator[Row]:
    """Yield 39 questions with two answers each, then two answers without a question."""
    for number in range(40):
        rng, first = Chooser.from_name(f"question {number}"), 3 * number + 1
        question, *answers = (f"<p>{text}</p>" for text in texts.paragraphs(rng, 3, 4))
        date = f"{2011 + number % 14}-03-{number % 28 + 1:02d}T05:06:07.890"
        title = f"Why is coffee from {texts.place_name(number)} so {rng.choice(('bitter', 'sour', 'strong', 'weak'))}?"
        post = {"Id": first, "PostTypeId": 1, "CreationDate": date, "Score": number % 5, "Body": question}
        if number < 39:
            yield post | {"Title": title, "Tags": "<taste>", "AcceptedAnswerId": first + 2, "AnswerCount": 2}
        for score, answer in enumerate(answers, 1):
            post = {"Id": first + score, "PostTypeId": 2, "ParentId": first, "Score": score, "Body": answer}
            yield post | {"CreationDate": date}


FILE_GENERATORS: Mapping[str, Callable[[], Files]] = {
    "healing": _healing_files,
    "stage_a": _stage_a_files,
    "nemotron": _nemotron_files,
    "stage2": _stage2_files,
    "parallel_text": _parallel_text_files,
}
