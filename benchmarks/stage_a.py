"""Benchmark of a whole stage A run: JSON lines in, packed rows and a report out.

    python benchmarks/stage_a.py --mb 130 --runs 3

It runs in one process. Input: Python sources and their documentation as installed here, cut into pages of about 3,000
characters, none repeated. The recipe filters, removes near duplicates, decontaminates against 2,000 items, packs rows
of 2,048 tokens and reports. The ceiling reads the same lines, encodes every page and writes ids and compressed lines;
it filters, compares, hashes and syncs nothing. The second recipe also has a language filter. The run with two workers
alternates with one without, and must build the same digests.
"""

import argparse
import itertools
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from measure import cpu_s, machine_line, measure, table
from pages import installed_pieces

if TYPE_CHECKING:
    from pipeline_assets.build.recipe import Recipe
    from pipeline_assets.build.run import Run

ITEMS = 2_000
ITEM_WORDS = 40
FLOWS = ("bare", "run", "run with languages")
PAIR = ("run", "run with 2 workers")


def prepare(root: Path, text_mb: float, every: int = 1) -> tuple[int, int]:
    """Write the source, the evaluation set and both recipes.

    The source has up to `text_mb` megabytes of every `every`-th page. Return the number of pages, and of UTF-8 bytes in
    their texts.
    """
    (root / "source").mkdir()
    (root / "quiz").mkdir()
    count = size = 0
    items = []
    with open(root / "source" / "pages.jsonl", "w") as lines:
        for text in itertools.islice(installed_pieces(), 0, None, every):
            lines.write(json.dumps({"doc_id": f"page-{count}", "text": text}) + "\n")
            if count % 7 == 0 and len(items) < ITEMS:
                items.append(" ".join(text.split()[:ITEM_WORDS]))
            count, size = count + 1, size + len(text.encode())
            if size >= text_mb * 1_000_000:
                break
    with open(root / "quiz" / "items.jsonl", "w") as lines:
        lines.writelines(
            json.dumps({"text": item[::-1] if number % 10 else item}) + "\n" for number, item in enumerate(items)
        )
    (root / "recipes").mkdir()
    for name, filters in (("run", {}), ("languages", {"language": {}})):
        path = root / "recipes" / f"{name}.yaml"
        path.write_text(json.dumps(recipe(root, name, filters)))
    return count, size


def recipe(root: Path, name: str, filters: dict[str, object]) -> dict[str, object]:
    source = {
        "kind": "local",
        "source": "pages",
        "path": str(root / "source"),
        "files": ["*.jsonl"],
        "domain": "code",
        "license_tag": "psf-2.0",
        "filters": {
            "length": {"min_words": 200},
            "characters": {"min_ascii_ratio": "0.8"},
            "gopher_quality": {"max_mean_word_length": "30"},
            "repetition": {"max_duplicate_line_characters": "0.6"},
            "masking": {"emails": True, "public_ips": True},
            **filters,
        },
    }
    evaluation = {"name": "quiz", "path": str(root / "quiz"), "files": ["*.jsonl"], "columns": {"text": ["text"]}}
    return {
        "system": "stage_a",
        "name": name,
        "sources": [source],
        "dedup": {},
        "decontamination": {"min_item_words": 8, "evaluation": [evaluation]},
        "pack": {"seq_len": 2048},
    }


def run(root: Path, name: str, workers: int = 0) -> None:
    """Build a recipe; without workers, write its stages' CPU seconds to a file."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as the program does, so that it can fork workers
    from pipeline_assets.build.run import Run
    from pipeline_assets.systems.stage_a import StageARecipe

    stage_a = StageARecipe.read(root / "recipes" / f"{name}.yaml")
    seconds = build(stage_a, Run.from_settings(root, os.environ, workers=workers))
    if not workers:
        (root / f"{name}.json").write_text(json.dumps(seconds))


def build(recipe: "Recipe", run: "Run") -> dict[str, float]:
    """Build a recipe from scratch, print digests, and return CPU seconds by stage."""
    from pipeline_assets.build.run_targets import run_targets
    from pipeline_assets.spine import durable

    durable.remove(run.root / "stage_a" / recipe.name)
    before, seconds = cpu_s(), {}
    for outcome in run_targets(recipe.targets(), run):
        seconds[outcome.target.kind.name.removeprefix("stage_a/")] = cpu_s() - before
        before = cpu_s()
        if outcome.manifest:
            print(outcome.target.kind.name, outcome.manifest.digest)
    return seconds


def bare(root: Path) -> None:
    """Read, encode and write with msgspec, gigatoken, zstandard and NumPy alone."""
    import msgspec
    import numpy as np
    import zstandard
    from flows import gigatoken_once

    class Row(msgspec.Struct):
        text: str

    tokenizer, decoder, tokens = gigatoken_once(), msgspec.json.Decoder(Row), 0
    with (
        open(root / "source" / "pages.jsonl", "rb") as lines,
        open(root / "bare.zst", "wb") as compressed,
        zstandard.ZstdCompressor(level=3).stream_writer(compressed) as writer,
        open(root / "bare.bin", "wb") as ids,
    ):
        while block := lines.readlines(1 << 20):
            joined = b"".join(block)
            layout = tokenizer.encode_batch([row.text for row in decoder.decode_lines(joined)], parallel=False).layout
            np.asarray(layout.content.data).astype(np.int32).tofile(ids)
            tokens += len(layout.content.data)
            writer.write(joined)
    print(tokens)


def parse_options(description: str | None) -> argparse.Namespace:
    """Parse `--mb` and `--runs` from the command line."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=int, default=130, help="megabytes of text")
    parser.add_argument("--runs", type=int, default=3)
    return parser.parse_args()


def main() -> None:
    options = parse_options(__doc__)
    from pipeline_assets.spine.usage import folder_bytes

    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        count, size = prepare(root, options.mb)
        print(f"{machine_line()}; {count:,} pages, {size / 1e6:.0f} MB of text, median of {options.runs}\n")
        measured = {name: measure(Path(__file__), [name, str(root)], options.runs) for name in FLOWS}
        rounds = [[measure(Path(__file__), [name, str(root)], 1) for name in PAIR] for _ in range(options.runs)]
        if any(none.printed != two.printed for none, two in rounds):
            sys.exit("two workers built other digests than none")
        workers = statistics.median(two.cpu_s / none.cpu_s for none, two in rounds)
        steps = json.loads((root / "run.json").read_text())
        print(table(measured, "bare", size / 1e6))
        print("\n| step of the run | CPU s | share |\n|---|---|---|")
        for step, seconds in steps.items():
            print(f"| {step} | {seconds:.2f} | {seconds / sum(steps.values()):.0%} |")
        kept = {}
        for step in ("filtered", "deduplicated", "decontaminated"):
            folder = next((root / "stage_a" / "run" / step).glob("*/manifest.json"))
            kept[step] = json.loads(folder.read_text())["identity"]["counts"]["documents"]
        print(f"\ndocuments: {count} read, {kept}")
        disk = folder_bytes(root / "stage_a" / "run") / (root / "source" / "pages.jsonl").stat().st_size
        print(f"disk: {disk:.2f} bytes per byte of the source")
    print(f"two workers: {workers:.2f} of the CPU of none, equal digests")
    result = {name: round(flow.cpu_s / measured["bare"].cpu_s, 2) for name, flow in measured.items()}
    figures = {"mb": round(size / 1e6), "cpu_to_ceiling": result, "two_workers": round(workers, 3)}
    print(json.dumps({"benchmark": "stage_a"} | figures))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["bare", root]:
            bare(Path(root))
        case ["run", root]:
            run(Path(root), "run")
        case ["run with 2 workers", root]:
            run(Path(root), "run", 2)
        case ["run with languages", root]:
            run(Path(root), "languages")
        case _:
            main()
