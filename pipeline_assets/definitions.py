"""The Dagster code location of a data root, as a module that Dagster loads."""

import gc

from pipeline_assets.spine.usage import pause_gc

with pause_gc():  # collections during the imports find nothing, in a quarter of the time
    from pipeline_assets.code_location import build_definitions
    from resources.store import data_root

    defs = build_definitions(data_root())
    gc.freeze()
