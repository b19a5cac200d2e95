"""Comparison of a rebuilt artifact with the sealed one, file by file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pipeline_assets.build.rows.comparison import changed_values
from pipeline_assets.build.target import Target
from pipeline_assets.spine.artifact import find_damage, read_manifest
from pipeline_assets.spine.errors import RetryableError
from pipeline_assets.spine.manifest import FileContent, Identity, Manifest
from pipeline_assets.spine.program_versions import current_versions, recorded_versions

StepVerdict = Literal["identical", "different", "damaged", "not rebuilt"]


@dataclass(frozen=True)
class FileFinding:
    """File that a rebuild changed, or whose sealed copy is damaged."""

    path: str
    sealed: FileContent | None  # entry in the sealed manifest
    rebuilt: FileContent | None  # entry in the rebuilt manifest
    damage: str | None  # of the sealed file; None if it is intact, or was not read

    @property
    def matches_manifest(self) -> bool:
        """True if both manifests have equal entries for the file, or neither has one."""
        return self.sealed == self.rebuilt


@dataclass(frozen=True)
class VersionChange:
    """Changed version of the program, Python, the platform or a library."""

    name: str
    sealed: str | None  # version that built the artifact; None if it is unknown or was not installed
    current: str | None  # None if it is unknown or not installed


@dataclass(frozen=True)
class RebuildStep:
    """Rebuild of one artifact, from the target that its manifest describes."""

    target: Target
    manifest: Manifest  # manifest that the rebuild must produce
    sealed_folder: Path | None  # None if only a copy of the manifest exists


@dataclass(frozen=True)
class StepOutcome:
    """Outcome of a rebuild step.

    `verdict` is `identical` or `different` by digest; `damaged` if the digests are equal, but sealed files are damaged;
    `not rebuilt` if an input is `different` or `not rebuilt`.
    """

    step: RebuildStep
    verdict: StepVerdict
    rebuilt_manifest: Manifest | None = None  # None if the artifact was not rebuilt
    is_sealed_intact: bool = False  # the sealed files were read and match their manifest
    file_findings: Sequence[FileFinding] = ()  # files that differ in content, or are damaged
    other_differences: Sequence[str] = ()  # of counts, decisions and inputs, as lines of text
    differently_stored_paths: Sequence[str] = ()  # equal in content, but not in stored bytes; count as equal
    version_changes: Sequence[VersionChange] = ()


def compare_step(step: RebuildStep, rebuilt_manifest: Manifest, checks_sealed_files: bool) -> StepOutcome:
    """Compare a rebuilt manifest with the sealed one.

    If `checks_sealed_files`, also read and check every sealed file. Raise RetryableError if the sealed artifact was
    replaced during the rebuild.
    """
    sealed = step.manifest
    if step.sealed_folder is not None and read_manifest(step.sealed_folder) != sealed:
        what = "the artifact was replaced during its rebuild"
        raise RetryableError(what, step.sealed_folder, "run the same command again")
    damage = {}
    if checks_sealed_files and step.sealed_folder is not None:
        damage = {item.path: item.what for item in find_damage(step.sealed_folder, sealed)}
    is_same = rebuilt_manifest.digest == sealed.digest
    manifests = (sealed, rebuilt_manifest)
    contents, contents_now = ({file.path: file for file in manifest.identity.files} for manifest in manifests)
    stored, stored_now = ({file.path: file.sha256 for file in manifest.storage} for manifest in manifests)
    files = [
        FileFinding(path, contents.get(path), contents_now.get(path), damage.get(path))
        for path in {**contents, **contents_now, **damage}
        if path in damage or contents.get(path) != contents_now.get(path)
    ]
    equal = [path for path, file in contents.items() if file == contents_now.get(path)]
    identities = _identity_without_files(sealed.identity), _identity_without_files(rebuilt_manifest.identity)
    return StepOutcome(
        step=step,
        verdict="different" if not is_same else "damaged" if damage else "identical",
        rebuilt_manifest=rebuilt_manifest,
        is_sealed_intact=checks_sealed_files and not damage,
        file_findings=files,
        other_differences=[] if is_same else changed_values(*identities),
        differently_stored_paths=[path for path in equal if stored.get(path) != stored_now[path]],
        version_changes=changed_versions(sealed.provenance, current_versions()),
    )


def changed_versions(provenance: Mapping[str, Any], current: Mapping[str, str | None]) -> list[VersionChange]:
    """List the versions in `current` that differ from the versions in a provenance."""
    sealed = recorded_versions(provenance)
    changes = (VersionChange(name, sealed.get(name), version) for name, version in current.items())
    return [change for change in changes if change.sealed != change.current]


def _identity_without_files(identity: Identity) -> dict[str, Any]:
    """Return an identity's counts, decisions and inputs, to compare with a rebuild."""
    inputs = {entry["name"]: {key: entry[key] for key in entry if key != "name"} for entry in identity.inputs}
    return {"counts": identity.counts, "decisions": identity.decisions, "inputs": inputs}
