"""Targets, the artifacts that recipes request, with their kinds and checks."""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pipeline_assets.build.input_figures import input_figures
from pipeline_assets.build.removal_staleness import removal_staleness
from pipeline_assets.build.removal_state import read_removals
from pipeline_assets.build.run import Run
from pipeline_assets.build.target_protocols import CountLimit, ExternalInputs
from pipeline_assets.corpus.readers.listing import Forecast, Listing
from pipeline_assets.corpus.removals import NO_REMOVALS, REMOVALS_KEY
from pipeline_assets.spine.areas import MANIFEST_COPIES_FOLDER
from pipeline_assets.spine.artifact import (
    Artifact,
    CheckResult,
    Verdict,
    open_artifact,
    read_check_results,
    read_manifest,
)
from pipeline_assets.spine.changed_keys import changed_keys
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.manifest import Identity, Manifest, StageVersion
from pipeline_assets.spine.replacement import ReplacedError
from pipeline_assets.spine.staging import WORK_FILES_VERSION

if TYPE_CHECKING:
    from pipeline_assets.build.rows.store import RowStore  # which loads NumPy and Arrow

_MAX_LISTED_CHANGES = 5  # of a recipe, in an error or a table
_MAX_COPY_NAME = 200  # characters; a file name has at most 255 bytes, and a hash may be added
State = Literal["missing", "current", "failed", "stale", "damaged"]
CheckFunction = Callable[[Artifact, "Target", Path], Verdict]


@dataclass(frozen=True)
class Check:
    """Check of an artifact after its build."""

    name: str
    description: str  # the verified condition, as a sentence for the UI
    evaluate: CheckFunction
    is_blocking: bool = True  # a failure stops downstream builds; otherwise it is a warning


Build = Callable[["Target", Run], Artifact]
"""Builds the artifact of a target in the data root of a run, unless it matches its recipe."""


@dataclass(frozen=True)
class Planner:
    """Functions that compute numbers of a build before it starts.

    `list_files` lists the external files that a build needs. `plan_tokens` returns the number of tokens that a recipe
    sets, or None; `describe_limits` returns a line about the recipe's limits, or an empty text.
    """

    list_files: Callable[["Target", Run], Listing] = lambda target, run: Listing()
    plan_tokens: Callable[[Mapping[str, Any]], Forecast | None] = lambda recipe: None
    describe_limits: Callable[[Mapping[str, Any]], str] = lambda recipe: ""

    def figures(self, target: "Target", external_inputs: Iterable[Mapping[str, Any]]) -> dict[str, Forecast]:
        """Return planned numbers, such as tokens, by name."""
        read, tokens = input_figures(() if target.upstream else external_inputs), self.plan_tokens(target.recipe)
        figures = {name: Forecast(count, "the listing and footers") for name, count in read.items()}
        return figures if tokens is None else figures | {"tokens": tokens}


@dataclass(frozen=True)
class Kind:
    """Kind of artifact: its build, its checks and its views."""

    name: str  # `system/artifact`
    stage: StageVersion
    build: Build  # reads no recipe file, because `rebuild` reads its targets from manifests
    description: str  # Markdown for the UI; the first line is a summary
    checks: tuple[Check, ...]  # the first one verifies the files; the others run only if it passes
    formats: frozenset[str] = frozenset()  # of its files, as shown in the UI
    # Returns a sealed artifact's input files if they are local and in no artifact; else None.
    external_inputs: Callable[[Manifest, Path], ExternalInputs | None] = lambda manifest, root: None
    labels: tuple[str, ...] = ()  # names of files that no digest covers, because they contain a time or a path
    row_store_class: "type[RowStore] | None" = None  # reads and traces its rows; None if it has no rows
    preview: Callable[[Artifact], list[dict[str, str]]] | None = None  # table of the UI; None shows the first rows
    after_build: Callable[[Artifact], object] | None = None  # writes other files, even if the artifact was up to date
    planner: Planner = Planner()
    dagster_pool: str = "cpu"  # limits parallel builds; builds that read a hub use the pool `hub` instead
    # Checks whether a recipe keeps all documents unchanged; a build then links the input files.
    keeps_all_documents: Callable[[Mapping[str, Any]], bool] = lambda recipe: False
    applies_removals: bool = False  # its build leaves out the rows on the removal list of the data root

    @property
    def short_name(self) -> str:
        """The name without the system, such as `packed` of `stage_a/packed`."""
        return self.name.partition("/")[2]

    def target(
        self,
        recipe_name: str,
        content: Mapping[str, Any],
        upstream: Sequence["Target"] = (),
        *,
        partition: str | None = None,
        **attributes: Any,
    ) -> "Target":
        """Return a target in the folder `system/recipe_name/artifact/partition`.

        `content` has the recipe values that the bytes depend on; `attributes` override defaults of the target.
        """
        system, step = self.name.partition("/")[0], self.short_name
        parts = [] if partition is None else [partition]
        file = "_".join([recipe_name, *(part.replace("/", "_") for part in parts), step])
        if len(file) > _MAX_COPY_NAME:
            file = f"{file[:_MAX_COPY_NAME]}_{hashlib.sha256(file.encode()).hexdigest()[:8]}"
        named: dict[str, Any] = {
            "name": "/".join([recipe_name, *parts]),
            "copy_name": f"{file}.json",
            "partition": partition,
            "folder": Path(system, recipe_name, step, *parts),
        }
        return Target(kind=self, recipe=content, upstream=tuple(upstream), **named | attributes)


Kinds = Mapping[str, Kind]
"""Kinds by the name that manifests contain."""


@dataclass(frozen=True)
class Target:
    """Artifact that a recipe requests."""

    kind: Kind
    name: str  # in messages and in the manifest; not in the digest
    folder: Path  # relative to the data root
    recipe: Mapping[str, Any]  # only values that the bytes depend on; any other would cause needless rebuilds
    upstream: tuple["Target", ...] = ()
    tokenizer: Mapping[str, Any] | None = None  # family and sha256; None if unused
    partition: str | None = None  # key; None if the kind has no partitions
    name_key: str = "name"  # recipe key that messages suggest to change if the folder is occupied
    copy_name: str | None = None  # file name of the manifest's copy for git; None if it is not copied
    intended_use: Mapping[str, Any] | None = None  # for the provenance; recipes of different uses share artifacts
    external_inputs: ExternalInputs | None = None  # local input files that are in no artifact; None without any
    checked_against: tuple["Target", ...] = ()  # artifacts that its checks read, but its build does not
    count_limit: CountLimit | None = None  # limit of the recipe on the artifact's counts; None without one
    is_external: bool = False  # another recipe builds the target; such a target is never stale
    is_output: bool = False  # the recipe names the target as an output; it is then never marked as intermediate
    is_intermediate: bool = field(default=False, compare=False)  # compressed for speed: only the next steps read it

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

        A build reuses the finished shards of an interrupted build only if the plans of both builds are equal.
        """
        listed = read_removals(root).positions[-1] if self.kind.applies_removals else ""
        spec = self.build_spec() | {"inputs": self.inputs(root), "work_files": WORK_FILES_VERSION}
        return spec | ({REMOVALS_KEY: listed} if listed else {})

    def matches_settings(self, identity: Identity) -> bool:
        """Check whether a sealed identity has this target's recipe, stage and tokenizer."""
        return (identity.recipe, identity.stage, identity.tokenizer) == (self.recipe, self.stage, self.tokenizer)

    def staleness_reason(self, root: Path, manifest: Manifest) -> str | None:
        """Return why a manifest is stale; None if it matches or the target is external."""
        identity = manifest.identity
        if self.is_external:
            return None
        if identity.recipe != self.recipe:
            changes = changed_keys(identity.recipe, self.recipe)
            # Errors replace marked keys with options. The option for `name` names a recipe, not a model.
            marked = [f"{key if key == 'name' else f'`{key}`'}: {change}" for key, change in changes.items()]
            more = len(marked) - _MAX_LISTED_CHANGES
            rest = f", and {more} more" if more > 0 else ""
            return f"the recipe changed ({', '.join(marked[:_MAX_LISTED_CHANGES])}{rest})"
        if identity.stage != self.stage:
            return f"built by {identity.stage}, the program has {self.stage}"
        if identity.tokenizer != self.tokenizer:
            return "the tokenizer changed"
        if reason := self.removal_staleness(root, manifest):
            return reason
        if self.external_inputs is not None and (changed := self.external_inputs.describe_changes(root, manifest)):
            return changed
        sealed_with = {entry["name"]: entry["digest"] for entry in identity.upstream}
        for target in self.upstream:
            try:
                upstream = read_manifest(root / target.folder)
            except InputError as damaged:
                return f"{target.role} is damaged ({damaged.where})"
            if target.role not in sealed_with:
                return f"not derived from {target.role}"
            if upstream is None:
                return f"{target.role} is missing"
            if sealed_with.pop(target.role) != upstream.digest:
                return f"{target.role} changed since"
        return f"also derived from {', '.join(sealed_with)}" if sealed_with else None

    def removal_staleness(self, root: Path, manifest: Manifest) -> str | None:
        """Return why the removal list makes a manifest stale; None if it does not."""
        listed = read_removals(root) if self.kind.applies_removals else NO_REMOVALS
        return removal_staleness(root, listed, manifest) if listed.entries else None

    def state(self, root: Path) -> tuple[State, str]:
        """Return (state, digest) if the state is `current`, otherwise (state, reason)."""
        try:
            if read_manifest(root / self.folder) is None:
                is_removed = self.copy_name is not None and (root / MANIFEST_COPIES_FOLDER / self.copy_name).exists()
                return "missing", "built earlier, and removed since" if is_removed else "not built yet"
            manifest = open_artifact(root / self.folder).manifest
        except ReplacedError:  # by another builder: describe the new artifact
            return self.state(root)
        except InputError as damaged:
            return "damaged", f"{damaged.where}: {damaged.what}"
        reason = self.staleness_reason(root, manifest)
        if reason:
            return "stale", reason
        failed = [check for check in self.check_results(root, manifest) if check.is_blocking_failure]
        if failed:
            return "failed", "; ".join(f"{check.name} failed: {check.because}" for check in failed)
        return "current", manifest.digest

    def check_results(self, root: Path, manifest: Manifest) -> tuple[CheckResult, ...]:
        """Return the stored results of applicable checks, and the count limit's result."""
        stored = read_check_results(root / self.folder, manifest.digest) or ()
        applying = tuple(check for check in stored if check.applies)
        if self.count_limit is None:
            return applying
        result = CheckResult.from_verdict(self.count_limit.check_name, True, self.count_limit.evaluate(manifest))
        return (*(check for check in applying if check.name != result.name), result) if result.applies else applying

    def matches_recipe(self, root: Path) -> bool:
        """Check whether the sealed artifact matches its recipe; failed checks are ignored."""
        return self.state(root)[0] in ("current", "failed")

    def is_up_to_date(self, root: Path) -> bool:
        """Check whether the artifact is current and its stored check results are valid."""
        return self.up_to_date_digest(root) is not None

    def up_to_date_digest(self, root: Path) -> str | None:
        """Return the digest if the artifact is current and its check results are valid.

        Otherwise return None: a crash may leave no results, and a changed count limit may contradict the stored result.
        """
        if self.state(root)[0] != "current":
            return None
        manifest = open_artifact(root / self.folder).manifest
        stored = read_check_results(root / self.folder, manifest.digest)
        if stored is None:
            return None
        recorded, present = (
            {(check.name, check.passed, check.blocking) for check in checks if check.applies}
            for checks in (stored, self.check_results(root, manifest))
        )
        return manifest.digest if recorded == present else None

    def raise_if_failed(self, root: Path) -> None:
        """Raise InputError if a blocking check failed."""
        state, reason = self.state(root)
        if state == "failed":
            raise InputError(reason, root / self.folder, "downstream artifacts are not built until that check passes")
