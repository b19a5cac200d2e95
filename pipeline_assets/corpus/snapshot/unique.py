"""The stage that publishes a converted shard: as it is, or without the documents whose id came before."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from pipeline_assets.corpus.document import Document, derived_doc_id
from pipeline_assets.corpus.formats.jsonl_zst import SUFFIX, JsonlZstWriter, read_line_blocks, write_rows
from pipeline_assets.corpus.snapshot.convert import REJECTS
from pipeline_assets.corpus.snapshot.recipe import SnapshotRecipe
from pipeline_assets.corpus.spine import durable
from pipeline_assets.corpus.spine.building import BuildFolder, OutputFile, Receipt
from pipeline_assets.corpus.spine.rejects import Reject
from pipeline_assets.corpus.spine.stage import KILLED_WORKER, WHOLE, Window

SHARDS = "shards"
DUPLICATE_ID = "duplicate_doc_id"
_decoder = msgspec.json.Decoder(Document)
_encoder = msgspec.json.Encoder()


@dataclass(frozen=True)
class ConvertedShard:
    """A converted shard: where it lies, its receipt, and which rows repeat an id: row → 2 for the second of its id."""

    name: str
    file: Path
    converted: Receipt
    repeats: Mapping[int, int]

    @property
    def rows(self) -> int:
        return self.converted.files[0].rows


def publish_shard(
    shard: ConvertedShard, window: Window, folder: BuildFolder, recipe: SnapshotRecipe, zstd_level: int
) -> Receipt:
    """The shard under its final name. A repeated source id is rejected, a repeated derived id is numbered `#2`, `#3`.

    Counts are those of the whole conversion, corrected.
    """
    name = f"{SHARDS}/{shard.name}{SUFFIX}"
    converted = shard.converted.files[0]
    if not shard.repeats and window == WHOLE:
        durable.link(shard.file, folder.path(name))
        file = OutputFile(name, converted.rows, converted.bytes, converted.sha256, converted.content_sha256)
        return Receipt([file], shard.converted.counts)
    counts = dict(shard.converted.counts)
    rejects: list[Reject] = []
    first_row = 0
    with JsonlZstWriter(folder.path(name), zstd_level) as writer:
        for block in read_line_blocks(shard.file):
            lines = block.splitlines(keepends=True)
            kept = []
            for row, line in window.of(lines, first_row):
                verdict = _publish_line(line, row, shard, window, recipe)
                if isinstance(verdict, Reject):
                    rejects.append(verdict)
                    counts["bytes"] -= len(_decoder.decode(line).text.encode("utf-8")) if row not in window.fatal else 0
                else:
                    kept.append(verdict)
            first_row += len(lines)
            writer.write_lines(b"".join(kept), len(kept))
    counts["documents"] -= len(rejects)
    for reject in rejects:
        counts[f"rejected/{reject.reason}"] = counts.get(f"rejected/{reject.reason}", 0) + 1
    rejects_name = f"{REJECTS}/{shard.name}.repeats{SUFFIX}"
    rows = [reject.to_json() for reject in rejects]
    return Receipt([writer.output(name), write_rows(folder.path(rejects_name), rejects_name, rows, zstd_level)], counts)


def _publish_line(
    line: bytes, row: int, shard: ConvertedShard, window: Window, recipe: SnapshotRecipe
) -> bytes | Reject:
    """The line as it is published, or why it isn't."""
    if row in window.fatal:
        return Reject(shard.converted.files[0].path, row, KILLED_WORKER)
    if row not in shard.repeats:
        return line
    document = _decoder.decode(line)
    if document.doc_id == derived_doc_id(recipe.dataset, recipe.config, recipe.split, document.text):
        numbered = msgspec.structs.replace(document, doc_id=f"{document.doc_id}#{shard.repeats[row]}")
        return _encoder.encode(numbered) + b"\n"
    return Reject(document.meta["source_file"], document.meta["source_row"], DUPLICATE_ID, document.doc_id)
