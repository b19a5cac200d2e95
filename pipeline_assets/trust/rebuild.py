"""A rebuild: an artifact is made again from its manifest, beside the sealed one, and held against it.

What a manifest says was made from what is read back into targets that can be built again. No recipe file has a part in
it: recipe, stage, tokenizer and inputs are those of the manifests. A target that is built again has a folder relative
to the place where that is done; one that is used as it is sealed has its absolute folder.

It is made in a scratch folder, which nothing takes for an artifact: `rebuilds/<name>.unfinished` below the data root,
gone on with after a crash if the same program does the same. What is kept of a finished rebuild is `rebuilds/<name>`.
All of `rebuilds` may be deleted at any time.
"""

import contextlib
import json
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pipeline_assets.build.drive import build_without_checks
from pipeline_assets.build.kind import Kind, Kinds, unknown_kind
from pipeline_assets.build.run import Run
from pipeline_assets.build.target import Target
from pipeline_assets.spine import durable
from pipeline_assets.spine.artifact import find_damage, member_digests, read_manifest, require_manifest
from pipeline_assets.spine.errors import InputError, UsageError
from pipeline_assets.spine.lineage import AREAS, COPIES, OTHER_ROOT_HINT, Lineage
from pipeline_assets.spine.lock import locked
from pipeline_assets.spine.manifest import Manifest, StageVersion
from pipeline_assets.spine.metadata_file import MetadataFile
from pipeline_assets.spine.provenance import package_versions, versions
from pipeline_assets.trust.differences import Step, StepOutcome, compare_step


class RebuildPlan:
    """What is built again, upstream first, the artifact that was asked for last."""

    def __init__(self, folder: Path, root: Path, kinds: Kinds, with_upstream: bool) -> None:
        """How the artifact in `folder` was made.

        Args:
            root: data root, where artifacts upstream are found by their digests.
            kinds: all kinds by name.
            with_upstream: whether all of them are built again too; else they are used as they are sealed, but for
                members, which lie in the artifact's own folder.
        Raises:
            UsageError: nothing is sealed there; or this program doesn't make that kind, or by another stage version.
            InputError: the manifest was edited; a manifest that would be rebuilt is nowhere.
        """
        asked = require_manifest(folder)
        self._errors: dict[Path, InputError] = {}  # of inputs that are nowhere, by their targets' folders
        self._steps: dict[Path, Step] = {}  # by the folder of their target
        self._folder, self._lineage, self._kinds, self._with_upstream = folder, Lineage(root), kinds, with_upstream
        self._own: dict[str, tuple[Manifest, Path | None]] = {asked.digest: (asked, folder)}
        for name in member_digests(asked):
            if (member := read_manifest(folder / name)) is not None:
                self._own[member.digest] = member, folder / name
        self._taken: dict[Path, str] = {}  # digests by the folders that were given to them
        self._target(asked, folder, self._free_folder(asked.kind, asked.digest), None)
        for step in self.steps:
            _refuse_other_version(step, kinds.get(step.manifest.kind))

    @property
    def steps(self) -> list[Step]:
        return list(self._steps.values())

    def explained(self, error: InputError) -> InputError:
        """What a step said; where it missed an input that is nowhere, which input that is."""
        return self._errors.get(Path(error.where), error)

    def _known(self, digest: str) -> tuple[Manifest | None, Path | None]:
        """The manifest with a digest, if there is one, and where it is sealed; None where only a copy is left."""
        if digest in self._own:
            return self._own[digest]
        if (found := self._lineage.find(digest)) is not None:
            return found.manifest, found.folder
        return self._lineage.exported_copy(digest), None

    def _target(self, manifest: Manifest, place: Path | None, folder: Path, partition: str | None) -> Target:
        """The target that would be sealed with this manifest, which is that of `place`; its upstream first."""
        identity, kind = manifest.identity, self._kinds.get(manifest.kind)
        target = Target(
            kind=unknown_kind(manifest.kind, identity.stage) if kind is None else replace(kind, stage=identity.stage),
            name=manifest.name,
            folder=folder,
            recipe=identity.recipe,
            upstream=tuple(self._upstream(entry, folder) for entry in identity.upstream),
            tokenizer=identity.tokenizer,
            partition=partition,
            intended_use=manifest.provenance.get("made_for"),
            external_inputs=None if kind is None else kind.external_inputs(manifest, self._lineage.root),
        )
        if folder.is_absolute():
            return target
        return self._steps.setdefault(folder, Step(target, manifest, place)).target

    def _upstream(self, entry: Mapping[str, Any], above: Path) -> Target:
        """The target of an input of the artifact that lies, or will lie, in `above`."""
        is_rebuilt = not above.is_absolute() and (self._with_upstream or "member" in entry)
        manifest, place = self._known(entry["digest"])
        if manifest is None and is_rebuilt:
            what = f"it is made from {_words(entry)}, of which no manifest is below {', '.join(AREAS)} or {COPIES}"
            raise InputError(what + self._lineage.unreadable_note, self._lineage.root, OTHER_ROOT_HINT)
        if manifest is None or (place is None and not is_rebuilt):
            return self._missing_artifact(entry, has_manifest=manifest is not None)
        if not is_rebuilt and place is not None:
            folder = place.absolute()
        elif "member" in entry:
            folder = above / entry["member"]
        else:
            folder = self._free_folder(entry["name"], entry["digest"])
        partition = entry["name"].removeprefix(manifest.kind).removeprefix("/") or None
        return self._target(manifest, place, folder, partition)

    def _missing_artifact(self, entry: Mapping[str, Any], has_manifest: bool) -> Target:
        """A target in the place of a lost artifact, which may lie further up than anything that is read."""
        place = self._lineage.root.absolute() / entry["digest"]
        what = f"it is made from {_words(entry)}, which is not sealed below {self._lineage.root}"
        fix = OTHER_ROOT_HINT + (", or build it again too with --upstream" if has_manifest else "")
        self._errors[place] = InputError(what + self._lineage.unreadable_note, self._folder, fix)
        return Target(unknown_kind(entry["name"], StageVersion("unknown", 0)), entry["name"], place, {})

    def _free_folder(self, role: str, digest: str) -> Path:
        """Named by the role; by the digest too where another artifact has that name."""
        name = re.sub(r"[^\w.-]+", "-", role.partition("/")[2] or role)
        if self._taken.setdefault(Path(name), digest) == digest:
            return Path(name)
        return Path(f"{name}-{digest.partition(':')[2][:12]}")


def _refuse_other_version(step: Step, kind: Kind | None) -> None:
    """Raises UsageError where this program makes no such kind, or makes it by another rule."""
    manifest, stage = step.manifest, step.manifest.identity.stage
    if kind is not None and kind.stage == stage:
        return
    what = f"{manifest.name} is a {manifest.kind}, which this program doesn't make"
    if kind is not None:
        what = f"{manifest.name} was made by {stage}, this program has {kind.stage}"
    made_with = ", ".join(f"{name} {version}" for name, version in package_versions(manifest.provenance).items())
    where = step.place or manifest.digest
    raise UsageError(what, where, f"use the version that made it: {made_with or 'its manifest names none'}")


def _words(entry: Mapping[str, Any]) -> str:
    return f"{entry['name']} {entry['digest']}"


FOLDER = "rebuilds"
_TICKET = "rebuild.json"
_UNFINISHED = ".unfinished"
_TICKET_FILE: MetadataFile[Any] = MetadataFile("ticket", 256 << 20, "remove the folder", dict[str, Any])
logger = logging.getLogger("corpusmill")


@dataclass(frozen=True)
class ScratchFolder:
    """An open scratch folder. `kept` is where it goes if it is to be kept."""

    folder: Path
    kept: Path

    def keep(self) -> None:
        """The folder has its lasting name, in the place of one that was kept before."""
        self._full_suffix()
        durable.remove(self.kept)
        durable.rename(self.folder, self.kept)

    def remove(self) -> None:
        """The folder is gone."""
        self._full_suffix()
        durable.remove(self.folder)

    def _full_suffix(self) -> None:
        """Nothing more is built: after a crash from here on, the next rebuild starts clean."""
        durable.remove(self.folder / _TICKET)


@contextlib.contextmanager
def scratch_folder(root: Path, name: str, ticket: Mapping[str, Any]) -> Iterator[ScratchFolder]:
    """The scratch folder of a rebuild, alone. The ticket says what is rebuilt and with what: a folder that was begun
    under another one is thrown away, since its shards would be those of another program. Raises InputError: another
    process does the same rebuild.
    """
    kept = root / FOLDER / name
    folder = kept.with_name(name + _UNFINISHED)
    data = json.dumps(ticket, sort_keys=True).encode()
    with locked(kept) as lock:
        if not _TICKET_FILE.has_content(folder / _TICKET, data):
            durable.remove(folder / _TICKET)
            durable.remove(folder)
            durable.make_folder(folder)
            durable.write_durably(folder / _TICKET, data)
        yield ScratchFolder(folder, kept)
        durable.remove(lock.path)


@dataclass(frozen=True)
class Rebuild:
    """What came of the steps of a rebuild, and where their copies are kept; None if they were removed."""

    outcomes: Sequence[StepOutcome]
    kept: Path | None

    @property
    def is_identical(self) -> bool:
        """Whether all came out as their manifests say, and are still sealed so."""
        return all(outcome.verdict == "identical" for outcome in self.outcomes)

    def copy_of(self, outcome: StepOutcome) -> Path | None:
        """Where the rebuilt copy is; None if it was removed."""
        return None if self.kept is None else self.kept / outcome.step.target.folder


def rebuild(folder: Path, run: Run, kinds: Kinds, with_upstream: bool = False, keep: bool = False) -> Rebuild:
    """The artifact in `folder` built again from what its manifest says, in `rebuilds` of the data root.

    The sealed folder isn't touched. Artifacts that are read are hashed as they are, so that a damaged one is not taken
    for a rebuild that differs. A rebuild that was killed is gone on with.

    Args:
        run: upstream artifacts are found in its data root by digest.
        kinds: all kinds by name.
        with_upstream: whether what it is made from is built again too, from the hub on; then nothing that is sealed is
            read but manifests, and the files of `folder` to be held against theirs.
        keep: whether the rebuilt copy stays; one that differs always does.
    Raises:
        UsageError, InputError: see `RebuildPlan`; a damaged input; what a build raises.
    """
    chain = RebuildPlan(folder, run.root, kinds, with_upstream)
    asked = chain.steps[-1].manifest
    ticket = {"digest": asked.digest, "with_upstream": with_upstream, "versions": versions()}
    with scratch_folder(run.root, _name(asked), ticket) as scratch:
        aside = replace(run, root=scratch.folder, replace=True, publishes=False)
        outcomes: list[StepOutcome] = []
        for step in chain.steps:
            unlike = [one.step.target for one in outcomes if one.verdict in ("different", "not rebuilt")]
            if any(target in step.target.upstream for target in unlike):  # so that it would come out different too
                outcomes.append(StepOutcome(step, "not rebuilt"))
                continue
            logger.info("rebuild: %s %s", step.manifest.kind, step.manifest.name)
            _drop_damaged(scratch.folder / step.target.folder)
            try:
                artifact = build_without_checks(step.target, aside)
            except InputError as error:
                raise chain.explained(error) from None
            is_asked = step.place is not None and step.place.absolute().is_relative_to(folder.absolute())
            outcomes.append(compare_step(step, artifact.manifest, holds_sealed=is_asked))
        if not keep and Rebuild(outcomes, None).is_identical:
            scratch.remove()
            return Rebuild(outcomes, None)
        scratch.keep()
        return Rebuild(outcomes, scratch.kept)


def _name(manifest: Manifest) -> str:
    """Of an artifact's folder among the rebuilds."""
    return re.sub(r"[^\w.-]+", "-", f"{manifest.name}-{manifest.digest.partition(':')[2][:12]}")


def _drop_damaged(folder: Path) -> None:
    """Remove what an interrupted rebuild sealed if it is no more as it was."""
    try:
        manifest = read_manifest(folder)
        is_damaged = manifest is not None and any(find_damage(folder, manifest))
    except InputError:
        is_damaged = True
    if is_damaged:
        durable.remove(folder)
