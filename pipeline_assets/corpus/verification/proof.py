"""Proof by documents: what an artifact says of some of them is worked out again from what it was made from, a Document
shard at a time.
"""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import msgspec
import pyarrow as pa

from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.spine.journal import Journal, Key, state_of
from pipeline_assets.corpus.spine.progress import Progress
from pipeline_assets.corpus.spine.sample import Sample

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
