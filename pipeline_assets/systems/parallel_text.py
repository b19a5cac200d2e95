"""Parallel text: a translation set → a frozen sample → a token cache → batches.

Compiled or heavy modules are imported where they are used, because most commands build nothing.
"""

import contextlib
import datetime
import fnmatch
import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from pipeline_assets.build.builders import Job, file_builder
from pipeline_assets.build.checks import FILES_CHECK, LEDGER_CHECK, artifact_check, context_check
from pipeline_assets.build.pins import raw_pin
from pipeline_assets.build.recipe import Recipe
from pipeline_assets.build.rows.pair_rows import EncodedPairs, PairRows
from pipeline_assets.build.run import Run
from pipeline_assets.build.target import Kind, Planner, Target
from pipeline_assets.corpus.normalize.sources import missing_folder_problem
from pipeline_assets.corpus.packing.recipe import TOKENIZER_FILE_KEY, TokenizerPath, tokenizer_path
from pipeline_assets.corpus.parallel_text import sample as sampling
from pipeline_assets.corpus.parallel_text.encode import write_cache
from pipeline_assets.corpus.parallel_text.encode_recipe import ENCODE_STAGE, TRAINING_KEYS, EncodeRecipe
from pipeline_assets.corpus.parallel_text.pair_model import check_model
from pipeline_assets.corpus.parallel_text.pairs import canonical_text
from pipeline_assets.corpus.parallel_text.token_cache import open_cache
from pipeline_assets.corpus.parallel_text.translation_files import PairSource, TranslationFile
from pipeline_assets.corpus.readers.file_patterns import matching_names
from pipeline_assets.corpus.readers.hub_listing import HubFile
from pipeline_assets.corpus.readers.listing import Listing
from pipeline_assets.corpus.readers.source_folder import SourceFolder, input_folder, open_pinned_files
from pipeline_assets.corpus.tokens.loss_limit import LossLimit
from pipeline_assets.spine.artifact import Artifact, Verdict, open_artifact
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.spine.plural import pluralize
from pipeline_assets.spine.recipe_validation import RecipeProblem
from pipeline_assets.spine.recipe_yaml import section_at
from pipeline_assets.systems.checks import unknown_tokens_within_limit
from pipeline_assets.systems.early_checks import is_to_be_built


class ParallelRecipe(Recipe):
    """Recipe of sampled and encoded translation pairs.

    Attributes:
        source: Translation set on a hub or in a local folder.
        sample: Size, filters and splits of the sample.
        encode: Tokenization of the sample; None omits it.
    """

    system: Literal["parallel_text"]
    source: PairSource
    sample: sampling.SampleRecipe
    encode: EncodeRecipe | None = None

    @classmethod
    def cross_checks(cls, values: Mapping[str, Any], root: Path | None) -> Iterator[RecipeProblem]:
        path = section_at(values, "source").get("path")
        if root is not None and isinstance(path, str) and not (root / path).is_dir():
            yield missing_folder_problem(("source", "path"), root / path)

    def warnings(self) -> Iterator[str]:
        yield from super().warnings()
        if self.encode is not None and self.encode.model is not None:
            for key in TRAINING_KEYS:
                if key in self.encode.model_fields_set:
                    yield f"`encode.{key}` is ignored, because `encode.model` is set"

    def final_targets(self) -> list[Target]:
        source = self.source
        folder = None if source.path is None else SourceFolder(Path(source.path), source.patterns())
        raw = RAW.target(self.name, source.file_selection(), external_inputs=folder)
        sample = SAMPLE.target(self.name, {"sample": self.sample.content(), "splits": list(source.splits)}, [raw])
        if self.encode is None:
            return [sample]
        content = {"encode": self.encode.cache_content()}
        model = None if self.encode.model is None else TokenizerPath(Path(self.encode.model))
        limit = LossLimit(self.encode.max_unknown_fraction)
        return [TOKEN_CACHE.target(self.name, content, [sample], external_inputs=model, count_limit=limit)]

    def check_prerequisites(self, root: Path, targets: Sequence[Target] | None = None) -> None:
        """Raise InputError if SentencePiece is missing, or the external model is unusable."""
        targets = self.targets() if targets is None else targets
        if self.encode is not None and is_to_be_built(targets, ENCODE_STAGE, root):
            check_model(self.encode, root)

    def revisions(self) -> Sequence[tuple[str, str]]:
        if self.source.dataset is None or self.source.revision is None:
            return ()
        return [(self.source.dataset, self.source.revision)]


def _find_hub_files(target: Target, run: Run) -> raw_pin.HubPin:
    """Find matching hub files, sorted by path; UsageError if a pattern matches none."""
    hub = run.require_hub("this translation set")
    dataset, revision, patterns = (target.recipe[name] for name in ("dataset", "revision", "files"))
    raw_pin.raise_if_unpinned(target, hub, run.root)
    listed, files = hub.list_files(dataset, revision), set[HubFile]()
    for pattern in patterns:
        matched = {file for file in listed if fnmatch.fnmatchcase(file.path, pattern)}
        if not matched:
            first = ", ".join(file.path for file in listed[:3]) or "no files"
            what = f"no file matches {pattern}; the dataset contains {first}"
            raise UsageError(what, f"{dataset}@{revision}", "correct `source.files`")
        files |= matched
    return raw_pin.HubPin(hub, dataset, revision, sorted(files, key=lambda file: file.path))


RAW = raw_pin.pin_kind(
    "parallel_text/raw",
    raw_pin.RAW_STAGE,
    "Files of a translation set, pinned by their hashes: of a hub dataset at a commit, or of a local folder.",
    _find_hub_files,
    input_folder,
)


def _sample(job: Job) -> BuildResult:
    from pipeline_assets.corpus.parallel_text.draw import write_sample

    [listed], [pin], run = job.target.upstream, job.upstream, job.run
    recipe, splits = sampling.SampleRecipe.from_content(job.recipe["sample"]), tuple(job.recipe["splits"])
    patterns, now = pin.manifest.identity.recipe["files"], datetime.datetime.now(datetime.UTC)
    with contextlib.ExitStack() as reading:
        if isinstance(listed.external_inputs, SourceFolder):
            folder = listed.external_inputs.resolve_path(run.root).path
            local = reading.enter_context(open_pinned_files(folder, pin.manifest))
            files = [TranslationFile(file.name, functools.partial(Path, file.path)) for file in local]
            matched = [matching_names(folder, [pattern]) for pattern in patterns]
            dataset, revision = "local", pin.manifest.digest
        else:
            dataset, revision, pinned = raw_pin.read_hub_pin(pin.manifest)
            hub = run.require_hub("pairs")

            def fetch_file(file: HubFile) -> Path:
                return hub.fetch(dataset, revision, file).path

            files = [TranslationFile(file.path, functools.partial(fetch_file, file)) for file in pinned]
            matched = [fnmatch.filter([file.name for file in files], pattern) for pattern in patterns]
        source = sampling.SampleSource(dataset=dataset, revision=revision, splits=splits)
        first = {name: number for number, names in reversed([*enumerate(matched)]) for name in names}
        files.sort(key=lambda file: (first.get(file.name, len(patterns)), file.name))
        return write_sample(job.staging, files, recipe, source, now, run.settings, job.removals)


def _list_fetched_files(target: Target, run: Run) -> Listing:
    return raw_pin.list_hub_inputs(target, run, {raw_pin.RAW_STAGE: _find_hub_files})


def no_text_in_two_splits(sample: Artifact) -> Verdict:
    """Check that no source or target text is empty, or is in two splits."""
    splits, pairs = dict[str, str](), sampling.read_sample(sample.path(sampling.SAMPLE_FILE)).pairs
    texts = [(canonical_text(text), pair.split) for pair in pairs for text in (pair.src_text, pair.tgt_text)]
    shared = sum(splits.setdefault(text, split) != split for text, split in texts)
    empty = sum(not text for text, _ in texts)
    message = f"{pluralize(len(pairs), 'pair')}: {shared:,} texts are in two splits, {empty:,} are empty"
    message += "; set `sample.filters`, which drop pairs with an empty side" if empty else ""
    return Verdict(not shared and not empty, message, {"pairs": len(pairs), "shared": shared, "empty": empty})


SAMPLE = Kind(
    "parallel_text/sample",
    sampling.SAMPLE_STAGE,
    file_builder(_sample),
    """Sentence pairs, sampled by a reservoir in one pass and divided into train, val and test.

    Each pair names its input file and row.""",
    formats=frozenset({"jsonl"}),
    labels=(sampling.SAMPLE_META_FILE,),
    planner=Planner(_list_fetched_files),
    row_store_class=PairRows,
    applies_removals=True,
    checks=(FILES_CHECK, LEDGER_CHECK, artifact_check(no_text_in_two_splits)),
)


def _encode(job: Job) -> BuildResult:
    [sample], external = job.upstream, job.target.external_inputs
    model = str(external.path) if isinstance(external, TokenizerPath) else None
    recipe = EncodeRecipe.from_content({**job.recipe["encode"], "model": model})
    content = write_cache(job.staging, sample.path(sampling.SAMPLE_FILE), recipe, job.run.root)
    used = {TOKENIZER_FILE_KEY: model} if model is not None else {}
    return replace(content, provenance={**content.provenance, **used})


def pairs_are_those_of_the_sample(cache: Artifact, target: Target, root: Path) -> Verdict:
    """Check that all pairs of the sample are encoded, and none exceeds `seq_len`."""
    counts, seq_len = cache.manifest.identity.counts, target.recipe["encode"]["seq_len"]
    expected = open_artifact(root / target.upstream[0].folder).manifest.identity.counts["pairs"]
    longest = int(open_cache(cache.folder).lengths("pair").max()) - 1  # of the input; the last id is only a target
    cut = sum(counts["truncated"].values())
    message = ", ".join(f"{split} {pairs:,}" for split, pairs in counts["pairs"].items())
    message += f"; longest pair: {longest:,} tokens"
    message += "" if seq_len is None else f"; {pluralize(cut, 'pair')} cut to {seq_len:,} tokens"
    fits = seq_len is None or longest <= seq_len
    return Verdict(counts["pairs"] == expected and fits, message, {"truncated": cut, "longest": longest})


TOKEN_CACHE = Kind(
    "parallel_text/token_cache",
    ENCODE_STAGE,
    file_builder(_encode),
    "Token ids of each pair of a sample as NumPy files, with the SentencePiece model that encoded them.",
    formats=frozenset({"numpy"}),
    row_store_class=EncodedPairs,
    external_inputs=tokenizer_path,
    checks=(FILES_CHECK, context_check(pairs_are_those_of_the_sample), context_check(unknown_tokens_within_limit)),
)
RECIPE = ParallelRecipe
KINDS = (RAW, SAMPLE, TOKEN_CACHE)
