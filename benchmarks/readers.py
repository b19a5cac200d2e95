"""Benchmark of source readers against bare loops of the same libraries.

    python benchmarks/readers.py --mb 200 --runs 3

Each flow reads files of a source in one process. The bare loops only read a file's texts: msgspec on lines, pyarrow on
batches, `str.startswith` on the lines of `<doc>` files. The readers also check every row, keep its other columns,
record its position and build the Document. The texts and their order are proven equal. Input: the demo corpus,
repeated, in each format.
"""

import argparse
import json
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from corpus import write_shards
from measure import machine_line, measure, ratios, table

from pipeline_assets.corpus.document import Document

SHARD_BYTES = 64 << 20
WIKI = "https://en.wikipedia.org/wiki?curid="


def bare_lines(path: Path) -> Iterator[str]:
    """Yield texts in blocks of a MiB, which is faster than line by line."""
    import msgspec

    decoder = msgspec.json.Decoder()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            yield from (row["text"] for row in decoder.decode_lines(block + file.readline()))


def bare_parquet(path: Path) -> Iterator[str]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(1024, use_threads=False):
            yield from (row["text"] for row in batch.to_pylist())


def bare_doc(path: Path) -> Iterator[str]:
    page: list[str] = []
    with open(path, encoding="utf-8", newline="\n") as file:
        for line in file:
            if line.startswith("<doc "):
                page = []
            elif line.startswith("</doc>"):
                yield "".join(page[2:]).strip("\n")
            else:
                page.append(line)


def local(path: Path) -> Iterator[str]:
    from pipeline_assets.corpus.normalize.files import read_piece
    from pipeline_assets.corpus.readers.column_recipe import LicensedColumns
    from pipeline_assets.corpus.readers.local import LocalRecipe, plan_local
    from pipeline_assets.corpus.readers.source_folder import list_files

    recipe = LocalRecipe(
        files=(path.name,),
        source="demo",
        domain="web",
        license_tag="psf-2.0",
        columns=LicensedColumns(text="text", id="id", created_at=None, license=None),
        text_unit=None,
    )
    for piece in plan_local(list_files(path.parent, recipe.files), recipe, SHARD_BYTES):
        yield from (row.text for row in read_piece(piece, recipe) if isinstance(row, Document))


def wikipedia(path: Path) -> Iterator[str]:
    from pipeline_assets.corpus.readers.source_folder import list_files, split_byte_ranges
    from pipeline_assets.corpus.readers.wikipedia import WikipediaRecipe, read_wikipedia

    recipe = WikipediaRecipe(
        files=(path.name,),
        source="wikipedia",
        domain="encyclopedia",
        language=None,
        dump_date="2024-03-01",
        license_tag=None,
        title="none",
    )
    for file in list_files(path.parent, recipe.files):
        for piece in split_byte_ranges(file, SHARD_BYTES):
            yield from (row.text for row in read_wikipedia(piece, recipe) if isinstance(row, Document))


Flow = Callable[[Path], Iterator[str]]
PAIRS: dict[str, tuple[Flow, Flow]] = {
    "rows.jsonl": (bare_lines, local),
    "rows.parquet": (bare_parquet, local),
    "wiki_doc": (bare_doc, wikipedia),
    "wiki_json": (bare_lines, wikipedia),
}


def write_inputs(folder: Path, text_mb: int) -> int:
    """Write the same texts as four files of sources; return the texts' UTF-8 bytes."""
    import msgspec
    import pyarrow as pa
    import pyarrow.parquet as pq

    from pipeline_assets.corpus.formats.jsonl_zst import read_line_blocks

    paths, _, _ = write_shards(folder, text_mb)
    decoder = msgspec.json.Decoder(Document)
    documents = [row for path in paths for block in read_line_blocks(path) for row in decoder.decode_lines(block)]
    texts = [document.text.strip("\n").replace("&", "+") for document in documents]  # extractions escape `&`
    rows = [
        {"id": document.doc_id, "text": text} | document.meta.columns()
        for document, text in zip(documents, texts, strict=True)
    ]
    (folder / "rows.jsonl").write_bytes(msgspec.json.Encoder().encode_lines(rows))
    pq.write_table(pa.Table.from_pylist(rows), folder / "rows.parquet", compression="zstd", row_group_size=1000)
    with open(folder / "wiki_doc", "w") as doc, open(folder / "wiki_json", "w") as lines:
        for number, text in enumerate(texts):
            page = {"id": str(number), "url": f"{WIKI}{number}", "title": f"Page {number}"}
            doc.write('<doc id="{id}" url="{url}" title="{title}">\n{title}\n\n'.format(**page) + text + "\n\n</doc>\n")
            lines.write(json.dumps(page | {"text": text}) + "\n")
    return sum(len(text.encode()) for text in texts)


def print_digest(texts: Iterator[str]) -> None:
    """Print the number and a checksum of the texts, to compare flows."""
    count = digest = 0
    for text in texts:
        count += 1
        digest = zlib.crc32(text.encode("utf-8"), digest)
    print(count, digest)


def main() -> None:
    parser = argparse.ArgumentParser(description="Files of sources → Documents, against bare loops")
    parser.add_argument("--mb", type=int, default=130, help="megabytes of text")
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    result: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as temporary:
        mb = write_inputs(Path(temporary), options.mb) / 1e6
        print(f"{machine_line()}; median of {options.runs}, {mb:.0f} MB of text\n")
        for name in PAIRS:
            path = str(Path(temporary) / name)
            measured = {f"{kind} {name}": measure(Path(__file__), [kind, path], options.runs) for kind in KINDS}
            if len({flow.printed for flow in measured.values()}) != 1:
                sys.exit(f"{name}: the texts differ")
            print(table(measured, f"bare {name}", mb) + "\n")
            result |= ratios(measured, f"bare {name}")
    print(json.dumps({"benchmark": "readers", "mb": round(mb), "cpu_to_ceiling": result}))


KINDS = ("bare", "reader")
if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] in KINDS:  # a flow, in a process of its own
        target = Path(sys.argv[2])
        print_digest(PAIRS[target.name][KINDS.index(sys.argv[1])](target))
    else:
        main()
