"""Texts for benchmarks, from the files of installed programs."""

import ast
import hashlib
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline_assets.demo.corpora import EDU_COLUMNS, page_rows
from pipeline_assets.demo.texts import DemoPage

_PAGE_CHARACTERS = 2_000
_PIECE_CHARACTERS = 3_000
_ENDINGS = (".py", ".pyi", ".md", ".rst", ".txt")
_DEFINITIONS = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def write_pages(folder: Path) -> int:
    """Write docstrings of the standard library as Parquet with FineWeb-Edu's columns.

    Pages differ and have 2,000 characters or more. Return the number of UTF-8 bytes in all texts.
    """
    pages = {text: DemoPage(f"https://pages.example/{number}", text) for number, text in enumerate(_texts())}
    [rows] = page_rows(pages.values(), "pages.parquet", EDU_COLUMNS).values()
    (folder / "data").mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows), folder / "data" / "pages.parquet", row_group_size=50, compression="zstd")
    return sum(len(text.encode()) for text in pages)


def installed_pieces() -> Iterator[str]:
    """Yield pieces of installed programs and documentation, about 490 MB.

    Pieces have about 3,000 characters, and none is repeated. Files are sorted by path: site-packages, then the standard
    library. Pieces with `<|` or `doc>` are dropped: peers encode `<|endoftext|>` in text as a control token, and
    `</doc>` ends a page of an extraction.
    """
    seen: set[str] = set()
    for folder in (sysconfig.get_path("purelib"), sysconfig.get_path("stdlib")):
        for path in sorted(path for path in Path(folder).rglob("*") if path.suffix in _ENDINGS and path.is_file()):
            piece = ""
            for paragraph in path.read_text("utf-8", errors="ignore").replace("\0", "").split("\n\n"):
                piece += paragraph + "\n\n"
                if len(piece) >= _PIECE_CHARACTERS:
                    digest = hashlib.md5(piece.encode(), usedforsecurity=False).hexdigest()
                    if digest not in seen and "<|" not in piece and "doc>" not in piece:
                        seen.add(digest)
                        yield piece
                    piece = ""


def _texts() -> Iterator[str]:
    library = Path(sysconfig.get_path("stdlib"))
    pending = ""
    for path in sorted([*library.glob("*.py"), *library.glob("*/*.py")]):
        if path.parts[-2] in ("site-packages", "test"):
            continue
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, _DEFINITIONS) and (docstring := ast.get_docstring(node)) and docstring.isascii():
                pending += docstring.replace("\0", "") + "\n\n"
            if len(pending) >= _PAGE_CHARACTERS:
                yield pending.strip()
                pending = ""
