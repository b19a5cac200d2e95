"""Stage A recipes: refusals, targets, staleness and changed files."""

import datetime
import logging
import os
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from real_samples import some
from refusals import refusal
from stage_a_build import INLINE, Change, build, digests, local_source, only, parse_recipe, recipe_with
from stage_a_sources import source_named, write_notes

from pipeline_assets.build.run import Run
from pipeline_assets.build.run_targets import run_targets
from pipeline_assets.corpus.filters.language import load_detector
from pipeline_assets.corpus.normalize import files
from pipeline_assets.corpus.normalize.sources import (
    FileSource,
    NormalizedSource,
    OutputsSection,
    check_folders,
    parse_source,
)
from pipeline_assets.corpus.packing.recipe import PackSection
from pipeline_assets.corpus.readers.listing import Forecast
from pipeline_assets.spine.errors import InputError, RetryableError, UsageError
from pipeline_assets.systems.registry import SYSTEMS
from pipeline_assets.systems.stage_a import StageARecipe

RECIPE = Path(__file__).parents[3] / "manifests" / "recipes" / "stage_a_v1.yaml"
FILE_KINDS = ", ".join(get_args(section.model_fields["kind"].annotation)[0] for section in get_args(FileSource))
ROWS = [{"text": f"Text number {number}.", "key": str(number)} for number in range(5)]


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
            "remove it; known keys: domain, dump_date, files, filters, kind, language, license_tag, "
            "max_reject_fraction, path, source, title",
        ),
        (
            update_source("notes", kind="x"),
            f"`sources.4.kind` must be one of hub, {FILE_KINDS}, normalized, got 'x'",
            "correct the value",
        ),
        (
            update_source("notes", license_tag="cc-by-sa-40"),
            "`sources.4.license_tag` is 'cc-by-sa-40': unknown licence 'cc-by-sa-40': did you mean cc-by-sa-4.0? "
            "Add new licences to manifests/licences.json",
            "correct the value",
        ),
        (
            lambda content: content.update(refuse_licences=["propriety"]),
            "`refuse_licences` is ['propriety']: unknown licence 'propriety': did you mean proprietary? "
            "Add new licences to manifests/licences.json",
            "correct the value",
        ),
        (
            lambda content: content.update(refuse_licences=datetime.date(2026, 11, 1)),
            "`refuse_licences` must be a list, got 2026-11-01",
            'write ["2026-11-01"]',
        ),
        (
            update_source("pages", revision="main"),
            "`sources.0.revision` is 'main': a revision must be a commit of 40 hex digits, because branches move; "
            "get it with `corpusmill pin`",
            "correct the value",
        ),
        (
            update_source("pages", max_reject_fraction="3"),
            "`sources.0.max_reject_fraction` must be in [0, 1], got '3'",
            "correct the value",
        ),
        (
            update_source("notes", source="My notes"),
            "`sources.4.source` must contain only lower-case letters, digits, `_`, `.` and `-`, and start with a "
            "letter or digit, got 'My notes'",
            "correct the value",
        ),
    ],
)
def test_an_invalid_recipe_is_refused_in_one_line(change: Change, what: str, fix: str, tmp_path: Path) -> None:
    [error] = errors(lambda: recipe_with(tmp_path, change))

    assert (error.what, error.fix) == (what, fix)
    [key] = re.findall(r"^(?:unknown key )?`(?:[^`]*\.)?([^`.]+)`", what)
    assert f"{key}:" in read_line(error, tmp_path)


def errors(read: Callable[[], object]) -> list[InputError]:
    with pytest.raises(UsageError) as error:
        read()
    return [error.value, *error.value.others]


def read_error_lines(root: Path, content: dict[str, Any]) -> list[tuple[str, str]]:
    """Write an invalid recipe; return the lines of its errors and their short texts."""
    path = root / "recipes" / "mixed.yaml"
    path.parent.mkdir()
    path.write_text(yaml.safe_dump({"system": "stage_a", "name": "mixed"} | content, sort_keys=False))
    reported = errors(lambda: SYSTEMS.read_recipe(path, root))
    return [(read_line(error, root), error.what.partition(": did you")[0]) for error in reported]


def read_line(error: InputError, tmp_path: Path) -> str:
    path = tmp_path / "recipes" / "mixed.yaml"
    return path.read_text().splitlines()[int(error.where.removeprefix(f"{path}:")) - 1].strip()


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


def test_all_errors_of_a_recipe_are_reported_with_their_lines(tmp_path: Path) -> None:
    notes, papers = (local_source(tmp_path, name, []) for name in ("notes", "papers"))
    missing = papers | {"path": str(tmp_path / "sources/ntoes"), "license_tag": "nobody-knows"}
    pack = {"seq_len": "8", "weights": {"notes": "0.5", "pepers": "0.5"}}
    content = {"sources": [notes, missing | {"text_units": "file"}, dict(notes)], "pack": pack}

    assert read_error_lines(tmp_path, content) == [
        (f"path: {missing['path']}", f"folder {missing['path']} not found"),
        (
            "license_tag: nobody-knows",
            "`sources.1.license_tag` is 'nobody-knows': unknown licence 'nobody-knows'",
        ),
        ("text_units: file", "unknown key `sources.1.text_units`"),
        ("source: notes", "two sources have the name notes"),
        ("seq_len: '8'", "`pack.seq_len` must be an integer, got '8'"),
        ("weights:", "source papers has no weight"),
        ("pepers: '0.5'", "pepers has a weight but is not a source"),
    ]


def test_wrong_files_columns_and_weights_are_reported_with_other_errors(tmp_path: Path) -> None:
    row, columns = {"body": "A text.", "key": "1"}, {"text": "txet", "id": None}
    notes = local_source(tmp_path, "notes", [row], files=["*.jsonl", "*.parqet"], columns={"text": "body"})
    papers = local_source(tmp_path, "papers", [row], columns=columns, license_tag="nobody-knows")
    table = local_source(tmp_path, "table", [], files=["*.parquet"], columns={"text": "body", "id": "uid"})
    pq.write_table(pa.table({"body": ["A text."]}), Path(table["path"]) / "a.parquet")
    sheet = local_source(tmp_path, "sheet", [], files=["*.csv"], columns={"text": "body", "id": "uid"})
    (Path(sheet["path"]) / "a.csv").write_text("body\nA text.\n")
    quiz = {"name": "quiz", "path": table["path"], "files": ["*.jsonl", "*.csv"], "columns": {"text": ["q"]}}
    pack = {"weights": {"notes": 0.5, "papers": "0.25", "table": True, "sheet": 0.25}}
    content = {"sources": [notes, papers, table, sheet], "pack": pack}
    content |= {"decontamination": {"min_item_words": 8, "evaluation": [quiz]}}

    assert read_error_lines(tmp_path, content) == [
        ("- '*.parqet'", f"{notes['path']}: no file matches '*.parqet'"),
        (
            "columns:",
            f"{papers['path']}/rows.jsonl: the first rows have no column `txet`; the first one has body, key",
        ),
        (
            "license_tag: nobody-knows",
            "`sources.1.license_tag` is 'nobody-knows': unknown licence 'nobody-knows'",
        ),
        ("columns:", f"{table['path']}/a.parquet: column `uid` not found; the columns are body"),
        ("columns:", f"{sheet['path']}/a.csv: column `uid` not found; the columns are body"),
        ("table: true", "`pack.weights.table` must be a decimal number, such as 0.3, got True"),
        ("- '*.csv'", f"{table['path']}: no file matches '*.csv'"),
    ]


def test_a_cap_without_a_source_is_reported_with_another_invalid_key() -> None:
    content = {"seq_len": 1, "weights": {"a": "1"}, "max_epochs": {"every_source": "1", "sources": {"b": "2"}}}

    reported = errors(lambda: PackSection.from_mapping(content, "recipe.yaml"))

    assert [error.what for error in reported] == [
        "`seq_len` must be at least 2 (a row needs a next token to predict), got 1",
        "`max_epochs`: max_epochs names b, which has no weight",
    ]


@pytest.mark.parametrize(
    "changes",
    [
        {"columns": {"text": "body"}},
        {"max_reject_fraction": "0.5"},  # what allows bad rows may begin with them
        {"colums": {"text": "body"}},  # reported, but its effect on the rows is not
        {"columns": {"text": 3}},
        {"columns": None},
        {"files": ["."]},
        {"files": [["*"]]},
        {"path": 3},
    ],
)
def test_files_are_checked_as_far_as_the_recipe_describes_them(changes: dict[str, Any], tmp_path: Path) -> None:
    section = local_source(tmp_path, "notes", [{"body": "A text."}])
    del section["columns"]

    found = [*check_folders({"name": "mixed", "sources": [section | changes]}, tmp_path)]

    assert [error.what for error in found] == (
        [f"{section['path']}: the pattern '.' matches only folders"] if changes.get("files") == ["."] else []
    )


def test_recipe_sections_of_a_wrong_type_are_reported_once(tmp_path: Path) -> None:
    content = {"sources": "notes", "dedup": [], "outputs": 1, "seen": 2, "max_removed": "1", "pack": {"weights": ["a"]}}

    lines = [line.partition(":")[0] for line, _ in read_error_lines(tmp_path, content)]

    assert sorted(lines) == sorted([*content.keys() - {"pack"}, "weights"])


@pytest.mark.parametrize("folder", ["", ".", "stage_a", "/stage_a/normalized", "stage_a/../x/y", "corpora/x"])
def test_the_folder_of_normalised_sources_must_be_below_stage_a(folder: str, tmp_path: Path) -> None:
    [error] = errors(lambda: recipe_with(tmp_path, lambda content: content.update(outputs={"normalized_dir": folder})))

    rule = "must be a folder below stage_a/, such as stage_a/NAME/normalized"
    assert error.what == f"`outputs.normalized_dir` {rule}, got {folder!r}"


def test_manifest_copies_with_equal_names_are_both_kept(tmp_path: Path) -> None:
    root, manifests = tmp_path / "data", tmp_path / "data" / "manifests"
    sources = {"a": local_source(tmp_path, "b_c", ROWS), "a_b": local_source(tmp_path, "c", ROWS[:3])}
    recipes = [parse_recipe(source, name=name) for name, source in sources.items()]

    def build_and_read_copies() -> dict[str, bytes]:
        for recipe in recipes:
            assert all(outcome.failure is None for outcome in run_targets(recipe.targets(), Run(root, INLINE)))
        return {path.name: path.read_bytes() for path in manifests.iterdir()}

    first = build_and_read_copies()

    assert first["a_b_c_raw.json"] == (root / "stage_a/a/raw/b_c/manifest.json").read_bytes()
    sealed = {path.read_bytes() for path in root.glob("stage_a/*/*/*/manifest.json")}
    assert sealed == {*first.values()} and len(sealed) == len(first) == 8
    assert build_and_read_copies() == first


def test_a_recipe_has_three_artifacts_per_source_and_a_report_upstream_first(tmp_path: Path) -> None:
    recipe = recipe_with(tmp_path, only("notes", "pages"))

    assert [(target.role, str(target.folder), target.export_as) for target in recipe.targets()] == [
        ("stage_a/raw/notes", "stage_a/mixed/raw/notes", "mixed_notes_raw.json"),
        ("stage_a/normalized/notes", "stage_a/mixed/normalized/notes", "mixed_notes_normalized.json"),
        ("stage_a/filtered/notes", "stage_a/mixed/filtered/notes", "mixed_notes_filtered.json"),
        ("stage_a/raw/pages", "stage_a/mixed/raw/pages", "mixed_pages_raw.json"),
        ("stage_a/normalized/pages", "stage_a/mixed/normalized/pages", "mixed_pages_normalized.json"),
        ("stage_a/filtered/pages", "stage_a/mixed/filtered/pages", "mixed_pages_filtered.json"),
        ("stage_a/report", "stage_a/mixed/report/mixed", "mixed_report.json"),
    ]
    assert recipe.revisions() == [("maker/pages", "ab" * 20)]


@pytest.mark.parametrize(
    ("up_to", "kinds"),
    [
        (None, ["stage_a/raw", "stage_a/normalized", "stage_a/filtered", "stage_a/report"]),
        ("filtered", ["stage_a/raw", "stage_a/normalized", "stage_a/filtered"]),
        ("normalized", ["stage_a/raw", "stage_a/normalized"]),
    ],
)
def test_a_recipe_may_request_only_the_first_stages(up_to: str | None, kinds: list[str], tmp_path: Path) -> None:
    outputs = {"normalized_dir": "stage_a/x/normalized", "up_to": up_to}

    recipe = parse_recipe(local_source(tmp_path, "notes", []), outputs=outputs)

    assert [target.kind.name for target in recipe.targets()] == kinds


@pytest.mark.parametrize(("rows", "planned"), [(10, Forecast(80, "`pack.num_seqs`")), (None, None)])
def test_tokens_are_forecast_if_the_number_of_packed_rows_is_set(
    rows: int | None, planned: Forecast | None, tmp_path: Path
) -> None:
    pack = {"seq_len": 8, "strategy": "sequential", "num_seqs": rows}

    [packed] = [
        target
        for target in parse_recipe(local_source(tmp_path, "notes", []), pack=pack).targets()
        if target.kind.name == "stage_a/packed"
    ]

    assert packed.kind.planner is not None
    assert packed.kind.planner.plan_tokens(packed.recipe) == planned


def test_a_recipe_that_ends_before_packing_needs_no_tokenizer(tmp_path: Path) -> None:
    source = local_source(tmp_path, "notes", [])
    pack = {"seq_len": 8, "strategy": "sequential", "tokenizer_path": "none.tiktoken"}

    recipe = parse_recipe(source, outputs={"up_to": "filtered"}, pack=pack)

    recipe.check_local_files(tmp_path)
    folders = [target.folder for target in parse_recipe(source).targets() if target.kind.name != "stage_a/report"]
    assert [target.folder for target in recipe.targets()] == folders


def test_sections_without_effect_cause_a_warning(tmp_path: Path) -> None:
    notes, outputs = local_source(tmp_path, "notes", []), {"up_to": "filtered", "signatures": True}

    assert [*parse_recipe(notes, outputs=outputs, dedup={}).warnings()] == [
        f"`{name}` is ignored, because `outputs.up_to` is filtered" for name in ("dedup", "outputs.signatures")
    ]
    assert [*parse_recipe(notes, dedup={}).warnings()] == []
    assert [*parse_recipe(notes, tokenizer=None).warnings()] == [], "without a tokenizer, the report counts no tokens"
    assert [*parse_recipe(notes, dedup=None).warnings()] == [
        "`dedup` is empty and has no effect; to request it with all defaults, write `dedup: {}`"
    ]


def test_the_shipped_recipe_is_read_and_has_no_folder_twice() -> None:
    recipe = StageARecipe.read(RECIPE)

    folders = [target.folder for target in recipe.targets()]
    assert len(set(folders)) == len(folders)
    assert {source.kind for source in recipe.sources} >= {"hub", "wikipedia", "stackexchange", "local"}


def test_normalised_sources_of_one_recipe_are_used_by_another_by_name(tmp_path: Path) -> None:
    outputs = {"normalized_dir": "stage_a/pool/documents"}
    first = parse_recipe(local_source(tmp_path, "notes", ROWS), outputs=outputs)
    section = {"kind": "normalized", "source": "notes", "filters": {"rules": ["source_row >= 100"]}}
    second = parse_recipe(section, outputs=outputs, name="second")

    normalized = build(first, tmp_path)["stage_a/normalized/notes"]
    built = build(second, tmp_path, replace=True)

    assert normalized.folder == tmp_path / "stage_a/pool/documents/notes"
    assert list(built) == ["stage_a/filtered/notes", "stage_a/report"]
    [entry] = built["stage_a/filtered/notes"].manifest.identity.inputs
    assert entry == {"name": "stage_a/normalized/notes", "digest": normalized.manifest.digest}


def test_a_missing_normalised_source_is_an_error_with_its_folder(tmp_path: Path) -> None:
    message = refusal(lambda: build(parse_recipe({"kind": "normalized", "source": "notes"}), tmp_path))

    assert message.startswith(f"{tmp_path}/stage_a/mixed/normalized/notes: ")


class TestStaleness:
    """Two sources of local files, built; then something changes."""

    @pytest.fixture(autouse=True)
    def _build(self, tmp_path: Path) -> None:
        self.root, self.content = tmp_path, []
        for name in ("letters", "diaries"):
            rows = [{"text": f"Text {n} of {name}, with words.", "key": f"{name}-{n}"} for n in (1, 2)]
            self.content.append(local_source(tmp_path, name, rows))
        self.built = build(parse_recipe(*self.content), tmp_path)

    def states(self) -> dict[str, str]:
        states = {target.role: target.state(self.root) for target in parse_recipe(*self.content).targets()}
        return {role: f"{state}: {reason}" for role, (state, reason) in states.items() if state != "current"}

    def rebuild_changed(self) -> list[str]:
        new = digests(build(parse_recipe(*self.content), self.root, replace=True))
        return [role for role, digest in new.items() if digest != self.built[role].manifest.digest]

    def test_without_a_change_everything_is_up_to_date(self) -> None:
        assert self.states() == {}
        assert self.rebuild_changed() == []

    def test_a_changed_filter_rebuilds_only_the_filtered_source_and_the_report(self) -> None:
        self.content[0]["filters"] = {"length": {"min_words": 1}}

        states = self.states()

        assert list(states) == ["stage_a/filtered/letters"]
        assert states["stage_a/filtered/letters"] == "stale: the recipe changed (`filters.length.min_words`: None → 1)"
        assert self.rebuild_changed() == ["stage_a/filtered/letters", "stage_a/report"]

    def test_a_moved_folder_changes_nothing_and_is_read_from_its_new_path(self) -> None:
        shutil.move(self.content[0]["path"], self.root / "moved")
        self.content[0]["path"] = "moved"  # below the data root

        assert self.states() == {}
        shutil.rmtree(self.built["stage_a/normalized/letters"].folder)
        assert self.rebuild_changed() == []

    def test_a_changed_file_rebuilds_its_whole_source_and_the_report(self) -> None:
        local_source(self.root, "letters", [{"text": "Other words.", "key": "letters-3"}])

        assert self.states() == {
            "stage_a/raw/letters": f"stale: 1 of the files in {self.root}/sources/letters changed; "
            "the first is rows.jsonl"
        }
        assert self.rebuild_changed() == [
            "stage_a/raw/letters",
            "stage_a/normalized/letters",
            "stage_a/filtered/letters",
            "stage_a/report",
        ]

    def test_a_rewritten_equal_file_is_only_hashed_again(self) -> None:
        path = self.root / "sources" / "letters" / "rows.jsonl"
        path.write_bytes(path.read_bytes())

        assert self.states() == {"stage_a/raw/letters": f"stale: files in {self.root}/sources/letters were rewritten"}
        assert self.rebuild_changed() == []
        assert self.states() == {}

    def test_another_licence_of_a_source_rebuilds_its_documents_but_not_its_raw_files(self) -> None:
        self.content[0]["license_tag"] = "mit"

        changed = self.rebuild_changed()

        assert changed == ["stage_a/normalized/letters", "stage_a/filtered/letters", "stage_a/report"]

    @pytest.mark.parametrize(
        ("chosen", "names"), [(slice(1), "['letters']"), (slice(None, None, -1), "['diaries', 'letters']")]
    )
    def test_fewer_or_reordered_sources_change_only_the_report(self, chosen: slice, names: str) -> None:
        self.content = self.content[chosen]

        assert self.states() == {
            "stage_a/report": f"stale: the recipe changed (`sources`: ['letters', 'diaries'] → {names})"
        }

    def test_an_artifact_of_another_recipe_is_replaced_only_on_request(self) -> None:
        self.content[0]["filters"] = {"length": {"min_words": 1}}

        message = refusal(lambda: build(parse_recipe(*self.content), self.root), UsageError)

        assert message.endswith("; set another `name` in the recipe, or run with --replace")


def test_a_corrected_recipe_replaces_the_listing_of_wrong_files(tmp_path: Path) -> None:
    wrong = local_source(tmp_path, "notes", []) | {"files": ["*.txt"]}
    (tmp_path / "sources/notes/other.txt").write_text("no rows")
    raw = parse_recipe(wrong).targets()[0]
    raw.kind.build(raw, Run(tmp_path, INLINE))

    right = parse_recipe(local_source(tmp_path, "notes", [{"text": "A text of some words.", "key": "1"}])).targets()[0]

    assert right.kind.build(right, Run(tmp_path, INLINE)).manifest.identity.inputs[0]["name"] == "rows.jsonl"


def test_a_missing_folder_is_an_error_only_until_its_files_are_hashed(tmp_path: Path) -> None:
    content = parse_recipe(section := local_source(tmp_path, "notes", [{"text": "A text of some words."}])).content()
    shutil.rmtree(section["path"])
    [error] = StageARecipe.cross_checks(content, tmp_path)

    (tmp_path / "stage_a" / content["name"] / "raw" / "notes").mkdir(parents=True)

    assert (error.location, error.what) == (("sources", 0, "path"), f"folder {section['path']} not found")
    assert not [*StageARecipe.cross_checks(content, tmp_path)] and not [*StageARecipe.cross_checks(content, None)]


def test_the_order_in_which_files_were_written_changes_no_digest(tmp_path: Path) -> None:
    write_notes(tmp_path / "sources" / "notes")
    recipe = recipe_with(tmp_path, only("notes"))
    first = digests(build(recipe, tmp_path))
    contents = {path.name: path.read_bytes() for path in (tmp_path / "sources" / "notes").iterdir()}

    for name in sorted(contents, reverse=True):
        (tmp_path / "sources" / "notes" / name).write_bytes(contents[name])

    assert digests(build(recipe, tmp_path)) == first


def test_the_section_of_a_source_is_read_back_from_its_content(tmp_path: Path) -> None:
    for source in some(recipe_with(tmp_path).sources):
        assert not isinstance(source, NormalizedSource)
        content = source.output_content(1234)

        parsed, shard_text_bytes = parse_source(content | {"licences": "of the table"})

        assert shard_text_bytes == 1234
        assert parsed.output_content(1234) == content
        assert {"path", "filters"}.isdisjoint(content)


def test_a_missing_archive_library_is_reported_before_a_dump_is_hashed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "beer.stackexchange.com.7z").write_bytes(b"7z\xbc\xaf\x27\x1c")
    scores = {"min_question_score": None, "min_answer_score": None, "min_answers": 0}
    host = {"host": "beer.stackexchange.com", "source": "beer", "domain": "questions"}
    files = {"path": str(tmp_path), "files": ["*.7z"]}
    [raw, *_] = parse_recipe({"kind": "stackexchange"} | host | files | scores).targets()
    monkeypatch.setitem(sys.modules, "py7zr", None)

    with caplog.at_level(logging.INFO, "corpusmill"):
        message = refusal(lambda: raw.kind.build(raw, Run(tmp_path / "data", INLINE)), RetryableError)

    assert message == (
        f"{tmp_path}/beer.stackexchange.com.7z: reading a .7z needs py7zr; "
        "in the project's folder run .venv/bin/python -m pip install -c constraints.txt -e '.[stackexchange]', "
        "or unpack the archive"
    )
    assert caplog.messages == []


def test_files_changed_or_missing_after_hashing_are_one_error(tmp_path: Path) -> None:
    section = local_source(tmp_path, "notes", ROWS)
    [raw, normalized, *_] = parse_recipe(section).targets()
    raw.kind.build(raw, Run(tmp_path, INLINE))

    local_source(tmp_path, "notes", ROWS[:3])
    changed = refusal(lambda: normalized.kind.build(normalized, Run(tmp_path, INLINE)))
    Path(section["path"]).rename(tmp_path / "elsewhere")
    missing = refusal(lambda: normalized.kind.build(normalized, Run(tmp_path, INLINE)))

    assert changed == (
        f"{tmp_path}/sources/notes: changed since the files were hashed: 1 of the files in {tmp_path}/sources/notes "
        "changed; the first is rows.jsonl; stop writing to the folder, and run the recipe again"
    )
    assert missing == (
        f"{tmp_path}/sources/notes: the source folder no longer exists; "
        "restore it, create a link to its new path, or correct the source's path"
    )


def test_files_changed_while_they_are_read_stop_the_build_before_the_seal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = parse_recipe(local_source(tmp_path, "notes", ROWS))
    convert = files.convert_local

    def disturb(*arguments: object) -> object:
        converted = convert(*arguments)  # type: ignore[arg-type]
        os.utime(tmp_path / "sources" / "notes" / "rows.jsonl")
        return converted

    monkeypatch.setattr(files, "convert_local", disturb)

    with pytest.raises(InputError, match=r"since the files were hashed: .* were rewritten; stop writing to the folder"):
        build(recipe, tmp_path)

    assert not (tmp_path / "stage_a/mixed/normalized/notes").exists()


def test_a_missing_language_detector_is_reported_before_the_build_that_needs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    detecting, plain = (
        parse_recipe(local_source(tmp_path, "notes", ROWS, filters=filters)) for filters in ({"language": {}}, {})
    )
    unfiltered = detecting.model_copy(
        update={"outputs": OutputsSection(normalized_dir="stage_a/mixed/normalized", up_to="normalized")}
    )
    monkeypatch.setitem(sys.modules, "py3langid", None)
    load_detector.cache_clear()

    line = refusal(lambda: detecting.check_local_files(tmp_path), UsageError)

    assert line.startswith("languages: py3langid is not installed; ")
    for recipe in (plain, unfiltered):
        recipe.check_local_files(tmp_path)


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
