"""Interface of row stores, which read, find and trace the rows of one artifact."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pipeline_assets.build.rows.row_values import ComparableRow, DisplayNames, Fate, Part, Row
from pipeline_assets.build.rows.source_listing import SourceListing, TextSource, find_listing
from pipeline_assets.build.rows.table_shard import TableShard
from pipeline_assets.corpus.document_shards import REJECTS_FILE
from pipeline_assets.corpus.formats.jsonl_zst import read_structs
from pipeline_assets.corpus.harmony.parse import ParsedMessage
from pipeline_assets.corpus.tokens.tokenizer import Tokenizer
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.spine.lineage import Lineage
from pipeline_assets.spine.rejects import Reject


class RowStore(ABC):
    """The rows of one artifact; each kind defines how to read and trace them.

    Methods raise InputError if a file or an upstream artifact is missing or damaged.
    """

    display_names: ClassVar[DisplayNames]
    holds_tokens: ClassVar[bool] = False  # rows are tokens, whose texts are stored upstream
    mixes_documents: ClassVar[bool] = False  # a row may have parts of several documents
    reads_sources: ClassVar[bool] = False  # rows were read from source files, not from an artifact
    # Names of the files with unused input rows, by the outcome of the rows.
    reject_files: ClassVar[Mapping[str, str]] = {"rejected": REJECTS_FILE}
    id_name: ClassVar[str] = "doc_id"  # name of the ids in messages
    # Fix that the error for an unknown id suggests.
    advice: ClassVar[str] = "`corpusmill trace --source` shows the fate of a source row"

    def __init__(self, artifact: Artifact, lineage: Lineage) -> None:
        self.artifact, self.lineage = artifact, lineage
        self._listings: dict[str, SourceListing] = {}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.artifact.folder}>"

    def open_upstream(self, digest: str) -> Artifact:
        """Open an upstream artifact by its digest, preferably one of the same recipe.

        Raise InputError if the artifact is missing or damaged.
        """
        return self.lineage.open_by_digest(digest, self.artifact.manifest.name)

    @property
    def tokenizer(self) -> Tokenizer | None:
        """Tokenizer of the rows; None if they are text or pairs."""
        return None

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def __iter__(self) -> Iterator[ComparableRow]:
        """Yield all rows as values to compare; nothing if rows mix documents."""

    @abstractmethod
    def row_at(self, row_number: int) -> Row:
        """Return one row, reading little else; UsageError if the number is out of range."""

    @abstractmethod
    def find(self, row_id: str) -> list[int]:
        """Return the numbers of rows with document `row_id`; some stores find only one."""

    @abstractmethod
    def origin(self, part: Part) -> "UpstreamRow | TextSource":
        """Return the upstream row or the source rows that a part came from."""

    def upstream_id(self, part: Part) -> str:
        """Return the id of a part in its upstream artifact."""
        return part.id

    def missing_message(self, row_id: str) -> tuple[str, str]:
        """Return the problem and the fix for an error about an unknown row id."""
        return f"no {self.display_names.row} has the {self.id_name} {row_id!r}", self.advice

    def check_range(self, noun: str, number: int, count: int) -> None:
        """Raise UsageError (`NOUN NUMBER not found`) if `number` is not in [0, count)."""
        if not 0 <= number < count:
            fix = f"choose 0 to {count - 1:,}" if count else "choose another artifact; this one is empty"
            raise UsageError(f"{noun} {number:,} not found", self.artifact.folder, fix)

    def row_of_token(self, position: int) -> int:
        """Return the number of the row with the token at `position`; UsageError if none."""
        what = f"artifact contains {self.display_names.contents}, not tokens"
        raise UsageError(what, self.artifact.folder, "use --row")

    def listing(self, source: str) -> SourceListing:
        """Return the listing of a source's files."""
        if source not in self._listings:
            self._listings[source] = find_listing(self.lineage, self.artifact, source)
        return self._listings[source]

    def find_by_source(self, file: str, source_row: int) -> tuple[int, bool] | None:
        """Find the row that came from a source row; None if not found.

        Return the row's number, and whether the source row was merged into it, such as an answer into a thread.
        """
        return None

    def fate(self, part: Part) -> Fate | None:
        """Return an upstream row's fate in this artifact; None if the row is not an input."""
        return None

    def rejects(self, reject_file: str = REJECTS_FILE) -> Iterator[Reject]:
        """Yield the rejects (unused input rows) in `reject_file`, in order."""
        return read_structs(self.artifact.path(reject_file), Reject)

    def find_in_reject_file(self, file: str, row: int, reject_file: str = REJECTS_FILE) -> Reject | None:
        """Find the reject of an input row in `reject_file`; None if missing."""
        return next((reject for reject in self.rejects(reject_file) if (reject.file, reject.row) == (file, row)), None)

    def find_reject(self, file: str, row: int) -> tuple[str, Reject] | None:
        """Find the outcome and reject of an input row; None if no reject file has the row."""
        for outcome, name in self.reject_files.items():
            reject = self.find_in_reject_file(file, row, name)
            if reject is not None:
                return outcome, reject
        return None

    def part_facts(self, part: Part) -> Mapping[str, Any]:
        """Return further facts about a part, such as token counts, as JSON; may be empty."""
        return {}

    def messages(self, part: Part) -> Sequence[tuple[ParsedMessage, bool]] | None:
        """Return (message, is_in_loss) for each Harmony message of a part.

        The list is empty if the text cannot be parsed. Return None if rows are not conversations, or if the row names
        an unknown loss rule.
        """
        return None

    def excerpt_text(self, part: Part) -> str:
        """Return the text from which a part's excerpt is cut; by default, the whole text."""
        return part.text

    def table_shards(self) -> list[TableShard]:
        """Return the shards of text rows; UsageError if the rows are tokens or pairs."""
        fix = "choose documents (normalized, filtered, deduplicated, …) or nemotron rows"
        raise UsageError(f"expected rows of text, got {self.artifact.manifest.kind}", self.artifact.folder, fix)


@dataclass(frozen=True)
class UpstreamRow:
    """Text row of an upstream artifact, from which a part of a downstream row came."""

    store: RowStore
    number: int

    def part(self) -> Part:
        [part] = self.store.row_at(self.number).parts
        return part
