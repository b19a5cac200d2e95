"""Benchmark of near duplicates against datasketch, rensa and datatrove.

    python benchmarks/dedup.py --shards FOLDER --documents 50000 --slow-documents 2000
    python benchmarks/dedup.py --shards FOLDER --growth
    python benchmarks/dedup.py --sizes 200000 3000000

Each flow runs in one process. corpusmill reads shards, also finds exact copies, compares the texts of candidate pairs,
and writes every edge and a decision for each document durably. datasketch and rensa work on texts in memory and stop at
candidate pairs; the time to load the texts is subtracted. datatrove runs its four steps over files, on fewer documents.
The start (imports, tables, compiled code) is measured on one document and subtracted; a last column includes it.

Before speeds are compared, sets of Python strings confirm the similarity of each dropped document to the kept one, and
that this pair is among the edges.

`--growth` runs corpusmill alone with 600 MiB of memory: on every sixteenth document, and on those with 3 or 15 more
editions in other words. Beyond the start, time should grow in proportion to the input, and memory not at all.

`--sizes` runs corpusmill alone on generated documents of about 400 bytes, a twentieth of them exact copies and another
twentieth near duplicates, and merges as many document ids as 10 and 120 sorted runs have. The cost of a document, and
of an id, should not depend on their number.
"""

import argparse
import itertools
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import msgspec
import numpy as np
import pyarrow.parquet as pq
from corpus import link_shards, write_shards
from dedup_flows import THRESHOLD, load, shingles
from measure import Measured, machine_line, measure

from pipeline_assets.build.build_target import build_target
from pipeline_assets.build.systems import unknown_kind
from pipeline_assets.build.target import Target
from pipeline_assets.corpus.document import Document, Meta
from pipeline_assets.corpus.formats.jsonl_zst import JsonlZstWriter, read_line_blocks
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.manifest import StageVersion
from pipeline_assets.spine.staging import StagingDir

FAST, SLOW = ("corpusmill", "corpusmill, 2 workers", "datasketch", "rensa"), ("datatrove",)
IN_MEMORY = ("datasketch", "rensa")
_SHARD_DOCUMENTS = 12_500
_GENERATED_SHARD = 25_000
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def write_sample(sources: Sequence[Path], target: Path, documents: int) -> float:
    """Write the first documents as shards with row counts; return the size in MB."""
    target.mkdir()
    lines: list[bytes] = []
    rows: dict[str, int] = {}
    written = size = 0

    def flush() -> None:
        path = target / f"{len(rows):05d}.jsonl.zst"
        with JsonlZstWriter(path, 3) as writer:
            writer.write_lines(b"".join(lines), len(lines))
        rows[str(path)] = len(lines)
        lines.clear()

    for source in sources:
        for block in read_line_blocks(source):
            for line in block.splitlines(keepends=True)[: documents - written]:
                lines.append(line)
                written += 1
                size += len(line)
                if len(lines) == _SHARD_DOCUMENTS:
                    flush()
        if written == documents:
            break
    if lines:
        flush()
    (target / "rows.json").write_text(json.dumps(rows))
    return size / 1e6


def prove(folder: Path) -> int:
    """Count the dropped documents; exit if an edge differs from the texts' similarity."""
    texts = {row.doc_id: row.text for row in load(folder)}
    edges = {
        (row["doc_id"], row["other_doc_id"]): row
        for row in pq.read_table(folder / "result" / "edges.parquet").to_pylist()
    }
    proven = 0
    for block in read_line_blocks(folder / "result" / "decisions.jsonl.zst"):
        for decision in map(msgspec.json.decode, block.splitlines()):
            if decision["decision"] != "near_duplicate":
                continue
            ours, other = shingles(texts[decision["doc_id"]]), shingles(texts[decision["duplicate_of"]])
            similarity = Fraction(len(ours & other), len(ours | other))
            if similarity < Fraction(THRESHOLD) or float(similarity) != decision["similarity"]:
                sys.exit(f"{decision}: similarity of the texts is {float(similarity)}")
            edge = edges.get((decision["doc_id"], decision["duplicate_of"]))
            proven += edge is not None and edge["shared"] == len(ours & other)
    return proven


def write_editions(sources: Sequence[Path], target: Path, editions: int) -> float:
    """Write every sixteenth document in several editions, each with shifted letters."""
    chosen = target.with_name(f"{target.name}-chosen.jsonl.zst")
    with JsonlZstWriter(chosen, 3) as writer:
        for edition in range(editions):
            shift = str.maketrans(_LETTERS, _LETTERS[edition:] + _LETTERS[:edition])
            number = 0
            for block in (block for source in sources for block in read_line_blocks(source)):
                lines = block.splitlines(keepends=True)
                rows = [msgspec.json.decode(line) for line in lines[-number % 16 :: 16]]
                number += len(lines)
                for row in rows:
                    row["doc_id"] += f"#{edition}"
                    row["text"] = row["text"].lower().translate(shift)
                writer.write_lines(b"".join(msgspec.json.encode(row) + b"\n" for row in rows), len(rows))
    megabytes = write_sample([chosen], target, sys.maxsize)
    chosen.unlink()
    return megabytes


def growth(script: Path, shards: Path | None, mb: int, runs: int) -> None:
    """Print a table of seconds and memory at 1, 4 and 16 times the input."""
    os.environ["CORPUSMILL_MEMORY_MIB"] = "600"
    with tempfile.TemporaryDirectory() as temporary:
        source = Path(temporary, "source")
        source.mkdir()
        paths, _, _ = link_shards(shards, source) if shards else write_shards(source, mb)
        write_sample(paths, Path(temporary, "single"), 1)
        start = measure(script, ["corpusmill", str(Path(temporary, "single"))], runs)
        print(f"{machine_line()}; one process, median of {runs}; start {start.cpu_s:.2f} CPU s\n")
        print("| input | MB | documents, dropped | CPU s beyond the start | CPU s per MB, to 1× | peak MiB |")
        print("|---" * 6 + "|")
        per_mb: list[float] = []
        for times in (1, 4, 16):
            folder = Path(temporary, f"times-{times}")
            megabytes = write_editions(paths, folder, times)
            result = measure(script, ["corpusmill", str(folder)], runs)
            per_mb.append((result.cpu_s - start.cpu_s) / megabytes)
            print(
                f"| {times}× | {megabytes:.0f} | {result.printed} | {result.cpu_s - start.cpu_s:.2f} "
                f"| {per_mb[-1] / per_mb[0]:.2f} | {result.peak_mb:.0f} |",
                flush=True,
            )
            shutil.rmtree(folder)
    print(
        json.dumps({"benchmark": "dedup growth", "cpu_per_mb_to_1x": [round(slope / per_mb[0], 3) for slope in per_mb]})
    )


def write_generated(target: Path, documents: int) -> None:
    """Seal a corpus of documents of random words at `target`/generated."""
    meta = Meta.from_mapping("generated", 0, {})

    def write(staging: StagingDir) -> BuildResult:
        files, before = [], list[str]()
        for first in range(0, documents, _GENERATED_SHARD):
            texts = _generated_texts(first, min(_GENERATED_SHARD, documents - first))
            if before:  # copies of new texts of the shard before, so that groups do not grow with the corpus
                for row in range(0, len(texts) - 3, 20):
                    texts[row], texts[row + 2] = before[row + 1], f"{before[row + 3]} and more"
            rows = [
                Document(text, "generated", "web", f"generated-{row:09d}", "cc0-1.0", "", meta)
                for row, text in enumerate(texts, first)
            ]
            name, before = f"shards/{len(files):05d}.jsonl.zst", texts
            with JsonlZstWriter(staging.path(name), 3) as writer:
                writer.write_lines(msgspec.json.Encoder().encode_lines(rows), len(rows))
            files.append(writer.output(name))
        return BuildResult(files, {"documents": documents}, {})

    kind = unknown_kind("benchmark/documents", StageVersion("generated", 1))
    build_target(Target(kind, "generated", Path("generated"), {}), target, write, False, {})


def _generated_texts(seed: int, count: int) -> list[str]:
    random = np.random.default_rng(seed)
    bounds = np.cumsum(random.integers(40, 80, count))
    # Cubes of evenly distributed numbers are small more often, so some words are much more frequent than others.
    words = [f"w{word}" for word in (random.random(bounds[-1]) ** 3 * 60_000).astype(np.int64).tolist()]
    return [" ".join(words[start:stop]) for start, stop in itertools.pairwise([0, *bounds.tolist()])]


def sizes(script: Path, counts: Sequence[int], runs: int) -> None:
    """Print the cost of a document, and of the merge of an id, by their number."""
    print(f"{machine_line()}; one process, median of {runs}\n")
    print("| documents | dropped | CPU s | µs per document | peak MiB |")
    print("|---" * 5 + "|")
    with tempfile.TemporaryDirectory() as temporary:
        write_generated(Path(temporary, "start"), 1)
        measure(script, ["whole", str(Path(temporary, "start"))], 1)  # compiles what later runs load
        start = measure(script, ["whole", str(Path(temporary, "start"))], runs)
        per_document: dict[int, float] = {}
        for count in counts:
            folder = Path(temporary, str(count))
            write_generated(folder, count)
            result = measure(script, ["whole", str(folder)], runs)
            per_document[count] = (result.cpu_s - start.cpu_s) / count * 1e6
            dropped = int(result.printed.split()[1])
            print(
                f"| {count:,} | {dropped:,} | {result.cpu_s:.1f} | {per_document[count]:.1f} | {result.peak_mb:.0f} |",
                flush=True,
            )
            shutil.rmtree(folder)
        print(f"\n| sorted runs of ids | ids | µs per id | peak MiB |\n{'|---' * 4}|")
        per_id: dict[int, float] = {}
        for ids_runs in (10, 120):
            folder = Path(temporary, f"ids-{ids_runs}")
            measure(script, ["write ids", str(folder), str(ids_runs)], 1)
            starts, merged = (measure(script, [name, str(folder)], runs) for name in ("open ids", "merge ids"))
            ids = int(merged.printed.split()[0])
            per_id[ids_runs] = (merged.cpu_s - starts.cpu_s) / ids * 1e6
            print(f"| {ids_runs} | {ids:,} | {per_id[ids_runs]:.2f} | {merged.peak_mb:.0f} |", flush=True)
    per_document, per_id = (
        {count: round(cost, 2) for count, cost in costs.items()} for costs in (per_document, per_id)
    )
    print(json.dumps({"benchmark": "dedup sizes", "us_per_document": per_document, "us_per_id": per_id}))


def main() -> None:
    parser = argparse.ArgumentParser(description="Document shards → near duplicates")
    parser.add_argument("--documents", type=int, default=50_000)
    parser.add_argument("--slow-documents", type=int, default=2_000)
    parser.add_argument("--mb", type=int, default=160, help="megabytes of text without --shards")
    parser.add_argument("--runs", type=int, default=3, help="runs of corpusmill; peers run once")
    parser.add_argument("--shards", type=Path, help="folder of Document shards to read instead")
    parser.add_argument("--growth", action="store_true", help="measure corpusmill alone at 1, 4 and 16 times the input")
    parser.add_argument(
        "--sizes", type=int, nargs="+", metavar="DOCUMENTS", help="measure corpusmill alone on so many generated ones"
    )
    options = parser.parse_args()
    script = Path(__file__).with_name("dedup_flows.py")
    if options.growth:
        growth(script, options.shards, options.mb, options.runs)
        return
    if options.sizes:
        sizes(script, options.sizes, options.runs)
        return
    with tempfile.TemporaryDirectory() as temporary:
        source, fast, slow, single = (Path(temporary, name) for name in ("source", "fast", "slow", "single"))
        source.mkdir()
        paths, _, _ = link_shards(options.shards, source) if options.shards else write_shards(source, options.mb)
        megabytes = write_sample(paths, fast, options.documents)
        slow_megabytes = write_sample(paths, slow, options.slow_documents)
        write_sample(paths, single, 1)
        starts: dict[str, Measured] = {}
        figures: dict[str, Measured] = {}
        for name in ("load", *FAST, *SLOW):
            starts[name] = measure(script, [name, str(single)], options.runs)
            is_ours = name.startswith("corpusmill")
            sample = slow if name in SLOW else fast
            figures[name] = measure(script, [name, str(sample)], options.runs if is_ours or name == "load" else 1)
        proven = prove(fast)
    loading = figures["load"].cpu_s - starts["load"].cpu_s
    seconds = {name: figures[name].cpu_s - starts[name].cpu_s for name in figures}
    seconds |= {name: seconds[name] - loading for name in IN_MEMORY}
    speeds = {
        name: (options.slow_documents if name in SLOW else options.documents) / seconds[name] for name in (*FAST, *SLOW)
    }
    print(f"{machine_line()}; {options.documents:,} documents, {megabytes:.0f} MB; {proven:,} duplicates proven\n")
    print(
        "| flow | documents, dropped | MB | start, CPU s | CPU s | documents per CPU s | corpusmill to it | with start "
        "| peak MiB |"
    )
    print("|" + "---|" * 9)
    whole = {name: starts[name].cpu_s + options.documents / speeds[name] for name in speeds}  # of equal documents
    for name, speed in speeds.items():
        row, size = figures[name], slow_megabytes if name in SLOW else megabytes
        print(
            f"| {name} | {row.printed} | {size:.0f} | {starts[name].cpu_s:.1f} "
            f"| {seconds[name]:.2f} | {speed:,.0f} | {speeds['corpusmill'] / speed:.1f} "
            f"| {whole[name] / whole['corpusmill']:.1f} | {row.peak_mb:.0f} |"
        )
    ratios = {name: round(speeds["corpusmill"] / speed, 2) for name, speed in speeds.items() if name != "corpusmill"}
    print(json.dumps({"benchmark": "dedup", "documents": options.documents, "corpusmill_to": ratios}))


if __name__ == "__main__":
    main()
