"""Recipe sections of the filters for one source.

No filter runs by default, because no threshold suits all languages and sources: a minimum ratio of ASCII characters
that suits English would empty a Japanese source, and so would a minimum number of words between spaces.
"""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, Self

import pydantic

from pipeline_assets.corpus.filters.column_rules import ColumnRules
from pipeline_assets.corpus.filters.effect_section import EffectSection
from pipeline_assets.corpus.filters.language import LanguageRecipe
from pipeline_assets.corpus.filters.own_step import PythonStep
from pipeline_assets.corpus.filters.pinned_files import FilterFiles, PinnedFile
from pipeline_assets.spine.key_types import Decimal, Share, pattern_rule, text_rule
from pipeline_assets.spine.recipe_validation import reject_duplicates
from pipeline_assets.spine.section import RecipeSection

_MAX_SHARE_CHARACTERS = 11  # nine decimals: 10**9 times any number of windows fits in 64 bits
_PHRASE_RULE = "a phrase must not be empty, begin or end with a blank, or contain a line feed"
_COLUMN_RULE = "must contain only letters, digits and `_`, and not start with a digit"
WITHOUT_URL = "without_url"  # count of kept documents that lists of domains and URLs cannot check
Natural = Annotated[int, pydantic.Field(ge=0)]
Phrase = Annotated[str, pattern_rule(r"\S(.*\S)?", _PHRASE_RULE)]
Phrases = Annotated[tuple[Phrase, ...], pydantic.Field(strict=False)]
_LIST_NAME_RULE = "the name of a list must contain only letters, digits, `_`, `.` and `-`"
ListName = Annotated[str, pattern_rule(r"[A-Za-z0-9_.-]+", _LIST_NAME_RULE)]


class WindowRecipe(RecipeSection):
    """Limit on text that repeats earlier documents, see `dedup.repeated_windows`.

    Attributes:
        window_bytes: Number of UTF-8 bytes in a window. Shorter passages are found only if they are whole documents.
        every: Sampling interval: about one window in `every` is compared. A shared passage of `window_bytes + every`
            bytes is found with a probability of about 63 %.
        max_share: Maximum share of a document's compared windows that earlier kept documents contain.
    """

    window_bytes: int = pydantic.Field(256, ge=1, le=1 << 20)
    every: int = pydantic.Field(64, ge=1, le=1 << 32)
    max_share: Annotated[
        Share, text_rule(lambda share: len(share) <= _MAX_SHARE_CHARACTERS, "write at most nine decimals")
    ] = "0.5"


class LengthRecipe(EffectSection):
    """Limits on a document's length; Gopher's limits are 50 and 100,000 words."""

    min_characters: Natural | None = None
    max_characters: Natural | None = None
    min_words: Natural | None = None
    max_words: Natural | None = None


class CharactersRecipe(EffectSection):
    """Limits on kinds of characters.

    Attributes:
        min_ascii_ratio: Minimum share of ASCII characters in all characters.
        max_symbol_ratio: Maximum share of punctuation and symbols (Unicode P, S) in characters other than whitespace.
    """

    min_ascii_ratio: Share | None = None
    max_symbol_ratio: Share | None = None


class GopherQualityRecipe(EffectSection):
    """Quality rules of Gopher: Rae et al. 2021 (arXiv 2112.11446), section A.1.1.

    The limits on the number of words are in `length`.

    Attributes:
        min_mean_word_length: Minimum mean number of characters per word.
        max_mean_word_length: Maximum mean number of characters per word.
        max_hash_ratio: Maximum ratio of hash symbols to words.
        max_ellipsis_ratio: Maximum ratio of ellipses, `...` or `…`, to words.
        max_bullet_lines: Maximum share of lines that begin with a bullet point.
        max_ellipsis_lines: Maximum share of lines that end with an ellipsis.
        min_alphabetic_words: Minimum share of words with a letter.
        min_stop_words: Minimum number of different `stop_words` that occur as whole words, in upper or lower case.
    """

    MODIFIER_KEYS = frozenset({"stop_words"})
    min_mean_word_length: Decimal | None = None
    max_mean_word_length: Decimal | None = None
    max_hash_ratio: Decimal | None = None
    max_ellipsis_ratio: Decimal | None = None
    max_bullet_lines: Share | None = None
    max_ellipsis_lines: Share | None = None
    min_alphabetic_words: Share | None = None
    min_stop_words: Natural | None = None
    stop_words: Phrases = ()

    @pydantic.model_validator(mode="after")
    def _check_stop_words(self) -> Self:
        # A repeated word would count as two different ones.
        reject_duplicates([word.lower() for word in self.stop_words], "stop_words repeats", "write each word once")
        if (self.min_stop_words or 0) > len(self.stop_words):
            number = len(self.stop_words)
            raise ValueError(f"min_stop_words must be <= {number}, the number of stop_words, got {self.min_stop_words}")
        return self


class RepetitionRecipe(EffectSection):
    """Maximum shares of repetition: Rae et al. 2021 (arXiv 2112.11446), table A1.

    The module `repetition` defines the shares.
    """

    max_duplicate_lines: Share | None = None
    max_duplicate_line_characters: Share | None = None
    max_duplicate_paragraphs: Share | None = None
    max_duplicate_paragraph_characters: Share | None = None
    max_top_2_gram: Decimal | None = None
    max_top_3_gram: Decimal | None = None
    max_top_4_gram: Decimal | None = None
    max_duplicate_5_grams: Share | None = None
    max_duplicate_6_grams: Share | None = None
    max_duplicate_7_grams: Share | None = None
    max_duplicate_8_grams: Share | None = None
    max_duplicate_9_grams: Share | None = None
    max_duplicate_10_grams: Share | None = None


class BoilerplateRecipe(EffectSection):
    """Limit on boilerplate lines: cookie banners, rights notices, navigation.

    Attributes:
        phrases: A line that contains one of these phrases is boilerplate; case is ignored.
        lines: A line that equals one of these texts is boilerplate; case and surrounding whitespace are ignored.
        max_line_fraction: Maximum share of a document's lines that are boilerplate.
    """

    MODIFIER_KEYS = frozenset({"max_line_fraction"})
    phrases: Phrases
    lines: Phrases = ()
    max_line_fraction: Share


class C4Recipe(EffectSection):
    """Rules of C4 for lines and documents.

    Source: Raffel et al. 2020 (T5, JMLR 21:140), section 2.2. The case of phrases and words is ignored.

    Attributes:
        remove_lines: Whether to remove blank lines and lines that violate a rule, and to strip the other lines.
        terminal_punctuation: Characters, such as `.!?`, that may end a line; None accepts every end.
        min_words_per_line: Minimum number of words in a line.
        max_word_characters: Maximum number of characters of a word in a line.
        remove_lines_with: Phrases that a line must not contain.
        remove_citations: Whether to remove markers like [1] and [citation needed] from the text.
        drop_documents_with: Phrases that a document must not contain anywhere.
        bad_words: Words, or sequences of words, that a document must not contain as whole words.
        min_sentences: Minimum number of sentences in the lines that violate no rule.
    """

    MODIFIER_KEYS = frozenset(
        {"terminal_punctuation", "min_words_per_line", "max_word_characters", "remove_lines_with"}
    )
    remove_lines: bool
    terminal_punctuation: str | None = pydantic.Field(default=None, min_length=1)
    min_words_per_line: Natural | None = None
    max_word_characters: int | None = pydantic.Field(default=None, ge=1)
    remove_lines_with: Phrases = ()
    remove_citations: bool = False
    drop_documents_with: Phrases = ()
    bad_words: Phrases = ()
    min_sentences: Natural | None = None

    @pydantic.model_validator(mode="after")
    def _check_sentences(self) -> Self:
        if self.min_sentences is not None and self.terminal_punctuation is None:
            raise ValueError("min_sentences requires terminal_punctuation")
        return self


class BlocklistRecipe(EffectSection):
    """Named lists of domains, URLs and words that drop a document; see `blocklist`.

    Attributes:
        domains: Lists of hosts; an entry also drops documents of its subdomains.
        urls: Lists of whole URLs.
        words: Lists of words and phrases in the text, in upper or lower case.
        url_column: Column with the URL of a document.
    """

    MODIFIER_KEYS = frozenset({"url_column"})
    domains: Mapping[ListName, PinnedFile] = pydantic.Field(default_factory=dict)
    urls: Mapping[ListName, PinnedFile] = pydantic.Field(default_factory=dict)
    words: Mapping[ListName, PinnedFile] = pydantic.Field(default_factory=dict)
    url_column: str = "url"

    def __hash__(self) -> int:
        return hash(self.files())  # mappings cannot be hashed

    def files(self) -> tuple[PinnedFile, ...]:
        return (*self.domains.values(), *self.urls.values(), *self.words.values())


_PUBLISHED_FINEWEB_RULES = {
    "terminal_punctuation": ".!?\"'",
    "min_terminal_lines": "0.12",
    "max_short_lines": "0.67",
    "max_copied_characters": "0.1",
}


class FineWebQualityRecipe(EffectSection):
    """Rules that FineWeb adds: Penedo et al. 2024 (arXiv 2406.17557), section 3.5.

    An empty section sets the thresholds of the paper. A section with keys sets only the thresholds of these keys.

    Attributes:
        terminal_punctuation: Characters of terminal punctuation.
        min_terminal_lines: Minimum share of lines that end with a character of `terminal_punctuation`.
        max_short_lines: Maximum share of lines with at most `short_line_characters`.
        max_copied_characters: Maximum share of characters in lines that are copies of an earlier line.
    """

    MODIFIER_KEYS = frozenset({"terminal_punctuation", "short_line_characters"})
    terminal_punctuation: str | None = pydantic.Field(default=None, min_length=1)
    min_terminal_lines: Share | None = None
    max_short_lines: Share | None = None
    short_line_characters: Natural = 30
    max_copied_characters: Share | None = None

    @pydantic.model_validator(mode="before")
    @classmethod
    def _fill_published(cls, content: object) -> object:
        return content if content != {} else _PUBLISHED_FINEWEB_RULES

    @pydantic.model_validator(mode="after")
    def _check_punctuation(self) -> Self:
        if self.min_terminal_lines is not None and self.terminal_punctuation is None:
            raise ValueError("min_terminal_lines requires terminal_punctuation")
        return self


class ScoreRecipe(RecipeSection):
    """Score by a fastText classifier, added to each document as a column.

    Attributes:
        model: File of the classifier, `.bin`; see `classifier`.
        label: Label whose probability is the score, such as `__label__hq`.
        column: Name of the column.
        min_score: Minimum score; None keeps every document.
    """

    model: PinnedFile
    label: str
    column: Annotated[str, pattern_rule(r"[A-Za-z_]\w*", _COLUMN_RULE)]
    min_score: Share | None = None


class MaskingRecipe(EffectSection):
    """Kinds of addresses to replace with FineWeb's masks."""

    emails: bool
    public_ips: bool


_REMOVED_KEYS = ("emptied_brackets", "tags", "templates", "tables", "choices", "links", "placeholders")


class WikipediaFilterRecipe(RecipeSection):
    """Removal of tags, templates and emptied brackets from output of wikiextractor.

    Attributes:
        min_running_lines: Minimum number of lines of running text after the removal; None for no minimum. Such a line
            is long or has a sentence end. Redirects, disambiguations and lists of links rarely have such lines.
    """

    min_running_lines: Natural | None = 1

    @pydantic.model_validator(mode="before")
    @classmethod
    def _reject_removed_keys(cls, content: object) -> object:
        removed = [key for key in _REMOVED_KEYS if isinstance(content, Mapping) and key in content]
        if removed:
            keys = ", ".join(f"`{key}`" for key in removed)
            effect = "`wikipedia: {}` removes tags, templates and emptied brackets, and keeps other markup"
            raise ValueError(f"{keys} was removed; {effect}")
        return content


class FilterRecipe(RecipeSection):
    """Filters of one source, in the order in which they apply; None omits a filter.

    `wikipedia`, `c4`, `masking` and `python` may change texts, and later filters measure the changed texts. `rules` are
    comparisons, such as `score >= 3`, that a document's columns must pass; for the columns see `Meta.columns`. `python`
    gets only the documents that all other filters keep.
    """

    OMITTABLE_KEYS = frozenset({"windows", "language", "python", "blocklist", "fineweb_quality", "score"})
    windows: WindowRecipe | None = None
    rules: ColumnRules = ()
    blocklist: BlocklistRecipe | None = None
    wikipedia: WikipediaFilterRecipe | None = None
    length: LengthRecipe | None = None
    characters: CharactersRecipe | None = None
    gopher_quality: GopherQualityRecipe | None = None
    repetition: RepetitionRecipe | None = None
    boilerplate: BoilerplateRecipe | None = None
    language: LanguageRecipe | None = None
    c4: C4Recipe | None = None
    fineweb_quality: FineWebQualityRecipe | None = None
    score: ScoreRecipe | None = None
    masking: MaskingRecipe | None = None
    python: PythonStep | None = None

    @pydantic.model_validator(mode="after")
    def _check_pins(self) -> Self:
        hashes: dict[str, str] = {}
        for file in self.pinned_files():
            if file.path and (first := hashes.setdefault(file.path, file.sha256)) != file.sha256:
                pins = f"{first or 'none'} and {file.sha256 or 'none'}"
                raise ValueError(f"{file.path} has two different pins, {pins}, but a file has one sha256")
        return self

    def pinned_files(self) -> list[PinnedFile]:
        """Return the files that the filters read."""
        return [*(self.blocklist.files() if self.blocklist else ()), *([self.score.model] if self.score else ())]

    @property
    def reads_meta(self) -> bool:
        """True if a filter other than `python` reads columns of a document's meta."""
        return bool(self.rules or self.wikipedia or self.blocklist or self.score)


def resolve_filters(content: Mapping[str, Any], files: FilterFiles | None, root: Path) -> FilterRecipe:
    """Parse the recipe content of filters; set the absolute paths of pinned files.

    Raise InputError if a file cannot be read or differs from its pin.
    """
    return FilterRecipe.from_content(content if files is None else files.check_and_resolve(content, root))


def keeps_all_documents(recipe: FilterRecipe, refused_licences: Collection[str]) -> bool:
    """Check whether no licence is refused and the recipe has no filter."""
    return recipe == FilterRecipe() and not refused_licences
