"""Licences of rows become the licence metadata of a card."""

import pytest

from pipeline_assets.corpus.licences import licence_table
from pipeline_assets.corpus.publishing.hub_metadata import hub_licence, licence_metadata


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
def test_a_licence_has_the_identifier_of_the_hub_if_it_has_one(licence: str | None, identifier: str) -> None:
    assert hub_licence(licence) == identifier


@pytest.mark.parametrize(
    ("licences", "metadata"),
    [
        pytest.param({"odc-by-1.0": 2, "ODC-By-1.0": 1}, {"license": "odc-by"}, id="one is a text"),
        pytest.param(
            {"mit": 1, "cc-by-4.0": 5, None: 1}, {"license": ["cc-by-4.0", "mit", "unknown"]}, id="a list by rows"
        ),
        pytest.param({None: 3}, {"license": "unknown"}, id="rows say none"),
        pytest.param({}, {"license": "unknown"}, id="no rows"),
        pytest.param(
            {"Ask us; then use!": 1}, {"license": "other", "license_name": "ask-us-then-use"}, id="unknown to the hub"
        ),
        pytest.param({"许可": 1}, {"license": "other", "license_name": "other"}, id="in other letters"),
        pytest.param(
            {"psf-2.0": 1, "mit": 2},
            {"license": ["mit", "other"], "license_name": "psf-2.0", "license_link": licence_table()["psf-2.0"].url},
            id="known to us",
        ),
        pytest.param(
            {"psf-2.0": 1, "ask us": 2},
            {"license": "other", "license_name": "several-see-the-table"},
            id="several that the hub doesn't know",
        ),
    ],
)
def test_the_yaml_names_licences_by_rows(licences: dict[str | None, int], metadata: dict[str, object]) -> None:
    assert licence_metadata(licences) == metadata
