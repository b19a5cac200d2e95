"""Stage 2: licensed corpora → a tokenizer → NumPy token shards → segments.

Compiled kernels are imported where they are used, because most commands build nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic

from pipeline_assets.build.builders import Job, file_builder
from pipeline_assets.build.checks import FILES_CHECK, LEDGER_CHECK, artifact_check, context_check
from pipeline_assets.build.pins import source_pin
from pipeline_assets.build.recipe import Recipe
from pipeline_assets.build.rows.token_rows import TokenShardRows
from pipeline_assets.build.target import Kind, Target
from pipeline_assets.corpus.corpus_shard import corpus_shards
from pipeline_assets.corpus.dedup.recipe import DedupRecipe
from pipeline_assets.corpus.filters.recipe import FilterRecipe
from pipeline_assets.corpus.licences import licence_table
from pipeline_assets.corpus.normalize import sources as source_kinds
from pipeline_assets.corpus.normalize.misnamed_columns import named_columns_have_values
from pipeline_assets.corpus.packing.recipe import TOKENIZER_FILE_KEY, TokenizerPath, tokenizer_path
from pipeline_assets.corpus.shards import mixture_figures, source_notes
from pipeline_assets.corpus.shards import recipe as sections
from pipeline_assets.corpus.shards.adopted import adopt_shards
from pipeline_assets.corpus.shards.shard_corpus import shard_corpus
from pipeline_assets.corpus.tokens import trained_tokenizer
from pipeline_assets.corpus.tokens.families import TokenizerFile, load_tokenizer
from pipeline_assets.corpus.tokens.loss_limit import LossLimit
from pipeline_assets.corpus.tokens.pinned_file import FileTokenizerRecipe
from pipeline_assets.corpus.tokens.unigram import require_sentencepiece
from pipeline_assets.corpus.weights import check_recipe_weights
from pipeline_assets.spine.artifact import open_artifact
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.key_types import SHARD_TEXT_BYTES, Name
from pipeline_assets.spine.recipe_validation import RecipeProblem
from pipeline_assets.spine.recipe_yaml import section_at, sections_at
from pipeline_assets.systems import checks, early_checks, filtered, stage_a


class Stage2Recipe(Recipe):
    """Recipe of a mixture; the artifacts of a missing section are not built.

    Attributes:
        tokenizer: Tokenizer that is trained on some of the sources, or an external file.
        shards: Token shards of some of the sources.
        dedup: Deduplication over all filtered sources of `shards`; None omits it.
        mixture: Name of the recipe from whose shards `segments` are cut; None for this recipe.
    """

    system: Literal["stage2"]
    shard_text_bytes: int = pydantic.Field(SHARD_TEXT_BYTES, gt=0)
    sources: Annotated[tuple[sections.AnySource, ...], pydantic.Field(strict=False)] = ()
    tokenizer: sections.AnyTokenizer | None = None
    dedup: DedupRecipe | None = None
    shards: sections.ShardsSection | None = None
    mixture: Name | None = None
    segments: sections.SegmentsRecipe | None = None

    @classmethod
    def cross_checks(cls, values: Mapping[str, Any], root: Path | None) -> Iterator[RecipeProblem]:
        names = [str(section["source"]) for _, section in sections_at(values, "sources") if "source" in section]
        yield from source_kinds.check_sources(values)
        yield from [*sections.check_licences(values), *sections.check_segment_lengths(values)]
        for section in ("tokenizer", "shards"):
            yield from check_recipe_weights(values, (section, "sources"), names, require_all=False)
        if root is not None:
            yield from source_kinds.check_folders(values, root)
        for section, needs in (("shards", "tokenizer"), ("dedup", "shards")):
            if values.get(section) is not None and values.get(needs) is None:
                fix = f"add `{needs}`, or remove `{section}`"
                yield RecipeProblem((section,), f"`{section}` requires `{needs}`", fix)
        corpora = section_at(values, "shards", "sources")
        for position, segment in sections_at(values, "segments", "segments"):
            for name in section_at(segment, "weights"):
                if corpora and name not in corpora:
                    keys = ("segments", "segments", position, "weights", name)
                    fault = f"{name} has a weight, but is not in `shards.sources`"
                    yield RecipeProblem(keys, fault, "correct the name")
        has_shards = values.get("shards") is not None or values.get("mixture") is not None
        if values.get("segments") is not None and not has_shards:
            fix = "add `shards`, or set `mixture` to the recipe that builds them"
            yield RecipeProblem(("segments",), "`segments` requires `shards`", fix)
        if not values.get("sources") and values.get("mixture") is None:
            yield RecipeProblem(("name",), "the recipe has no `sources`", "add at least one")
        if values.get("mixture") is not None and values.get("segments") is None:
            fix = "add `segments`, or remove `mixture`"
            yield RecipeProblem(("mixture",), "`mixture` has no effect without `segments`", fix)
        elif values.get("mixture") is not None and values.get("shards") is not None:
            what = "both `mixture` and `shards` have shards for `segments`"
            yield RecipeProblem(("mixture",), what, "remove one of them")

    def final_targets(self) -> list[Target]:
        kept = {source.source: self._filtered_target(source) for source in self.sources}
        targets, trained, corpora, shards = [*kept.values()], list[Target](), dict(kept), dict[str, Target]()
        if isinstance(self.tokenizer, sections.TrainedTokenizerSection):
            trained.append(self._tokenizer_target(self.tokenizer, kept))
        targets += trained
        if self.shards is not None:
            if self.dedup is not None:
                names = [source.source for source in self.sources if source.source in self.shards.sources]
                content = {"dedup": self.dedup.content(), "sources": names}
                deduplicated = DEDUPLICATED.target(self.name, content, [kept[name] for name in names])
                corpora = dict.fromkeys(names, deduplicated)
            shards = {name: self._shards_target(name, [corpora[name], *trained]) for name in self.shards.sources}
            targets += [*shards.values(), INVENTORY.target(self.name, {}, [*shards.values()])]
        if self.segments is not None:
            if self.mixture is not None:
                shards = {name: external_shards(self.mixture, name) for name in self.segments.corpora()}
            upstream = [shards[name] for name in self.segments.corpora()]
            targets.append(SEGMENTS.target(self.name, self.segments.content(), upstream))
        return targets

    def _raw_corpus_target(self, source: sections.AnySource) -> Target:
        pinned, folder = source_pin.pinned_content(source, self.shard_text_bytes)
        raw = RAW.target(self.name, pinned, partition=source.source, external_inputs=folder)
        content = source.output_content(self.shard_text_bytes) | {"licences": licence_table().digest()}
        return RAW_CORPUS.target(self.name, content, [raw], partition=source.source)

    def _filtered_target(self, source: sections.AnySource) -> Target:
        raw_corpus = self._raw_corpus_target(source)
        if source.filters == FilterRecipe():
            return raw_corpus
        arguments = filtered.filter_arguments(source.filters)
        return FILTERED.target(self.name, upstream=[raw_corpus], partition=source.source, **arguments)

    def _tokenizer_target(self, section: sections.TrainedTokenizerSection, corpora: Mapping[str, Target]) -> Target:
        content = {"tokenizer": {key: value for key, value in section.training_content().items() if key != "kind"}}
        expected = section.expected_sha256
        limit = None if expected is None else trained_tokenizer.ExpectedTokenizer(expected)
        upstream = [corpora[name] for name in sorted(section.sources)]
        return TOKENIZER.target(self.name, content, upstream, count_limit=limit)

    def _shards_target(self, corpus_name: str, upstream: Sequence[Target]) -> Target:
        assert self.shards is not None
        content, external = {"shards": self.shards.corpus_content(), "source": corpus_name}, dict[str, Any]()
        if isinstance(self.tokenizer, sections.ExternalTokenizerSection):
            external["tokenizer"] = self.tokenizer.without_path().content()
            external["external_inputs"] = TokenizerPath(Path(self.tokenizer.path))
        folder = shards_folder(self.name, corpus_name)
        limit = LossLimit(self.shards.max_unknown_fraction)
        return TOKEN_SHARDS.target(
            self.name, content, upstream, partition=corpus_name, folder=folder, count_limit=limit, **external
        )

    def check_prerequisites(self, root: Path, targets: Sequence[Target] | None = None) -> None:
        """Raise InputError if a filter, faiss, the trainer or the tokenizer is unusable."""
        targets, near = self.targets() if targets is None else targets, self.dedup.near if self.dedup else None
        early_checks.check_inputs(targets, root)
        early_checks.check_packages(self.sources, targets, root)
        filtered.check_filters(self.sources, targets, root)
        early_checks.check_faiss_installed(near, "dedup", targets, root)
        if early_checks.is_to_be_built(targets, trained_tokenizer.TOKENIZER_STAGE, root):
            require_sentencepiece()
        if self.tokenizer and self.shards and early_checks.is_to_be_built(targets, sections.SHARDS_STAGE, root):
            self.shards.dtype_for(self._vocabulary_size(self.tokenizer, root))

    def _vocabulary_size(self, tokenizer: sections.AnyTokenizer, root: Path) -> int:
        if isinstance(tokenizer, sections.TrainedTokenizerSection):
            return tokenizer.vocab_size
        file = TokenizerFile(tokenizer.without_path(), root / tokenizer.path, section="tokenizer")
        return load_tokenizer(file).vocabulary_size

    def revisions(self) -> list[tuple[str, str]]:
        return [(hub.dataset, hub.revision) for hub in self.sources if isinstance(hub, source_kinds.HubSource)]


def shards_folder(mixture: str, corpus: str) -> Path:
    """Return the folder of a corpus's token shards, relative to the data root."""
    return Path("stage2", mixture, "shards", corpus)


def external_shards(mixture: str, corpus: str) -> Target:
    """Return the target of a corpus's token shards that another recipe built."""
    folder = shards_folder(mixture, corpus)
    return TOKEN_SHARDS.target(mixture, {}, partition=corpus, folder=folder, is_external=True, copy_name=None)


RAW = replace(stage_a.RAW, name="stage2/raw")


def _convert_rows(job: Job) -> BuildResult:
    (source, _), [raw], run = source_kinds.parse_source(job.recipe), job.upstream, job.run
    hub = run.require_hub("this source") if isinstance(source, source_kinds.HubSource) else None
    rows = stage_a.normalise(job)
    return source_notes.add_source_notes(job.staging, rows, source, raw.manifest, licence_table(), hub)


RAW_CORPUS = replace(
    stage_a.NORMALIZED,
    name="stage2/raw_corpus",
    build=file_builder(_convert_rows),
    description="""Selected rows of a source as documents, with notes on the source, its dataset card and its licences.

    Bad rows are stored as rejects with their reasons; every doc_id is unique.""",
    labels=(source_notes.README_FILE,),
    after_build=None,
    checks=(
        FILES_CHECK,
        LEDGER_CHECK,
        artifact_check(checks.documents_have_licences),
        artifact_check(checks.licence_agrees_with_card, is_blocking=False),
        artifact_check(named_columns_have_values, is_blocking=False),
        artifact_check(checks.no_document_is_outsized, is_blocking=False),
    ),
)
FILTERED = replace(filtered.FILTERED, name="stage2/filtered")


DEDUPLICATED = replace(
    stage_a.DEDUPLICATED,
    name="stage2/deduplicated",
    build=file_builder(lambda job: stage_a.deduplicate(job, RAW_CORPUS, FILTERED)),
    description="""Documents of all sources without duplicates, with a decision per dropped one and all similar pairs.

    Requires that every source of the shards is filtered.""",
    checks=(FILES_CHECK, LEDGER_CHECK),
)


def _train(job: Job) -> BuildResult:
    from pipeline_assets.corpus.tokens.train_tokenizer import train_tokenizer

    recipe = trained_tokenizer.TrainRecipe.from_content(job.recipe["tokenizer"])
    return train_tokenizer(job.staging, job.upstream_by_name(), recipe, job.run.settings)


TOKENIZER = Kind(
    "stage2/tokenizer",
    trained_tokenizer.TOKENIZER_STAGE,
    file_builder(_train),
    """SentencePiece unigram model, trained on a weighted sample, with its token counts per corpus next to o200k's.

    Requires every source of the sample.""",
    preview=trained_tokenizer.preview_tokenizer,
    after_build=trained_tokenizer.write_tokenizer_figures,
    checks=(
        FILES_CHECK,
        LEDGER_CHECK,
        context_check(checks.model_is_expected),
        artifact_check(trained_tokenizer.shares_are_kept, is_blocking=False),
    ),
)


def _shard(job: Job) -> BuildResult:
    name, root = job.recipe["source"], job.run.root
    corpus, *trained = job.target.upstream
    if trained:
        tokenizer = trained_tokenizer.trained_tokenizer_file(open_artifact(root / trained[0].folder))
        path = tokenizer.path
        path = path.relative_to(root) if path.is_relative_to(root) else path
    else:
        assert isinstance(job.target.external_inputs, TokenizerPath) and job.target.tokenizer is not None
        path = job.target.external_inputs.path
        tokenizer = TokenizerFile(FileTokenizerRecipe.from_content(job.target.tokenizer), root / path)
    all_shards = corpus_shards({corpus.partition or corpus.name: open_artifact(root / corpus.folder)})
    shards = [shard for shard in all_shards if shard.source == name]
    content = _link_earlier_shards(job, tokenizer)
    if content is None:
        recipe = sections.ShardsRecipe.from_content(job.recipe["shards"])
        content = shard_corpus(job.staging, shards, recipe, tokenizer, job.run.settings)
    return replace(content, provenance={**content.provenance, TOKENIZER_FILE_KEY: str(path)})


def _link_earlier_shards(job: Job, tokenizer: TokenizerFile) -> BuildResult | None:
    """Link the previous recipe version's token shards; None if they may be outdated."""
    find_folder, root = job.run.find_previous_folder, job.run.root
    if find_folder is None:
        return None
    try:
        sealed = open_artifact(root / find_folder(job.target.role))
        identity = sealed.manifest.identity
        if (identity.stage, identity.recipe) != (job.target.stage, job.target.recipe):
            return None
        corpus = identity.upstream[0]
        documents = open_artifact(root / find_folder(corpus["name"]), corpus["digest"])
    except (LookupError, InputError):
        return None
    current = open_artifact(root / job.target.upstream[0].folder)
    return adopt_shards(job.staging, sealed, (documents, current), job.recipe["source"], tokenizer)


TOKEN_SHARDS = Kind(
    "stage2/token_shards",
    sections.SHARDS_STAGE,
    file_builder(_shard),
    """Token ids of a corpus as NumPy files of equal-length rows, with an index of the origin of each token.

    Documents are concatenated, each with an end-of-document token; the last, incomplete row is omitted.""",
    formats=frozenset({"numpy"}),
    row_store_class=TokenShardRows,
    preview=mixture_figures.preview_token_shards,
    external_inputs=tokenizer_path,
    checks=(FILES_CHECK, LEDGER_CHECK, context_check(checks.unknown_tokens_within_limit)),
)


def _take_inventory(job: Job) -> BuildResult:
    from pipeline_assets.corpus.shards.inventory import build_inventory

    return build_inventory(job.staging, job.upstream_by_name(), job.run.settings)


INVENTORY = Kind(
    "stage2/inventory",
    sections.INVENTORY_STAGE,
    file_builder(_take_inventory),
    """Rows, tokens, licences and hashes of every corpus, from token shards compared with their manifests.

    Requires all token shards.""",
    preview=mixture_figures.preview_inventory,
    after_build=mixture_figures.write_mixture_figures,
    checks=(FILES_CHECK,),
)


def _cut_segments(job: Job) -> BuildResult:
    from pipeline_assets.corpus.shards.segments import build_segments

    return build_segments(job.staging, job.upstream_by_name(), sections.SegmentsRecipe.from_content(job.recipe))


SEGMENTS = Kind(
    "stage2/continual_segments",
    sections.SEGMENTS_STAGE,
    file_builder(_cut_segments),
    "Segments of a continual training, in order: each takes the next rows of every corpus, so no row is in two.",
    preview=mixture_figures.preview_segments,
    checks=(FILES_CHECK,),
)
RECIPE = Stage2Recipe
KINDS = (RAW, RAW_CORPUS, FILTERED, DEDUPLICATED, TOKENIZER, TOKEN_SHARDS, INVENTORY, SEGMENTS)
