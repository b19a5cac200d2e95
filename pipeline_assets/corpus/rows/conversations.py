"""Rows of Parquet files of normalised conversations, of a split or of a dataset whose splits lie in one folder; and
what they ask, as Documents, each of which leads to the row that asks it.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from pipeline_assets.corpus.document_shards import REJECTS_FILE
from pipeline_assets.corpus.formats.parquet import find_in_file, open_parquet, row_of_file
from pipeline_assets.corpus.harmony.encode import LOSS_MODES, loss_messages
from pipeline_assets.corpus.harmony.message import MESSAGE, START, Refusal
from pipeline_assets.corpus.harmony.parse import ParsedMessage, parse_harmony
from pipeline_assets.corpus.nemotron.schema import DROPPED_FILE, SCHEMA
from pipeline_assets.corpus.rows.derived import DecontaminatedRows, DeduplicatedRows
from pipeline_assets.corpus.rows.documents import BESIDES, DocumentRows, SourceRows
from pipeline_assets.corpus.rows.source_row import SourceListing
from pipeline_assets.corpus.rows.store import Content, Fate, FileRows, Labels, Line, Part, Row, Source, reason_of
from pipeline_assets.corpus.scoring.scores import SCORES_FILE
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.errors import InputError

_POOLS, _RAW = "nemotron/candidate_pools/", "nemotron/raw/"
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
        why_not = "no pool's conditions hold of it, or its licence is refused"
        return fate_by_folder(self, part, "pooled", "pools") or Fate(self.artifact, "in_no_pool", why_not)


class SubsetRows(ConversationRows):
    """Rows of training subsets, a subset after the other, of what was scored: of the pools of its dataset, or, where
    there are none, of the files of its split. Upstream are the scores of each split, and these.
    """

    labels = Labels("subset", "subsets", "row", "asked", _BESIDES, "texts")
    reads_sources = False
    folder = "subset_"

    def origin(self, part: Part) -> Line | Source:
        split = part.shard.partition("/")[2].rsplit("-", 3)[0]
        dataset = split.partition("/")[0]
        [scores, *_] = [one for name, one in self._upstream(split) if not name.startswith((_POOLS, _RAW))]
        row = find_in_file(scores.path(SCORES_FILE), {"id": part.id})
        if row is None:
            raise InputError(f"no score is of {part.id!r}", scores.folder, "run `corpusmill verify` on both")
        said = row_of_file(scores.path(SCORES_FILE), row, ["pool_file", "pool_row"])
        for name, pools in self._upstream(dataset):
            if name.startswith(_POOLS):
                rows = CandidateRows(pools, self.lineage)
                return Line(rows, rows.number_of(said["pool_file"], said["pool_row"]))
        [raw] = [one for name, one in self._upstream(split) if name.startswith(_RAW)]
        listing = SourceListing(raw, self.artifact, self.lineage.root)
        place = listing.row(said["pool_file"], said["pool_row"])
        license_tag = part.record["meta_license"] or "not stated"
        digest = listing.entry(said["pool_file"])["digest"]
        return Source(said["pool_file"], (place,), digest, license_tag, "row: license")

    def _upstream(self, partition: str) -> Iterator[tuple[str, Artifact]]:
        """What it was made from, of a partition: `system/artifact/partition`, and where that lies."""
        for entry in self.artifact.manifest.identity.upstream:
            if entry["name"].split("/", 2)[2:] == [partition]:
                yield entry["name"], self.lineage.locate(entry["digest"])

    def fate(self, part: Part) -> Fate | None:
        why_not = "it has no score, no rule asks for it, or there were enough"
        return fate_by_folder(self, part, "chosen", "subsets") or Fate(self.artifact, "in_no_subset", why_not)


def fate_by_folder(store: FileRows, part: Part, outcome: str, group: str) -> Fate | None:
    """In which folders of a store, one for each pool or subset, a row is; None where it is in none."""
    values = {"id": part.id, "split": part.source}
    rows = {name: find_in_file(store.artifact.path(name), values) for name in store.files}
    places = {name: store.number_of(name, row) for name, row in rows.items() if row is not None}
    if not places:
        return None
    found = {name.partition("/")[0].removeprefix(store.folder): name for name in places}
    told = f"in {', '.join(sorted(found))}"
    return Fate(store.artifact, outcome, told, row=min(places.values()), told={group: found}, lines=[told])


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


class _Asked(DocumentRows):
    """Documents whose ids are those of normalised rows, behind the names of their splits."""

    def origin(self, part: Part) -> Line:
        rows = ConversationRows(self.listing(part.source).corpus, self.lineage)
        return line_of_source(rows, part.record.meta.source_file, part.record.meta.source_row)

    def id_upstream(self, part: Part) -> str:
        return part.id.removeprefix(f"{part.source}/")


class PromptRows(_Asked, SourceRows):
    """What the rows of a split ask that stay whatever others say."""

    labels = Labels("prompts", "prompts", "prompt", "asked", BESIDES)
    reads_sources = False
    kept_aside: ClassVar = {"dropped": DROPPED_FILE}

    def fate(self, part: Part) -> Fate | None:
        return fate_of_row(self, part)


class DecontaminatedPrompts(_Asked, DecontaminatedRows):
    """Prompts that hold no item of an evaluation set."""

    labels = Labels("decontaminated", "decontaminated", "prompt", "asked", BESIDES)


class ComparedPrompts(_Asked, DeduplicatedRows):
    """Prompts that are nearly no other."""

    labels = Labels("compared", "near_duplicates", "prompt", "asked", BESIDES)
