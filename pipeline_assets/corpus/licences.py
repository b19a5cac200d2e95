"""Licence table: tags, spellings and conditions of licences.

A tag is an SPDX identifier in lower case, or one of `public-domain`, `proprietary`, `unknown`. Nothing is guessed: a
value that is not in the table becomes `unknown`, with the value as evidence.
"""

import difflib
import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from pipeline_assets.spine.errors import InputError, UsageError
from pipeline_assets.spine.manifest import canonical_sha256
from pipeline_assets.spine.metadata_file import MetadataFile
from pipeline_assets.spine.shipped import shipped_path

UNKNOWN = "unknown"
TABLE = shipped_path("manifests/licences.json")
_WORD_GAPS = str.maketrans({"_": "-", " ": "-"})


class Licence(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Licence of the table; a condition is None if it is unknown.

    Attributes:
        tag: Tag in documents.
        spdx: Identifier in the SPDX licence list; None if not listed.
        redistributable: Whether the text may be redistributed, also with changes.
        attribution: Whether redistribution requires attribution of authors or source.
        share_alike: Whether derived works must carry the same licence.
        aliases: Other spellings of the tag, in lower case.
    """

    tag: str
    spdx: str | None
    name: str
    url: str | None
    redistributable: bool | None
    attribution: bool | None
    share_alike: bool | None
    aliases: tuple[str, ...]


_TABLE_FILE = MetadataFile("licence table", 1 << 20, "correct that entry", list[Licence], allow_symlink=True)


@dataclass(frozen=True)
class Licensed:
    """Tag of a document with its evidence, such as `row: license` or `recipe`."""

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

    def match_tag(self, value: str) -> str | None:
        """Return the tag for any spelling of a licence (`CC BY-SA 4.0`); None if unknown."""
        return self._by_spelling.get(_normal(value))

    def tag_named(self, value: str, where: object) -> str:
        """Return the tag of a licence in a recipe or command.

        Raises:
            UsageError: The licence is not in the table; the message suggests the nearest tag.
        """
        tag = self.match_tag(value)
        if tag is None:
            raise UsageError(f"unknown licence {value!r}", where, self.advice(value))
        return tag

    def advice(self, value: str) -> str:
        """Suggest the nearest tag for an unknown licence, or list all tags."""
        nearest = difflib.get_close_matches(_normal(value), self._by_tag, n=1, cutoff=0.5)
        if nearest:
            return f"did you mean {nearest[0]}? Add new licences to manifests/licences.json"
        return f"choose one of {', '.join(sorted(self._by_tag))}, or add it to manifests/licences.json"

    def licensed(self, value: str, evidence: str) -> Licensed:
        """Return the tag of a stated licence; `unknown` if it is not in the table."""
        tag = self.match_tag(value)
        return Licensed(UNKNOWN, f"{evidence} is {value[:80]!r}") if tag is None else Licensed(tag, evidence)

    def __len__(self) -> int:
        return len(self._by_tag)

    @functools.cached_property
    def fingerprint(self) -> str:
        """Digest of spellings and tags, on which the tags of documents depend."""
        return canonical_sha256(self._by_spelling)

    def digest(self) -> str:
        """Return the digest of the whole table, on which reports depend."""
        return canonical_sha256([msgspec.to_builtins(licence) for licence in self._by_tag.values()])


@functools.cache
def licence_table() -> LicenceTable:
    """Return the project's table."""
    return read_licences(TABLE)


def read_licences(path: Path) -> LicenceTable:
    """Read a licence table from a JSON file.

    Raises:
        InputError: The file is unreadable, or two licences share a tag or an alias.
    """
    try:
        licences = _TABLE_FILE.read(path)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise InputError(f"cannot read the licence table ({error.strerror})", path, "restore the file") from None
    seen: dict[str, str] = {}
    for licence in licences:
        for spelling in _spellings(licence):
            if seen.setdefault(spelling, licence.tag) != licence.tag:
                what = f"{spelling!r} is both {seen[spelling]} and {licence.tag}"
                raise InputError(what, path, "remove the spelling from one of them")
    if UNKNOWN not in {licence.tag for licence in licences}:
        raise InputError(
            "licence `unknown` is missing", path, "add it, because documents without a known licence carry it"
        )
    return LicenceTable(licences)


def attribution_text(table: LicenceTable, sources: Mapping[str, Iterable[str]]) -> str:
    """Write the text of an ATTRIBUTION file.

    It lists the sources whose licence requires attribution, and those for which that is unknown. `sources` has
    the tags of each source by name.
    """
    attributed: list[str] = []
    unknown: list[str] = []
    for source, tags in sorted(sources.items()):
        for licence in (table[tag] for tag in sorted(set(tags))):
            if licence.attribution is None:
                unknown.append(f"{source}: {licence.name.lower()}")
            elif licence.attribution:
                alike = "; what is made from it carries the same licence" if licence.share_alike else ""
                attributed.append(f"{source}: {licence.name} ({licence.url}){alike}")
    parts = ["This set holds text of the following sources, under licences that ask for attribution:", "", *attributed]
    if unknown:
        parts += ["", "Of these it is not known what their licence asks for:", "", *unknown]
    return "\n".join(parts if attributed or unknown else ["No licence of this set asks for attribution."]) + "\n"


def _spellings(licence: Licence) -> set[str]:
    named = {licence.tag, *licence.aliases} | ({licence.spdx} if licence.spdx else set())
    return {_normal(spelling) for spelling in named} | ({_normal(licence.url)} if licence.url else set())


def _normal(value: str) -> str:
    return value.strip().lower().rstrip("/").translate(_WORD_GAPS)


def stated_tag(licence: str | None) -> str:
    """Return the tag of a row's licence; `unknown` if missing or not in the table."""
    return UNKNOWN if licence is None else licence_table().match_tag(licence) or UNKNOWN


def known_tag(tag: str) -> str:
    """Return the tag of a licence in a recipe, for pydantic validators.

    Raises:
        ValueError: The licence is not in the table; the message suggests the nearest tag.
    """
    known = licence_table().match_tag(tag)
    if known is None:
        raise ValueError(f"unknown licence {tag!r}: {licence_table().advice(tag)}")
    return known
