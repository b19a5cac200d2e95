"""The lineage below a data root: what is sealed there, found by digest, and what each artifact was made from.

All manifests are listed in one pass: 10,000 take a second. A listed manifest is held against its seal alone; an
artifact that is used is opened, and its digest worked out.

The chain of an artifact is itself, its members, and everything that they were made from, each once, down to files from
outside.
"""

import contextlib
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from pipeline_assets.spine.artifact import (
    Artifact,
    Damage,
    member_digests,
    open_artifact,
    read_manifest,
    read_member,
    require_manifest,
)
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.manifest import FILE_NAME, MANIFEST_FILE, Manifest, is_seal_intact

# Folders of a data root with artifacts. Code that opens an artifact may import no system, so those of the project's own
# systems are named here; `Systems.add` adds those of others.
AREAS = ["corpora", "selections", "megatron", "stage_a", "nemotron", "stage2", "parallel_text"]
COPIES = "manifests"
OTHER_ROOT_HINT = "use the data root that contains it, with --data or --out-dir"


def read_summary(path: Path | str) -> Manifest:
    """The manifest in a file; one whose seal doesn't hold is held against its digest. Raises FileNotFoundError,
    NotADirectoryError: nothing is there; InputError: it is no manifest, or was edited.
    """
    data = MANIFEST_FILE.read_raw(path)
    return (Manifest.sealed if is_seal_intact(data) else Manifest.from_bytes)(data, Path(path))


def _scan_folders(place: str) -> Iterator[tuple[str, Manifest | InputError]]:
    """Folders from this one down: what is sealed there or can't be read. An artifact comes before its members, else by
    name; what else it holds is not looked at.

    Folders are told by their names: to make ten thousand paths takes as long as to read their manifests.
    """
    members: Collection[str] | None = None
    try:
        sealed = read_summary(f"{place}/{FILE_NAME}")
        yield place, sealed
        members = member_digests(sealed)
        if not members:
            return
    except InputError as error:
        yield place, error
    except (FileNotFoundError, NotADirectoryError):
        pass
    for name in _folders_in(place):
        if not name.startswith(".") and (members is None or name in members):
            yield from _scan_folders(f"{place}/{name}")


class Lineage:
    """What is sealed below a data root, looked for when it is first asked for, and once."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @cached_property
    def _found(self) -> list[tuple[str, Manifest | InputError]]:
        return [found for area in sorted(AREAS) for found in _scan_folders(str(self.root / area))]

    @cached_property
    def sealed(self) -> Mapping[Path, Manifest]:
        """All that is sealed in the areas and can be read, members too, by folder."""
        return {Path(place): one for place, one in self._found if isinstance(one, Manifest)}

    @cached_property
    def unreadable(self) -> dict[Path, InputError]:
        """What is wrong with the other manifests, by folder."""
        return {Path(place): error for place, error in self._found if isinstance(error, InputError)}

    @cached_property
    def _places(self) -> Mapping[str, list[tuple[str, str]]]:
        """Folder and name of what is sealed, by digest."""
        places: dict[str, list[tuple[str, str]]] = {}
        for place, one in self._found:
            if isinstance(one, Manifest):
                places.setdefault(one.digest, []).append((place, one.name))
        return places

    def __contains__(self, digest: str) -> bool:
        """Whether an artifact with a digest is sealed there."""
        return digest in self._places

    def folder_for(self, digest: str, name: str | None = None) -> Path | None:
        """The folder of the artifact with a digest; of several, the one of this name, else the first; None of none."""
        places = self._places.get(digest)
        return None if places is None else Path(next((one for one in places if one[1] == name), places[0])[0])

    def locate(self, digest: str, name: str | None = None) -> Artifact:
        """The sealed artifact with this digest, wherever below the data root it lies; where several have it, the one of
        this name. Raises InputError: there is none, or one of its files is missing or of another size.
        """
        place = self.folder_for(digest, name)
        if place is not None:
            return open_artifact(place, digest)
        what = f"no artifact with digest {digest} is below {', '.join(AREAS)}{self.unreadable_note}"
        raise InputError(what, self.root, f"{OTHER_ROOT_HINT}, or build it again from its recipe")

    @property
    def unreadable_note(self) -> str:
        """What to add where an artifact is missed: manifests that can't be read, of which one may be its own."""
        wrong = list(self.unreadable.values())
        return f" ({len(wrong)} can't be read, the first is {wrong[0].where})" if wrong else ""

    def downstream(self, digest: str) -> list[tuple[Path, Manifest]]:
        """Artifacts that were made from the one with a digest, by folder."""
        return [(folder, self.sealed[folder]) for folder in self._downstream.get(digest, ())]

    @cached_property
    def _downstream(self) -> Mapping[str, list[Path]]:
        made_of: dict[str, list[Path]] = {}
        for folder, one in self.sealed.items():
            for digest in dict.fromkeys(entry["digest"] for entry in one.identity.upstream):
                made_of.setdefault(digest, []).append(folder)
        return made_of

    def find(self, digest: str) -> Artifact | None:
        """The artifact with a digest, its files not looked at; None of none, or of one whose manifest was edited."""
        place = self.folder_for(digest)
        try:
            manifest = read_manifest(place) if place is not None else None
        except InputError as error:
            self.unreadable[Path(error.where).parent] = error
            return None
        return None if place is None or manifest is None or manifest.digest != digest else Artifact(place, manifest)

    def exported_copy(self, digest: str) -> Manifest | None:
        """The manifest with a digest among the copies that builds keep for git; None of none."""
        path = self._copies.get(digest)
        return None if path is None else Manifest.from_bytes(MANIFEST_FILE.read_raw(path), path)

    @cached_property
    def _copies(self) -> Mapping[str, Path]:
        """Copies of manifests by digest; one that can't be read is left out."""
        copies = {}
        for path in sorted((self.root / COPIES).glob("*.json")):
            with contextlib.suppress(InputError):
                copies[read_summary(path).digest] = path
        return copies


def _folders_in(folder: str) -> list[str]:
    """Names of folders, sorted; none of one that is gone."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    except (FileNotFoundError, NotADirectoryError):
        return []


def find_data_root(folder: Path) -> Path | None:
    """The data root that an artifact's folder lies in, as far as possible as it was typed: the one above the nearest
    area; None if it is below none.
    """
    parents = (*folder.parents, *folder.resolve().parents)
    return next((parent.parent for parent in parents if parent.name in AREAS), None)


@dataclass(frozen=True)
class Finding:
    """Something that a manifest contradicts: the file or folder, and the digest of the artifact whose manifest does;
    empty for a manifest that can't be read.
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
        external_inputs: Input files outside the data root, as manifests list them: {name, digest, bytes, …}. Keys are
            digests of the artifacts built from them.
        broken: members that are not there, or that another artifact is in the place of; where something is missing,
            manifests below the root that can't be read.
        missing: upstream artifacts that are not there.
    """

    lineage: Lineage | None
    artifacts: list[Artifact] = field(default_factory=list)
    external_inputs: dict[str, list[Mapping[str, Any]]] = field(default_factory=dict)
    broken: list[Finding] = field(default_factory=list)
    missing: list[Finding] = field(default_factory=list)


def collect_chain(folder: Path, root: Path | None) -> Chain:
    """The chain of the artifact in a folder. Upstream artifacts are found by their digests below a data root; without
    one, the chain is the artifact and its members. Raises InputError: nothing is sealed in the folder, or its manifest
    was edited.
    """
    lineage = None if root is None else Lineage(root)
    chain = Chain(lineage)
    waiting = [Artifact(folder, require_manifest(folder))]
    seen = {waiting[0].manifest.digest}
    while waiting:
        artifact = waiting.pop(0)
        chain.artifacts.append(artifact)
        here = {member.manifest.digest: member for member in _members(artifact, chain)}
        for entry in artifact.manifest.identity.inputs:
            if lineage is None or "member" in entry:
                continue
            if "bytes" in entry:
                chain.external_inputs.setdefault(artifact.manifest.digest, []).append(entry)
            elif entry["digest"] not in seen | here.keys():
                found = lineage.find(entry["digest"])
                if found is not None:
                    here[entry["digest"]] = found
                else:
                    seen.add(entry["digest"])
                    made_from = f"made from {entry['name']} {entry['digest']}"
                    what = f"{made_from}, which is not below {', '.join(AREAS)} of {root}"
                    chain.missing.append(Finding(artifact.folder, what, artifact.manifest.digest))
        waiting += [found for digest, found in here.items() if digest not in seen]
        seen |= here.keys()
    if chain.missing and lineage is not None:  # one of the unreadable may be what is missing
        known = {finding.where.absolute() for finding in chain.broken}
        wrong = [Finding(Path(error.where), error.what, "") for error in lineage.unreadable.values()]
        chain.broken += [finding for finding in wrong if finding.where.absolute() not in known]
    return chain


def _members(artifact: Artifact, chain: Chain) -> Iterable[Artifact]:
    for member, digest in member_digests(artifact.manifest).items():
        found = read_member(artifact.folder, member, digest)
        if isinstance(found, Damage):
            chain.broken.append(Finding(artifact.folder / found.path, found.what, artifact.manifest.digest))
        else:
            yield Artifact(artifact.folder / member, found)
