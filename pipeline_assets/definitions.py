"""Module that Dagster loads: the code location of a data root."""

import gc

from pipeline_assets.spine.gc_pause import pause_gc

with pause_gc():  # Garbage collections during the imports take a quarter of their time and free nothing.
    from pipeline_assets.code_location import build_definitions
    from resources.store import data_root

    defs = build_definitions(data_root())
    gc.freeze()
