"""Listings of a snapshot's files and row groups, before a build or for a pin."""

from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.readers.hub_listing import hub_input
from pipeline_assets.corpus.readers.listing import Listing
from pipeline_assets.corpus.snapshot.fetch import bytes_to_fetch, fetch_snapshot
from pipeline_assets.corpus.snapshot.line_prefixes import block_ranges
from pipeline_assets.corpus.snapshot.plan import hub_inputs, is_json_lines, list_data_files, plan_snapshot
from pipeline_assets.corpus.snapshot.recipe import SnapshotRecipe
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.engine import RunSettings


def pin_sample(hub: HubFiles, recipe: SnapshotRecipe, settings: RunSettings) -> BuildResult:
    """Fetch a sample; return a result whose inputs are the files and row groups."""
    plan, _, fetched = fetch_snapshot(hub, recipe, settings)
    counts = {"files": plan.file_count, "row_groups": len(plan.pieces), "rows": plan.rows}
    inputs = hub_inputs(recipe, plan)
    return BuildResult([], counts, {"dumps": plan.count_by_dump()}, external_inputs=inputs, provenance=fetched)


def list_snapshot(hub: HubFiles, recipe: SnapshotRecipe, settings: RunSettings) -> Listing:
    """List a snapshot's files and the bytes to fetch (an upper bound for JSON lines)."""
    listing = list_data_files(hub, recipe)
    source = f"{recipe.source}: {recipe.dataset}@{recipe.revision}"
    if is_json_lines(listing[0]):
        blocks = ((file, block) for file in listing for block in block_ranges(file.size))
        missing = sum(hub.count_missing_bytes(recipe.dataset, file, *block) for file, block in blocks)
        return Listing(tuple(hub_input(recipe.dataset, recipe.revision, file) for file in listing), {source: missing})
    plan = plan_snapshot(hub, recipe, settings)
    return Listing(tuple(hub_inputs(recipe, plan)), {source: bytes_to_fetch(hub, recipe, plan)})
