"""Filter that cleans wikiextractor pages and drops pages without running text.

The filter removes tags, templates and emptied brackets. The rules are based on six real extractions in three languages,
by wikiextractor 2.66 to 3.1.0:

- wikiextractor deletes templates and keeps the text around them. The filter repairs the brackets in `糜文開（）`,
  `Algeria ( ; , ; ), officially`, `（，代號J17）`, `（學名：）` and `電影《》`, but not in `main()` or `(1,)`.
- If a tag or template has no end, wikiextractor copies it unchanged.

Time is linear in the length of the text.
"""

import re
from collections import Counter
from collections.abc import Sequence

from pipeline_assets.corpus.filters.filter import Candidate, Filter, Measurement
from pipeline_assets.corpus.filters.recipe import WikipediaFilterRecipe

# MediaWiki's tags that do not show their content as text, and all other tags.
_HIDING_TAG = re.compile(
    "categorytree|ce|charinsert|chem|gallery|graph|hiero|imagemap|includeonly|indicator|inputbox|langconvert|mapframe|"
    "maplink|math|phonos|ref|references|score|templatedata|templatestyles|timeline"
)
_SHOWING_TAG = re.compile(
    "abbr|b|bdi|bdo|big|blockquote|br|caption|center|cite|code|col|colgroup|data|dd|del|dfn|div|dl|dt|em|font|h[1-6]|hr|"
    "i|ins|kbd|languages|li|link|mark|meta|noinclude|nowiki|ol|onlyinclude|p|poem|pre|q|rb|rp|rt|rtc|ruby|s|samp|section|"
    "small|source|span|strike|strong|sub|sup|syntaxhighlight|table|tbody|td|tfoot|th|thead|time|tr|translate|tt|tvar|u|"
    "ul|var|wbr"
)
_MARKUP_MARK = re.compile(r"<(/?)([A-Za-z][A-Za-z0-9]*+)(?:\s[^<>=]*+=[^<>]*+|[\s/]*+)>|\{\{++|\}\}++|__[A-Z]{3,24}+__")
_MAX_CONTENT_CHARACTERS = 10_000  # from a mark to the mark that closes it; farther apart, the two are not a pair
_PLACEHOLDER = "\ud800"  # placeholder of removed markup; a lone surrogate is not in any text read as UTF-8

_MAX_BRACKET_DEPTH = 3
_BLANKS = " \t\u00a0\u3000"
_SEPARATORS = _BLANKS + ",;，；、/"
_FILLERS = _SEPARATORS + ":：~～–—-'\"“”‘’"
_LETTERS = r"A-Za-z\u00c0-\u024f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
# The expression starts with one set of characters, which the engine finds fast.
_BRACKET = re.compile(  # a pair of brackets without a bracket inside; angle and corner brackets only if empty
    r"[(（《〈「『](?:(?<=[(（])[^()（）]*+[)）]|(?<=《)[ ]*+》|(?<=〈)[ ]*+〉|(?<=「)[ ]*+」|(?<=『)[ ]*+』)"
)
# Only labels before a colon whose value is missing, such as `學名：` or `Linear B: `.
_EMPTY_LABELS = re.compile(
    rf"(?:[{_SEPARATORS}]{{0,40}}+[{_LETTERS}][{_LETTERS} ]{{0,19}}+[:：]){{1,6}}+[{re.escape(_FILLERS)}]{{0,40}}+"
)
# Separators at an end of a bracket. ASCII separators need a space next to them: `(1,)` is text.
_LEADING_SEPARATORS = re.compile(rf"[{_BLANKS}]{{0,8}}+(?:[，；、：]|[,;:](?=[{_SEPARATORS}]))[{_SEPARATORS}]{{0,40}}+")
_TRAILING_SEPARATORS = re.compile(rf"[，；、]|[,;][{_SEPARATORS}]")

_SENTENCE_END = re.compile(r"[.!?][\"”’')\]»]{0,4}+(?:\s|\Z)|[。！？…؟۔।॥။։።།]")
_MIN_LINE_BYTES = 24  # five English words or eight Chinese characters: longer than most headings that end in a period
_LONG_LINE_BYTES = 120  # such a line counts without a sentence end, because Thai, for example, marks none
_NO_WORD = re.compile(r"[\W_]*+")


def replace_markup(text: str) -> tuple[str, Counter[str]]:
    """Replace tags and templates with placeholders; count replaced spans by kind.

    - A template, or a tag that hides its content, is replaced together with the content, as one span. If the closing
      mark is missing, or more than `_MAX_CONTENT_CHARACTERS` away, only the marks are replaced.
    - If a tag shows its content, only the marks of the tag are replaced.
    - `<br>` becomes a line feed between two placeholders.
    - Unknown tags are kept.

    The kinds are `tags` and `templates`; switches such as `__NOTOC__` count as `templates`.
    """
    spans: list[tuple[int, int, str]] = []  # start, end and kind of removed markup, in order and disjoint
    tags: dict[str, int] = {}  # for each open tag, the index of its first mark in `spans`
    braces: list[tuple[int, int]] = []  # for each open brace mark, its index in `spans` and its number of braces
    for mark in _MARKUP_MARK.finditer(text):
        # `opening` becomes the index of the mark that this one closes; len(spans) stands for no such mark.
        opening, (start, end) = len(spans), mark.span()
        name, kind = (mark[2] or "").lower(), "tags" if mark[2] else "templates"
        if mark[0][0] == "{":
            braces.append((opening, end - start))
        elif mark[0][0] == "}":
            unclosed = end - start
            while unclosed > 0 and braces:
                opening, width = braces.pop()
                unclosed -= width
        elif _HIDING_TAG.fullmatch(name):
            if mark[1]:
                opening = tags.pop(name, opening)
            elif not mark[0].endswith("/>"):
                tags[name] = opening
        elif name and not _SHOWING_TAG.fullmatch(name):
            continue
        if opening < len(spans) and end - spans[opening][0] <= _MAX_CONTENT_CHARACTERS:
            # One span replaces the pair and everything between, so marks between them are no longer open.
            start = spans[opening][0]
            del spans[opening:]
            tags = {tag: index for tag, index in tags.items() if index < opening}
            while braces and braces[-1][0] >= opening:
                braces.pop()
        spans.append((start, end, "break" if name == "br" else kind))
    parts, at = list[str](), 0
    for start, end, kind in spans:
        parts += (text[at:start], f"{_PLACEHOLDER}\n{_PLACEHOLDER}" if kind == "break" else _PLACEHOLDER)
        at = end
    return "".join([*parts, text[at:]]), Counter("tags" if kind == "break" else kind for _, _, kind in spans)


def remove_emptied_brackets(line: str) -> tuple[str, int]:
    """Remove emptied brackets, and stray separators in brackets.

    Brackets are repaired up to three levels deep. Return the line and the number of repaired brackets.
    """
    repairs = 0
    for _ in range(_MAX_BRACKET_DEPTH):
        line, repaired = _repair_innermost(line)
        if not repaired:
            break
        repairs += repaired
    return line, repairs


def _repair_innermost(line: str) -> tuple[str, int]:
    """Repair the innermost brackets; return the line and the number of repairs.

    Blanks before a removed bracket are removed too; one is kept if a letter or digit follows the bracket.
    """
    parts: list[str] = []
    repairs = end = 0
    for bracket in _BRACKET.finditer(line):
        replacement = _repair_bracket(bracket)
        if replacement is None:
            continue
        before = line[end : bracket.start()]
        end, repairs = bracket.end(), repairs + 1
        if not replacement:
            needs_blank = before[-1:] in tuple(_BLANKS) and line[end : end + 1].isalnum()
            before = before.rstrip(_BLANKS) + " " * needs_blank
        parts += (before, replacement)
    if not repairs:
        return line, 0
    start = "".join(parts)
    return start + line[end:] if start.strip() else line[end:].lstrip(_BLANKS), repairs


def _repair_bracket(bracket: re.Match[str]) -> str | None:
    """Return the replacement for a bracketed text; None to keep the text."""
    opening, content, closing = bracket[0][0], bracket[0][1:-1], bracket[0][-1]
    if content and content[0] not in _FILLERS and content[-1] not in _FILLERS:
        return None
    is_ascii = opening == "(" and closing == ")"
    if not content.strip(_FILLERS):
        before = bracket.string[bracket.start() - 1 : bracket.start()]
        is_call = not content and (before == "_" or (before.isascii() and before.isalnum()))
        is_about_a_mark = len(content) == 1 and not content.isspace()
        return None if is_ascii and (is_call or is_about_a_mark) else ""
    if _EMPTY_LABELS.fullmatch(content):
        return ""
    leading = _LEADING_SEPARATORS.match(content)
    inner = content[leading.end() :] if leading else content
    trimmed = inner.rstrip(_SEPARATORS)
    inner = trimmed if _TRAILING_SEPARATORS.search(inner, len(trimmed)) else inner
    return f"{opening}{inner}{closing}" if inner != content else None


class WikipediaFilter(Filter):
    """Filter that removes markup from pages, and drops pages with little running text."""

    def __init__(self, recipe: WikipediaFilterRecipe) -> None:
        self._minimum = recipe.min_running_lines

    def measure(self, candidate: Candidate) -> list[Measurement]:
        """Remove markup from a page, and count its lines of running text."""
        lines, removals = _remove_markup(candidate.text.decode("utf-8"))
        if removals.total():
            candidate.text = "\n".join(lines).encode("utf-8")
        for name in ("tags", "templates", "emptied_brackets"):
            candidate.record_changes(f"removed/{name}", removals[name])
        if self._minimum is None:
            return []
        running = _count_running_lines(lines, candidate.meta.get("title"), self._minimum)
        is_failed = running < self._minimum
        return [Measurement("running_lines", running, self._minimum, is_failed, is_lower_bound=not is_failed)]


def _remove_markup(text: str) -> tuple[list[str], Counter[str]]:
    """Remove markup from a page; return its lines and the number of removals by kind.

    Changed lines that no longer have a word are omitted.
    """
    marked, removals = replace_markup(text)
    kept: list[str] = []
    for line in marked.split("\n"):
        repaired, repairs = remove_emptied_brackets(line.replace(_PLACEHOLDER, ""))
        removals["emptied_brackets"] += repairs
        if repaired == line or _NO_WORD.fullmatch(repaired) is None:
            kept.append(repaired)
    return kept, removals


def _count_running_lines(lines: Sequence[str], title: object, max_lines: int) -> int:
    """Count the lines that contain a sentence end or are long; stop at `max_lines`.

    A first line that repeats the title, and lines with fewer than `_MIN_LINE_BYTES` bytes, do not count.
    """
    running = 0
    for number, line in enumerate(lines):
        size = len(line.encode("utf-8"))
        if size < _MIN_LINE_BYTES or (number == 0 and isinstance(title, str) and line == " ".join(title.split())):
            continue
        running += size >= _LONG_LINE_BYTES or _SENTENCE_END.search(line) is not None
        if running >= max_lines:
            break
    return running
