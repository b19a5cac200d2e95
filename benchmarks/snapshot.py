"""Benchmark of a snapshot and of reading it back against bare library loops.

    python benchmarks/snapshot.py --mb 200 --runs 3

The ceilings: pyarrow → orjson → zstandard for writing, zstandard → msgspec for reading. The snapshot also filters,
checks text, finds repeated ids, hashes, stores rejects and makes every file durable; its input is already in the cache.
"""

import argparse
import json
import tempfile
from pathlib import Path

import pyarrow.parquet as pq
from corpus import write_shards
from measure import machine_line, measure_in_turn, ratios, table
from pages import write_pages

from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.snapshot.fetch import fetch_pieces
from pipeline_assets.corpus.snapshot.plan import plan_snapshot
from pipeline_assets.corpus.snapshot.recipe import SnapshotRecipe
from pipeline_assets.demo.corpora import EDU_DATASET
from pipeline_assets.demo.loopback_hub import LoopbackHub
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.systems.registry import SYSTEMS

RECIPE = Path(__file__).parents[1] / "manifests" / "recipes" / "healing_text_v1.yaml"


def write_hub(folder: Path, text_mb: int) -> None:
    """Fetch the demo corpus, repeated under new ids, to the cache; write its recipe."""
    source = folder / "source"
    text_bytes = write_pages(source)
    pages = pq.ParquetDataset(source / "data").read()
    unique = {row["id"]: row for row in pages.to_pylist() if row["text"]}  # without the demo's planted repeats
    for copy in range(text_mb * 1_000_000 // text_bytes + 1):
        rows = [row | {"id": f"{row['id']}-{copy}"} for row in unique.values()]
        path = folder / "hub" / "datasets" / EDU_DATASET / "data" / f"CC-MAIN-{copy:04d}" / "train.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(pages.from_pylist(rows, pages.schema), path, compression="zstd", row_group_size=1000)
    with LoopbackHub(folder / "hub") as hub:
        changes = {"revision": hub.commits()[EDU_DATASET], "amount": {"text_bytes": 10**12}}
        recipe = SnapshotRecipe.model_validate(SYSTEMS.read_recipe(RECIPE).snapshot.model_dump() | changes)
        files = HubFiles(folder / "cache", endpoint=hub.endpoint)
        settings = RunSettings(fetch_threads=8)
        fetch_pieces(files, recipe, plan_snapshot(files, recipe, settings), settings)
    (folder / "recipe.json").write_text(recipe.model_dump_json())


def main() -> None:
    parser = argparse.ArgumentParser(description="Parquet → Document shards and back, against bare loops")
    parser.add_argument("--mb", type=int, default=130, help="megabytes of text")
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    script = Path(__file__).with_name("flows.py")
    print(f"{machine_line()}; median of {options.runs}, {options.mb} MB of text\n")
    result: dict[str, float] = {}
    for write, flows, workers in (
        (write_hub, ("bare snapshot", "snapshot"), "2"),
        (write_shards, ("bare read", "read"), "1"),
    ):
        with tempfile.TemporaryDirectory() as temporary:
            write(Path(temporary), options.mb)
            measured = measure_in_turn(script, flows, [temporary, workers], options.runs)
        print(table(measured, flows[0], options.mb) + "\n")
        result |= ratios(measured, flows[0])
    print(json.dumps({"benchmark": "snapshot", "mb": options.mb, "cpu_to_ceiling": result}))


if __name__ == "__main__":
    main()
