"""Sections for files that nobody has described yet: which kind of source they are, told from names and first rows.

What is drafted can be built as it stands; what was only guessed is a remark, for whoever edits it.
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
_MOST_NAMED = 3  # of the files that were not read, in an error
KINDS = {
    "stackexchange": f"{POSTS}, a site's .7z",
    "wikipedia": "what wikiextractor wrote",
    "local": f"files that end with {', '.join(FORMATS)}",
}
"""Which files each kind of source has, for people."""


@dataclass(frozen=True)
class Draft:
    """A section of a recipe for some files.

    Attributes:
        notes: by key, what a reader should know of its value.
    """

    content: Mapping[str, Any]
    notes: Mapping[str, str] = field(default_factory=dict)


def draft_sources(folder: SourceFolder, name: str) -> tuple[list[Draft], Mapping[str, int]]:
    """The sections for a folder's files; and how many files of no known format there are, by the ends of their names,
    or the file and why.

    Args:
        folder: its path absolute.
        name: of a source of local files; others are named after what they hold.
    Raises:
        UsageError: nothing in it can be read.
        InputError: an archive that is none.
    """
    found: dict[str, list[SourceFile]] = {kind: [] for kind in KINDS}
    not_read: Counter[str] = Counter()
    for file in folder.files():
        base = PurePosixPath(file.name).name
        if any((folder.path / above / FILE_NAME).is_file() for above in PurePosixPath(file.name).parents):
            not_read["what lies in sealed artifacts"] += 1
        elif kind := _value_type(file):
            found[kind].append(file)
        else:
            not_read[PurePosixPath(file.name).suffix or base] += 1
    drafted: dict[str, Iterable[Draft]] = {
        "local": [*_local(folder, found["local"], name, not_read)],  # what rows can't be read is told first
        "stackexchange": _sites(found["stackexchange"], not_read),
        "wikipedia": _wikipedia(folder, found["wikipedia"]),
    }
    sections = [draft for kind in KINDS for draft in drafted[kind]]
    if not sections:
        listed = ", ".join(list(not_read)[:_MOST_NAMED])
        reasons = f" (not read: {listed})" if not_read else ""
        raise UsageError(
            f"it holds nothing that can be read{reasons}", folder.path, f"give {', '.join(KINDS.values())}"
        )
    return sections, not_read


def _value_type(file: SourceFile) -> str | None:
    if file.path.name.lower() == POSTS.lower() or is_archive(file.path):
        return "stackexchange"
    if fnmatch.fnmatchcase(file.path.name, _PAGES):
        return "wikipedia"
    return "local" if detect_format(file.name) is not None else None


def _sites(posts: Sequence[SourceFile], not_read: Counter[str]) -> Iterator[Draft]:
    """A section for each site; an archive that is unpacked beside it is left alone."""
    by_host: dict[str, SourceFile] = {}
    for file in sorted(posts, key=lambda file: file.path.suffix == ".7z"):
        if by_host.setdefault(site_host(file.path), file) is not file:
            not_read[f"{file.name} ({by_host[site_host(file.path)].name} is of that site too)"] += 1
    for host, file in sorted(by_host.items()):
        place = {"path": str(file.path.parent), "files": [glob.escape(file.path.name)]}
        yield Draft({"kind": "stackexchange", "source": host, **place, "host": host, "min_answers": 1})


def _wikipedia(folder: SourceFolder, pages: Sequence[SourceFile]) -> Iterator[Draft]:
    """The licence is told by the dump's date, where the folder is named after it."""
    if not pages:
        return
    content: dict[str, Any] = {"kind": "wikipedia", "source": "wikipedia", "path": str(folder.path)}
    content["files"], remarks = [f"**/{_PAGES}"], {"files": _size(pages)}
    heads = (itertools.islice(lines(ByteRange(file)), SAMPLE_ROWS) for file in pages[:SAMPLE_ROWS])
    if any(b'url="?curid' in line or b'"url": "?curid' in line for head in heads for _, line in head):
        content["language"], remarks["language"] = "en", "a guess: the urls don't say it"
    if dumped := _DUMP.search(str(folder.path)):
        content["dump_date"] = f"{dumped[0][:4]}-{dumped[0][4:6]}-{dumped[0][6:]}"
    else:
        content["license_tag"] = _WIKIPEDIA_LICENCE
        remarks["license_tag"] = "of dumps since 2023-06-07; or dump_date: '2026-11-01' tells it"
    yield Draft(content | {"filters": {"wikipedia": {}}}, remarks)


def _local(folder: SourceFolder, files: Sequence[SourceFile], name: str, not_read: Counter[str]) -> Iterator[Draft]:
    """A section for all files whose text is in a column of one name; text files go with the first of them."""
    by_column: dict[str, list[SourceFile]] = {}
    seen: dict[str, dict[str, None]] = {}
    for file in files:
        if detect_format(file.name) != "text":
            try:
                found = first_rows(file)
                column = _text_column(found)
            except InputError as error:
                not_read[f"{file.name} ({error.what})"] += 1
                continue
            by_column.setdefault(column, []).append(file)
            seen.setdefault(column, {}).update(dict.fromkeys(found[0]))
    texts = [file for file in files if detect_format(file.name) == "text"]
    if texts:
        by_column.setdefault(next(iter(by_column), "text"), []).extend(texts)
    for number, (column, own) in enumerate(by_column.items()):
        content: dict[str, Any] = {"kind": "local", "source": name if number == 0 else f"{name}-{column.lower()}"}
        content |= {"path": str(folder.path), "files": _patterns(folder, own, len(own) == len(files) and not not_read)}
        remarks = {"files": _size(own)}
        if column in seen:
            content["columns"] = {"text": column}
            remarks["columns"] = f"there are {', '.join(list(seen[column])[:12])}"
        content |= {"domain": "unknown", "license_tag": "unknown"}
        says_its_own = "license" in seen.get(column, {})
        of_which = "rows that don't say theirs in a column license" if says_its_own else "all that is in it"
        remarks |= {"domain": "what kind of text", "license_tag": f"of {of_which}"}
        yield Draft(content, remarks)


def _text_column(rows: Sequence[dict[str, Any]]) -> str:
    """A column of a usual name, else the one with the longest text.

    Raises:
        InputError: no column holds text.
    """
    held: Counter[str] = Counter()
    for row in rows:
        held.update({name: len(value) for name, value in row.items() if isinstance(value, str)})
    usual = next((name for name in _TEXT_NAMES if held[name]), None)
    if usual is None and not held:
        raise InputError("no column of it holds text", "its first rows", "name a nested one, such as metadata.text")
    return usual or held.most_common(1)[0][0]


def _patterns(folder: SourceFolder, own: Sequence[SourceFile], are_all: bool) -> list[str]:
    """Patterns that match these files alone: of a whole folder by the ends of names, where those tell them apart; else
    as they were given, or their names.

    Args:
        are_all: whether they are all that the folder's patterns match.
    """
    if folder.patterns != (_ANY,):
        return list(folder.patterns) if are_all else [glob.escape(file.name) for file in own]
    bases = [PurePosixPath(file.name).name for file in own]
    ends = {base[max(base.lower().rfind(suffix) for suffix in FORMATS) :] for base in bases}  # with a compression's
    patterns = [f"**/*{end}" for end in sorted(ends)]
    matched = {file.name for file in SourceFolder(folder.path, tuple(patterns)).files()}
    return patterns if matched == {file.name for file in own} else [glob.escape(file.name) for file in own]


def _size(files: Sequence[SourceFile]) -> str:
    size = sum(file.bytes for file in files)
    return f"{len(files):,} file{'s' * (len(files) != 1)}, {size / 1e6:,.1f} MB"
