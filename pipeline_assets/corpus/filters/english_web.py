"""Filters for English web pages: thresholds as they were published, and a small list of boilerplate.

Nothing takes them by default: a recipe has its own, and `docs/filters.md` has these as YAML to start from.
"""

from pipeline_assets.corpus.filters.recipe import (
    BoilerplateRecipe,
    C4Recipe,
    CharactersRecipe,
    FilterRecipe,
    GopherQualityRecipe,
    LengthRecipe,
    MaskingRecipe,
    RepetitionRecipe,
)

GOPHER_LENGTH = LengthRecipe(min_words=50, max_words=100_000)
CHARACTERS = CharactersRecipe(min_ascii_ratio="0.8", max_symbol_ratio="0.3")
GOPHER_QUALITY = GopherQualityRecipe(
    min_mean_word_length="3",
    max_mean_word_length="10",
    max_hash_ratio="0.1",
    max_ellipsis_ratio="0.1",
    max_bullet_lines="0.9",
    max_ellipsis_lines="0.3",
    min_alphabetic_words="0.8",
    min_stop_words=2,
    stop_words=("the", "be", "to", "of", "and", "that", "have", "with"),
)
GOPHER_REPETITION = RepetitionRecipe(
    max_duplicate_lines="0.30",
    max_duplicate_line_characters="0.20",
    max_duplicate_paragraphs="0.30",
    max_duplicate_paragraph_characters="0.20",
    max_top_2_gram="0.20",
    max_top_3_gram="0.18",
    max_top_4_gram="0.16",
    max_duplicate_5_grams="0.15",
    max_duplicate_6_grams="0.14",
    max_duplicate_7_grams="0.13",
    max_duplicate_8_grams="0.12",
    max_duplicate_9_grams="0.11",
    max_duplicate_10_grams="0.10",
)
BOILERPLATE = BoilerplateRecipe(
    phrases=(
        "accept all cookies",
        "cookie policy",
        "cookie settings",
        "uses cookies",
        "use cookies",
        "all rights reserved",
        "copyright ©",
        "privacy policy",
        "terms of service",
        "terms of use",
        "skip to content",
        "skip to main content",
        "back to top",
        "share on facebook",
        "share on twitter",
        "subscribe to our newsletter",
        "sign up for our newsletter",
        "leave a comment",
        "powered by wordpress",
        "enable javascript",
    ),
    lines=(
        "home",
        "about us",
        "contact us",
        "log in",
        "sign in",
        "sign up",
        "menu",
        "search",
        "share",
        "next",
        "previous",
    ),
    max_line_fraction="0.3",
)
C4 = C4Recipe(
    remove_lines=True,
    terminal_punctuation='.?!"”',
    min_words_per_line=5,
    remove_lines_with=(
        "javascript",
        "terms of use",
        "privacy policy",
        "cookie policy",
        "uses cookies",
        "use of cookies",
        "use cookies",
    ),
    remove_citations=True,
    drop_documents_with=("lorem ipsum", "{"),
    min_sentences=3,
)
MASKING = MaskingRecipe(emails=True, public_ips=True)
ENGLISH_WEB = FilterRecipe(
    length=GOPHER_LENGTH,
    characters=CHARACTERS,
    gopher_quality=GOPHER_QUALITY,
    repetition=GOPHER_REPETITION,
    boilerplate=BOILERPLATE,
    c4=C4,
    masking=MASKING,
)
