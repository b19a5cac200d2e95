"""Caps on what deduplication may remove of a source."""

from pipeline_assets.corpus.dedup.recipe import RemovalCaps


def test_a_source_that_is_named_has_a_cap_of_its_own() -> None:
    caps = RemovalCaps(every_source="0.3", sources={"notes": "0.5"})

    assert (float(caps.cap("notes")), float(caps.cap("pages"))) == (0.5, 0.3)
