"""Stage A: sources of five kinds → one schema → filtered → deduplicated → decontaminated → packed, and a report."""

import datetime
import functools
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

import pydantic

from pipeline_assets.corpus.corpus_report import REPORT_STAGE, SourceSteps, report_on
from pipeline_assets.corpus.decontamination.evaluation_set import EvaluationSet
from pipeline_assets.corpus.decontamination.evidence import DECONTAMINATION_STAGE
from pipeline_assets.corpus.decontamination.recipe import (
    EVALUATION_STAGE,
    DecontaminationRecipe,
    DecontaminationSection,
    EvaluationRecipe,
)
from pipeline_assets.corpus.dedup.decision import DEDUP_STAGE, SIGNATURES_STAGE
from pipeline_assets.corpus.dedup.recipe import DedupRecipe, DedupSettings, RemovalCaps, share_of
from pipeline_assets.corpus.filters.dropped import FILTER_STAGE
from pipeline_assets.corpus.filters.recipe import FilterRecipe
from pipeline_assets.corpus.formats.memmap import META
from pipeline_assets.corpus.licences import licence_table
from pipeline_assets.corpus.normalize.converted import (
    NORMALIZE_STAGE,
    Converted,
    NormalizeSettings,
    finish,
    named_columns_have_values,
    write_group_manifest,
)
from pipeline_assets.corpus.normalize.files import convert_local, convert_wikipedia, pages_add_up
from pipeline_assets.corpus.normalize.sources import (
    FileSource,
    HubSource,
    LocalSource,
    NormalizedSource,
    Source,
    StackExchangeSource,
    WikipediaSource,
    source_of,
)
from pipeline_assets.corpus.packing.recipe import (
    PACK_STAGE,
    TOKENIZER_FILE,
    PackRecipe,
    PackSection,
    TokenizerPath,
    refuse_beyond_text,
    refuse_emptied,
    tokenizer_path,
)
from pipeline_assets.corpus.packing.summary import shares_reached
from pipeline_assets.corpus.planning.figures import Limit, Listing
from pipeline_assets.corpus.preview import preview_inputs, preview_packed, preview_report
from pipeline_assets.corpus.readers.raw_pin import RAW_STAGE, pin_of_folder
from pipeline_assets.corpus.readers.source_folder import SourceFile, SourceFolder, files_of, folder_of
from pipeline_assets.corpus.readers.stackexchange.archive import check_readable
from pipeline_assets.corpus.recipes.kind import FILES, LEDGER, Job, Kind, check, check_beside, seals_files, seals_inputs
from pipeline_assets.corpus.recipes.run import Run
from pipeline_assets.corpus.rows.documents import DecontaminatedRows, DeduplicatedRows, FilteredRows, SourceRows
from pipeline_assets.corpus.rows.packed import PackedRows
from pipeline_assets.corpus.snapshot.convert import convert_hub_rows
from pipeline_assets.corpus.snapshot.plan import list_snapshot, raw_of_hub
from pipeline_assets.corpus.spine.artifact import Artifact, open_artifact, sealed_manifest
from pipeline_assets.corpus.spine.audit import Verdict
from pipeline_assets.corpus.spine.building import Building
from pipeline_assets.corpus.spine.errors import InputError, UsageError, key
from pipeline_assets.corpus.spine.lineage import Lineage
from pipeline_assets.corpus.spine.manifest import FILE_NAME
from pipeline_assets.corpus.spine.recipe import Option, Recipe, RecipePart
from pipeline_assets.corpus.spine.target import Content, Target
from pipeline_assets.corpus.tokens.o200k_harmony import TokenizerRecipe

Step = Literal["normalized", "filtered"]
Made = TypeVar("Made", Target, Target | None)
Tags = Annotated[tuple[str, ...], pydantic.Field(strict=False)]


class Outputs(RecipePart):
    """Which artifacts are asked for, and where they lie, below the data root; changes no byte.

    Attributes:
        normalized_dir: a folder for each source; a source of kind `normalized` is found there. What else is made of
            sources lies beside it: raw, filtered, deduplicated, signatures, evaluation, decontaminated, packed,
            report.
        up_to: the last step that is asked for; None for all, up to the report.
        signatures: whether a signature store of what stays is made, for corpora that come later.
    """

    normalized_dir: str
    up_to: Step | None = None
    signatures: bool = False

    @pydantic.field_validator("normalized_dir")
    @classmethod
    def _is_an_area(cls, folder: str) -> str:
        path = Path(folder)
        if path.parts[:1] != ("stage_a",) or ".." in path.parts or len(path.parts) < 2:
            raise ValueError("it lies below the data root, in stage_a/: write stage_a/NAME/normalized")
        if path.name in {kind.step for kind in KINDS if kind is not NORMALIZED}:
            raise ValueError(f"{path.name} has the place of something else: write {path.parent}/normalized")
        return folder


def _once(make: Callable[["StageARecipe", Source], Made]) -> Callable[["StageARecipe", Source], Made]:
    """A target of a source, made once for a recipe: all that comes after asks for it again."""

    @functools.wraps(make)
    def made(recipe: "StageARecipe", source: Source) -> Made:
        known, place = recipe._made, (make.__name__, source.source)
        if place not in known:
            known[place] = make(recipe, source)
        return known[place]  # type: ignore[no-any-return]

    return made


class StageARecipe(Recipe):
    """Everything that decides the bytes of stage A's sources, a section for each.

    Attributes:
        refuse_licences: tags of which no document is kept.
        tokenizer: what the report counts tokens with.
        shard_text_bytes: a shard is closed by the piece of input that brings it to this size.
        sources: each by its name.
        dedup: over all of them, as they are filtered; None leaves it out.
        seen: signature stores of earlier corpora, folders below the data root; what repeats their documents goes.
        max_removed: how much of a source may go in that; changes no byte.
        decontamination: of what is left of them then; None leaves it out.
        pack: of what is left in the end; None leaves it out.
    """

    system: Literal["stage_a"]
    outputs: Outputs | None = None
    refuse_licences: Annotated[
        Tags, Option("Tag of which none is kept; repeatable.", "refuse-license", default=None)
    ] = ()
    tokenizer: TokenizerRecipe
    shard_text_bytes: int = pydantic.Field(gt=0)
    sources: Annotated[tuple[Source, ...], pydantic.Field(strict=False, min_length=1)]
    dedup: DedupRecipe | None = None
    seen: Tags = ()
    max_removed: RemovalCaps | None = None
    decontamination: DecontaminationSection | None = None
    pack: PackSection | None = None
    _made: dict[tuple[str, str], Any] = pydantic.PrivateAttr(default_factory=dict)

    def __copy__(self) -> Self:
        copied = super().__copy__()
        copied._made = {}
        return copied

    @pydantic.field_validator("refuse_licences")
    @classmethod
    def _are_tags(cls, tags: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(sorted({_known_tag(tag) for tag in tags}))

    @pydantic.model_validator(mode="after")
    def _can_be_told_apart(self) -> Self:
        repeated = [name for name, count in Counter(source.source for source in self.sources).items() if count > 1]
        if repeated:
            raise ValueError(f"two sources are called {repeated[0]}: give each a name of its own")
        for source in self.sources:
            if source.source.endswith(f".{FILE_NAME}"):
                what = f"a source is called {source.source}, as is the manifest beside the folder of another"
                raise ValueError(f"{what}: give it another name")
        return self

    @pydantic.model_validator(mode="after")
    def _refuses_no_whole_source(self) -> Self:
        for source in self.sources:
            tag = source.licence()[0] if isinstance(source, WikipediaSource) else getattr(source, "license_tag", None)
            if tag is not None and _known_tag(tag, f"source {source.source}: ") in self.refuse_licences:
                what = f"source {source.source} is under {tag}, which {key('refuse_licences')} refuses"
                raise ValueError(f"{what}: leave one of them out")
        return self

    @pydantic.model_validator(mode="after")
    def _caps_what_is_removed(self) -> Self:
        if self.max_removed is not None:
            unknown = sorted(self.max_removed.sources.keys() - {source.source for source in self.sources})
            if self.dedup is None or unknown:
                what = f"max_removed names {unknown[0]}, which is no source" if unknown else "max_removed without dedup"
                raise ValueError(f"{what}: correct it, or leave it out")
        return self

    @pydantic.model_validator(mode="after")
    def _has_seen_what_it_compares(self) -> Self:
        names = [Path(folder).name for folder in self.seen]
        repeated = next((name for name in names if names.count(name) > 1), None)
        if repeated is not None:
            raise ValueError(f"two stores in `seen` are called {repeated}: give one of them another name")
        asked = self.outputs is not None and self.outputs.signatures
        if self.dedup is None and (self.seen or asked):
            what = "seen" if self.seen else "outputs.signatures"
            raise ValueError(f"{what} without dedup: say how documents are compared, or leave it out")
        return self

    @pydantic.model_validator(mode="after")
    def _weighs_its_sources(self) -> Self:
        if self.pack is not None:
            names, weighed = {source.source for source in self.sources}, self.pack.weights.keys()
            for source in sorted(names ^ weighed):
                what = "has no weight" if source in names else "has a weight, and is no source"
                raise ValueError(f"pack.weights: {source} {what}")
        return self

    @_once
    def raw(self, source: Source) -> Target | None:
        """The files that a source is made of; None for one that is normalised already."""
        if isinstance(source, NormalizedSource):
            return None
        if isinstance(source, HubSource):
            return self._of_source(RAW, source, source.rows_content(self.shard_text_bytes))
        content = {"kind": source.kind, "files": list(source.files)}
        return self._of_source(RAW, source, content, outside=SourceFolder(Path(source.path), source.files))

    @_once
    def normalized(self, source: Source) -> Target:
        """The Documents of a source."""
        raw = self.raw(source)
        if raw is None:
            return self._of_source(NORMALIZED, source, {}, is_given=True)
        assert not isinstance(source, NormalizedSource)
        content = source.rows_content(self.shard_text_bytes)
        columns = source.columns if isinstance(source, HubSource | LocalSource) else None
        if columns is not None and columns.license is not None:
            content["licences"] = licence_table().fingerprint()
        return self._of_source(NORMALIZED, source, content, [raw])

    @_once
    def filtered(self, source: Source) -> Target:
        """Its Documents that are kept."""
        content = {"filters": source.filters.content(), "refuse_licences": list(self.refuse_licences)}
        return self._of_source(FILTERED, source, content, [self.normalized(source)])

    def deduplicated(self) -> Target | None:
        """Documents of all sources that are nobody's duplicate; None where the recipe doesn't ask for it."""
        if self.dedup is None:
            return None
        content = {"dedup": self.dedup.content(), "sources": [source.source for source in self.sources]}
        upstream = [*map(self.filtered, self.sources), *(seen_store(Path(folder)) for folder in self.seen)]
        return self._of_all(DEDUPLICATED, content, upstream, demand=self.max_removed)

    def signatures(self) -> Target | None:
        """What later corpora are compared by to the documents that stay; None where the recipe doesn't ask for it."""
        deduplicated = self.deduplicated()
        if deduplicated is None or self.dedup is None or self.outputs is None or not self.outputs.signatures:
            return None
        return self._of_all(SIGNATURES, {"signatures": self.dedup.signatures()}, [deduplicated])

    def evaluation(self) -> Sequence[Target]:
        """The files of each evaluation set; none where the recipe doesn't ask for decontamination."""
        if self.decontamination is None:
            return ()
        return evaluation_targets(self.decontamination, self.name, self._folder() / "evaluation")

    def decontaminated(self) -> Target | None:
        """Documents of all sources, deduplicated if they are, without items of evaluation sets; None likewise."""
        if self.decontamination is None:
            return None
        content = self.decontamination.rows_content() | {"sources": [source.source for source in self.sources]}
        return self._of_all(DECONTAMINATED, content, [*self._last(self.deduplicated()), *self.evaluation()])

    def packed(self) -> Target | None:
        """Rows of tokens of what is left in the end; None where the recipe doesn't ask for it."""
        if self.pack is None:
            return None
        corpora = self._last(self.decontaminated() or self.deduplicated())
        return packed_target(self.pack, self.name, self._folder() / "packed" / self.name, corpora)

    def report(self) -> Target:
        """What all sources hold, and what became of their rows."""
        of_all = (self.deduplicated(), self.decontaminated(), self.packed())
        upstream = [*map(self.filtered, self.sources), *(target for target in of_all if target is not None)]
        content = {"sources": [source.source for source in self.sources]}
        return self._of_all(REPORT, content, upstream, tokenizer=self.tokenizer.content())

    def goals(self) -> list[Target]:
        """What all else is made for."""
        match self.outputs.up_to if self.outputs else None:
            case "normalized":
                return [*map(self.normalized, self.sources)]
            case "filtered":
                return [*map(self.filtered, self.sources)]
        of_all = (self.deduplicated(), self.signatures(), self.decontaminated(), self.packed(), self.report())
        return [*map(self.filtered, self.sources), *(target for target in of_all if target is not None)]

    def check_local_files(self, root: Path) -> None:
        """Folders are there, and the tokenizer that packs can be loaded. Errors as `Recipe.check_local_files`."""
        for target in self.targets():
            if isinstance(target.outside, SourceFolder) and not (root / target.folder).exists():
                folder = target.outside.below(root).path
                if not folder.is_dir():
                    whose = "source" if target.kind == RAW.name else "evaluation set"
                    raise UsageError("there is no such folder", folder, f"correct `path` of {whose} {target.partition}")
            if self.pack is not None and target.kind == PACKED.name and not target.is_sealed(root):
                self.pack.check_tokenizer(root)

    def source(self, name: str) -> Source | None:
        """The source of a name."""
        return next((source for source in self.sources if source.source == name), None)

    def revisions(self) -> list[tuple[str, str]]:
        """Dataset and commit of everything that is read from a hub."""
        return [(source.dataset, source.revision) for source in self.sources if isinstance(source, HubSource)]

    def _folder(self) -> Path:
        return Path(self.outputs.normalized_dir).parent if self.outputs else Path("stage_a", self.name)

    def _last(self, of_all: Target | None) -> list[Target]:
        """What is left of all sources: one corpus of them, or each as it is filtered."""
        return [of_all] if of_all is not None else [*map(self.filtered, self.sources)]

    def _of_source(
        self, kind: Kind, source: Source, content: dict[str, Any], upstream: Sequence[Target] = (), **more: Any
    ) -> Target:
        folder = self._folder() / kind.step
        if kind is NORMALIZED and self.outputs:
            folder = Path(self.outputs.normalized_dir)
        return kind.target(self.name, content, upstream, partition=source.source, folder=folder / source.source, **more)

    def _of_all(self, kind: Kind, content: dict[str, Any], upstream: Sequence[Target], **more: Any) -> Target:
        return kind.target(self.name, content, upstream, folder=self._folder() / kind.step / self.name, **more)


def _known_tag(tag: str, whose: str = "") -> str:
    known = licence_table().tag_of(tag)
    if known is None:
        raise ValueError(f"{whose}there is no licence {tag!r}: {licence_table().advice(tag)}")
    return known


def _list_inputs(target: Target, run: Run) -> Content:
    """What a source or an evaluation set is made of."""
    if target.outside is None:
        source, shard_text_bytes = source_of(target.recipe)
        assert isinstance(source, HubSource)
        hub = run.hub_for("this source")
        return raw_of_hub(hub, source.snapshot(shard_text_bytes), run.fetch_threads, run.engine.log_every_s)
    assert isinstance(target.outside, SourceFolder)
    if target.recipe.get("kind") == "stackexchange":
        for file in target.outside.below(run.root).files():
            check_readable(file.path)  # said before an hour of hashing, not after
    return pin_of_folder(target.outside, run.root, run.engine)


def _list_raw(target: Target, run: Run) -> Listing:
    if target.outside is None:
        source, shard_text_bytes = source_of(target.recipe)
        assert isinstance(source, HubSource)
        snapshot = source.snapshot(shard_text_bytes)
        return list_snapshot(run.hub_for("this source"), snapshot, run.fetch_threads, run.engine.log_every_s)
    assert isinstance(target.outside, SourceFolder)
    files = target.outside.below(run.root).files()
    return Listing(tuple({"name": file.name, "bytes": file.bytes} for file in files))


RAW = Kind(
    "stage_a/raw",
    RAW_STAGE,
    seals_inputs(_list_inputs),
    """The files of a source, each by its hash: of a hub dataset at the recipe's commit, or of a folder here.

    Nothing is copied; bytes of a hub are fetched into the cache.""",
    formats=frozenset({"huggingface", "file"}),
    outside=folder_of,
    preview=preview_inputs,
    listing=_list_raw,
)


def _normalise(job: Job) -> Content:
    source, shard_text_bytes = source_of(job.recipe)
    [listed], [raw], run = job.target.upstream, job.upstream, job.run
    own = NormalizeSettings(run.engine, run.zstd_level, run.fetch_threads)
    if isinstance(source, HubSource):
        recipe, hub = source.snapshot(shard_text_bytes), run.hub_for("this source")
        converted = convert_hub_rows(job.building, raw, hub, recipe, source.columns, licence_table(), own)
    else:
        assert isinstance(listed.outside, SourceFolder)
        folder = listed.outside.below(run.root)
        files = files_of(folder, raw.manifest)
        converted = _convert_files(job.building, files, folder, source, shard_text_bytes, own)
        files_of(folder, raw.manifest)  # else they were written to while they were read
    return finish(job.building, converted, source.max_reject_fraction, own)


def _convert_files(
    building: Building,
    files: Sequence[SourceFile],
    folder: SourceFolder,
    source: FileSource,
    shard_text_bytes: int,
    own: NormalizeSettings,
) -> Converted:
    licences = licence_table()
    match source:
        case WikipediaSource():
            return convert_wikipedia(building, files, source, shard_text_bytes, licences, own)
        case LocalSource():
            return convert_local(building, files, source, shard_text_bytes, licences, own)
        case StackExchangeSource():
            return _convert_site(building, files, folder, source, shard_text_bytes, own)


def _convert_site(
    building: Building,
    files: Sequence[SourceFile],
    folder: SourceFolder,
    source: StackExchangeSource,
    shard_text_bytes: int,
    own: NormalizeSettings,
) -> Converted:
    # Compiled code is loaded only where it is needed.
    from pipeline_assets.corpus.normalize.threads import convert_site
    from pipeline_assets.corpus.readers.stackexchange.thread_document import Site
    from pipeline_assets.corpus.readers.stackexchange.threads import ThreadRules

    if len(files) != 1:
        what = f"{len(files)} files match, and a source is one site: {', '.join(file.name for file in files[:3])}"
        raise UsageError(what, folder.path, "write a source for each of them")
    site = Site(source.host, files[0].name, source.source, source.domain)
    rules = ThreadRules(source.min_question_score, source.min_answer_score, source.min_answers)
    return convert_site(building, files[0], site, rules, shard_text_bytes, licence_table(), own)


NORMALIZED = Kind(
    "stage_a/normalized",
    NORMALIZE_STAGE,
    seals_files(_normalise),
    """Documents of a source, in one schema: text, where it came from, its licence and what that rests on.

    Bad rows are kept aside with their reasons; every doc_id is there once.""",
    formats=frozenset({"jsonl"}),
    rows=SourceRows,
    beside=write_group_manifest,
    checks=(FILES, LEDGER, check(pages_add_up), check(named_columns_have_values, is_blocking=False)),
)


def _filter(job: Job) -> Content:
    # Compiled code is loaded only where it is needed.
    from pipeline_assets.corpus.filters.filter_corpus import CorpusFilter, filter_corpus

    [normalized], refused = job.upstream, frozenset(job.recipe["refuse_licences"])
    rules = CorpusFilter(FilterRecipe.from_content(job.recipe["filters"]), refused)
    return filter_corpus(job.building, normalized, rules, job.run.engine, job.run.zstd_level)


FILTERED = Kind(
    "stage_a/filtered",
    FILTER_STAGE,
    seals_files(_filter),
    "The Documents of a source that its filters keep; of each other one, why it is dropped and what was measured.",
    formats=frozenset({"jsonl"}),
    rows=FilteredRows,
    checks=(FILES, LEDGER),
)


def _deduplicate(job: Job) -> Content:
    # Compiled code is loaded only where it is needed.
    from pipeline_assets.corpus.dedup.dedup_corpus import dedup_corpus

    recipe = DedupRecipe.from_content(job.recipe["dedup"])
    sources, seen = job.upstream_by_name(NORMALIZED, FILTERED), job.upstream_by_name(SIGNATURES)
    return dedup_corpus(job.building, sources, recipe, _dedup_settings(job.run), seen)


def _dedup_settings(run: Run) -> DedupSettings:
    share_bytes = share_of(run.memory_bytes, run.engine.workers)
    return DedupSettings(run.engine, run.zstd_level, share_bytes, run.faiss_gpu)


def removals_within_caps(deduplicated: Artifact, target: Target, root: Path) -> Verdict:
    """Of no source more documents went than the recipe's `max_removed` allows."""
    if target.demand is None:
        return Verdict(True, "the recipe has no caps", applies=False)
    return target.demand.judge(deduplicated.manifest)


DEDUPLICATED = Kind(
    "stage_a/deduplicated",
    DEDUP_STAGE,
    seals_files(_deduplicate),
    """Documents of all sources that are nobody's duplicate; a decision for each other one, and all pairs that are near.

    Waits until every source of the recipe is filtered.""",
    formats=frozenset({"jsonl", "parquet"}),
    rows=DeduplicatedRows,
    checks=(FILES, LEDGER, check_beside(removals_within_caps)),
)


def _sign(job: Job) -> Content:
    # Compiled code is loaded only where it is needed.
    from pipeline_assets.corpus.dedup.dedup_corpus import sign_corpus

    [deduplicated] = job.upstream
    recipe = DedupRecipe.from_content(deduplicated.manifest.identity.recipe["dedup"])
    return sign_corpus(job.building, deduplicated, recipe, _dedup_settings(job.run))


def seen_store(folder: Path) -> Target:
    """A signature store that lies there, made by whatever recipe."""
    name = folder.name
    return SIGNATURES.target(name, {}, partition=name, folder=folder, name=name, is_given=True, export_as=None)


SIGNATURES = Kind(
    "stage_a/signatures",
    SIGNATURES_STAGE,
    seals_files(_sign),
    "What later corpora are compared by to the documents that stay: hashes, bands and sets of shingles, no text.",
    formats=frozenset({"parquet"}),
)


def evaluation_targets(section: DecontaminationSection, name: str, folder: Path) -> tuple[Target, ...]:
    """The files of each evaluation set, each by its hash, in a folder of the set's name.

    Args:
        name: what the recipe is called.
    """
    return tuple(
        EVALUATION.target(
            name,
            {"files": list(one.files)},
            partition=one.name,
            folder=folder / one.name,
            outside=SourceFolder(Path(one.path), one.files),
        )
        for one in section.evaluation
    )


EVALUATION = Kind(
    "stage_a/evaluation",
    EVALUATION_STAGE,
    seals_inputs(_list_inputs),
    "The files of an evaluation set, each by its hash; nothing is copied.",
    formats=frozenset({"file"}),
    outside=folder_of,
    preview=preview_inputs,
    listing=_list_raw,
)


def _decontaminate(job: Job) -> Content:
    # Compiled code is loaded only where it is needed.
    from pipeline_assets.corpus.decontamination.decontaminate_corpus import decontaminate_corpus

    listed = [target for target in job.target.upstream if target.kind == EVALUATION.name]
    sections = map(EvaluationRecipe.from_content, job.recipe["evaluation"])
    evaluation = [_evaluation_set(section, one, job.run.root) for section, one in zip(sections, listed, strict=True)]
    sources = job.upstream_by_name(NORMALIZED, FILTERED, DEDUPLICATED)
    rules = DecontaminationRecipe.from_content(job.recipe["decontamination"])
    return decontaminate_corpus(job.building, sources, evaluation, rules, job.run.engine, job.run.zstd_level)


def _evaluation_set(section: EvaluationRecipe, source: Target, root: Path) -> EvaluationSet:
    assert isinstance(source.outside, SourceFolder)
    return EvaluationSet(section, open_artifact(root / source.folder).manifest, source.outside.below(root))


DECONTAMINATED = Kind(
    "stage_a/decontaminated",
    DECONTAMINATION_STAGE,
    seals_files(_decontaminate),
    """Documents of all sources without items of the evaluation sets; of each that had some, which, and where.

    Waits until every source of the recipe is filtered, all are deduplicated if it asks for that, and every evaluation
    set is there.""",
    formats=frozenset({"jsonl"}),
    rows=DecontaminatedRows,
    checks=(FILES, LEDGER),
)


def packed_target(section: PackSection, name: str, folder: Path, corpora: Sequence[Target], **more: Any) -> Target:
    """Rows of tokens, drawn of what corpora hold of each source."""
    path, content = section.tokenizer_path, {"pack": section.rows_content()}
    outside = None if path is None else TokenizerPath(Path(path))
    return PACKED.target(
        name, content, corpora, folder=folder, tokenizer=section.tokenizer.content(), outside=outside, **more
    )


def _pack(job: Job) -> Content:
    # Compiled code is loaded only where it is needed.
    from pipeline_assets.corpus.dedup.corpus_shard import corpus_shards
    from pipeline_assets.corpus.packing.pack_corpus import PackSettings, pack_corpus

    corpora, root = job.upstream_by_name(), job.run.root
    recipe = PackRecipe.from_content({**job.recipe["pack"], "tokenizer": job.target.tokenizer})
    refuse_emptied(corpora, _deduplicated_before(job.target, root), recipe.weights)
    refuse_beyond_text(corpora, recipe)
    path = job.target.outside.path if isinstance(job.target.outside, TokenizerPath) else None
    now, file = datetime.datetime.now(datetime.UTC), None if path is None else root / path
    content = pack_corpus(
        job.building, corpus_shards(corpora), recipe, PackSettings(job.run.engine, now, file, job.run.zstd_level)
    )
    if path is None:
        return content
    return replace(content, provenance={**content.provenance, TOKENIZER_FILE: str(path)})


def draws_are_deduplicated(packed: Artifact, target: Target, root: Path) -> Verdict:
    """What is packed was deduplicated at some step: else a text may be in it more often than its epochs say."""
    manifest = sealed_manifest(root / target.upstream[0].folder)
    if DEDUPLICATED.name in (manifest.kind, *(entry["name"] for entry in manifest.identity.upstream)):
        return Verdict(True, "what it is drawn from was deduplicated")
    return Verdict(False, "not deduplicated: a text may be in it more often than its epochs say")


def _deduplicated_before(target: Target, root: Path) -> Artifact | None:
    """The deduplicated corpus that what a packed set is drawn from was made from; None if there is none here."""
    manifest = open_artifact(root / target.upstream[0].folder).manifest
    digests = [one["digest"] for one in manifest.identity.upstream if one["name"] == DEDUPLICATED.name]
    try:
        return Lineage(root).locate(digests[0]) if digests else None
    except InputError:
        return None


def _rows(recipe: Mapping[str, Any]) -> Limit:
    tokens = recipe["pack"]["num_seqs"] * recipe["pack"]["seq_len"]
    return Limit("pack.num_seqs", tokens=tokens, passes=math.inf)  # how much of a row is padding depends on the texts


PACKED = Kind(
    "stage_a/packed",
    PACK_STAGE,
    seals_files(_pack),
    """Rows of tokens of one length, drawn of all sources by weight, and what tells where each token is from.

    Waits until all that it is drawn from is there.""",
    formats=frozenset({"numpy"}),
    rows=PackedRows,
    preview=preview_packed,
    limit=_rows,
    outside=tokenizer_path,
    labels=(META,),
    checks=(
        FILES,
        LEDGER,
        check(shares_reached, is_blocking=False),
        check_beside(draws_are_deduplicated, is_blocking=False),
    ),
)


def _report(job: Job) -> Content:
    assert job.target.tokenizer is not None
    sources = [_steps(one, job.run.root) for one in job.target.upstream if one.kind in (NORMALIZED.name, FILTERED.name)]
    of_all = {one.kind: artifact for one, artifact in zip(job.target.upstream, job.upstream, strict=True)}
    made_of_all = (of_all.get(kind.name) for kind in (DEDUPLICATED, DECONTAMINATED, PACKED))
    digest = job.target.tokenizer["sha256"]
    return report_on(job.building, sources, digest, licence_table(), job.run.engine, *made_of_all)


def _steps(source: Target, root: Path) -> SourceSteps:
    """A source of a report: filtered, or as it was normalised."""
    name, artifact = source.partition or source.name, open_artifact(root / source.folder)
    if source.kind == NORMALIZED.name:
        return SourceSteps(name, artifact, None)
    return SourceSteps(name, open_artifact(root / source.upstream[0].folder), artifact)


REPORT = Kind(
    "stage_a/report",
    REPORT_STAGE,
    seals_files(_report),
    """What all sources hold by source, domain and licence, what became of their rows, what was packed, whom to name.

    Waits until all that the recipe asks for is there.""",
    preview=preview_report,
)
RECIPE = StageARecipe
KINDS = (RAW, NORMALIZED, FILTERED, DEDUPLICATED, SIGNATURES, EVALUATION, DECONTAMINATED, PACKED, REPORT)
