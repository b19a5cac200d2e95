"""Cost model of stage A and healing: core-hours and disk for any number of tokens.

    python benchmarks/cost_model.py --every 32 8 2

Each recipe is built at three sizes, without worker processes. For every kind of artifact, the two smaller sizes give a
line: CPU seconds = start + MB of text × seconds per MB; likewise for the bytes on disk. The largest size was not used
for the line, so it checks the prediction. The last table extends the lines to `TOKENS`; nothing of that size was run.
Stage A reads every n-th page of installed programs and documentation from a local folder, so that all sizes have the
same mix; healing reads as much from a hub on loopback, as Parquet.
"""

import argparse
import json
import math
import os
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import stage_a
from growth import link_files, write_files
from measure import machine_line, measure

from pipeline_assets.build.recipe import Recipe
from pipeline_assets.build.run import Run
from pipeline_assets.build.run_targets import run_targets
from pipeline_assets.corpus.dedup.recipe import MAX_DOCUMENTS
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.demo.corpora import EDU_DATASET
from pipeline_assets.demo.loopback_hub import LoopbackHub
from pipeline_assets.spine.key_types import SHARD_TEXT_BYTES
from pipeline_assets.spine.manifest_schema import total_count
from pipeline_assets.spine.stage import MAX_SHARDS
from pipeline_assets.systems.healing import HealingRecipe
from pipeline_assets.systems.registry import SYSTEMS
from pipeline_assets.systems.stage_a import StageARecipe

HEALING = Path(__file__).parents[1] / "manifests" / "recipes" / "healing_text_v1.yaml"
TOKENS = {"200M": 2e8, "10B": 1e10, "1T": 1e12, "15T": 1.5e13}
BYTES_PER_TOKEN = 4.6  # of the docstrings that healing reads, rounded up, so that the budget takes nearly all of them
FIGURES = ("cpu_s", "sealed_bytes", "peak_bytes")  # peak: the staging directory at its largest, sealed files included


@dataclass(frozen=True)
class Line:
    """Straight line through the figures of two sizes."""

    start: float
    per_mb: float

    @classmethod
    def through(cls, sizes: Sequence[float], values: Sequence[float]) -> "Line":
        per_mb = (values[1] - values[0]) / (sizes[1] - sizes[0])
        return cls(values[0] - per_mb * sizes[0], per_mb)

    def at(self, mb: float) -> float:
        return self.start + self.per_mb * mb


@dataclass(frozen=True)
class Build:
    """Figures of one recipe's build by kind, with its tokens and documents."""

    mb: float  # of text
    figures: Mapping[str, Mapping[str, float]]
    tokens: int
    documents: int


def build(recipe: Recipe, run: Run, out: Path) -> None:
    """Build every artifact, and write the figures of each kind to a file."""
    figures: dict[str, dict[str, float]] = defaultdict(lambda: dict.fromkeys(FIGURES, 0))
    counts = {"tokens": 0, "documents": 0}
    before = stage_a.cpu_s()
    for outcome in run_targets(recipe.targets(), run):
        assert outcome.manifest is not None
        manifest, own = outcome.manifest, figures[outcome.target.kind.short_name]
        own["cpu_s"] += stage_a.cpu_s() - before  # with checks and copies
        own["sealed_bytes"] += sum(file.bytes for file in manifest.storage)
        own["peak_bytes"] += manifest.provenance.get("peak_disk_bytes", 0)
        if outcome.target.kind.short_name in ("packed", "megatron_split"):
            for name in counts:
                counts[name] += total_count(manifest.identity.counts[name]) or 0
        print(outcome.target.role, manifest.digest)
        before = stage_a.cpu_s()
    out.write_text(json.dumps({"figures": figures, **counts}))


def build_stage_a(root: Path) -> None:
    recipe = StageARecipe.read(root / "recipes" / "run.yaml")
    build(recipe, Run.from_settings(root, os.environ, workers=0), root / "figures.json")


def build_healing(root: Path, endpoint: str, text_mb: float) -> None:
    hub = HubFiles(root / "cache", endpoint)
    values = SYSTEMS.read_recipe(HEALING).model_dump(mode="json")
    values["snapshot"] |= {"revision": hub.resolve(EDU_DATASET), "amount": {"text_bytes": 10**15}}
    values["megatron"]["token_budget"] = round(text_mb * 1e6 / BYTES_PER_TOKEN)
    run = Run.from_settings(root, os.environ, workers=0, hub=hub)
    build(HealingRecipe.model_validate(values), run, root / "figures.json")


def stage_a_builds(steps: Sequence[int]) -> Iterator[Build]:
    for every in steps:
        with tempfile.TemporaryDirectory() as folder:
            _, text_bytes = stage_a.prepare(Path(folder), math.inf, every)
            measure(Path(__file__), ["stage_a", folder], 1)
            yield Build(text_bytes / 1e6, **json.loads((Path(folder) / "figures.json").read_text()))


def healing_builds(sizes: Sequence[float]) -> Iterator[Build]:
    with tempfile.TemporaryDirectory() as pages:
        write_files(Path(pages), math.ceil(max(sizes)))
        files = sorted(Path(pages).glob("*.parquet"))
        for mb in sizes:
            with tempfile.TemporaryDirectory() as folder:
                text_mb, root = link_files(files, Path(folder, "hub"), round(mb)), Path(folder, "data")
                root.mkdir()
                with LoopbackHub(Path(folder, "hub")) as hub:
                    measure(Path(__file__), ["healing", str(root), hub.endpoint, str(text_mb)], 1)
                yield Build(text_mb, **json.loads((root / "figures.json").read_text()))


def fit(builds: Sequence[Build]) -> dict[str, dict[str, Line]]:
    """Return a line for each kind and figure, through the first two sizes."""
    sizes = [size.mb for size in builds[:2]]
    return {
        kind: {name: Line.through(sizes, [size.figures[kind][name] for size in builds[:2]]) for name in FIGURES}
        for kind in builds[0].figures
    }


def check_table(title: str, builds: Sequence[Build], lines: Mapping[str, Mapping[str, Line]]) -> Iterator[str]:
    """Yield the constants of each kind, and predictions for the largest size."""
    last = builds[-1]
    yield (
        f"| {title} | start, CPU s | CPU s per MB | at {last.mb:.0f} MB: predicted | measured "
        "| sealed bytes per byte of text: predicted | measured | largest staging, bytes per byte |"
    )
    yield "|---" * 8 + "|"
    totals = [0.0] * 7
    for kind, own in lines.items():
        cpu, sealed = own["cpu_s"], own["sealed_bytes"]
        size = last.mb * 1e6
        cells = [cpu.start, cpu.per_mb, cpu.at(last.mb), last.figures[kind]["cpu_s"], sealed.at(last.mb) / size]
        cells += [last.figures[kind]["sealed_bytes"] / size, last.figures[kind]["peak_bytes"] / size]
        totals = [total + cell for total, cell in zip(totals, cells, strict=True)]
        yield _row(kind, cells)
    yield _row("total", totals[:6])


def _row(kind: str, cells: Sequence[float]) -> str:
    formats = (".2f", ".4f", ".2f", ".2f", ".3f", ".3f", ".3f")
    texts = [format(cell, form) for cell, form in zip(cells, formats, strict=False)]
    return f"| {kind} | {' | '.join(texts)}{' | ' * (7 - len(texts))} |"


def extrapolation_table(builds: Mapping[str, Sequence[Build]], bytes_per_token: float) -> Iterator[str]:
    """Yield core-hours, disk, documents and shards for each number of tokens."""
    titles = [f"{system}: {figure}" for system in builds for figure in ("core-hours", "TB sealed")]
    yield f"| tokens | TB of text | {' | '.join(titles)} | documents | shards | beyond a limit of one recipe |"
    yield "|---" * (5 + len(titles)) + "|"
    for name, tokens in TOKENS.items():
        mb = tokens * bytes_per_token / 1e6
        cells = [name, _short(mb / 1e6)]
        for sizes in builds.values():
            lines = fit(sizes)
            cells.append(_short(sum(own["cpu_s"].at(mb) for own in lines.values()) / 3600))
            cells.append(_short(sum(own["sealed_bytes"].at(mb) for own in lines.values()) / 1e12))
        last = next(iter(builds.values()))[-1]
        documents, shards = mb * last.documents / last.mb, mb * 1e6 / SHARD_TEXT_BYTES
        broken = ["documents"] * (documents > MAX_DOCUMENTS) + ["shards"] * (shards > MAX_SHARDS)
        cells += [f"{documents:.2g}", f"{shards:,.0f}", ", ".join(broken) or "–"]
        yield f"| {' | '.join(cells)} |"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, nargs=3, default=(32, 8, 2), help="every n-th page; sizes must ascend")
    parser.add_argument("--bytes-per-token", type=float, default=4.8, help="of English web text; 4.8 for FineWeb-Edu")
    options = parser.parse_args()
    [_, *first] = stage_a_builds([options.every[0], *options.every])  # the first build compiles kernels
    builds = {"stage A": first, "healing": list(healing_builds([size.mb for size in first]))}
    print(f"{machine_line()}; without worker processes; lines through the two smaller sizes\n")
    error = {}
    for system, own in builds.items():
        print("\n".join([*check_table(system, own, fit(own)), ""]))
        predicted = sum(line["cpu_s"].at(own[-1].mb) for line in fit(own).values())
        error[system] = round(predicted / sum(figures["cpu_s"] for figures in own[-1].figures.values()) - 1, 3)
    print("\n".join(extrapolation_table(builds, options.bytes_per_token)), "\n")
    print(
        json.dumps({"benchmark": "cost_model", "mb": [round(size.mb) for size in first], "cpu_error_at_largest": error})
    )


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["stage_a", root]:
            build_stage_a(Path(root))
        case ["healing", root, endpoint, text_mb]:
            build_healing(Path(root), endpoint, float(text_mb))
        case _:
            main()
