"""Inventories as the UI shows them."""

from typing import Any

from pipeline_assets.corpus.nemotron.coverage import read_inventory
from pipeline_assets.corpus.spine.artifact import Artifact

Rows = list[dict[str, str]]
_SHOWN_COLUMNS = 20


def preview_columns(inventory: Artifact) -> Rows:
    """The columns of a split, their types, and the share of rows that have them."""
    columns = list(read_inventory(inventory)["columns"].items())
    return [
        {"column": name, "types": ", ".join(column["types"]), "share of rows": column["share"]}
        for name, column in columns[:_SHOWN_COLUMNS]
    ]


def preview_coverage(coverage: Artifact) -> Rows:
    """A line for each split: rows, and the shares of what most later steps ask for."""
    splits: list[dict[str, Any]] = read_inventory(coverage)["splits"]
    wanted = ("uuid", "correctness", "tools", "reasoning_content", "licence")
    return [
        {
            "split": f"{one['dataset']} {one['split']}",
            "rows": f"{one['rows_counted']:,}",
            **{name: one["coverage"][name]["share"] for name in wanted},
        }
        for one in splits
    ]
