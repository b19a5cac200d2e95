"""Recipe of decontamination, with the records of contaminated documents.

Documents and items are compared by their normalized words, see `dedup.words`. An item's n-grams are its distinct
sequences of `ngram_words` words; an item with fewer words has one n-gram, the whole item. An item contaminates a
document that contains enough of its n-grams, at any positions.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

import msgspec
import pydantic

from pipeline_assets.corpus.dedup.recipe import PositiveFraction
from pipeline_assets.corpus.formats.jsonl_zst import SUFFIX, read_structs
from pipeline_assets.corpus.readers.local import TextUnit
from pipeline_assets.corpus.readers.source_folder import SourceFile, SourceFolder, check_listed_files
from pipeline_assets.corpus.stores.object_source import SourcePath
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.key_types import Name, Patterns
from pipeline_assets.spine.manifest import Manifest, StageVersion
from pipeline_assets.spine.recipe_validation import reject_duplicates
from pipeline_assets.spine.section import RecipeSection

EVALUATION_STAGE, DECONTAMINATION_STAGE = StageVersion("evaluation", 1), StageVersion("decontaminate", 1)
CONTAMINATED_FILE = f"contaminated{SUFFIX}"
_MIN_ITEM_WORDS = 8
_SAMPLES_PER_SET = 3  # documents shown for each evaluation set


class CutRecipe(RecipeSection):
    """Rules for cutting matched n-grams out of a contaminated document.

    Attributes:
        margin_words: Number of words to cut on each side of the n-grams.
        min_kept_words: A document with fewer remaining words is dropped.
    """

    margin_words: int = pydantic.Field(0, ge=0, le=1 << 32)
    min_kept_words: int = pydantic.Field(50, ge=1)


class DecontaminationRecipe(RecipeSection):
    """Rules for contamination, and for its removal from documents.

    Attributes:
        ngram_words: Number of words in an n-gram; 13 in GPT-3 (arXiv 2005.14165, appendix C).
        min_item_words: Minimum number of words in an item; shorter items are ignored. Accepted items with fewer
            than `ngram_words` words are searched for as a whole. Default: the smaller of `ngram_words` and 8 (smallest
            n-gram of GPT-3).
        min_item_overlap: An item contaminates a document that has at least this fraction of the item's n-grams.
        max_items_per_ngram: Maximum number of items that may share an n-gram. N-grams in more items are ignored,
            because common phrases identify no item. Items with the same words count as one item.
        action: `drop` removes contaminated documents; `cut` removes only the matching words and a margin around
            them, and drops a document if too few of its words remain.
        cut: Rules for cutting; None if the action is `drop`.
    """

    ngram_words: int = pydantic.Field(13, ge=1, le=100)
    min_item_words: int = pydantic.Field(
        default_factory=lambda earlier: min(_MIN_ITEM_WORDS, earlier.get("ngram_words", _MIN_ITEM_WORDS)), ge=1
    )
    min_item_overlap: PositiveFraction = "0.5"
    max_items_per_ngram: int = pydantic.Field(10, ge=1)
    action: Literal["drop", "cut"] = "drop"
    cut: CutRecipe | None = None

    @pydantic.model_validator(mode="after")
    def _check_keys(self) -> Self:
        if self.min_item_words > self.ngram_words:
            what = f"`min_item_words` must be at most `ngram_words` {self.ngram_words}"
            raise ValueError(f"{what}, got {self.min_item_words}: an item of {self.ngram_words} words has an n-gram")
        if (self.action == "cut") != (self.cut is not None):
            raise ValueError("`action` cut requires a section `cut`, and other actions do not allow it")
        return self


class EvaluationColumns(RecipeSection):
    """Columns with the items of an evaluation set, in JSON lines or Parquet files.

    Attributes:
        text: Columns of texts or lists of texts; a dotted name is a path into nested columns, like `choices.text`. A
            row whose text columns are all null or empty is an item without words, which is ignored as too short.
        item: `row` joins the text columns of a row, in this order, into one item; `column` makes each column an item.
        id: Column with ids; None if no column has ids. A row without an id is named by its file and its row number.
    """

    text: Annotated[tuple[str, ...], pydantic.Field(strict=False, min_length=1)]
    item: Literal["row", "column"] = "row"
    id: str | None = None

    @pydantic.field_validator("text")
    @classmethod
    def _reject_repeated_columns(cls, text: tuple[str, ...]) -> tuple[str, ...]:
        reject_duplicates(text, "names a column twice,", "no document has the words of an item twice; name it once")
        return text


class EvaluationRecipe(RecipeSection):
    """Evaluation set: files in a folder, and the items in them.

    Attributes:
        name: Unique name among the sets of a corpus.
        files: Patterns relative to the set's folder, see `list_files`.
        columns: Columns of JSON lines and Parquet; None for text files.
        text_unit: Part of a text file that is an item; None for JSON lines and Parquet.
    """

    name: str
    files: Patterns
    columns: EvaluationColumns | None = None
    text_unit: TextUnit | None = None

    @pydantic.model_validator(mode="after")
    def _check_file_type(self) -> Self:
        if (self.columns is None) == (self.text_unit is None):
            raise ValueError("the items are undefined; set `columns` for files of rows, or `text_unit` for text files")
        return self


class EvaluationSource(EvaluationRecipe):
    """Evaluation set of a recipe, with the folder of its input files.

    Attributes:
        name: Name of the set, which is also its partition key and the name of its artifact's folder.
        path: Folder of the input files, absolute or relative to the data root, or a URL in an object store. The path
            does not affect the output.
    """

    name: Name
    path: SourcePath


@dataclass(frozen=True)
class EvaluationSet:
    """Evaluation set: its recipe, the manifest that lists its files, and its folder."""

    recipe: EvaluationRecipe
    listing: Manifest
    folder: SourceFolder

    @property
    def name(self) -> str:
        return self.recipe.name

    def files(self) -> list[SourceFile]:
        """Return the listed files, or raise InputError if one is missing or changed."""
        return check_listed_files(self.folder, self.listing)


class DecontaminationSection(DecontaminationRecipe):
    """Rules and evaluation sets; an item in several sets is named after the first set."""

    evaluation: Annotated[tuple[EvaluationSource, ...], pydantic.Field(strict=False, min_length=1)]

    @pydantic.model_validator(mode="after")
    def _check_names(self) -> Self:
        names = [source.name for source in self.evaluation]
        reject_duplicates(names, "two evaluation sets are called", "choose unique names")
        return self

    def output_content(self) -> dict[str, Any]:
        """Return rules and evaluation sets without paths, which do not affect the output."""
        rules = {key: value for key, value in self.content().items() if key != "evaluation"}
        contents = (source.content() for source in self.evaluation)
        sets = [{key: value for key, value in content.items() if key != "path"} for content in contents]
        return {"decontamination": rules, "evaluation": sets}


class ContaminatedLine(msgspec.Struct, frozen=True):
    """Contaminated document with its evidence: a line of `contaminated.jsonl.zst`."""

    doc_id: str
    action: Literal["dropped", "cut"]
    reason: str  # `contaminated`, or `few_words_left` if dropped because cutting leaves too few words
    evaluation_set: str  # of `item`
    item: str  # id of the item with the largest overlap; on ties, the first
    overlap: float  # fraction of the item's n-grams in the document: `shared_ngrams` / `item_ngrams`
    shared_ngrams: int
    item_ngrams: int
    items: dict[str, int]  # contaminating items by evaluation set; items with the same words count separately
    spans: list[tuple[int, int]]  # in characters, of each passage to cut, or of each match if nothing is cut
    excerpt: str  # beginning of the first match of `item`
    source: str
    shard: str  # in the source's artifact, or in the deduplicated artifact of all sources
    row: int

    def __str__(self) -> str:
        by_set = ", ".join(f"{count:,} of {name}" for name, count in self.items.items())
        ngrams = f"{self.shared_ngrams:,} of its {self.item_ngrams:,} n-grams"
        return f"{self.evaluation_set} {self.item}: {ngrams}; items in all: {by_set}"


def read_contaminated(decontaminated: Artifact) -> Iterator[ContaminatedLine]:
    """Yield the line of each contaminated document, in the order of the corpus."""
    yield from read_structs(decontaminated.path(CONTAMINATED_FILE), ContaminatedLine)


def find_evidence(decontaminated: Artifact, doc_id: str) -> ContaminatedLine | None:
    """Return the evidence on a document; None if it is not contaminated."""
    return next((line for line in read_contaminated(decontaminated) if line.doc_id == doc_id), None)


def summarize_decontamination(decontaminated: Artifact) -> dict[str, Any]:
    """Summarize the decontamination for a report.

    `by_set` has the counts of each evaluation set; a document with items of several sets counts in each. `by_source`
    has the counts of each source, such as documents `in`, `out`, `dropped` and `cut`. `samples` has the first three
    documents that each set contaminates, in the order of the corpus.
    """
    counts = decontaminated.manifest.identity.counts
    sampled = Counter[str]()
    samples = []
    for line in read_contaminated(decontaminated):
        if any(sampled[name] < _SAMPLES_PER_SET for name in line.items):
            samples.append(line)
            sampled.update(line.items.keys())
    return {"by_set": counts["evaluation"], "by_source": counts["by_source"], "samples": samples}
