"""Flows that filters.py compares: Document shards in, kept documents out.

    python filter_flows.py NAME FOLDER

Each runs in one process and prints the number of kept documents.
"""

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

TESTS = Path(__file__).parents[1] / "tests" / "oracles"  # the slow and simple filters are test code
sys.path.insert(0, str(TESTS))
ROWS = "rows.json"


def shards(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.jsonl.zst"))


def shard_rows(folder: Path) -> dict[Path, int]:
    """Read the number of documents of each shard, which filters.py wrote."""
    return {folder / name: rows for name, rows in json.loads((folder / ROWS).read_bytes()).items()}


def corpusmill(folder: Path, filters: Literal["all", "none", "language"]) -> None:
    """Run the real stage: with `all` filters of docs/filters.md, or with `none`."""
    from plain_filters import ENGLISH_WEB

    from pipeline_assets.corpus.document_shards import DocumentShard
    from pipeline_assets.corpus.filters.filter_corpus import filter_shard, load_filters
    from pipeline_assets.corpus.filters.recipe import FilterRecipe
    from pipeline_assets.spine.stage import WHOLE_SHARD
    from pipeline_assets.spine.staging import StagingView

    recipe = ENGLISH_WEB if filters == "all" else FilterRecipe()
    if filters == "language":
        recipe = FilterRecipe.model_validate({"language": {}})
    load_filters(recipe)
    kept = 0
    with tempfile.TemporaryDirectory() as target:
        for path, rows in shard_rows(folder).items():
            shard = DocumentShard(path.name, path.name, path, rows)
            kept += filter_shard(shard, WHOLE_SHARD, StagingView(Path(target)), recipe, 3).counts["documents"]
    print(kept)


def lines(path: Path) -> Iterator[bytes]:
    import io

    import zstandard

    with open(path, "rb") as file:
        yield from io.BufferedReader(zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True))


def plain(folder: Path) -> None:
    """Apply the same rules in plain Python: json, re, str.split and Counter."""
    import zstandard
    from plain_filters import ENGLISH_WEB, plain_verdict

    kept = 0
    for path in shards(folder):
        with tempfile.TemporaryFile() as output, zstandard.ZstdCompressor(level=3).stream_writer(output) as stream:
            for line in lines(path):
                document = json.loads(line)
                reason, document["text"] = plain_verdict(document["text"], ENGLISH_WEB)
                if reason is None:
                    stream.write(json.dumps(document, ensure_ascii=False).encode() + b"\n")
                    kept += 1
    print(kept)


def datatrove(folder: Path) -> None:
    """Run datatrove's reader, Gopher's two filters, and its writer."""
    from datatrove.pipeline.filters import GopherQualityFilter, GopherRepetitionFilter
    from datatrove.pipeline.readers import JsonlReader
    from datatrove.pipeline.writers import JsonlWriter
    from loguru import logger

    logger.disable("datatrove")
    kept = 0
    with tempfile.TemporaryDirectory() as target:
        documents = JsonlReader(str(folder), glob_pattern="*.jsonl.zst", id_key="doc_id", recursive=False).run()
        for step in (GopherRepetitionFilter(), GopherQualityFilter(), JsonlWriter(target, compression="zstd")):
            documents = step.run(documents)
        kept += sum(1 for _ in documents)
    print(kept)


def repeated(folder: Path) -> None:
    """Find documents with repeated windows, by all steps in this process."""
    from pipeline_assets.corpus.dedup.repeated_windows import find_repeating_documents, load_kernels
    from pipeline_assets.corpus.document_shards import DocumentShard
    from pipeline_assets.corpus.filters.recipe import WindowRecipe
    from pipeline_assets.spine.engine import RunSettings, stage_runner
    from pipeline_assets.spine.staging import StagingView
    from pipeline_assets.spine.task import run_task

    rows = shard_rows(folder)
    corpus = [DocumentShard(path.name, path.name, path, documents) for path, documents in rows.items()]
    settings = RunSettings()
    with tempfile.TemporaryDirectory() as target:
        run = stage_runner(run_task, settings, load_kernels)
        repeats = find_repeating_documents(
            run, StagingView(Path(target)), corpus, WindowRecipe(), frozenset(), settings
        )
        print(sum(rows.values()) - sum(len(output.shares_by_row()) for output in repeats))


def bare_language(folder: Path) -> None:
    """Detect the language of every text with py3langid, and write nothing."""
    from pipeline_assets.corpus.filters.language import LanguageRecipe, load_detector

    recipe = LanguageRecipe()
    language = load_detector(recipe.detector).detect
    print(sum(recipe.keeps(language(json.loads(line)["text"])) for path in shards(folder) for line in lines(path)))


if __name__ == "__main__":
    name, folder = sys.argv[1], Path(sys.argv[2])
    match name:
        case "corpusmill":
            corpusmill(folder, "all")
        case "no filters":
            corpusmill(folder, "none")
        case "language":
            corpusmill(folder, "language")
        case "bare language":
            bare_language(folder)
        case "repeated":
            repeated(folder)
        case "plain Python":
            plain(folder)
        case "datatrove":
            datatrove(folder)
