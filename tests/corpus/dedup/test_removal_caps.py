"""Caps on what deduplication may remove of a source: whom they may name."""

import pytest

from pipeline_assets.corpus.dedup.recipe import RemovalCaps

CAPS = RemovalCaps(every_source="0.3", sources={"notes": "0.5"})


def test_a_cap_of_a_source_that_is_deduplicated_is_its_own() -> None:
    CAPS.check_sources(["notes", "pages"])

    assert (float(CAPS.cap("notes")), float(CAPS.cap("pages"))) == (0.5, 0.3)


@pytest.mark.parametrize(
    ("deduplicated", "words"),
    [
        (["pages"], "max_removed names notes, which is no source: correct it, or leave it out"),
        (None, "max_removed without dedup: correct it, or leave it out"),
    ],
)
def test_a_cap_of_nothing_is_refused(deduplicated: list[str] | None, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        CAPS.check_sources(deduplicated)
