"""Stage A builds whose sources are shared, changed or missing."""

import os
import sys
from pathlib import Path

import pytest
from refusals import refusal
from stage_a_build import INLINE, build, local_source, parse_recipe

from pipeline_assets.build.run import Run
from pipeline_assets.build.run_targets import run_targets
from pipeline_assets.corpus.filters.language import load_detector
from pipeline_assets.corpus.normalize import files
from pipeline_assets.spine.errors import InputError, UsageError

ROWS = [{"text": f"Text number {number}.", "key": str(number)} for number in range(5)]


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


def test_a_partition_is_built_without_joint_steps_until_all_others_are(tmp_path: Path) -> None:
    pages_rows = [row | {"key": f"page {row['key']}"} for row in ROWS]
    sources = [local_source(tmp_path, "notes", ROWS), local_source(tmp_path, "pages", pages_rows)]
    recipe = parse_recipe(*sources, dedup={}, pack={"seq_len": 8}, tokenizer=None)

    def build_partition(name: str) -> list[str]:
        requested = [target for target in recipe.targets() if target.partition in (None, name)]
        return [outcome.target.role for outcome in run_targets(requested, Run(tmp_path, INLINE)) if outcome.manifest]

    notes, pages = (
        [f"stage_a/{step}/{name}" for step in ("raw", "normalized", "filtered")] for name in ("notes", "pages")
    )
    assert build_partition("notes") == notes
    assert build_partition("pages") == [*pages, "stage_a/deduplicated", "stage_a/packed", "stage_a/report"]


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

    with pytest.raises(InputError, match=r"since the files were hashed: .* were rewritten; restore the files"):
        build(recipe, tmp_path)

    assert not (tmp_path / "stage_a/mixed/normalized/notes").exists()


def test_a_missing_language_detector_is_reported_before_the_build_that_needs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    detecting = local_source(tmp_path, "notes", ROWS, filters={"language": {}})
    monkeypatch.setitem(sys.modules, "py3langid", None)
    load_detector.cache_clear()

    line = refusal(lambda: parse_recipe(detecting).check_prerequisites(tmp_path), UsageError)

    assert line.startswith("languages: py3langid is not installed; ")
    parse_recipe(local_source(tmp_path, "notes", ROWS)).check_prerequisites(tmp_path)
    parse_recipe(detecting, outputs={"up_to": "normalized"}).check_prerequisites(tmp_path)
