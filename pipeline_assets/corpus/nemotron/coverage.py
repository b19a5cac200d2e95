"""The stage `nemotron_coverage`: the inventories of all splits as one, and as one table."""

import json
from collections.abc import Sequence
from typing import Any

from pipeline_assets.corpus.nemotron.coverage_table import coverage_markdown
from pipeline_assets.corpus.nemotron.inventory import COVERAGE_MD, INVENTORY_FILE, INVENTORY_JSON, write_text
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.building import Building
from pipeline_assets.corpus.spine.manifest import StageVersion
from pipeline_assets.corpus.spine.target import Content

COVERAGE_STAGE = StageVersion("nemotron_coverage", 2)


def gather_coverage(building: Building, inventories: Sequence[Artifact]) -> Content:
    """`inventory.json` and `metadata_coverage.md` of all splits, in the order given."""
    read = [read_inventory(artifact) for artifact in inventories]
    files = [
        write_text(building, INVENTORY_JSON, json.dumps({"splits": read}, indent=1, ensure_ascii=False) + "\n"),
        write_text(building, COVERAGE_MD, coverage_markdown(read)),
    ]
    counts = {
        "splits": len(read),
        "rows": sum(one["rows_counted"] for one in read),
        "rejected": sum(sum(one["rejected"].values()) for one in read),
    }
    return Content(files, counts, {})


def read_inventory(inventory: Artifact) -> dict[str, Any]:
    """What the inventory of one split says."""
    return INVENTORY_FILE.read(inventory.path(INVENTORY_JSON))
