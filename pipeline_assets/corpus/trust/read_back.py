"""What a manifest says was made from what, read back into targets that can be built again.

No recipe file has a part in it: recipe, stage, tokenizer and inputs are those of the manifests. A target that is built
again has a folder relative to the place where that is done; one that is used as it is sealed has its absolute folder.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline_assets.corpus.spine.artifact import members_of, read_manifest, sealed_manifest
from pipeline_assets.corpus.spine.errors import InputError, UsageError
from pipeline_assets.corpus.spine.lineage import AREAS, COPIES, IN_ANOTHER_ROOT, Lineage
from pipeline_assets.corpus.spine.manifest import Manifest, StageVersion
from pipeline_assets.corpus.spine.target import Target
from pipeline_assets.corpus.spine.usage import versions_of
from pipeline_assets.systems.registry import KINDS


@dataclass(frozen=True)
class Step:
    """One artifact that is built again.

    Attributes:
        target: as its manifest describes it.
        manifest: what it has to come out as.
        place: where it is sealed; None where only a copy of its manifest is left.
    """

    target: Target
    manifest: Manifest
    place: Path | None


@dataclass(frozen=True)
class StepChain:
    """What is built again, upstream first, the artifact that was asked for last.

    Attributes:
        lost: what to say of inputs that are nowhere, by the folder of their target, where nothing lies.
    """

    steps: Sequence[Step]
    lost: Mapping[Path, InputError]

    def explained(self, error: InputError) -> InputError:
        """What a step said; where it missed an input that is nowhere, which input that is."""
        return self.lost.get(Path(error.where), error)


@dataclass
class _Reading:
    """A chain as far as it is read.

    Attributes:
        own: manifests of the artifact itself and of its members, by digest, and where they are sealed.
        steps: by the folder of their target, upstream first.
        taken: digests by the folders that were given to them.
        lost: inputs that are nowhere, by the folder of their target, where nothing lies.
    """

    lineage: Lineage
    own: Mapping[str, tuple[Manifest, Path | None]]
    with_upstream: bool
    steps: dict[Path, Step] = field(default_factory=dict)
    taken: dict[Path, str] = field(default_factory=dict)
    lost: dict[Path, Mapping[str, Any]] = field(default_factory=dict)

    def known(self, digest: str) -> tuple[Manifest, Path | None] | None:
        """The manifest with a digest, and where it is sealed; None for the place where only a copy is left."""
        if digest in self.own:
            return self.own[digest]
        found = self.lineage.find(digest)
        copy = self.lineage.copy_of(digest) if found is None else None
        return (found.manifest, found.folder) if found is not None else None if copy is None else (copy, None)


def read_chain(folder: Path, root: Path, with_upstream: bool) -> StepChain:
    """How the artifact in `folder` was made.

    Args:
        root: data root, where artifacts upstream are found by their digests.
        with_upstream: whether all of them are built again too; else they are used as they are sealed, but for members,
            which lie in the artifact's own folder.
    Raises:
        UsageError: nothing is sealed there; or this program doesn't make that kind, or by another stage version.
        InputError: the manifest was edited; a manifest that would be rebuilt is nowhere.
    """
    asked = sealed_manifest(folder)
    reading = _Reading(Lineage(root), _own(folder, asked), with_upstream)
    _target(reading, asked, _free_folder(reading, asked.kind, asked.digest), None)
    steps = list(reading.steps.values())
    for step in steps:
        _refuse_other_version(step)
    return StepChain(steps, {place: _gone(reading, entry, folder) for place, entry in reading.lost.items()})


def _own(folder: Path, asked: Manifest) -> dict[str, tuple[Manifest, Path | None]]:
    own: dict[str, tuple[Manifest, Path | None]] = {asked.digest: (asked, folder)}
    for name in members_of(asked):
        member = read_manifest(folder / name)
        if member is not None:
            own[member.digest] = member, folder / name
    return own


def _target(reading: _Reading, manifest: Manifest, folder: Path, partition: str | None) -> Target:
    """The target that would be sealed with this manifest; what it is made from first."""
    identity = manifest.identity
    target = Target(
        kind=manifest.kind,
        name=manifest.name,
        folder=folder,
        stage=identity.stage,
        recipe=identity.recipe,
        upstream=tuple(_upstream(reading, entry, folder) for entry in identity.upstream),
        tokenizer=identity.tokenizer,
        partition=partition,
        made_for=manifest.provenance.get("made_for"),
        outside=KINDS[manifest.kind].outside(manifest, reading.lineage.root) if manifest.kind in KINDS else None,
    )
    if not folder.is_absolute():
        found = reading.known(manifest.digest)
        step = Step(target, manifest, None if found is None else found[1])
        return reading.steps.setdefault(folder, step).target
    return target


def _upstream(reading: _Reading, entry: Mapping[str, Any], above: Path) -> Target:
    """The target of an input of what lies, or will lie, in `above`."""
    is_rebuilt = not above.is_absolute() and (reading.with_upstream or "member" in entry)
    found = reading.known(entry["digest"])
    if found is None:
        if is_rebuilt:
            what = f"it is made from {_words(entry)}, of which no manifest is below {', '.join(AREAS)} or {COPIES}"
            what += reading.lineage.besides
            raise InputError(what, reading.lineage.root, IN_ANOTHER_ROOT)
        return _lost(reading, entry)
    manifest, place = found
    if is_rebuilt:
        folder = above / entry["member"] if "member" in entry else _free_folder(reading, entry["name"], entry["digest"])
    elif place is None:
        return _lost(reading, entry)
    else:
        folder = place.absolute()
    return _target(reading, manifest, folder, entry["name"].removeprefix(manifest.kind).removeprefix("/") or None)


def _lost(reading: _Reading, entry: Mapping[str, Any]) -> Target:
    """A target in the place of one that is gone: what lies further up than anything that is read may be."""
    place = reading.lineage.root.absolute() / entry["digest"]
    reading.lost[place] = entry
    return Target(entry["name"], entry["name"], place, StageVersion("unknown", 0), {})


def _free_folder(reading: _Reading, role: str, digest: str) -> Path:
    """Named by the role; by the digest too where another artifact has that name."""
    name = re.sub(r"[^\w.-]+", "-", role.partition("/")[2] or role)
    if reading.taken.setdefault(Path(name), digest) == digest:
        return Path(name)
    return Path(f"{name}-{digest.partition(':')[2][:12]}")


def _gone(reading: _Reading, entry: Mapping[str, Any], folder: Path) -> InputError:
    what = f"it is made from {_words(entry)}, which is not sealed below {reading.lineage.root}"
    what += reading.lineage.besides
    fix = IN_ANOTHER_ROOT
    if reading.known(entry["digest"]) is not None:
        fix += ", or build it again too with --upstream"
    return InputError(what, folder, fix)


def _refuse_other_version(step: Step) -> None:
    """
    Raises:
        UsageError: this program makes no such kind, or makes it by another rule.
    """
    manifest = step.manifest
    kind, stage = KINDS.get(manifest.kind), manifest.identity.stage
    if kind is not None and kind.stage == stage:
        return
    what = f"{manifest.name} is a {manifest.kind}, which this program doesn't make"
    if kind is not None:
        ours = f"{kind.stage.name} version {kind.stage.version}"
        what = f"{manifest.name} was made by {stage.name} version {stage.version}, this program has {ours}"
    made_with = ", ".join(f"{name} {version}" for name, version in versions_of(manifest.provenance).items())
    where = step.place or manifest.digest
    raise UsageError(what, where, f"use the version that made it: {made_with or 'its manifest names none'}")


def _words(entry: Mapping[str, Any]) -> str:
    return f"{entry['name']} {entry['digest']}"
