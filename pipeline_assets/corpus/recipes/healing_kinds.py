"""How the artifacts of the healing system are made."""

from pathlib import Path

from pipeline_assets.corpus.megatron_audit import (
    ids_in_range,
    index_reads_back,
    no_document_in_both_splits,
    no_valid_text_in_train,
    token_budget_met,
    valid_fraction_is_plausible,
)
from pipeline_assets.corpus.megatron_recipe import MegatronRecipe
from pipeline_assets.corpus.megatron_split import (
    DATASET_STAGE,
    SPLIT_STAGE,
    SplitSettings,
    build_split,
    describe_dataset,
)
from pipeline_assets.corpus.planning.track_record import read_track_record
from pipeline_assets.corpus.preview import preview_selection
from pipeline_assets.corpus.recipes.kind import FILES, LEDGER, Kind, by_files, by_members, check
from pipeline_assets.corpus.recipes.run import Run
from pipeline_assets.corpus.rows.documents import SnapshotRows
from pipeline_assets.corpus.rows.splits import SplitRows
from pipeline_assets.corpus.sampling.split import SPLITS, Split
from pipeline_assets.corpus.snapshot.recipe import SnapshotRecipe
from pipeline_assets.corpus.snapshot.take import SNAPSHOT_STAGE, SnapshotSettings, take_snapshot
from pipeline_assets.corpus.spine.artifact import open_artifact
from pipeline_assets.corpus.spine.building import Building
from pipeline_assets.corpus.spine.target import Content, Target
from pipeline_assets.corpus.text_selection import SELECTION_STAGE, TextRecipe, select_shards, selected_shards


def _make_snapshot(building: Building, target: Target, run: Run) -> Content:
    snapshot_settings = SnapshotSettings(run.engine, run.zstd_level, run.fetch_threads, read_track_record(run.root))
    recipe = SnapshotRecipe.of_rows(target.recipe)
    return take_snapshot(building, run.hub_for("a snapshot"), recipe, snapshot_settings)


def _make_selection(building: Building, target: Target, run: Run) -> Content:
    [snapshot] = target.upstream
    return select_shards(open_artifact(run.root / snapshot.folder), TextRecipe.from_content(target.recipe))


def _make_split(building: Building, target: Target, run: Run) -> Content:
    [selection] = target.upstream
    [snapshot] = selection.upstream
    selected = open_artifact(run.root / selection.folder).manifest
    [made_from] = selected.identity.inputs
    recipe = MegatronRecipe.from_content({key: value for key, value in target.recipe.items() if key != "split"})
    return build_split(
        building,
        open_artifact(run.root / snapshot.folder, made_from["digest"]),
        selected_shards(selected),
        recipe,
        _split(target.recipe["split"]),
        SplitSettings(run.engine, run.zstd_level, record=read_track_record(run.root)),
    )


def _describe_dataset(target: Target, root: Path) -> Content:
    _, *splits = target.upstream
    opened = {_split(split.partition): open_artifact(root / split.folder) for split in splits}
    return describe_dataset(opened, MegatronRecipe.from_content(target.recipe))


def _split(name: str | None) -> Split:
    return next(split for split in SPLITS if split == name)


FINEWEB_EDU_SNAPSHOT = Kind(
    "healing/fineweb_edu_snapshot",
    SNAPSHOT_STAGE,
    by_files(_make_snapshot),
    """Documents of FineWeb-Edu at the recipe's commit, sampled by row group over all dumps.

    Each document names the file and row it came from. Rows that fail a rule are counted, bad rows are kept aside.""",
    formats=frozenset({"huggingface", "jsonl"}),
    checks=(FILES, LEDGER),
    rows=SnapshotRows,
)
HEALING_TEXT_MANIFEST = Kind(
    "healing/healing_text_manifest",
    SELECTION_STAGE,
    by_files(_make_selection),
    "Which shards of the snapshot the healing set is made of, each hashed again, and what holds for all of them.",
    preview=preview_selection,
)
MEGATRON_SPLIT = Kind(
    "healing/megatron_split",
    SPLIT_STAGE,
    by_files(_make_split),
    "Megatron token files of one split: o200k Harmony ids, one sequence a document, cut at the token budget.",
    formats=frozenset({"megatron"}),
    rows=SplitRows,
    checks=(FILES, LEDGER, *map(check, (index_reads_back, ids_in_range, token_budget_met))),
)
MEGATRON_DATASET = Kind(
    "healing/megatron_dataset",
    DATASET_STAGE,
    by_members(_describe_dataset),
    "Both splits under one digest: what a training run names.",
    checks=(
        FILES,
        check(no_document_in_both_splits),
        check(valid_fraction_is_plausible, is_blocking=False),  # by chance it fails once in a while, for ever
        check(no_valid_text_in_train, is_blocking=False),
    ),
)
KINDS = (FINEWEB_EDU_SNAPSHOT, HEALING_TEXT_MANIFEST, MEGATRON_SPLIT, MEGATRON_DATASET)
