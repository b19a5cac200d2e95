"""Flows that dedup.py compares: Document shards in, near duplicates out.

    python dedup_flows.py NAME FOLDER

Each runs in one process and prints the number of documents and of dropped ones. `load` only reads, as peers that work
in memory do first. FOLDER/result contains corpusmill's decisions and the ids that rensa drops.
"""

import json
import os
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import zstandard

BANDS, ROWS, SHINGLE_WORDS, THRESHOLD, SEED = 14, 8, 5, "0.7", 1
RECIPE = {
    "mode": "both",
    "scope": "global",
    "selection": "first",
    "near": {
        "threshold": THRESHOLD,
        "max_compared": 100,
        "minhash": {
            "shingle_words": SHINGLE_WORDS,
            "permutations": BANDS * ROWS,
            "bands": BANDS,
            "rows": ROWS,
            "seed": SEED,
        },
    },
}
RENSA_DROPPED = "rensa-dropped.txt"
_word = re.compile(r"\w+")


class _Row(msgspec.Struct):
    doc_id: str
    text: str


def load(folder: Path) -> list[_Row]:
    """Read every text into memory with zstandard and msgspec."""
    decoder = msgspec.json.Decoder(_Row)
    rows = []
    for path in sorted(folder.glob("*.jsonl.zst")):
        with open(path, "rb") as file:
            rows += decoder.decode_lines(zstandard.ZstdDecompressor().stream_reader(file).readall())
    return rows


def shingles(text: str) -> set[str]:
    words = _word.findall(text.replace("İ", "i").replace("Σ", "σ").lower())  # lower each letter on its own
    return {" ".join(words[start : start + SHINGLE_WORDS]) for start in range(len(words) - SHINGLE_WORDS + 1)}


def corpusmill(folder: Path, workers: int) -> tuple[int, int]:
    """Write verified edges and decisions as the real stage does, but no documents."""
    from pipeline_assets.corpus.converted_shards import concatenate_lines
    from pipeline_assets.corpus.corpus_shard import CorpusShard
    from pipeline_assets.corpus.dedup.decision import DECISIONS_FILE
    from pipeline_assets.corpus.dedup.dedup_corpus import find_near_duplicates, prepare_run, publish_edges
    from pipeline_assets.corpus.dedup.exact_copies import find_exact_copies
    from pipeline_assets.corpus.dedup.recipe import DedupRecipe
    from pipeline_assets.corpus.dedup.resolution import write_decisions
    from pipeline_assets.corpus.dedup.sketches import sketch_corpus
    from pipeline_assets.spine.engine import RunSettings
    from pipeline_assets.spine.opening import open_staging_dir

    recipe = DedupRecipe.model_validate(RECIPE)
    assert recipe.near is not None
    settings = RunSettings(workers, memory_bytes=_memory_bytes())
    shards, first = [], 0
    for path, rows in json.loads((folder / "rows.json").read_text()).items():
        shards.append(CorpusShard(Path(path).name, Path(path).name, Path(path), rows, "manuals", first))
        first += rows
    target = folder / "built" / "deduplicated"
    shutil.rmtree(target.parent, ignore_errors=True)
    with open_staging_dir(target, {}) as building:
        dedup = prepare_run(building, shards, recipe, settings)
        sketches = sketch_corpus(dedup)
        exact = find_exact_copies(dedup, sketches)
        near = find_near_duplicates(dedup, sketches, recipe.near, exact)
        decisions = write_decisions(dedup, sketches, exact, near)
        lines = (decision.files[0] for decision in decisions)
        keep(concatenate_lines(building, lines, DECISIONS_FILE, settings.zstd_level), building, folder)
        keep(publish_edges(building, near.edges, ()), building, folder)
    return first, first - sum(receipt.counts["out"] for receipt in decisions)


def _memory_bytes() -> int:
    return int(os.environ.get("CORPUSMILL_MEMORY_MIB", 2048)) << 20


def keep(file: Any, building: Any, folder: Path) -> None:
    """Copy an output file to the folder of results, which outlives the run."""
    (folder / "result").mkdir(exist_ok=True)
    shutil.copy(building.path(file.path), folder / "result" / file.path)


def by_datasketch(folder: Path) -> tuple[int, int]:
    """Cluster candidate pairs with datasketch, and keep a cluster's first document."""
    from datasketch import MinHash, MinHashLSH

    rows = load(folder)
    index = MinHashLSH(params=(BANDS, ROWS), num_perm=BANDS * ROWS)
    clusters = Clusters(len(rows))
    for number, row in enumerate(rows):
        sketch = MinHash(BANDS * ROWS, seed=SEED)
        sketch.update_batch([shingle.encode() for shingle in shingles(row.text)])
        for other in index.query(sketch):
            clusters.join(number, other)
        index.insert(number, sketch, check_duplication=False)
    return len(rows), clusters.dropped()


def by_rensa(folder: Path) -> tuple[int, int]:
    """Drop documents that share a band with an earlier one, by rensa in one pass."""
    import rensa

    rows = load(folder)
    index = rensa.RMinHashLSH(0.7, BANDS * ROWS, BANDS)
    dropped: list[str] = []
    for start in range(0, len(rows), 1000):
        sets = [shingles(row.text) for row in rows[start : start + 1000]]
        digests = rensa.RMinHash.digest_matrix_from_token_sets(sets, BANDS * ROWS, SEED)
        flags = index.insert_matrix_and_query_duplicate_flags(digests, start)
        dropped += [row.doc_id for row, is_dropped in zip(rows[start : start + 1000], flags, strict=True) if is_dropped]
    (folder / "result").mkdir(exist_ok=True)
    (folder / "result" / RENSA_DROPPED).write_text("\n".join(dropped))
    return len(rows), len(dropped)


def by_datatrove(folder: Path) -> tuple[int, int]:
    """Run datatrove's four steps: signatures, buckets, clusters, filter."""
    from datatrove.executor import LocalPipelineExecutor
    from datatrove.pipeline.dedup import (
        MinhashDedupBuckets,
        MinhashDedupCluster,
        MinhashDedupFilter,
        MinhashDedupSignature,
    )
    from datatrove.pipeline.dedup.minhash import MinhashConfig
    from datatrove.pipeline.readers import JsonlReader
    from datatrove.pipeline.writers import JsonlWriter
    from datatrove.utils.hashing import HashConfig
    from loguru import logger

    logger.disable("datatrove")
    hashing = HashConfig(hash_fc="sha1")  # the default hash rejects str with a current xxhash
    config = MinhashConfig(SHINGLE_WORDS, BANDS, ROWS, seed=SEED, hash_config=hashing)
    out = folder / "datatrove"
    shutil.rmtree(out, ignore_errors=True)
    reader = JsonlReader(str(folder), glob_pattern="*.jsonl.zst", id_key="doc_id", recursive=False)
    steps = (
        ([reader, MinhashDedupSignature(str(out / "signatures"), config)], 1),
        ([MinhashDedupBuckets(str(out / "signatures"), str(out / "buckets"), config=config)], BANDS),
        ([MinhashDedupCluster(str(out / "buckets"), str(out / "remove"), config=config)], 1),
        ([reader, MinhashDedupFilter(str(out / "remove")), JsonlWriter(str(out / "kept"), compression=None)], 1),
    )
    for number, (pipeline, tasks) in enumerate(steps):
        LocalPipelineExecutor(pipeline, tasks=tasks, workers=1, logging_dir=str(out / f"logs{number}")).run()
    read = len(load(folder))
    kept = sum(path.read_bytes().count(b"\n") for path in (out / "kept").glob("*.jsonl"))
    return read, read - kept


class Clusters:
    """Clusters of connected documents (union-find)."""

    def __init__(self, documents: int) -> None:
        self._parents = list(range(documents))

    def join(self, number: int, other: int) -> None:
        first, second = sorted((self._root(number), self._root(other)))
        self._parents[second] = first

    def dropped(self) -> int:
        return sum(parent != number for number, parent in enumerate(self._parents))

    def _root(self, number: int) -> int:
        while self._parents[number] != number:
            self._parents[number] = self._parents[self._parents[number]]
            number = self._parents[number]
        return number


def only_load(folder: Path) -> tuple[int, int]:
    return len(load(folder)), 0


if __name__ == "__main__":
    name, folder = sys.argv[1], Path(sys.argv[2])
    flows: dict[str, Callable[[Path], tuple[int, int]]] = {
        "load": only_load,
        "corpusmill": lambda folder: corpusmill(folder, 0),
        "corpusmill, 2 workers": lambda folder: corpusmill(folder, 2),
        "datasketch": by_datasketch,
        "rensa": by_rensa,
        "datatrove": by_datatrove,
    }
    print(*flows[name](folder))
