"""Licences of texts such as LICENSE files, recognized by their words.

A text is recognized if it has exactly the words of a known licence. The title and the copyright lines are ignored
unless they state terms. A licence with an extra clause, or a list of several licences, is not recognized. An
`SPDX-License-Identifier` counts as the text of its licence.
"""

import hashlib
import re

from pipeline_assets.corpus.licences import UNKNOWN, LicenceTag, licence_table
from pipeline_assets.spine.manifest import canonical_sha256

MAX_LICENCE_TEXT_BYTES = 1 << 18  # seven times the longest text of the table
_SPDX = re.compile(r"SPDX-License-Identifier:[ \t]*([\w.+ ()-]*[\w.+)])", re.IGNORECASE)
_WORD = re.compile(r"[a-z0-9]+")
# Lines without words are removed first: `_HOLDER`, whose `\W*` crosses lines, takes quadratic time with them.
_LINES_WITHOUT_WORDS = re.compile(r"\n\W*\n")
# Any number of holders, one per line, but not a "copyright notice" within a licence. U+FFFD is a © in Latin-1.
_HOLDER = re.compile(
    r"^\W*(?:(?:all |portions |parts )?copyright\b.{0,40}?(?:[0-9]{4}|yyyy|\(c\)|©)|\(c\)|[©\ufffd]|all rights reserved"
    r").{0,100}",
    re.IGNORECASE | re.MULTILINE,
)
_TITLE = re.compile(r"\A\W*[^\n]{0,60}\blicen[cs]e\b[^\n]{0,20}\n", re.IGNORECASE)
# Words of terms: a line with one is more than a holder or title, as in "All rights reserved. No commercial use."
_TERMS = re.compile(
    r"\b(?:non?|not|never|only|except\w*|(?:non)?commercial\w*|prohibit\w*|forbid\w*|restrict\w*|permi\w+|allow\w*|"
    r"us(?:e[ds]?|ing|age)|train(?:ing)?|purposes?|internal|confidential|proprietary|modified|with|and/or|additional|"
    r"(?:re)?distribut(?:e|ing|ion)|sell|selling|sold|sale|resale|pay|payments?|paid|fees?|royalt(?:y|ies)|requires?|"
    r"required|shall|subject|evaluation|expires?)\b",
    re.IGNORECASE,
)
# sha256 of the words without holders and title, for the SPDX text and other forms that packages ship.
_TEXT_HASHES = {
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
    ],  # whole, without its appendix, and the notice that the appendix recommends
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
_TAGS_BY_HASH = {digest: tag for tag, digests in _TEXT_HASHES.items() for digest in digests}


def identify_licence(text: str, evidence: str) -> LicenceTag:
    """Identify the licence of a text; `unknown` if none or several match.

    If the text has an SPDX identifier that the licence table lacks, the tag's evidence quotes it after `evidence`.
    """
    stated = [licence_table().find_licence_tag(identifier, evidence) for identifier in _SPDX.findall(text)]
    prose = _HOLDER.sub(_keep_terms, _LINES_WITHOUT_WORDS.sub("\n", _SPDX.sub("", text)))
    untitled = _TITLE.sub(_keep_terms, prose)
    matches = {tag for words in (prose, untitled) if (tag := _TAGS_BY_HASH.get(_words_sha256(words)))}
    heading = set(_WORD.findall(prose.lower()))
    is_heading_of_stated = not _WORD.search(untitled.lower()) and all(
        heading.issuperset(_WORD.findall(licensed.tag)) for licensed in stated
    )
    if heading and not matches and not is_heading_of_stated:
        stated += [LicenceTag(UNKNOWN, evidence)]
    tags = matches | {licensed.tag for licensed in stated}
    if len(tags) == 1:
        return stated[0] if stated else LicenceTag(tags.pop(), evidence)
    return LicenceTag(UNKNOWN, next((licensed.evidence for licensed in stated if licensed.tag == UNKNOWN), evidence))


def _keep_terms(match: re.Match[str]) -> str:
    """Return a matched line if it states terms, else an empty text."""
    return match[0] if _TERMS.search(match[0]) else ""


def _words_sha256(text: str) -> str:
    return hashlib.sha256(" ".join(_WORD.findall(text.lower())).encode()).hexdigest()


def licence_texts_fingerprint() -> str:
    """Hash everything that determines the result of `identify_licence`."""
    how = [MAX_LICENCE_TEXT_BYTES, *(pattern.pattern for pattern in (_SPDX, _HOLDER, _TITLE, _TERMS))]
    return canonical_sha256([licence_table().fingerprint, how, _TEXT_HASHES])
