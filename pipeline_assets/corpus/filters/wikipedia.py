"""What wikiextractor leaves of a page's markup: brackets whose template is gone, tags, tables, links, placeholders.

Facts that shape the rules (six real extractions in three languages, versions 2.66 to 3.1.0):

- Templates leave without a word. What stood around them stays: `Algeria ( ; , ; ), officially`, `糜文開（）`,
  `（，代號J17）`, `（學名：）`, `電影《》`. A mark alone in ASCII parentheses, `the comma (,)`, is text, and so
  are `main()`, `(...)` and `(1,)`.
- Formulas and code are numbered: `where formula_8 is the albedo`, `values of codice_1`.
- Tags without their end, tables that weren't closed, and links of categories come through as they were written.
- Chinese pages choose between scripts: `-{zh-hans:维托里奥;zh-tw:狄西嘉}-`. The first choice is kept.

A rule takes a line and gives it without what it looks for, and how often that was there. No pattern looks further than
a bounded number of characters, and brackets inside one another are followed three deep: time is linear.

The filter for pages of Wikipedia: markup that an extraction left is taken out, and pages of nothing else go.
"""

import functools
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from pipeline_assets.corpus.filters.recipe import WikipediaFilterRecipe
from pipeline_assets.corpus.filters.verdict import Candidate, Filter, Measurement

Rule = Callable[[str], tuple[str, int]]

_DEPTH = 3
_BLANKS = " \t\u00a0\u3000"
_BETWEEN = _BLANKS + ",;，；、/"
_FILLERS = _BETWEEN + ":：~～–—-'\"“”‘’"
_LETTER = r"A-Za-z\u00c0-\u024f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_TAGS = (
    "abbr|big|blockquote|br|center|cite|code|dd|del|div|dl|dt|em|font|gallery|h[1-6]|hiero|hr|imagemap|includeonly|ins|"
    "kbd|li|mapframe|math|noinclude|nowiki|ol|onlyinclude|p|poem|pre|ref|references|ruby|rb|rp|rt|s|score|section|small|"
    "source|span|strike|strong|sub|sup|syntaxhighlight|table|tbody|td|templatestyles|th|thead|timeline|tr|tt|u|ul|var"
)
_NAMESPACES = (
    "Category|File|Image|Media|分类|分類|文件|檔案|Thể loại|Tập tin|Catégorie|Fichier|Kategorie|Datei|Категория|Файл"
)

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
_FOOTNOTE = re.compile(r"<ref\b[^<>]{0,500}+(?:(?<=/)>|>[^<>]{0,1000}+</ref\s{0,8}+>)", re.IGNORECASE)
_BREAK = re.compile(r"<br\b[^<>]{0,100}+>", re.IGNORECASE)
_TAG = re.compile(rf"</?(?:{_TAGS})(?:\s[^<>]{{0,500}}+|/)?>", re.IGNORECASE)
_TEMPLATE = re.compile(r"\{\{[^{}]{0,2000}+\}\}|__[A-Z]{3,24}+__")
_TEMPLATE_MARK = re.compile(r"\{\{|\}\}")
_TABLE = re.compile(
    r"\s{0,8}+(?:\{\||\|\}|\|-|\|\s{0,8}+[\w -]{1,40}+=|[!|].{0,400}?(?:\|\||!!"
    r"|\b(?:style|align|valign|colspan|rowspan|width|class|bgcolor|scope)\s{0,4}+=))"
)
_CHOICES = re.compile(r"-\{([^{}]{0,300}+)\}-")
_CHOICE = re.compile(r"\s{0,8}+zh(?:-[a-z]{2,4}){0,2}\s{0,8}+:([^;]*)")
_HIDDEN = re.compile(r"[A-Z]*[HT]")  # flags of a choice that the page doesn't show
_HIDDEN_LINK = re.compile(rf"\[\[(?:{_NAMESPACES})\s{{0,8}}+:[^\[\]]{{0,500}}+\]\]", re.IGNORECASE)
_LINK = re.compile(r"\[\[(?:[^\[\]|]{0,300}+\|)?([^\[\]|]{0,300}+)\]\]")
_PLACEHOLDER = re.compile(r"(?<![A-Za-z0-9_])(?:formula|codice)_[0-9]{1,6}+(?![A-Za-z0-9_])")


def without_tables(line: str) -> tuple[str, int]:
    """Nothing of a line that is one of a table, or of a template's parameters."""
    return ("", 1) if _TABLE.match(line) else (line, 0)


def without_tags(line: str) -> tuple[str, int]:
    """The line without footnotes and tags; a break becomes a line feed."""
    if "<" not in line:
        return line, 0
    line, footnotes = _FOOTNOTE.subn("", line)
    line, breaks = _BREAK.subn("\n", line)
    line, tags = _TAG.subn("", line)
    return (line.strip("\n") if breaks else line), footnotes + breaks + tags


def without_templates(line: str) -> tuple[str, int]:
    """The line without `{{…}}`, `__NOTOC__`, and braces that were left alone."""
    if "{{" not in line and "}}" not in line and "__" not in line:
        return line, 0
    line, times = _deep(functools.partial(_TEMPLATE.subn, ""), line)
    line, marks = _TEMPLATE_MARK.subn("", line)
    return line, times + marks


def with_first_choices(line: str) -> tuple[str, int]:
    """The line with the first choice of each `-{…}-`; nothing of one that the page doesn't show."""
    return _CHOICES.subn(_first_choice, line) if "-{" in line else (line, 0)


def without_links(line: str) -> tuple[str, int]:
    """The line with the words of each `[[…]]` alone; nothing of categories and files, nor of brackets left open."""
    if "[[" not in line:
        return line, 0
    line, hidden = _HIDDEN_LINK.subn("", line)
    line, links = _LINK.subn(r"\1", line)
    return line.replace("[[", ""), hidden + links + line.count("[[")


def without_placeholders(line: str) -> tuple[str, int]:
    """The line without `formula_1` and `codice_1`, and without the blanks before them."""
    return _replaced(_PLACEHOLDER, lambda _: "", line) if "formula_" in line or "codice_" in line else (line, 0)


def without_emptied_brackets(line: str) -> tuple[str, int]:
    """The line without brackets that hold no word, and without separators at the ends of those that do."""
    return _deep(functools.partial(_replaced, _BRACKET, _left_of_bracket), line)


RULES: Final[Mapping[str, Rule]] = {
    "tables": without_tables,
    "tags": without_tags,
    "templates": without_templates,
    "choices": with_first_choices,
    "links": without_links,
    "placeholders": without_placeholders,
    "emptied_brackets": without_emptied_brackets,  # the last: what the others take away empties some
}


def _deep(rule: Rule, line: str) -> tuple[str, int]:
    """A rule over what is left of itself, as deep as brackets are followed."""
    times = 0
    for _ in range(_DEPTH):
        line, more = rule(line)
        if not more:
            break
        times += more
    return line, times


def _replaced(pattern: re.Pattern[str], left_of: Callable[[re.Match[str]], str | None], line: str) -> tuple[str, int]:
    """The line with what is left of each match; None: it is as it was. Of a match of which nothing is left, the blanks
    before it go too; one stays where words would touch.
    """
    parts: list[str] = []
    times = end = 0
    for match in pattern.finditer(line):
        left = left_of(match)
        if left is None:
            continue
        before = line[end : match.start()]
        end, times = match.end(), times + 1
        if left:
            parts += (before, left)
            continue
        stripped = before.rstrip(_BLANKS)
        is_parted = len(stripped) < len(before) and line[end : end + 1].isalnum()
        parts.append(stripped + " " * is_parted)
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


def _first_choice(choices: re.Match[str]) -> str:
    flags, bar, words = choices[1].rpartition("|")
    if bar and _HIDDEN.match(flags):
        return ""
    choice = _CHOICE.match(words)
    return choice[1] if choice is not None else words


RUNNING_LINES = "running_lines"
_SENTENCE_END = re.compile(r"[.!?][\"”’')\]»]{0,4}+(?:\s|\Z)|[。！？…؟۔।॥။։።།]")
_LEAST_BYTES = 24  # five words of English, eight characters of Chinese: more than most headings, which end in a period
_ENOUGH_BYTES = 120  # Thai, for one, has no mark that ends a sentence
_NO_WORD = re.compile(r"[\W_]*+")


class WikipediaFilter(Filter):
    """What `WikipediaFilterRecipe` asks of pages."""

    def __init__(self, recipe: WikipediaFilterRecipe) -> None:
        actions = {name: getattr(recipe, name) for name in RULES}
        self._rules = [(name, RULES[name], action == "repair") for name, action in actions.items() if action != "keep"]
        self._fatal = [name for name, action in actions.items() if action == "drop"]
        self._least = recipe.min_running_lines

    def measure(self, candidate: Candidate) -> list[Measurement]:
        """What each rule that drops sees in a page, from which it takes what the recipe repairs."""
        lines, found = self._repaired(candidate.text.decode("utf-8"))
        if found:
            candidate.text = "\n".join(lines).encode("utf-8")
        for name, _, repairs in self._rules:
            if repairs:
                candidate.count(f"removed/{name}", found[name])
        seen = [Measurement(name, found[name], 0, found[name] > 0) for name in self._fatal]
        if self._least is not None:
            running = _running_lines(lines, candidate.meta.get("title"), self._least)
            seen.append(Measurement(RUNNING_LINES, running, self._least, running < self._least, running >= self._least))
        return seen

    def _repaired(self, text: str) -> tuple[list[str], Counter[str]]:
        """The lines that are left, and how often each rule found something."""
        left: list[str] = []
        found: Counter[str] = Counter()
        for line in text.split("\n"):
            repaired = line
            for name, rule, repairs in self._rules:
                without, times = rule(repaired)
                if times:
                    found[name] += times
                    repaired = without if repairs else repaired
            if repaired is line or _NO_WORD.fullmatch(repaired) is None:
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
