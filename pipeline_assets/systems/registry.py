"""The systems of this project, each with the module that describes it."""

from pipeline_assets.build.systems import Systems

SYSTEMS = Systems(
    {
        "healing": "pipeline_assets.systems.healing",
        "stage_a": "pipeline_assets.systems.stage_a",
        "nemotron": "pipeline_assets.systems.nemotron",
        "stage2": "pipeline_assets.systems.stage2_mixture",
        "parallel_text": "pipeline_assets.systems.parallel_text",
    }
)
