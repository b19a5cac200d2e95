"""Samples: their notation, their seeded draw and their size limit."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refusal

from pipeline_assets.spine.errors import UsageError
from pipeline_assets.trust.result import FileSample

SIZES = st.dictionaries(st.text(max_size=5), st.integers(0, 1000), max_size=30)
SHARES = st.fractions(min_value=Fraction(1, 1000), max_value=1)


@pytest.mark.parametrize(
    ("text", "share"),
    [
        ("5%", Fraction(1, 20)),
        ("0.05", Fraction(1, 20)),
        ("5 %", Fraction(1, 20)),
        (" 0.05 ", Fraction(1, 20)),
        ("0.1%", Fraction(1, 1000)),
        ("100%", Fraction(1)),
    ],
)
def test_percent_and_fraction_are_read_exactly(text: str, share: Fraction) -> None:
    assert FileSample.parse(text) == FileSample(share, "0")


@pytest.mark.parametrize(
    "text",
    [
        *("", "%", "abc", "0", "0%", "0.0", "-5%", "101%", "5%%", "1e-3", "0,05", "nan", "inf", "5 percent", "٥%"),
        *("5", "1", "100", "1.0"),  # percent or times
    ],
)
def test_an_invalid_share_is_refused(text: str) -> None:
    assert refusal(lambda: FileSample.parse(text), UsageError) == (
        f"--sample: must be a share above 0 and up to 100 %, got {text!r}; write 5% or 0.05"
    )


@pytest.mark.parametrize(("share", "percent"), [("5%", "5%"), ("0.0525", "5.25%"), ("0.001%", "0.001%")])
def test_a_share_is_printed_in_percent(share: str, percent: str) -> None:
    assert str(FileSample.parse(share)) == percent


def select_files(sample: FileSample, sizes: dict[str, int]) -> list[str]:
    return sample.select(list(sizes), lambda name: sizes[name], lambda name: (name,))


@given(SIZES, SHARES)
def test_drawn_files_fill_the_share_without_exceeding_it(sizes: dict[str, int], share: Fraction) -> None:
    drawn = select_files(FileSample(share), sizes)

    rest = share * sum(sizes.values()) - sum(sizes[name] for name in drawn)
    assert rest >= 0
    assert drawn == [name for name in sizes if name in drawn]
    assert all(sizes[name] > rest for name in sizes if name not in drawn)


@given(SIZES, SHARES, st.randoms())
def test_a_sample_is_independent_of_file_order(sizes: dict[str, int], share: Fraction, random: object) -> None:
    names = list(sizes)
    random.shuffle(names)  # type: ignore[attr-defined]

    assert set(select_files(FileSample(share), {name: sizes[name] for name in names})) == set(
        select_files(FileSample(share), sizes)
    )


@pytest.mark.parametrize(("seed", "drawn"), [("0", ["08", "09", "15", "17"]), ("1", ["05", "11", "17", "19"])])
def test_a_seed_always_draws_the_same_files(seed: str, drawn: list[str]) -> None:
    assert select_files(FileSample(Fraction(1, 5), seed), {f"{number:02d}": 10 for number in range(20)}) == drawn
