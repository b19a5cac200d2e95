"""A small English corpus made from the documentation inside the running Python, laid out like FineWeb-Edu."""

import hashlib
import sys
import sysconfig
import uuid
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.demo_pages import Page, library_pages

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
ROWS_PER_GROUP = 50

README = """---
license: other
license_name: psf-2.0
license_link: https://docs.python.org/3/license.html
language:
- en
pretty_name: Demo stand-in for FineWeb-Edu
configs:
- config_name: default
  data_files:
  - split: train
    path: data/*/*.parquet
---
# Demo stand-in for FineWeb-Edu

This is not FineWeb-Edu and holds none of its text. It has the same columns and folders, so that a pipeline for the real
dataset runs on it offline. The texts are docstrings, help topics and notes that ship with Python {python_version},
under the Python Software Foundation licence (PSF-2.0).

Made, not measured: `id`, `dump`, `url`, `file_path`, `language_score`, `score` and `int_score` come from hashes and
module names, `token_count` is UTF-8 bytes divided by 4. No page was crawled.

{documents} rows, {text_bytes} bytes of text. Defects are planted, because real sets have them: texts repeated in
another dump, ids used twice, a NUL character, and an empty text where that is at most one row in a thousand.
"""


@dataclass(frozen=True)
class DemoCorpus:
    """What `write_fineweb_edu` wrote.

    Args:
        folder: the dataset's root, with README.md and data/.
        files: the Parquet files, sorted; README.md is not among them.
        documents: rows in all files, planted ones included.
        text_bytes: UTF-8 bytes of the column `text` over all rows.
    """

    folder: Path
    files: tuple[Path, ...]
    documents: int
    text_bytes: int


@dataclass(frozen=True)
class Row:
    """The columns of one row that are not derived from others."""

    text: str
    record_id: str
    dump: str
    url: str


def write_fineweb_edu(folder: Path, *, documents_limit: int | None = None) -> DemoCorpus:
    """Write the corpus under `folder`; the same Python and pyarrow write the same bytes.

    Args:
        folder: created if absent; files of the same name are replaced.
        documents_limit: keep this many pages, first by id; None keeps all. Planted rows come on top.
    Raises:
        InputError: the limit is below 1, or this Python ships no standard-library sources.
    """
    if documents_limit is not None and documents_limit < 1:
        raise InputError(f"documents_limit is {documents_limit}", folder, "give 1 or more, or None for all documents")
    pages = library_pages(Path(sysconfig.get_path("stdlib")))
    pages = sorted(pages, key=lambda page: urn(page.url))[:documents_limit]
    shards = planted(pages)
    files = []
    for (dump, index), rows in sorted(shards.items()):
        path = folder / "data" / dump / f"train-{index:05d}-of-{FILES_PER_DUMP:05d}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        table = pa.Table.from_pylist([columns(row) for row in rows], schema=FINEWEB_EDU_SCHEMA)
        pq.write_table(table, path, row_group_size=ROWS_PER_GROUP, compression="zstd")
        files.append(path)
    documents = sum(map(len, shards.values()))
    text_bytes = sum(len(row.text.encode()) for rows in shards.values() for row in rows)
    python_version = ".".join(map(str, sys.version_info[:3]))
    card = README.format(python_version=python_version, documents=documents, text_bytes=text_bytes)
    (folder / "README.md").write_text(card, encoding="utf-8", newline="\n")
    return DemoCorpus(folder, tuple(files), documents, text_bytes)


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
