"""What a rebuilt artifact says of the sealed one: the same, another, or which of the two is wrong, file by file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pipeline_assets.build.rows.comparison import changed_values
from pipeline_assets.build.target import Target
from pipeline_assets.spine.artifact import find_damage, read_manifest
from pipeline_assets.spine.errors import RetryableError
from pipeline_assets.spine.manifest import FileContent, Identity, Manifest
from pipeline_assets.spine.provenance import package_versions, versions

Verdict = Literal["identical", "different", "damaged", "not rebuilt"]


@dataclass(frozen=True)
class FileFinding:
    """One file with something to say: as the manifests have it; what is wrong with the sealed one, if it is damaged."""

    path: str
    sealed: FileContent | None
    rebuilt: FileContent | None
    damage: str | None

    @property
    def matches_manifest(self) -> bool:
        """Whether the rebuilt file says what the sealed manifest says: then a damaged sealed file is the wrong one."""
        return self.sealed == self.rebuilt


@dataclass(frozen=True)
class Version:
    """Something that could have a part in the bytes, as it was then and is now; None where it isn't known."""

    name: str
    sealed: str | None
    local: str | None


@dataclass(frozen=True)
class Step:
    """One artifact that is built again: its target, as read from the manifest that it has to come out as, and the place
    where it is sealed; None where only a copy of the manifest is left.
    """

    target: Target
    manifest: Manifest
    place: Path | None


@dataclass(frozen=True)
class StepOutcome:
    """What became of one step.

    Attributes:
        verdict: `damaged` where the rebuild is what the manifest says and the sealed files are not; `not rebuilt` where
            something that it is made from came out different.
        rebuilt: its new manifest; None if it wasn't rebuilt.
        files: those whose content differs, or that are damaged where they are sealed.
        other_differences: What else of the identity differs: counts, decisions, inputs; a line each.
        stored_otherwise: files of equal content in other bytes, which is no difference.
        versions: of libraries and the like that changed since it was sealed.
        is_sealed_intact: whether the sealed files were read and are as they were sealed.
    """

    step: Step
    verdict: Verdict
    rebuilt: Manifest | None = None
    is_sealed_intact: bool = False
    files: Sequence[FileFinding] = ()
    other_differences: Sequence[str] = ()
    stored_otherwise: Sequence[str] = ()
    versions: Sequence[Version] = ()


def compare_step(step: Step, rebuilt: Manifest, holds_sealed: bool) -> StepOutcome:
    """The manifest of a rebuilt artifact held against that of the step; on demand the sealed files too, of which every
    byte is read. Raises RetryableError where the sealed artifact was replaced meanwhile.
    """
    sealed = step.manifest
    if step.place is not None and read_manifest(step.place) != sealed:
        raise RetryableError("it was replaced meanwhile", step.place, "run the same command again")
    damage = {}
    if holds_sealed and step.place is not None:
        damage = {item.path: item.what for item in find_damage(step.place, sealed)}
    is_same = rebuilt.digest == sealed.digest
    contents, contents_now = ({file.path: file for file in one.identity.files} for one in (sealed, rebuilt))
    stored, stored_now = ({file.path: file.sha256 for file in one.storage} for one in (sealed, rebuilt))
    files = [
        FileFinding(path, contents.get(path), contents_now.get(path), damage.get(path))
        for path in {**contents, **contents_now, **damage}
        if path in damage or contents.get(path) != contents_now.get(path)
    ]
    same = [path for path, file in contents.items() if file == contents_now.get(path)]
    return StepOutcome(
        step=step,
        verdict="different" if not is_same else "damaged" if damage else "identical",
        rebuilt=rebuilt,
        is_sealed_intact=holds_sealed and not damage,
        files=files,
        other_differences=[]
        if is_same
        else changed_values(_other_identity(sealed.identity), _other_identity(rebuilt.identity)),
        stored_otherwise=[path for path in same if stored.get(path) != stored_now[path]],
        versions=changed_versions(sealed.provenance, versions()),
    )


def changed_versions(provenance: Mapping[str, Any], here: Mapping[str, str | None]) -> list[Version]:
    """What is another one here than a manifest's provenance tells."""
    then = package_versions(provenance)
    return [Version(name, then.get(name), here[name]) for name in here if then.get(name) != here[name]]


def _other_identity(identity: Identity) -> dict[str, Any]:
    """Counts, decisions and inputs of an identity: its other parts are files, or the same by construction."""
    inputs = {entry["name"]: {key: entry[key] for key in entry if key != "name"} for entry in identity.inputs}
    return {"counts": identity.counts, "decisions": identity.decisions, "inputs": inputs}
