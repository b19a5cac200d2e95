"""Dataset cards of pool folders, with a config for each pool."""

from collections.abc import Sequence
from dataclasses import replace

from pipeline_assets.corpus.nemotron.inventory import write_text
from pipeline_assets.corpus.publishing.dataset_card import CardContent, collect_splits_and_sources, dataset_card
from pipeline_assets.corpus.readers.hub_configs import CARD_FILE
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.manifest import Manifest
from pipeline_assets.spine.staging import OutputFile, StagingDir

SHARED_ROWS_NOTE = "A row may be in several pools."


def write_pool_card(staging: StagingDir, manifest: Manifest, files: Sequence[OutputFile]) -> OutputFile:
    """Write the card of a folder of pools, with a config for each pool.

    `files` are the Parquet files of all pools; the `storage` of `manifest` need not list them yet.
    """
    pools = replace(manifest, storage=[file.stored for file in files])
    splits, sources = collect_splits_and_sources([Artifact(staging.folder, pools)])
    title = manifest.name.rpartition("/")[2]
    card = CardContent(title, f"path/of/{title}", splits, sources, [pools], notes=[SHARED_ROWS_NOTE, ""])
    return write_text(staging, CARD_FILE, dataset_card(card))
