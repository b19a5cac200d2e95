"""Sealed corpora of synthetic documents."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from pipeline_assets.build.build_target import build_target
from pipeline_assets.build.systems import unknown_kind
from pipeline_assets.build.target import Target
from pipeline_assets.corpus.document import Document
from pipeline_assets.corpus.formats.jsonl_zst import JsonlZstWriter, read_line_blocks
from pipeline_assets.corpus.sealed_shards import rows_by_shard
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.manifest import StageVersion
from pipeline_assets.spine.staging import StagingDir

_encoder = msgspec.json.Encoder()


def numbered(first: int, count: int) -> str:
    """Return words that no text of other numbers has."""
    return " ".join(f"w{number}" for number in range(first, first + count))


def seal_corpus(folder: Path, source: str, documents: Sequence[Document], shard_documents: int) -> Artifact:
    """Seal a corpus of one source; without documents it has one empty shard."""

    def make(building: StagingDir) -> BuildResult:
        files = []
        for number, start in enumerate(range(0, max(len(documents), 1), shard_documents)):
            name, own = f"shards/{number:05d}.jsonl.zst", documents[start : start + shard_documents]
            with JsonlZstWriter(building.path(name), 3) as writer:
                writer.write_lines(_encoder.encode_lines(own), len(own))
            files.append(writer.output(name))
        text_bytes = sum(len(document.text.encode()) for document in documents)
        return BuildResult(files, {"documents": len(documents), "text_bytes": text_bytes}, {})

    target = Target(
        unknown_kind("made/documents", StageVersion("made", 1)), source, Path(source), {"of": shard_documents}
    )
    return build_target(target, folder, make, False, {})


def lines_in(corpus: Artifact) -> list[bytes]:
    blocks = (block for name in rows_by_shard(corpus) for block in read_line_blocks(corpus.path(name)))
    return [line for block in blocks for line in block.splitlines()]
