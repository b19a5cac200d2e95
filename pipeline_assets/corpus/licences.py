"""Licence table, licence tags of documents and the text of ATTRIBUTION files.

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
from pipeline_assets.spine.metadata_file import MetadataFormat
from pipeline_assets.spine.shipped import shipped_path

UNKNOWN = "unknown"
TABLE_PATH = shipped_path("manifests/licences.json")
_WORD_GAPS = str.maketrans({"_": "-", " ": "-"})


class Licence(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Entry of the licence table.

    `redistributable`, `attribution` and `share_alike` are None if unknown.
    """

    tag: str
    spdx: str | None  # identifier in the SPDX licence list; None if not listed
    name: str
    url: str | None
    redistributable: bool | None  # a text under the licence may be redistributed, even with changes
    attribution: bool | None  # redistribution requires attribution of authors or source
    share_alike: bool | None  # derived works must carry the same licence
    aliases: tuple[str, ...]  # other spellings of the tag, in lower case


_TABLE_FORMAT = MetadataFormat("licence table", 1 << 20, "correct that entry", list[Licence], allow_symlink=True)


@dataclass(frozen=True)
class LicenceTag:
    """Licence tag of a document, with evidence such as `row: license` or `recipe`."""

    tag: str
    evidence: str


class LicenceTable:
    """Licences that can be found by tag, alias, SPDX identifier or URL."""

    def __init__(self, licences: Sequence[Licence]) -> None:
        self._by_tag = {licence.tag: licence for licence in licences}
        self._by_spelling = {spelling: licence.tag for licence in licences for spelling in _spellings(licence)}

    def __getitem__(self, tag: str) -> Licence:
        return self._by_tag[tag]

    def __contains__(self, tag: str) -> bool:
        return tag in self._by_tag

    def match_tag(self, spelling: str) -> str | None:
        """Return the tag for a licence spelling, such as `CC BY-SA 4.0`; None if unknown."""
        return self._by_spelling.get(_normalize(spelling))

    def require_tag(self, spelling: str, where: object) -> str:
        """Return the tag for a spelling; if it is unknown, raise UsageError about `where`."""
        tag = self.match_tag(spelling)
        if tag is None:
            raise UsageError(f"unknown licence {spelling!r}", where, self.suggest_tag(spelling))
        return tag

    def suggest_tag(self, spelling: str) -> str:
        """Return a hint with the tag nearest to an unknown licence, or with all tags."""
        nearest = difflib.get_close_matches(_normalize(spelling), self._by_tag, n=1, cutoff=0.5)
        if nearest:
            return f"did you mean {nearest[0]}? Add new licences to manifests/licences.json"
        return f"choose one of {', '.join(sorted(self._by_tag))}, or add it to manifests/licences.json"

    def find_licence_tag(self, spelling: str, evidence: str) -> LicenceTag:
        """Return a spelling's tag and evidence; the evidence quotes an unknown spelling."""
        tag = self.match_tag(spelling)
        return LicenceTag(UNKNOWN, f"{evidence} is {spelling[:80]!r}") if tag is None else LicenceTag(tag, evidence)

    def __len__(self) -> int:
        return len(self._by_tag)

    @functools.cached_property
    def fingerprint(self) -> str:
        """Hash of the map from spellings to tags, by which documents get their tags."""
        return canonical_sha256(self._by_spelling)

    def digest(self) -> str:
        """Hash the whole table, on which reports depend."""
        return canonical_sha256([msgspec.to_builtins(licence) for licence in self._by_tag.values()])


@functools.cache
def licence_table() -> LicenceTable:
    """Return the project's licence table."""
    return read_licences(TABLE_PATH)


def read_licences(path: Path) -> LicenceTable:
    """Read a licence table in JSON; raise InputError if it is missing or invalid."""
    try:
        licences = _TABLE_FORMAT.read(path)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise InputError(f"cannot read the licence table ({error.strerror})", path, "restore the file") from None
    seen: dict[str, str] = {}
    for licence in licences:
        for spelling in _spellings(licence):
            if seen.setdefault(spelling, licence.tag) != licence.tag:
                what = f"{spelling!r} is both {seen[spelling]} and {licence.tag}"
                raise InputError(what, path, "remove the spelling from one of them")
    if UNKNOWN not in {licence.tag for licence in licences}:
        fix = "add it, because documents without a known licence carry it"
        raise InputError("licence `unknown` is missing", path, fix)
    return LicenceTable(licences)


def attribution_text(table: LicenceTable, tags_by_source: Mapping[str, Iterable[str]]) -> str:
    """Return the text of an ATTRIBUTION file.

    The file lists each source with a licence whose `attribution` is true or unknown.
    """
    attributed: list[str] = []
    unknown: list[str] = []
    for source, tags in sorted(tags_by_source.items()):
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
    named = [licence.tag, *licence.aliases, *filter(None, (licence.spdx, licence.url))]
    return {_normalize(spelling) for spelling in named}


def _normalize(spelling: str) -> str:
    return spelling.strip().lower().rstrip("/").translate(_WORD_GAPS)


def tag_or_unknown(licence: str | None) -> str:
    """Return the tag of a row's licence; `unknown` if missing or not in the table."""
    return UNKNOWN if licence is None else licence_table().match_tag(licence) or UNKNOWN


def require_tag(licence: str) -> str:
    """Return the tag of a recipe's licence; ValueError if it is not in the table."""
    known = licence_table().match_tag(licence)
    if known is None:
        raise ValueError(f"unknown licence {licence!r}; {licence_table().suggest_tag(licence)}")
    return known
