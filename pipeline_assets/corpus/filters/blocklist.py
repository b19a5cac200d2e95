"""Filter by lists of domains, URLs and words.

A list has one entry per line; blank lines, and lines that begin with `#`, are ignored. A listed domain also matches all
its subdomains. Before comparison, URLs are normalized by `split_url`, and words are case-folded.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from pipeline_assets.corpus.filters import hashed_words
from pipeline_assets.corpus.filters.characters import WORD
from pipeline_assets.corpus.filters.filter import Candidate, Filter, Measurement
from pipeline_assets.corpus.filters.recipe import WITHOUT_URL, BlocklistRecipe
from pipeline_assets.corpus.filters.text_batch import join_texts
from pipeline_assets.corpus.urls import list_domains, split_url
from pipeline_assets.spine.errors import InputError

_FIX = "correct the list, and pin its new sha256"
# Lines of other programs, which no URL would match: `0.0.0.0 a.org`, `a.org # note`, `||a.org^`, `a.org,1`.
_FOREIGN_LINE = re.compile(rb"[^/?]*[\s|,]|.*\s$")


def _url_keys(url: str) -> list[str]:
    host, rest = split_url(url)
    return [host and host + rest]


def _read_list(path: Path, normalize: Callable[[str], str]) -> tuple[list[int], list[bytes]]:
    """Return the line numbers and the normalized entries of a list."""
    try:
        lines = path.read_bytes().decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise InputError(f"the list is not UTF-8 ({error})", path, _FIX) from None
    line_numbers = [number for number, line in enumerate(lines, 1) if line.strip() and line[0] != "#"]
    if not line_numbers:
        raise InputError("the list has no entry", path, _FIX)
    return line_numbers, [normalize(lines[number - 1].strip()).encode() for number in line_numbers]


def _build_url_table(path: Path, url_to_keys: Callable[[str], list[str]]) -> hashed_words.HashedWords:
    line_numbers, keys = _read_list(path, lambda line: url_to_keys(line.removeprefix("*."))[0])
    _raise_if_invalid(path, line_numbers, map(len, keys), "has no host")
    is_entry = (_FOREIGN_LINE.match(key) is None for key in keys)
    _raise_if_invalid(path, line_numbers, is_entry, "is not one host or URL, without anything else")
    return hashed_words.build_table(hashed_words.hash_strings(join_texts(keys)), np.zeros(len(keys), np.int32))


def _build_word_table(path: Path) -> hashed_words.HashedWords:
    line_numbers, phrases = _read_list(path, str.casefold)
    classes = hashed_words.word_classes()
    hashes, is_whole, words = hashed_words.hash_phrase_prefixes(join_texts(phrases), classes)
    _raise_if_invalid(path, line_numbers, words.tolist(), "has no word")
    # A phrase is compared without other characters at its ends, so `a$$` would match every `a`.
    ends = np.array([[ord(phrase[0]), ord(phrase[-1])] for phrase in map(bytes.decode, phrases)])
    is_in_word = (classes[np.minimum(ends, len(classes) - 1)] & WORD > 0).all(axis=1)  # beyond the table are no words
    _raise_if_invalid(path, line_numbers, is_in_word.tolist(), "begins or ends with a character that is in no word")
    return hashed_words.build_table(hashes, is_whole)


def _raise_if_invalid(path: Path, line_numbers: Iterable[int], valid_mask: Iterable[object], problem: str) -> None:
    invalid = next((number for number, is_valid in zip(line_numbers, valid_mask, strict=True) if not is_valid), None)
    if invalid is not None:
        raise InputError(f"line {invalid:,} {problem}", path, _FIX)


class BlocklistFilter(Filter):
    """Filter by lists of domains, URLs and words.

    The constructor raises InputError for an unusable list.
    """

    def __init__(self, recipe: BlocklistRecipe) -> None:
        self._column = recipe.url_column
        self._by_url = [
            (f"blocklist_{kind}:{name}", url_to_keys, _build_url_table(Path(file.path), url_to_keys))
            for kind, url_to_keys, files in (("domain", list_domains, recipe.domains), ("url", _url_keys, recipe.urls))
            for name, file in sorted(files.items())
        ]
        words = sorted(recipe.words.items())
        self._words = [(f"blocklist_word:{name}", _build_word_table(Path(file.path))) for name, file in words]

    def apply(self, candidates: Sequence[Candidate]) -> None:
        """Drop documents that match a list; the reason names the first matching list."""
        for reason, matches in self._find_matches(candidates):
            for candidate, match in zip(candidates, matches, strict=True):
                if match is not None:
                    candidate.fail(Measurement(reason, match, None, is_failed=True))

    def measure(self, candidate: Candidate) -> Iterator[Measurement]:
        """Yield a measurement for each list.

        The value is the domain, URL, word or phrase that matches; None if nothing matches. If several domains match,
        the value is the most specific one; if several words or phrases match, the first in the text.
        """
        return (
            Measurement(reason, match, None, match is not None) for reason, [match] in self._find_matches([candidate])
        )

    def _find_matches(self, candidates: Sequence[Candidate]) -> Iterator[tuple[str, list[str | None]]]:
        """Yield, for each list, its reason code and its match (or None) in each document."""
        urls = [candidate.meta.get(self._column) for candidate in candidates]
        for candidate, url in zip(candidates, urls, strict=True):
            candidate.record_changes(WITHOUT_URL, bool(self._by_url) and not isinstance(url, str))
        for reason, url_to_keys, table in self._by_url:
            keys = [url_to_keys(url) if isinstance(url, str) else [] for url in urls]
            hashes = hashed_words.hash_strings(join_texts([key.encode() for several in keys for key in several]))
            nearest = np.minimum(np.searchsorted(table.hashes, hashes), len(table.hashes) - 1)
            hits = iter((table.hashes[nearest] == hashes).tolist())
            # The list takes one hit for each key, so that `hits` stays in step with the keys of the next document.
            yield reason, [next(iter([key for key in several if next(hits)]), None) for several in keys]
        batch = join_texts([candidate.text.decode().casefold().encode() for candidate in candidates if self._words])
        for reason, table in self._words:
            spans = hashed_words.find_first_phrases(batch, hashed_words.word_classes(), table).tolist()
            yield reason, [batch.text[start:stop].tobytes().decode() if stop > 0 else None for start, stop in spans]
