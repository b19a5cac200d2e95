"""Benchmark of hub faults: every fault wherever a snapshot or a pin reads.

    python benchmarks/faults.py                         # about two minutes, most of it waiting as the hub requests

Prints the outcome, the number of requests and the bytes on the wire. The tests define the cases, in
tests/harness/fault_cases.py.
"""

import argparse
import json
import logging
import re
import string
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from evidence import write_result
from measure import machine_line

sys.path.extend(str(Path(__file__).parents[1] / "tests" / folder) for folder in ("builders", "harness"))

from answer_faults import ALWAYS, FaultKind
from fault_cases import CASES, PASSING, PLACES, FaultCase, Reading, open_hub, strike, undisturbed

from pipeline_assets.spine.errors import InputError

OUTCOMES = ("same", "error", "unnoticed")  # unnoticed: wrong bytes of the right length, for which a hub has no hash


@dataclass(frozen=True)
class Cell:
    """Outcome of a fault, compared with an undisturbed run."""

    error: str | None  # without values that differ between runs; None if the fault passed or was not noticed
    is_same: bool  # the result equals an undisturbed run's
    recovers: bool  # the same command succeeds when the fault is over
    requests: int  # until success or failure
    bytes_again: int  # file bytes on the wire in both runs, beyond an undisturbed run's

    @property
    def outcome(self) -> str:
        return "error" if self.error else "same" if self.is_same else "unnoticed"


def outcomes_at(cells: Mapping[FaultCase, Cell], place: str) -> list[str]:
    return [cell.outcome for case, cell in cells.items() if case.place.name == place]


def make_cell(struck: Reading, later: Reading, expected: Reading) -> Cell:
    again = struck.file_bytes + later.file_bytes - expected.file_bytes
    error = None if struck.error is None else without_names(struck.error)
    return Cell(error, struck.result == expected.result, later.result == expected.result, struck.requests, again)


def without_names(error: InputError) -> str:
    line = re.sub(r"[0-9a-f]{64}|\d+-\d+/\d+", "…", f"{error.what}; {error.fix}")
    line = re.sub(r"HTTP 4\d\d", "HTTP 4xx", line)
    return re.sub(r"\b[\d,]+ bytes|expected \d+|char \d+", "… bytes", line)


def table(cells: dict[FaultCase, Cell], expected: dict[str, Reading], letters: dict[str, str]) -> str:
    heads = " | ".join(f"{place.name} ({expected[place.name].requests})" for place in PLACES)
    lines = [f"| fault | strikes | {heads} | bytes again |", "|---" * (len(PLACES) + 3) + "|"]
    for kind in FaultKind:
        for count in (1, ALWAYS):
            row = {case.place.name: cell for case, cell in cells.items() if (case.kind, case.count) == (kind, count)}
            if not row:
                continue
            cells_text = [format_cell(row[place.name], letters) if place.name in row else "" for place in PLACES]
            again = sum(cell.bytes_again for cell in row.values())
            lines.append(
                f"| {kind} | {'always' if count is ALWAYS else 'once'} | {' | '.join(cells_text)} | {again:,} |"
            )
    return "\n".join(lines)


def format_cell(cell: Cell, letters: dict[str, str]) -> str:
    outcome = letters[cell.error] if cell.error else "=" if cell.is_same else "≠"
    return f"{outcome} {cell.requests}"


def meets_guarantees(case: FaultCase, cell: Cell) -> bool:
    """Check a case against the guarantees of README.md, which exclude wrong bytes.

    A passing fault changes nothing and costs no byte. Any other fault ends in one line, and the same command succeeds
    afterwards.
    """
    if case.kind in PASSING:
        return cell.recovers and cell.bytes_again == 0 and cell.outcome == ("same" if case.count == 1 else "error")
    return case.kind is FaultKind.WRONG_BYTES or (cell.outcome == "error" and cell.recovers)


def main() -> None:
    argparse.ArgumentParser(description="Every fault of the loopback hub wherever bytes are read").parse_args()
    started = time.monotonic()
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as scratch, open_hub(Path(scratch, "hub")) as hub:
        folder = Path(scratch)
        expected = undisturbed(hub, folder / "undisturbed")
        cells = {
            case: make_cell(*strike(case, hub, folder / str(number)), expected[case.place.name])
            for number, case in enumerate(CASES)
        }
    errors = list(dict.fromkeys(cell.error for cell in cells.values() if cell.error))
    letters = dict(zip(errors, string.ascii_lowercase, strict=False))
    print(f"{machine_line()}\n\n{table(cells, expected, letters)}\n")
    print("\n".join(f"- {letter}: {error}" for error, letter in letters.items()) + "\n")
    broken = [str(case) for case, cell in cells.items() if not meets_guarantees(case, cell)]
    print("\n".join(broken), file=sys.stderr)
    rows = [
        {"read": place.name, **{name: outcomes_at(cells, place.name).count(name) for name in OUTCOMES}}
        for place in PLACES
    ]
    write_result("faults", cases=len(cells), failures=len(broken), rows=rows, seconds=time.monotonic() - started)
    outcomes = [cell.outcome for cell in cells.values()]
    result = {"benchmark": "faults", "cases": len(cells)} | {name: outcomes.count(name) for name in sorted({*outcomes})}
    print(json.dumps(result | {"not_as_promised": len(broken)}))
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
