"""Which licence a text is, such as a LICENSE file: one of the project's table, or nobody knows.

A text is a licence if it holds it whole, from an opening phrase to a closing one with as many words between them as the
licence is known to have, and at most twenty beside it. So a licence with a clause more is none of the table, nor is a
list of several. An `SPDX-License-Identifier` counts as the text of its licence.
"""

import re
from collections.abc import Iterator
from dataclasses import astuple, dataclass

from pipeline_assets.corpus.licences import UNKNOWN, Licensed, licence_table
from pipeline_assets.corpus.spine.manifest import sha256_of

LICENCE_TEXT_BYTES = 1 << 18  # the longest of the table has a seventh of it
_MOST_OTHER_WORDS = 20  # a title, "all rights reserved"; clauses that are added in use have 22 and more
_SPDX = re.compile(r"SPDX-License-Identifier:[ \t]*([\w.+ ()-]*[\w.+)])", re.IGNORECASE)
_WORD = re.compile(r"[a-z0-9]+")
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
    words = f" {' '.join(_WORD.findall(_HOLDER.sub('', _SPDX.sub('', text)).lower()))} "
    spans = sorted((begin, end, form.tag) for form in _FORMS for begin, end in _spans(words, form))
    tags = {tag for _, _, tag in spans} | {one.tag for one in stated}
    if len(tags) == 1 and _other_words(words, [(begin, end) for begin, end, _ in spans]) <= _MOST_OTHER_WORDS:
        return stated[0] if stated else Licensed(tags.pop(), evidence)
    return Licensed(UNKNOWN, next((one.evidence for one in stated if one.tag == UNKNOWN), evidence))


def fingerprint() -> str:
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
