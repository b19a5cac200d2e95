"""Inventories and normalised rows as the UI shows them."""

from typing import Any

from pipeline_assets.corpus.formats.parquet import open_parquet
from pipeline_assets.corpus.harmony.control_tokens import MESSAGE, START
from pipeline_assets.corpus.nemotron.coverage import read_inventory
from pipeline_assets.corpus.spine.artifact import Artifact

Rows = list[dict[str, str]]
_SHOWN_COLUMNS = 20
_SHOWN_ROWS = 5
_SHOWN_CHARACTERS = 160


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


def preview_rows(shards: Artifact) -> Rows:
    """The first rows: id, exact tokens, what is asked first."""
    # The tokenizer is loaded only where it is needed.
    from pipeline_assets.corpus.nemotron.normalise_split import data_files

    with open_parquet(shards.path(data_files(shards)[0])) as file:
        columns = ["id", "stats_tokens", "stats_completion_tokens", "text"]
        rows = next(file.iter_batches(_SHOWN_ROWS, columns=columns, use_threads=False)).to_pylist()
    return [
        {
            "id": row["id"],
            "tokens": f"{row['stats_tokens']:,}",
            "of the completion": f"{row['stats_completion_tokens']:,}",
            "asked": " ".join(asked(row["text"])[:_SHOWN_CHARACTERS].split()),
        }
        for row in rows
    ]


def asked(text: str) -> str:
    """The first words of the user; all of a text that has none."""
    return text.partition(f"{START}user{MESSAGE}")[2].partition("<|")[0] or text
