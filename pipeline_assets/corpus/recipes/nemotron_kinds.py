"""How the artifacts of the nemotron system are made."""

import json
from collections.abc import Sequence
from pathlib import Path

from pipeline_assets.corpus.nemotron.coverage import COVERAGE_STAGE, gather_coverage
from pipeline_assets.corpus.nemotron.hf_layout import HF_LAYOUT_STAGE, lay_out
from pipeline_assets.corpus.nemotron.inventory import INVENTORY_STAGE, SplitInfo, take_inventory
from pipeline_assets.corpus.nemotron.preview import preview_columns, preview_coverage
from pipeline_assets.corpus.nemotron.row_settings import RowOrigin
from pipeline_assets.corpus.nemotron.rows_recipe import NORMALISE_STAGE, RowsRecipe
from pipeline_assets.corpus.nemotron.sample_fetch import SampledSplit
from pipeline_assets.corpus.nemotron.shards_audit import coverage_within, texts_parse, tokens_round_trip
from pipeline_assets.corpus.nemotron.split_pin import (
    RAW_STAGE,
    SplitFolder,
    fetch_split,
    pin_of_folder,
    pin_of_hub,
    pinned_files,
    split_folder_of,
)
from pipeline_assets.corpus.preview import preview_inputs
from pipeline_assets.corpus.publishing.card_split import card_split
from pipeline_assets.corpus.publishing.dataset_card import CardContent, dataset_card
from pipeline_assets.corpus.readers.hub_configs import CARD
from pipeline_assets.corpus.readers.source_files import SourceFile
from pipeline_assets.corpus.readers.source_folder import SourceFolder, files_of
from pipeline_assets.corpus.recipes.kind import FILES, LEDGER, Kind, by_files, check, check_beside
from pipeline_assets.corpus.recipes.run import Run
from pipeline_assets.corpus.rows.conversations import ConversationRows, LaidOutRows
from pipeline_assets.corpus.spine.artifact import Artifact, open_artifact
from pipeline_assets.corpus.spine.audit import Verdict
from pipeline_assets.corpus.spine.building import Building
from pipeline_assets.corpus.spine.errors import UsageError
from pipeline_assets.corpus.spine.manifest import Manifest
from pipeline_assets.corpus.spine.provenance import Stopwatch
from pipeline_assets.corpus.spine.sealing import WORK
from pipeline_assets.corpus.spine.target import Content, Target


def _build_raw(target: Target, run: Run) -> Artifact:
    """Seals which files a split is made of; nothing but its manifest is written."""
    if target.is_sealed(run.root):
        return open_artifact(run.root / target.folder)
    stopwatch = Stopwatch()
    if target.outside is None:
        hub, recipe = run.hub_for("this dataset"), target.recipe
        try:
            content = pin_of_hub(hub, recipe["dataset"], recipe["revision"], recipe["split"], recipe["files"])
        except UsageError as error:
            name = target.name.partition("/")[0]
            error.fix = error.fix.replace("--recipe with the recipe's name: it", f"--recipe {name}, which")
            raise
    else:
        assert isinstance(target.outside, SplitFolder)
        content = pin_of_folder(target.outside, run.root, run.naming(target.partition).engine)
    return target.seal_members(run.root, content, run.provenance(), stopwatch, run.replace)


def _make_inventory(building: Building, target: Target, run: Run) -> Content:
    [raw_target] = target.upstream
    pin = open_artifact(run.root / raw_target.folder).manifest
    recipe, decisions = pin.identity.recipe, pin.identity.decisions
    info = SplitInfo(
        recipe["dataset"], recipe["split"], recipe.get("revision"), decisions["found_by"], decisions["left_out"]
    )
    max_rows = target.recipe["max_rows"]
    files = _rows_files(building, raw_target, max_rows, run)
    content = take_inventory(building, files, info, max_rows, run.engine, run.zstd_level)
    _check_unchanged(raw_target, run)
    return content


def _make_normalized(building: Building, target: Target, run: Run) -> Content:
    # The tokenizer is loaded only where it is needed.
    from pipeline_assets.corpus.nemotron.normalise_split import normalise_split

    [raw_target] = target.upstream
    pin, recipe = open_artifact(run.root / raw_target.folder).manifest.identity, target.recipe
    source = pin.recipe
    rows = RowsRecipe.from_content({**recipe["rows"], "tokenizer": target.tokenizer})
    rules = rows.rules(recipe["reasoning_effort"])
    origin = RowOrigin(
        dataset=source["dataset"],
        subset=pin.decisions.get("config") if recipe["subset"] is None else recipe["subset"],
        split=source["split"],
        domain=recipe["domain"],
        file="",
        revision=source.get("revision"),
    )
    files = _rows_files(building, raw_target, rules.max_rows, run)
    content = normalise_split(building, files, origin, rules, run.engine, run.zstd_level)
    _check_unchanged(raw_target, run)
    return content


def _rows_files(building: Building, raw: Target, max_rows: int | None, run: Run) -> list[SourceFile]:
    """The files of a split, in order; of large ones on a hub only what a sample of the rows reads."""
    pin = open_artifact(run.root / raw.folder).manifest
    if raw.outside is None and max_rows is not None:
        folder = building.path(f"{WORK}/sample/0").parent
        return SampledSplit(run.hub_for("this dataset"), *pinned_files(pin), folder).fetch(max_rows)
    return _source_files(pin, raw, run)


def _check_unchanged(raw: Target, run: Run) -> None:
    """
    Raises:
        InputError: files of a folder were written to while they were read.
    """
    if raw.outside is not None:
        _source_files(open_artifact(run.root / raw.folder).manifest, raw, run)


def _source_files(pin: Manifest, raw: Target, run: Run) -> list[SourceFile]:
    """The files of a split, on this machine, in order."""
    if raw.outside is None:
        hub = run.hub_for("this dataset")
        return fetch_split(hub, pin, run.fetch_threads, run.engine.log_every_s)
    assert isinstance(raw.outside, SplitFolder)
    names = tuple(entry["name"] for entry in pin.identity.inputs)
    return files_of(SourceFolder(raw.outside.below(run.root).path, names), pin)


def _make_hf_layout(building: Building, target: Target, run: Run) -> Content:
    splits = [open_artifact(run.root / split.folder) for split in target.upstream]
    card = _card(target, splits, run.root) if target.recipe["readme"] else None
    return lay_out(building, splits, card)


def _card(target: Target, splits: Sequence[Artifact], root: Path) -> str:
    """What README.md says of a dataset whose splits are normalised."""
    source = open_artifact(root / target.upstream[0].upstream[0].folder).manifest.identity.recipe
    identity = splits[0].manifest.identity
    assert identity.tokenizer is not None
    content = CardContent(
        title=f"{source['dataset'].rpartition('/')[2]}, normalised",
        repository=target.folder.name,
        source=source["dataset"],
        revision=source.get("revision"),
        template=identity.decisions["template"],
        analysis=identity.decisions["analysis"],
        loss_mode=identity.decisions["loss_mode"],
        tokenizer_sha256=identity.tokenizer["sha256"],
        choices=_choices(splits),
        splits=[card_split(split) for split in splits],
    )
    return dataset_card(content)


def _choices(splits: Sequence[Artifact]) -> dict[str, str]:
    """What decided the rows of a dataset beside its template, in words."""
    recipes = [split.manifest.identity.recipe for split in splits]
    rows = recipes[0]["rows"]
    efforts = {recipe["reasoning_effort"] for recipe in recipes} - {None}
    dropped = {"drop_invalid_harmony": "text that is no Harmony", "drop_empty_completion": "an empty completion"}
    hidden = {"keep_user_names": "user names", "keep_urls": "urls"}
    return {
        "system message": "none" if rows["system"] is None else json.dumps(rows["system"], ensure_ascii=False),
        **({"reasoning effort in it": "by split: " + ", ".join(sorted(efforts))} if efforts else {}),
        "rows of a split": "all" if rows["max_rows"] is None else f"a sample of {rows['max_rows']:,} at most",
        "rejected with": ", ".join(what for key, what in dropped.items() if rows[key]) or "nothing that can be told",
        "left out of meta_source_json": ", ".join(what for key, what in hidden.items() if not rows[key]) or "nothing",
    }


def _make_coverage(building: Building, target: Target, run: Run) -> Content:
    return gather_coverage(building, [open_artifact(run.root / inventory.folder) for inventory in target.upstream])


def coverage_within_inventory(shards: Artifact, target: Target, root: Path) -> Verdict:
    """Rows have the metadata that the inventory found in their split: never more, and fewer by rejects alone."""
    inventories = [open_artifact(root / one.folder) for one in target.compared_to if one.is_sealed(root)]
    if not inventories:
        return Verdict(True, "nothing to compare", applies=False)
    return coverage_within(shards, *inventories)


RAW = Kind(
    "nemotron/raw",
    RAW_STAGE,
    _build_raw,
    """The files of a split, each by its hash: of a hub dataset at the recipe's commit, or of a folder here.

    The dataset's card says which they are, else their names. Nothing is copied.""",
    formats=frozenset({"huggingface", "file"}),
    outside=split_folder_of,
    preview=preview_inputs,
)
INVENTORY = Kind(
    "nemotron/inventory",
    INVENTORY_STAGE,
    by_files(_make_inventory),
    """What the rows of a split are: columns, types by role, tags, and the share of rows that have which metadata.

    Of all rows, or of a sample as the recipe asks. Bad rows are kept aside with their reasons.""",
    checks=(FILES, LEDGER),
    preview=preview_columns,
)
METADATA_COVERAGE = Kind(
    "nemotron/metadata_coverage",
    COVERAGE_STAGE,
    by_files(_make_coverage),
    "The inventories of all splits as one table. Waits until every split of the recipe has its own.",
    preview=preview_coverage,
)
NORMALIZED_SHARDS = Kind(
    "nemotron/normalized_shards",
    NORMALISE_STAGE,
    by_files(_make_normalized),
    """Rows of a split as Harmony texts, with metadata, quality and exact token counts, in one schema.

    Each names the file, the row and the commit that it is from; rows that give no text are kept aside with reasons.""",
    formats=frozenset({"parquet"}),
    rows=ConversationRows,
    checks=(
        FILES,
        LEDGER,
        check(texts_parse),
        check(tokens_round_trip),
        check_beside(coverage_within_inventory, is_blocking=False),
    ),
)
HF_LAYOUT = Kind(
    "nemotron/hf_layout",
    HF_LAYOUT_STAGE,
    by_files(_make_hf_layout),
    "The normalised rows of a dataset in one folder, as a hub has them, with its card. Waits for all its splits.",
    formats=frozenset({"parquet"}),
    rows=LaidOutRows,
    labels=(CARD,),
)
KINDS = (RAW, INVENTORY, METADATA_COVERAGE, NORMALIZED_SHARDS, HF_LAYOUT)
