"""Proof by documents: what an artifact says of some of them is worked out again from what it was made from, a Document
shard at a time.

Proof of a corpus that was made of others: its documents are held against their lines upstream, to which the rule
that made it is applied again.

Memory: of each shard in hand, the drawn documents upstream.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec
import pyarrow as pa

from pipeline_assets.corpus.dedup.corpus_shard import CorpusShard
from pipeline_assets.corpus.document import Document
from pipeline_assets.corpus.formats.jsonl_zst import read_line_blocks
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.spine.rehash import Journal, Key, state_of
from pipeline_assets.corpus.spine.usage import Progress
from pipeline_assets.corpus.trust.result import Sample

if TYPE_CHECKING:
    from pipeline_assets.corpus.rows.documents import DerivedRows


_MAX_COMPLAINTS = 5  # of a shard: where the first lie matters, not how many follow


@dataclass
class ShardProof:
    """What came of the drawn documents of one Document shard.

    Attributes:
        documents: found to be as they should be.
        not_here: could not be looked at, since what they were made from isn't here.
        found_at: when a former process found all this, in seconds since 1970; None where this one did.
    """

    shard: str
    documents: int = 0
    not_here: int = 0
    complaints: list[str] = field(default_factory=list)
    found_at: int | None = None

    def complain(self, what: str) -> None:
        if len(self.complaints) < _MAX_COMPLAINTS:
            self.complaints.append(what)


class Stopped(Exception):
    """The proof was called off."""


class Prover(Protocol):
    """How the documents of one kind of artifact are proven; `how` is that in a few words."""

    @property
    def how(self) -> str: ...

    @property
    def artifact(self) -> Artifact:
        """What is proven."""

    @property
    def shards(self) -> Sequence[str]:
        """Document shards whose documents are in it, in manifest order."""

    def files(self, shard: str) -> Sequence[Path]:
        """What is read for a shard: if one of these is touched, its proof counts no more."""

    def prove(self, proof: ShardProof, within: Sample, stop: threading.Event) -> None:
        """Looks at the documents that `within` draws by their ids, counts those that are right, complains of others.

        Raises:
            InputError, ArrowException, MsgspecError, OSError, ValueError: a file can't be read as what it should be.
            Stopped: `stop` was set.
        """


def proofs(prover: Prover, sample: Sample, journal: Journal, threads: int, log_every_s: float) -> Iterator[ShardProof]:
    """A proof for each shard that the sample draws, in manifest order; closing the iterator calls the rest off.

    What contradicted is looked at again, even if a former process did.
    """
    drawn, within = sample.shards_and_rows(prover.shards)
    progress = Progress(f"documents of {prover.artifact.manifest.name}", len(drawn), "shards", log_every_s, quiet_s=2.0)
    stop = threading.Event()
    pool = ThreadPoolExecutor(max(threads, 1))
    try:
        for proof in pool.map(lambda shard: _proof(prover, shard, within, journal, stop), drawn):
            progress.add(1, {"documents": proof.documents})
            yield proof
    finally:
        stop.set()
        pool.shutdown(wait=True, cancel_futures=True)


def _proof(prover: Prover, shard: str, within: Sample, journal: Journal, stop: threading.Event) -> ShardProof:
    proof = ShardProof(shard)
    try:
        key = _key(prover, shard, within)
        known = journal.fact(key)
        if known is not None:
            return ShardProof(shard, known["documents"], known["not_here"], [], known["at"])
        prover.prove(proof, within, stop)
        if not proof.complaints and _key(prover, shard, within) == key:
            journal.note(key, {"documents": proof.documents, "not_here": proof.not_here})
    except InputError as error:
        proof.complain(f"{error.where}: {error.what}")
    except (pa.ArrowException, msgspec.MsgspecError, OSError, ValueError) as error:
        proof.complain(f"{shard} can't be looked at ({' '.join(str(error).split())})")
    return proof


def _key(prover: Prover, shard: str, within: Sample) -> Key:
    states = [state_of(path) for path in prover.files(shard)]
    return ["proof", prover.artifact.manifest.digest, shard, str(within.share), within.seed, states]


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
