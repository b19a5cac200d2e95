"""Stage A recipes that are refused for one wrong key or section."""

import datetime
import re
from pathlib import Path
from typing import Any, get_args

import pytest
from recipe_errors import errors, read_line
from stage_a_build import Change, only, recipe_with
from stage_a_sources import SITES, source_named

from pipeline_assets.corpus.normalize.sources import FileSource
from pipeline_assets.corpus.packing.recipe import PackSection

FILE_KINDS = ", ".join(get_args(section.model_fields["kind"].annotation)[0] for section in get_args(FileSource))


def update_source(name: str, **keys: object) -> Change:
    return lambda content: source_named(content, name).update(keys)


def repeat_source(name: str) -> Change:
    return lambda content: content["sources"].append(source_named(content, name))


def refuse_licence(licence: str, source: str) -> Change:
    """Refuse a licence that the only source has."""

    def change(content: dict[str, Any]) -> None:
        only(source)(content)
        content["refuse_licences"] = [licence]

    return change


SITE_KEYS = "domain, dump_date, files, filters, kind, language, license_tag, max_reject_fraction, path, source, title"
NEW_LICENCE = "Add new licences to manifests/licences.json"


@pytest.mark.parametrize(
    ("change", "what", "fix"),
    [
        (
            update_source("notes", filters={"lenght": {"min_words": 3}}),
            "unknown key `sources.4.filters.lenght`",
            "did you mean `length`?",
        ),
        (
            update_source("wikipedia_en", text_unit="file"),  # a key of another kind
            "unknown key `sources.1.text_unit`",
            f"remove it; known keys: {SITE_KEYS}",
        ),
        (
            update_source("notes", kind="x"),
            f"`sources.4.kind` must be one of hub, {FILE_KINDS}, normalized, got 'x'",
            "correct the value",
        ),
        (
            update_source("notes", license_tag="cc-by-sa-40"),
            "`sources.4.license_tag` is 'cc-by-sa-40': unknown licence 'cc-by-sa-40'",
            f"did you mean cc-by-sa-4.0? {NEW_LICENCE}",
        ),
        (
            lambda content: content.update(refuse_licences=["propriety"]),
            "`refuse_licences` is ['propriety']: unknown licence 'propriety'",
            f"did you mean proprietary? {NEW_LICENCE}",
        ),
        (
            lambda content: content.update(refuse_licences=datetime.date(2026, 11, 1)),
            "`refuse_licences` must be a list, got 2026-11-01",
            'write ["2026-11-01"]',
        ),
        (
            update_source("pages", revision="main"),
            "`sources.0.revision` is 'main': a revision must be a commit of 40 hex digits, because branches move",
            "get it with `corpusmill pin`",
        ),
        *(
            (
                update_source(SITES[0], host=host),
                f"`sources.2.host` must be a host name in lower case, such as beer.stackexchange.com, got {host!r}",
                "correct the value",
            )
            for host in ("https://beer.stackexchange.com", "Beer.stackexchange.com", "beer", "")
        ),
    ],
)
def test_an_invalid_recipe_is_refused_in_one_line(change: Change, what: str, fix: str, tmp_path: Path) -> None:
    [error] = errors(lambda: recipe_with(tmp_path, change))

    assert (error.what, error.fix) == (what, fix)
    [key] = re.findall(r"^(?:unknown key )?`(?:[^`]*\.)?([^`.]+)`", what)
    assert f"{key}:" in read_line(error, tmp_path)


@pytest.mark.parametrize(
    ("change", "what", "fix", "line"),
    [
        (repeat_source("notes"), "two sources have the name notes", "give each source its own name", "source: notes"),
        (
            update_source("notes", source="notes.manifest.json"),
            "source name notes.manifest.json is reserved for the manifest copy of another source",
            "choose another name",
            "source: notes.manifest.json",
        ),
        (
            refuse_licence("CC0", "notes"),
            "source notes has the licence cc0-1.0, which `refuse_licences` refuses",
            "remove one of them",
            "license_tag: cc0-1.0",
        ),
        (
            refuse_licence("cc-by-sa-4.0", "wikipedia_en"),  # which the dump's date stands for
            "source wikipedia_en has the licence cc-by-sa-4.0, which `refuse_licences` refuses",
            "remove one of them",
            "license_tag: null",
        ),
        *(
            (
                lambda content, step=step: content.update(outputs={"normalized_dir": f"stage_a/x/{step}"}),
                f"the folder name {step} is reserved for another artifact",
                "write stage_a/x/normalized",
                f"normalized_dir: stage_a/x/{step}",
            )
            for step in ("raw", "filtered", "report")
        ),
        (
            lambda content: content.update(max_removed={"every_source": "1"}),
            "`max_removed` requires a section `dedup`",
            "correct or remove it",
            "max_removed:",
        ),
        (
            lambda content: content.update(dedup={}, max_removed={"every_source": "1", "sources": {"ntoes": "0.5"}}),
            "ntoes has a cap but is not a source",
            "correct or remove it",
            "ntoes: '0.5'",
        ),
        (
            lambda content: content.update(pack={"max_epochs": {"every_source": "1", "sources": {"ntoes": "4"}}}),
            "ntoes has a cap but is not a source",
            "correct or remove it",
            "ntoes: '4'",
        ),
        (
            lambda content: content.update(dedup={}, seen=["stage_a/x/seen", "stage_a/y/seen"]),
            "two stores in `seen` have the name seen",
            "rename one of them",
            "seen:",
        ),
        (
            lambda content: content.update(seen=["stage_a/x/seen"]),
            "`seen` requires `dedup`",
            "add `dedup`, or remove `seen`",
            "seen:",
        ),
    ],
)
def test_inconsistent_sections_are_refused_with_the_line_to_correct(
    change: Change, what: str, fix: str, line: str, tmp_path: Path
) -> None:
    [error] = errors(lambda: recipe_with(tmp_path, change))

    assert (error.what, error.fix, read_line(error, tmp_path)) == (what, fix, line)


@pytest.mark.parametrize(
    "folder", ["", ".", "stage_a", "/stage_a/normalized", "stage_a/../x/y", "corpora/x", "stage_a/x/.y", "stage_a/.x/y"]
)
def test_the_folder_of_normalised_sources_must_be_a_visible_one_below_stage_a(folder: str, tmp_path: Path) -> None:
    [error] = errors(lambda: recipe_with(tmp_path, lambda content: content.update(outputs={"normalized_dir": folder})))

    rule = "must be a visible folder below stage_a/, such as stage_a/NAME/normalized"
    assert error.what == f"`outputs.normalized_dir` {rule}, got {folder!r}"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"max_epochs": 4}, "`max_epochs` must be a mapping, got 4; write {every_source: 4}"),
        ({"weights": [3, 1]}, "`weights` must be a mapping, got [3, 1]; write {NAME: 3}"),
        ({"weights": []}, "`weights` must be a mapping, got []; write {NAME: VALUE}"),
        ({"max_epochs": None}, "`max_epochs` must be a mapping, got None; write {every_source: VALUE}"),
    ],
)
def test_a_value_in_place_of_a_mapping_is_refused_with_a_fix(values: dict[str, object], message: str) -> None:
    [error] = errors(lambda: PackSection.from_mapping(values, "recipe.yaml"))

    assert f"{error.what}; {error.fix}" == message
