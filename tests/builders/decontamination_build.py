"""Decontamination of corpora of a few texts."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from document_corpus import lines_in, seal_corpus

from pipeline_assets.build.build_target import build_target, seal_manifest
from pipeline_assets.build.pins.raw_pin import pin_folder_files
from pipeline_assets.build.systems import unknown_kind
from pipeline_assets.build.target import Target
from pipeline_assets.corpus.decontamination.decontaminate_corpus import decontaminate_corpus
from pipeline_assets.corpus.decontamination.recipe import (
    DECONTAMINATION_STAGE,
    EVALUATION_STAGE,
    ContaminatedLine,
    DecontaminationRecipe,
    EvaluationRecipe,
    EvaluationSet,
    read_contaminated,
)
from pipeline_assets.corpus.document import Document, Meta
from pipeline_assets.corpus.readers.source_folder import SourceFolder
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.engine import RunSettings

COLUMNS: Mapping[str, Any] = {"text": ["text"], "item": "row", "id": "id"}


def recipe(**changes: Any) -> DecontaminationRecipe:
    """Build the recipe with some keys changed, of the section `cut` as well."""
    top: dict[str, Any] = {
        "ngram_words": 13,
        "min_item_words": 5,
        "min_item_overlap": "0.5",
        "max_items_per_ngram": 10,
        "action": "drop",
    }
    cut: dict[str, Any] = {"margin_words": 0, "min_kept_words": 1}
    for name, value in changes.items():
        (cut if name in cut else top)[name] = value
    return DecontaminationRecipe.model_validate(top | ({"cut": cut} if top["action"] == "cut" else {}))


def rows_set(folder: Path, name: str, rows: Sequence[Mapping[str, Any]], **columns: Any) -> EvaluationSet:
    """Write JSON lines and list them as an evaluation set."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.jsonl").write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))
    return evaluation_set(folder, name, f"{name}.jsonl", **columns)


def evaluation_set(folder: Path, name: str, *files: str, **columns: Any) -> EvaluationSet:
    """List files of rows as an evaluation set."""
    return listed({"name": name, "files": list(files), "columns": COLUMNS | columns, "text_unit": None}, folder)


def listed(section: Mapping[str, Any], folder: Path) -> EvaluationSet:
    """List the files of an evaluation set in a folder."""
    own = EvaluationRecipe.model_validate(section)
    source = SourceFolder(folder, own.files)
    place = Path("listed", own.name)
    target = Target(
        unknown_kind("made/listed", EVALUATION_STAGE),
        own.name,
        place,
        {"files": list(own.files)},
        external_inputs=source,
    )
    listing = seal_manifest(target, folder, lambda: pin_folder_files(source, folder, RunSettings()), True, {})
    return EvaluationSet(own, listing.manifest, source)


def items_set(folder: Path, name: str, items: Mapping[str, str]) -> EvaluationSet:
    """Write items by id as an evaluation set."""
    return rows_set(folder, name, [{"id": item, "text": text} for item, text in items.items()])


def write_corpus(folder: Path, texts: Mapping[str, str], shard_documents: int) -> Artifact:
    """Seal a corpus of texts by doc_id."""
    meta = Meta.from_mapping("a.jsonl", 0, {"n": 1})
    documents = [Document(text, "notes", "web", doc_id, "cc0-1.0", "", meta) for doc_id, text in texts.items()]
    return seal_corpus(folder, "notes", documents, shard_documents)


def decontaminate(
    folder: Path,
    corpus: Artifact | Mapping[str, Artifact],
    sets: Sequence[EvaluationSet],
    rules: DecontaminationRecipe,
    engine: RunSettings | None = None,
) -> Artifact:
    """Build the decontaminated corpus; a single corpus is the source `notes`."""
    sources = {"notes": corpus} if isinstance(corpus, Artifact) else corpus
    target = Target(unknown_kind("made/clean", DECONTAMINATION_STAGE), "notes", Path("clean"), rules.content())
    settings = engine or RunSettings()
    return build_target(target, folder, lambda b: decontaminate_corpus(b, sources, sets, rules, settings), False, {})


def read_texts(corpus: Artifact) -> dict[str, str]:
    """Read texts by doc_id, in order."""
    return {row["doc_id"]: row["text"] for row in map(msgspec.json.decode, lines_in(corpus))}


def read_evidence(result: Artifact) -> dict[str, ContaminatedLine]:
    """Read the evidence of contaminated documents by doc_id."""
    return {line.doc_id: line for line in read_contaminated(result)}
