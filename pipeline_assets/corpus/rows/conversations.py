"""Rows of Parquet files of normalised conversations: of a split, or of a dataset whose splits lie in one folder."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from pipeline_assets.corpus.document_shards import REJECTS_FILE
from pipeline_assets.corpus.formats.parquet import open_parquet
from pipeline_assets.corpus.harmony.encode import LOSS_MODES, loss_messages
from pipeline_assets.corpus.harmony.message import MESSAGE, START, Refusal
from pipeline_assets.corpus.harmony.parse import ParsedMessage, parse_harmony
from pipeline_assets.corpus.nemotron.schema import DROPPED_FILE, SCHEMA
from pipeline_assets.corpus.rows.files import FileRows, find_in_file, row_of_file
from pipeline_assets.corpus.rows.store import Content, Fate, Labels, Line, Part, Row, Source, reason_of
from pipeline_assets.corpus.spine.artifact import Artifact

_BATCH_ROWS = 256  # some have megabytes
_KEYS = ("id", "split", "text")
# What is compared besides the text: all but which row of the source it was this time.
_LABELS = [name for name in SCHEMA.names if name not in _KEYS and not name.startswith("source_")]
_BESIDES = "other metadata, quality or loss"
_SHOWN = ["id", "split", "text", "loss_rule", "stats_tokens", "stats_completion_tokens"]
_SHOWN += ["source_file", "source_row", "meta_license"]


class ConversationRows(FileRows):
    """Normalised rows of one split, which were made from rows of files."""

    labels = Labels("rows", "rows", "row", "asked", _BESIDES, "texts")
    reads_sources = True
    folder = "data/"
    kept_aside: ClassVar = {"rejected": REJECTS_FILE, "dropped": DROPPED_FILE}

    def __iter__(self) -> Iterator[Content]:
        """An id is one of its split."""
        for name in self.files:
            with open_parquet(self.artifact.path(name)) as file:
                for batch in file.iter_batches(_BATCH_ROWS, columns=[*_KEYS, *_LABELS]):
                    ids, splits, texts = (batch.column(key).to_pylist() for key in _KEYS)
                    labels = zip(*(batch.column(label).to_pylist() for label in _LABELS), strict=True)
                    for row_id, split, text, said in zip(ids, splits, texts, labels, strict=True):
                        yield Content(f"{split}\0{row_id}", text.encode("utf-8"), msgspec.json.encode(said))

    def at(self, number: int) -> Row:
        name, row = self.place_of(number)
        said = row_of_file(self.artifact.path(name), row, _SHOWN)
        tokens = said["stats_tokens"]
        return Row(number, (Part(said["id"], said["split"], name, row, said["text"], tokens=tokens, record=said),))

    def find(self, row_id: str) -> list[int]:
        """The first of several: ids are those of their splits."""
        return self._find({"id": row_id})

    def _find(self, values: Mapping[str, Any]) -> list[int]:
        first = 0
        for name, rows in self.files.items():
            found = find_in_file(self.artifact.path(name), values)
            if found is not None:
                return [first + found]
            first += rows
        return []

    def find_source(self, file: str, source_row: int) -> tuple[int, bool] | None:
        found = self._find({"source_file": file, "source_row": source_row})
        return (found[0], False) if found else None

    def origin(self, part: Part) -> Line | Source:
        said, listing = part.record, self.listing(part.source)
        file, license_tag = said["source_file"], said["meta_license"] or "not stated"
        row, digest = listing.row(file, said["source_row"]), listing.entry(file)["digest"]
        return Source(file, (row,), digest, license_tag, "row: license")

    def figures(self, part: Part) -> Mapping[str, Any]:
        return {"completion_tokens": part.record["stats_completion_tokens"]}

    def messages(self, part: Part) -> Sequence[tuple[ParsedMessage, bool]] | None:
        mode = LOSS_MODES.get(part.record["loss_rule"])
        if mode is None:
            return None
        try:
            parsed = parse_harmony(part.text)
        except Refusal:
            return []
        counting = frozenset(loss_messages(parsed, mode))
        return [(message, number in counting) for number, message in enumerate(parsed.messages)]

    def beginning(self, text: str) -> str:
        """The first words of the user; all of a text that has none."""
        return text.partition(f"{START}user{MESSAGE}")[2].partition("<|")[0] or text

    def missing(self, row_id: str) -> tuple[str, str]:
        return f"no row has the id {row_id!r}", "the column `id` has them; --row takes a number"


class KeptConversations(ConversationRows):
    """Rows of a split that stay of its normalised rows, in their order."""

    labels = Labels("deduplicated", "deduplicated", "row", "asked", _BESIDES, "texts")
    reads_sources = False
    kept_aside: ClassVar = {"dropped": DROPPED_FILE}

    def origin(self, part: Part) -> Line:
        digest = self.artifact.manifest.identity.inputs[0]["digest"]
        rows = ConversationRows(self.lineage.locate(digest), self.lineage)
        return line_of_source(rows, part.record["source_file"], part.record["source_row"])

    def fate(self, part: Part) -> Fate | None:
        return fate_of_row(self, part)


class CandidateRows(ConversationRows):
    """Rows of the pools of a dataset, a pool after the other: one may be in several."""

    labels = Labels("pooled", "pooled", "row", "asked", _BESIDES, "texts")
    reads_sources = False
    folder = "candidates_"

    def origin(self, part: Part) -> Line:
        rows = KeptConversations(_split_of(self, part), self.lineage)
        return line_of_source(rows, part.record["source_file"], part.record["source_row"])

    def fate(self, part: Part) -> Fate | None:
        values = {"id": part.id, "split": part.source}
        pools = {name.partition("/")[0].removeprefix(self.folder): name for name in self.files
                 if find_in_file(self.artifact.path(name), values) is not None}  # fmt: skip
        if not pools:
            return Fate(self.artifact, "in_no_pool", "no pool's conditions hold of it, or its licence is refused")
        told = f"in {', '.join(sorted(pools))}"
        return Fate(self.artifact, "pooled", told, told={"pools": pools}, lines=[told])


def line_of_source(rows: ConversationRows, file: str, source_row: int) -> Line:
    """The row of a split upstream that came from a row of the source."""
    found = rows.find_source(file, source_row)
    assert found is not None, "the part was made from one there"
    return Line(rows, found[0])


def fate_of_row(store: FileRows, part: Part) -> Fate | None:
    """What became of a normalised row where each stays or is kept aside. None of a prompt: its row is asked itself."""
    if not isinstance(part.record, Mapping):
        return None
    place = part.record["source_file"], part.record["source_row"]
    found = store.find_source(*place)
    if found is not None:
        return store.fate_at(*store.place_of(found[0]), ["kept"])
    gone = store.set_aside(*place)
    return None if gone is None else Fate(store.artifact, gone[0], reason_of(gone[1]))


def _split_of(rows: ConversationRows, part: Part) -> Artifact:
    """The split upstream that a part of a whole dataset is of."""
    inputs = rows.artifact.manifest.identity.inputs
    [digest] = [entry["digest"] for entry in inputs if entry["name"].rpartition("/")[2] == part.source]
    return rows.lineage.locate(digest)


class LaidOutRows(ConversationRows):
    """Rows of all splits of a dataset: the files of the normalised splits under a second name."""

    labels = Labels("laid out", "laid_out", "row", "asked", _BESIDES, "texts")
    reads_sources = False

    def origin(self, part: Part) -> Line:
        return ConversationRows(_split_of(self, part), self.lineage).line(part)

    def fate(self, part: Part) -> Fate | None:
        return self.fate_at(part.shard, part.shard_row, ["kept"])
