"""Licences: a value as somebody wrote it is a tag or unknown, never a guess; nobody's attribution is forgotten."""

import json
from pathlib import Path

import msgspec
import pytest

from pipeline_assets.corpus.licences import Licence, LicenceTable, Licensed, attribution_text, read_licences
from pipeline_assets.corpus.spine.errors import InputError, UsageError

PROJECT = Path(__file__).parents[2]
TABLE = PROJECT / "manifests" / "licences.json"


@pytest.fixture(scope="module")
def table() -> LicenceTable:
    return read_licences(TABLE)


@pytest.mark.parametrize(
    ("written", "tag"),
    [
        ("CC BY-SA 4.0", "cc-by-sa-4.0"),  # Posts.xml, ContentLicense
        ("cc-by-sa-3.0", "cc-by-sa-3.0"),
        ("https://creativecommons.org/licenses/by-sa/2.5/", "cc-by-sa-2.5"),
        ("ODC-By-1.0", "odc-by"),
        ("odc-by", "odc-by"),
        ("Apache License 2.0", "apache-2.0"),
        ("  MIT ", "mit"),
        ("public_domain", "public-domain"),
    ],
)
def test_the_usual_spellings_of_a_licence_are_one_tag(table: LicenceTable, written: str, tag: str) -> None:
    assert table.tag_of(written) == tag


@pytest.mark.parametrize("written", ["cc-by-sa", "gpl", "free", "CC BY-SA 5.0"])
def test_a_licence_without_its_version_is_not_guessed(table: LicenceTable, written: str) -> None:
    assert table.tag_of(written) is None
    assert table.licensed(written, "row: license") == Licensed("unknown", f"row: license is {written!r}")


def test_a_known_licence_keeps_what_it_rests_on(table: LicenceTable) -> None:
    assert table.licensed("MIT", "row: license") == Licensed("mit", "row: license")
    assert table.licensed("CC BY-SA 4.0", "row: ContentLicense") == Licensed("cc-by-sa-4.0", "row: ContentLicense")


def test_the_fingerprint_is_of_spellings_alone(table: LicenceTable) -> None:
    renamed = [{**licence, "name": licence["name"].upper()} for licence in json.loads(TABLE.read_bytes())]
    respelled = [{**licence, "aliases": [*licence["aliases"], f"my {licence['tag']}"]} for licence in renamed]

    def fingerprint(licences: list[dict[str, object]]) -> str:
        return LicenceTable([msgspec.convert(licence, Licence) for licence in licences]).fingerprint

    assert fingerprint(renamed) == table.fingerprint
    assert fingerprint(respelled) != table.fingerprint


def test_a_recipe_that_names_no_known_licence_hears_the_nearest(table: LicenceTable) -> None:
    assert table.tag_named("CC BY-SA 4.0", "recipe") == "cc-by-sa-4.0"
    with pytest.raises(UsageError, match=r"there is no licence 'cc-by-sa-4'; did you mean cc-by-sa-4\.0\?"):
        table.tag_named("cc-by-sa-4", "recipe")


def test_attribution_names_each_source_with_its_licence_and_what_is_not_known(table: LicenceTable) -> None:
    text = attribution_text(
        table, {"coffee": ["cc-by-sa-4.0", "cc-by-sa-3.0"], "laws": ["public-domain"], "scraps": ["unknown"]}
    )

    assert text.splitlines() == [
        "This set holds text of the following sources, under licences that ask for attribution:",
        "",
        "coffee: Creative Commons Attribution-ShareAlike 3.0 (https://creativecommons.org/licenses/by-sa/3.0/); "
        "what is made from it carries the same licence",
        "coffee: Creative Commons Attribution-ShareAlike 4.0 International "
        "(https://creativecommons.org/licenses/by-sa/4.0/); what is made from it carries the same licence",
        "",
        "Of these it is not known what their licence asks for:",
        "",
        "scraps: unknown licence",
    ]
    assert attribution_text(table, {"laws": ["public-domain"]}) == "No licence of this set asks for attribution.\n"


def test_every_licence_of_the_table_is_found_by_its_tag_and_spdx_id(table: LicenceTable) -> None:
    for entry in json.loads((PROJECT / "manifests" / "licences.json").read_text()):
        assert table.tag_of(entry["tag"]) == entry["tag"]
        assert entry["spdx"] is None or table.tag_of(entry["spdx"]) == entry["tag"]


def entry(tag: str, *aliases: str) -> dict[str, object]:
    unsaid = dict.fromkeys(("spdx", "url", "redistributable", "attribution", "share_alike"))
    return {"tag": tag, "name": tag, "aliases": list(aliases), **unsaid}


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ([entry("unknown"), entry("a", "x"), entry("b", "X ")], "'x' is both a and b"),
        ([entry("a")], "there is no licence `unknown`"),
        ([entry("unknown") | {"attributon": True}], "this is no licence table"),
        ({"unknown": {}}, "this is no licence table"),
    ],
)
def test_a_table_that_contradicts_itself_is_refused(tmp_path: Path, content: object, what: str) -> None:
    path = tmp_path / "licences.json"
    path.write_text(json.dumps(content))

    with pytest.raises(InputError, match=what):
        read_licences(path)


def test_a_table_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the licence table can't be read"):
        read_licences(tmp_path / "licences.json")
