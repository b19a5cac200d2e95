"""Benchmark of crash safety: `kill -9` or power loss before every disk operation.

    python benchmarks/crashes.py                        # about 90 minutes
    python benchmarks/crashes.py --only "split train"

Prints the number of crash points and of survived crashes. The tests define the cases and what counts as survived:
tests/harness/crash_cases.py, tests/harness/crash_proof.py.
"""

import argparse
import json
import logging
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from evidence import write_result
from measure import machine_line

sys.path.extend(str(Path(__file__).parents[1] / "tests" / folder) for folder in ("builders", "harness"))

from crash_cases import CASES, INLINE, Case, Sources, open_sources, without_git
from crash_proof import Proof

KINDS = {
    "create": ("create", "mkdir", "link"),
    "write": ("write",),
    "append": ("append",),
    "fsync": ("fsync",),
    "chmod": ("chmod",),
    "rename": ("rename",),
    "exchange": ("exchange",),
    "remove": ("unlink", "rmdir"),
}


@dataclass
class Tally:
    """Counts of the trials of one case, with the failures that they revealed."""

    points: int = 0
    survived: int = 0
    killed_before: Counter[str] = field(default_factory=Counter)
    losses: int = 0
    losses_survived: int = 0
    wrong: list[str] = field(default_factory=list)

    @property
    def killed(self) -> int:
        return self.killed_before.total()


def kill(proof: Proof, stride: int, tally: Tally) -> None:
    points = proof.points()
    tally.points = len(points)
    for point in points[::stride]:
        outcome = proof.run(point)
        if outcome.killed_before is not None:
            tally.killed_before[outcome.killed_before] += 1
            tally.survived += not outcome.wrong
        tally.wrong += [f"{point.start.name}, step {point.at}, {outcome.killed_before}: {it}" for it in outcome.wrong]


def lose_power(proof: Proof, tally: Tally) -> None:
    for start in proof.starts():
        for loss in proof.power_losses(start):
            wrong = proof.after(loss)
            tally.losses += 1
            tally.losses_survived += not wrong
            tally.wrong += [f"power loss, {loss.badness}: {it}" for it in wrong]


def run_case(case: Case, sources: Sources) -> Tally:
    tally = Tally()
    with tempfile.TemporaryDirectory() as folder:
        proof = Proof(case, sources, Path(folder, "case"))
        kill(proof, case.stride, tally)
        if case.engine is INLINE:
            lose_power(proof, tally)
    return tally


def kills_table(tallies: dict[Case, Tally]) -> str:
    """Format a row per case, with a column for each operation that a kill prevented."""
    lines = [
        f"| case | workers | killed | points | kills | survived | {' | '.join(KINDS)} |",
        "|---" * (6 + len(KINDS)) + "|",
    ]
    for case, tally in tallies.items():
        counts = [sum(tally.killed_before[kind] for kind in kinds) for kinds in KINDS.values()]
        cells = [case.name, case.workers, case.victim, tally.points, tally.killed, tally.survived, *counts]
        lines.append("| " + " | ".join(str(cell or "") for cell in cells) + " |")
    every = list(tallies.values())
    sums = [sum(tally.killed_before[kind] for tally in every for kind in kinds) for kinds in KINDS.values()]
    totals = [sum(getattr(tally, name) for tally in every) for name in ("points", "killed", "survived")]
    lines.append("| **all** | | | " + " | ".join(f"**{cell:,}**" for cell in [*totals, *sums]) + " |")
    return "\n".join(lines)


def losses_table(tallies: dict[Case, Tally]) -> str:
    """Format a row per case, with the survived power losses by kind of damage."""
    lines = ["| case | states of the disk | survived |", "|---|---|---|"]
    shown = {case: tally for case, tally in tallies.items() if tally.losses}
    lines += [f"| {case.name} | {tally.losses} | {tally.losses_survived} |" for case, tally in shown.items()]
    losses, survived = (sum(getattr(t, name) for t in shown.values()) for name in ("losses", "losses_survived"))
    return "\n".join([*lines, f"| **all** | **{losses:,}** | **{survived:,}** |"])


def write_evidence(tallies: dict[Case, Tally], seconds: float) -> None:
    """Write two results for the page of evidence: of kills, and of power losses."""
    kills = [
        {
            "case": case.name,
            "workers": case.workers,
            "killed": case.victim,
            "points": tally.points,
            "kills": tally.killed,
            "survived": tally.survived,
        }
        for case, tally in tallies.items()
    ]
    losses = [
        {"case": case.name, "states of the disk": tally.losses, "survived": tally.losses_survived}
        for case, tally in tallies.items()
        if tally.losses
    ]
    for name, rows, cases in (("crashes", kills, "kills"), ("power_losses", losses, "states of the disk")):
        total, survived = (sum(row[key] for row in rows) for key in (cases, "survived"))
        write_result(name, cases=total, failures=total - survived, rows=rows, seconds=seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description="kill -9 and power loss at every step on the disk")
    parser.add_argument("--only", default="", help="run the cases whose name contains this")
    parser.add_argument("--minutes", type=float, default=1e6, help="start no case after this time")
    options = parser.parse_args()
    started = time.monotonic()
    logging.disable(logging.WARNING)  # dead workers log thousands of warnings
    print(f"{machine_line()}\n", flush=True)
    tallies: dict[Case, Tally] = {}
    with without_git(), open_sources() as sources:
        for case in CASES:
            if options.only in case.name and time.monotonic() - started < 60 * options.minutes:
                tallies[case] = run_case(case, sources)
                print(f"{case}: {tallies[case].survived} of {tallies[case].killed} kills", file=sys.stderr, flush=True)
    print(f"{kills_table(tallies)}\n\n{losses_table(tallies)}\n")
    wrong = [f"{case}: {it}" for case, tally in tallies.items() for it in tally.wrong]
    print("\n".join(wrong[:20]), file=sys.stderr)
    if not options.only:
        write_evidence(tallies, time.monotonic() - started)
    every = tallies.values()
    result = {
        "benchmark": "crashes",
        "kills": sum(tally.killed for tally in every),
        "survived": sum(tally.survived for tally in every),
        "power_losses": sum(tally.losses for tally in every),
        "power_losses_survived": sum(tally.losses_survived for tally in every),
    }
    print(json.dumps(result))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
