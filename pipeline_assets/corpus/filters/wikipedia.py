"""What wikiextractor leaves of a page's markup: tags, templates, and brackets whose template is gone.

Facts that shape the rules (six real extractions in three languages, versions 2.66 to 3.1.0):

- Templates leave without a word. What stood around them stays: `Algeria ( ; , ; ), officially`, `糜文開（）`,
  `（，代號J17）`, `（學名：）`, `電影《》`. A mark alone in ASCII parentheses, `the comma (,)`, is text, and so
  are `main()`, `(...)` and `(1,)`.
- Tags and templates without their end come through as they were written.

Marks are read once, whatever they lie in, and brackets inside one another are followed three deep: time is linear.
"""

import re
from collections import Counter
from collections.abc import Sequence

from pipeline_assets.corpus.filters.filter import Candidate, Filter, Measurement
from pipeline_assets.corpus.filters.recipe import WikipediaFilterRecipe

# MediaWiki's tags that don't show their content as text, and all others.
_HIDES_CONTENT = re.compile(
    "categorytree|ce|charinsert|chem|gallery|graph|hiero|imagemap|includeonly|indicator|inputbox|langconvert|mapframe|"
    "maplink|math|phonos|ref|references|score|templatedata|templatestyles|timeline"
)
_SHOWS_CONTENT = re.compile(
    "abbr|b|bdi|bdo|big|blockquote|br|caption|center|cite|code|col|colgroup|data|dd|del|dfn|div|dl|dt|em|font|h[1-6]|hr|"
    "i|ins|kbd|languages|li|link|mark|meta|noinclude|nowiki|ol|onlyinclude|p|poem|pre|q|rb|rp|rt|rtc|ruby|s|samp|section|"
    "small|source|span|strike|strong|sub|sup|syntaxhighlight|table|tbody|td|tfoot|th|thead|time|tr|translate|tt|tvar|u|"
    "ul|var|wbr"
)
_MARK = re.compile(r"<(/?)([A-Za-z][A-Za-z0-9]*+)(?:\s[^<>=]*+=[^<>]*+|[\s/]*+)>|\{\{++|\}\}++|__[A-Z]{3,24}+__")
_MOST_CONTENT = 10_000  # characters from a mark to the one that closes it; beyond, the two are no pair
_REMOVED = "\ud800"  # where markup was; no text read as UTF-8 has it

_DEPTH = 3
_BLANKS = " \t\u00a0\u3000"
_BETWEEN = _BLANKS + ",;，；、/"
_FILLERS = _BETWEEN + ":：~～–—-'\"“”‘’"
_LETTER = r"A-Za-z\u00c0-\u024f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
# One set of characters at the start, which the engine finds fast.
_BRACKET = re.compile(
    r"[(（《〈「『](?:(?<=[(（])[^()（）]*+[)）]|(?<=《)[ ]*+》|(?<=〈)[ ]*+〉|(?<=「)[ ]*+」|(?<=『)[ ]*+』)"
)
# Nothing but words before a colon whose value is gone, as `學名：` or `Linear B: `.
_LABELS = re.compile(
    rf"(?:[{_BETWEEN}]{{0,40}}+[{_LETTER}][{_LETTER} ]{{0,19}}+[:：]){{1,6}}+[{re.escape(_FILLERS)}]{{0,40}}+"
)
# Separators at an end of a bracket. Those of ASCII need a blank beside them: `(1,)` is text.
_LEADING = re.compile(rf"[{_BLANKS}]{{0,8}}+(?:[，；、：]|[,;:](?=[{_BETWEEN}]))[{_BETWEEN}]{{0,40}}+")
_TRAILING = re.compile(rf"[，；、]|[,;][{_BETWEEN}]")

RUNNING_LINES = "running_lines"
_SENTENCE_END = re.compile(r"[.!?][\"”’')\]»]{0,4}+(?:\s|\Z)|[。！？…؟۔।॥။։።།]")
_LEAST_BYTES = 24  # five words of English, eight characters of Chinese: more than most headings, which end in a period
_ENOUGH_BYTES = 120  # Thai, for one, has no mark that ends a sentence
_NO_WORD = re.compile(r"[\W_]*+")


def mark_markup(text: str) -> tuple[str, Counter[str]]:
    """Return a text with `_GONE` where tags and templates were, and how many of each; a break is a line feed too.

    A template, and a tag that doesn't show its content, is gone from its first mark to its last. Of those without an
    end, or with more than `_MOST_CONTENT` characters, only the marks are.
    """
    spans: list[tuple[int, int, str]] = []  # start, end and kind of what is gone, in order and disjoint
    tags: dict[str, int] = {}  # of what is open: where in `spans` its first mark is
    braces: list[tuple[int, int]] = []  # the same, and how many
    for mark in _MARK.finditer(text):
        opening, (start, end) = len(spans), mark.span()
        name, kind = (mark[2] or "").lower(), "tags" if mark[2] else "templates"
        if mark[0][0] == "{":
            braces.append((opening, end - start))
        elif mark[0][0] == "}":
            unclosed = end - start
            while unclosed > 0 and braces:
                opening, width = braces.pop()
                unclosed -= width
        elif _HIDES_CONTENT.fullmatch(name):
            if mark[1]:
                opening = tags.pop(name, opening)
            elif not mark[0].endswith("/>"):
                tags[name] = opening
        elif name and not _SHOWS_CONTENT.fullmatch(name):
            continue
        if opening < len(spans) and end - spans[opening][0] <= _MOST_CONTENT:  # this mark closes that one
            start = spans[opening][0]
            del spans[opening:]
            tags = {tag: place for tag, place in tags.items() if place < opening}
            while braces and braces[-1][0] >= opening:
                braces.pop()
        spans.append((start, end, "break" if name == "br" else kind))
    parts, at = list[str](), 0
    for start, end, kind in spans:
        parts += (text[at:start], f"{_REMOVED}\n{_REMOVED}" if kind == "break" else _REMOVED)
        at = end
    return "".join([*parts, text[at:]]), Counter("tags" if kind == "break" else kind for _, _, kind in spans)


def without_emptied_brackets(line: str) -> tuple[str, int]:
    """The line without brackets that hold no word, and without separators at the ends of those that do."""
    times = 0
    for _ in range(_DEPTH):
        line, more = _repair_innermost(line)
        if not more:
            break
        times += more
    return line, times


def _repair_innermost(line: str) -> tuple[str, int]:
    """Repair brackets without others in them. Blanks before an empty one go too; one stays where words would touch."""
    parts: list[str] = []
    times = end = 0
    for bracket in _BRACKET.finditer(line):
        left = _left_of_bracket(bracket)
        if left is None:
            continue
        before = line[end : bracket.start()]
        end, times = bracket.end(), times + 1
        if not left:
            is_parted = before[-1:] in tuple(_BLANKS) and line[end : end + 1].isalnum()
            before = before.rstrip(_BLANKS) + " " * is_parted
        parts += (before, left)
    if not times:
        return line, 0
    begun = "".join(parts)
    return begun + line[end:] if begun.strip() else line[end:].lstrip(_BLANKS), times


def _left_of_bracket(bracket: re.Match[str]) -> str | None:
    """What is left of a bracket; None if all of it."""
    opening, words, closing = bracket[0][0], bracket[0][1:-1], bracket[0][-1]
    if words and words[0] not in _FILLERS and words[-1] not in _FILLERS:
        return None
    is_ascii = opening == "(" and closing == ")"
    if not words.strip(_FILLERS):
        before = bracket.string[bracket.start() - 1 : bracket.start()]
        is_call = not words and (before == "_" or (before.isascii() and before.isalnum()))
        is_about_a_mark = len(words) == 1 and not words.isspace()
        return None if is_ascii and (is_call or is_about_a_mark) else ""
    if _LABELS.fullmatch(words):
        return ""
    leading = _LEADING.match(words)
    left = words[leading.end() :] if leading else words
    trimmed = left.rstrip(_BETWEEN)
    left = trimmed if _TRAILING.search(left, len(trimmed)) else left
    return f"{opening}{left}{closing}" if left != words else None


class WikipediaFilter(Filter):
    """What `WikipediaFilterRecipe` asks of pages."""

    def __init__(self, recipe: WikipediaFilterRecipe) -> None:
        self._least = recipe.min_running_lines

    def measure(self, candidate: Candidate) -> list[Measurement]:
        """How many lines of running text are left in a page, from which markup is taken out."""
        lines, found = _repaired(candidate.text.decode("utf-8"))
        if found.total():
            candidate.text = "\n".join(lines).encode("utf-8")
        for name in ("tags", "templates", "emptied_brackets"):
            candidate.count(f"removed/{name}", found[name])
        if self._least is None:
            return []
        running = _running_lines(lines, candidate.meta.get("title"), self._least)
        return [Measurement(RUNNING_LINES, running, self._least, running < self._least, running >= self._least)]


def _repaired(text: str) -> tuple[list[str], Counter[str]]:
    """The lines that are left, and what was taken out of them. A line of which no word is left goes too."""
    marked, found = mark_markup(text)
    left: list[str] = []
    for line in marked.split("\n"):
        repaired, times = without_emptied_brackets(line.replace(_REMOVED, ""))
        found["emptied_brackets"] += times
        if repaired == line or _NO_WORD.fullmatch(repaired) is None:
            left.append(repaired)
    return left, found


def _running_lines(lines: Sequence[str], title: object, enough: int) -> int:
    """Lines that read as sentences, or are as long as some are, counted up to `enough`. The page's title is none."""
    running = 0
    for number, line in enumerate(lines):
        size = len(line.encode("utf-8"))
        if size < _LEAST_BYTES or (number == 0 and isinstance(title, str) and line == " ".join(title.split())):
            continue
        running += size >= _ENOUGH_BYTES or _SENTENCE_END.search(line) is not None
        if running >= enough:
            break
    return running
