"""Licences: which tag a document carries and why, what the licence asks for, and which ones a recipe refuses.

A tag is an SPDX identifier in lower case, or one of `public-domain`, `proprietary`, `unknown`. Nothing is guessed: a
value that the table doesn't hold is `unknown`, with the value as evidence.
"""

import difflib
import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from pipeline_assets.corpus.spine.errors import InputError, UsageError
from pipeline_assets.corpus.spine.files import OwnFile
from pipeline_assets.corpus.spine.manifest import sha256_of

UNKNOWN = "unknown"
TABLE = Path(__file__).parents[2] / "manifests" / "licences.json"
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
