"""The raw pin of a source, or of an evaluation set: its files, of a hub or of a folder here, each by its hash."""

from pipeline_assets.corpus.normalize.sources import HubSource, source_of
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.readers.raw_pin import pin_of_folder, refuse_unpinned
from pipeline_assets.corpus.readers.source_folder import SourceFolder
from pipeline_assets.corpus.readers.stackexchange.archive import check_readable
from pipeline_assets.corpus.recipes.run import Run
from pipeline_assets.corpus.snapshot.plan import list_snapshot, raw_of_hub
from pipeline_assets.corpus.snapshot.recipe import SnapshotRecipe
from pipeline_assets.corpus.spine.target import BuildResult, Target
from pipeline_assets.corpus.trust.figures import Listing


def pin_inputs(target: Target, run: Run) -> BuildResult:
    """The files that a target is made of.

    Raises:
        UsageError, InputError: no revision is pinned yet; from the hub; from `pin_of_folder`; a dump can't be unpacked
            here.
    """
    if target.outside is None:
        return raw_of_hub(*_sample(target, run), run.settings.fetch_threads, run.settings.log_every_s)
    assert isinstance(target.outside, SourceFolder)
    if target.recipe.get("kind") == "stackexchange":
        for file in target.outside.below(run.root).files():
            check_readable(file.path)  # said before an hour of hashing, not after
    return pin_of_folder(target.outside, run.root, run.settings)


def list_inputs(target: Target, run: Run) -> Listing:
    """The same, told before anything is read."""
    if target.outside is None:
        return list_snapshot(*_sample(target, run), run.settings.fetch_threads, run.settings.log_every_s)
    assert isinstance(target.outside, SourceFolder)
    return Listing.of_files(target.outside.below(run.root).files())


def _sample(target: Target, run: Run) -> tuple[HubFiles, SnapshotRecipe]:
    source, shard_text_bytes = source_of(target.recipe)
    assert isinstance(source, HubSource)
    refuse_unpinned(source.dataset, source.revision, target.name.partition("/")[0])
    return run.hub_for("this source"), source.snapshot(shard_text_bytes)
