"""Benchmark of reading a Stack Exchange site against lxml.

    python benchmarks/stackexchange.py --mb 130 --runs 5

All passes run in one process. The peer is a short program: `iterparse` of lxml, bodies to text by lxml.html, threads
joined in a dictionary in memory; its texts lack the marks of lists, quotes and code. The ceiling is a bare `iterparse`
that makes a dictionary of each row and drops it. The reader also sorts the rows by question on disk (compressed, with
checksums, synced), lays out the HTML of every body, and builds Documents. The start is imports, measured on a site of
one post. Documents are proven equal to those of the tests' reference reader on the site itself, and the peer's threads
equal in number; then the site's rows, repeated under new ids, are the input, and each copy must give the same texts.
The site is --site, or a synthetic one of installed documentation and code. Flows take turns; ratios are medians of the
ratios within a round.
"""

import argparse
import itertools
import json
import re
import shutil
import statistics
import sys
import tempfile
import zlib
from collections.abc import Iterator
from html import escape
from pathlib import Path

from measure import PROJECT, Measured, machine_line, measure
from pages import installed_pieces

from pipeline_assets.corpus.document import Document

TESTS = PROJECT / "tests" / "oracles"
HEAD, END = b'\xef\xbb\xbf<?xml version="1.0" encoding="utf-8"?>\n<posts>\n', b"</posts>"
BUCKET_BYTES = 1 << 24
SYNTHETIC_THREADS = 1_000
_BODY_CHARACTERS = 1_000
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f\ufffe\uffff]")  # XML has no such characters
_ID = re.compile(rb' (Id|ParentId|AcceptedAnswerId)="(\d+)"')


def documents(posts: Path, folder: Path) -> Iterator[Document]:
    from pipeline_assets.corpus.readers.stackexchange.spill import plan_buckets, plan_spill, spill_rows
    from pipeline_assets.corpus.readers.stackexchange.threads import SiteRecipe, read_threads
    from pipeline_assets.spine.stage import WHOLE_SHARD
    from pipeline_assets.spine.staging import StagingView

    scores = {"min_question_score": None, "min_answer_score": None, "min_answers": 0}
    site = {"source": "stackexchange", "domain": "qa", "host": "site.example.org"}
    building, recipe = StagingView(folder), SiteRecipe.from_content(site | scores)
    receipts = [spill_rows(shard, WHOLE_SHARD, building) for shard in plan_spill(posts)]
    for bucket in plan_buckets(building, receipts, BUCKET_BYTES):
        outcomes = read_threads(bucket, posts.name, recipe)
        yield from (outcome for outcome in outcomes if isinstance(outcome, Document))


def read(posts: Path) -> tuple[int, int]:
    """Read a site; return the number of Documents and of their characters."""
    with tempfile.TemporaryDirectory(dir=posts.parent) as folder:
        lengths = [len(document.text) for document in documents(posts, Path(folder))]
    return len(lengths), sum(lengths)


def read_and_sum(posts: Path) -> tuple[int, int]:
    """Return the number of Documents and the sum of their texts' checksums."""
    with tempfile.TemporaryDirectory(dir=posts.parent) as folder:
        sums = [zlib.crc32(document.text.encode()) for document in documents(posts, Path(folder))]
    return len(sums), sum(sums)


def read_attributes(posts: Path) -> tuple[int, int]:
    """Read a site with lxml; return the number of rows and of attributes."""
    from lxml import etree

    rows = attributes = 0
    for _, element in etree.iterparse(posts, tag="row"):
        rows += 1
        attributes += len(dict(element.items()))
        element.clear()
        while element.getprevious() is not None:
            del element.getparent()[0]
    return rows, attributes


def join_threads(posts: Path) -> tuple[int, int]:
    """Read a site with lxml alone; count its threads and their characters."""
    from lxml import etree, html

    threads: dict[str, list[str]] = {}
    for _, row in etree.iterparse(posts, tag="row"):
        question = row.get("Id") if row.get("PostTypeId") == "1" else row.get("ParentId")
        body = row.get("Body", "")
        text = html.fromstring(body).text_content().strip() if body.strip() else ""
        threads.setdefault(question, []).extend([row.get("Title", ""), text])
        row.clear()
        while row.getprevious() is not None:
            del row.getparent()[0]
    lengths = [len("\n\n".join(parts)) for parts in threads.values()]
    return len(lengths), sum(lengths)


def prove_equal(posts: Path) -> tuple[int, int]:
    """Exit if a Document differs from the reference reader's; return their checksum."""
    sys.path.insert(0, str(TESTS))
    from plain_stackexchange import read_site

    threads = read_site(posts).threads
    with tempfile.TemporaryDirectory() as folder:
        for document, thread in zip(documents(posts, Path(folder)), threads, strict=True):
            if document.text != thread.text or document.meta.source_row != int(thread.question["row"]):
                sys.exit(f"{document.doc_id}: Document differs from the reference")
    return len(threads), sum(zlib.crc32(thread.text.encode()) for thread in threads)


def write_synthetic_site(posts: Path) -> None:
    """Write threads of two answers, whose bodies are installed documentation and code."""
    pieces = itertools.islice(installed_pieces(), 0, None, 10)
    with open(posts, "wb") as file:
        file.write(HEAD)
        for post_id, piece in zip(range(1, 3 * SYNTHETIC_THREADS + 1), pieces, strict=False):
            parent_id = (post_id - 1) // 3 * 3 + 1
            kind = 'PostTypeId="1" Title="Why?"' if post_id == parent_id else f'PostTypeId="2" ParentId="{parent_id}"'
            value = escape(_body(piece[:_BODY_CHARACTERS])).replace("\n", "&#xA;")
            row = f'  <row Id="{post_id}" {kind} CreationDate="2014-01-21T20:26:05.383" Score="3" Body="{value}" />\n'
            file.write(row.encode())
        file.write(END)


def _body(piece: str) -> str:
    """Return a piece as HTML: indented paragraphs as code, some others as lists."""
    blocks = []
    for number, paragraph in enumerate(paragraph for paragraph in piece.split("\n\n") if paragraph.strip()):
        text = escape(_CONTROL.sub("", paragraph), quote=False)
        if paragraph.startswith((" ", "\t")):
            blocks.append(f"<pre><code>{text}\n</code></pre>")
        elif number % 5 == 4:
            blocks.append("<ul>\n" + "".join(f"<li>{line}</li>\n" for line in text.splitlines()) + "</ul>")
        else:
            first, _, rest = text.partition(" ")
            blocks.append(f'<p><a href="https://site.example.org/q/{number}">{first}</a> <em>{rest}</em></p>')
    return "\n\n".join(blocks)


def write_copies(site: Path, posts: Path, mb: int) -> int:
    """Repeat a site's rows under new ids up to `mb` megabytes, and return how often."""
    rows = [line for line in site.read_bytes().splitlines(keepends=True) if line.lstrip().startswith(b"<row")]
    step = 10 ** len(str(max(int(number) for line in rows for _, number in _ID.findall(line))))
    copies = 0
    with open(posts, "wb") as file:
        file.write(HEAD)
        while file.tell() < mb * 1_000_000:
            first = copies * step
            for line in rows:
                file.write(_ID.sub(lambda match: b' %s="%d"' % (match[1], int(match[2]) + first), line))  # noqa: B023
            copies += 1
        file.write(END)
    return copies


FLOWS = {"lxml": read_attributes, "lxml, threads": join_threads, "corpusmill": read}


def measure_flows(posts: Path, runs: int) -> dict[str, list[Measured]]:
    """Measure the flows in turn, so that a busy machine slows down both."""
    rounds = [{name: measure(Path(__file__), [name, str(posts)], 1) for name in FLOWS} for _ in range(runs)]
    return {name: [results[name] for results in rounds] for name in FLOWS}


def main() -> None:
    parser = argparse.ArgumentParser(description="Posts.xml → Documents, against bare lxml")
    parser.add_argument("--mb", type=int, default=130, help="megabytes of XML")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--site", type=Path, help="a Posts.xml whose rows are repeated")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        site, posts, small_posts = (Path(temporary, name) for name in ("Site.xml", "Posts.xml", "Small.xml"))
        source = options.site
        shutil.copyfile(source, site) if source else write_synthetic_site(site)
        small = b'<row Id="1" PostTypeId="1" CreationDate="2014-01-21T20:26:05" Score="1" Title="a" Body="b" />\n'
        small_posts.write_bytes(HEAD + small + END)
        threads, checksums = prove_equal(site)
        copies = write_copies(site, posts, options.mb)
        mb = posts.stat().st_size / 1e6
        if read_and_sum(posts) != (copies * threads, copies * checksums):
            sys.exit(f"texts of {copies} copies must equal {copies} times those of the site")
        if (peers := join_threads(posts)[0]) != copies * threads:
            sys.exit(f"the peer has {peers} threads, the reader {copies * threads}")
        starts, figures = measure_flows(small_posts, options.runs), measure_flows(posts, options.runs)
    name = source.parent.name if source else "a synthetic site"
    print(f"{machine_line()}; median of {options.runs}; {mb:.0f} MB, {copies} times {name}\n")
    print("| flow | CPU s | start, CPU s | MB per CPU s beyond it | wall s | peak MiB |\n" + "|---" * 6 + "|")
    for name, runs in figures.items():
        cpu_s, start_s, wall_s, peak_mb = (
            statistics.median(values)
            for values in (
                [run.cpu_s for run in runs],
                [run.cpu_s for run in starts[name]],
                [run.wall_s for run in runs],
                [run.peak_mb for run in runs],
            )
        )
        speed = mb / (cpu_s - start_s)
        print(f"| {name} | {cpu_s:.2f} | {start_s:.2f} | {speed:.0f} | {wall_s:.2f} | {peak_mb:.0f} |")
    result = {}
    for peer in ("lxml", "lxml, threads"):
        pairs = list(zip(figures[peer], figures["corpusmill"], starts[peer], starts["corpusmill"], strict=True))
        whole = statistics.median(own.cpu_s / bare.cpu_s for bare, own, _, _ in pairs)
        beyond = statistics.median((own.cpu_s - b.cpu_s) / (bare.cpu_s - a.cpu_s) for bare, own, a, b in pairs)
        result[peer] = {"cpu_to_it": round(whole, 3), "without_start": round(beyond, 3)}
    print(json.dumps({"benchmark": "stackexchange", "mb": round(mb), **result}))


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] in FLOWS:  # a flow, in a process of its own
        print(*FLOWS[sys.argv[1]](Path(sys.argv[2])))
    else:
        main()
