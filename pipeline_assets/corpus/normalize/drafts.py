"""Drafts of recipe sections for a folder, from file names and first rows.

A recipe can be built from the drafts unchanged. Their notes explain values to the user, and mark guesses.
"""

import fnmatch
import glob
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from pipeline_assets.corpus.readers.lines import lines
from pipeline_assets.corpus.readers.local import SAMPLE_ROWS, first_rows
from pipeline_assets.corpus.readers.source_folder import ByteRange, SourceFile, SourceFolder
from pipeline_assets.corpus.readers.source_formats import FORMATS, detect_format
from pipeline_assets.corpus.readers.stackexchange.archive import POSTS, is_archive, site_host
from pipeline_assets.spine.errors import InputError, UsageError
from pipeline_assets.spine.manifest import FILE_NAME

_TEXT_NAMES = ("text", "content", "body", "raw_content", "article", "document", "markdown", "md")
_PAGES, _ANY = "wiki_*", "**/*"
_DUMP = re.compile(r"20\d\d(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])")
_WIKIPEDIA_LICENCE = "cc-by-sa-4.0"
_MAX_NAMED = 3  # unread files in an error message
KINDS = {
    "stackexchange": f"{POSTS}, a site's .7z",
    "wikipedia": "output of wikiextractor",
    "local": f"files that end with {', '.join(FORMATS)}",
}
"""Files of each kind of source, for messages."""


@dataclass(frozen=True)
class SectionDraft:
    """Draft of a source's recipe section, with notes on some of its keys."""

    content: Mapping[str, Any]
    notes: Mapping[str, str] = field(default_factory=dict)


def draft_sources(folder: SourceFolder, name: str) -> tuple[list[SectionDraft], Mapping[str, int]]:
    """Draft sections for a folder's files; raise UsageError if none can be read.

    The first source of local files is called `name`, further ones `<name>-<text column>`. A Stack Exchange source is
    called after its host, a Wikipedia source `wikipedia`.

    Returns:
        The drafts, and the number of files that are not read, by suffix, file name or reason.
    """
    files: dict[str, list[SourceFile]] = {kind: [] for kind in KINDS}
    not_read: Counter[str] = Counter()
    for file in folder.files():
        base = PurePosixPath(file.name).name
        if any((folder.path / above / FILE_NAME).is_file() for above in PurePosixPath(file.name).parents):
            not_read["files of sealed artifacts"] += 1
        elif kind := _source_kind(file):
            files[kind].append(file)
        else:
            not_read[PurePosixPath(file.name).suffix or base] += 1
    drafted: dict[str, Iterable[SectionDraft]] = {
        "local": [*_draft_local(folder, files["local"], name, not_read)],  # adds to `not_read` before the sites do
        "stackexchange": _draft_sites(files["stackexchange"], not_read),
        "wikipedia": _draft_wikipedia(folder, files["wikipedia"]),
    }
    sections = [draft for kind in KINDS for draft in drafted[kind]]
    if not sections:
        listed = ", ".join(list(not_read)[:_MAX_NAMED])
        reasons = f" (not read: {listed})" if not_read else ""
        what, fix = f"no readable files in the folder{reasons}", f"expected {', '.join(KINDS.values())}"
        raise UsageError(what, folder.path, fix)
    return sections, not_read


def _source_kind(file: SourceFile) -> str | None:
    if file.path.name.lower() == POSTS.lower() or is_archive(file.path):
        return "stackexchange"
    if fnmatch.fnmatchcase(file.path.name, _PAGES):
        return "wikipedia"
    return "local" if detect_format(file.name) is not None else None


def _draft_sites(posts: Sequence[SourceFile], not_read: Counter[str]) -> Iterator[SectionDraft]:
    """Draft a section for each Stack Exchange site; prefer a Posts.xml to an archive."""
    by_host: dict[str, SourceFile] = {}
    for file in sorted(posts, key=lambda file: file.path.suffix == ".7z"):
        if by_host.setdefault(site_host(file.path), file) is not file:
            not_read[f"{file.name} ({by_host[site_host(file.path)].name} belongs to the same site)"] += 1
    for host, file in sorted(by_host.items()):
        place = {"path": str(file.path.parent), "files": [glob.escape(file.path.name)]}
        yield SectionDraft({"kind": "stackexchange", "source": host, **place, "host": host, "min_answers": 1})


def _draft_wikipedia(folder: SourceFolder, pages: Sequence[SourceFile]) -> Iterator[SectionDraft]:
    """Draft the section of wikiextractor's files; use a date in the path as dump date."""
    if not pages:
        return
    content: dict[str, Any] = {"kind": "wikipedia", "source": "wikipedia", "path": str(folder.path)}
    content["files"], notes = [f"**/{_PAGES}"], {"files": _file_summary(pages)}
    heads = (itertools.islice(lines(ByteRange(file)), SAMPLE_ROWS) for file in pages[:SAMPLE_ROWS])
    if any(b'url="?curid' in line or b'"url": "?curid' in line for head in heads for _, line in head):
        content["language"], notes["language"] = "en", "a guess: the urls do not have the language"
    if dumped := _DUMP.search(str(folder.path)):
        content["dump_date"] = f"{dumped[0][:4]}-{dumped[0][4:6]}-{dumped[0][6:]}"
    else:
        content["license_tag"] = _WIKIPEDIA_LICENCE
        notes["license_tag"] = "licence of dumps since 2023-06-07; or set dump_date, such as '2026-11-01', instead"
    yield SectionDraft(content | {"filters": {"wikipedia": {}}}, notes)


def _draft_local(
    folder: SourceFolder, files: Sequence[SourceFile], name: str, not_read: Counter[str]
) -> Iterator[SectionDraft]:
    """Draft a section for each text column; add plain text files to the first section."""
    by_column: dict[str, list[SourceFile]] = {}
    columns: dict[str, dict[str, None]] = {}  # names of all columns, by text column, in order
    for file in files:
        if detect_format(file.name) != "text":
            try:
                rows = first_rows(file)
                column = _text_column(rows)
            except InputError as error:
                not_read[f"{file.name} ({error.what})"] += 1
                continue
            by_column.setdefault(column, []).append(file)
            columns.setdefault(column, {}).update(dict.fromkeys(rows[0]))
    texts = [file for file in files if detect_format(file.name) == "text"]
    if texts:
        by_column.setdefault(next(iter(by_column), "text"), []).extend(texts)
    for number, (column, own) in enumerate(by_column.items()):
        content: dict[str, Any] = {"kind": "local", "source": name if number == 0 else f"{name}-{column.lower()}"}
        content |= {"path": str(folder.path), "files": _patterns(folder, own, len(own) == len(files) and not not_read)}
        notes = {"files": _file_summary(own)}
        if column in columns:
            content["columns"] = {"text": column}
            notes["columns"] = f"columns of the files: {', '.join(list(columns[column])[:12])}"
        content |= {"domain": "unknown", "license_tag": "unknown"}
        has_licences = "license" in columns.get(column, {})
        rows_without = "rows without a value in the column license" if has_licences else "all rows"
        notes |= {"domain": "kind of text", "license_tag": f"licence of {rows_without}"}
        yield SectionDraft(content, notes)


def _text_column(rows: Sequence[dict[str, Any]]) -> str:
    """Return the text column: one with a usual name, or else the one with most text."""
    characters: Counter[str] = Counter()
    for row in rows:
        characters.update({name: len(value) for name, value in row.items() if isinstance(value, str)})
    usual = next((name for name in _TEXT_NAMES if characters[name]), None)
    if usual is None and not characters:
        raise InputError("no column contains text", "the first rows", "name a nested column, such as metadata.text")
    return usual or characters.most_common(1)[0][0]


def _patterns(folder: SourceFolder, own: Sequence[SourceFile], are_all: bool) -> list[str]:
    """Return patterns that match the files `own` and no others in the folder.

    If the folder was given with patterns, they are kept if they match no file other than `own` (`are_all`). For a whole
    folder, each pattern is a suffix, if no other file has these suffixes. Otherwise, the patterns are the file names.
    """
    if folder.patterns != (_ANY,):
        return list(folder.patterns) if are_all else [glob.escape(file.name) for file in own]
    bases = [PurePosixPath(file.name).name for file in own]
    # From the last suffix of a format on, including the suffix of a compression.
    ends = {base[max(base.lower().rfind(suffix) for suffix in FORMATS) :] for base in bases}
    patterns = [f"**/*{end}" for end in sorted(ends)]
    matched = {file.name for file in SourceFolder(folder.path, tuple(patterns)).files()}
    return patterns if matched == {file.name for file in own} else [glob.escape(file.name) for file in own]


def _file_summary(files: Sequence[SourceFile]) -> str:
    size = sum(file.bytes for file in files)
    return f"{len(files):,} file{'s' * (len(files) != 1)}, {size / 1e6:,.1f} MB"
