"""Benchmark of building sealed candidate pools against bare polars.

    python benchmarks/pools.py --rows 100000 --characters 4000 --runs 3
    python benchmarks/pools.py --rows 1000000 --characters 2000 --runs 1

The ceiling, bare polars, reads each file once and writes a Parquet file of it for each pool, in zstd of the same level.
It does not sort, spread rows over files by their ids, hash, cut pages by content, or sync. Before speeds are compared,
every pool is proven to have the same rows in all flows.

Flows take turns, and a ratio is the median of the ratios within a round. Memory is the sum over all processes, for a
quarter of the rows and for all. Input: passages of the demo corpus, drawn separately for each row, so that pages of
Parquet contain few repeats; see pools_flows.py.
"""

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

import polars as pl
from measure import Measured, machine_line, measure
from pools_flows import POOLS, write_rows

_FLOWS = Path(__file__).with_name("pools_flows.py")
_OURS = {"corpusmill": 0, "corpusmill, 2 workers": 2}


def run(flow: str, folder: Path) -> Measured:
    return measure(_FLOWS, [flow.partition(",")[0], str(folder), str(_OURS.get(flow, 0))], 1)


def pool_rows(folder: Path) -> dict[str, tuple[int, int]]:
    """Return each pool's row count, with a sum of row hashes that ignores their order."""
    pools: dict[str, tuple[int, int]] = {}
    for path in sorted(folder.glob("*/*.parquet")):
        hashes, pool = pl.read_parquet(path).hash_rows(seed=1), path.parent.name.removeprefix("candidates_")
        rows, hash_sum = pools.get(pool, (0, 0))
        pools[pool] = rows + len(hashes), (hash_sum + sum(hashes.to_list())) % 2**64
    return {pool: own for pool, own in pools.items() if own[0]}


def measure_rounds(folder: Path, runs: int) -> list[dict[str, Measured]]:
    """Measure all flows in each round; exit if the rows of two flows differ."""
    rounds: list[dict[str, Measured]] = []
    chosen: list[dict[str, tuple[int, int]]] = []
    for number in range(runs):
        rounds.append({})
        for flow in ("bare", *_OURS):
            rounds[-1][flow] = figures = run(flow, folder)
            print(f"{flow}: {figures.cpu_s:.1f} CPU s", file=sys.stderr)
            if number == 0:
                chosen.append(pool_rows(folder / "bare" if flow == "bare" else folder / POOLS.folder))
    if any(own != chosen[0] for own in chosen):
        sys.exit(f"rows of the flows differ: {chosen}")
    return rounds


def main() -> None:
    parser = argparse.ArgumentParser(description="Deduplicated rows → candidate pools")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--characters", type=int, default=4_000, help="mean characters per row")
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        quarter, full = Path(temporary, "quarter"), Path(temporary, "full")
        for folder, rows in ((quarter, options.rows // 4), (full, options.rows)):
            folder.mkdir()
            write_rows(folder, rows, options.characters)
        rounds = measure_rounds(full, options.runs)
        quarter_peaks = {flow: run(flow, quarter).peak_mb for flow in _OURS}
    mb = options.rows * options.characters / 1e6
    print(f"{machine_line()}; median of {options.runs}, {options.rows:,} rows, {mb:,.0f} MB of text\n")
    print("| flow | CPU s | to bare | wall s | peak MiB | peak MiB of a quarter |\n" + "|---" * 6 + "|")
    to_bare = {}
    for flow in rounds[0]:
        ratio = statistics.median(figures[flow].cpu_s / figures["bare"].cpu_s for figures in rounds)
        cpu_s, wall_s = (
            statistics.median(getattr(figures[flow], name) for figures in rounds) for name in ("cpu_s", "wall_s")
        )
        peak, smaller = max(figures[flow].peak_mb for figures in rounds), quarter_peaks.get(flow)
        quarter_cell = "" if smaller is None else f"{smaller:,.0f}"
        print(f"| {flow} | {cpu_s:.2f} | {ratio:.2f} | {wall_s:.1f} | {peak:,.0f} | {quarter_cell} |")
        to_bare[flow] = round(ratio, 3)
    print("\n" + json.dumps({"benchmark": "pools", "rows": options.rows, "cpu_to_ceiling": to_bare}))


if __name__ == "__main__":
    main()
