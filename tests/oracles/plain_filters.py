"""Filters in plain Python, an oracle for the compiled filters.

Both share the recipe for English web pages in docs/filters.md and the names of its thresholds, nothing else.
"""

import ipaddress
import re
import unicodedata
from collections import Counter
from collections.abc import Callable
from functools import cache, cached_property
from pathlib import Path

import yaml

from pipeline_assets.corpus.filters.recipe import BoilerplateRecipe, C4Recipe, FilterRecipe, MaskingRecipe
from pipeline_assets.corpus.filters.thresholds import build_thresholds

_DOCS = Path(__file__).parents[2] / "docs" / "filters.md"
_SECTIONS = re.findall(r"^```yaml\n(.*?)^```", _DOCS.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
ENGLISH_PROSE, ENGLISH_WEB = (FilterRecipe.from_mapping(yaml.safe_load(block), "docs") for block in _SECTIONS[:2])
BULLETS = tuple("•‣◦▪▫■□●○▶–*-")
EMAIL = re.compile(
    r"\b[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(?:\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*@"
    r"(?:(?:[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?\.)+[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
    r"|\[(?:(?:25[0-5]|2[0-4][0-9]|[01]?[0-9][0-9]?)\.){3}"
    r"(?:25[0-5]|2[0-4][0-9]|[01]?[0-9][0-9]?|[A-Za-z0-9-]*[A-Za-z0-9]:)\])"
)
IP = re.compile(r"(?:(?:25[0-5]|2[0-4][0-9]|[01]?[0-9][0-9]?)\.){3}(?:25[0-5]|2[0-4][0-9]|[01]?[0-9][0-9]?)")
CITATION = re.compile(r"\[(?:[0-9]*|edit|citation needed)\]")
EMAILS = ("email@example.com", "firstname.lastname@example.org")
IPS = ("22.214.171.124", "126.96.36.199", "188.8.131.52", "184.108.40.206", "220.127.116.11", "18.104.22.168")


class PlainText:
    """Text split in the ways that the measures need."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.words = text.split()
        self.lines = [tuple(line.split()) for line in text.split("\n") if line.split()]
        self.size = sum(map(len, self.words))

    @cached_property
    def copied_lines(self) -> list[tuple[str, ...]]:
        return copies(self.lines)

    @cached_property
    def paragraphs(self) -> list[tuple[str, ...]]:
        return [tuple(part.split()) for part in re.split(r"\n\s*\n", self.text) if part.split()]

    @cached_property
    def copied_paragraphs(self) -> list[tuple[str, ...]]:
        return copies(self.paragraphs)

    def per_word(self, count: int) -> float:
        return count / len(self.words) if self.words else 0.0

    def per_line(self, count: int) -> float:
        return count / len(self.lines) if self.lines else 0.0

    def per_paragraph(self, count: int) -> float:
        return count / len(self.paragraphs) if self.paragraphs else 0.0

    def per_character(self, count: int) -> float:
        return count / self.size if self.size else 0.0

    def ascii_ratio(self) -> float:
        return sum(map(str.isascii, self.text)) / len(self.text) if self.text else 0.0

    def symbols(self) -> int:
        return sum(unicodedata.category(character)[0] in "PS" for word in self.words for character in word)


MEASURES: dict[str, Callable[[PlainText], float]] = {
    "few_characters": lambda t: len(t.text),
    "many_characters": lambda t: len(t.text),
    "few_words": lambda t: len(t.words),
    "many_words": lambda t: len(t.words),
    "ascii_ratio": PlainText.ascii_ratio,
    "symbol_ratio": lambda t: t.per_character(t.symbols()),
    "short_words": lambda t: t.per_word(t.size),
    "long_words": lambda t: t.per_word(t.size),
    "hash_ratio": lambda t: t.per_word(t.text.count("#")),
    "ellipsis_ratio": lambda t: t.per_word(t.text.count("...") + t.text.count("…")),
    "bullet_lines": lambda t: t.per_line(sum(line[0].startswith(BULLETS) for line in t.lines)),
    "ellipsis_lines": lambda t: t.per_line(sum(line[-1].endswith(("...", "…")) for line in t.lines)),
    "alphabetic_words": lambda t: t.per_word(sum(any(map(str.isalpha, word)) for word in t.words)),
    "duplicate_lines": lambda t: t.per_line(len(t.copied_lines)),
    "duplicate_line_characters": lambda t: t.per_character(count_characters(t.copied_lines)),
    "duplicate_paragraphs": lambda t: t.per_paragraph(len(t.copied_paragraphs)),
    "duplicate_paragraph_characters": lambda t: t.per_character(count_characters(t.copied_paragraphs)),
    **{f"top_{n}_gram": lambda t, n=n: t.per_character(top_gram_characters(t.words, n)) for n in (2, 3, 4)},
    **{f"duplicate_{n}_grams": lambda t, n=n: t.per_character(copied_characters(t.words, n)) for n in range(5, 11)},
}


def measured(text: PlainText, reason: str, recipe: FilterRecipe) -> float:
    """Measure a text for the threshold of a reason; stop words up to the minimum."""
    if reason == "stop_words" and recipe.gopher_quality:
        found = sum(has_words(text.text, word) for word in recipe.gopher_quality.stop_words)
        return min(found, recipe.gopher_quality.min_stop_words or 0)
    if reason == "boilerplate_lines" and recipe.boilerplate:
        return boilerplate_fraction(text.text, recipe.boilerplate)
    return MEASURES[reason](text)


def copies(items: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """List the items that equal an earlier one."""
    seen: set[tuple[str, ...]] = set()
    return [item for item in items if item in seen or seen.add(item)]


def count_characters(items: list[tuple[str, ...]]) -> int:
    return sum(len(word) for item in items for word in item)


def top_gram_characters(words: list[str], n: int) -> int:
    """Count the characters of all occurrences of the first most frequent n-gram."""
    grams = Counter(tuple(words[start : start + n]) for start in range(len(words) - n + 1))
    top, count = max(grams.items(), key=lambda item: item[1], default=((), 0))  # max takes the first
    return count * sum(map(len, top)) if count > 1 else 0


def copied_characters(words: list[str], n: int) -> int:
    """Count the characters of words in an n-gram that occurred before."""
    seen: set[tuple[str, ...]] = set()
    is_copied = [False] * len(words)
    for start in range(len(words) - n + 1):
        gram = tuple(words[start : start + n])
        if gram in seen:
            is_copied[start : start + n] = [True] * n
        seen.add(gram)
    return sum(len(word) for word, copied in zip(words, is_copied, strict=True) if copied)


@cache
def compile_phrase(phrase: str) -> re.Pattern[str]:
    """Compile a phrase that matches both cases of its characters."""
    cases = [{case for case in (c, c.lower(), c.upper()) if len(case) == 1} for c in phrase]
    return re.compile("".join(f"(?:{'|'.join(map(re.escape, sorted(case)))})" for case in cases))


def has_phrase(text: str, phrase: str) -> bool:
    return compile_phrase(phrase).search(text) is not None


def has_words(text: str, phrase: str) -> bool:
    return re.search(rf"(?<!\w){compile_phrase(phrase).pattern}(?!\w)", text) is not None


def boilerplate_fraction(text: str, recipe: BoilerplateRecipe) -> float:
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    found = [
        any(has_phrase(line, phrase) for phrase in recipe.phrases)
        or any(compile_phrase(whole).fullmatch(line) for whole in recipe.lines)
        for line in lines
    ]
    return sum(found) / len(found) if found else 0.0


def kept_lines(text: str, recipe: C4Recipe) -> tuple[list[str], Counter[str], int]:
    """Return kept lines, the reasons of removed lines, and the kept sentences."""
    kept, removed, sentences = [], Counter[str](), 0
    for line in map(str.strip, text.split("\n")):
        words = line.split()
        if not words:
            continue
        if recipe.max_word_characters and max(map(len, words)) > recipe.max_word_characters:
            removed["removed_lines/long_word"] += 1
        elif recipe.terminal_punctuation and line[-1] not in recipe.terminal_punctuation:
            removed["removed_lines/no_terminal_punctuation"] += 1
        elif len(words) < (recipe.min_words_per_line or 0):
            removed["removed_lines/few_words"] += 1
        elif any(has_phrase(line, phrase) for phrase in recipe.remove_lines_with):
            removed["removed_lines/phrase"] += 1
        else:
            kept.append(line)
            sentences += count_sentences(line, recipe.terminal_punctuation or "")
    return kept, removed, sentences


def count_sentences(line: str, terminal: str) -> int:
    """Count runs of marks and closers that end the line or have a blank or wide mark."""
    closers = {character for character in line if unicodedata.category(character) in ("Pe", "Pf") or character in "\"'"}
    marks = set(terminal) - closers
    count = at = 0
    end = -1
    while at < len(line):
        if line[at] in marks:
            start = at
            while at < len(line) and (line[at] in marks or line[at] in closers or line[at].isspace()):
                at += 1
            run, end = line[start:at], at
            count += at == len(line) or any(c.isspace() or (c in marks and not c.isascii()) for c in run)
        at += 1
    return count + (line[-1] in terminal and end != len(line))


def masked(text: str, recipe: MaskingRecipe) -> tuple[str, int, int]:
    """Replace addresses; count the replaced e-mail and IP addresses."""
    emails, ips = [0], [0]

    def mask_email(_: re.Match[str]) -> str:
        emails[0] += 1
        return EMAILS[(emails[0] - 1) % 2]

    def mask_ip(match: re.Match[str]) -> str:
        if not is_public(match.group()):
            return match.group()
        ips[0] += 1
        return IPS[(ips[0] - 1) % 6]

    text = EMAIL.sub(mask_email, text) if recipe.emails else text
    text = IP.sub(mask_ip, text) if recipe.public_ips else text
    return text, emails[0], ips[0]


def is_public(address: str) -> bool:
    try:
        return ipaddress.IPv4Address(address).is_global and not address.startswith("192.0.0.")
    except ValueError:
        return False


def plain_verdict(text: str, recipe: FilterRecipe) -> tuple[str | None, str]:
    """Return the first reason to drop a text, and the text; ignore column rules."""
    split = PlainText(text)
    for threshold in build_thresholds(recipe):
        value = measured(split, threshold.reason, recipe)
        if value < threshold.limit if threshold.dropped_side == "<" else value > threshold.limit:
            return threshold.reason, text
    if recipe.c4 is not None:
        if any(has_phrase(text, phrase) for phrase in recipe.c4.drop_documents_with):
            return "document_phrase", text
        if any(has_words(text, word) for word in recipe.c4.bad_words):
            return "bad_word", text
        if recipe.c4.remove_citations:
            text = CITATION.sub("", text)
        kept, _, sentences = kept_lines(text, recipe.c4)
        if recipe.c4.remove_lines:
            text = "\n".join(kept)
        if sentences < (recipe.c4.min_sentences or 0):
            return "few_sentences", text
        if (recipe.c4.remove_lines or recipe.c4.remove_citations) and not text.strip():
            return "lines_left", text
    if recipe.masking is not None:
        text, _, _ = masked(text, recipe.masking)
    return None, text
