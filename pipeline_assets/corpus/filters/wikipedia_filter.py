"""The filter for pages of Wikipedia: markup that an extraction left is taken out, and pages of nothing else go."""

import re
from collections import Counter
from collections.abc import Sequence

from pipeline_assets.corpus.filters.recipe import WikipediaFilterRecipe
from pipeline_assets.corpus.filters.verdict import Candidate, Measurement
from pipeline_assets.corpus.filters.wikipedia_markup import RULES

RUNNING_LINES = "running_lines"
_SENTENCE_END = re.compile(r"[.!?][\"”’')\]»]{0,4}+(?:\s|\Z)|[。！？…؟۔।॥။։።།]")
_LEAST_BYTES = 24  # five words of English, eight characters of Chinese: more than most headings, which end in a period
_ENOUGH_BYTES = 120  # Thai, for one, has no mark that ends a sentence
_NO_WORD = re.compile(r"[\W_]*+")


class WikipediaFilter:
    """What `WikipediaFilterRecipe` asks of pages."""

    def __init__(self, recipe: WikipediaFilterRecipe) -> None:
        actions = {name: getattr(recipe, name) for name in RULES}
        self._rules = [(name, RULES[name], action == "repair") for name, action in actions.items() if action != "keep"]
        self._fatal = [name for name, action in actions.items() if action == "drop"]
        self._least = recipe.min_running_lines

    def apply(self, candidates: Sequence[Candidate]) -> None:
        """Fails pages, and takes from all what the recipe repairs."""
        for candidate in candidates:
            for measurement in self.measure(candidate):
                if measurement.is_failed:
                    candidate.fail(measurement)
                    break

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
