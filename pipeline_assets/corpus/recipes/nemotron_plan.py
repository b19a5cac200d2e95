"""The plan of a nemotron recipe: what is to be fetched, by the listings, and how long reading it will take."""

from collections.abc import Collection, Sequence

from pipeline_assets.corpus.nemotron.split_pin import SplitFolder, pin_of_hub
from pipeline_assets.corpus.planning.estimate import Estimate, exactly
from pipeline_assets.corpus.planning.rates import at_work, fetch_seconds
from pipeline_assets.corpus.planning.recipe_plan import PlanSettings, RecipePlan, TargetPlan
from pipeline_assets.corpus.readers.hub_files import HubFile, HubFiles
from pipeline_assets.corpus.spine.inventory import Holding
from pipeline_assets.corpus.spine.target import Target
from pipeline_assets.systems.nemotron import INVENTORY, NORMALIZED_SHARDS, RAW, NemotronRecipe

Figures = dict[str, Estimate]
# Of JSON lines, by one worker: measured.
_CENSUS_BYTES_PER_S = 250e6
_NORMALISED_BYTES_PER_S = 20e6
_STORED = Estimate(4_000, 12_000, 4_000_000, "an inventory, and rejects that nobody knows")


def plan_nemotron(recipe: NemotronRecipe, held: Sequence[Holding], hub: HubFiles, settings: PlanSettings) -> RecipePlan:
    """
    Args:
        held: the state of the recipe's artifacts, as `holdings` tells it; what is current costs nothing.
    Raises:
        UsageError: a dataset that isn't pinned, a split or a folder that isn't there.
        InputError: from the hub.
    """
    before = hub.traffic.bytes
    raw = {target.partition: target for target in recipe.targets() if target.kind == RAW.name}
    plans = []
    fetched: set[str | None] = set()
    for holding in held:
        target = holding.target
        if holding.is_there or target.kind not in (INVENTORY.name, NORMALIZED_SHARDS.name):
            plans.append(TargetPlan(holding, {}))
            continue
        plans.append(TargetPlan(holding, _figures(target, raw[target.partition], hub, settings, fetched)))
        fetched.add(target.partition)
    return RecipePlan(plans, None, [], hub.traffic.bytes - before)


def _figures(
    target: Target, raw: Target, hub: HubFiles, settings: PlanSettings, fetched: Collection[str | None]
) -> Figures:
    """Of what reads all of a split; a sample takes less. The first of those that read it fetches it."""
    size, missing = _sizes(raw, hub, settings)
    rates = settings.record().rates()
    is_rows = target.kind == NORMALIZED_SHARDS.name
    speed = (_NORMALISED_BYTES_PER_S if is_rows else _CENSUS_BYTES_PER_S) * at_work(settings.engine.workers)
    stored = Estimate(size // 10, size // 3, size, "Parquet of what the files hold") if is_rows else _STORED
    figures = {
        "bytes": stored,
        "peak_disk_bytes": stored,
        "build_seconds": rates.seconds(rates.start_s + size / speed),
    }
    if raw.outside is None and raw.partition not in fetched:
        figures["bytes_fetched"] = exactly(missing, "the listing, less what the cache has")
        fetching = fetch_seconds(missing, settings.record().fetch_rate())
        if fetching is not None:
            figures["fetch_seconds"] = fetching
    return figures


def _sizes(raw: Target, hub: HubFiles, settings: PlanSettings) -> tuple[int, int]:
    """Bytes of the split's files, and how many of them are to be fetched."""
    if raw.outside is not None:
        assert isinstance(raw.outside, SplitFolder)
        files = raw.outside.below(settings.root).source_folder().files()
        return sum(file.bytes for file in files), 0
    dataset, revision = str(raw.recipe["dataset"]), str(raw.recipe["revision"])
    pinned = pin_of_hub(hub, dataset, revision, raw.recipe["split"], raw.recipe["files"]).outside
    listed = [HubFile(entry["name"], entry["bytes"], entry["digest"]) for entry in pinned]
    missing = sum(hub.bytes_missing(dataset, file, 0, file.size) for file in listed)
    return sum(file.size for file in listed), missing
