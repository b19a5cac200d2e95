"""The lineage below a data root: sealed artifacts found by their digests, and what one was made from."""

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from pipeline_assets.corpus.spine import durable
from pipeline_assets.corpus.spine.artifact import Artifact, open_artifact, read_manifest
from pipeline_assets.corpus.spine.errors import InputError, key
from pipeline_assets.corpus.spine.manifest import FILE_NAME, MANIFEST_FILE, Manifest

AREAS = ("corpora", "selections", "megatron", "stage_a", "nemotron")
COPIES = "manifests"
# A command that makes things of folders given to it has no --data: it looks where what it makes will lie.
IN_ANOTHER_ROOT = key(
    "data",
    "give the data root that has it with --data",
    "move what is given below stage_a/ of the data root that has it",
)


def sealed_manifests(root: Path) -> tuple[dict[Path, Manifest], list[InputError]]:
    """Manifest by folder of all that is sealed in the data root's areas, sorted, and what is wrong with the others."""
    manifests: dict[Path, Manifest] = {}
    unreadable: list[InputError] = []
    for path in sorted(path for area in AREAS for path in (root / area).rglob(FILE_NAME)):
        if any(part.startswith(".") for part in path.relative_to(root).parts):  # being built, or left by a seal
            continue
        try:
            manifest = read_manifest(path.parent)
        except InputError as error:
            unreadable.append(error)
            continue
        if manifest is not None:
            manifests[path.parent] = manifest
    return manifests, unreadable


def kept_manifests(root: Path) -> list[Manifest]:
    """The copies that builds keep in the data root for git; one that can't be read is left out."""
    manifests = []
    for path in sorted((root / COPIES).glob("*.json")):
        with contextlib.suppress(InputError):
            manifests.append(Manifest.from_bytes(MANIFEST_FILE.bytes_of(path), path))
    return manifests


def keep_copy(root: Path, artifact: Artifact, name: str) -> None:
    """Copies an artifact's manifest among those that are kept for git."""
    copy, data = root / COPIES / name, MANIFEST_FILE.bytes_of(artifact.folder / FILE_NAME)
    if not copy.exists() or copy.read_bytes() != data:
        durable.make_folder(copy.parent)
        durable.write_durably(copy, data)


def root_of(folder: Path) -> Path | None:
    """The data root that an artifact's folder lies in, as far as possible as it was typed: the one above the nearest
    area; None if it is below none.
    """
    parents = (*folder.parents, *folder.resolve().parents)
    return next((parent.parent for parent in parents if parent.name in AREAS), None)


def place_of(manifests: Mapping[Path, Manifest], digest: str, name: str | None = None) -> Path | None:
    """The folder of the artifact with a digest; of several, the one of this name, else the first; None of none."""
    places = [folder for folder, manifest in manifests.items() if manifest.digest == digest]
    return next((folder for folder in places if manifests[folder].name == name), places[0] if places else None)


def locate(root: Path, digest: str, name: str | None = None) -> Artifact:
    """The sealed artifact with this digest, wherever below the data root it lies.

    Args:
        name: which to take where several have the digest.
    Raises:
        InputError: there is none, or one of its files is missing or of another size.
    """
    manifests, unreadable = sealed_manifests(root)
    place = place_of(manifests, digest, name)
    if place is not None:
        return open_artifact(place, digest)
    what = f"no artifact with digest {digest} is below {', '.join(AREAS)}{besides(unreadable)}"
    raise InputError(what, root, f"{IN_ANOTHER_ROOT}, or build it again from its recipe")


def besides(unreadable: Sequence[InputError]) -> str:
    """What to add where an artifact is missed: manifests that can't be read, of which one may be its own."""
    return f" ({len(unreadable)} can't be read, the first is {unreadable[0].where})" if unreadable else ""


def upstream(root: Path, artifact: Artifact, stage: str) -> Artifact:
    """The artifact of a stage that this one was made from, found through first inputs; itself where it is of the stage.

    Raises:
        InputError: one of the artifacts on the way is gone, or none of them is of the stage.
    """
    while artifact.manifest.identity.stage.name != stage:
        inputs = artifact.manifest.identity.inputs
        if not inputs:
            what = f"it is {artifact.manifest.kind}, made from nothing, and not from {stage}"
            raise InputError(what, artifact.folder, "give an artifact that was made from one")
        artifact = locate(root, inputs[0]["digest"])
    return artifact
