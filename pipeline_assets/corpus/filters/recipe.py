"""What a source's documents must be like: every threshold is optional, since none suits every language and source.

An English ratio of ASCII characters would empty a Japanese source, and so would any count of words that blanks part.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Self

import pydantic

from pipeline_assets.corpus.filters.column_rules import Rules
from pipeline_assets.corpus.filters.language import LanguageRecipe
from pipeline_assets.spine.section import Decimal, RecipeSection, Share, text_rule

_SHARE_CHARACTERS = 11  # 64 bits hold the product of its denominator and any number of windows
_PHRASE_RULE = "a phrase has something in it, no blank at its ends, and no line feed"
Natural = Annotated[int, pydantic.Field(ge=0)]
Phrase = Annotated[str, text_rule(re.compile(r"\S(.*\S)?").fullmatch, _PHRASE_RULE)]
Phrases = Annotated[tuple[Phrase, ...], pydantic.Field(strict=False)]


class WindowRecipe(RecipeSection):
    """Which documents repeat what earlier ones of their source say: see `dedup.repeated_windows`.

    Attributes:
        window_bytes: of UTF-8; a shorter passage is not found.
        every: of the windows about one in so many is compared. A passage that is shared is found by its windows that
            are: one of `window_bytes + every` bytes more often than not, one twice as long as both nearly always.
        max_share: of a document's windows that are compared, how many earlier documents may have.
    """

    window_bytes: int = pydantic.Field(256, ge=1, le=1 << 20)
    every: int = pydantic.Field(64, ge=1, le=1 << 32)
    max_share: Annotated[
        Share, text_rule(lambda share: len(share) <= _SHARE_CHARACTERS, "write at most nine decimals")
    ] = "0.5"


class LengthRecipe(RecipeSection):
    """Bounds of a document's length; Gopher's are 50 and 100,000 words."""

    min_characters: Natural | None = None
    max_characters: Natural | None = None
    min_words: Natural | None = None
    max_words: Natural | None = None


class CharactersRecipe(RecipeSection):
    """Bounds on kinds of characters.

    Attributes:
        min_ascii_ratio: of all characters, those that are ASCII.
        max_symbol_ratio: of characters that aren't whitespace, those of Unicode's categories P and S.
    """

    min_ascii_ratio: Decimal | None = None
    max_symbol_ratio: Decimal | None = None


class GopherQualityRecipe(RecipeSection):
    """Rae et al. 2021 (Gopher, arXiv 2112.11446), section A.1.1; the number of words is in `length`.

    Attributes:
        max_hash_ratio: hash symbols to words.
        max_ellipsis_ratio: ellipses, `...` or `…`, to words.
        max_bullet_lines: of the lines, those that begin with a bullet point.
        max_ellipsis_lines: of the lines, those that end with an ellipsis.
        min_alphabetic_words: of the words, those with a letter.
        min_stop_words: how many of `stop_words` occur, as whole words in either case.
    """

    min_mean_word_length: Decimal | None = None
    max_mean_word_length: Decimal | None = None
    max_hash_ratio: Decimal | None = None
    max_ellipsis_ratio: Decimal | None = None
    max_bullet_lines: Decimal | None = None
    max_ellipsis_lines: Decimal | None = None
    min_alphabetic_words: Decimal | None = None
    min_stop_words: Natural | None = None
    stop_words: Phrases = ()

    @pydantic.model_validator(mode="after")
    def _has_words_to_count(self) -> Self:
        if (self.min_stop_words or 0) > len(self.stop_words):
            raise ValueError(f"min_stop_words is {self.min_stop_words}, and stop_words has {len(self.stop_words)}")
        return self


class RepetitionRecipe(RecipeSection):
    """Rae et al. 2021, table A1: of the lines, paragraphs or characters, the fraction that may be repetition."""

    max_duplicate_lines: Decimal | None = None
    max_duplicate_line_characters: Decimal | None = None
    max_duplicate_paragraphs: Decimal | None = None
    max_duplicate_paragraph_characters: Decimal | None = None
    max_top_2_gram: Decimal | None = None
    max_top_3_gram: Decimal | None = None
    max_top_4_gram: Decimal | None = None
    max_duplicate_5_grams: Decimal | None = None
    max_duplicate_6_grams: Decimal | None = None
    max_duplicate_7_grams: Decimal | None = None
    max_duplicate_8_grams: Decimal | None = None
    max_duplicate_9_grams: Decimal | None = None
    max_duplicate_10_grams: Decimal | None = None


class BoilerplateRecipe(RecipeSection):
    """Cookie banners, rights notices, navigation: lines that belong to the site and not to the page.

    Attributes:
        phrases: a line with one of these is boilerplate, in either case.
        lines: so is a line that is one of these.
        max_line_fraction: of the lines.
    """

    phrases: Phrases
    lines: Phrases = ()
    max_line_fraction: Decimal


class C4Recipe(RecipeSection):
    """Raffel et al. 2020 (T5, JMLR 21:140), section 2.2: what a line and a page must be like.

    Attributes:
        remove_lines: whether lines that fail leave the text; else they only don't count as sentences.
        terminal_punctuation: the characters of which a line must end in one; None asks for none.
        min_words_per_line, max_word_characters: of a line that is kept.
        remove_lines_with: phrases for which a line goes, in either case.
        remove_citations: whether markers like [1] and [citation needed] leave the text.
        drop_documents_with: phrases for which a whole document goes, wherever they stand, in either case.
        bad_words: words, or several in a row, for which a whole document goes; as whole words, in either case.
        min_sentences: in the lines that are kept.
    """

    remove_lines: bool
    terminal_punctuation: str | None = pydantic.Field(default=None, min_length=1)
    min_words_per_line: Natural | None = None
    max_word_characters: Natural | None = None
    remove_lines_with: Phrases = ()
    remove_citations: bool = False
    drop_documents_with: Phrases = ()
    bad_words: Phrases = ()
    min_sentences: Natural | None = None

    @pydantic.model_validator(mode="after")
    def _can_end_a_sentence(self) -> Self:
        if self.min_sentences is not None and self.terminal_punctuation is None:
            raise ValueError("min_sentences needs terminal_punctuation, which ends them")
        return self


class MaskingRecipe(RecipeSection):
    """Which addresses are replaced by FineWeb's masks."""

    emails: bool
    public_ips: bool


_REMOVED_KEYS = ("emptied_brackets", "tags", "templates", "tables", "choices", "links", "placeholders")


class WikipediaFilterRecipe(RecipeSection):
    """Markup that wikiextractor leaves in pages is taken out: tags, templates, and brackets that templates emptied.

    Attributes:
        min_running_lines: lines that read as sentences, in what is left; redirects, disambiguations and lists of links
            have none. None asks for none.
    """

    min_running_lines: Natural | None = 1

    @pydantic.model_validator(mode="before")
    @classmethod
    def _has_no_removed_key(cls, content: object) -> object:
        removed = [key for key in _REMOVED_KEYS if isinstance(content, Mapping) and key in content]
        if removed:
            keys = ", ".join(f"`{key}`" for key in removed)
            done = "`wikipedia: {}` takes out tags, templates and emptied brackets, and leaves other markup"
            raise ValueError(f"{keys} is no longer a key: {done}")
        return content


class FilterRecipe(RecipeSection):
    """The filters of one source, in the order in which they are asked; None leaves one out.

    What a document is dropped for is measured on its text as it came, or as `wikipedia` repaired it; only `c4` looks at
    what it leaves itself.

    Attributes:
        rules: comparisons that the columns in a document's meta must pass, `score >= 3`; see `Meta.columns`.
    """

    LATER_KEYS = frozenset({"windows", "language"})
    windows: WindowRecipe | None = None
    rules: Rules = ()
    wikipedia: WikipediaFilterRecipe | None = None
    length: LengthRecipe | None = None
    characters: CharactersRecipe | None = None
    gopher_quality: GopherQualityRecipe | None = None
    repetition: RepetitionRecipe | None = None
    boilerplate: BoilerplateRecipe | None = None
    language: LanguageRecipe | None = None
    c4: C4Recipe | None = None
    masking: MaskingRecipe | None = None
