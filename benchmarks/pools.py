"""Deduplicated rows → candidate pools, sealed: whole builds, beside bare polars.

    python benchmarks/pools.py --rows 100000 --characters 4000 --runs 3
    python benchmarks/pools.py --rows 1000000 --characters 2000 --runs 1

Two ceilings. `bare` is what one would type: for each pool a scan, a filter, and a Parquet file in zstd of the same
level. `bare, read once` reads each file once, filters it for all pools, and writes a file of each: the least there is
to do. Neither sorts, spreads rows over files by their ids, hashes, cuts pages by content, or syncs. Before speeds are
compared, the rows of every pool are proven to be those of the ceilings.

Flows take turns, and a ratio is the median of those of a round. Memory is that of all processes together, of a quarter
of the rows and of all. Input: passages of the demo corpus, drawn anew for each row, so that pages of Parquet hold few
repeats; see pools_flows.py.
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
_CEILINGS = ("bare", "bare, read once")
_OURS = {"corpusmill": 0, "corpusmill, 2 workers": 2}


def run(flow: str, folder: Path) -> Measured:
    return measure(_FLOWS, [flow.partition(", 2")[0], str(folder), str(_OURS.get(flow, 0))], 1)


def rows_of(folder: Path) -> dict[str, tuple[int, int]]:
    """How many rows each pool has, and a sum over them in which their order has no part."""
    found: dict[str, tuple[int, int]] = {}
    for path in sorted(folder.glob("*/*.parquet")):
        hashes, pool = pl.read_parquet(path).hash_rows(seed=1), path.parent.name.removeprefix("candidates_")
        rows, together = found.get(pool, (0, 0))
        found[pool] = rows + len(hashes), (together + sum(hashes.to_list())) % 2**64
    return {pool: own for pool, own in found.items() if own[0]}


def rounds_of(folder: Path, runs: int) -> list[dict[str, Measured]]:
    """Figures of all flows, round by round.

    Raises:
        SystemExit: two flows have other rows.
    """
    rounds: list[dict[str, Measured]] = []
    chosen: list[dict[str, tuple[int, int]]] = []
    for number in range(runs):
        rounds.append({})
        for flow in (*_CEILINGS, *_OURS):
            rounds[-1][flow] = figures = run(flow, folder)
            print(f"{flow}: {figures.cpu_s:.1f} CPU s", file=sys.stderr)
            if number == 0:
                chosen.append(rows_of(folder / "bare" if flow in _CEILINGS else folder / POOLS.folder))
    if any(own != chosen[0] for own in chosen):
        sys.exit(f"not all flows have the same rows: {chosen}")
    return rounds


def main() -> None:
    parser = argparse.ArgumentParser(description="Deduplicated rows → candidate pools")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--characters", type=int, default=4_000, help="of a row, on the average")
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        quarter, full = Path(temporary, "quarter"), Path(temporary, "full")
        for folder, rows in ((quarter, options.rows // 4), (full, options.rows)):
            folder.mkdir()
            write_rows(folder, rows, options.characters)
        rounds = rounds_of(full, options.runs)
        of_quarter = {flow: run(flow, quarter).peak_mb for flow in _OURS}
    mb = options.rows * options.characters / 1e6
    ratios = {
        ceiling: {flow: statistics.median(one[flow].cpu_s / one[ceiling].cpu_s for one in rounds) for flow in rounds[0]}
        for ceiling in _CEILINGS
    }
    print(f"{machine_line()}; median of {options.runs}, {options.rows:,} rows, {mb:,.0f} MB of text\n")
    print("| flow | CPU s | to bare | to bare, read once | wall s | peak MiB | of a quarter |\n" + "|---" * 7 + "|")
    for flow in rounds[0]:
        cpu_s, wall_s = (statistics.median(getattr(one[flow], name) for one in rounds) for name in ("cpu_s", "wall_s"))
        shown = " | ".join(f"{ratios[ceiling][flow]:.2f}" for ceiling in _CEILINGS)
        peak, smaller = max(one[flow].peak_mb for one in rounds), of_quarter.get(flow)
        beside = "" if smaller is None else f"{smaller:,.0f}"
        print(f"| {flow} | {cpu_s:.2f} | {shown} | {wall_s:.1f} | {peak:,.0f} | {beside} |")
    told = {ceiling: {flow: round(of[flow], 3) for flow in _OURS} for ceiling, of in ratios.items()}
    print("\n" + json.dumps({"benchmark": "pools", "rows": options.rows, "cpu_to_ceiling": told}))


if __name__ == "__main__":
    main()
