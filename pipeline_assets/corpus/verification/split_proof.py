"""Proof of a Megatron split: the text of documents is encoded again, and the split must have these very ids where its
index and its table of documents say, and must lack none.

Memory: of each shard in hand, its rows of the table and one block of its lines.
"""

import functools
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import msgspec
import numpy as np

from pipeline_assets.corpus.document import DocumentText
from pipeline_assets.corpus.formats.jsonl_zst import read_line_blocks
from pipeline_assets.corpus.megatron_split import DOCUMENTS, INDEX, REJECTS, TOKENS
from pipeline_assets.corpus.sampling.split import split_rule
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.sample import Sample
from pipeline_assets.corpus.text_selection import selected_shards
from pipeline_assets.corpus.tokens.o200k_harmony import END_OF_TEXT, Encoder, load_encoder
from pipeline_assets.corpus.trace.snapshot_rows import rejects_of
from pipeline_assets.corpus.verification.proof import ShardProof, Stopped
from pipeline_assets.corpus.verification.shard_sequences import ShardSequences, sequences_of

_decoder = msgspec.json.Decoder(DocumentText)


@dataclass(frozen=True)
class SplitProver:
    """Proves documents of one split. Ids are tiktoken's, whatever encoded the split.

    Attributes:
        corpus: the snapshot that the text lies in.
        shards: those of the snapshot that the split was made from, in manifest order.
    """

    how: ClassVar[str] = "encoded again"
    artifact: Artifact
    corpus: Artifact
    shards: Sequence[str]
    encoder: Encoder

    @classmethod
    def of(cls, split: Artifact, selection: Artifact, corpus: Artifact) -> "SplitProver":
        """Of a split and what it was made from; shards behind its cut were never read.

        Raises:
            InputError: this program has another vocabulary than the split was made with.
        """
        unread = set(split.manifest.identity.decisions["unread_shards"])
        read = [file.path for file in selected_shards(selection.manifest) if file.path not in unread]
        return cls(split, corpus, read, _oracle(str((split.manifest.identity.tokenizer or {}).get("sha256"))))

    def files(self, shard: str) -> list[Path]:
        return [self.corpus.folder / shard, *(self.artifact.folder / name for name in (TOKENS, INDEX, DOCUMENTS))]

    def prove(self, proof: ShardProof, within: Sample, stop: threading.Event) -> None:
        sequences = sequences_of(self.artifact, proof.shard)
        missing: dict[int, str] = {}
        with open(self.artifact.folder / TOKENS, "rb", buffering=0) as tokens:
            for drawn in _drawn_documents(self.corpus.folder / proof.shard, within, stop):
                there = [(row, document) for row, document in drawn if row in sequences.rows]
                missing |= {row: document.doc_id for row, document in drawn if row not in sequences.rows}
                runs = self.encoder.encode([document.text for _, document in there]).closed_by(END_OF_TEXT)
                ends = np.cumsum(runs.lengths, dtype=np.int64)
                for (row, document), length, end in zip(there, runs.lengths, ends, strict=True):
                    what = sequences.contradiction(row, document.doc_id, runs.ids[end - length : end], tokens)
                    if what is None:
                        proof.documents += 1
                    else:
                        proof.complain(what)
        for what in self._wrongly_missing(proof.shard, missing, sequences):
            proof.complain(what)
        for what in sequences.unseen(within):
            proof.complain(what)

    def _wrongly_missing(self, shard: str, missing: Mapping[int, str], sequences: ShardSequences) -> Iterator[str]:
        """Of documents, by row, those that the split should have: not the other's, not rejected, not behind the cut."""
        identity = self.artifact.manifest.identity
        split_of = split_rule(identity.recipe["valid_fraction"])
        is_cut = shard == self.shards[-1] and identity.counts["ledger"]["dropped"]["over_budget"] > 0
        last = max(sequences.rows, default=-1)
        rejected: set[int] | None = None
        for row, doc_id in missing.items():
            if split_of(doc_id) != identity.recipe["split"] or (is_cut and row > last):
                continue
            if rejected is None:
                rejected = {reject.row for reject in rejects_of(self.artifact.folder / REJECTS, shard)}
            if row not in rejected:
                yield f"{DOCUMENTS} lacks {doc_id!r}, row {row} of {shard}"


@functools.lru_cache(maxsize=1)
def _oracle(tokenizer_sha256: str) -> Encoder:
    """tiktoken, its vocabulary loaded before there are threads that would each load it."""
    encoder = load_encoder(tokenizer_sha256, driver="tiktoken")
    encoder.encode([""])
    return encoder


def _drawn_documents(shard: Path, within: Sample, stop: threading.Event) -> Iterator[list[tuple[int, DocumentText]]]:
    """(row, document) of those that are drawn by their id, block by block."""
    first = 0
    for block in read_line_blocks(shard):
        if stop.is_set():
            raise Stopped
        documents = _decoder.decode_lines(block)
        yield [(row, document) for row, document in enumerate(documents, first) if within.draws(document.doc_id)]
        first += len(documents)
