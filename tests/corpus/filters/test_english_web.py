"""The filters of the docs for English web pages: they tell pages from what is none."""

import re

import pytest
from plain_filters import ENGLISH_WEB

from pipeline_assets.corpus.filters.verdict import judge

PAGE = (
    "The harbour of the old town was built to withstand storms that come with the autumn tides. Its walls have stood "
    "since the days of the first merchants, who brought salt and wool. In the summer months visitors walk along the "
    "quay and watch the boats.\nMost of them never see the lock keeper at work. He opens the gates twice a day, and "
    "writes the height of the water into a book."
)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (PAGE, None),
        ("Too short to be a page.", "few_words"),
        (" ".join(PAGE.split()[:49]), "few_words"),
        (PAGE.replace("e", "é"), None),
        (PAGE.translate(str.maketrans("aeiou", "áéíóú")), "ascii_ratio"),
        (re.sub(r"\b(the|be|to|of|and|that|have|with)\b", "xyz", PAGE, flags=re.IGNORECASE), "stop_words"),
        ("\n".join([PAGE] * 2), "duplicate_lines"),
        (PAGE + "\n\nHome\nMenu\nSearch", "boilerplate_lines"),
        (PAGE + "\nif (harbour) {", "document_phrase"),
        (PAGE.replace(".", ""), "few_sentences"),
    ],
)
def test_a_page_stays_and_what_is_none_goes_for_its_reason(text: str, reason: str | None) -> None:
    assert judge(text, {}, ENGLISH_WEB).reason == reason


def test_headings_leave_a_page_and_addresses_are_masked() -> None:
    seen = judge(
        f"The old town\n{PAGE}\nWrite to the keeper at keeper@harbour.example for a visit.[1]", {}, ENGLISH_WEB
    )

    assert seen.text == f"{PAGE}\nWrite to the keeper at email@example.com for a visit."
    assert seen.changes == {"removed_lines/no_terminal_punctuation": 1, "removed/citation": 1, "masked/email": 1}
