"""Fuzzer of readers: files and texts from outside, edited at random.

    make fuzz CASES=1000000                             # in equal numbers for each reader
    python benchmarks/fuzz_files.py --only Parquet --cases 1000 --seed 7

The tests define the readers, their valid inputs and what counts as a failure: tests/harness/fuzz_edits.py. Each reader
runs in a process of its own with limited memory, so that a crash, a hang or a lack of memory is a failure of one case.
A failure names the number that reproduces the case.
"""

import argparse
import json
import logging
import mmap
import multiprocessing
import os
import resource
import struct
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path

from evidence import table, write_result
from measure import machine_line

sys.path.extend(str(Path(__file__).parents[1] / "tests" / folder) for folder in ("builders", "harness"))

import fuzz_arrays
import fuzz_rows
import fuzz_sealed
import fuzz_texts
from fuzz_edits import LIMIT_S, Reader, check, draw_case

READERS: Sequence[Reader] = (
    *fuzz_texts.READERS,
    *fuzz_rows.READERS,
    *fuzz_arrays.READERS,
    *fuzz_sealed.READERS,
)
_MEMORY_BYTES = 2 << 30  # beyond what the process has before its first case


def run(reader: Reader, first: int, stop: int, progress: mmap.mmap, results: Connection) -> None:
    """Check cases by number and send failures; `progress` gets number and refusals."""
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as folder:
        len(reader.inputs)  # builds them
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + _MEMORY_BYTES, -1))
        refused = 0
        for number in range(first, stop):
            progress[:16] = struct.pack("<qq", number, refused)
            try:
                refused += check(reader, draw_case(reader, number), Path(folder))
            except BaseException:
                results.send((number, traceback.format_exc()))
    progress[:16] = struct.pack("<qq", stop, refused)


def fuzz(reader: Reader, first: int, count: int, until: float) -> tuple[int, int, dict[int, str]]:
    """Check cases until a time; return numbers of cases and refusals, and failures."""
    progress = mmap.mmap(-1, 16)
    ours, theirs = multiprocessing.Pipe(duplex=False)
    failures: dict[int, str] = {}
    number, stop, refused = first, first + count, 0
    while number < stop and time.monotonic() < until:
        progress[:16] = struct.pack("<qq", number, 0)
        process = multiprocessing.get_context("fork").Process(target=run, args=(reader, number, stop, progress, theirs))
        process.start()
        last, since = number, time.monotonic()
        while process.exitcode is None and time.monotonic() < until:
            process.join(0.2)
            while ours.poll():
                failures.update([ours.recv()])
            [now] = struct.unpack("<q", progress[:8])
            if now != last:
                last, since = now, time.monotonic()
            elif time.monotonic() - since > 3 * LIMIT_S + 30:  # the first case builds the inputs
                break
        if process.exitcode is None:
            process.kill()
            process.join()
            if time.monotonic() < until:
                failures[last] = "it hangs in a library"
        while ours.poll():
            failures.update([ours.recv()])
        number, more = struct.unpack("<qq", progress[:16])
        refused += more
        if number < stop and time.monotonic() < until:
            failures.setdefault(number, f"the process ended with status {process.exitcode}")
            number += 1
    return number - first, refused, failures


def main() -> None:
    parser = argparse.ArgumentParser(description="Let every reader read edited files")
    parser.add_argument("--cases", type=int, default=20_000, help="number of cases of all readers")
    parser.add_argument("--seed", type=int, default=0, help="number of the first case")
    parser.add_argument("--only", default="", help="only readers whose name contains this")
    parser.add_argument("--minutes", type=float, default=1e6, help="stop after this time, shared equally")
    options = parser.parse_args()
    print(f"{machine_line()}\n", flush=True)
    readers = [reader for reader in READERS if options.only in reader.name]
    started = time.monotonic()
    rows: list[dict[str, str | int]] = []
    for at, reader in enumerate(readers):
        begin = time.monotonic()
        until = begin + (started + 60 * options.minutes - begin) / (len(readers) - at)
        cases, refused, failures = fuzz(reader, options.seed, -(-options.cases // len(readers)), until)
        seconds = time.monotonic() - begin
        rows.append(
            {
                "reader": reader.name,
                "cases": cases,
                "read": cases - refused - len(failures),
                "refused in one line": refused,
                "failures": len(failures),
                "per s": round(cases / seconds),
            }
        )
        print(f"{reader.name}: {cases:,} cases, {len(failures)} failures, {seconds:.0f} s", file=sys.stderr, flush=True)
        causes: Counter[str] = Counter()
        for number, failure in sorted(failures.items()):
            lines = failure.strip().splitlines()
            cause = str([line for line in lines if line.startswith("  File")][-1:]) + lines[-1].partition(":")[0]
            causes[cause] += 1
            if causes[cause] == 1:
                print(f"{reader.name}, case {number}:\n{failure}", file=sys.stderr, flush=True)
    print("\n".join(table(rows)))
    total, failed = (sum(int(row[key]) for row in rows) for key in ("cases", "failures"))
    if not options.only:
        write_result("fuzz", cases=total, failures=failed, rows=rows, seconds=time.monotonic() - started)
    print(json.dumps({"benchmark": "fuzz_files", "cases": total, "failures": failed}))
    sys.stdout.flush()
    os._exit(1 if failed else 0)  # without waiting for threads of libraries


if __name__ == "__main__":
    main()
