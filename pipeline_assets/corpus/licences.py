"""Licences: which tag a document carries and why, what the licence asks for, and which licence a text is.

A tag is an SPDX identifier in lower case, or one of `public-domain`, `proprietary`, `unknown`. Nothing is guessed: a
value that the table doesn't hold is `unknown`, with the value as evidence.

A text, such as a LICENSE file, is a licence if it holds it whole, from an opening phrase to a closing one with as many
words between them as the licence is known to have, and at most twenty beside it. So a licence with a clause more is
none of the table, nor is a list of several. An `SPDX-License-Identifier` counts as the text of its licence.
"""

import difflib
import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

import msgspec

from pipeline_assets.corpus.spine.errors import InputError, UsageError
from pipeline_assets.corpus.spine.files import OwnFile
from pipeline_assets.corpus.spine.manifest import sha256_of
from pipeline_assets.corpus.spine.shipped import shipped_path

UNKNOWN = "unknown"
TABLE = shipped_path("manifests/licences.json")
_WORD_GAPS = str.maketrans({"_": "-", " ": "-"})


class Licence(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One licence of the table. Where the licence itself doesn't say, or nobody knows it, an answer is None.

    Attributes:
        tag: as documents carry it.
        spdx: identifier in the SPDX licence list; None where that has none.
        redistributable: whether the text may be passed on, perhaps changed, such as in a published set.
        attribution: whether passing it on asks for naming its authors or source.
        share_alike: whether what is made from it must carry the same licence.
        aliases: other spellings of the tag, in lower case.
    """

    tag: str
    spdx: str | None
    name: str
    url: str | None
    redistributable: bool | None
    attribution: bool | None
    share_alike: bool | None
    aliases: tuple[str, ...]


_TABLE_FILE = OwnFile("licence table", 1 << 20, "correct that entry", list[Licence], may_be_link=True)


@dataclass(frozen=True)
class Licensed:
    """The tag of a document and where it was read: `row: license`, `source: wikipedia`, `recipe`."""

    tag: str
    evidence: str


class LicenceTable:
    """Licences by tag and alias."""

    def __init__(self, licences: Sequence[Licence]) -> None:
        self._by_tag = {licence.tag: licence for licence in licences}
        self._by_spelling = {spelling: licence.tag for licence in licences for spelling in _spellings(licence)}

    def __getitem__(self, tag: str) -> Licence:
        return self._by_tag[tag]

    def __contains__(self, tag: str) -> bool:
        return tag in self._by_tag

    def tag_of(self, value: str) -> str | None:
        """The tag of a licence as somebody wrote it (`CC BY-SA 4.0`); None if the table has no such licence."""
        return self._by_spelling.get(_normal(value))

    def tag_named(self, value: str, where: object) -> str:
        """The tag of a licence that a recipe or command names.

        Raises:
            UsageError: there is none (names the nearest).
        """
        tag = self.tag_of(value)
        if tag is None:
            raise UsageError(f"there is no licence {value!r}", where, self.advice(value))
        return tag

    def advice(self, value: str) -> str:
        """The nearest tag of a licence that isn't there, or all of them."""
        nearest = difflib.get_close_matches(_normal(value), self._by_tag, n=1, cutoff=0.5)
        if nearest:
            return f"did you mean {nearest[0]}? A new one is added to manifests/licences.json"
        return f"there are {', '.join(sorted(self._by_tag))}; a new one is added to manifests/licences.json"

    def licensed(self, value: str, evidence: str) -> Licensed:
        """The tag of a licence that a source or its row says; a value that the table doesn't have is evidence of
        nothing.
        """
        tag = self.tag_of(value)
        return Licensed(UNKNOWN, f"{evidence} is {value[:80]!r}") if tag is None else Licensed(tag, evidence)

    def __len__(self) -> int:
        return len(self._by_tag)

    @functools.cached_property
    def fingerprint(self) -> str:
        """Of the spellings and their tags: what the tags of documents depend on."""
        return sha256_of(self._by_spelling)

    def digest(self) -> str:
        """Of all that it says: what a report depends on."""
        return sha256_of([msgspec.to_builtins(licence) for licence in self._by_tag.values()])


@functools.cache
def licence_table() -> LicenceTable:
    """The project's table."""
    return read_licences(TABLE)


def read_licences(path: Path) -> LicenceTable:
    """The table in a JSON file.

    Raises:
        InputError: it can't be read, or two licences share a tag or an alias.
    """
    try:
        licences = _TABLE_FILE.read(path)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise InputError(f"the licence table can't be read ({error.strerror})", path, "restore it") from None
    seen: dict[str, str] = {}
    for licence in licences:
        for spelling in _spellings(licence):
            if seen.setdefault(spelling, licence.tag) != licence.tag:
                what = f"{spelling!r} is both {seen[spelling]} and {licence.tag}"
                raise InputError(what, path, "give each spelling to one licence")
    if UNKNOWN not in {licence.tag for licence in licences}:
        raise InputError("there is no licence `unknown`", path, "add it: documents of no known licence carry it")
    return LicenceTable(licences)


def attribution_text(table: LicenceTable, sources: Mapping[str, Iterable[str]]) -> str:
    """An ATTRIBUTION file: every source whose licence asks for it, and every source of which nobody knows.

    Args:
        sources: the tags of the documents of each source, by the source's name.
    """
    asked: list[str] = []
    unknown: list[str] = []
    for source, tags in sorted(sources.items()):
        for licence in (table[tag] for tag in sorted(set(tags))):
            if licence.attribution is None:
                unknown.append(f"{source}: {licence.name.lower()}")
            elif licence.attribution:
                alike = "; what is made from it carries the same licence" if licence.share_alike else ""
                asked.append(f"{source}: {licence.name} ({licence.url}){alike}")
    parts = ["This set holds text of the following sources, under licences that ask for attribution:", "", *asked]
    if unknown:
        parts += ["", "Of these it is not known what their licence asks for:", "", *unknown]
    return "\n".join(parts if asked or unknown else ["No licence of this set asks for attribution."]) + "\n"


def _spellings(licence: Licence) -> set[str]:
    named = {licence.tag, *licence.aliases} | ({licence.spdx} if licence.spdx else set())
    return {_normal(spelling) for spelling in named} | ({_normal(licence.url)} if licence.url else set())


def _normal(value: str) -> str:
    return value.strip().lower().rstrip("/").translate(_WORD_GAPS)


def stated_tag(licence: str | None) -> str:
    """The tag of a licence as a row says it; `unknown` where it says none, or one that the table doesn't hold."""
    return UNKNOWN if licence is None else licence_table().tag_of(licence) or UNKNOWN


def known_tag(tag: str) -> str:
    """The tag of a licence that a recipe names.

    Raises:
        ValueError: there is none (names the nearest).
    """
    known = licence_table().tag_of(tag)
    if known is None:
        raise ValueError(f"there is no licence {tag!r}: {licence_table().advice(tag)}")
    return known


LICENCE_TEXT_BYTES = 1 << 18  # the longest of the table has a seventh of it
_MOST_OTHER_WORDS = 20  # a title, "all rights reserved"; clauses that are added in use have 22 and more
_SPDX = re.compile(r"SPDX-License-Identifier:[ \t]*([\w.+ ()-]*[\w.+)])", re.IGNORECASE)
_WORD = re.compile(r"[a-z0-9]+")
# Without these lines `_HOLDER`, whose `\W*` crosses lines, takes time linear in the text; with them, quadratic.
_LINES_WITHOUT_WORDS = re.compile(r"\n\W*\n")
# Of holders there may be any number, a line each; a "copyright notice" in the midst of a licence is none.
_HOLDER = re.compile(
    r"^\W*(?:(?:all |portions |parts )?copyright\b.{0,40}?(?:[0-9]{4}|\(c\)|©)|\(c\)|©).{0,100}",
    re.IGNORECASE | re.MULTILINE,
)


@dataclass(frozen=True)
class _Form:
    """How a licence, or what it comes with, is told from other texts: phrases are lower-case words, spaces between.

    Attributes:
        fewest, most: words from the first of the opening to the last of the closing, as texts in use have them.
        inside: is between them.
    """

    tag: str
    opening: str
    closing: str
    fewest: int
    most: int
    inside: str = ""


_BSD = "redistribution and use in source and binary forms", "possibility of such damage"
_TO_APPLY = "how to apply these terms to your new programs"
_FORMS = (
    _Form("mit", "permission is hereby granted free of charge to any person", "dealings in the software", 159, 167),
    _Form("bsd-2-clause", *_BSD, 180, 190, "binary form must reproduce"),
    _Form("bsd-3-clause", *_BSD, 205, 221, "endorse or promote products derived from"),
    _Form(
        "apache-2.0", "apache license version 2 0 january 2004", "any such warranty or additional liability", 1375, 1425
    ),
    _Form("apache-2.0", "appendix how to apply the apache license", "limitations under the license", 160, 180),
    _Form("apache-2.0", "licensed under the apache license version 2 0", "limitations under the license", 80, 90),
    _Form("gpl-2.0", "gnu general public license version 2 june 1991", "end of terms and conditions", 2450, 2550),
    _Form("gpl-2.0", _TO_APPLY, "general public license instead of this license", 465, 478),
    _Form("gpl-3.0", "gnu general public license version 3 29 june 2007", "end of terms and conditions", 5200, 5280),
    _Form("gpl-3.0", _TO_APPLY, "why not lgpl html", 435, 450),
    _Form(
        "psf-2.0",
        "agreement is between the python software foundation",
        "terms and conditions of this license agreement",
        350,
        390,
    ),
    # With the licences of Python's earlier owners, which Python ships as its own.
    _Form("psf-2.0", "a history of the software python was created", "use or performance of this software", 2000, 2250),
    _Form("cc0-1.0", "cc0 1 0 universal", "this cc0 or use of the work", 1040, 1100),
)


def licence_of_text(text: str, evidence: str) -> Licensed:
    """The tag of the licence that a text is; `unknown` where it is none of the table, or several.

    Args:
        evidence: names the text; an SPDX identifier that the table doesn't hold is told behind it.
    """
    table, identifiers = licence_table(), _SPDX.findall(text)
    stated = [table.licensed(one, evidence) for one in identifiers]
    prose = _HOLDER.sub("", _LINES_WITHOUT_WORDS.sub("\n", _SPDX.sub("", text)))
    words = f" {' '.join(_WORD.findall(prose.lower()))} "
    spans = sorted((begin, end, form.tag) for form in _FORMS for begin, end in _spans(words, form))
    tags = {tag for _, _, tag in spans} | {one.tag for one in stated}
    if len(tags) == 1 and _other_words(words, [(begin, end) for begin, end, _ in spans]) <= _MOST_OTHER_WORDS:
        return stated[0] if stated else Licensed(tags.pop(), evidence)
    return Licensed(UNKNOWN, next((one.evidence for one in stated if one.tag == UNKNOWN), evidence))


def licence_texts_fingerprint() -> str:
    """Of all that tags of texts depend on."""
    how = [_MOST_OTHER_WORDS, LICENCE_TEXT_BYTES, _SPDX.pattern, _HOLDER.pattern]
    return sha256_of([licence_table().fingerprint, how, [astuple(form) for form in _FORMS]])


def _spans(words: str, form: _Form) -> Iterator[tuple[int, int]]:
    """Where the form stands, by characters; of several closings that fit the last is its end."""
    stop = 0
    while (begin := words.find(f" {form.opening} ", stop)) >= 0:
        stop, end = begin + 1, begin
        while (end := words.find(f" {form.closing} ", end + 1)) >= 0:
            length = words.count(" ", begin, end) + form.closing.count(" ") + 1
            if length > form.most:
                break
            if length >= form.fewest and form.inside in words[begin:end]:
                stop = end + len(form.closing) + 1
        if stop > begin + 1:
            yield begin, stop


def _other_words(words: str, spans: list[tuple[int, int]]) -> int:
    """How many words are in none of the spans, which are sorted."""
    others = done = 0
    for begin, end in [*spans, (len(words) - 1, len(words) - 1)]:
        others += words.count(" ", done, begin) if begin > done else 0
        done = max(done, end)
    return others
