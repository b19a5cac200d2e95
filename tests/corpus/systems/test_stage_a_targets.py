"""Targets that a stage A recipe requests, with their sources and folders."""

from pathlib import Path

import pytest
from real_samples import some
from stage_a_build import local_source, only, parse_recipe, recipe_with

from pipeline_assets.corpus.normalize.sources import NormalizedSource, parse_source
from pipeline_assets.corpus.readers.listing import Forecast
from pipeline_assets.systems.stage_a import StageARecipe

RECIPE = Path(__file__).parents[3] / "manifests" / "recipes" / "stage_a_v1.yaml"


def test_a_recipe_has_three_artifacts_per_source_and_a_report_upstream_first(tmp_path: Path) -> None:
    recipe = recipe_with(tmp_path, only("notes", "pages"))

    assert [(target.role, str(target.folder), target.copy_name) for target in recipe.targets()] == [
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

    recipe.check_prerequisites(tmp_path)
    folders = [target.folder for target in parse_recipe(source).targets() if target.kind.name != "stage_a/report"]
    assert [target.folder for target in recipe.targets()] == folders


def test_sections_without_effect_cause_a_warning(tmp_path: Path) -> None:
    notes, outputs = local_source(tmp_path, "notes", []), {"up_to": "filtered", "signatures": True}

    joint = {"dedup": {}, "seen": ["stores/old"], "max_removed": {"every_source": "0.5"}}
    filtering = {"refuse_licences": ["cc-by-4.0"], "outputs": {"up_to": "normalized"}}

    assert [*parse_recipe(notes, outputs=outputs, **joint).warnings()] == [
        f"`{name}` is ignored, because `outputs.up_to` is filtered"
        for name in ("dedup", "seen", "max_removed", "outputs.signatures")
    ]
    assert [*parse_recipe(notes | {"filters": {"length": {"min_words": 2}}}, **filtering).warnings()] == [
        f"`{name}` is ignored, because `outputs.up_to` is normalized" for name in ("refuse_licences", "sources.filters")
    ]
    assert [*parse_recipe(notes, dedup={}).warnings()] == []
    assert [*parse_recipe(notes, tokenizer=None).warnings()] == [], "without a tokenizer, the report counts no tokens"
    assert [*parse_recipe(notes, dedup=None).warnings()] == [
        "`dedup` is empty and has no effect; to request it with all defaults, write `dedup: {}`"
    ]
    assert [*parse_recipe(notes, max_removed=None).warnings()] == [  # {} lacks a required key
        "`max_removed` is empty and has no effect; set it, or remove it"
    ]


def test_the_shipped_recipe_is_read_and_has_no_folder_twice() -> None:
    recipe = StageARecipe.read(RECIPE)

    folders = [target.folder for target in recipe.targets()]
    assert len(set(folders)) == len(folders)
    assert {source.kind for source in recipe.sources} >= {"hub", "wikipedia", "stackexchange", "local"}


def test_the_section_of_a_source_is_read_back_from_its_content(tmp_path: Path) -> None:
    for source in some(recipe_with(tmp_path).sources):
        assert not isinstance(source, NormalizedSource)
        content = source.output_content(1234)

        parsed, shard_text_bytes = parse_source(content | {"licences": "of the table"})

        assert shard_text_bytes == 1234
        assert parsed.output_content(1234) == content
        assert {"path", "filters"}.isdisjoint(content)
