"""Proof of a corpus that was made of others: its documents are held against their lines upstream, to which the rule
that made it is applied again.

Memory: of each shard in hand, the drawn documents upstream.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from pipeline_assets.corpus.dedup.corpus_shard import CorpusShard
from pipeline_assets.corpus.document import Document
from pipeline_assets.corpus.formats.jsonl_zst import read_line_blocks
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.sample import Sample
from pipeline_assets.corpus.verification.proof import ShardProof, Stopped

if TYPE_CHECKING:
    from pipeline_assets.corpus.rows.documents import DerivedRows

_decoder = msgspec.json.Decoder(Document)


@dataclass(frozen=True)
class DerivedProver:
    """Proves documents of one corpus.

    Attributes:
        made_from: the shard upstream that each own one is made from.
    """

    store: "DerivedRows"
    made_from: Mapping[str, CorpusShard]

    @property
    def how(self) -> str:
        return self.store.how

    @property
    def artifact(self) -> Artifact:
        return self.store.artifact

    @property
    def shards(self) -> Sequence[str]:
        return list(self.store.shards)

    def files(self, shard: str) -> Sequence[Path]:
        upstream = [self.made_from[shard].file] if shard in self.made_from else []
        return [self.artifact.folder / shard, *upstream]

    def prove(self, proof: ShardProof, within: Sample, stop: threading.Event) -> None:
        if proof.shard not in self.made_from:
            proof.complain(f"no shard upstream is one that {proof.shard} was made from")
            return
        upstream = {one.doc_id: one for one in _drawn(self.made_from[proof.shard].file, within, stop)}
        for document in _drawn(self.artifact.folder / proof.shard, within, stop):
            what = self._contradiction(document, upstream.get(document.doc_id))
            if what is None:
                proof.documents += 1
            else:
                proof.complain(f"document {document.doc_id!r} {what}")

    def _contradiction(self, document: Document, upstream: Document | None) -> str | None:
        """What is wrong with a document beside the one that it was made from; None if nothing is."""
        if upstream is None:
            return "is not in the shard upstream"
        text = self.store.derived(upstream)
        if text is None:
            return "should have been dropped"
        if document.text != text:
            return "has another text than is made of that upstream"
        return None if msgspec.structs.replace(upstream, text=text) == document else "has other labels than upstream"


def _drawn(shard: Path, within: Sample, stop: threading.Event) -> Iterator[Document]:
    for block in read_line_blocks(shard):
        if stop.is_set():
            raise Stopped
        yield from (one for one in _decoder.decode_lines(block) if within.draws(one.doc_id))
