"""When a document counts as contaminated by an item of an evaluation set, what becomes of it, and which line says so.

Documents and items are compared by their normalised words, see `dedup.words`. An item's n-grams are its different runs
of `ngram_words` words; an item of fewer words has one, itself. A document is contaminated by an item if it holds enough
of these n-grams, wherever they stand in it.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

import msgspec
import pydantic

from pipeline_assets.corpus.dedup.recipe import above_zero
from pipeline_assets.corpus.formats.jsonl_zst import SUFFIX, read_structs
from pipeline_assets.corpus.readers.local import TextUnit
from pipeline_assets.corpus.readers.source_folder import SourceFile, SourceFolder, selected_files
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.errors import key
from pipeline_assets.spine.manifest import Manifest, StageVersion
from pipeline_assets.spine.section import Decimal, Name, RecipeSection, reject_duplicate_keys

EVALUATION_STAGE, DECONTAMINATION_STAGE = StageVersion("evaluation", 1), StageVersion("decontaminate", 1)
CONTAMINATED_FILE = f"contaminated{SUFFIX}"
_SAMPLES = 3  # of each evaluation set


class CutRecipe(RecipeSection):
    """What leaves a contaminated document: runs of words in n-grams of its items, with a margin around each."""

    margin_words: int = pydantic.Field(0, ge=0)
    min_kept_words: int = pydantic.Field(50, ge=1)


class DecontaminationRecipe(RecipeSection):
    """Which documents are contaminated.

    Attributes:
        ngram_words: GPT-3 (arXiv 2005.14165, appendix C) took 13.
        min_item_words: an item of fewer words is never looked for; one of fewer than `ngram_words`, but so many, is
            looked for as a whole.
        min_item_overlap: a document is contaminated by an item of whose n-grams it holds such a fraction, or more.
        max_items_per_ngram: an n-gram of more items than that (the words in which they are all asked) says nothing of
            any: it is no n-gram of theirs. Items with the same words are one item.
        cut: how items are cut out; None for `drop`.
    """

    ngram_words: int = pydantic.Field(13, ge=1, le=100)
    min_item_words: int = pydantic.Field(ge=1)
    min_item_overlap: Annotated[Decimal, above_zero("an overlap")] = "0.5"
    max_items_per_ngram: int = pydantic.Field(10, ge=1)
    action: Literal["drop", "cut"] = "drop"
    cut: CutRecipe | None = None

    @pydantic.model_validator(mode="after")
    def _has_required_keys(self) -> Self:
        if self.min_item_words > self.ngram_words:
            what = f"{key('min_item_words')} is {self.min_item_words}, and {key('ngram_words')} {self.ngram_words}"
            raise ValueError(f"{what}: an item of {self.ngram_words} words has an n-gram, so it is looked for")
        if (self.action == "cut") != (self.cut is not None):
            raise ValueError(f"{key('action')} cut goes with a section `cut`, and no other does")
        return self


class EvaluationColumns(RecipeSection):
    """Where the rows of JSON lines and Parquet have an item.

    Attributes:
        text: columns of text, or of lists of texts; a name may be a path into nested ones, `choices.text`. A row whose
            columns are all null is an item without words: too short to be found.
        item: whether all columns of a row are one item, in this order, or each is an item.
        id: None where rows have none; a row without one is named by its file and its number there, from 0.
    """

    text: Annotated[tuple[str, ...], pydantic.Field(strict=False, min_length=1)]
    item: Literal["row", "column"] = "row"
    id: str | None = None


class EvaluationRecipe(RecipeSection):
    """An evaluation set: local files, and what of them is an item.

    Attributes:
        name: unique among the sets of a corpus.
        files: patterns, relative to the set's folder, see `list_files`.
        columns: of JSON lines and Parquet; None where the files are text.
        text_unit: what of a text file is an item; None where the files are rows.
    """

    name: str
    files: Annotated[tuple[str, ...], pydantic.Field(strict=False, min_length=1)]
    columns: EvaluationColumns | None = None
    text_unit: TextUnit | None = None

    @pydantic.model_validator(mode="after")
    def _has_rows_or_texts(self) -> Self:
        if (self.columns is None) == (self.text_unit is None):
            raise ValueError(
                "give `columns` where its files are rows, or `text_unit` where they are text, and not both"
            )
        return self


class EvaluationSource(EvaluationRecipe):
    """An evaluation set of a recipe.

    Attributes:
        name: of its partition and its folder too.
        path: the folder of its files, absolute or below the data root; where it lies changes no byte.
    """

    name: Name
    path: str


@dataclass(frozen=True)
class EvaluationSet:
    """A set and its files.

    Attributes:
        listing: lists the files by their hashes.
        folder: where they lie now, its path absolute.
    """

    recipe: EvaluationRecipe
    listing: Manifest
    folder: SourceFolder

    @property
    def name(self) -> str:
        return self.recipe.name

    def files(self) -> list[SourceFile]:
        """The files that are listed, in order.

        Raises:
            InputError: they are gone, or not as they were.
        """
        return selected_files(self.folder, self.listing)


class DecontaminationSection(DecontaminationRecipe):
    """Which documents are contaminated, and by which evaluation sets, in the order in which items are named."""

    evaluation: Annotated[tuple[EvaluationSource, ...], pydantic.Field(strict=False, min_length=1)]

    @pydantic.model_validator(mode="after")
    def _has_unique_names(self) -> Self:
        names = [one.name for one in self.evaluation]
        reject_duplicate_keys(names, "two evaluation sets are called", "give each a name of its own")
        return self

    def rows_content(self) -> dict[str, Any]:
        """What of the section bytes depend on."""
        rules = {key: value for key, value in self.content().items() if key != "evaluation"}
        sets = [{key: value for key, value in one.content().items() if key != "path"} for one in self.evaluation]
        return {"decontamination": rules, "evaluation": sets}


class ContaminatedLine(msgspec.Struct, frozen=True):
    """A contaminated document, and its place in the corpus that was decontaminated.

    Attributes:
        action: what became of it.
        reason: `contaminated`; `few_words_left` of a document that is dropped as cutting leaves too little of it.
        evaluation_set, item: the item of whose n-grams it holds most, as a fraction; the first of several.
        overlap: that fraction, `shared_ngrams` of `item_ngrams`.
        items: how many items contaminate it, by evaluation set; one that has the same words as another counts too.
        spans: characters of its text, from and to: what is cut out of it, or would have been, or the matching words of
            a document that the recipe drops.
        excerpt: where the item is first found in it.
        shard: in the source's own artifact, or in that of all sources where they were deduplicated.
    """

    doc_id: str
    action: Literal["dropped", "cut"]
    reason: str
    evaluation_set: str
    item: str
    overlap: float
    shared_ngrams: int
    item_ngrams: int
    items: dict[str, int]
    spans: list[tuple[int, int]]
    excerpt: str
    source: str
    shard: str
    row: int

    def __str__(self) -> str:
        every = ", ".join(f"{count:,} of {name}" for name, count in self.items.items())
        ngrams = f"{self.shared_ngrams:,} of its {self.item_ngrams:,} n-grams"
        return f"{self.evaluation_set} {self.item}: {ngrams}; items in all: {every}"


def read_contaminated(decontaminated: Artifact) -> Iterator[ContaminatedLine]:
    """What was found, in the order of the corpus."""
    yield from read_structs(decontaminated.path(CONTAMINATED_FILE), ContaminatedLine)


def evidence_on(decontaminated: Artifact, doc_id: str) -> ContaminatedLine | None:
    """What was found in a document; None if nothing was, or it wasn't there."""
    return next((line for line in read_contaminated(decontaminated) if line.doc_id == doc_id), None)


def summarize(decontaminated: Artifact) -> dict[str, Any]:
    """What became of all sources, for a report.

    Returns:
        `by_set`, of each evaluation set `items`, `too_short`, …, and `contaminated_documents`, by its items; one that
        holds items of several sets counts in each. `by_source`, documents of each source: `in`, `out`, `dropped`,
        `cut`. `samples`, the first documents that each evaluation set contaminates, in the order of the corpus.
    """
    counts = decontaminated.manifest.identity.counts
    shown = Counter[str]()
    samples = []
    for line in read_contaminated(decontaminated):
        if any(shown[name] < _SAMPLES for name in line.items):
            samples.append(line)
            shown.update(line.items.keys())
    return {"by_set": counts["evaluation"], "by_source": counts["by_source"], "samples": samples}
