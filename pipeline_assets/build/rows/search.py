"""Search for documents by their source file or by a piece of their text."""

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from pipeline_assets.build.rows.file_rows import FileRows
from pipeline_assets.build.rows.row_stores import RowStores
from pipeline_assets.corpus.readers.row_positions import format_row_position
from pipeline_assets.corpus.readers.source_folder import input_folder, input_folder_path
from pipeline_assets.corpus.stores.object_source import source_path
from pipeline_assets.spine.errors import InputError

_EXCERPT_CHARACTERS = 100


class FoundRow(NamedTuple):
    """Search result: a source row, or a file that the corpus in `folder` did not read."""

    doc_id: str  # empty if no document contains the row
    folder: Path
    place: str  # file and, if it was read, the position of the row
    excerpt: str  # beginning of the document's text, or the reason why no document contains the row


def search_rows(stores: RowStores, query: str) -> Iterator[FoundRow]:
    """Yield the rows of files named `query`, else the documents that contain `query`.

    `query` may be the path of a file or the end of a path, or the URL of an object. White space in `query` matches any
    white space in a text.
    """
    corpora = [store for store in stores.source_row_stores() if isinstance(store, FileRows)]
    files = [_find_files(corpus, str(source_path(query))) for corpus in corpora]
    pattern = None if any(files) else re.compile(r"\s+".join(map(re.escape, query.split())))
    for corpus, names in zip(corpora, files, strict=True):
        schema, folder = corpus.schema, corpus.artifact.folder
        yield from (FoundRow("", folder, file, reason) for file, reason in names.items() if reason)
        columns = schema.id_column, schema.file_column, schema.row_column, schema.text_column
        for doc_id, file, row, text in corpus.read(*columns) if pattern or names else ():
            if pattern.search(text) if pattern else file in names:
                place = f"{file} {format_row_position(file, row, None)}"
                yield FoundRow(doc_id, folder, place, text[:_EXCERPT_CHARACTERS])
        for reject in corpus.rejects() if names else ():
            if reject.file in names:
                place = f"{reject.file} {format_row_position(reject.file, reject.row, None)}"
                yield FoundRow("", folder, place, f"rejected: {reject.reason} {reject.detail}".rstrip())


def _find_files(corpus: FileRows, query: str) -> dict[str, str]:
    """Find the files of a corpus whose path equals `query` or ends with it.

    Each path is mapped to the reason why the corpus did not read the file, or to "" if it did.
    """
    try:
        listing = corpus.listing(corpus.artifact.folder.name)
    except InputError:  # the listing is missing
        return {}
    folder = input_folder_path(listing.artifact.manifest, listing.root)
    names = {entry["name"]: "" for entry in listing.artifact.manifest.identity.inputs}
    path = Path(query).absolute()
    path = path.parent.resolve() / path.name  # resolved like `folder`; the file itself may be a link
    is_end = re.compile(rf"(^|[/:]){re.escape(query)}$|^{re.escape(str(path))}$").search
    if folder is None:  # names of hub files begin with repository and commit
        return {name.partition(":")[2]: "" for name in names if is_end(name)}
    folder = folder.resolve()
    with contextlib.suppress(InputError, OSError):  # the folder is missing, or cannot be read
        source = input_folder(listing.artifact.manifest, listing.root)
        for name, pattern in () if source is None else source.excluded_files():
            names[name] = f"left out by the pattern {pattern!r} in `exclude`"
        for file in (Path(os.path.normpath(folder / query)), path):
            if file.is_file() and file.is_relative_to(folder):
                names.setdefault(file.relative_to(folder).as_posix(), "no pattern in `files` matches it")
    return {name: reason for name, reason in names.items() if is_end(f"{folder}/{name}")}
