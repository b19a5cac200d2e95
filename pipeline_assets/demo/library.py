"""Small English datasets made from the documentation inside the running Python, laid out like FineWeb-Edu.

No module of the library is imported. The same Python and pyarrow write the same bytes.
"""

import ast
import hashlib
import io
import os
import re
import sys
import sysconfig
import uuid
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from pipeline_assets.corpus.spine import durable
from pipeline_assets.corpus.spine.errors import InputError

HUB_FOLDER = "hub"  # of a data root, with datasets for a hub on loopback
HUB_TOKEN = "hf_loopback"  # for reading: a hub that is written to has a token of its own
PAGE_CHARS_MIN = 300
PAGE_CHARS_MAX = 30_000
# Docstrings come in short pieces: at 2,000 characters a page the library gives over a thousand pages.
# Prose (help topics, licences, histories) stays long, so that the corpus has long documents too.
DOCSTRING_PAGE_CHARS = 2_000
PROSE_PAGE_CHARS = 12_000
CLASS_PAGE_CHARS_MIN = 1_200

SITE = "https://docs.python.org/3"
# Test suites are data and broken syntax by intent; the others hold nothing of the standard library.
FOLDERS_LEFT_OUT = frozenset(
    {"__pycache__", "dist-packages", "idle_test", "lib-dynload", "site-packages", "test", "tests"}
)
PROSE_SUFFIXES = frozenset({".htm", ".html", ".rst", ".txt"})


FINEWEB_EDU_SCHEMA = pa.schema(
    [
        ("text", pa.string()),
        ("id", pa.string()),
        ("dump", pa.string()),
        ("url", pa.string()),
        ("file_path", pa.string()),
        ("language", pa.string()),
        ("language_score", pa.float64()),
        ("token_count", pa.int64()),
        ("score", pa.float64()),
        ("int_score", pa.int64()),
    ]
)
DUMPS = ("CC-MAIN-2013-20", "CC-MAIN-2019-30", "CC-MAIN-2021-04", "CC-MAIN-2023-50")
FILES_PER_DUMP = 2
HELP_DATASET = "corpusmill/python-help"

_CARD = """---
license: other
license_name: psf-2.0
license_link: https://docs.python.org/3/license.html
language:
- en
pretty_name: {name}
configs:
- config_name: default
  data_files:
  - split: train
    path: {files}
---
# {name}

"""
_FINEWEB_EDU_TEXT = """\
This is not FineWeb-Edu and holds none of its text. It has the same columns and folders, so that a pipeline for the real
dataset runs on it offline. The texts are docstrings, help topics and notes that ship with Python {python_version},
under the Python Software Foundation licence (PSF-2.0).

Made, not measured: `id`, `dump`, `url`, `file_path`, `language_score`, `score` and `int_score` come from hashes and
module names, `token_count` is UTF-8 bytes divided by 4. No page was crawled.

{documents} rows, {text_bytes} bytes of text. Defects are planted, because real sets have them: texts repeated in
another dump, ids used twice, a NUL character, and an empty text where that is at most one row in a thousand.
"""
_HELP_TEXT = """\
Help topics that ship with Python, under the Python Software Foundation licence (PSF-2.0), in FineWeb-Edu's columns, for
work without a network. Only the texts are real: scores, dumps and addresses come from hashes. One row repeats an id.
"""


Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Page:
    """One text and the address that it could have on docs.python.org; the address is unique in the corpus."""

    url: str
    text: str


def library_pages(library: Path) -> list[Page]:
    """Pages of everything readable below `library`: no two with the same text or address, in order of address."""
    candidates: list[Page] = []
    for path in sorted(_files_below(library)):
        if path.suffix == ".py":
            candidates += module_pages(path, library)
        elif path.suffix in PROSE_SUFFIXES:
            address = f"{SITE}/{path.relative_to(library).with_suffix('').as_posix()}-{path.suffix[1:]}.html"
            candidates += split_page(Page(address, prose(path)), PROSE_PAGE_CHARS)
    candidates += help_topics(library / "pydoc_data" / "topics.py")
    if not candidates:
        raise InputError("no standard-library sources found", library, "run a Python installed with its .py files")
    first_of_text: dict[str, Page] = {}
    for page in sorted(candidates, key=lambda page: page.url):
        if reads_as_english(page.text):
            first_of_text.setdefault(page.text, page)
    return list(first_of_text.values())


def _files_below(library: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(library):
        folders[:] = set(folders) - FOLDERS_LEFT_OUT
        yield from (Path(folder, name) for name in names)


def module_pages(path: Path, library: Path) -> Iterator[Page]:
    """A page of a module's docstrings, and one for each class with much to say; a file that does not parse has none."""
    tree = parsed(path)
    if tree is None:
        return
    module = ".".join(path.relative_to(library).with_suffix("").parts).removesuffix(".__init__")
    url = f"{SITE}/library/{module}.html"
    module_page = [module]
    class_pages: dict[str, list[str]] = {}
    if docstring := readable_docstring(tree):
        module_page.append(docstring)
    for name, definition in public_definitions(tree.body):
        paragraphs = documented(f"{module}.{name}", definition)
        if isinstance(definition, ast.ClassDef) and sum(map(len, paragraphs)) >= CLASS_PAGE_CHARS_MIN:
            # A class may be defined again in another branch of an `if`; both definitions share its page.
            class_pages.setdefault(name, []).extend(paragraphs)
        else:
            module_page += paragraphs
    yield from split_page(Page(url, "\n\n".join(module_page)), DOCSTRING_PAGE_CHARS)
    for name, paragraphs in class_pages.items():
        yield from split_page(Page(f"{url}#{module}.{name}", "\n\n".join(paragraphs)), DOCSTRING_PAGE_CHARS)


def parsed(path: Path) -> ast.Module | None:
    """Syntax tree of a source file, or None where it is in no encoding or grammar of this Python."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            return ast.parse(path.read_bytes())
        except (SyntaxError, ValueError):
            return None


def public_definitions(body: Iterable[ast.stmt]) -> Iterator[tuple[str, Definition]]:
    """Name and node of each class and function whose name has no leading underscore, also inside `if` and `try`."""
    for statement in body:
        if isinstance(statement, Definition):
            if not statement.name.startswith("_"):
                yield statement.name, statement
        elif isinstance(statement, ast.If):
            yield from public_definitions(statement.body + statement.orelse)
        elif isinstance(statement, ast.Try):
            yield from public_definitions(statement.body + statement.orelse + statement.finalbody)


def documented(name: str, definition: Definition) -> list[str]:
    """Paragraphs of a definition: its name above its docstring, then the same for the public members of a class."""
    paragraphs = []
    if docstring := readable_docstring(definition):
        paragraphs.append(f"{name}\n\n{docstring}")
    if isinstance(definition, ast.ClassDef):
        for member_name, member in public_definitions(definition.body):
            paragraphs += documented(f"{name}.{member_name}", member)
    return paragraphs


def readable_docstring(node: ast.Module | Definition) -> str:
    docstring = ast.get_docstring(node) or ""
    # A docstring may hold NUL or a lone surrogate through an escape. NUL stays out, so that the planted one is alone.
    return docstring.replace("\0", "").encode(errors="replace").decode().strip()


def help_topics(path: Path) -> Iterator[Page]:
    """The texts of `help("topics")`, read from the dict literal of `pydoc_data.topics`."""
    tree = parsed(path) if path.is_file() else None
    for statement in tree.body if tree else []:
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Dict):
            for topic, text in sorted(ast.literal_eval(statement.value).items()):
                yield from split_page(Page(f"{SITE}/reference/{topic}.html", text.strip()), PROSE_PAGE_CHARS)


def prose(path: Path) -> str:
    text = path.read_bytes().decode("utf-8", errors="replace").replace("\r\n", "\n")
    if path.suffix in {".htm", ".html"}:
        stripper = TagStripper()
        stripper.feed(text)
        stripper.close()
        text = re.sub("\n{3,}", "\n\n", "\n".join(line.rstrip() for line in "".join(stripper.pieces).split("\n")))
    return text.strip()


class TagStripper(HTMLParser):
    """Collects in `pieces` the text of a page, without tags, scripts and styles."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[str] = []
        self.hidden_depth = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.hidden_depth += tag in {"script", "style"}

    def handle_endtag(self, tag: str) -> None:
        self.hidden_depth -= tag in {"script", "style"}

    def handle_data(self, data: str) -> None:
        if not self.hidden_depth:
            self.pieces.append(data)


def split_page(page: Page, page_chars: int) -> list[Page]:
    """The page in parts of about equal length, cut at paragraph ends.

    Args:
        page_chars: a longer page is cut; parts come out at or below this but for a last paragraph that passes it.
    Returns:
        parts of 300 to 30,000 characters. A page under 300 gives none: too short to stand alone. So does a part
        over 30,000, one paragraph without a blank line: that is a table, not prose.
    """
    parts: list[list[str]] = [[]]
    part_chars = len(page.text) / -(-len(page.text) // page_chars) if page.text else 0
    for paragraph in page.text.split("\n\n"):
        if sum(map(len, parts[-1])) >= part_chars - len(paragraph) / 2 and parts[-1]:
            parts.append([])
        parts[-1].append(paragraph)
    if len(parts) > 1 and len("\n\n".join(parts[-1])) < PAGE_CHARS_MIN:
        parts[-2] += parts.pop()
    texts = ["\n\n".join(part).strip() for part in parts]
    return [
        Page(page.url if number == 1 else f"{page.url}?page={number}", text)
        for number, text in enumerate(texts, start=1)
        if PAGE_CHARS_MIN <= len(text) <= PAGE_CHARS_MAX
    ]


def reads_as_english(text: str) -> bool:
    """Whether over 95 % of the characters are ASCII and over 60 % are letters: tables and grammars are not prose."""
    ascii_chars, letters = sum(map(str.isascii, text)), sum(map(str.isalpha, text))
    return ascii_chars > 0.95 * len(text) and letters > 0.6 * len(text)


@dataclass(frozen=True)
class Row:
    """The columns of one row that are not derived from others."""

    text: str
    record_id: str
    dump: str
    url: str


def write_fineweb_edu(folder: Path) -> int:
    """Writes the demo's stand-in for FineWeb-Edu; files of the same name are replaced.

    Returns:
        UTF-8 bytes of the column `text` over all rows.
    Raises:
        InputError: this Python ships no standard-library sources.
    """
    pages = library_pages(Path(sysconfig.get_path("stdlib")))
    shards = planted(sorted(pages, key=lambda page: urn(page.url)))
    for (dump, index), rows in sorted(shards.items()):
        _write_rows(folder / "data" / dump / f"train-{index:05d}-of-{FILES_PER_DUMP:05d}.parquet", rows, 50)
    text_bytes = sum(len(row.text.encode()) for rows in shards.values() for row in rows)
    card = (_CARD + _FINEWEB_EDU_TEXT).format(
        name="Demo stand-in for FineWeb-Edu",
        files="data/*/*.parquet",
        python_version=".".join(map(str, sys.version_info[:3])),
        documents=sum(map(len, shards.values())),
        text_bytes=text_bytes,
    )
    write_changed(folder / "README.md", card.encode())
    return text_bytes


def write_help_dataset(folder: Path) -> None:
    """Writes what `help()` says, two Parquet files and a card, which comes last.

    Raises:
        InputError: this Python ships no help topics.
    """
    topics = Path(sysconfig.get_path("stdlib")) / "pydoc_data" / "topics.py"
    pages = [page for topic in help_topics(topics) for page in split_page(topic, DOCSTRING_PAGE_CHARS)]
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
        _write_rows(folder / "data" / f"train-{number:05d}-of-00002.parquet", part, 25)
    card = _CARD.format(name="What help() says", files="data/*.parquet") + _HELP_TEXT
    write_changed(folder / "README.md", card.encode())


def _write_rows(path: Path, rows: Sequence[Row], rows_per_group: int) -> None:
    table = pa.Table.from_pylist([columns(row) for row in rows], schema=FINEWEB_EDU_SCHEMA)
    write_changed(path, parquet(table, rows_per_group))


def parquet(table: pa.Table, rows_per_group: int) -> bytes:
    """A Parquet file, in zstd."""
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=rows_per_group, compression="zstd")
    return sink.getvalue()


def write_changed(path: Path, data: bytes) -> None:
    """Writes a file; one that says the same keeps its time, so that what was made of it stays current."""
    if not path.is_file() or path.read_bytes() != data:
        durable.make_folder(path.parent)
        durable.write_durably(path, data)


def write_recipe(root: Path, content: Mapping[str, Any]) -> Path:
    """A recipe among those of a data root."""
    text = yaml.safe_dump(dict(content), sort_keys=False, allow_unicode=True, width=120)
    return write_recipe_text(root, str(content["name"]), text)


def write_recipe_text(root: Path, name: str, text: str) -> Path:
    """The same, as it is to be read."""
    path = root / "recipes" / f"{name}.yaml"
    durable.make_folder(path.parent)
    durable.write_durably(path, text.encode())
    return path


def planted(pages: list[Page]) -> dict[tuple[str, int], list[Row]]:
    """Rows of each file, (dump, file of the dump), in order: the pages in equal shares, and the planted defects.

    Three texts come again in the next dump under another id. Two ids come again: once with the same text, once with
    the page as it was a paragraph earlier. One text has a NUL inside. An empty text joins only from 1,000 rows on,
    because a build refuses more than one bad row in a thousand.
    """
    places = [(dump, index) for dump in DUMPS for index in range(FILES_PER_DUMP)]
    shards: dict[tuple[str, int], list[Row]] = {place: [] for place in places}
    rows = []
    for number, page in enumerate(pages):
        place = places[number * len(places) // len(pages)]
        rows.append(Row(page.text, urn(page.url), place[0], page.url))
        shards[place].append(rows[-1])

    def plant(text: str, record_id: str, url: str, after: Row) -> None:
        dump = DUMPS[(DUMPS.index(after.dump) + 1) % len(DUMPS)]
        shard = shards[dump, FILES_PER_DUMP - 1]
        shard.insert(len(shard) // 2, Row(text, record_id, dump, url))

    for row in rows[:3]:
        plant(row.text, urn(f"{row.url}?crawl=2"), row.url, after=row)
    same, revised, source = rows[len(rows) // 2], rows[len(rows) // 3], rows[-1]
    plant(same.text, same.record_id, same.url, after=same)
    plant(revised.text.rpartition("\n\n")[0] or revised.text[:-1], revised.record_id, revised.url, after=revised)
    middle = len(source.text) // 2
    with_nul = f"{source.url}?defect=nul"
    plant(f"{source.text[:middle]}\0{source.text[middle:]}", urn(with_nul), with_nul, after=source)
    if sum(map(len, shards.values())) + 1 >= 1000:
        empty = f"{source.url}?defect=empty"
        plant("", urn(empty), empty, after=rows[0])
    return shards


def urn(address: str) -> str:
    """`<urn:uuid:…>` of the first 16 bytes of the address's sha256."""
    return f"<urn:uuid:{uuid.UUID(bytes=hashlib.sha256(address.encode()).digest()[:16])}>"


def columns(row: Row) -> dict[str, str | float | int]:
    """The row as FineWeb-Edu has it; scores are drawn from the id's sha256, in steps of 1/64 as real ones are."""
    digest = hashlib.sha256(row.record_id.encode()).digest()
    bucket, step = digest[0] % 20, int.from_bytes(digest[1:3])
    # Three buckets of twenty lie in [1.5, 2.5] and round below 3: the share that `int_score >= 3` drops is about 15 %.
    score = 1.5 + step % 65 / 64 if bucket < 3 else 2.5 + (step % 159 + 1) / 64
    segment, crawl_file = int.from_bytes(digest[3:8]) % 10**13, int.from_bytes(digest[8:10])
    return {
        "text": row.text,
        "id": row.record_id,
        "dump": row.dump,
        "url": row.url,
        "file_path": f"s3://commoncrawl/crawl-data/{row.dump}/segments/{segment:013d}/warc/made-{crawl_file:05d}.warc.gz",
        "language": "en",
        "language_score": (58_000 + step % 7_500) / 65_536,
        "token_count": len(row.text.encode()) // 4,
        "score": score,
        "int_score": round(score),
    }
