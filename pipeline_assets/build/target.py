"""Targets: an artifact before it exists. Where it will lie, what its content depends on, whether it is there."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from pipeline_assets.spine.artifact import (
    Artifact,
    CheckResult,
    Verdict,
    open_artifact,
    read_check_results,
    read_manifest,
    try_read_manifest,
)
from pipeline_assets.spine.build_result import BuildResult, Make
from pipeline_assets.spine.changed_keys import changed_keys
from pipeline_assets.spine.errors import InputError, RetryableError, UsageError
from pipeline_assets.spine.manifest import Identity, Manifest, StageVersion
from pipeline_assets.spine.opening import open_staging_dir, recover, seal_in_place
from pipeline_assets.spine.provenance import Stopwatch
from pipeline_assets.spine.usage import folder_bytes, peak_memory_bytes
from pipeline_assets.spine.verified_reads import verify_reads

if TYPE_CHECKING:
    from pipeline_assets.build.kind import Kind  # whose functions take targets

REPLACE = "--replace"  # the run setting in messages
_REPLACE_HINT = f"run with {REPLACE}"
State = Literal["missing", "current", "failed", "stale", "damaged"]


class ExternalInputs(Protocol):
    """Files outside of the data root that an artifact is made from."""

    def describe_changes(self, root: Path, manifest: Manifest) -> str | None:
        """Which files changed since the manifest was sealed, in words; None where none did."""


class CountLimit(Protocol):
    """A limit that a recipe sets to the counts of an artifact, judged by its manifest whenever its state is asked; and
    the name of the check that asks it.
    """

    @property
    def check(self) -> str: ...

    def evaluate(self, manifest: Manifest) -> Verdict:
        """Whether what is sealed is so."""


@dataclass(frozen=True)
class Target:
    """One artifact of a recipe.

    Attributes:
        kind: its kind: how it is built and checked.
        name: what people call it; no part of its digest, nor is the name of what it is made from.
        name_key: the recipe key that gives it another folder.
        folder: below the data root.
        recipe: the part of the recipe that its bytes depend on; not more, or a later step's setting would rebuild it.
        upstream: artifacts that it is made from, in order.
        tokenizer: {family, sha256} or None.
        partition: key of its partition, None where it has none.
        export_as: name of the copy of its manifest that is kept; None where none is.
        intended_use: What the recipe builds from it, for the manifest; changes no byte, so recipes can share the
            artifact. None if not recorded.
        external_inputs: files of this machine that it is made from; None where there are none.
        checked_against: artifacts that its checks hold it against; nothing of it depends on them.
        count_limit: a limit to its counts; None where the recipe sets none.
        is_external: whether it lies there already, made by another recipe: then it is as asked, however it was made.
    """

    kind: "Kind"
    name: str
    folder: Path
    recipe: Mapping[str, Any]
    upstream: tuple["Target", ...] = ()
    tokenizer: Mapping[str, Any] | None = None
    partition: str | None = None
    name_key: str = "name"
    export_as: str | None = None
    intended_use: Mapping[str, Any] | None = None
    external_inputs: ExternalInputs | None = None
    checked_against: tuple["Target", ...] = ()
    count_limit: CountLimit | None = None
    is_external: bool = False

    @property
    def stage(self) -> StageVersion:
        """Stage and version that build it."""
        return self.kind.stage

    @property
    def role(self) -> str:
        """Kind and partition: the name of this input in manifests downstream, however the artifact is called."""
        return self.kind.name if self.partition is None else f"{self.kind.name}/{self.partition}"

    def inputs(self, root: Path) -> list[dict[str, str]]:
        """Upstream artifacts with the digests that they have now. Raises InputError: one is not sealed."""
        return [{"name": one.role, "digest": open_artifact(root / one.folder).manifest.digest} for one in self.upstream]

    def user_prompt(self) -> dict[str, Any]:
        """What the bytes depend on beside what it is made from."""
        return {"kind": self.kind.name, "recipe": self.recipe, "stage": vars(self.stage), "tokenizer": self.tokenizer}

    def plan(self, root: Path) -> dict[str, Any]:
        """All that the bytes depend on: shards of a build that was interrupted are adopted by an equal plan alone.
        Raises InputError: an upstream artifact is not sealed.
        """
        return self.user_prompt() | {"inputs": self.inputs(root)}

    def staleness_reason(self, root: Path, manifest: Manifest) -> str | None:
        """Why a sealed manifest is not what this target asks for; None if it is."""
        identity = manifest.identity
        if self.is_external:
            return None
        if identity.recipe != self.recipe:
            changes = changed_keys(identity.recipe, self.recipe)
            return f"the recipe changed ({', '.join(f'`{key}`: {change}' for key, change in changes.items())})"
        if identity.stage != self.stage:
            return f"it was made by {identity.stage}, the program has {self.stage}"
        if identity.tokenizer != self.tokenizer:
            return "the tokenizer changed"
        if (
            self.external_inputs is not None
            and (changed := self.external_inputs.describe_changes(root, manifest)) is not None
        ):
            return changed
        sealed_with = {entry["name"]: entry["digest"] for entry in identity.upstream}
        for target in self.upstream:
            try:
                upstream = read_manifest(root / target.folder)
            except InputError as damaged:
                return f"{target.role} is damaged ({damaged.where})"
            if target.role not in sealed_with:
                return f"it was not made from {target.role}"
            if upstream is None or sealed_with.pop(target.role) != upstream.digest:
                return f"{target.role} changed since"
        return f"it was made from {', '.join(sealed_with)} too" if sealed_with else None

    def state(self, root: Path) -> tuple[State, str]:
        """Whether the artifact is there as asked, and the reason in words. Failed: it is, but a check holds it back."""
        try:
            if read_manifest(root / self.folder) is None:
                return "missing", "not built yet"
            manifest = open_artifact(root / self.folder).manifest
        except InputError as damaged:
            return "damaged", f"{damaged.where}: {damaged.what}"
        reason = self.staleness_reason(root, manifest)
        if reason:
            return "stale", reason
        failed = [
            f"{one.name} failed: {one.because}" for one in self.results(root, manifest) if one.is_blocking_failure
        ]
        return ("failed", "; ".join(failed)) if failed else ("current", manifest.digest)

    def results(self, root: Path, manifest: Manifest) -> tuple[CheckResult, ...]:
        """What checks said of what is sealed, as far as they were asked and apply."""
        kept = tuple(one for one in read_check_results(root / self.folder, manifest.digest) or () if one.applies)
        if self.count_limit is None:
            return kept
        result = CheckResult.from_verdict(self.count_limit.check, True, self.count_limit.evaluate(manifest))
        return (*(check for check in kept if check.name != result.name), result) if result.applies else kept

    def matches_recipe(self, root: Path) -> bool:
        """Whether it is there as asked, passed its checks or not: to build it again would give equal bytes."""
        return self.state(root)[0] in ("current", "failed")

    def is_up_to_date(self, root: Path) -> bool:
        """Check whether it is current, its checks ran, and their record has the result of the present demand: a crash
        may come between a seal and its checks, and another limit changes no digest.
        """
        if self.state(root)[0] != "current":
            return False
        manifest = open_artifact(root / self.folder).manifest
        kept = read_check_results(root / self.folder, manifest.digest)
        if kept is None:
            return False
        recorded, present = (
            {(check.name, check.passed, check.blocking) for check in checks if check.applies}
            for checks in (kept, self.results(root, manifest))
        )
        return recorded == present

    def raise_if_failed(self, root: Path) -> None:
        """Raises InputError: a check holds it back."""
        state, reason = self.state(root)
        if state == "failed":
            raise InputError(reason, root / self.folder, "it stays, and nothing is made of it until that passes")

    def build(self, root: Path, make: Make, replace: bool, run_settings: Mapping[str, Any]) -> Artifact:
        """The artifact, built if it is not there as asked: `make` writes the files into the building folder and says
        what they are. One that is there is not touched; another one gives way only where it may be replaced.

        Raises UsageError: another artifact is sealed there and `replace` is False; InputError: a damaged one is, a
        check holds back what it is made from, a file that it read is not as it was sealed, another process is building
        it, or as `make` raises it.
        """
        recover(root / self.folder)
        if self.matches_recipe(root):
            return open_artifact(root / self.folder)
        self.raise_if_occupied(root, replace)
        self._raise_if_upstream_failed(root)
        folder, plan, stopwatch = root / self.folder, self.plan(root), Stopwatch()
        with open_staging_dir(folder, plan) as building:
            if self.matches_recipe(root):
                building.discard()
                return open_artifact(folder)
            self.raise_if_occupied(root, replace)
            adopted = building.finished_shards()
            try:
                with verify_reads():
                    content = make(building)
            except InputError:
                building.discard_unstarted()
                raise
            if self.plan(root) != plan:
                what = "what it is made from was replaced meanwhile"
                raise RetryableError(what, folder, "run the same command again")
            provenance = {
                **stopwatch.provenance(run_settings),
                "peak_disk_bytes": folder_bytes(building.folder),
                "peak_memory_bytes": peak_memory_bytes(),
                "adopted_shards": adopted,
                **content.provenance,
                **({} if self.intended_use is None else {"made_for": self.intended_use}),
            }
            identity = self._identity(content, plan["inputs"])
            labels = list(content.labels)
            if content.page is not None:
                labels.append(content.page(building, Manifest(self.kind.name, self.name, identity, [], provenance)))
            stored = [file.stored for file in (*content.files, *labels)]
            return building.seal(self.kind.name, self.name, identity, stored, provenance)

    def seal_manifest(
        self,
        root: Path,
        content: BuildResult,
        run_settings: Mapping[str, Any],
        since: Stopwatch,
        replace: bool,
    ) -> Artifact:
        """The artifact whose content is its upstream artifacts, folders inside it, or files from elsewhere: only its
        manifest is written.

        What was made from files that changed would lose what it names, so `replace` says whether an artifact of another
        content gives way. Raises UsageError, InputError: it doesn't; or a check holds back
        what it is made from.
        """
        inputs = [
            entry | {"member": target.folder.name} if target.folder.parent == self.folder else entry
            for entry, target in zip(self.inputs(root), self.upstream, strict=True)
        ]
        if self.matches_recipe(root):
            return open_artifact(root / self.folder)
        self._raise_if_upstream_failed(root)
        identity = self._identity(content, inputs)
        sealed = try_read_manifest(root / self.folder)
        if sealed is None or sealed.digest != identity.digest:
            self.raise_if_occupied(root, replace)
        provenance = {**since.provenance(run_settings), **content.provenance}
        is_sealed = functools.partial(self.matches_recipe, root)
        return seal_in_place(root / self.folder, self.kind.name, self.name, identity, provenance, is_sealed)

    def _raise_if_upstream_failed(self, root: Path) -> None:
        for target in self.upstream:
            target.raise_if_failed(root)

    def raise_if_occupied(self, root: Path, replace: bool) -> None:
        """Raises UsageError: another artifact is sealed in its place and `replace` is False, or one of another kind;
        InputError: a damaged one is.
        """
        state, reason = self.state(root)
        sealed = read_manifest(root / self.folder) if state == "stale" else None
        if sealed is not None and sealed.kind != self.kind.name:
            raise UsageError(f"this is a {sealed.kind}", root / self.folder, "give what is made another folder")
        if replace or state in ("missing", "current", "failed"):
            return
        if state == "damaged":
            raise InputError(f"it is damaged ({reason})", root / self.folder, f"{_REPLACE_HINT} to build it again")
        fix = f"set another `{self.name_key}` in the recipe, or {_REPLACE_HINT}"
        raise UsageError(f"another version is sealed here: {reason}", root / self.folder, fix)

    def _identity(self, content: BuildResult, inputs: Sequence[Mapping[str, Any]]) -> Identity:
        return Identity(
            stage=self.stage,
            recipe=self.recipe,
            inputs=[*inputs, *content.external_inputs],
            tokenizer=self.tokenizer,
            decisions=content.decisions,
            counts=content.counts,
            files=[file.content for file in content.files],
        )
