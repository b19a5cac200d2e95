"""Licences: which tag a document carries and why, what the licence asks for, and which licence a text is.

A tag is an SPDX identifier in lower case, or one of `public-domain`, `proprietary`, `unknown`. Nothing is guessed: a
value that the table doesn't hold is `unknown`, with the value as evidence.

A text, such as a LICENSE file, is a licence if its words are exactly those of the licence, but for a title and lines
that name holders. So a licence with a clause more is none of the table, nor is a list of several. An
`SPDX-License-Identifier` counts as the text of its licence.
"""

import difflib
import functools
import hashlib
import re
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


_TABLE_FILE = MetadataFile("licence table", 1 << 20, "correct that entry", list[Licence], allow_symlink=True)


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

    def match_tag(self, value: str) -> str | None:
        """The tag of a licence as somebody wrote it (`CC BY-SA 4.0`); None if the table has no such licence."""
        return self._by_spelling.get(_normal(value))

    def tag_named(self, value: str, where: object) -> str:
        """The tag of a licence that a recipe or command names.

        Raises:
            UsageError: there is none (names the nearest).
        """
        tag = self.match_tag(value)
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
        tag = self.match_tag(value)
        return Licensed(UNKNOWN, f"{evidence} is {value[:80]!r}") if tag is None else Licensed(tag, evidence)

    def __len__(self) -> int:
        return len(self._by_tag)

    @functools.cached_property
    def fingerprint(self) -> str:
        """Of the spellings and their tags: what the tags of documents depend on."""
        return canonical_sha256(self._by_spelling)

    def digest(self) -> str:
        """Of all that it says: what a report depends on."""
        return canonical_sha256([msgspec.to_builtins(licence) for licence in self._by_tag.values()])


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
    return UNKNOWN if licence is None else licence_table().match_tag(licence) or UNKNOWN


def known_tag(tag: str) -> str:
    """The tag of a licence that a recipe names.

    Raises:
        ValueError: there is none (names the nearest).
    """
    known = licence_table().match_tag(tag)
    if known is None:
        raise ValueError(f"there is no licence {tag!r}: {licence_table().advice(tag)}")
    return known


LICENCE_TEXT_BYTES = 1 << 18  # the longest of the table has a seventh of it
_SPDX = re.compile(r"SPDX-License-Identifier:[ \t]*([\w.+ ()-]*[\w.+)])", re.IGNORECASE)
_WORD = re.compile(r"[a-z0-9]+")
# Without these lines `_HOLDER`, whose `\W*` crosses lines, takes time linear in the text; with them, quadratic.
_LINES_WITHOUT_WORDS = re.compile(r"\n\W*\n")
# Of holders there may be any number, a line each; a "copyright notice" in the midst of a licence is none. U+FFFD is a ©
# that was written in Latin-1.
_HOLDER = re.compile(
    r"^\W*(?:(?:all |portions |parts )?copyright\b.{0,40}?(?:[0-9]{4}|yyyy|\(c\)|©)|\(c\)|[©\ufffd]|all rights reserved"
    r").{0,100}",
    re.IGNORECASE | re.MULTILINE,
)
_TITLE = re.compile(r"\A\W*[^\n]{0,60}\blicen[cs]e\b[^\n]{0,20}\n", re.IGNORECASE)
# sha256 of the words, without holders and title: of the SPDX text, and of other forms that packages ship.
_TEXTS = {
    "mit": ["0cf21bdfd1964a97a8615e128534845826afbc887edc95aa5c925cbf64386b5c"],
    "bsd-2-clause": [
        "a56fee4b2f66331ed54da4950ef9c9391453fd1490b4d8ea202bc29683bcbd30",
        "986c3c3199a93b916c8f2e0aeed57819bcbdcb2cd9d99902dcc9d74b53f93a74",
    ],  # with numbers before the conditions, and without
    "bsd-3-clause": [
        "9b83d3dee0616d07b82a272dd9bf5134a9f402b750f5ee6188458073b0a32ff2",
        "53075742228962c7ea381b8242c64602fa32e7b8f52facb6d13ee4f9c596ddfa",
    ],
    "apache-2.0": [
        "045649cdaf85384ba827242062f2f3b36409835c98d297e25177cb1faf7c2847",
        "108490d21e2d3edc9128233e48fabc169818d0c7c5f0bbdd58231a367d2d6c87",
        "7a46cf4a5d56898d746584f4fe57bdf571d600a8f39d21063431d88929f803c7",
    ],  # whole, without its appendix, and the notice that the appendix asks for
    "gpl-2.0": [
        "efe73660e5476cf0368fc0fc143f624ff9d1b73c4484b14a9969dd20c5786821",
        "e1270b653c300290e7c039142bccb8776f9b5d14e8a05bc4e87dc7d1614a3b34",
    ],  # with "How to apply these terms", and without
    "gpl-3.0": [
        "a8cd54d6683aa630f0b8d05d56184ad91dc486756da2df61c94d3e4e8d5ecb68",
        "ac6b52d57c0104e687039148f7b8e370e04c9bb5705bb786f8ef814eb65e8636",
    ],
    "psf-2.0": [
        "2828f75812d118ba4951a29f70edc21395449b4598511aeaf62130644e9ed558",
        "f89b01f7c348264d8a544cfe6ee79e14e41503f5b5213a0279353c7fcc89c67d",
    ],  # with the licences of Python's earlier owners; up to 3.12, and of 3.13
    "cc0-1.0": ["96bdc7f63190fb4bd1ae584b890300ed7517d858b34c945642a3b9b2f1612a5f"],
}
_TAGS = {digest: tag for tag, digests in _TEXTS.items() for digest in digests}


def licence_of_text(text: str, evidence: str) -> Licensed:
    """The tag of the licence that a text is; `unknown` where it is none of the table, or several.

    Args:
        evidence: names the text; an SPDX identifier that the table doesn't hold is told behind it.
    """
    stated = [licence_table().licensed(identifier, evidence) for identifier in _SPDX.findall(text)]
    prose = _HOLDER.sub("", _LINES_WITHOUT_WORDS.sub("\n", _SPDX.sub("", text)))
    untitled = _TITLE.sub("", prose)
    found = {tag for words in (prose, untitled) if (tag := _TAGS.get(_words_sha256(words)))}
    heading = set(_WORD.findall(prose.lower()))
    is_heading_of_stated = not _WORD.search(untitled.lower()) and all(
        heading.issuperset(_WORD.findall(one.tag)) for one in stated
    )
    if heading and not found and not is_heading_of_stated:
        stated += [Licensed(UNKNOWN, evidence)]
    tags = found | {one.tag for one in stated}
    if len(tags) == 1:
        return stated[0] if stated else Licensed(tags.pop(), evidence)
    return Licensed(UNKNOWN, next((one.evidence for one in stated if one.tag == UNKNOWN), evidence))


def _words_sha256(text: str) -> str:
    return hashlib.sha256(" ".join(_WORD.findall(text.lower())).encode()).hexdigest()


def licence_texts_fingerprint() -> str:
    """Of all that tags of texts depend on."""
    how = [LICENCE_TEXT_BYTES, *(pattern.pattern for pattern in (_SPDX, _HOLDER, _TITLE))]
    return canonical_sha256([licence_table().fingerprint, how, _TEXTS])
