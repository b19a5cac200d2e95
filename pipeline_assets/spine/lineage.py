"""Lineage: the graph of all artifacts below a data root.

The chain of an artifact is the artifact, its members (artifacts inside its own folder, such as `train`), and all their
direct and indirect inputs, each once.
"""

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from pipeline_assets.spine.areas import AREAS, MANIFEST_COPIES_FOLDER, read_sealed_manifest, scan_areas
from pipeline_assets.spine.artifact import Artifact, Damage, member_digests, open_artifact, read_manifest, read_member
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.manifest import MANIFEST_FORMAT, Manifest
from pipeline_assets.spine.sealed_folder import require_manifest

OTHER_ROOT_HINT = "use the data root that contains it, with --data or --out-dir"


class Lineage:
    """Artifacts below a data root, scanned once on first use."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @cached_property
    def _scan_results(self) -> list[tuple[str, Manifest | InputError]]:
        return [*scan_areas(self.root)]

    @cached_property
    def manifests(self) -> Mapping[Path, Manifest]:
        """Readable manifests of artifacts and their members, by folder."""
        return {Path(folder): manifest for folder, manifest in self._scan_results if isinstance(manifest, Manifest)}

    @cached_property
    def manifest_errors(self) -> dict[Path, InputError]:
        """Errors by folder, one for each manifest that cannot be read."""
        return {Path(folder): error for folder, error in self._scan_results if isinstance(error, InputError)}

    @cached_property
    def _folders_by_digest(self) -> Mapping[str, list[tuple[str, str]]]:
        """Folder and manifest name of each artifact, grouped by digest."""
        folders: dict[str, list[tuple[str, str]]] = {}
        for folder, manifest in self._scan_results:
            if isinstance(manifest, Manifest):
                folders.setdefault(manifest.digest, []).append((folder, manifest.name))
        return folders

    def __contains__(self, digest: str) -> bool:
        return digest in self._folders_by_digest

    def folder_for(self, digest: str, preferred_name: str | None = None) -> Path | None:
        """Return the folder of an artifact by its digest; None if missing.

        Of several artifacts, prefer one whose manifest has the name `preferred_name`, then one of the same recipe: its
        name, such as `web/notes`, begins with the name of the recipe.
        """
        folders = self._folders_by_digest.get(digest)
        if folders is None:
            return None
        recipe = (preferred_name or "").partition("/")[0]

        def differences(entry: tuple[str, str]) -> tuple[bool, bool]:
            _, name = entry
            return name != preferred_name, name.partition("/")[0] != recipe

        return Path(min(folders, key=differences)[0])

    def open_by_digest(self, digest: str, preferred_name: str | None = None) -> Artifact:
        """Open the artifact that `folder_for` finds; InputError if missing or damaged."""
        folder = self.folder_for(digest, preferred_name)
        if folder is not None:
            return open_artifact(folder, digest)
        what = f"no artifact with digest {digest} is below {', '.join(AREAS)}{self.unreadable_note}"
        raise InputError(what, self.root, f"{OTHER_ROOT_HINT}, or build it again from its recipe")

    @property
    def unreadable_note(self) -> str:
        """Note about unreadable manifests, for an error about a missing artifact."""
        wrong = list(self.manifest_errors.values())
        return f" ({len(wrong)} cannot be read, the first is {wrong[0].where})" if wrong else ""

    def downstream(self, digest: str) -> list[tuple[Path, Manifest]]:
        """Return (folder, manifest) of each artifact that has this digest as an input."""
        return [(folder, self.manifests[folder]) for folder in self._downstream.get(digest, ())]

    @cached_property
    def _downstream(self) -> Mapping[str, list[Path]]:
        downstream: dict[str, list[Path]] = {}
        for folder, manifest in self.manifests.items():
            for digest in dict.fromkeys(entry["digest"] for entry in manifest.identity.upstream):
                downstream.setdefault(digest, []).append(folder)
        return downstream

    def find_by_digest(self, digest: str, preferred_name: str | None = None) -> Artifact | None:
        """Find the artifact of `folder_for`; None if missing or unreadable.

        No files are checked.
        """
        folder = self.folder_for(digest, preferred_name)
        try:
            manifest = read_manifest(folder) if folder is not None else None
        except InputError as error:
            self.manifest_errors[Path(error.where).parent] = error
            return None
        return None if folder is None or manifest is None or manifest.digest != digest else Artifact(folder, manifest)

    def read_manifest_copy(self, digest: str) -> Manifest | None:
        """Read a manifest by digest from the root's manifest copies; None if missing."""
        path = self._manifest_copies.get(digest)
        return None if path is None else Manifest.from_bytes(MANIFEST_FORMAT.read_raw(path), path)

    @cached_property
    def _manifest_copies(self) -> Mapping[str, Path]:
        """Paths of readable manifest copies by digest."""
        copies = {}
        for path in sorted((self.root / MANIFEST_COPIES_FOLDER).glob("*.json")):
            with contextlib.suppress(InputError):
                copies[read_sealed_manifest(path).digest] = path
        return copies


@dataclass(frozen=True)
class Finding:
    """Problem found in a chain.

    `artifact_digest` is the digest of the damaged artifact, or of the artifact whose input is missing. For an external
    input, it is the digest of the file or of an artifact that read the file. It is empty if a manifest is unreadable.
    """

    where: Path
    what: str
    artifact_digest: str


@dataclass
class Chain:
    """Artifacts and external inputs to verify.

    Attributes:
        lineage: Lineage of the data root; None to ignore upstream artifacts and external inputs.
        artifacts: The requested artifact, then its members and inputs in breadth-first order, each digest once. The
            files are not checked yet.
        external_inputs: Manifest entries {name, digest, bytes, …} of input files that are not in an artifact, by
            the digest of the artifact that read them.
        broken_members: Findings about members that are missing, damaged or replaced by another artifact. If an upstream
            artifact is missing, also findings about all unreadable manifests, since any may be the missing one.
        missing_inputs: Findings about upstream artifacts that were not found.
    """

    lineage: Lineage | None
    artifacts: list[Artifact] = field(default_factory=list)
    external_inputs: dict[str, list[Mapping[str, Any]]] = field(default_factory=dict)
    broken_members: list[Finding] = field(default_factory=list)
    missing_inputs: list[Finding] = field(default_factory=list)


def collect_chain(folder: Path, root: Path | None) -> Chain:
    """Collect the chain of the artifact in a folder; UsageError if nothing is sealed.

    Upstream artifacts are found by digest in the data root; of equal artifacts, those of the same recipe. Without a
    root, the chain is the artifact and its members. Raise InputError if the manifest in the folder is damaged.
    """
    lineage = None if root is None else Lineage(root)
    chain = Chain(lineage)
    waiting = [Artifact(folder, require_manifest(folder))]
    seen = {waiting[0].manifest.digest}
    while waiting:
        artifact = waiting.pop(0)
        chain.artifacts.append(artifact)
        inputs = {member.manifest.digest: member for member in _members(artifact, chain)}
        for entry in artifact.manifest.identity.inputs:
            if lineage is None or "member" in entry:
                continue
            if "bytes" in entry:
                chain.external_inputs.setdefault(artifact.manifest.digest, []).append(entry)
            elif entry["digest"] not in seen | inputs.keys():
                upstream = lineage.find_by_digest(entry["digest"], artifact.manifest.name)
                if upstream is not None:
                    inputs[entry["digest"]] = upstream
                else:
                    seen.add(entry["digest"])
                    name = f"{entry['name']} {entry['digest']}"
                    what = f"input {name} not found below {', '.join(AREAS)} of {root}"
                    chain.missing_inputs.append(Finding(artifact.folder, what, artifact.manifest.digest))
        waiting += [upstream for digest, upstream in inputs.items() if digest not in seen]
        seen |= inputs.keys()
    if chain.missing_inputs and lineage is not None:
        known = {finding.where.absolute() for finding in chain.broken_members}
        wrong = [Finding(Path(error.where), error.what, "") for error in lineage.manifest_errors.values()]
        chain.broken_members += [finding for finding in wrong if finding.where.absolute() not in known]
    return chain


def _members(artifact: Artifact, chain: Chain) -> Iterable[Artifact]:
    for member, digest in member_digests(artifact.manifest).items():
        result = read_member(artifact.folder, member, digest)
        if isinstance(result, Damage):
            chain.broken_members.append(Finding(artifact.folder / result.path, result.what, artifact.manifest.digest))
        else:
            yield Artifact(artifact.folder / member, result)
