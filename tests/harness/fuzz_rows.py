"""Fuzzed source files: Posts.xml, output of wikiextractor, JSON rows and Parquet."""

import io
import itertools
import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import posts_xml
import pyarrow as pa
import pyarrow.parquet as pq
from fuzz_edits import Reader
from nemotron_rows import ANSWER, LOOKUP, ORIGIN, QUESTION, SETTINGS, called, encoder, reply

from pipeline_assets.corpus.document import Document
from pipeline_assets.corpus.nemotron.normalise_rows import normalise_rows
from pipeline_assets.corpus.nemotron.row_census import RowCensus
from pipeline_assets.corpus.normalize.row_converter import RowConverter
from pipeline_assets.corpus.readers.column_recipe import LicensedColumns, SourceLabels
from pipeline_assets.corpus.readers.faults import Fault
from pipeline_assets.corpus.readers.local import LocalRecipe, piece_rows, plan_local, read_first_rows
from pipeline_assets.corpus.readers.source_folder import ByteRange, SourceFile
from pipeline_assets.corpus.readers.stackexchange.body_text import body_text
from pipeline_assets.corpus.readers.stackexchange.posts import Post, read_rows
from pipeline_assets.corpus.readers.wikipedia import WikipediaRecipe, read_wikipedia

_COLUMNS = {"text": "text", "id": "id", "created_at": "date", "license": None}
_LOCAL = LocalRecipe.model_validate(
    {"files": ["*"], "source": "s", "domain": "d", "license_tag": "cc0-1.0", "columns": _COLUMNS}
)
_LABELS = SourceLabels(source="s", domain="d", license_tag="cc0-1.0")
_CONVERTER = RowConverter(LicensedColumns.model_validate(_COLUMNS), _LABELS, "a")
_WIKIPEDIA = WikipediaRecipe(source="w", license_tag="cc0-1.0", language="en")
_SHARD_BYTES = 100  # small, so that an input has several pieces


def _posts() -> list[bytes]:
    body = '<p>A <b>b</b> &amp; <a href="x" title="&quot;">c</a></p>\n<pre><code>d &lt; 1\n</code></pre><ul><li>e</ul>'
    rows = [
        posts_xml.question(1, Body=body, Tags="|a|b|", AcceptedAnswerId=2, ContentLicense="CC BY-SA 4.0"),
        posts_xml.answer(2, 1, Body="<blockquote><p>q</p></blockquote><ol start=3><li><p>x</p></li></ol>"),
        posts_xml.row(Id=3, PostTypeId=5, Body=""),
        posts_xml.question(4, Title="x\ty\nz", Body="<table><tr><td>1</td></tr></table><img alt='i'><!-- c --><hr>"),
    ]
    return [posts_xml.dump(*rows), posts_xml.dump(rows[0]), posts_xml.dump()]


def _read_posts(data: bytes, folder: Path) -> None:
    blocks = [data[start : start + _SHARD_BYTES] for start in range(0, len(data), _SHARD_BYTES)]
    for row in read_rows(blocks, "Posts.xml"):
        _, post = row.to_post()
        if isinstance(post, Post):
            assert "\r" not in body_text(post.body)


def _extractions() -> list[bytes]:
    doc = '<doc id="{0}" url="https://en.wikipedia.org/wiki?curid={0}" title="Page &amp; {0}">\n{1}\n</doc>\n'
    pages = (
        doc.format(12, "Page &amp; 12\n\nText of AT&amp;T &lt;nowiki&gt;.\n\nMore.")
        + doc.format(13, "")
        + doc.format(14, "é 🙂")
    )
    line = {"id": "12", "revid": "99", "url": "https://en.wikipedia.org/wiki?curid=12", "title": "T", "text": "T\n\nx"}
    lines = "".join(json.dumps({**line, "id": str(number)}) + "\n" for number in range(3))
    return [pages.encode(), lines.encode(), pages.replace("\n", "\r\n").encode()]


def _read_extraction(data: bytes, folder: Path) -> None:
    file = _write(data, folder, "wiki_00")
    for start in range(0, max(len(data), 1), 200):
        for item in read_wikipedia(ByteRange(file, start, start + 200), _WIKIPEDIA):
            assert not isinstance(item, Document) or item.text


def _write(data: bytes, folder: Path, name: str) -> SourceFile:
    path = folder / name
    path.write_bytes(data)
    return SourceFile(path, name, len(data))


def _json_lines() -> list[bytes]:
    rows = [
        {"text": "Text é 🙂.", "id": "a", "date": "2019-04-21", "n": [1, 2.5, None, {"x": True}], "title": "T"},
        {"text": "More\ntext.", "id": 7, "date": "2019-04-21T18:54:04Z", "url": "https://a"},
    ]
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
    return [lines, json.dumps(rows, indent=1).encode(), json.dumps(rows[0], indent=1).encode() + b"\n"]


def _csv() -> list[bytes]:
    return [
        b'text,id,date\n"a, ""b""\nc",1,2019-04-21\nd,2,\n',
        b"text\tid\tdate\r\na\t1\t2019-04-21\r\n",
    ]


def _read_local(name: str, data: bytes, folder: Path) -> None:
    file = _write(data, folder, name)
    unreadable: dict[str, str] = {}
    for piece in plan_local([file], _LOCAL, _SHARD_BYTES, unreadable):
        for position, row in itertools.islice(piece_rows(piece, _LOCAL), 5_000):
            if not isinstance(row, Fault):
                _CONVERTER.to_document(row, position)
    read_first_rows(file)


def _conversations() -> list[bytes]:
    calls = [QUESTION, called({"word": "sum"}, '{"word": 1}'), reply("4"), ANSWER]
    rows = [
        {"messages": [QUESTION, {**ANSWER, "reasoning_content": "Count."}], "uuid": "a", "license": "cc-by-4.0"},
        {"messages": calls, "tools": [LOOKUP], "metadata": {"used_in": ["x"], "n": 1}},
        {"messages": [{"role": "system", "content": [{"type": "text", "text": "Be kind."}]}, QUESTION, ANSWER]},
        {"text": "<|start|>user<|message|>2 + 2?<|end|>"},
        {"messages": [QUESTION, {"role": "assistant", "content": "<think>Count.</think>4"}], "tools": "[]"},
    ]
    return [json.dumps(row).encode() for row in rows]


def _read_conversation(data: bytes, folder: Path) -> None:
    file = _write(data + b"\n", folder, "rows.jsonl")
    rows = [(position, row) for position, row in piece_rows(ByteRange(file, 0, len(data) + 1), _LOCAL)]
    census = RowCensus()
    for _, row in rows:
        if not isinstance(row, Fault):
            census.add_row(row)
    done = normalise_rows(rows, SETTINGS, ORIGIN, encoder())
    assert done.batch.num_rows + len(done.rejects) <= len(rows)


def _tables() -> list[bytes]:
    plain = pa.table({"text": [f"text {n}" for n in range(40)], "id": [*range(40)], "date": ["2019-04-21"] * 40})
    nested = pa.table(
        {
            "text": pa.array(["a", None, "c"], pa.large_string()),
            "id": pa.array(["x", "y", "z"]).dictionary_encode(),
            "date": pa.array([0, None, 1 << 40], pa.timestamp("us", "UTC")),
            "more": [{"a": [1, 2]}, None, {"a": []}],
            "bytes": pa.array([b"\xff", b"", None]),
        }
    )
    files = []
    for table, options in ((plain, {"row_group_size": 10}), (nested, {"compression": "none"}), (nested, {})):
        output = io.BytesIO()
        pq.write_table(table, output, write_page_checksum=True, **options)
        files.append(output.getvalue())
    return files


_XML = [b"<row ", b" />", b"&#x0;", b"&#xD800;", b"&#99999999;", b"&amp;", b"&bad;", b"<![CDATA[", b"<!--", b"]]>"]
_HTML = [b"&lt;p&gt;", b"&lt;/pre&gt;", b"&lt;li&gt;" * 50, b"&lt;blockquote&gt;" * 50, b"&lt;!--", b"Id=", b'Id="0"']
_DOC = [b'<doc id="', b"</doc>\n", b'title="', b'">', b'{"id": ', b'"text": ', b"\\ud800", b"<ref>", b"&amp;lt;"]
_JSON = [b'{"text": ', b"\\ud800", b"\\u0000", b"}{", b"[{", b",,", b"/*", b"1e999", b"-", b'"text"', b"NaN", b"\\x"]
_CSV = [b'""', b'"\n', b",,,,", b"\r", b"text,", b";", b"\t\t"]
_MESSAGES = [
    b"<think>",
    b"</think>",
    b"<|start|>",
    b"<|end|>",
    b'"role": "tool"',
    b'"tool_calls": [',
    b'"content": null',
]


def _local_reader(noun: str, name: str, seeds: Callable[[], Sequence[bytes]], pieces: Sequence[bytes]) -> Reader:
    return Reader(noun, seeds, partial(_read_local, name), pieces=pieces, form="json" if name == "a.jsonl" else "")


READERS: Sequence[Reader] = (
    Reader("Posts.xml", _posts, _read_posts, pieces=[*_XML, *_HTML]),
    Reader("wikiextractor output", _extractions, _read_extraction, pieces=_DOC),
    _local_reader("JSON files", "a.jsonl", _json_lines, _JSON),
    _local_reader("CSV files", "a.csv", _csv, _CSV),
    Reader("conversations", _conversations, _read_conversation, pieces=_MESSAGES, form="json"),
    _local_reader("Parquet files", "a.parquet", _tables, [b"PAR1", b"\x15\x00", b"\x19\x1c", b"\x00" * 30]),
)
