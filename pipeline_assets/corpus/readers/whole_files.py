"""Files that are one document each: HTML pages, notebooks, DOCX and PDF files."""

import io
import logging
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata

from pipeline_assets.corpus.readers.columns import find_column
from pipeline_assets.corpus.readers.faults import Fault, Row
from pipeline_assets.corpus.readers.html_page import decoded_html_row, html_row
from pipeline_assets.corpus.readers.json_lines import parse_row
from pipeline_assets.corpus.readers.lines import MAX_LINE_BYTES, UTF8_MARK, read_blocks
from pipeline_assets.corpus.readers.source_folder import SourceFile, open_source
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.install_hints import not_installed_error

_MAX_DOCX_BYTES = 64 << 20  # of all parts but media, whose text takes fifty times the memory
_UNREAD_PARTS = ("word/media/", "word/embeddings/", "word/fonts/")
_TICKS = re.compile("`{3,}")
Reader = Callable[[bytes], Row]


def _notebook_row(content: bytes) -> Row:
    """Return a row with the Markdown and code cells of a Jupyter notebook (format 4).

    Fences are longer than the code's backtick runs. If the notebook states its language, the language is in
    `language` and after opening fences.
    """
    notebook = parse_row(content.removeprefix(UTF8_MARK), "file")
    if isinstance(notebook, Fault):
        return notebook
    columns = (find_column(notebook, f"metadata.{path}") for path in ("language_info.name", "kernelspec.language"))
    values = (column.value for column in columns if column)
    language = next((value for value in values if value and isinstance(value, str)), "")
    texts = []
    try:
        for cell in notebook["cells"]:
            text = "".join(cell["source"]).strip("\n")
            if cell["cell_type"] == "code" and text:
                fence = "`" * (1 + max(map(len, _TICKS.findall(text)), default=2))
                text = f"{fence}{language}\n{text}\n{fence}"
            texts += [text] if cell["cell_type"] != "raw" and text.strip() else []
    except (KeyError, TypeError):
        return Fault("not_notebook", "the file has no list of cells with a `source`")
    return {"text": "\n\n".join(texts)} | ({"language": language} if language else {})


def _docx_row(content: bytes) -> Row:
    import mammoth

    read_parts = io.BytesIO()  # without the unread parts, which a file could otherwise name as its text
    with zipfile.ZipFile(io.BytesIO(content)) as parts, zipfile.ZipFile(read_parts, "w") as copy:
        names = [name for name in parts.NameToInfo if not name.startswith(_UNREAD_PARTS)]
        if sum(parts.getinfo(name).file_size for name in names) > _MAX_DOCX_BYTES:
            return Fault("too_large", f"more than {_MAX_DOCX_BYTES >> 20} MiB without compression; divide the file")
        for name in (name for name in names if name.lower().endswith((".xml", ".rels"))):
            copy.writestr(name, part := parts.read(name))
            if b"<!ENTITY" in part.replace(b"\0", b""):  # in UTF-8 or UTF-16; ECMA-376 forbids them
                return Fault("not_docx", f"{name} declares XML entities, whose text may have any size")
    skip_image = mammoth.images.img_element(lambda image: {})
    return decoded_html_row(mammoth.convert_to_html(read_parts, convert_image=skip_image).value)


def _pdf_row(content: bytes) -> Row:
    import pypdf

    logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # it logs each repair of a damaged file
    reader = pypdf.PdfReader(io.BytesIO(content))
    if reader.is_encrypted:
        return Fault("encrypted", "remove the password: qpdf --decrypt IN OUT")
    pages, size = [], 0
    for page in reader.pages:
        pages.append(page.extract_text().strip())
        size += len(pages[-1])
        if size > MAX_LINE_BYTES:  # of one content, which a few bytes repeat on any number of pages
            return Fault("too_large", f"the text is longer than {MAX_LINE_BYTES >> 20} MiB")
    if pages and not any(pages):
        return Fault("no_text", "scanned pages; add a text layer: ocrmypdf IN OUT")
    title = reader.metadata.title if reader.metadata else None
    return {"text": "\n\n".join(filter(None, pages))} | ({"title": title} if title else {})


def _on_empty_stack(read: Reader) -> Reader:
    """Return a reader that runs in its own thread, so that all callers recurse alike."""

    def read_in_thread(content: bytes) -> Row:
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(read, content).result()

    return read_in_thread


_READERS: dict[str, Reader] = {
    "html": html_row,
    "notebook": _notebook_row,
    "docx": _on_empty_stack(_docx_row),
    "pdf": _on_empty_stack(_pdf_row),
}
WHOLE_FILE_FORMATS = frozenset(_READERS)
_PACKAGES = {"html": ["selectolax"], "docx": ["mammoth", "selectolax"], "pdf": ["pypdf"]}


def extractor_versions(formats: Iterable[str | None]) -> dict[str, str]:
    """Return the versions of the packages that extract text from these formats.

    Raises:
        UsageError: A package is not installed.
    """
    try:
        names = {name for format_ in formats for name in _PACKAGES.get(format_ or "", ())}
        return {name: metadata.version(name) for name in sorted(names)}
    except ImportError as error:
        raise not_installed_error(error, "office") from None


def whole_file_rows(file: SourceFile, format_: str) -> Iterator[tuple[int, Row]]:
    """Yield position 0 with a file's row or fault; InputError if the file is too long."""
    content = bytearray()
    with open_source(file) as opened:
        for block in read_blocks(opened, file):
            content += block
            if len(content) > MAX_LINE_BYTES:
                what = f"the file is longer than {MAX_LINE_BYTES >> 20} MiB"
                raise InputError(what, file.path, "divide the file, or exclude it")
    try:
        row = _READERS[format_](bytes(content))
        if not isinstance(row, Fault):  # parsers may return subclasses of `str`, and texts that are not valid in UTF-8
            row = {
                key: str(text).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
                for key, text in row.items()
            }
    except (ImportError, MemoryError, InputError):
        raise
    except Exception as error:  # a damaged file can raise any exception within a parser
        row = Fault(f"not_{format_}", type(error).__name__)
    yield 0, row
