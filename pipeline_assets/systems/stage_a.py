"""Stage A: sources → filtered → deduplicated → decontaminated → packed.

Compiled kernels are imported where they are used, because most commands build nothing.
"""

import datetime
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic

from pipeline_assets.build.builders import Job, file_builder, input_builder
from pipeline_assets.build.checks import FILES_CHECK, LEDGER_CHECK, artifact_check, context_check
from pipeline_assets.build.pins import source_pin
from pipeline_assets.build.pins.raw_pin import RAW_STAGE, preview_inputs
from pipeline_assets.build.recipe import Recipe
from pipeline_assets.build.rows.derived import DecontaminatedRows, DeduplicatedRows
from pipeline_assets.build.rows.documents import SourceRows
from pipeline_assets.build.rows.token_rows import PackedRows
from pipeline_assets.build.target import Kind, Planner, Target
from pipeline_assets.corpus.corpus_report import REPORT_STAGE, SourceArtifacts, preview_report, write_corpus_report
from pipeline_assets.corpus.corpus_shard import corpus_shards
from pipeline_assets.corpus.decontamination.recipe import DECONTAMINATION_STAGE, DecontaminationSection
from pipeline_assets.corpus.dedup.decision import DEDUP_STAGE, SIGNATURES_STAGE
from pipeline_assets.corpus.dedup.recipe import DedupRecipe
from pipeline_assets.corpus.dedup.removal_caps import RemovalCaps, check_caps
from pipeline_assets.corpus.formats.memmap import META_FILE
from pipeline_assets.corpus.licences import licence_table, require_tag
from pipeline_assets.corpus.normalize import converted, misnamed_columns
from pipeline_assets.corpus.normalize import sources as source_kinds
from pipeline_assets.corpus.normalize.files import convert_files
from pipeline_assets.corpus.normalize.stage import NORMALIZE_STAGE
from pipeline_assets.corpus.normalize.wikipedia import pages_add_up
from pipeline_assets.corpus.packing import recipe as packing
from pipeline_assets.corpus.packing.empty_sources import find_deduplicated_corpus, raise_if_source_empty
from pipeline_assets.corpus.packing.summary import preview_packed, shares_reached
from pipeline_assets.corpus.pages import REPORT_HTML
from pipeline_assets.corpus.readers.column_recipe import LicensedColumns
from pipeline_assets.corpus.readers.listing import Forecast
from pipeline_assets.corpus.readers.source_folder import input_folder
from pipeline_assets.corpus.snapshot.convert_pinned import convert_hub_rows
from pipeline_assets.corpus.tokens.loss_limit import LossLimit
from pipeline_assets.corpus.tokens.o200k_harmony import HarmonyRecipe
from pipeline_assets.corpus.weights import add_missing_weight, check_recipe_weights
from pipeline_assets.spine.artifact import copy_manifest, open_artifact
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.command_option import Option
from pipeline_assets.spine.key_types import SHARD_TEXT_BYTES
from pipeline_assets.spine.manifest import MANIFEST_FILE
from pipeline_assets.spine.recipe_validation import RecipeProblem
from pipeline_assets.spine.recipe_yaml import sections_at
from pipeline_assets.systems import checks, early_checks
from pipeline_assets.systems.evaluation import EVALUATION, decontaminate, evaluation_targets
from pipeline_assets.systems.filtered import FILTERED, check_filters, filter_arguments

Strings = Annotated[tuple[str, ...], pydantic.Field(strict=False)]


class StageARecipe(Recipe):
    """Recipe of stage A, with a section for each source and for each joint step.

    Attributes:
        refuse_licences: Licence tags whose documents are dropped.
        tokenizer: Tokenizer that counts tokens for the report (in a sample of a large source); None omits the counts.
        shard_text_bytes: Minimum text bytes of a shard; a shard ends with the piece of input that reaches this size.
        dedup: Deduplication over all filtered sources; None omits it.
        seen: Signature stores of earlier corpora, as folders in the data root; repeats of their documents are dropped.
        max_removed: Largest share of a source that deduplication may drop, enforced by a check; changes no output byte.
        decontamination: Removal of evaluation items after deduplication; None omits it.
    """

    system: Literal["stage_a"]
    outputs: source_kinds.OutputsSection | None = None
    refuse_licences: Annotated[Strings, Option("Licence tag to drop; repeatable.", "refuse-license")] = ()
    tokenizer: HarmonyRecipe | None = HarmonyRecipe()
    shard_text_bytes: int = pydantic.Field(SHARD_TEXT_BYTES, gt=0)
    sources: Annotated[tuple[source_kinds.Source, ...], pydantic.Field(strict=False, min_length=1)]
    dedup: DedupRecipe | None = None
    seen: Strings = ()
    max_removed: RemovalCaps | None = None
    decontamination: DecontaminationSection | None = None
    pack: packing.PackSection | None = None

    @pydantic.field_validator("refuse_licences")
    @classmethod
    def _sort_tags(cls, tags: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(sorted(map(require_tag, tags)))

    @classmethod
    def cross_checks(cls, values: Mapping[str, Any], root: Path | None) -> Iterator[RecipeProblem]:
        sources = [str(section["source"]) for _, section in sections_at(values, "sources") if "source" in section]
        yield from source_kinds.check_sources(values)
        yield from check_caps(values, sources)
        yield from check_recipe_weights(values, ("pack", "weights"), sources, require_all=True)
        if root is not None:
            yield from source_kinds.check_folders(values, root)
        yield from source_kinds.check_outputs(values, {kind.short_name for kind in KINDS if kind is not NORMALIZED})

    @pydantic.model_validator(mode="before")
    @classmethod
    def _add_missing_weight(cls, values: Mapping[str, Any]) -> Any:
        names = [str(section.get("source")) for _, section in sections_at(values, "sources")]
        return add_missing_weight(values, ("pack", "weights"), names)

    def warnings(self) -> Iterator[str]:
        yield from super().warnings()
        if self.outputs is not None and (last := self.outputs.up_to):
            filters = any(source.filters != type(source.filters)() for source in self.sources)
            named = vars(self) | {"outputs.signatures": self.outputs.signatures, "sources.filters": filters}
            names = ["refuse_licences", "sources.filters"] if last == "normalized" else []
            names += ["dedup", "seen", "max_removed", "decontamination", "pack", "outputs.signatures"]
            for name in filter(named.get, names):
                yield f"`{name}` is ignored, because `outputs.up_to` is {last}"

    def final_targets(self) -> list[Target]:
        up_to = self.outputs.up_to if self.outputs else None
        if up_to == "normalized":
            return [*map(self._normalized_target, self.sources)]
        corpora = [*map(self._filtered_target, self.sources)]
        if up_to == "filtered":
            return corpora
        targets, names = [*corpora], dict[str, Any](sources=[source.source for source in self.sources])
        if self.dedup is not None:
            upstream = [*corpora, *(external_signatures(Path(folder)) for folder in self.seen)]
            content = {"dedup": self.dedup.content()} | names
            corpora = [self._joint_target(DEDUPLICATED, content, upstream, count_limit=self.max_removed)]
            targets += corpora
            if self.outputs is not None and self.outputs.signatures:
                targets.append(self._joint_target(SIGNATURES, {"signatures": self.dedup.signature_keys()}, corpora))
        if self.decontamination is not None:
            evaluation = evaluation_targets(self.decontamination, self.name, self._step_folder("evaluation"))
            content = self.decontamination.output_content() | names
            corpora = [self._joint_target(DECONTAMINATED, content, [*corpora, *evaluation])]
            targets += corpora
        if self.pack is not None:
            targets.append(packed_target(self.pack, self.name, self._step_folder("packed") / self.name, corpora))
        kinds = {kind.name for kind in (FILTERED, DEDUPLICATED, DECONTAMINATED, PACKED)}
        reported = [target for target in targets if target.kind.name in kinds]
        content = {**names, "licences": licence_table().digest()}
        tokenizer = None if self.tokenizer is None else self.tokenizer.content()
        return [*targets, self._joint_target(REPORT, content, reported, tokenizer=tokenizer)]

    def _raw_target(self, source: source_kinds.HubSource | source_kinds.FileSource) -> Target:
        content, folder = source_pin.pinned_content(source, self.shard_text_bytes)
        return self._source_target(RAW, source, content=content, external_inputs=folder)

    def _normalized_target(self, source: source_kinds.Source) -> Target:
        if isinstance(source, source_kinds.NormalizedSource):
            return self._source_target(NORMALIZED, source, content={}, is_external=True)
        content = source.output_content(self.shard_text_bytes)
        is_output = self.outputs is not None and self.outputs.normalized_dir is not None
        columns = getattr(source, "columns", None)
        if isinstance(columns, LicensedColumns) and columns.license is not None:
            content["licences"] = licence_table().fingerprint
        return self._source_target(NORMALIZED, source, self._raw_target(source), content=content, is_output=is_output)

    def _filtered_target(self, source: source_kinds.Source) -> Target:
        arguments = filter_arguments(source.filters, self.refuse_licences)
        return self._source_target(FILTERED, source, self._normalized_target(source), **arguments)

    def check_prerequisites(self, root: Path, targets: Sequence[Target] | None = None) -> None:
        """Raise InputError if a file or library that a later step needs is unusable."""
        targets, near = self.targets() if targets is None else targets, self.dedup.near if self.dedup else None
        early_checks.check_inputs(targets, root, self.dedup)
        early_checks.check_packages(self.sources, targets, root)
        check_filters(self.sources, targets, root)
        early_checks.check_faiss_installed(near, "dedup", targets, root)
        early_checks.check_evaluation_sets(self.decontamination, targets, root)
        if self.pack is not None and early_checks.is_to_be_built(targets, packing.PACK_STAGE, root):
            self.pack.check_tokenizer(root)

    def revisions(self) -> list[tuple[str, str]]:
        return [(hub.dataset, hub.revision) for hub in self.sources if isinstance(hub, source_kinds.HubSource)]

    def _step_folder(self, step: str) -> Path:
        configured = self.outputs.normalized_dir if self.outputs else None
        normalized = Path(configured) if configured else Path("stage_a", self.name, NORMALIZED.short_name)
        return normalized if step == NORMALIZED.short_name else normalized.parent / step

    def _source_target(self, kind: Kind, source: source_kinds.Source, *upstream: Target, **arguments: Any) -> Target:
        folder = self._step_folder(kind.short_name) / source.source
        return kind.target(self.name, upstream=upstream, partition=source.source, folder=folder, **arguments)

    def _joint_target(self, kind: Kind, content: dict[str, Any], upstream: Sequence[Target], **options: Any) -> Target:
        folder = self._step_folder(kind.short_name) / self.name
        return kind.target(self.name, content, upstream, folder=folder, **options)


RAW = Kind(
    "stage_a/raw",
    RAW_STAGE,
    input_builder(source_pin.pin_inputs),
    """Files of a source, pinned by their hashes: of a hub dataset at the recipe's commit, or of a local folder.

    Files of a hub or an object store are fetched into a cache; files of a folder are not copied.""",
    formats=frozenset({"huggingface", "file"}),
    external_inputs=input_folder,
    preview=preview_inputs,
    planner=Planner(source_pin.list_inputs),
    checks=(FILES_CHECK,),
)


def normalise(job: Job) -> BuildResult:
    """Convert the pinned files of a source into Documents."""
    source, shard_text_bytes = source_kinds.parse_source(job.recipe)
    [listed], [raw], run = job.target.upstream, job.upstream, job.run
    if isinstance(source, source_kinds.HubSource):
        recipe, hub = source.snapshot_recipe(shard_text_bytes), run.require_hub("this source")
        converted_rows = convert_hub_rows(job.staging, raw, hub, recipe, source.columns, run.settings)
    else:
        folder = source_pin.restore_source_folder(listed, raw.manifest, run)
        converted_rows = convert_files(job.staging, folder, raw.manifest, source, shard_text_bytes, run.settings)
    limit = source.max_reject_fraction
    return converted.finish_source(job.staging, converted_rows, limit, run.settings, removals=job.removals)


def manifest_copy_path(folder: Path) -> Path:
    """Return the path for a copy of an artifact's manifest, next to its folder."""
    return folder.with_name(f"{folder.name}.{MANIFEST_FILE}")


NORMALIZED = Kind(
    "stage_a/normalized",
    NORMALIZE_STAGE,
    file_builder(normalise),
    """Documents of a source in one schema: text, origin, licence and the evidence for the licence.

    Bad rows are stored as rejects with their reasons; every doc_id is unique.""",
    formats=frozenset({"jsonl"}),
    row_store_class=SourceRows,
    after_build=lambda artifact: copy_manifest(artifact, manifest_copy_path(artifact.folder)),
    applies_removals=True,
    planner=Planner(source_pin.list_missing_inputs),
    checks=(
        FILES_CHECK,
        LEDGER_CHECK,
        artifact_check(pages_add_up),
        artifact_check(misnamed_columns.named_columns_have_values, is_blocking=False),
        artifact_check(checks.no_document_is_outsized, is_blocking=False),
    ),
)


def deduplicate(job: Job, *kinds: Kind) -> BuildResult:
    """Deduplicate upstream corpora of `kinds`, also against upstream signature stores."""
    from pipeline_assets.corpus.dedup.dedup_corpus import dedup_corpus

    recipe = DedupRecipe.from_content(job.recipe["dedup"])
    sources, seen = job.upstream_by_name(*kinds), job.upstream_by_name(SIGNATURES)
    return dedup_corpus(job.staging, sources, recipe, job.run.settings, seen)


DEDUPLICATED = Kind(
    "stage_a/deduplicated",
    DEDUP_STAGE,
    file_builder(lambda job: deduplicate(job, NORMALIZED, FILTERED)),
    """Documents of all sources without duplicates, with a decision per dropped document and all near-duplicate pairs.

    Requires that every source of the recipe is filtered.""",
    formats=frozenset({"jsonl", "parquet"}),
    row_store_class=DeduplicatedRows,
    checks=(FILES_CHECK, LEDGER_CHECK, context_check(checks.removals_within_caps)),
)


def _sign(job: Job) -> BuildResult:
    from pipeline_assets.corpus.dedup.sign_corpus import sign_corpus

    [deduplicated] = job.upstream
    recipe = DedupRecipe.from_content(deduplicated.manifest.identity.recipe["dedup"])
    return sign_corpus(job.staging, deduplicated, recipe, job.run.settings)


def external_signatures(folder: Path) -> Target:
    """Return the target of an existing signature store, whichever recipe built it."""
    name = folder.name
    return SIGNATURES.target(name, {}, partition=name, folder=folder, name=name, is_external=True, copy_name=None)


SIGNATURES = Kind(
    "stage_a/signatures",
    SIGNATURES_STAGE,
    file_builder(_sign),
    "Signatures of the kept documents, against which later corpora are deduplicated: hashes, bands and shingle sets.",
    formats=frozenset({"parquet"}),
    checks=(FILES_CHECK,),
)


DECONTAMINATED = Kind(
    "stage_a/decontaminated",
    DECONTAMINATION_STAGE,
    file_builder(lambda job: decontaminate(job, NORMALIZED, FILTERED, DEDUPLICATED)),
    """Documents without items of the evaluation sets; each match is listed with its item and position.

    Requires all filtered sources, deduplicated if the recipe has `dedup`, and every evaluation set.""",
    formats=frozenset({"jsonl"}),
    row_store_class=DecontaminatedRows,
    planner=Planner(source_pin.list_missing_inputs),
    checks=(FILES_CHECK, LEDGER_CHECK),
)


def packed_target(section: packing.PackSection, recipe_name: str, folder: Path, upstream: Sequence[Target]) -> Target:
    """Return the target of a packed set that draws from all sources of `upstream`."""
    path, content = section.tokenizer_path, {"pack": section.output_content()}
    external = None if path is None else packing.TokenizerPath(Path(path))
    tokenizer, limit = section.tokenizer.content(), LossLimit(section.max_unknown_fraction)
    return PACKED.target(
        recipe_name, content, upstream, folder=folder, tokenizer=tokenizer, external_inputs=external, count_limit=limit
    )


def _pack(job: Job) -> BuildResult:
    from pipeline_assets.corpus.packing.pack_corpus import pack_corpus
    from pipeline_assets.corpus.tokens.families import TokenizerFile

    corpora, root = job.upstream_by_name(), job.run.root
    recipe = packing.PackRecipe.from_content({**job.recipe["pack"], "tokenizer": job.target.tokenizer})
    raise_if_source_empty(corpora, find_deduplicated_corpus(job.upstream[0], root), recipe.weights or ())
    path = job.target.external_inputs.path if isinstance(job.target.external_inputs, packing.TokenizerPath) else None
    now, file = datetime.datetime.now(datetime.UTC), job.run.settings.vocabulary if path is None else root / path
    tokenizer = TokenizerFile(recipe.tokenizer, file)
    content = pack_corpus(job.staging, corpus_shards(corpora), recipe, tokenizer, job.run.settings, now)
    used = {} if path is None else {packing.TOKENIZER_FILE_KEY: str(path)}
    return replace(content, provenance={**content.provenance, **used})


def _packed_tokens(recipe: Mapping[str, Any]) -> Forecast | None:
    rows, seq_len = recipe["pack"]["num_seqs"], recipe["pack"]["seq_len"]
    return None if rows is None else Forecast(rows * seq_len, "`pack.num_seqs`")


PACKED = Kind(
    "stage_a/packed",
    packing.PACK_STAGE,
    file_builder(_pack),
    """Token rows of equal length, drawn from all sources by weight, with an index of the origin of each token.

    Requires the corpora of all sources.""",
    formats=frozenset({"numpy"}),
    row_store_class=PackedRows,
    preview=preview_packed,
    planner=Planner(plan_tokens=_packed_tokens),
    external_inputs=packing.tokenizer_path,
    labels=(META_FILE,),
    checks=(
        FILES_CHECK,
        LEDGER_CHECK,
        context_check(checks.unknown_tokens_within_limit),
        artifact_check(shares_reached, is_blocking=False),
        context_check(checks.draws_are_deduplicated, is_blocking=False),
    ),
)


def _report(job: Job) -> BuildResult:
    upstream, per_source = job.target.upstream, (NORMALIZED.name, FILTERED.name)
    sources = [_source_artifacts(target, job.run.root) for target in upstream if target.kind.name in per_source]
    by_kind = {target.kind.name: artifact for target, artifact in zip(upstream, job.upstream, strict=True)}
    joint = (by_kind.get(kind.name) for kind in (DEDUPLICATED, DECONTAMINATED, PACKED))
    tokenizer = None if job.target.tokenizer is None else HarmonyRecipe.from_content(job.target.tokenizer)
    return write_corpus_report(job.staging, sources, tokenizer, job.run.settings, *joint)


def _source_artifacts(source_target: Target, root: Path) -> SourceArtifacts:
    name, artifact = source_target.partition or source_target.name, open_artifact(root / source_target.folder)
    if source_target.kind.name == NORMALIZED.name:
        return SourceArtifacts(name, artifact, None)
    return SourceArtifacts(name, open_artifact(root / source_target.upstream[0].folder), artifact)


REPORT = Kind(
    "stage_a/report",
    REPORT_STAGE,
    file_builder(_report),
    """Report on all sources: documents and tokens by domain and licence, fates of rows, packed shares, attributions.

    Requires all other artifacts of the recipe.""",
    labels=(REPORT_HTML,),
    preview=preview_report,
    checks=(FILES_CHECK,),
)
RECIPE = StageARecipe
KINDS = (RAW, NORMALIZED, FILTERED, DEDUPLICATED, SIGNATURES, EVALUATION, DECONTAMINATED, PACKED, REPORT)
