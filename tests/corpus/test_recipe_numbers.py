"""Numbers and lists of recipes, which may be written as YAML suggests them.

Fractions and weights are numbers without quotes, weights may be ratios, and file patterns may stand one a line. Each
form means the same text inside, so that it has one digest.
"""

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_assets.corpus.decontamination.recipe import DecontaminationSection
from pipeline_assets.corpus.normalize.sources import LocalSource
from pipeline_assets.corpus.weights import to_shares
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.spine.key_types import Decimal
from pipeline_assets.spine.recipe_yaml import parse_yaml
from pipeline_assets.spine.section import RecipeSection
from pipeline_assets.systems.stage_a import StageARecipe


class Ratio(RecipeSection):
    """Section with one fraction."""

    ratio: Decimal


def parse_ratio(written: str) -> str:
    values: Any = parse_yaml(f"ratio: {written}")
    return Ratio.from_mapping(values, "recipe.yaml").ratio


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("0.3", "0.3"),
        ('"0.3"', "0.3"),
        (".30", "0.3"),
        ("0.30", "0.3"),
        ('"0.30"', "0.30"),  # as in digests of earlier recipes
        ("1", "1"),
        ("1.0", "1"),
        ("0.1", "0.1"),
        ("1.0e-7", "0.0000001"),
        ("0.1234567890123456789", "0.1234567890123456789"),  # no float has these digits
        ("0.1000000000000000055", "0.1000000000000000055"),
        ("1_000.5", "1000.5"),
        ("010", "010"),  # not 8
    ],
)
def test_a_fraction_is_its_exact_decimal_text_with_or_without_quotes(written: str, read: str) -> None:
    assert parse_ratio(written) == read


BASE_8_OR_60 = ["010", "-07", "0_1", "1:30", "-1:30", "12:30:45", "1:30.5"]
NO_DATES = ["2026-13-01", "2026-02-30", "2026-11-01 25:00:00"]
INTEGERS = [("0", 0), ("-7", -7), ("0x1f", 31), ("0b11", 3), ("1_000", 1000)]


@pytest.mark.parametrize(("written", "read"), [*((text, text) for text in BASE_8_OR_60 + NO_DATES), *INTEGERS])
def test_numbers_to_base_8_or_60_and_impossible_dates_are_texts_and_other_integers_numbers(
    written: str, read: object
) -> None:
    assert parse_yaml(f"revision: {written}") == {"revision": read}


@pytest.mark.parametrize("written", ["-0.3", "1.0e+400", ".inf", ".nan", "1.0e-999999999", "true", "30 %", "''", "1e3"])
def test_a_value_other_than_a_decimal_is_refused(written: str) -> None:
    with pytest.raises(UsageError, match=r"must be a decimal number, such as 0\.3, got .*; correct the value"):
        parse_ratio(written)


@given(st.decimals(0, 1000, allow_nan=False, allow_infinity=False, places=12))
def test_a_number_and_its_text_are_one_value(number: Any) -> None:
    assert Fraction(parse_ratio(f"{number:f}")) == Fraction(parse_ratio(f'"{number:f}"'))


def packed_weights(tmp_path: Path, weights: str, names: tuple[str, ...] = ("web", "wiki", "notes")) -> Any:
    sources = [{"kind": "normalized", "source": name} for name in names]  # a source of any kind; nothing is read
    values = {"system": "stage_a", "name": "mix", "sources": sources, "pack": {"weights": parse_yaml(weights)}}
    pack = StageARecipe.from_file_values(values, tmp_path / "mix.yaml").pack
    assert pack is not None
    return pack.content()["weights"]


@pytest.mark.parametrize(
    ("weights", "names", "shares"),
    [
        ("{web: 7, wiki: 3}", ("web", "wiki"), {"web": "0.7", "wiki": "0.3"}),
        ("{web: '7', wiki: 3.0}", ("web", "wiki"), {"web": "0.7", "wiki": "0.3"}),
        ("{web: 0.7, wiki: 0.3}", ("web", "wiki"), {"web": "0.7", "wiki": "0.3"}),
        ("{web: '0.70', wiki: '0.3'}", ("web", "wiki"), {"web": "0.70", "wiki": "0.3"}),
        ("{web: 1, wiki: 1, notes: 1}", ("web", "wiki", "notes"), {"web": "1/3", "wiki": "1/3", "notes": "1/3"}),
        ("{web: 1.5, wiki: 0.5}", ("web", "wiki"), {"web": "0.75", "wiki": "0.25"}),
        ("{web: 0.7}", ("web", "wiki"), {"web": "0.7", "wiki": "0.3"}),
        ("{web: 0.1, wiki: 0.2}", ("web", "wiki", "notes"), {"web": "0.1", "wiki": "0.2", "notes": "0.7"}),
        ("{web: 3}", ("web",), {"web": "1"}),
        ("{web: 0.00001}", ("web", "wiki"), {"web": "0.00001", "wiki": "0.99999"}),
    ],
)
def test_weights_are_shares_or_ratios_and_one_missing_share_is_the_rest(
    weights: str, names: tuple[str, ...], shares: dict[str, str], tmp_path: Path
) -> None:
    assert packed_weights(tmp_path, weights, names) == shares


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ("{web: 7, wiki: 3}", "source notes has no weight"),
        ("{web: 0.5}", "weights must sum to 1, got 0.5"),
        ("{web: 0.7, wiki: 0.3}", "source notes has no weight"),
        ("{web: 0.5, wiki: 0.2, notes: 0.2}", "weights must sum to 1, got 0.9"),
        ("{web: 1/0, wiki: 0.5}", "weight of web must be a number above 0, such as 0.25, got '1/0'"),
        (f"{{web: '{'9' * 5000}', wiki: 1}}", "weight of web must be a number above 0"),
    ],
)
def test_ambiguous_weights_are_refused(weights: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as refused:
        packed_weights(tmp_path, weights)

    assert any(message in error.what for error in (refused.value, *refused.value.others))


@given(st.dictionaries(st.text(max_size=3), st.integers(1, 10**6), min_size=1))
def test_shares_of_ratios_are_exact_and_stable(ratios: dict[str, int]) -> None:
    shares = to_shares({name: str(ratio) for name, ratio in ratios.items()})

    total = sum(ratios.values())
    assert {name: Fraction(share) for name, share in shares.items()} == {
        n: Fraction(r, total) for n, r in ratios.items()
    }
    assert to_shares(shares) == shares


def test_patterns_may_be_written_one_per_line() -> None:
    values: Any = parse_yaml("kind: local\nsource: notes\npath: notes\nfiles: |\n  **/*.md\n\n  letters/*.txt  \n")

    source = LocalSource.from_mapping(values, "recipe.yaml")

    assert source.files == ("**/*.md", "letters/*.txt")
    with pytest.raises(UsageError, match="at least 1 item"):
        LocalSource.from_mapping(values | {"files": "\n"}, "recipe.yaml")


@pytest.mark.parametrize(("keys", "min_words"), [({}, 8), ({"ngram_words": 5}, 5), ({"min_item_words": 2}, 2)])
def test_a_decontamination_section_needs_only_evaluation_sets(keys: dict[str, int], min_words: int) -> None:
    quiz = {"name": "quiz", "path": "quiz", "files": ["*.jsonl"], "columns": {"text": ["question"]}}

    section = DecontaminationSection.from_mapping({"evaluation": [quiz], **keys}, "recipe.yaml")

    assert section.min_item_words == min_words
    assert section.output_content()["decontamination"]["min_item_words"] == min_words
