"""Values that row stores return: rows, their parts and their fates."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.rejects import Reject


@dataclass(frozen=True)
class Part:
    """Content of one document in a row: all of it, or some of its tokens."""

    id: str  # of the document or of the normalized row
    source: str  # source or split that the document belongs to
    shard: str  # file with the text; for tokens, the text's file in the corpus
    shard_row: int  # number of the row in `shard`, from 0
    text: str  # for tokens, the decoded ids, with special tokens written as their names
    column: int = 0  # position of the part's first token in the row
    start: int = 0  # position of the part's first token in the document
    tokens: int | None = None  # number of tokens; None if unknown
    # Decoded row of the file, used by the row store; None if the artifact contains tokens.
    record: Any = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class Row:
    """Row of an artifact, numbered from 0 over all files in manifest order."""

    number: int
    parts: tuple[Part, ...]
    first_token: int | None = None  # position in the token file; None for rows of text and pairs
    token_ids: NDArray[Any] | None = None  # without padding; None for rows of text
    padding: int = 0  # number of padding tokens after `token_ids`


@dataclass(frozen=True)
class ComparableRow:
    """Values of a row for comparisons: text or tokens as bytes, and other columns."""

    id: str
    content: bytes
    other_columns: bytes = b""


@dataclass(frozen=True)
class Fate:
    """Outcome for a document or source row in one artifact, such as `dropped`."""

    artifact: Artifact
    outcome: str  # `kept`, `dropped` or another outcome that this kind of artifact defines
    detail: str = ""  # reason, or the pools, subsets or draws of the row
    # Position in the artifact, as JSON; empty if it is unknown or the artifact does not contain the row.
    place: Mapping[str, Any] = field(default_factory=dict)
    row_number: int | None = None  # first row with the document; None if unknown or missing
    facts: Mapping[str, Any] = field(default_factory=dict)  # further facts, as JSON
    lines: Sequence[str] = ()  # outcome and facts as text

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
    """Words for a kind's artifacts and rows in the output of commands."""

    artifact: str
    json_key: str  # key of the kind's artifacts in JSON
    row: str = "document"
    excerpt: str = "text"  # word before the excerpt of a row's text
    other_properties: str = ""  # properties that are compared in addition to the text
    contents: str = "documents"  # plural noun for the rows in error messages


def reject_summary(reject: Reject) -> str:
    """Format the reason of a reject with its detail."""
    return reject.reason + (f" ({reject.detail})" if reject.detail else "")
