"""Kinds of artifacts: which stage makes one, and how. Assets build by them, and so does a rebuild from a manifest."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.building import Building
from pipeline_assets.corpus.spine.engine import EngineSettings
from pipeline_assets.corpus.spine.manifest import Manifest, StageVersion
from pipeline_assets.corpus.spine.reads import logged
from pipeline_assets.corpus.spine.target import Content, Outside, Target


@dataclass(frozen=True)
class RunSettings:
    """How things are built: speed and storage, never content.

    Attributes:
        hub: reading access to a hub; None where nothing is read from one.
        zstd_level: compression of text shards.
        fetch_threads: downloads at a time.
        memory_bytes: what deduplication may take, all processes together; it spills what is beyond.
        faiss_gpu: the GPU that faiss is to search on; None for the CPU.
    """

    engine: EngineSettings
    hub: HubFiles | None = None
    zstd_level: int = 3
    fetch_threads: int = 8
    memory_bytes: int = 2 << 30
    faiss_gpu: int | None = None

    def hub_for(self, what: str) -> HubFiles:
        """The hub that something is read from.

        Raises:
            ValueError: there is none.
        """
        if self.hub is None:
            raise ValueError(f"{what} is read from a hub, and the run settings have none")
        return self.hub

    def naming(self, target: Target) -> "RunSettings":
        """The same, with the target's partition named in progress lines."""
        return replace(self, engine=replace(self.engine, subject=target.partition or ""))

    def provenance(self) -> Mapping[str, Any]:
        """What a manifest records of them."""
        return {
            "workers": self.engine.workers,
            "start_method": self.engine.start_method,
            "zstd_level": self.zstd_level,
            "fetch_threads": self.fetch_threads,
        }


class Build(Protocol):
    """Seals the artifact that a target describes; one that is there as asked is not touched."""

    def __call__(self, target: Target, root: Path, replace: bool, settings: RunSettings) -> Artifact:
        """The sealed artifact, below `root`, as are those that it is made from."""


Make = Callable[[Building, Target, Path, RunSettings], Content]
Describe = Callable[[Target, Path], Content]


def _nothing(target: Target) -> Sequence[Target]:
    return ()


def _nowhere(manifest: Manifest, root: Path) -> Outside | None:
    return None


@dataclass(frozen=True)
class Kind:
    """One kind of artifact.

    Attributes:
        name: `system/artifact`; the asset's key.
        stage: the rule that makes it, at the version that this program has.
        build: makes one from its target alone, so that a target read from a manifest will do.
        reads: artifacts whose files it reads, beside the manifests of those that it is made from.
        outside: where the files of this machine lie that a sealed one below a data root was made from; None where
            there are none.
        labels: names of its files that are no content: they carry a time or a path.
    """

    name: str
    stage: StageVersion
    build: Build
    reads: Callable[[Target], Sequence[Target]] = _nothing
    outside: Callable[[Manifest, Path], Outside | None] = _nowhere
    labels: tuple[str, ...] = ()


def by_files(make: Make) -> Build:
    """Builds artifacts that hold files: `make` writes them into the building folder."""

    def build(target: Target, root: Path, replace: bool, settings: RunSettings) -> Artifact:
        named = settings.naming(target)
        return target.build(root, lambda building: make(building, target, root, named), replace, named.provenance())

    return build


def by_members(describe: Describe) -> Build:
    """Builds artifacts whose content is others, folders inside them: `describe` says what they are together."""

    def build(target: Target, root: Path, replace: bool, settings: RunSettings) -> Artifact:
        with logged() as reads:
            content = describe(target, root)
            reads.finish()
        return target.seal_members(root, content, settings.provenance())

    return build
