"""Peak memory of readers is equal for a file and one four times as large."""

import gzip
import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import py7zr
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from posts_xml import END, HEAD, answer, question

HERE = Path(__file__).parent
PROJECT = HERE.parents[2]
SMALL_MB = 40

READ = """
import json, sys
from pathlib import Path
from pipeline_assets.corpus.normalize.files import read_piece
from pipeline_assets.corpus.readers.hub_cache import Span
from pipeline_assets.corpus.readers.json_lines import parse_row
from pipeline_assets.corpus.readers.local import LocalRecipe, plan_local
from pipeline_assets.corpus.readers.stackexchange.spill import plan_buckets, plan_spill, spill_rows
from pipeline_assets.corpus.readers.stackexchange.threads import read_threads
from pipeline_assets.corpus.readers.source_folder import split_byte_ranges, list_files
from pipeline_assets.corpus.readers.wikipedia import WikipediaRecipe, read_wikipedia
from pipeline_assets.corpus.readers.wikipedia_pages import count_pages
from pipeline_assets.corpus.snapshot.line_prefixes import SpanStream, row_lines
from pipeline_assets.spine.staging import StagingView
from pipeline_assets.spine.stage import WHOLE_SHARD
from tests.harness.peak_memory import own_peak_mib

path = Path(sys.argv[1])
files = list_files(path.parent, [path.name])
common = {"files": ["*"], "source": "s", "domain": "d"}
columns = {"text": "text", "id": None, "created_at": None, "license": None}
if path.name.startswith("wiki"):
    wikipedia = WikipediaRecipe.model_validate(
        common | {"language": None, "dump_date": None, "license_tag": "cc-by-sa-4.0"})
    pieces = split_byte_ranges(files[0], 1 << 30)
    sum(map(count_pages, pieces))
    rows = (row for piece in pieces for row in read_wikipedia(piece, wikipedia))
elif path.name in ("Posts.xml", "garden.7z"):
    from posts_xml import site
    folder = StagingView(path.parent)
    receipts = [spill_rows(shard, WHOLE_SHARD, folder, 4 << 20) for shard in plan_spill(path, 16 << 20)]
    buckets = plan_buckets(folder, receipts, 4 << 20)
    rows = (row for bucket in buckets for row in read_threads(bucket, path.name, site()))
elif path.name.startswith("hub"):
    rows = map(parse_row, row_lines(SpanStream([Span(0, files[0].bytes, path)]), path))
else:
    local = LocalRecipe.model_validate(
        common | {"license_tag": "cc0-1.0", "columns": columns, "text_unit": "paragraph"})
    rows = (row for piece in plan_local(files, local, 1 << 30) for row in read_piece(piece, local))
count = sum(1 for _ in rows)
print(json.dumps([count, own_peak_mib()]))
"""


def random_texts(mb: int) -> Iterator[str]:
    """Yield texts of 1 to 20 kB that hardly compress."""
    rng = random.Random(7)
    remaining = mb * 1_000_000
    while remaining > 0:
        text = rng.randbytes(rng.randrange(500, 10_000)).hex()
        remaining -= len(text)
        yield text


def lines(mb: int) -> bytes:
    return b"".join(json.dumps({"text": text, "n": 5}).encode() + b"\n" for text in random_texts(mb))


def csv_rows(mb: int) -> bytes:
    return b"text,n\n" + b"".join(f'"{text[:99]}\n""{text[99:]}""",5\n'.encode() for text in random_texts(mb))


def parquet(path: Path, mb: int) -> None:
    table = pa.table({"text": list(random_texts(mb))})
    pq.write_table(table, path, row_group_size=500, compression="zstd")


def wikipedia(mb: int) -> bytes:
    header = '<doc id="{0}" url="https://en.wikipedia.org/wiki?curid={0}" title="T">\nT\n\n{1}\n\n</doc>\n'
    return "".join(header.format(number, text) for number, text in enumerate(random_texts(mb))).encode()


def threads(mb: int) -> Iterator[bytes]:
    """Yield rows by id: a question, and an answer to any earlier question."""
    rng = random.Random(7)
    for number in range(1, 600 * mb, 2):
        yield question(number, Body=f"<p>{rng.randbytes(700).hex()}</p>")
        parent_id = rng.randrange(1, number + 1, 2)
        yield answer(number + 1, parent_id, Body=f"<p>{rng.randbytes(500).hex()}</p>\n<p>Or so.</p>")


def site(path: Path, mb: int) -> None:
    posts = path.with_name("Posts.xml")
    posts.write_bytes(HEAD + b"".join(threads(mb)) + END)
    if path.suffix == ".7z":
        with py7zr.SevenZipFile(path, "w", filters=[{"id": py7zr.FILTER_LZMA2, "preset": 0}]) as packing:
            packing.write(posts, "Posts.xml")


WRITE: dict[str, Callable[[Path, int], object]] = {
    "rows.jsonl": lambda path, mb: path.write_bytes(lines(mb)),
    "rows.jsonl.gz": lambda path, mb: path.write_bytes(gzip.compress(lines(mb), 1)),
    "rows.jsonl.zst": lambda path, mb: path.write_bytes(zstandard.compress(lines(mb))),
    "hub.json.gz": lambda path, mb: path.write_bytes(gzip.compress(lines(mb), 1)),
    "hub.jsonl.zst": lambda path, mb: path.write_bytes(zstandard.compress(lines(mb))),
    "rows.parquet": parquet,
    "rows.csv": lambda path, mb: path.write_bytes(csv_rows(mb)),
    "array.json": lambda path, mb: path.write_bytes(b"[" + lines(mb).rstrip().replace(b"\n", b",\n") + b"]"),
    "paragraphs.txt": lambda path, mb: path.write_bytes("\n\n".join(random_texts(mb)).encode()),
    "wiki_00": lambda path, mb: path.write_bytes(wikipedia(mb)),
    "Posts.xml": site,
    "garden.7z": site,
}


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
@pytest.mark.parametrize("name", WRITE)
def test_peak_memory_grows_by_less_than_a_tenth_at_four_times_the_size(name: str, tmp_path: Path) -> None:
    counts, peaks = {}, {}

    for scale in (1, 4):
        path = tmp_path / str(scale) / name
        path.parent.mkdir()
        WRITE[name](path, SMALL_MB * scale)
        result = subprocess.run(
            [sys.executable, "-c", READ, path],
            cwd=PROJECT,
            env={"PYTHONPATH": f"{PROJECT}:{PROJECT / 'tests' / 'builders'}", "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            check=True,
        )
        counts[scale], peaks[scale] = json.loads(result.stdout)

    assert counts[4] > 3.9 * counts[1] > 10_000
    assert peaks[4] - peaks[1] < min(0.10 * peaks[1], 10), peaks
    assert peaks[4] < 250
