"""Rebuild of an artifact from its manifest, compared with the sealed one.

Targets are derived from manifests; no recipe file is read. The folder of a target is relative to the scratch folder if
the target is rebuilt, and absolute if its sealed artifact is used.

The scratch folder is `rebuilds/<name>.unfinished` in the data root. After a crash, a rebuild continues there if it is
repeated by the same versions of the program and its libraries. A kept rebuild's folder is renamed to `rebuilds/<name>`.
No artifact depends on `rebuilds`, so the folder may be deleted.
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
from pipeline_assets.build.removal_staleness import lacks_applied_entries
from pipeline_assets.build.removal_state import applied_positions, read_removals
from pipeline_assets.build.run import INTERMEDIATE_ZSTD_LEVEL, Run
from pipeline_assets.build.systems import unknown_kind
from pipeline_assets.build.target import Kind, Kinds, Target
from pipeline_assets.corpus.removals import REMOVALS_KEY
from pipeline_assets.spine import durable
from pipeline_assets.spine.areas import AREAS, MANIFEST_COPIES_FOLDER
from pipeline_assets.spine.artifact import find_damage, member_digests, read_manifest
from pipeline_assets.spine.errors import InputError, UsageError
from pipeline_assets.spine.lineage import OTHER_ROOT_HINT, Lineage
from pipeline_assets.spine.lock import locked
from pipeline_assets.spine.manifest import Manifest, StageVersion
from pipeline_assets.spine.metadata_file import MetadataFormat
from pipeline_assets.spine.program_versions import current_versions, recorded_versions
from pipeline_assets.spine.sealed_folder import require_manifest
from pipeline_assets.trust.differences import RebuildStep, StepOutcome, compare_step


class RebuildPlan:
    """Steps of a rebuild, upstream first; the requested artifact is the last."""

    def __init__(self, folder: Path, root: Path, kinds: Kinds, with_upstream: bool) -> None:
        """Plan the rebuild of the artifact in `folder`.

        `with_upstream` rebuilds all inputs, which are found by digest in the data root; otherwise, only members are
        rebuilt. Raise UsageError if `folder` has no manifest, or this program cannot build a kind or its stage version.
        Raise InputError if the manifest of another step is missing.
        """
        requested = require_manifest(folder)
        self._errors: dict[Path, InputError] = {}  # about missing inputs, by folder of the target
        self._steps: dict[Path, RebuildStep] = {}  # by folder of the target
        self._folder, self._lineage, self._kinds, self._with_upstream = folder, Lineage(root), kinds, with_upstream
        self._requested_artifacts: dict[str, tuple[Manifest, Path | None]] = {requested.digest: (requested, folder)}
        for name in member_digests(requested):
            if (member := read_manifest(folder / name)) is not None:
                self._requested_artifacts[member.digest] = member, folder / name
        self._used_folders: dict[Path, str] = {}  # digests by folder
        self._add_target(requested, folder, self._scratch_path(requested.kind, requested.digest), None)
        for step in self.steps:
            _check_stage_version(step, kinds.get(step.manifest.kind))

    @property
    def steps(self) -> list[RebuildStep]:
        return list(self._steps.values())

    def explain_missing_input(self, error: InputError) -> InputError:
        """Return a clearer error if `error` is about a missing input, otherwise `error`."""
        return self._errors.get(Path(error.where), error)

    def _find_manifest(self, digest: str, downstream_name: str) -> tuple[Manifest | None, Path | None]:
        """Return an artifact's manifest and folder by its digest; each None if missing.

        Of several artifacts, prefer one of the recipe of `downstream_name`, the name of the manifest that lists it.
        """
        if digest in self._requested_artifacts:
            return self._requested_artifacts[digest]
        if (found := self._lineage.find_by_digest(digest, downstream_name)) is not None:
            return found.manifest, found.folder
        return self._lineage.read_manifest_copy(digest), None

    def _add_target(
        self, manifest: Manifest, sealed_folder: Path | None, folder: Path, partition: str | None
    ) -> Target:
        """Return the target of a manifest, and add a step if it will be rebuilt."""
        identity, kind = manifest.identity, self._kinds.get(manifest.kind)
        target = Target(
            kind=unknown_kind(manifest.kind, identity.stage) if kind is None else replace(kind, stage=identity.stage),
            name=manifest.name,
            folder=folder,
            recipe=identity.recipe,
            upstream=tuple(self._input_target(entry, folder, manifest.name) for entry in identity.upstream),
            tokenizer=identity.tokenizer,
            partition=partition,
            intended_use=manifest.provenance.get("made_for"),
            external_inputs=None if kind is None else kind.external_inputs(manifest, self._lineage.root),
            is_intermediate=manifest.provenance.get("run_settings", {}).get("zstd_level") == INTERMEDIATE_ZSTD_LEVEL,
        )
        if folder.is_absolute():
            return target
        return self._steps.setdefault(folder, RebuildStep(target, manifest, sealed_folder)).target

    def _input_target(self, entry: Mapping[str, Any], downstream_folder: Path, downstream_name: str) -> Target:
        """Return the target of an input of the artifact in `downstream_folder`."""
        is_rebuilt = not downstream_folder.is_absolute() and (self._with_upstream or "member" in entry)
        manifest, sealed_folder = self._find_manifest(entry["digest"], downstream_name)
        if manifest is None and is_rebuilt:
            areas = f"{', '.join(AREAS)} or {MANIFEST_COPIES_FOLDER}"
            what = f"no manifest found below {areas} for the input {_describe_input(entry)}"
            raise InputError(what + self._lineage.unreadable_note, self._lineage.root, OTHER_ROOT_HINT)
        if manifest is None or (sealed_folder is None and not is_rebuilt):
            return self._missing_input_target(entry, has_manifest=manifest is not None)
        if not is_rebuilt and sealed_folder is not None:
            folder = sealed_folder.absolute()
        elif "member" in entry:
            folder = downstream_folder / entry["member"]
        else:
            folder = self._scratch_path(entry["name"], entry["digest"])
        partition = entry["name"].removeprefix(manifest.kind).removeprefix("/") or None
        return self._add_target(manifest, sealed_folder, folder, partition)

    def _missing_input_target(self, entry: Mapping[str, Any], has_manifest: bool) -> Target:
        """Return a placeholder for a missing input; only a build that reads it fails."""
        folder = self._lineage.root.absolute() / entry["digest"]
        what = f"the input {_describe_input(entry)} is not sealed below {self._lineage.root}"
        fix = OTHER_ROOT_HINT + (", or build it again too with --upstream" if has_manifest else "")
        self._errors[folder] = InputError(what + self._lineage.unreadable_note, self._folder, fix)
        return Target(unknown_kind(entry["name"], StageVersion("unknown", 0)), entry["name"], folder, {})

    def _scratch_path(self, role: str, digest: str) -> Path:
        """Return a folder named after `role`; add the digest if the name is taken."""
        name = re.sub(r"[^\w.-]+", "-", role.partition("/")[2] or role)
        if self._used_folders.setdefault(Path(name), digest) == digest:
            return Path(name)
        return Path(f"{name}-{digest.partition(':')[2][:12]}")


def _check_stage_version(step: RebuildStep, kind: Kind | None) -> None:
    """Raise UsageError if this program lacks the kind or its stage version."""
    manifest, stage = step.manifest, step.manifest.identity.stage
    if kind is not None and kind.stage == stage:
        return
    what = f"{manifest.name} is a {manifest.kind}, which this program cannot build"
    if kind is not None:
        what = f"{manifest.name} was built by {stage}, this program has {kind.stage}"
    versions = ", ".join(f"{name} {version}" for name, version in recorded_versions(manifest.provenance).items())
    where = step.sealed_folder or manifest.digest
    raise UsageError(what, where, f"use the version that built it: {versions or 'its manifest names none'}")


def _describe_input(entry: Mapping[str, Any]) -> str:
    return f"{entry['name']} {entry['digest']}"


_TICKET_FILE = "rebuild.json"
_TICKET_FORMAT: MetadataFormat[Any] = MetadataFormat("ticket", 256 << 20, "remove the folder", dict[str, Any])
logger = logging.getLogger("corpusmill")


@dataclass(frozen=True)
class ScratchFolder:
    """Scratch folder in use, and the path to which `keep` renames it."""

    folder: Path
    kept_path: Path

    def keep(self) -> None:
        """Rename the folder to `kept_path`, in place of an earlier copy."""
        self._remove_ticket()
        durable.remove(self.kept_path)
        durable.rename(self.folder, self.kept_path)

    def remove(self) -> None:
        self._remove_ticket()
        durable.remove(self.folder)

    def _remove_ticket(self) -> None:
        """Remove the ticket, so that no rebuild continues in a half-removed folder."""
        durable.remove(self.folder / _TICKET_FILE)


@contextlib.contextmanager
def scratch_folder(root: Path, name: str, ticket: Mapping[str, Any]) -> Iterator[ScratchFolder]:
    """Open the scratch folder of a rebuild under a lock.

    The folder of an interrupted rebuild is emptied if that rebuild had another `ticket` (digest, options and versions),
    because its shards may differ.
    """
    kept_path = root / "rebuilds" / name
    folder = kept_path.with_name(f"{name}.unfinished")
    data = json.dumps(ticket, sort_keys=True).encode()
    with locked(kept_path) as lock:
        if not _TICKET_FORMAT.has_content(folder / _TICKET_FILE, data):
            durable.remove(folder / _TICKET_FILE)
            durable.remove(folder)
            durable.make_folder(folder)
            durable.write_durably(folder / _TICKET_FILE, data)
        yield ScratchFolder(folder, kept_path)
        durable.remove(lock.path)


@dataclass(frozen=True)
class RebuildResult:
    """Outcomes of all steps; `kept_folder` is None if the rebuilt copies were removed."""

    outcomes: Sequence[StepOutcome]
    kept_folder: Path | None

    @property
    def is_identical(self) -> bool:
        """True if the verdict of every step is `identical`."""
        return all(outcome.verdict == "identical" for outcome in self.outcomes)

    def rebuilt_folder(self, outcome: StepOutcome) -> Path | None:
        """Return the folder of a rebuilt copy; None if it was not built, or was removed."""
        if self.kept_folder is None or outcome.rebuilt_manifest is None:
            return None
        return self.kept_folder / outcome.step.target.folder


def rebuild(folder: Path, run: Run, kinds: Kinds, with_upstream: bool = False, keep: bool = False) -> RebuildResult:
    """Rebuild an artifact from its manifest, and compare the copy with the original.

    The sealed folder is not changed. An interrupted rebuild is continued. `with_upstream` rebuilds inputs too, starting
    from the hub; otherwise, sealed inputs are hashed, so that their damage is not mistaken for a different build.
    `keep` keeps an identical copy; a different copy is always kept.

    Raises:
        UsageError: The folder has no artifact, or this program cannot build a kind or its stage version.
        InputError: An input is missing, damaged or cannot be fetched; the removal list lacks entries that a build
            applied; a build fails; or the sealed artifact was replaced.
    """
    plan = RebuildPlan(folder, run.root, kinds, with_upstream)
    removal_list = read_removals(run.root, applied_positions(step.manifest for step in plan.steps))
    for manifest in (step.manifest for step in plan.steps if lacks_applied_entries(removal_list, step.manifest)):
        what = f"{manifest.kind} {manifest.name} was built with entries that the removal list here lacks"
        raise InputError(what, run.root, "rebuild it in the data root in which it was built")
    requested = plan.steps[-1].manifest
    ticket = {"digest": requested.digest, "with_upstream": with_upstream, "versions": current_versions()}
    name = re.sub(r"[^\w.-]+", "-", f"{requested.name}-{requested.digest.partition(':')[2][:12]}")
    with scratch_folder(run.root, name, ticket) as scratch:
        scratch_run = replace(run, root=scratch.folder, replace=True, publishes=False)
        outcomes: list[StepOutcome] = []
        for step in plan.steps:
            changed = [outcome.step.target for outcome in outcomes if outcome.verdict in ("different", "not rebuilt")]
            if any(target in step.target.upstream for target in changed):  # the rebuild would differ too
                outcomes.append(StepOutcome(step, "not rebuilt"))
                continue
            logger.info("rebuild: %s %s", step.manifest.kind, step.manifest.name)
            _remove_if_damaged(scratch.folder / step.target.folder)
            try:
                position = step.manifest.provenance.get(REMOVALS_KEY)
                removals = removal_list.sublist(0, removal_list.count_before(position))
                artifact = build_without_checks(step.target, replace(scratch_run, removals=removals))
            except InputError as error:
                raise plan.explain_missing_input(error) from None
            sealed = None if step.sealed_folder is None else step.sealed_folder.absolute()
            is_requested = sealed is not None and sealed.is_relative_to(folder.absolute())
            outcomes.append(compare_step(step, artifact.manifest, checks_sealed_files=is_requested))
        if not keep and RebuildResult(outcomes, None).is_identical:
            scratch.remove()
            return RebuildResult(outcomes, None)
        scratch.keep()
        return RebuildResult(outcomes, scratch.kept_path)


def _remove_if_damaged(folder: Path) -> None:
    """Remove an artifact of an interrupted rebuild if it is damaged."""
    try:
        manifest = read_manifest(folder)
        is_damaged = manifest is not None and any(find_damage(folder, manifest))
    except InputError:
        is_damaged = True
    if is_damaged:
        durable.remove(folder)
