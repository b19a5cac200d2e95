"""The stage that publishes a converted shard: as it is, or without the documents whose id came before."""

import functools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from pipeline_assets.corpus import doc_ids
from pipeline_assets.corpus.document import DeriveId, Document
from pipeline_assets.corpus.document_shards.shard_writer import REJECTS
from pipeline_assets.corpus.formats.jsonl_zst import SUFFIX, JsonlZstWriter, read_line_blocks
from pipeline_assets.corpus.spine import durable
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.building import BuildFolder, Building, OutputFile, Receipt
from pipeline_assets.corpus.spine.engine import EngineSettings, run_stage
from pipeline_assets.corpus.spine.rejects import Reject
from pipeline_assets.corpus.spine.stage import KILLED_WORKER, Window

SHARDS = "shards"
REJECTS_FILE = f"rejects{SUFFIX}"
DUPLICATE_ID = "duplicate_doc_id"
_decoder = msgspec.json.Decoder(Document)
_reject_decoder = msgspec.json.Decoder(Reject)
_encoder = msgspec.json.Encoder()


@dataclass(frozen=True)
class ConvertedShard:
    """A converted shard: where it lies, its receipt, and what says which rows repeat an id; None where none does."""

    name: str
    file: Path
    converted: Receipt
    repeats: Path | None

    @property
    def rows(self) -> int:
        return self.converted.files[0].rows


def publish(
    building: Building, converted: Mapping[str, Receipt], derive_id: DeriveId, engine: EngineSettings, zstd_level: int
) -> list[Receipt]:
    """Receipts of the final shards, every doc_id once. Only shards where one is repeated are written again.

    Args:
        converted: receipts of `ShardWriter` by shard, in manifest order.
    """
    receipts = list(converted.values())
    ids = [building.path(receipt.files[1].path) for receipt in receipts]
    repeats = doc_ids.write_repeats(ids, building)
    shards = [
        ConvertedShard(name, building.path(receipt.files[0].path), receipt, of_shard)
        for (name, receipt), of_shard in zip(converted.items(), repeats, strict=True)
    ]
    rewritten = [shard for shard in shards if shard.repeats is not None]
    work = functools.partial(publish_shard, derive_id=derive_id, zstd_level=zstd_level)
    again = run_stage("publish", work, rewritten, building, engine) if rewritten else ()
    receipts_again = {shard.name: receipt for shard, receipt in zip(rewritten, again, strict=True)}
    return [receipts_again.get(shard.name) or _linked(shard, building) for shard in shards]


def gather_rejects(
    building: Building, converted: Sequence[Receipt], published: Sequence[Receipt], zstd_level: int
) -> OutputFile:
    """All rejects in one file: shard by shard, rows in source order, then repeated ids."""
    with JsonlZstWriter(building.path(REJECTS_FILE), zstd_level) as writer:
        for receipts in zip(converted, published, strict=True):
            for reject in read_rejects(building, receipts):
                writer.write_lines(msgspec.json.encode(reject.to_json()) + b"\n", 1)
    return writer.output(REJECTS_FILE)


def read_rejects(building: Building, receipts: Sequence[Receipt]) -> Iterator[Reject]:
    """The rejects that receipts name, in their order."""
    for receipt in receipts:
        for file in receipt.files:
            if file.path.startswith(REJECTS):
                for block in read_line_blocks(building.path(file.path)):
                    yield from _reject_decoder.decode_lines(block)


def shard_rows(corpus: Artifact) -> dict[str, int]:
    """Documents by shard, in manifest order."""
    return {file.path: file.rows for file in corpus.manifest.identity.files if file.path.startswith(f"{SHARDS}/")}


def holds_documents(artifact: Artifact) -> bool:
    """Whether an artifact is a corpus of Documents, whatever made it."""
    return bool(shard_rows(artifact))


def _linked(shard: ConvertedShard, folder: BuildFolder) -> Receipt:
    """The shard as it is, under its final name: done in no time, so that no worker does it and no receipt keeps it."""
    name = f"{SHARDS}/{shard.name}{SUFFIX}"
    durable.link(shard.file, folder.path(name))
    return Receipt([replace(shard.converted.files[0], path=name)], shard.converted.counts)


def publish_shard(
    shard: ConvertedShard, window: Window, folder: BuildFolder, derive_id: DeriveId, zstd_level: int
) -> Receipt:
    """The shard written again, under its final name: a repeated source id is rejected, a repeated derived id numbered
    `#2`, `#3`.

    Counts are those of the whole conversion, corrected.
    """
    name = f"{SHARDS}/{shard.name}{SUFFIX}"
    counts = dict(shard.converted.counts)
    rejects_name = f"{REJECTS}/{shard.name}.repeats{SUFFIX}"
    rejected: Counter[str] = Counter()
    times = doc_ids.read_repeats(shard.repeats, shard.rows)
    first_row = 0
    with (
        JsonlZstWriter(folder.path(name), zstd_level) as writer,
        JsonlZstWriter(folder.path(rejects_name), zstd_level) as rejects,
    ):
        for block in read_line_blocks(shard.file):
            lines = block.splitlines(keepends=True)
            kept = []
            for row, line in window.of(lines, first_row):
                verdict = _publish_line(line, row, int(times[row]), shard, window, derive_id)
                if isinstance(verdict, Reject):
                    rejects.write_lines(msgspec.json.encode(verdict.to_json()) + b"\n", 1)
                    rejected[verdict.reason] += 1
                    counts["bytes"] -= len(_decoder.decode(line).text.encode("utf-8")) if row not in window.fatal else 0
                else:
                    kept.append(verdict)
            first_row += len(lines)
            writer.write_lines(b"".join(kept), len(kept))
    counts["documents"] -= rejected.total()
    for reason, rows in rejected.items():
        counts[f"rejected/{reason}"] = counts.get(f"rejected/{reason}", 0) + rows
    return Receipt([writer.output(name), rejects.output(rejects_name)], counts)


def _publish_line(
    line: bytes, row: int, nth: int, shard: ConvertedShard, window: Window, derive_id: DeriveId
) -> bytes | Reject:
    """The line as it is published, or why it isn't; it is the nth of its id, or 0, the first."""
    if row in window.fatal:
        return Reject(shard.converted.files[0].path, row, KILLED_WORKER)
    if not nth:
        return line
    document = _decoder.decode(line)
    if document.doc_id == derive_id(document.text):
        numbered = msgspec.structs.replace(document, doc_id=f"{document.doc_id}#{nth}")
        return _encoder.encode(numbered) + b"\n"
    return Reject(document.meta["source_file"], document.meta["source_row"], DUPLICATE_ID, document.doc_id)
