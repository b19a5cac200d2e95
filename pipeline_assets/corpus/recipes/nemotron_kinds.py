"""How the artifacts of the nemotron system are made."""

from pathlib import Path

from pipeline_assets.corpus.nemotron.coverage import COVERAGE_STAGE, gather_coverage
from pipeline_assets.corpus.nemotron.inventory import INVENTORY_STAGE, SplitInfo, take_inventory
from pipeline_assets.corpus.nemotron.sample_fetch import SampledSplit
from pipeline_assets.corpus.nemotron.split_pin import (
    RAW_STAGE,
    SplitFolder,
    fetch_split,
    pin_of_folder,
    pin_of_hub,
    pinned_files,
    split_folder_of,
)
from pipeline_assets.corpus.readers.source_files import SourceFile
from pipeline_assets.corpus.readers.source_folder import SourceFolder, files_of
from pipeline_assets.corpus.recipes.kind import Kind, RunSettings, by_files
from pipeline_assets.corpus.spine.artifact import Artifact, open_artifact
from pipeline_assets.corpus.spine.building import Building
from pipeline_assets.corpus.spine.manifest import Manifest
from pipeline_assets.corpus.spine.provenance import Stopwatch
from pipeline_assets.corpus.spine.sealing import WORK
from pipeline_assets.corpus.spine.target import Content, Target


def _build_raw(target: Target, root: Path, replace: bool, settings: RunSettings) -> Artifact:
    """Seals which files a split is made of; nothing but its manifest is written."""
    if target.state(root)[0] == "current":
        return open_artifact(root / target.folder)
    stopwatch = Stopwatch()
    if target.outside is None:
        hub, recipe = settings.hub_for("this dataset"), target.recipe
        content = pin_of_hub(hub, recipe["dataset"], recipe["revision"], recipe["split"], recipe["files"])
    else:
        assert isinstance(target.outside, SplitFolder)
        content = pin_of_folder(target.outside, root, settings.naming(target).engine)
    return target.seal_members(root, content, settings.provenance(), stopwatch, replace)


def _make_inventory(building: Building, target: Target, root: Path, settings: RunSettings) -> Content:
    [raw_target] = target.upstream
    pin = open_artifact(root / raw_target.folder).manifest
    recipe, decisions = pin.identity.recipe, pin.identity.decisions
    info = SplitInfo(
        recipe["dataset"], recipe["split"], recipe.get("revision"), decisions["found_by"], decisions["left_out"]
    )
    max_rows = target.recipe["max_rows"]
    if raw_target.outside is None and max_rows is not None:
        folder = building.path(f"{WORK}/sample/0").parent
        files = SampledSplit(settings.hub_for("this dataset"), *pinned_files(pin), folder).fetch(max_rows)
    else:
        files = _source_files(pin, raw_target, root, settings)
    content = take_inventory(building, files, info, max_rows, settings.engine, settings.zstd_level)
    if raw_target.outside is not None:
        _source_files(pin, raw_target, root, settings)  # else they were written to while they were read
    return content


def _source_files(pin: Manifest, raw: Target, root: Path, settings: RunSettings) -> list[SourceFile]:
    """The files of a split, on this machine, in order."""
    if raw.outside is None:
        hub = settings.hub_for("this dataset")
        return fetch_split(hub, pin, settings.fetch_threads, settings.engine.log_every_s)
    assert isinstance(raw.outside, SplitFolder)
    names = tuple(entry["name"] for entry in pin.identity.inputs)
    return files_of(SourceFolder(raw.outside.below(root).path, names), pin)


def _make_coverage(building: Building, target: Target, root: Path, settings: RunSettings) -> Content:
    return gather_coverage(building, [open_artifact(root / inventory.folder) for inventory in target.upstream])


RAW = Kind("nemotron/raw", RAW_STAGE, _build_raw, outside=split_folder_of)
INVENTORY = Kind("nemotron/inventory", INVENTORY_STAGE, by_files(_make_inventory))
METADATA_COVERAGE = Kind(
    "nemotron/metadata_coverage", COVERAGE_STAGE, by_files(_make_coverage), reads=lambda target: target.upstream
)
KINDS = (RAW, INVENTORY, METADATA_COVERAGE)
