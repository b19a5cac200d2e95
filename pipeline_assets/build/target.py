"""Targets: artifacts that a recipe requests, built or not."""

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
from pipeline_assets.spine.build_result import BuildFunction, BuildResult
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
    """Local input files of an artifact, outside the data root."""

    def describe_changes(self, root: Path, manifest: Manifest) -> str | None:
        """Describe the files that changed since the manifest was sealed; None if none did."""


class CountLimit(Protocol):
    """Limit of a recipe on counts of an artifact, reported as the check named `check`.

    The limit is evaluated whenever the state is read, since a recipe may change it after the build.
    """

    @property
    def check(self) -> str: ...

    def evaluate(self, manifest: Manifest) -> Verdict:
        """Evaluate the limit for a sealed artifact."""


@dataclass(frozen=True)
class Target:
    """Artifact that a recipe requests.

    Attributes:
        name: Name in messages and in the manifest; not in the digest.
        folder: Path relative to the data root.
        recipe: Only the recipe values that its bytes depend on; any other value would cause needless rebuilds.
        tokenizer: Family and sha256 of the tokenizer; None if unused.
        partition: Key of the partition; None if its kind has none.
        name_key: Recipe key that messages suggest to change if the folder is occupied.
        export_as: File name of the manifest's copy for git; None if it is not copied.
        intended_use: Use of the artifact by its recipe, for the provenance; recipes with other uses share the artifact.
        external_inputs: Local input files outside the data root; None if it has none.
        checked_against: Artifacts that its checks read, but its build does not.
        is_external: Whether another recipe builds it; if so, whatever is sealed in the folder matches.
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
        return self.kind.stage

    @property
    def role(self) -> str:
        """Name of this artifact in manifests that list it: kind, or kind/partition."""
        return self.kind.name if self.partition is None else f"{self.kind.name}/{self.partition}"

    @property
    def members(self) -> tuple["Target", ...]:
        """Upstream artifacts whose folders are directly inside this artifact's folder."""
        return tuple(target for target in self.upstream if target.folder.parent == self.folder)

    def inputs(self, root: Path) -> list[dict[str, str]]:
        """Return roles and digests of upstream artifacts; InputError if one is not sealed."""
        artifacts = ((target.role, open_artifact(root / target.folder)) for target in self.upstream)
        return [{"name": role, "digest": artifact.manifest.digest} for role, artifact in artifacts]

    def build_spec(self) -> dict[str, Any]:
        """Return everything that the bytes depend on, except the inputs."""
        return {"kind": self.kind.name, "recipe": self.recipe, "stage": vars(self.stage), "tokenizer": self.tokenizer}

    def plan(self, root: Path) -> dict[str, Any]:
        """Return everything that the bytes depend on, except external files.

        Finished shards of an interrupted build are reused only if the plan is equal.
        """
        return self.build_spec() | {"inputs": self.inputs(root)}

    def staleness_reason(self, root: Path, manifest: Manifest) -> str | None:
        """Return why a manifest does not match; None if it does or `is_external` is set."""
        identity = manifest.identity
        if self.is_external:
            return None
        if identity.recipe != self.recipe:
            changes = changed_keys(identity.recipe, self.recipe)
            return f"the recipe changed ({', '.join(f'`{key}`: {change}' for key, change in changes.items())})"
        if identity.stage != self.stage:
            return f"built by {identity.stage}, the program has {self.stage}"
        if identity.tokenizer != self.tokenizer:
            return "the tokenizer changed"
        external = self.external_inputs
        if external is not None and (changed := external.describe_changes(root, manifest)) is not None:
            return changed
        sealed_with = {entry["name"]: entry["digest"] for entry in identity.upstream}
        for target in self.upstream:
            try:
                upstream = read_manifest(root / target.folder)
            except InputError as damaged:
                return f"{target.role} is damaged ({damaged.where})"
            if target.role not in sealed_with:
                return f"not derived from {target.role}"
            if upstream is None or sealed_with.pop(target.role) != upstream.digest:
                return f"{target.role} changed since"
        return f"also derived from {', '.join(sealed_with)}" if sealed_with else None

    def state(self, root: Path) -> tuple[State, str]:
        """Return the state of the artifact, and its digest if current, or else the reason."""
        try:
            if read_manifest(root / self.folder) is None:
                return "missing", "not built yet"
            manifest = open_artifact(root / self.folder).manifest
        except InputError as damaged:
            return "damaged", f"{damaged.where}: {damaged.what}"
        reason = self.staleness_reason(root, manifest)
        if reason:
            return "stale", reason
        failed = [check for check in self.results(root, manifest) if check.is_blocking_failure]
        if failed:
            return "failed", "; ".join(f"{check.name} failed: {check.because}" for check in failed)
        return "current", manifest.digest

    def results(self, root: Path, manifest: Manifest) -> tuple[CheckResult, ...]:
        """Return stored check results, with the recipe's present count limit applied."""
        stored = read_check_results(root / self.folder, manifest.digest) or ()
        applying = tuple(check for check in stored if check.applies)
        if self.count_limit is None:
            return applying
        result = CheckResult.from_verdict(self.count_limit.check, True, self.count_limit.evaluate(manifest))
        return (*(check for check in applying if check.name != result.name), result) if result.applies else applying

    def matches_recipe(self, root: Path) -> bool:
        """Check whether the sealed artifact matches its recipe, even if a check failed."""
        return self.state(root)[0] in ("current", "failed")

    def is_up_to_date(self, root: Path) -> bool:
        """Check whether the artifact is current and its stored check results are valid.

        Results are missing after a crash, and are outdated if a changed count limit gives another verdict.
        """
        if self.state(root)[0] != "current":
            return False
        manifest = open_artifact(root / self.folder).manifest
        stored = read_check_results(root / self.folder, manifest.digest)
        if stored is None:
            return False
        recorded, present = (
            {(check.name, check.passed, check.blocking) for check in checks if check.applies}
            for checks in (stored, self.results(root, manifest))
        )
        return recorded == present

    def raise_if_failed(self, root: Path) -> None:
        """Raise InputError if a blocking check failed."""
        state, reason = self.state(root)
        if state == "failed":
            raise InputError(reason, root / self.folder, "downstream artifacts are not built until that check passes")

    def build(self, root: Path, make: BuildFunction, replace: bool, run_settings: Mapping[str, Any]) -> Artifact:
        """Build the artifact unless it matches its recipe.

        `make` writes the files into the staging directory and describes them. Nothing is sealed if a file that `make`
        read does not match its pinned hash.

        Raises:
            UsageError: The folder has another artifact, and `replace` is not set, or its kind differs.
            InputError: The folder has a damaged artifact, and `replace` is not set; a check blocks an input; an input
                was replaced during the build; or another process is building.
        """
        recover(root / self.folder)
        if self.matches_recipe(root):
            return open_artifact(root / self.folder)
        self.raise_if_occupied(root, replace)
        self._raise_if_upstream_failed(root)
        folder, plan, stopwatch = root / self.folder, self.plan(root), Stopwatch()
        with open_staging_dir(folder, plan) as staging:
            if self.matches_recipe(root):
                staging.discard()
                return open_artifact(folder)
            self.raise_if_occupied(root, replace)
            adopted = staging.finished_shards()
            try:
                with verify_reads():
                    content = make(staging)
            except InputError:
                staging.discard_if_unstarted()
                raise
            if self.plan(root) != plan:
                what = "an input was replaced during the build"
                raise RetryableError(what, folder, "run the same command again")
            provenance = {
                **stopwatch.provenance(run_settings),
                "peak_disk_bytes": folder_bytes(staging.folder),
                "peak_memory_bytes": peak_memory_bytes(),
                "adopted_shards": adopted,
                **content.provenance,
                **({} if self.intended_use is None else {"made_for": self.intended_use}),
            }
            identity = self._build_identity(content, plan["inputs"])
            labels = list(content.labels)
            if content.page is not None:
                labels.append(content.page(staging, Manifest(self.kind.name, self.name, identity, [], provenance)))
            stored = [file.stored for file in (*content.files, *labels)]
            return staging.seal(self.kind.name, self.name, identity, stored, provenance)

    def seal_manifest(
        self, root: Path, content: BuildResult, run_settings: Mapping[str, Any], since: Stopwatch, replace: bool
    ) -> Artifact:
        """Seal an artifact without files: its manifest lists members or external files.

        A sealed manifest with other content is replaced only if `replace` is set, because artifacts that were built
        from it would lose their input.
        """
        member_folders = {member.folder for member in self.members}
        inputs = [
            entry | {"member": target.folder.name} if target.folder in member_folders else entry
            for entry, target in zip(self.inputs(root), self.upstream, strict=True)
        ]
        if self.matches_recipe(root):
            return open_artifact(root / self.folder)
        self._raise_if_upstream_failed(root)
        identity = self._build_identity(content, inputs)
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
        """Raise an error if the folder has an artifact that must not be replaced.

        Raises:
            UsageError: The artifact does not match and `replace` is not set, or its kind differs.
            InputError: The artifact is damaged, and `replace` is not set.
        """
        state, reason = self.state(root)
        sealed = read_manifest(root / self.folder) if state == "stale" else None
        if sealed is not None and sealed.kind != self.kind.name:
            what = f"expected a {self.kind.name}, got a {sealed.kind}"
            raise UsageError(what, root / self.folder, "choose another output folder")
        if replace or state in ("missing", "current", "failed"):
            return
        if state == "damaged":
            what, fix = f"the artifact is damaged ({reason})", f"{_REPLACE_HINT} to build it again"
            raise InputError(what, root / self.folder, fix)
        fix = f"set another `{self.name_key}` in the recipe, or {_REPLACE_HINT}"
        raise UsageError(f"another version is sealed here: {reason}", root / self.folder, fix)

    def _build_identity(self, content: BuildResult, inputs: Sequence[Mapping[str, Any]]) -> Identity:
        return Identity(
            stage=self.stage,
            recipe=self.recipe,
            inputs=[*inputs, *content.external_inputs],
            tokenizer=self.tokenizer,
            decisions=content.decisions,
            counts=content.counts,
            files=[file.content for file in content.files],
        )
