"""Pins of the sources of stage A: their files, each by its hash."""

from collections.abc import Iterable
from pathlib import Path

from pipeline_assets.build.pins.raw_pin import pin_of_folder, refuse_unpinned
from pipeline_assets.build.run import Run
from pipeline_assets.build.target import Target
from pipeline_assets.corpus.normalize.sources import HubSource, Source, parse_source
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.readers.listing import Listing
from pipeline_assets.corpus.readers.source_folder import SourceFolder
from pipeline_assets.corpus.readers.stackexchange.archive import is_archive, unpacker
from pipeline_assets.corpus.snapshot.plan import list_snapshot, raw_of_hub
from pipeline_assets.corpus.snapshot.recipe import SnapshotRecipe
from pipeline_assets.spine.build_result import BuildResult


def pin_inputs(target: Target, run: Run) -> BuildResult:
    """The files that a target is made of.

    Raises:
        UsageError, InputError: no revision is pinned yet; from the hub; from `pin_of_folder`; a dump can't be unpacked
            here.
    """
    if target.external_inputs is None:
        return raw_of_hub(*_sample(target, run), run.settings.fetch_threads, run.settings.log_every_s)
    assert isinstance(target.external_inputs, SourceFolder)
    if target.recipe.get("kind") == "stackexchange":
        for file in target.external_inputs.below(run.root).files():
            if is_archive(file.path):
                unpacker(file.path)  # said before an hour of hashing, not after
    return pin_of_folder(target.external_inputs, run.root, run.settings)


def list_inputs(target: Target, run: Run) -> Listing:
    """The same, told before anything is read."""
    if target.external_inputs is None:
        return list_snapshot(*_sample(target, run), run.settings.fetch_threads, run.settings.log_every_s)
    assert isinstance(target.external_inputs, SourceFolder)
    return Listing.from_files(target.external_inputs.below(run.root).files())


def _sample(target: Target, run: Run) -> tuple[HubFiles, SnapshotRecipe]:
    source, shard_text_bytes = parse_source(target.recipe)
    assert isinstance(source, HubSource)
    hub = run.require_hub("this source")
    refuse_unpinned(source.dataset, source.revision, target.name.partition("/")[0], hub)
    return hub, source.snapshot(shard_text_bytes)


def check_languages(sources: Iterable[Source], targets: Iterable[Target], kind: str, root: Path) -> None:
    """What tells languages can be loaded, of each source whose artifact of the kind, its filtered text, isn't sealed.

    Raises:
        UsageError: as `detection`.
    """
    languages = {source.source: source.filters.language for source in sources}
    for target in targets:
        language = languages[str(target.partition)] if target.kind.name == kind else None
        if language is not None and not target.matches_recipe(root):
            language.detection()
