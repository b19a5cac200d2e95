"""Plan of a recipe: what its build will read, fetch and write.

Artifacts are planned upstream first. Their numbers come from file listings, footers of Parquet files and the recipe.
"""

import json
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pipeline_assets.build.figures import real_figures
from pipeline_assets.build.input_figures import input_figures
from pipeline_assets.build.inventory import ArtifactStatus
from pipeline_assets.build.run import INTERMEDIATE_ZSTD_LEVEL, Run
from pipeline_assets.build.target import Target
from pipeline_assets.corpus.dedup.decision import DEDUP_STAGE
from pipeline_assets.corpus.dedup.recipe import MAX_DOCUMENTS
from pipeline_assets.corpus.packing.mixture_estimate import MixtureEstimate
from pipeline_assets.corpus.readers.listing import Forecast
from pipeline_assets.corpus.readers.source_formats import COMPRESSION_SUFFIXES
from pipeline_assets.spine.artifact import read_manifest
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.spine.manifest import MANIFEST_FORMAT, StoredFile
from pipeline_assets.spine.stage import MAX_SHARDS
from pipeline_assets.spine.usage import folder_bytes, nearest_existing
from pipeline_assets.trust import token_estimates
from pipeline_assets.trust.token_estimates import STORED_BYTES_PER_TEXT_BYTE, TOKEN_BYTES, TOKEN_BYTES_PER_STORED_BYTE

_LEVEL_1_BYTES_PER_LEVEL_3_BYTE = 1.1  # bytes at zstd level 1 per byte at level 3
_KEPT_BYTES_PER_TEXT_BYTE = 1.4  # bytes of kept work per byte of text, see benchmarks/weeks.py
_UNUSABLE_STATES = ("missing", "damaged")  # in the reasons why artifacts downstream are stale
_COMPRESSED_SUFFIXES = (*COMPRESSION_SUFFIXES, ".parquet", ".7z")


@dataclass(frozen=True)
class CapacityCheck:
    """Free bytes on the disk of a folder, and the minimum that a build needs there."""

    folder: Path
    needed: int
    free: int

    @property
    def fits(self) -> bool:
        return self.needed <= self.free


def check_disks(root: Path, cache_folder: Path, bytes_to_write: int, bytes_to_fetch: int) -> list[CapacityCheck]:
    """Compare the free bytes of each disk with the bytes that a build needs.

    The data root needs `bytes_to_write`, the hub cache `bytes_to_fetch`. If both are on one disk, it must have the sum.
    """
    (device, free), (cache_device, cache_free) = _disk_space(root), _disk_space(cache_folder)
    if device == cache_device:
        return [CapacityCheck(root, bytes_to_write + bytes_to_fetch, free)]
    return [CapacityCheck(root, bytes_to_write, free), CapacityCheck(cache_folder, bytes_to_fetch, cache_free)]


def _disk_space(path: Path) -> tuple[int, int]:
    """Return device number and free bytes of a path's disk; the path need not exist."""
    folder = nearest_existing(path)
    return folder.stat().st_dev, shutil.disk_usage(folder).free


@dataclass(frozen=True)
class HubSample:
    """Numbers of files, row groups and rows that a build reads from a hub dataset."""

    files: int  # with row groups to read
    files_listed: int  # all input files
    row_groups: int
    rows: int

    @classmethod
    def from_inputs(cls, inputs: Sequence[Mapping[str, Any]]) -> "HubSample | None":
        """Sum up the row groups in manifest entries; None if no entry has row groups."""
        groups = [entry["row_groups"] for entry in inputs if "row_groups" in entry]
        rows = sum(group["rows"] for file_groups in groups for group in file_groups)
        return cls(len(groups), len(inputs), sum(map(len, groups)), rows) if groups else None


@dataclass(frozen=True)
class ArtifactPlan:
    """Plan of one artifact.

    If `is_kept_if_equal`, the artifact is stale only because inputs are missing or damaged: a build keeps the artifact
    if the rebuilt inputs are equal to the earlier ones.
    """

    status: ArtifactStatus
    figures: Mapping[str, Forecast] = field(default_factory=dict)  # planned numbers, such as `tokens`; empty if built
    sample: HubSample | None = None  # part of a hub dataset that the build reads; None for other inputs, or if built
    listing_bytes: int = 0  # size of the JSON that lists the input files in the manifest
    disk_bytes: int | None = None  # estimate; None if the kind has no rows, or the artifact is built
    is_kept_if_equal: bool = False

    @property
    def needs_replace(self) -> bool:
        """True if a build replaces the artifact only with `--replace`."""
        is_replaced = self.status.sealed_state in ("stale", "damaged") and not self.is_kept_if_equal
        return is_replaced and not self.status.target.members

    @property
    def bytes_to_write(self) -> int:
        """Size of the planned tokens in bytes, minus the part that is already written."""
        unfinished, tokens = self.status.partial_build, self.figures.get("tokens")
        written = 0 if tokens is None else TOKEN_BYTES * round(tokens.value)
        return max(0, written - sum(map(folder_bytes, unfinished.folders if unfinished is not None else ())))


@dataclass(frozen=True)
class RecipePlan:
    """Plan of a recipe."""

    artifacts: Sequence[ArtifactPlan]  # upstream first
    bytes_fetched_to_plan: int  # bytes of listings and footers
    bytes_to_fetch: int  # by the build itself
    disk_checks: Sequence[CapacityCheck]  # empty if everything is built
    mixture: MixtureEstimate | None = None  # of the first packed set to build; None if no source size is known
    kept_bytes: int = 0  # estimate of the work that a build with `keep_work` keeps for the next version
    # By corpus: estimated tokens that all segments need, minus the tokens of the corpus.
    missing_segment_tokens: Mapping[str, int] = field(default_factory=dict)

    @property
    def artifacts_to_build(self) -> list[ArtifactPlan]:
        return [plan for plan in self.artifacts if not plan.status.matches_recipe]


def plan_recipe(statuses: Sequence[ArtifactStatus], run: Run) -> RecipePlan:
    """Plan a recipe from the result of `artifact_statuses` for all its artifacts.

    Only artifacts that are not built yet cause requests to a hub. Raise UsageError if an upstream artifact of another
    recipe is not built.
    """
    hub, bytes_to_fetch = run.require_hub("a recipe"), dict[str, int]()
    before = hub.traffic.bytes
    bytes_by_folder = dict[Path, float]()
    artifacts = [_plan_target(status, run, bytes_to_fetch, bytes_by_folder) for status in statuses]
    fetched, written = sum(bytes_to_fetch.values()), sum(plan.bytes_to_write for plan in artifacts)
    texts = {status.target.folder: status.manifest for status in statuses if status.matches_recipe}
    to_build = [status.target for status in statuses if not status.matches_recipe]
    disk_checks = check_disks(run.root, hub.cache, written, fetched) if to_build else []
    packed = [target for target in to_build if "pack" in target.recipe]
    mixtures = {target.folder: token_estimates.plan_mixture(target, bytes_by_folder, texts) for target in packed}
    artifacts = [_set_packed_bytes(plan, mixtures.get(plan.status.target.folder)) for plan in artifacts]
    kept = _folders_kept_if_equal(statuses, run.root)
    artifacts = [replace(plan, is_kept_if_equal=plan.status.target.folder in kept) for plan in artifacts]
    mixture = next(iter(mixtures.values()), None)
    kept_bytes = round(sum(_kept_bytes(status, bytes_by_folder) for status in statuses)) if run.keep_work else 0
    missing = dict[str, int]()
    for target in to_build:
        if "segments" in target.recipe:
            missing |= token_estimates.missing_segment_tokens(target, bytes_by_folder, texts, run.root)
    return RecipePlan(artifacts, hub.traffic.bytes - before, fetched, disk_checks, mixture, kept_bytes, missing)


def _folders_kept_if_equal(statuses: Sequence[ArtifactStatus], root: Path) -> set[Path]:
    """List folders of artifacts that are stale only due to missing or damaged inputs."""
    kept, changing = set[Path](), set[Path]()
    for status in statuses:
        target, manifest = status.target, status.manifest
        has_changing_input = any(upstream.folder in changing for upstream in target.upstream)
        if status.sealed_state == "stale" and manifest is not None and not has_changing_input:
            reason = target.staleness_reason(root, manifest)
            causes = tuple(f"{upstream.role} is {state}" for upstream in target.upstream for state in _UNUSABLE_STATES)
            has_changing_input = reason is not None and not reason.startswith(causes)
            kept |= set() if has_changing_input else {target.folder}
        changing |= {target.folder} if has_changing_input else set()
    return kept


def _kept_bytes(status: ArtifactStatus, bytes_by_folder: Mapping[Path, float]) -> float:
    """Estimate the bytes of work that a build keeps for the next recipe version.

    The estimate for a source's first corpus includes the corpora derived from that corpus; their own estimates are 0.
    """
    target = status.target
    has_upstream_rows = any(upstream.kind.row_store_class is not None for upstream in target.upstream)
    if target.kind.row_store_class is None or has_upstream_rows or status.matches_recipe:
        return 0
    return _KEPT_BYTES_PER_TEXT_BYTE * bytes_by_folder[target.folder] / STORED_BYTES_PER_TEXT_BYTE


def _set_packed_bytes(plan: ArtifactPlan, mixture: MixtureEstimate | None) -> ArtifactPlan:
    """Add an estimate of `disk_bytes` to the plan if the recipe sets no row count."""
    if mixture is None or "tokens" in plan.figures:
        return plan
    row_bytes = TOKEN_BYTES * plan.status.target.recipe["pack"]["seq_len"]
    return replace(plan, disk_bytes=row_bytes * max(mixture.possible_rows, 1))


def _plan_target(
    status: ArtifactStatus, run: Run, bytes_to_fetch: dict[str, int], bytes_by_folder: dict[Path, float]
) -> ArtifactPlan:
    """Plan one artifact, after all artifacts upstream of it.

    Add the download size of each file to `bytes_to_fetch`, and the size of the stored text to `bytes_by_folder`.
    """
    target = status.target
    for upstream in filter(lambda upstream: upstream.is_external, target.upstream):
        if (manifest := read_manifest(run.root / upstream.folder)) is None:
            raise UsageError("no artifact is sealed here", upstream.folder, "build it first, or correct the recipe")
        inputs = manifest.identity.inputs
        bytes_by_folder[upstream.folder] = _stored_bytes(upstream, inputs, bytes_by_folder, manifest.storage)
    if status.matches_recipe and (manifest := status.manifest):
        inputs = manifest.identity.inputs
        bytes_by_folder[target.folder] = _stored_bytes(target, inputs, bytes_by_folder, manifest.storage)
        return ArtifactPlan(status)
    planner = target.kind.planner
    listing = planner.list_files(target, run)
    figures = planner.figures(target, listing.inputs)
    if listing.bytes_to_fetch is not None:
        more = {name: count for name, count in listing.bytes_to_fetch.items() if name not in bytes_to_fetch}
        bytes_to_fetch |= more
        figures["bytes_fetched"] = Forecast(sum(more.values()), "excluding cached bytes")
    listing_bytes = len(json.dumps(listing.inputs, indent=1))
    bytes_by_folder[target.folder] = _stored_bytes(target, listing.inputs, bytes_by_folder)
    settings = run.for_artifact(target.partition, target.is_intermediate).settings
    size_ratio = _LEVEL_1_BYTES_PER_LEVEL_3_BYTE if settings.zstd_level == INTERMEDIATE_ZSTD_LEVEL else 1
    disk_bytes = _disk_bytes(target, bytes_by_folder[target.folder], size_ratio, figures)
    return ArtifactPlan(status, figures, HubSample.from_inputs(listing.inputs), listing_bytes, disk_bytes)


def _stored_bytes(
    target: Target,
    inputs: Sequence[Mapping[str, Any]],
    bytes_by_folder: Mapping[Path, float],
    files: Sequence[StoredFile] = (),
) -> float:
    """Return the total size of `files`; without files, estimate the artifact's size.

    The estimate assumes that the artifact stores all text that it reads, compressed at zstd level 3.
    """
    by_kind = Counter[str]()  # only one kind of input has the text
    for upstream in target.upstream:
        by_kind[upstream.kind.name] += round(bytes_by_folder.get(upstream.folder, 0))
    selected = [entry for entry in inputs if entry.get("row_groups")] or inputs
    read = sum(
        input_figures([entry]).get("bytes_read", 0)
        * (1 if entry["name"].endswith(_COMPRESSED_SUFFIXES) else STORED_BYTES_PER_TEXT_BYTE)
        for entry in selected
    )
    return sum(file.bytes for file in files) or max(read, *by_kind.values(), 0)


def _disk_bytes(target: Target, stored_bytes: float, size_ratio: float, figures: Mapping[str, Forecast]) -> int | None:
    if target.kind.row_store_class is None:
        return None
    if target.kind.keeps_all_documents(target.recipe):
        return 0
    if target.kind.formats & {"jsonl", "parquet"}:
        return round(stored_bytes * size_ratio)
    if "tokens" in figures:
        return round(TOKEN_BYTES * figures["tokens"].value)
    return round(TOKEN_BYTES_PER_STORED_BYTE * stored_bytes)


def limit_warnings(plan: RecipePlan) -> Iterator[str]:
    """Yield a warning for each hard limit that an artifact of the plan will exceed.

    Numbers are lower bounds: sources without row counts add 0, and compressed files count with their compressed size.
    """
    documents, bytes_read = Counter[Path](), Counter[Path]()  # by folder
    for entry in plan.artifacts:
        target, manifest = entry.status.target, entry.status.manifest if entry.status.matches_recipe else None
        planned = {name: forecast.value for name, forecast in entry.figures.items()}
        figures = planned if manifest is None else real_figures(manifest)
        for known, names in ((documents, ("documents", "rows")), (bytes_read, ("bytes_read",))):
            inherited = sum(known[upstream.folder] for upstream in target.upstream)
            known[target.folder] = round(next((value for name in names if (value := figures.get(name))), inherited))
        if manifest is not None:
            continue
        shard_bytes = target.recipe.get("shard_text_bytes") if target.kind.row_store_class is not None else None
        shards = bytes_read[target.folder] // shard_bytes if shard_bytes else 0
        compared = documents[target.folder] if target.stage == DEDUP_STAGE else 0
        for count, noun, limit, fix in (
            (compared, "documents", MAX_DOCUMENTS, "deduplicate parts of it in recipes of their own"),
            (shards, "shards", MAX_SHARDS, "increase `shard_text_bytes`, or split the source"),
            (entry.listing_bytes, "bytes in its manifest", MANIFEST_FORMAT.max_bytes, "split the source"),
        ):
            if count > limit:
                yield f"{target.role}: needs at least {count:,} {noun}, the limit is {limit:,}; {fix}"
