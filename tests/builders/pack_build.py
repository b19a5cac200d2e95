"""Packed sets of a few documents whose words are tokens."""

import datetime
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from word_tokenizer import write_tokenizer

from pipeline_assets.build.build_target import build_target
from pipeline_assets.build.systems import unknown_kind
from pipeline_assets.build.target import Target
from pipeline_assets.corpus.corpus_shard import CorpusShard
from pipeline_assets.corpus.document import Document, Meta
from pipeline_assets.corpus.formats.jsonl_zst import JsonlZstWriter
from pipeline_assets.corpus.formats.memmap import PackedSet
from pipeline_assets.corpus.packing.pack_corpus import pack_corpus
from pipeline_assets.corpus.packing.recipe import PACK_STAGE, PackRecipe
from pipeline_assets.corpus.tokens.families import TokenizerFile
from pipeline_assets.corpus.tokens.o200k_harmony import VOCABULARY_SHA256, Driver
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.engine import RunSettings

NOON = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)
_encoder = msgspec.json.Encoder()


class Doc(NamedTuple):
    """Document of one source."""

    source: str
    doc_id: str
    text: str


def sized_documents(source: str, lengths: Sequence[int]) -> list[Doc]:
    """Build documents of some lengths in tokens, each with its end token."""
    return [
        Doc(source, f"{source}-{number}", " ".join(f"w{(number * 7 + word) % 50}" for word in range(length - 1)))
        for number, length in enumerate(lengths)
    ]


TWO_SOURCES = [*sized_documents("a", [3, 5, 20, 4, 2, 9] * 4), *sized_documents("b", [4, 4, 4, 7, 30] * 4)]
STRATEGIES = ["sequential", "best_fit"]


def recipe(tokenizer: Path | None, **changes: Any) -> PackRecipe:
    """Build the recipe with some keys changed; None is the shipped tokenizer."""
    caps = changes.pop("caps", {})
    words_recipe = tokenizer and {
        "family": "hf_tokenizer",
        "sha256": hashlib.sha256(tokenizer.read_bytes()).hexdigest(),
        "end_of_document": "<end>",
    }
    values = {
        "seq_len": 8,
        "num_seqs": 2,
        "strategy": "sequential",
        "seed": 1,
        "weights": {"a": "0.5", "b": "0.5"},
        "max_epochs": {"every_source": changes.pop("max_epochs", "1"), "sources": caps},
        "tokenizer": words_recipe or {"family": "o200k_harmony", "sha256": VOCABULARY_SHA256},
        "boundaries": True,
    }
    return PackRecipe.model_validate(values | changes)


def write_shards(folder: Path, documents: Sequence[Doc], shard_documents: int) -> list[CorpusShard]:
    """Write the documents of each source as shards."""
    shards = []
    for source in sorted({document.source for document in documents}):
        own = [document for document in documents if document.source == source]
        for number, start in enumerate(range(0, len(own), shard_documents)):
            path = f"shards/{number:05d}.jsonl.zst"
            (folder / source / "shards").mkdir(parents=True, exist_ok=True)
            rows = [_document(document) for document in own[start : start + shard_documents]]
            with JsonlZstWriter(folder / source / path, 3) as writer:
                writer.write_lines(b"".join(_encoder.encode(row) + b"\n" for row in rows), len(rows))
            shards.append(CorpusShard(f"{source}-{number}", path, folder / source / path, len(rows), source, 0))
    return shards


def license_for(doc_id: str) -> str:
    """Return one of two licences."""
    return ("cc0-1.0", "odc-by")[sum(doc_id.encode()) % 2]


def _document(doc: Doc) -> Document:
    return Document(doc.text, doc.source, "notes", doc.doc_id, license_for(doc.doc_id), "", Meta("a", 0))


def pack(
    folder: Path,
    shards: Sequence[CorpusShard],
    rules: PackRecipe,
    tokenizer: Path | None,
    settings: RunSettings | None = None,
    driver: Driver = "gigatoken",
) -> Artifact:
    target = Target(unknown_kind("made/packed", PACK_STAGE), "packed", Path("packed"), {"pack": rules.content()})
    own, file = settings or RunSettings(), TokenizerFile(rules.tokenizer, tokenizer, driver)
    return build_target(
        target, folder, lambda building: pack_corpus(building, shards, rules, file, own, NOON), False, {}
    )


def pack_documents(folder: Path, documents: Sequence[Doc], shard_documents: int = 5, **changes: Any) -> Artifact:
    """Pack documents with the tokenizer of words and a changed recipe."""
    folder.mkdir(exist_ok=True)
    tokenizer = write_tokenizer(folder)
    shards = write_shards(folder / "corpus", documents, shard_documents)
    return pack(folder, shards, recipe(tokenizer, **changes), tokenizer)


def check_tokens(packed: PackedSet, ids: dict[str, list[int]]) -> None:
    """Check that rows contain their documents' tokens, followed by padding."""
    for row in range(len(packed)):
        segments = packed.segments(row)
        tokens = [token for entry in segments for token in ids[entry.doc_id][entry.start : entry.start + entry.length]]
        padding = [packed.meta.pad_id] * (packed.meta.seq_len - len(tokens))
        numbers = [number for number, entry in enumerate(segments) for _ in range(entry.length)]
        assert packed[row].tolist() == tokens + padding
        assert packed.document_numbers(row).tolist() == numbers + [-1] * len(padding)
