"""Filter sections of a recipe: optional keys, and errors that name the key."""

import pydantic
import pytest

from pipeline_assets.corpus.filters.recipe import FilterRecipe
from pipeline_assets.spine.manifest import canonical_sha256


def test_filters_are_off_by_default_and_thresholds_are_optional() -> None:
    nothing = FilterRecipe.model_validate({})
    some = FilterRecipe.model_validate({"length": {"min_words": 50}, "repetition": {"max_top_2_gram": "0.2"}})

    assert not any(nothing.content().values())
    assert some.length is not None and some.length.max_words is None
    assert some.content() != nothing.content()


def test_later_sections_are_omitted_from_the_content_unless_set() -> None:
    """Otherwise artifacts of earlier programs would be stale."""
    nothing = FilterRecipe.model_validate({})
    both = FilterRecipe.model_validate({"windows": {}, "language": {"keep": ["de", "en"]}})

    assert canonical_sha256(nothing.content()) == "454e6a35ee8f640f68d1ea143350d74351600a3dbe04b5b9faf93c3aa7531cea"
    assert nothing.content().keys() == FilterRecipe.model_fields.keys() - FilterRecipe.OMITTABLE_KEYS
    assert both.content()["windows"] == {"window_bytes": 256, "every": 64, "max_share": "0.5"}
    assert both.content()["language"] == {"detector": "py3langid", "keep": ["de", "en"], "threshold": None}
    assert [FilterRecipe.from_content(recipe.content()) for recipe in (nothing, both)] == [nothing, both]


def test_an_empty_fineweb_section_has_the_published_thresholds() -> None:
    recipe = FilterRecipe.model_validate({"fineweb_quality": {}})

    assert recipe.content()["fineweb_quality"] == {
        "terminal_punctuation": ".!?\"'",
        "min_terminal_lines": "0.12",
        "max_short_lines": "0.67",
        "short_line_characters": 30,
        "max_copied_characters": "0.1",
    }
    assert FilterRecipe.from_content(recipe.content()) == recipe


def test_a_limit_may_be_zero_and_a_minimum_may_equal_its_maximum() -> None:
    assert FilterRecipe.model_validate({"length": {"max_words": 0}}).length is not None
    assert FilterRecipe.model_validate({"length": {"min_words": 9, "max_words": 9}}).length is not None


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"lenght": {}}, "Extra inputs are not permitted"),
        ({"length": {"min_words": -1}}, "greater than or equal to 0"),
        ({"c4": {"remove_lines": True, "max_word_characters": 0}}, "greater than or equal to 1"),
        ({"characters": {"min_ascii_ratio": "80%"}}, "must be a decimal number"),
        ({"rules": ["score = 3"]}, "is not a rule"),
        ({"gopher_quality": {"min_stop_words": 2}}, "min_stop_words must be <= 0, the number of stop_words, got 2"),
        (
            {"boilerplate": {"phrases": [" home"], "max_line_fraction": "0.3"}},
            "a phrase must not be empty, begin or end with a blank",
        ),
        ({"boilerplate": {"phrases": [""], "max_line_fraction": "0.3"}}, "a phrase must not be empty"),
        ({"boilerplate": {"phrases": ["a\nb"], "max_line_fraction": "0.3"}}, "or contain a line feed"),
        ({"boilerplate": {"phrases": ["home"]}}, "Field required"),
        ({"length": {"min_words": 10, "max_words": 9}}, "min_words must be <= max_words 9, got 10"),
        (
            {"gopher_quality": {"min_mean_word_length": 4.5, "max_mean_word_length": 3}},
            "min_mean_word_length must be <= max_mean_word_length 3, got 4.5",
        ),
        ({"repetition": {"max_duplicate_lines": 30}}, r"must be in \[0, 1\]"),
        ({"repetition": {"max_duplicate_5_grams": 1.5}}, r"must be in \[0, 1\]"),
        ({"length": {}}, "has no effect; set a key such as `min_characters`, or remove the section"),
        ({"length": {"min_words": None}}, "has no effect; set a key such as `min_characters`"),
        ({"characters": {}}, "has no effect; set a key such as `min_ascii_ratio`"),
        ({"gopher_quality": {"stop_words": ["the"]}}, "has no effect; set a key such as `min_mean_word_length`"),
        ({"gopher_quality": {"stop_words": ["the", "The"], "min_stop_words": 2}}, "stop_words repeats the"),
        ({"repetition": {}}, "has no effect; set a key such as `max_duplicate_lines`"),
        ({"blocklist": {"url_column": "link", "domains": {}}}, "has no effect; set a key such as `domains`"),
        ({"fineweb_quality": {"short_line_characters": 20}}, "has no effect; set a key such as `min_terminal_lines`"),
        ({"boilerplate": {"phrases": [], "max_line_fraction": 0.3}}, "has no effect; set a key such as `phrases`"),
        ({"masking": {"emails": False, "public_ips": False}}, "has no effect; set a key such as `emails`"),
        (
            {"c4": {"remove_lines": False, "terminal_punctuation": ".", "min_words_per_line": 5}},
            "has no effect; set a key such as `remove_lines`",
        ),
        ({"c4": {"min_sentences": 3}}, "Field required"),  # remove_lines is a choice
        ({"c4": {"remove_lines": True, "min_sentences": 3}}, "min_sentences requires terminal_punctuation"),
        ({"c4": {"remove_lines": True, "terminal_punctuation": ""}}, "at least 1 character"),
        ({"masking": {"emails": True}}, "Field required"),
        ({"windows": {"window_bytes": 0}}, "greater than or equal to 1"),
        ({"windows": {"every": 0}}, "greater than or equal to 1"),
        ({"windows": {"max_share": True}}, "must be a decimal number"),
        ({"windows": {"max_share": "1.1"}}, "must be in \\[0, 1\\]"),
        ({"windows": {"max_share": "0.3333333333"}}, "write at most nine decimals"),
        ({"language": {"keep": []}}, "at least 1 item"),
        ({"fineweb_quality": {"min_terminal_lines": "0.12"}}, "min_terminal_lines requires terminal_punctuation"),
        ({"fineweb_quality": {"max_short_lines": 67}}, r"must be in \[0, 1\]"),
        ({"characters": {"min_ascii_ratio": 80}}, r"must be in \[0, 1\]"),
        ({"blocklist": {"domains": {"a/b": {}}}}, "the name of a list must contain only letters, digits"),
        ({"blocklist": {"domains": {"a": {"path": "x", "sha256": "12"}}}}, "must be a sha256 of 64 hex digits"),
        ({"score": {"model": {}, "label": "x", "column": "not a name"}}, "must contain only letters, digits and"),
    ],
)
def test_invalid_sections_are_refused(sections: dict[str, object], message: str) -> None:
    with pytest.raises(pydantic.ValidationError, match=message):
        FilterRecipe.model_validate(sections)
