"""Filter by the quality rules that FineWeb adds to those of C4 and Gopher.

Source: Penedo et al. 2024 (FineWeb, arXiv 2406.17557), section 3.5. The measures equal those of datatrove's
FineWebQualityFilter. Lines without text are ignored. A line is short if it has at most `short_line_characters`. The
share of repeated lines counts characters, without line feeds. CRLF counts as one line feed.
"""

from collections.abc import Iterator

from pipeline_assets.corpus.filters.filter import Candidate, Filter, Measurement
from pipeline_assets.corpus.filters.recipe import FineWebQualityRecipe


class FineWebFilter(Filter):
    """Filter by the ends and lengths of lines, and by the share of repeated lines."""

    def __init__(self, recipe: FineWebQualityRecipe) -> None:
        self._recipe = recipe
        self._terminal = frozenset(recipe.terminal_punctuation or "")

    def measure(self, candidate: Candidate) -> Iterator[Measurement]:
        """Measure the shares that the recipe limits, such as the share of short lines."""
        recipe, text = self._recipe, candidate.text.decode().replace("\r\n", "\n")
        lines = [line for line in text.split("\n") if line and not line.isspace()]
        line_count = len(lines) or 1
        if recipe.min_terminal_lines is not None:
            terminal = sum(line[-1] in self._terminal for line in lines)
            share, limit = terminal / line_count, float(recipe.min_terminal_lines)
            yield Measurement("terminal_lines", share, limit, share < limit)
        if recipe.max_short_lines is not None:
            short, limit = recipe.short_line_characters, float(recipe.max_short_lines)
            share = sum(len(line) <= short for line in lines) / line_count
            yield Measurement("short_lines", share, limit, share > limit)
        if recipe.max_copied_characters is not None:
            copied, limit = sum(map(len, lines)) - sum(map(len, set(lines))), float(recipe.max_copied_characters)
            share = copied / (len(text) - text.count("\n") or 1)
            yield Measurement("copied_characters", share, limit, share > limit)
