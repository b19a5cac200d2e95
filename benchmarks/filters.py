"""Benchmark of the compiled filters against plain Python and datatrove.

    python benchmarks/filters.py --mb 200 --slow-mb 8 --runs 3

All filters of docs/filters.md run in one process. datatrove does less: only Gopher's two filters. The verdicts and
texts of the stage and of plain Python are proven equal. The start (imports, tables, compiled code from its cache) is
measured on an empty shard and subtracted, so that it distorts neither a flow of a minute nor one of a second. Most
documents of the demo corpus are dropped before they reach all filters; the input of "all kept" consists of documents
that pass. "Repeated windows" runs all steps that find documents with repeated windows. A second table compares the
hashing of windows in memory with xxhash of each text and with a copy of all texts. `--only` selects flows.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import chain
from pathlib import Path

import msgspec
import xxhash
from corpus import link_shards, write_shards
from filter_flows import ROWS, lines, shards
from measure import Measured, machine_line, measure
from plain_filters import ENGLISH_WEB, plain_verdict

from pipeline_assets.corpus.dedup.window_hashes import select_windows
from pipeline_assets.corpus.document import Document
from pipeline_assets.corpus.filters.filter import Candidate
from pipeline_assets.corpus.filters.verdict import apply_filters
from pipeline_assets.corpus.formats.jsonl_zst import JsonlZstWriter
from pipeline_assets.corpus.partial_documents import DocumentText

# Each flow, its name in filter_flows.py, and its input.
FLOWS = {
    "no filters": ("no filters", "fast"),
    "corpusmill": ("corpusmill", "fast"),
    "no filters, all kept": ("no filters", "kept"),
    "corpusmill, all kept": ("corpusmill", "kept"),
    "plain Python": ("plain Python", "slow"),
    "datatrove": ("datatrove", "slow"),
    "language alone": ("language", "slow"),
    "bare py3langid": ("bare language", "slow"),
    "repeated windows": ("repeated", "fast"),
}


def write_sample(source: Path, target: Path, mb: float) -> int:
    """Write every n-th document to a sample of about `mb` megabytes; return its bytes."""
    paths = shards(source)
    step = max(1, round(sum(len(line) for path in paths for line in lines(path)) / 1e6 / mb)) if mb else sys.maxsize
    sample = [line for number, line in enumerate(chain.from_iterable(map(lines, paths))) if number % step == step - 1]
    target.mkdir()
    with JsonlZstWriter(target / "00000.jsonl.zst", 3) as writer:
        writer.write_lines(b"".join(sample), len(sample))
    return writer.content_bytes


def write_kept(source: Path, target: Path, mb: float) -> int:
    """Write documents that pass all filters, up to `mb` megabytes; return the bytes."""
    decoder = msgspec.json.Decoder(Document)
    documents = [decoder.decode(line) for line in lines(shards(source)[0])]
    is_changed = True
    while is_changed:
        candidates = [Candidate(document.text.encode(), {}) for document in documents]
        apply_filters(candidates, ENGLISH_WEB)
        pairs = list(zip(documents, candidates, strict=True))
        is_changed = any(
            candidate.failure is not None or candidate.text != document.text.encode() for document, candidate in pairs
        )
        documents = [
            msgspec.structs.replace(document, text=candidate.text.decode())
            for document, candidate in pairs
            if candidate.failure is None
        ]
    data = msgspec.json.Encoder().encode_lines(documents)
    target.mkdir()
    with JsonlZstWriter(target / "00000.jsonl.zst", 3) as writer:
        while writer.content_bytes < mb * 1e6:
            writer.write_lines(data, len(documents))
    return writer.content_bytes


def hashing_speeds(folder: Path, runs: int) -> dict[str, float]:
    """Return the median megabytes per CPU second for the first shard's texts."""
    decoder = msgspec.json.Decoder(DocumentText)
    texts = [decoder.decode(line).text.encode() for line in lines(shards(folder)[0])]
    blocks = [texts[first : first + 100] for first in range(0, len(texts), 100)]
    select_windows(blocks[0], 256, 64)
    works: dict[str, Callable[[], object]] = {
        "windows": lambda: [select_windows(block, 256, 64) for block in blocks],
        "xxh64": lambda: [xxhash.xxh64_intdigest(text) for text in texts],
        "memcpy": lambda: b"".join(texts),
    }
    speeds = {}
    for name, work in works.items():
        took = []
        for _ in range(runs):
            start = time.process_time()
            work()
            took.append(time.process_time() - start)
        speeds[name] = sum(map(len, texts)) / 1e6 / statistics.median(took)
    return speeds


def prove_equal(folder: Path) -> int:
    """Exit if a verdict or text differs from plain Python's; else count the documents."""
    decoder = msgspec.json.Decoder(DocumentText)
    documents = [decoder.decode(line) for path in shards(folder) for line in lines(path)]
    candidates = [Candidate(document.text.encode(), {}) for document in documents]
    apply_filters(candidates, ENGLISH_WEB)
    for document, candidate in zip(documents, candidates, strict=True):
        reason, text = plain_verdict(document.text, ENGLISH_WEB)
        verdict = candidate.failure.reason if candidate.failure else None
        if reason != verdict or (reason is None and text.encode() != candidate.text):
            sys.exit(f"{document.doc_id}: verdict is {verdict}, in plain Python {reason}")
    return len(documents)


def main() -> None:
    parser = argparse.ArgumentParser(description="Document shards → kept documents and reasons")
    parser.add_argument("--mb", type=int, default=130, help="megabytes for the fast flows")
    parser.add_argument("--slow-mb", type=float, default=8, help="megabytes for the slow ones")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument(
        "--only", nargs="+", choices=FLOWS, default=list(FLOWS), metavar="FLOW", help="run only these flows"
    )
    parser.add_argument("--shards", type=Path, help="folder of Document shards to read instead")
    options = parser.parse_args()
    flows = {name: flow for name, flow in FLOWS.items() if name in (*options.only, "corpusmill")}
    script = Path(__file__).with_name("filter_flows.py")
    with tempfile.TemporaryDirectory() as temporary:
        fast, slow, kept, empty = (Path(temporary, name) for name in ("fast", "slow", "kept", "empty"))
        fast.mkdir()
        _, size, digest = link_shards(options.shards, fast) if options.shards else write_shards(fast, options.mb)
        megabytes = {"fast": size / 1e6, "slow": write_sample(fast, slow, options.slow_mb) / 1e6}
        megabytes["kept"] = write_kept(fast, kept, size / 1e6) / 1e6
        write_sample(fast, empty, 0)
        for folder in (fast, slow, kept, empty):
            rows = {path.name: sum(1 for _ in lines(path)) for path in shards(folder)}
            (folder / ROWS).write_text(json.dumps(rows))
        equal, hashing = prove_equal(slow), hashing_speeds(fast, options.runs)
        figures: dict[str, Measured] = {}
        starts: dict[str, float] = {}
        for name, (flow, sample) in flows.items():
            starts[name] = measure(script, [flow, str(empty)], options.runs).cpu_s
            figures[name] = measure(
                script, [flow, str(Path(temporary, sample))], 1 if sample == "slow" else options.runs
            )
    speeds = {name: megabytes[sample] / (figures[name].cpu_s - starts[name]) for name, (_, sample) in flows.items()}
    print(f"{machine_line()}; one process, median of {options.runs}, input {digest[:12]}; {equal:,} verdicts equal\n")
    print(
        "| flow | MB | kept | start, CPU s | CPU s | MB per CPU s | corpusmill to it | peak MiB |" + "\n|" + "---|" * 8
    )
    for name, (_, sample) in flows.items():
        row = figures[name]
        print(
            f"| {name} | {megabytes[sample]:.0f} | {row.printed} | {starts[name]:.1f} | {row.cpu_s - starts[name]:.1f} "
            f"| {speeds[name]:.1f} | {speeds['corpusmill'] / speeds[name]:.1f} | {row.peak_mb:.0f} |"
        )
    print("\n| hashing of texts in memory | MB per CPU s |\n|---|---|")
    for name, speed in hashing.items():
        print(f"| {name} | {speed:.0f} |")
    ratios = {name: round(speeds["corpusmill"] / speed, 2) for name, speed in speeds.items() if name != "corpusmill"}
    print(json.dumps({"benchmark": "filters", "mb": round(megabytes["fast"]), "corpusmill_to": ratios}))


if __name__ == "__main__":
    main()
