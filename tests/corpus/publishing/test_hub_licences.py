"""Licences as rows say them → what the YAML of a card says."""

import pytest

from pipeline_assets.corpus.licences import licence_table
from pipeline_assets.corpus.publishing.card_split import hub_licence, licence_metadata


@pytest.mark.parametrize(
    ("licence", "identifier"),
    [
        ("cc-by-4.0", "cc-by-4.0"),
        ("CC BY SA 4.0", "cc-by-sa-4.0"),
        ("odc-by-1.0", "odc-by"),
        ("https://opensource.org/license/mit", "mit"),
        ("AGPL-3.0", "agpl-3.0"),
        ("gfdl-1.3", "gfdl"),
        ("psf-2.0", "other"),
        ("public domain", "other"),
        ("ask us", "other"),
        ("other", "other"),
        ("", "unknown"),
        (None, "unknown"),
    ],
)
def test_a_licence_has_the_hub_s_identifier_where_there_is_one(licence: str | None, identifier: str) -> None:
    assert hub_licence(licence) == identifier


def test_one_licence_is_a_text() -> None:
    assert licence_metadata({"odc-by-1.0": 2, "ODC-By-1.0": 1}) == {"license": "odc-by"}


def test_several_are_a_list_by_rows() -> None:
    assert licence_metadata({"mit": 1, "cc-by-4.0": 5, None: 1}) == {"license": ["cc-by-4.0", "mit", "unknown"]}


def test_without_any_it_is_unknown() -> None:
    assert licence_metadata({None: 3}) == licence_metadata({}) == {"license": "unknown"}


def test_one_that_the_hub_does_not_know_has_a_name() -> None:
    assert licence_metadata({"Ask us; then use!": 1}) == {"license": "other", "license_name": "ask-us-then-use"}
    assert licence_metadata({"许可": 1}) == {"license": "other", "license_name": "other"}


def test_a_known_one_also_has_a_link() -> None:
    url = licence_table()["psf-2.0"].url
    assert licence_metadata({"psf-2.0": 1, "mit": 2}) == {
        "license": ["mit", "other"],
        "license_name": "psf-2.0",
        "license_link": url,
    }


def test_of_several_such_the_page_tells() -> None:
    assert licence_metadata({"psf-2.0": 1, "ask us": 2}) == {
        "license": "other",
        "license_name": "several-see-the-table",
    }
