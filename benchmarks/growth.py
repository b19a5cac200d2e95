"""Benchmark of two real builds at 1, 4 and 16 times the input.

    python benchmarks/growth.py --mb 50 --runs 3

One builds a healing set, hub to token files; the other normalizes the same Parquet files as a source of stage A. Prints
CPU seconds, wall seconds and peak memory. The corpus is the demo's, repeated under new ids and words; a hub on loopback
serves it from another process. The fixed cost of a build (imports, workers started for each stage, vocabularies) is
measured on one file, a few shards for each worker, and subtracted before seconds are compared. Beyond that, time should
grow in proportion to the input, and memory not at all.
"""

import argparse
import json
import multiprocessing
import os
import resource
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from measure import Measured, machine_line, measure

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "builders"))

from healing_build import build_all
from pages import write_pages

from pipeline_assets.build.drive import build_without_checks
from pipeline_assets.build.run import Run
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.demo.corpora import EDU_DATASET
from pipeline_assets.demo.loopback_hub import LoopbackHub
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.systems.healing import HealingRecipe
from pipeline_assets.systems.registry import SYSTEMS
from pipeline_assets.systems.stage_a import StageARecipe

RECIPE = Path(__file__).parents[1] / "manifests" / "recipes" / "healing_text_v1.yaml"
TIMES = (1, 4, 16)
_FILE_BYTES = 10_000_000
_SHARD_BYTES = 4 << 20


def write_files(folder: Path, text_mb: int) -> None:
    """Write Parquet files of about 10 MB of text, in which all texts and ids differ."""
    text_bytes = write_pages(folder / "once")
    once = pq.ParquetDataset(folder / "once" / "data").read()
    once = once.filter(pc.greater(pc.utf8_length(once["text"]), 0)).combine_chunks()
    copies_a_file = -(-_FILE_BYTES // text_bytes)
    for number in range(-(-text_mb * 1_000_000 // (copies_a_file * text_bytes))):
        copies = range(number * copies_a_file, (number + 1) * copies_a_file)
        edition = pa.concat_tables([_edition(once, copy) for copy in copies])
        pq.write_table(edition, folder / f"{number:04d}.parquet", compression="zstd", row_group_size=2000)


def link_files(files: Sequence[Path], hub: Path, text_mb: int) -> float:
    """Link files with `text_mb` of text as a hub's only dataset; return the MB."""
    linked_bytes = 0
    for file in files:
        if linked_bytes < text_mb * 1_000_000:
            path = hub / "datasets" / EDU_DATASET / "data" / f"CC-MAIN-{file.stem}" / "train.parquet"
            path.parent.mkdir(parents=True)
            os.link(file, path)
            linked_bytes += _text_bytes(path)
    return linked_bytes / 1e6


def _text_bytes(file: Path) -> int:
    return int(pc.sum(pc.binary_length(pq.read_table(file, columns=["text"])["text"])).as_py())


def _edition(once: pa.Table, copy: int) -> pa.Table:
    texts = pc.binary_join_element_wise(f"Edition {copy}.", once["text"], f"{copy * 7919}", " ")
    ids = pc.binary_join_element_wise(once["id"], str(copy), "-")
    scores = pa.array([4] * once.num_rows, once.schema.field("int_score").type)
    changed = once
    for name, column in (("text", texts), ("id", ids), ("int_score", scores)):
        changed = changed.set_column(once.schema.get_field_index(name), once.schema.field(name), column)
    return changed


def normalize(root: Path, source: str, settings: RunSettings) -> str:
    """Normalize Parquet files as a source of stage A; return the digest."""
    section = {"kind": "local", "source": "pages", "path": source, "files": ["**/*.parquet"], "domain": "web"}
    section |= {"columns": {"text": "text", "id": "id", "created_at": None, "license": None}, "license_tag": "psf-2.0"}
    recipe = {"system": "stage_a", "name": "growth", "sources": [section], "shard_text_bytes": _SHARD_BYTES}
    digest = ""
    for target in StageARecipe.model_validate(recipe).targets()[:2]:  # the raw source and its Documents
        digest = build_without_checks(target, Run(root, settings)).manifest.digest
    return digest


def build(root: Path, endpoint: str, settings: RunSettings) -> str:
    """Build a healing set of the whole hub; return its digest."""
    files = HubFiles(root / "cache", endpoint)
    recipe = SYSTEMS.read_recipe(RECIPE).model_dump(mode="json")
    amount = {"amount": {"text_bytes": 10**15}, "shard_text_bytes": _SHARD_BYTES}
    recipe["snapshot"] |= {"revision": files.resolve(EDU_DATASET), **amount}
    recipe["megatron"]["token_budget"] = 10**12
    artifacts = build_all(HealingRecipe.model_validate(recipe), root, files, settings)
    return artifacts[-1].manifest.digest


STEPS = {"healing": build, "normalize": normalize}


def measured_build(step: str, root: Path, source: str, workers: int) -> None:
    """Build from an empty data root, print the digest and write the processes' peaks."""
    for folder in root.iterdir():
        shutil.rmtree(folder) if folder.is_dir() else folder.unlink()
    print(STEPS[step](root, source, RunSettings(workers)))
    (root / "peaks.json").write_text(json.dumps(peaks_mb()))


def peaks_mb() -> tuple[float, float]:
    """Return the largest resident set of this process, and of its descendants."""
    for child in multiprocessing.active_children():  # the fork server, which reports its workers' memory when it ends
        child.terminate()
        child.join()
    return own_peak_kib() / 1024, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024


def own_peak_kib() -> int:
    """Return the peak of this process from /proc.

    `ru_maxrss` would include the memory of the process that forked it.
    """
    status = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in status if line.startswith("VmHWM:"))


@dataclass(frozen=True)
class Size:
    """Figures of one input size."""

    mb: float  # of text
    measured: Measured
    parent_mb: float  # largest resident set of the process that builds
    worker_mb: float  # and of its workers


def measure_sizes(folder: Path, mb: int, workers: int, runs: int) -> dict[str, dict[str, Size]]:
    """Measure each step at all input sizes.

    "start" is one file; "1" the first files of `mb` megabytes; "4" and "16" are multiples of it.
    """
    write_files(folder / "all", mb * TIMES[-1])
    files = sorted((folder / "all").glob("*.parquet"))
    sizes: dict[str, dict[str, Size]] = {step: {} for step in STEPS}
    for name, text_mb in {"start": 1, **{str(times): mb * times for times in TIMES}}.items():
        hub = folder / name / "hub"
        linked_mb = link_files(files, hub, text_mb)
        root = folder / name / "data"
        root.mkdir()
        with LoopbackHub(hub) as running:
            for step, source in (("healing", running.endpoint), ("normalize", str(hub))):
                result = measure(Path(__file__), ["--build", str(root), source, str(workers), "--step", step], runs)
                sizes[step][name] = Size(linked_mb, result, *json.loads((root / "peaks.json").read_text()))
                print(f"{step} {name}: {linked_mb:.0f} MB, {result.cpu_s:.1f} CPU s", file=sys.stderr, flush=True)
        shutil.rmtree(folder / name)
    return sizes


def table(sizes: dict[str, Size]) -> str:
    lines = [
        "| input | MB | CPU s | beyond the start | CPU s per MB beyond it, to 1× | wall s | parent peak MiB "
        "| worker peak MiB |",
        "|---" * 8 + "|",
    ]
    for name, size in sizes.items():
        cells = [f"{name}×" if name != "start" else name, f"{size.mb:.0f}", f"{size.measured.cpu_s:.2f}"]
        if name == "start":
            cells += ["", ""]
        else:
            cells += [f"{size.measured.cpu_s - sizes['start'].measured.cpu_s:.2f}", f"{slope(sizes, name):.2f}"]
        cells += [f"{size.measured.wall_s:.1f}", f"{size.parent_mb:.0f}", f"{size.worker_mb:.0f}"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def slope(sizes: dict[str, Size], name: str) -> float:
    """Return the CPU seconds per MB beyond the start, divided by those of size "1"."""
    start = sizes["start"]
    per_mb = {
        other: (sizes[other].measured.cpu_s - start.measured.cpu_s) / (sizes[other].mb - start.mb)
        for other in (name, str(TIMES[0]))
    }
    return per_mb[name] / per_mb[str(TIMES[0])]


def main() -> None:
    parser = argparse.ArgumentParser(description="1, 4 and 16 times the input through the real build")
    parser.add_argument("--mb", type=int, default=50, help="megabytes of text of 1×")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--build", nargs=3, metavar=("ROOT", "SOURCE", "WORKERS"), help=argparse.SUPPRESS)
    parser.add_argument("--step", choices=STEPS, default="healing", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.build:
        root, source, workers = options.build
        measured_build(options.step, Path(root), source, int(workers))
        return
    with tempfile.TemporaryDirectory() as folder:
        steps = measure_sizes(Path(folder), options.mb, options.workers, options.runs)
    print(f"{machine_line()}; {options.workers} workers, median of {options.runs}")
    names = [str(times) for times in TIMES]
    result: dict[str, object] = {"benchmark": "growth"}
    for step, sizes in steps.items():
        print(f"\n{step}\n\n{table(sizes)}")
        result[step] = {
            "mb": [round(sizes[name].mb) for name in names],
            "cpu_per_mb_to_1x": [round(slope(sizes, name), 3) for name in names],
            "parent_mib": [round(sizes[name].parent_mb) for name in names],
            "worker_mib": [round(sizes[name].worker_mb) for name in names],
        }
    print(f"\n{json.dumps(result)}")


if __name__ == "__main__":
    main()
