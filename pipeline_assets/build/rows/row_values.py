"""Values of row stores: rows, their parts and their fates, with words for output."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.rejects import Reject


@dataclass(frozen=True)
class Part:
    """Content of one document in a row: all of it, or some of its tokens.

    Attributes:
        id: Id of the document or of the normalised row.
        source: Source or split that the document belongs to.
        shard, shard_row: File and row number from 0. For tokens, both refer to the corpus that contains the text.
        text: Text; in an artifact of tokens, the decoded ids, with special tokens written as their names.
        column, start: Position of the part's first token in the row and in the document.
        tokens: Number of the part's tokens; None if unknown.
        record: Decoded row of the file, used by the row store; None if the artifact contains tokens.
    """

    id: str
    source: str
    shard: str
    shard_row: int
    text: str
    column: int = 0
    start: int = 0
    tokens: int | None = None
    record: Any = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class Row:
    """Row of an artifact, numbered from 0 over all files in manifest order.

    Attributes:
        first_token: Position of the row's first token in the token file; None for rows of text and pairs.
        token_ids: Token ids without padding; None for rows of text.
        padding: Number of padding tokens after `token_ids`.
    """

    number: int
    parts: tuple[Part, ...]
    first_token: int | None = None
    token_ids: NDArray[Any] | None = None
    padding: int = 0


@dataclass(frozen=True)
class ComparableRow:
    """Values of a row for comparisons: text or tokens as bytes, and other columns."""

    id: str
    content: bytes
    other_columns: bytes = b""


@dataclass(frozen=True)
class Fate:
    """Outcome for a document or source row in one artifact, such as `dropped`.

    Attributes:
        outcome: `kept`, `dropped` or another outcome that this kind of artifact defines.
        detail: Reason, or the pools, subsets or draws of the row, as text; may be empty.
        place: Position in the artifact, as JSON; empty if unknown or if the artifact does not contain the row.
        row_number: Number of the first row with the document; None if unknown or missing.
        lines: Outcome and `facts` (as JSON) as lines of text.
    """

    artifact: Artifact
    outcome: str
    detail: str = ""
    place: Mapping[str, Any] = field(default_factory=dict)
    row_number: int | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    lines: Sequence[str] = ()

    @property
    def summary(self) -> str:
        """Place of the row in the artifact; if unknown, the outcome with the reason."""
        outcome = self.outcome.replace("_", " ")
        if not self.place:
            is_named = self.detail.startswith(outcome)
            return self.detail if is_named else f"{outcome}: {self.detail}" if self.detail else outcome
        if "sequence" in self.place:
            return "sequence {sequence:,}, tokens {first_token:,} to {last_token:,}".format(**self.place)
        return f"{outcome}, {self.place['shard']} row {self.place['shard_row']:,}"


@dataclass(frozen=True)
class DisplayNames:
    """Words for a kind's artifacts and rows in the output of commands.

    Attributes:
        json_key: Key of the kind's artifacts in JSON.
        excerpt: Word that introduces the excerpt of a row's text.
        other_properties: Properties that are compared in addition to the text; empty if none.
        contents: Plural noun for the rows in error messages.
    """

    artifact: str
    json_key: str
    row: str = "document"
    excerpt: str = "text"
    other_properties: str = ""
    contents: str = "documents"


def reject_summary(reject: Reject) -> str:
    """Format the reason of a reject with its detail."""
    return reject.reason + (f" ({reject.detail})" if reject.detail else "")
