"""documents.parquet, read: which draws of which documents a packed set has."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from pipeline_assets.corpus.formats.arrow import strings
from pipeline_assets.corpus.formats.memmap import DOCUMENTS
from pipeline_assets.corpus.formats.parquet import open_parquet
from pipeline_assets.corpus.spine.artifact import Artifact


@dataclass(frozen=True)
class DrawnLine:
    """A line: see `packing.documents`."""

    doc_id: str
    source: str
    shard: str
    row: int
    license_tag: str
    epoch: int
    tokens: int
    packed_tokens: int
    first_row: int
    is_whole: bool

    @property
    def told(self) -> str:
        """Which epoch drew it, and how much of it is packed."""
        cut = "" if self.packed_tokens == self.tokens else f" of {self.tokens:,}"
        return f"in epoch {self.epoch}: {self.packed_tokens:,}{cut} tokens"

    @property
    def words(self) -> str:
        """Where the set has it."""
        where = f"in row {self.first_row:,}" if self.is_whole else f"of which the first is in row {self.first_row:,}"
        return f"drawn {self.told} {where}"


def drawn_lines(packed: Artifact, doc_ids: Collection[str]) -> Iterator[DrawnLine]:
    """All lines of some documents, in the order of the file; one row group is in memory at a time."""
    wanted = strings(sorted(doc_ids))
    with open_parquet(packed.path(DOCUMENTS)) as file:
        for number in range(file.num_row_groups):
            ids = file.read_row_group(number, columns=["doc_id"])["doc_id"]
            is_wanted = pc.is_in(ids, value_set=wanted)
            if pc.any(is_wanted).as_py():
                lines: pa.Table = file.read_row_group(number).filter(is_wanted)
                yield from (DrawnLine(**line) for line in lines.to_pylist())
