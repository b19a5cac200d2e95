"""What a rebuilt artifact says of the sealed one: the same, another, or which of the two is wrong."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pipeline_assets.corpus.rebuild.chain import Step
from pipeline_assets.corpus.rebuild.row_differences import RowDifferences, row_differences
from pipeline_assets.corpus.spine.artifact import Damage, read_manifest, verify_stored
from pipeline_assets.corpus.spine.errors import Obstacle
from pipeline_assets.corpus.spine.manifest import FileContent, Identity, Manifest
from pipeline_assets.corpus.spine.provenance import versions_of

Verdict = Literal["identical", "different", "damaged", "not rebuilt"]


@dataclass(frozen=True)
class FileFinding:
    """One file with something to say.

    Attributes:
        sealed, rebuilt: as the manifests have it; None where there is no such file, or for a label.
        damage: what is wrong with the sealed file; None where it is as it was sealed.
        rows: how they differ; None where there are no two files to compare.
    """

    path: str
    sealed: FileContent | None
    rebuilt: FileContent | None
    damage: str | None
    rows: RowDifferences | None

    @property
    def is_as_promised(self) -> bool:
        """Whether the rebuilt file says what the sealed manifest says: then a damaged sealed file is the wrong one."""
        return self.sealed == self.rebuilt


@dataclass(frozen=True)
class Version:
    """Something that could have a part in the bytes, as it was then and is now; None where it isn't known."""

    name: str
    sealed: str | None
    here: str | None


@dataclass(frozen=True)
class Outcome:
    """What became of one step.

    Attributes:
        verdict: `damaged` where the rebuild is what the manifest says and the sealed files are not; `not rebuilt` where
            something that it is made from came out different.
        rebuilt: its new manifest; None if it wasn't rebuilt.
        files: those whose content differs, or that are damaged where they are sealed.
        elsewhere: what else of the identity differs: counts, decisions, inputs; a line each.
        stored_otherwise: files of equal content in other bytes, which is no difference.
        versions: those that are not what they were when it was sealed.
        replaced: where the damaged artifact is kept whose place the copy took; None if it took none.
        is_sealed_intact: whether the sealed files were read and are as they were sealed.
    """

    step: Step
    verdict: Verdict
    rebuilt: Manifest | None = None
    is_sealed_intact: bool = False
    replaced: Path | None = None
    files: Sequence[FileFinding] = ()
    elsewhere: Sequence[str] = ()
    stored_otherwise: Sequence[str] = ()
    versions: Sequence[Version] = ()


def judge(
    step: Step, rebuilt: Manifest, copy: Path, versions_here: Mapping[str, str | None], holds_sealed: bool
) -> Outcome:
    """The rebuilt artifact in `copy` held against the manifest of the step.

    Args:
        versions_here: those that it was rebuilt with.
        holds_sealed: whether the sealed files too are held against that manifest: every byte of them is read.
    Raises:
        Obstacle: the sealed artifact was replaced meanwhile.
    """
    sealed = step.manifest
    if step.place is not None and read_manifest(step.place) != sealed:
        raise Obstacle("it was replaced meanwhile", step.place, "run the same command again")
    damage = _damage(step) if holds_sealed else {}
    is_same = rebuilt.digest == sealed.digest
    return Outcome(
        step=step,
        verdict="different" if not is_same else "damaged" if damage else "identical",
        rebuilt=rebuilt,
        is_sealed_intact=holds_sealed and not damage,
        files=list(_findings(step, rebuilt, copy, damage)),
        elsewhere=[] if is_same else list(_elsewhere(sealed.identity, rebuilt.identity)),
        stored_otherwise=_stored_otherwise(sealed, rebuilt),
        versions=changed_versions(sealed.provenance, versions_here),
    )


def changed_versions(provenance: Mapping[str, Any], here: Mapping[str, str | None]) -> list[Version]:
    """What is another one here than a manifest's provenance tells."""
    then = versions_of(provenance)
    return [Version(name, then.get(name), here[name]) for name in here if then.get(name) != here[name]]


def _damage(step: Step) -> dict[str, str]:
    if step.place is None:
        return {}
    findings = verify_stored(step.place, step.manifest)
    return {item.path: item.what for item in findings if isinstance(item, Damage)}


def _findings(step: Step, rebuilt: Manifest, copy: Path, damage: Mapping[str, str]) -> Iterator[FileFinding]:
    before = {file.path: file for file in step.manifest.identity.files}
    after = {file.path: file for file in rebuilt.identity.files}
    for path in {**before, **after, **damage}:
        one, other = before.get(path), after.get(path)
        if one != other or path in damage:
            rows = None
            if one and other and step.place is not None and (step.place / path).is_file():
                rows = row_differences(step.place / path, copy / path)
            yield FileFinding(path, one, other, damage.get(path), rows)


def _stored_otherwise(sealed: Manifest, rebuilt: Manifest) -> list[str]:
    stored = {file.path: file.sha256 for file in rebuilt.storage}
    contents = {file.path: file for file in rebuilt.identity.files}
    same = [file.path for file in sealed.identity.files if file == contents.get(file.path)]
    before = {file.path: file.sha256 for file in sealed.storage}
    return [path for path in same if before.get(path) != stored[path]]


def _elsewhere(sealed: Identity, rebuilt: Identity) -> Iterator[str]:
    one, other = dict(_leaves(_rest(sealed))), dict(_leaves(_rest(rebuilt)))
    for name in {**one, **other}:
        if one.get(name) != other.get(name):
            yield f"{name}: {one.get(name, 'none')} → {other.get(name, 'none')}"


def _rest(identity: Identity) -> dict[str, Any]:
    """What of an identity is no file, and not the same by construction."""
    inputs = {entry["name"]: {key: entry[key] for key in entry if key != "name"} for entry in identity.inputs}
    return {"counts": identity.counts, "decisions": identity.decisions, "inputs": inputs}


def _leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    match value:
        case dict():
            for key, part in value.items():
                yield from _leaves(part, f"{name}.{key}" if name else key)
        case list():
            for number, part in enumerate(value):
                yield from _leaves(part, f"{name}[{number}]")
        case _:
            yield name, value
