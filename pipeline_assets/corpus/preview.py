"""The first rows of an artifact as a person would want to see them."""

from pathlib import Path
from typing import Any

import msgspec

from pipeline_assets.corpus.corpus_report import REPORT_JSON
from pipeline_assets.corpus.document import Document
from pipeline_assets.corpus.document_shards import SHARDS
from pipeline_assets.corpus.formats.jsonl_zst import read_line_blocks
from pipeline_assets.corpus.formats.megatron import read_indexed_dataset
from pipeline_assets.corpus.formats.parquet import read_columns
from pipeline_assets.corpus.megatron_split import DOCUMENTS, TOKENS
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.own_files import REBUILD, OwnFile
from pipeline_assets.corpus.tokens.o200k_harmony import VOCABULARY_SHA256, load_encoder

Rows = list[dict[str, str]]
_SHOWN_ROWS = 5
_SHOWN_CHARACTERS = 160
_SHOWN_TOKENS = 48
_REPORT_FILE: OwnFile[dict[str, Any]] = OwnFile("report", 256 << 20, REBUILD, dict[str, Any])


def preview_documents(corpus: Artifact) -> Rows:
    """The first documents: id, length, how they begin."""
    first = next(file.path for file in corpus.manifest.identity.files if file.path.startswith(SHARDS))
    block = next(read_line_blocks(corpus.path(first)), b"")
    documents = [msgspec.json.decode(line, type=Document) for line in block.splitlines()[:_SHOWN_ROWS]]
    return [
        {"doc_id": document.doc_id, "characters": f"{len(document.text):,}", "text": _beginning(document.text)}
        for document in documents
    ]


def preview_inputs(raw: Artifact) -> Rows:
    """The first files of a raw source."""
    files = raw.manifest.identity.inputs[:_SHOWN_ROWS]
    return [{"file": file["name"], "bytes": f"{file['bytes']:,}", "digest": file["digest"]} for file in files]


def preview_report(report: Artifact) -> Rows:
    """What each source holds."""
    sources = _REPORT_FILE.read(report.path(REPORT_JSON))["sources"]
    return [
        {"source": name, **{key: f"{counts[key]:,}" for key in ("documents", "tokens", "utf8_bytes")}}
        for name, counts in sources.items()
    ]


def preview_packed(packed: Artifact) -> Rows:
    """What each source was asked for and gives."""
    return [
        {
            "source": source,
            "asked": f"{float(counts['asked_share']):.2%}",
            "of the tokens": f"{float(counts['share']):.2%}",
            "tokens": f"{counts['packed_tokens']:,}",
            "epochs": f"{float(counts['epochs']):.2f}",
        }
        for source, counts in packed.manifest.identity.counts["by_source"].items()
    ]


def preview_split(split: Artifact) -> Rows:
    """The first sequences, decoded from their tokens: what a trainer would see."""
    encoder = load_encoder(VOCABULARY_SHA256)
    dataset = read_indexed_dataset(split.folder / Path(TOKENS).stem)
    documents = read_columns(split.path(DOCUMENTS), ["doc_id"]).column("doc_id")
    count = min(_SHOWN_ROWS, len(dataset.lengths))
    return [
        {
            "doc_id": str(documents[number].as_py()),
            "tokens": f"{dataset.lengths[number]:,}",
            "text": _beginning(encoder.decode(dataset.document(number)[:_SHOWN_TOKENS])),
        }
        for number in range(count)
    ]


def preview_selection(selection: Artifact) -> Rows:
    """The first shards of a text manifest."""
    shards = selection.manifest.identity.decisions["shards"][:_SHOWN_ROWS]
    return [
        {"shard": shard["path"], "documents": f"{shard['rows']:,}", "sha256": shard["content_sha256"]}
        for shard in shards
    ]


def _beginning(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN_CHARACTERS else line[:_SHOWN_CHARACTERS] + "…"
