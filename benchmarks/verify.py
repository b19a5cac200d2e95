"""Benchmark of verifying an artifact against openssl and sha256sum.

    python benchmarks/verify.py --mb 2000 --runs 3

Both only hash the same files. The files are in the page cache, so that sha256 is measured and not the disk. The ceiling
is openssl, two processes with half of the files each: hashlib uses the same library with the processor's SHA
instructions, which coreutils' sha256sum may not use. The hashes of all flows are proven equal.
"""

import argparse
import hashlib
import json
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from measure import machine_line, measure, ratios, table

FLOWS = ("openssl", "sha256sum", "verify, 1 thread", "verify, 2 threads")
_FILES = 16


def seal_files(folder: Path, mb: int) -> None:
    """Seal an artifact of files that contain the same random bytes."""
    from pipeline_assets.spine.durable import DurableFile
    from pipeline_assets.spine.manifest import Identity, Manifest, StageVersion
    from pipeline_assets.spine.opening import open_staging_dir
    from pipeline_assets.spine.staging import OutputFile

    block = random.Random(0).randbytes(1_000_000)
    files = []
    with open_staging_dir(folder, {}) as building:
        for number in range(_FILES):
            with DurableFile(building.path(f"{number:02d}.bin")) as file:
                for _ in range(mb // _FILES):
                    file.write(block)
            files.append(OutputFile(f"{number:02d}.bin", 0, file.bytes_written, file.sha256, file.sha256))
        content = [file.content for file in files]
        identity = Identity(StageVersion("random", 1), {}, [], None, {}, {}, content)
        building.seal(Manifest("bench/random", "random", identity, [file.stored for file in files], {}))


def by_programs(command: list[str], folder: Path) -> None:
    """Hash half of the files in each of two processes of a program."""
    paths = sorted(folder.glob("*.bin"))
    halves = [paths[: _FILES // 2], paths[_FILES // 2 :]]
    running = [subprocess.Popen([*command, *map(str, half)], stdout=subprocess.PIPE, text=True) for half in halves]
    words = [word for process in running for word in process.communicate()[0].split()]
    print_hashes([word for word in words if len(word) == 64])


def by_verify(folder: Path, threads: int) -> None:
    from pipeline_assets.systems.registry import SYSTEMS
    from pipeline_assets.trust.result import VerificationScope
    from pipeline_assets.trust.verify import read_and_check, scan_chain

    verification = scan_chain(folder, VerificationScope(threads=threads), SYSTEMS.label_names)
    read_and_check(verification)
    assert verification.verdict == "intact"
    print_hashes([task.expected_hash for task in verification.tasks])  # an intact file has the expected hash


def print_hashes(hashes: list[str]) -> None:
    print(len(hashes), hashlib.sha256(" ".join(hashes).encode()).hexdigest())


def run_flow(name: str, folder: Path) -> None:
    match name:
        case "openssl":
            by_programs(["openssl", "dgst", "-sha256"], folder)
        case "sha256sum":
            by_programs(["sha256sum"], folder)
        case _:
            by_verify(folder, int(name.split()[1]))


def main() -> None:
    parser = argparse.ArgumentParser(description="Verification of an artifact, against programs that only hash")
    parser.add_argument("--mb", type=int, default=2000, help="total megabytes")
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    names = [name for name in FLOWS if name.startswith("verify") or shutil.which(name)]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "random"
        seal_files(folder, options.mb)
        measured = {name: measure(Path(__file__), ["flow", name, str(folder)], options.runs) for name in names}
    printed = {name: result.printed for name, result in measured.items()}
    if len(set(printed.values())) != 1:
        sys.exit(f"the flows' hashes differ: {printed}")
    print(f"{machine_line()}; median of {options.runs}, {options.mb} MB in {_FILES} files, in the page cache")
    print(f"hashes equal: {printed[names[0]]}\n\n{table(measured, names[0], options.mb)}")
    speeds = {name: round(options.mb / result.wall_s) for name, result in measured.items()}
    result = {"benchmark": "verify", "mb": options.mb, "cpu_to_ceiling": ratios(measured, names[0])}
    print(json.dumps(result | {"mb_per_s": speeds}))


if __name__ == "__main__":
    if sys.argv[1:2] == ["flow"]:
        run_flow(sys.argv[2], Path(sys.argv[3]))
    else:
        main()
