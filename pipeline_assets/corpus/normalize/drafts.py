"""Drafts of recipe sections for a folder, from file names and first rows.

Drafts are complete: a recipe with unchanged drafts can be built. Notes explain values to the user and mark guesses.
"""

import fnmatch
import glob
import itertools
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

from pipeline_assets.corpus.normalize.conversation_files import describe_conversations, find_list
from pipeline_assets.corpus.normalize.left_out import (
    LeftOutFiles,
    describe_left_out,
    describe_links_and_copies,
    jq_command,
    leave_out,
    scan_hidden_entries,
    unreadable_entries,
    unreadable_reason,
)
from pipeline_assets.corpus.readers.column_recipe import LicensedColumns
from pipeline_assets.corpus.readers.columns import find_column
from pipeline_assets.corpus.readers.file_patterns import matching_names, utf8_name
from pipeline_assets.corpus.readers.json_values import is_array_or_multiline_file
from pipeline_assets.corpus.readers.lines import piece_lines
from pipeline_assets.corpus.readers.local import SAMPLE_SIZE, read_first_rows
from pipeline_assets.corpus.readers.source_folder import ByteRange, SourceFile, SourceFolder
from pipeline_assets.corpus.readers.source_formats import (
    COLUMN_FORMATS,
    FORMATS,
    detect_format,
    strip_compression_suffix,
)
from pipeline_assets.corpus.readers.stackexchange.archive import POSTS_FILE, is_archive, site_host
from pipeline_assets.corpus.readers.wikipedia import is_on_other_site
from pipeline_assets.corpus.readers.wikipedia_pages import Page, read_pages
from pipeline_assets.spine.errors import InputError, UsageError
from pipeline_assets.spine.manifest import MANIFEST_FILE
from pipeline_assets.spine.plural import pluralize

_TEXT_COLUMN_NAMES = ("text", "content", "body", "raw_content", "article", "document", "markdown", "md")
_PAGES_PATTERN, _ANY_PATTERN = "wiki_*", "**/*"
_UNREADABLE_ENTRY = "a broken link, a link to a folder above it, or a pipe"
_DUMP_DATE = re.compile(r"(?<!\d)20\d\d(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])(?!\d)")
_WIKIPEDIA_LICENCE = "cc-by-sa-4.0"
_COLUMN_PAIRS = (("prompt", "response"), ("prompt", "completion"), ("instruction", "output"), ("question", "answer"))
_MAX_LISTED_REASONS = 3  # reasons why files cannot be read, in an error message
FILE_DESCRIPTIONS = {
    "stackexchange": f"{POSTS_FILE}, a site's .7z",
    "wikipedia": "output of wikiextractor",
    "local": f"files that end with {', '.join(FORMATS)}",
}
"""Files of each kind of source, for messages."""


@dataclass(frozen=True)
class SectionDraft:
    """Draft of a source's recipe section, with notes on some of its keys.

    `guess_message` reports a guessed text column; it is empty if the column was not guessed.
    """

    content: Mapping[str, Any]
    notes: Mapping[str, str] = field(default_factory=dict)
    guess_message: str = ""


def draft_sources(folder: SourceFolder, source_name: str, root: Path) -> tuple[list[SectionDraft], list[str]]:
    """Draft sections for a folder's files; raise UsageError if none can be read.

    The first source of local files is called `source_name`, further ones `<source_name>-<text column>`. A source of
    Stack Exchange is named after its host, and a source of Wikipedia pages is called `wikipedia`. Commands in messages
    write to the data root `root`.

    Returns:
        The drafts, and messages about files that no draft reads, about links, and about files with equal contents.
    """
    files: dict[str, list[SourceFile]] = {kind: [] for kind in FILE_DESCRIPTIONS}
    left_out = LeftOutFiles(list)
    is_whole = folder.patterns == (_ANY_PATTERN,)
    odd = unreadable_entries(folder.path, None if is_whole else matching_names(folder.path, folder.patterns))
    for entry in odd:
        reason = _UNREADABLE_ENTRY if utf8_name(entry) == entry else "a name that is not UTF-8; rename the file"
        left_out[PurePosixPath(entry).suffix.lower(), reason].append(utf8_name(entry))
    folder = replace(folder, exclude=(*folder.exclude, *(utf8_name(glob.escape(entry)) for entry in odd)))
    has_files, hidden = scan_hidden_entries(folder.path) if is_whole else (True, [])
    if hidden:
        left_out["hidden", "files and folders whose names begin with a dot are not read"] = hidden
    for file in folder.files() if has_files else ():
        if any((folder.path / above / MANIFEST_FILE).is_file() for above in PurePosixPath(file.name).parents):
            leave_out(file, "part of a sealed artifact", left_out)
        else:
            files[_source_kind(file)].append(file)
    drafted: dict[str, Iterable[SectionDraft]] = {
        "local": [*_draft_local(folder, files["local"], source_name, root, left_out)],
        "stackexchange": [*_draft_sites(files["stackexchange"], left_out)],
        "wikipedia": _draft_wikipedia(folder, files["wikipedia"]),
    }
    sections = [draft for kind in FILE_DESCRIPTIONS for draft in drafted[kind]]
    lines = describe_left_out(left_out, folder.path)
    if not sections:
        reasons = f" (left out: {', '.join(lines[:_MAX_LISTED_REASONS])})" if lines else ""
        what, fix = f"no readable files in the folder{reasons}", f"expected {', '.join(FILE_DESCRIPTIONS.values())}"
        raise UsageError(what, folder.path, fix)
    unread = set(itertools.chain(*left_out.values()))
    read = [file for file in files["local"] if file.name not in unread]
    return sections, [*(f"left out: {line}" for line in lines), *describe_links_and_copies(read)]


def _source_kind(file: SourceFile) -> str:
    if file.path.name.lower() == POSTS_FILE.lower() or file.path.suffix == ".7z" or is_archive(file.path):
        return "stackexchange"
    is_named = fnmatch.fnmatchcase(file.path.name, _PAGES_PATTERN)
    return "wikipedia" if is_named and _is_wikiextractor_output(file) else "local"


def _is_wikiextractor_output(file: SourceFile) -> bool:
    """Check by name or first page if a file is Wikipedia text from wikiextractor."""
    is_named = re.fullmatch("wiki_[0-9][0-9]", strip_compression_suffix(file.path.name)) is not None
    try:
        _, page = next(read_pages(ByteRange(file)), (0, None))
        return is_named or (page is not None and not (isinstance(page, Page) and is_on_other_site(page.url)))
    except InputError:
        return is_named


def _draft_sites(dump_files: Sequence[SourceFile], left_out: LeftOutFiles) -> Iterator[SectionDraft]:
    """Draft a section for each Stack Exchange site; prefer a Posts.xml to an archive."""
    by_host: dict[str, SourceFile] = {}
    for file in sorted(dump_files, key=lambda file: file.path.suffix == ".7z"):
        try:
            is_archive(file.path)  # raises if the file is only named .7z
            first = by_host.setdefault(site_host(file.path), file)
        except InputError as error:
            leave_out(file, f"{error.what}; {error.fix}", left_out)
            continue
        if first is not file:
            leave_out(file, f"{first.name} belongs to the same site", left_out)
    for host, file in sorted(by_host.items()):
        location = {"path": str(file.path.parent), "files": [glob.escape(file.path.name)]}
        yield SectionDraft({"kind": "stackexchange", "source": host, **location, "host": host, "min_answers": 1})


def _draft_wikipedia(folder: SourceFolder, page_files: Sequence[SourceFile]) -> Iterator[SectionDraft]:
    """Draft the section of wikiextractor's files; a date in the path is the dump date."""
    if not page_files:
        return
    content: dict[str, Any] = {"kind": "wikipedia", "source": "wikipedia", "path": str(folder.path)}
    pattern = f"**/{_PAGES_PATTERN}"
    has_others = len(replace(folder, patterns=(pattern,)).files()) > len(page_files)
    content["files"] = [glob.escape(file.name) for file in page_files] if has_others else [pattern]
    notes = {"files": _file_summary(page_files)}
    heads = (itertools.islice(piece_lines(ByteRange(file)), SAMPLE_SIZE) for file in page_files[:SAMPLE_SIZE])
    if any(b'url="?curid' in line or b'"url": "?curid' in line for head in heads for _, line in head):
        content["language"], notes["language"] = "en", "a guess: the urls do not have the language"
    if dumped := _DUMP_DATE.search(str(folder.path)):
        content["dump_date"] = f"{dumped[0][:4]}-{dumped[0][4:6]}-{dumped[0][6:]}"
    else:
        content["license_tag"] = _WIKIPEDIA_LICENCE
        notes["license_tag"] = "licence of dumps since 2023-06-07; or set dump_date, such as '2026-11-01', instead"
    yield SectionDraft(content | {"filters": {"wikipedia": {}}}, notes)


def _draft_local(
    folder: SourceFolder, files: Sequence[SourceFile], source_name: str, root: Path, left_out: LeftOutFiles
) -> Iterator[SectionDraft]:
    """Draft a section per text column; the first gets all files without columns.

    If there are such files, the first section's column has a usual name for text.
    """
    by_column: dict[str, list[SourceFile]] = {}
    columns: dict[str, dict[str, None]] = {}  # names of all columns, by text column, in order
    guesses: dict[str, str] = {}
    texts: list[SourceFile] = []
    ids: dict[str, set[tuple[str, int]]] = {}  # ids of the first rows and hashes of their texts, by text column
    licences: dict[str, list[object]] = {}  # of the first rows, by text column; "" for a row without one
    for file in files:
        try:
            if reason := unreadable_reason(file):
                leave_out(file, reason, left_out)
            elif detect_format(file.name) not in COLUMN_FORMATS:
                texts.append(file)
            else:
                rows = read_first_rows(file)
                column = _text_column(rows, file, root)
                by_column.setdefault(column, []).append(file)
                columns.setdefault(column, {}).update(dict.fromkeys(rows[0]))
                ids.setdefault(column, set()).update(_ids_with_text_hashes(rows, column))
                licences.setdefault(column, []).extend(row.get("license", "") for row in rows)
                guesses.setdefault(column, _describe_guess(column, rows[0], file))
        except InputError as error:
            is_missing = isinstance(error, UsageError)
            leave_out(file, f"{error.what}; {error.fix}" if is_missing else error.what, left_out)
    if texts:
        usual = (name for name in by_column if name in _TEXT_COLUMN_NAMES)
        column = min(usual, key=_TEXT_COLUMN_NAMES.index, default="text")
        by_column = {column: [*by_column.pop(column, ()), *texts], **by_column}
    texts_by_id = Counter(doc_id for doc_id, _ in set[tuple[str, int]]().union(*ids.values()))
    for number, (column, column_files) in enumerate(by_column.items()):
        slug = re.sub(r"[^a-z0-9_]+", "-", column.lower()).strip("-")
        content: dict[str, Any] = {"kind": "local", "source": source_name if number == 0 else f"{source_name}-{slug}"}
        content |= {"path": str(folder.path), **_selection_keys(folder, column_files)}
        notes = {"files": _file_summary(column_files)}
        if column in columns:
            content["columns"] = {"text": column}
            notes["columns"] = f"columns of the files: {', '.join(list(columns[column])[:12])}"
            if repeated := min((doc_id for doc_id, _ in ids[column] if texts_by_id[doc_id] > 1), default=""):
                content["columns"]["id"] = None
                notes["columns"] += f"; ids are derived from texts, because different texts have the id {repeated}"
            if not all(isinstance(licence, str | None) for licence in licences[column]) and "" not in licences[column]:
                content["columns"]["license"] = "license"
                notes["columns"] += "; licences that are no text, such as lists, are unknown"
        content |= {"domain": "unknown", "license_tag": "unknown"}
        has_licences = "license" in columns.get(column, {})
        rows_without = "rows without a value in the column license" if has_licences else "all rows"
        notes |= {"domain": "kind of text", "license_tag": f"licence of {rows_without}"}
        yield SectionDraft(content, notes, guesses.get(column, ""))


def _ids_with_text_hashes(rows: Sequence[dict[str, Any]], text_column: str) -> Iterator[tuple[str, int]]:
    """Yield (id, text hash) of each row that has a text and an id in a default column."""
    for row in rows:
        columns = (find_column(row, name) for name in LicensedColumns().id or ())
        doc_id = next((str(column.value) for column in columns if column and type(column.value) in (str, int)), "")
        text = find_column(row, text_column)
        if doc_id and text:
            yield doc_id, hash(str(text.value))


def _describe_guess(column: str, row: Mapping[str, Any], file: SourceFile) -> str:
    name = column.rpartition(".")[2]
    twins = [
        path for path, _ in _text_values(row) if path.endswith(f".{name}") and path.count(".") == column.count(".")
    ]
    if name in _TEXT_COLUMN_NAMES and len(twins) < 2:
        return ""
    message = f"text is the column `{column}` of {file.name} (a guess): set `columns: {{text: …}}` for another one"
    if detect_format(file.name) == "csv" and not all(any(map(str.isalpha, name)) for name in row):
        message += "; the first line is read as the names of columns, but looks like data"
    if pair := next((pair for pair in _COLUMN_PAIRS if column in pair and row.keys() >= set(pair)), None):
        message += f"; of `{pair[0]}` and `{pair[1]}` only this one is used: to train on both, write them as `messages`"
        message += " and read these with corpusmill nemotron normalize"
    return message


def _text_column(rows: Sequence[dict[str, Any]], file: SourceFile, root: Path) -> str:
    """Return the column with a usual name for text, else the column with most letters.

    A column in a nested object is returned as a path, such as `body.text`. Raise InputError if no column has text.
    Raise it also if no top-level column has a usual name, and the rows are conversations, or one object such as
    settings.
    """
    letters: Counter[str] = Counter()
    for row in rows:
        for path, text in _text_values(row):
            letters[path] += sum(map(str.isalpha, text))
    usual = [path for path in letters if path.rpartition(".")[2] in _TEXT_COLUMN_NAMES]
    ranks = {path: (path.count("."), _TEXT_COLUMN_NAMES.index(path.rpartition(".")[2])) for path in usual}
    column = min(usual, key=ranks.__getitem__, default=None)
    if column in _TEXT_COLUMN_NAMES:
        return column
    if conversations := describe_conversations(rows, file, root):
        raise InputError(conversations, file.path, "")
    if len(rows) == 1 and is_array_or_multiline_file(file):
        raise InputError("one object, such as settings, without a text in a column of a usual name", file.path, "")
    if column is not None:
        return column
    if not any(letters.values()):
        if len(rows) == 1 and (name := find_list(rows, set())):
            command = jq_command(file, f".[{json.dumps(name)}][]")
            raise InputError(f"rows in a list of one object; write them as lines: {command}", file.path, "")
        scope = f" in the first {SAMPLE_SIZE} rows" if len(rows) == SAMPLE_SIZE else ""
        raise InputError(f"no column contains text{scope}", file.path, "")
    return letters.most_common(1)[0][0]


def _text_values(row: Mapping[str, Any], path_prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield the path and value of each text, also in nested objects."""
    for name, value in row.items():
        if isinstance(value, dict):
            yield from _text_values(value, f"{path_prefix}{name}.")
        elif isinstance(value, str) and value:
            yield path_prefix + name, value


def _selection_keys(folder: SourceFolder, selected_files: Sequence[SourceFile]) -> dict[str, list[str]]:
    """Return recipe keys that select files: `files` and, if needed, `exclude`.

    `files` has the patterns of `folder`; if its only pattern is `**/*`, `files` has a pattern for each suffix of the
    selected files. `exclude` has the exclusions of `folder` and the files that match `files` but are not selected. If
    at least half of the matching files are not selected, `files` has the selected files' names, without `exclude`.
    """
    names = {file.name for file in selected_files}
    patterns = list(folder.patterns)
    if folder.patterns == (_ANY_PATTERN,):
        bases = [PurePosixPath(name).name for name in names]
        # The last suffix of each name, together with the suffixes of a compression.
        ends = {base[len(PurePosixPath(strip_compression_suffix(base)).stem) :] for base in bases}
        patterns = [f"**/*{end}" for end in sorted(ends)]
    unwanted = {file.name for file in replace(folder, patterns=tuple(patterns)).files()} - names
    if len(unwanted) >= len(names):
        return {"files": [glob.escape(file.name) for file in selected_files]}
    excluded = [*folder.exclude, *(glob.escape(name) for name in sorted(unwanted))]
    return {"files": patterns} | ({"exclude": excluded} if excluded else {})


def _file_summary(files: Sequence[SourceFile]) -> str:
    size = sum(file.bytes for file in files)
    divisor, unit = (1e6, "MB") if size >= 1e5 else (1e3, "KB")
    amount = f"{size / divisor:,.1f} {unit}" if size >= 1000 else f"{size} bytes"
    return f"{pluralize(len(files), 'file')}, {amount}"
