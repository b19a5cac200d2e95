"""The chain of an artifact: itself, its members, and everything that they were made from, each once, down to files from
outside.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline_assets.corpus.spine.artifact import Artifact, Damage, members_of, sealed_manifest, sealed_member
from pipeline_assets.corpus.spine.lineage import AREAS, Lineage


@dataclass(frozen=True)
class Finding:
    """Something that a manifest contradicts.

    Attributes:
        where: the file or folder.
        artifact: digest of the artifact whose manifest does; empty for a manifest that can't be read.
    """

    where: Path
    what: str
    artifact: str


@dataclass
class Chain:
    """What there is to verify.

    Attributes:
        lineage: where upstream artifacts were looked for; None where none were.
        artifacts: the one asked for, then members and upstream, breadth first, each digest once. Their files are not
            looked at yet.
        outside: inputs that are files from elsewhere, as manifests list them: {name, digest, bytes, …}, by the digest
            of the artifact that was made from them.
        broken: members that are not there, or that another artifact is in the place of; where something is missing,
            manifests below the root that can't be read.
        missing: upstream artifacts that are not there.
    """

    lineage: Lineage | None
    artifacts: list[Artifact] = field(default_factory=list)
    outside: dict[str, list[Mapping[str, Any]]] = field(default_factory=dict)
    broken: list[Finding] = field(default_factory=list)
    missing: list[Finding] = field(default_factory=list)

    def upstream_of(self, artifact: Artifact, stage: str) -> Artifact | None:
        """The artifact of a stage that this one was made from, through any inputs; None if the chain has none."""
        by_digest = {found.manifest.digest: found for found in self.artifacts}
        waiting = [artifact]
        while waiting:
            current = waiting.pop(0)
            if current.manifest.identity.stage.name == stage:
                return current
            digests = [entry["digest"] for entry in current.manifest.identity.inputs]
            waiting += [by_digest[digest] for digest in digests if digest in by_digest]
        return None


def chain_of(folder: Path, root: Path | None) -> Chain:
    """The chain of the artifact in a folder.

    Args:
        root: the data root below which upstream artifacts are found by their digests; None asks for no upstream, so
            for the artifact and its members.
    Raises:
        InputError: nothing is sealed in the folder, or its manifest was edited.
    """
    lineage = None if root is None else Lineage(root)
    chain = Chain(lineage)
    waiting = [Artifact(folder, sealed_manifest(folder))]
    seen = {waiting[0].manifest.digest}
    while waiting:
        artifact = waiting.pop(0)
        chain.artifacts.append(artifact)
        here = {member.manifest.digest: member for member in _members(artifact, chain)}
        for entry in artifact.manifest.identity.inputs:
            if lineage is None or "member" in entry:
                continue
            if "bytes" in entry:
                chain.outside.setdefault(artifact.manifest.digest, []).append(entry)
            elif entry["digest"] not in seen | here.keys():
                found = lineage.find(entry["digest"])
                if found is not None:
                    here[entry["digest"]] = found
                else:
                    seen.add(entry["digest"])
                    chain.missing.append(_missing(artifact, entry, root))
        waiting += [found for digest, found in here.items() if digest not in seen]
        seen |= here.keys()
    if chain.missing and lineage is not None:  # one of the unreadable may be what is missing
        known = {finding.where.absolute() for finding in chain.broken}
        wrong = [Finding(Path(error.where), error.what, "") for error in lineage.unreadable.values()]
        chain.broken += [finding for finding in wrong if finding.where.absolute() not in known]
    return chain


def _members(artifact: Artifact, chain: Chain) -> Iterable[Artifact]:
    for member, digest in members_of(artifact.manifest).items():
        found = sealed_member(artifact.folder, member, digest)
        if isinstance(found, Damage):
            chain.broken.append(Finding(artifact.folder / found.path, found.what, artifact.manifest.digest))
        else:
            yield Artifact(artifact.folder / member, found)


def _missing(artifact: Artifact, entry: Mapping[str, Any], root: Path | None) -> Finding:
    what = f"made from {entry['name']} {entry['digest']}, which is not below {', '.join(AREAS)} of {root}"
    return Finding(artifact.folder, what, artifact.manifest.digest)
