"""Natural English for benchmarks: docstrings of the running Python's library, in FineWeb-Edu's columns."""

import ast
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline_assets.demo.corpora import web_row
from pipeline_assets.demo.texts import Page

_PAGE_CHARACTERS = 2_000
_DEFINITIONS = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def write_pages(folder: Path) -> int:
    """Write a Parquet file in `data`; return the UTF-8 bytes of its texts.

    Pages have 2,000 characters or more, no two the same text.
    """
    pages = {text: Page(f"https://pages.example/{number}", text) for number, text in enumerate(_texts())}
    rows = [web_row(page, "pages") for page in pages.values()]
    (folder / "data").mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows), folder / "data" / "pages.parquet", row_group_size=50, compression="zstd")
    return sum(len(text.encode()) for text in pages)


def _texts() -> Iterator[str]:
    library = Path(sysconfig.get_path("stdlib"))
    waiting = ""
    for path in sorted([*library.glob("*.py"), *library.glob("*/*.py")]):
        if path.parts[-2] in ("site-packages", "test"):
            continue
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, _DEFINITIONS) and (docstring := ast.get_docstring(node)) and docstring.isascii():
                waiting += docstring.replace("\0", "") + "\n\n"
            if len(waiting) >= _PAGE_CHARACTERS:
                yield waiting.strip()
                waiting = ""
