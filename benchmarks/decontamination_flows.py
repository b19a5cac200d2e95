"""Flows that decontamination.py compares, each in one process.

    python decontamination_flows.py NAME FOLDER

Each reads Document shards and items, prints the number of documents and of contaminated documents, and writes the ids
of the contaminated ones to `found/NAME.json`. `load` only reads, as the peers do first.
"""

import json
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
import zstandard

NGRAM_WORDS = 13
_word = re.compile(r"\w+")


class Row(msgspec.Struct):
    """Columns of a Document that the peers read."""

    doc_id: str
    text: str


class Report(NamedTuple):
    """Number of documents, and ids of the contaminated ones."""

    documents: int
    contaminated: list[str]


def shards(folder: Path) -> list[Path]:
    return sorted((folder / "corpora" / "documents" / "shards").glob("*.jsonl.zst"))


def rows(folder: Path) -> Iterator[Row]:
    """Read every document with zstandard and msgspec."""
    decoder = msgspec.json.Decoder(Row)
    for path in shards(folder):
        with open(path, "rb") as file:
            yield from decoder.decode_lines(zstandard.ZstdDecompressor().stream_reader(file).readall())


def items(folder: Path) -> list[str]:
    return [json.loads(line)["text"] for line in (folder / "items" / "items.jsonl").read_text().splitlines()]


def corpusmill(folder: Path, workers: int) -> Report:
    """Run the real stage from items and corpus to the sealed, decontaminated corpus."""
    from pipeline_assets.build.drive import build
    from pipeline_assets.build.run import Run
    from pipeline_assets.build.systems import unknown_kind
    from pipeline_assets.build.target import Target
    from pipeline_assets.corpus.decontamination.recipe import DecontaminationSection, read_contaminated
    from pipeline_assets.spine.artifact import open_artifact
    from pipeline_assets.spine.engine import RunSettings
    from pipeline_assets.spine.manifest import StageVersion
    from pipeline_assets.systems.evaluation import evaluation_targets
    from pipeline_assets.systems.stage_a import DECONTAMINATED, NORMALIZED

    columns = {"text": ["text"], "item": "row", "id": "id"}
    quiz = {"name": "quiz", "path": "items", "files": ["*.jsonl"], "columns": columns, "text_unit": None}
    rules = {"ngram_words": NGRAM_WORDS, "min_item_words": 8, "min_item_overlap": "0.5", "max_items_per_ngram": 10}
    section = DecontaminationSection.model_validate(rules | {"action": "drop", "evaluation": [quiz]})
    place, built, stage = Path("corpora/documents"), Path("built", f"by-{workers}"), StageVersion("made", 1)
    shutil.rmtree(folder / built, ignore_errors=True)
    documents = Target(
        unknown_kind(NORMALIZED.name, stage), "documents", place, {}, partition="documents", is_external=True
    )
    [listing] = evaluation_targets(section, "benchmark", built / "evaluation")
    content = section.output_content() | {"sources": ["documents"]}
    target = DECONTAMINATED.target("clean", content, [documents, listing], folder=built / "clean")
    run = Run(folder, RunSettings(workers))
    build(listing, run)
    clean = build(target, run).artifact
    read = open_artifact(folder / place).manifest.identity.counts["documents"]
    return Report(read, [line.doc_id for line in read_contaminated(clean)])


def by_python(folder: Path) -> Report:
    """Report the documents that contain an n-gram from the set of all items."""
    item_ngrams = {ngram for item in items(folder) for ngram in _ngrams(item)}
    read, contaminated = 0, []
    for row in rows(folder):
        read += 1
        if any(ngram in item_ngrams for ngram in _ngrams(row.text)):
            contaminated.append(row.doc_id)
    return Report(read, contaminated)


def _ngrams(text: str) -> Iterator[str]:
    words = _word.findall(text.lower())
    return (" ".join(words[first : first + NGRAM_WORDS]) for first in range(len(words) - NGRAM_WORDS + 1))


def by_datatrove(folder: Path) -> Report:
    """Run datatrove's filter on an index in the form that its indexer writes.

    The benchmark writes the index, because the indexer would need lighteval.
    """
    import numpy as np
    from datatrove.data import Document
    from datatrove.pipeline.decont import NGramsDecontConfig, NGramsDecontFilter
    from datatrove.utils.hashing import HashConfig
    from datatrove.utils.text import ngrams, simplify_text
    from loguru import logger

    logger.disable("datatrove")
    hashing = HashConfig(hash_fc="sha1")  # the default hash rejects str with a current xxhash
    config = NGramsDecontConfig(NGRAM_WORDS, hash_config=hashing)
    index = folder / "datatrove"
    index.mkdir(exist_ok=True)
    step = NGramsDecontFilter(str(index), config)
    hashes = {
        step.hash_func(" ".join(ngram))
        for item in items(folder)
        for ngram in ngrams(step.tokenizer.word_tokenize(simplify_text(item, config.norm_config)), NGRAM_WORDS)
    }
    np.array(sorted(hashes), hashing.np_descr).tofile(index / "quiz.index.hashes")
    read, contaminated = 0, []
    for row in rows(folder):
        read += 1
        if step.filter(Document(text=row.text, id=row.doc_id)) is not True:
            contaminated.append(row.doc_id)
    return Report(read, contaminated)


def only_load(folder: Path) -> Report:
    return Report(sum(1 for _ in rows(folder)), [])


if __name__ == "__main__":
    name, folder = sys.argv[1], Path(sys.argv[2])
    flows: dict[str, Callable[[Path], Report]] = {
        "load": only_load,
        "corpusmill": lambda folder: corpusmill(folder, 0),
        "corpusmill, 2 workers": lambda folder: corpusmill(folder, 2),
        "Python set": by_python,
        "datatrove": by_datatrove,
    }
    report = flows[name](folder)
    (folder / "found").mkdir(exist_ok=True)
    (folder / "found" / f"{name}.json").write_text(json.dumps(report.contaminated))
    print(report.documents, len(report.contaminated))
