"""Rows of Parquet files of normalised conversations, of a split or of a dataset whose splits lie in one folder; and
what they ask, as Documents, each of which leads to the row that asks it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from pipeline_assets.build.rows.derived import DecontaminatedRows, DeduplicatedRows
from pipeline_assets.build.rows.documents import OTHER_CHANGES, DocumentRows, SourceRows
from pipeline_assets.build.rows.file_rows import FileRows, RowSchema
from pipeline_assets.build.rows.source_row import SourceListing
from pipeline_assets.build.rows.store import Fate, Labels, Part, Source, UpstreamRow, reject_summary, source_in
from pipeline_assets.corpus.document_shards import REJECTS_FILE
from pipeline_assets.corpus.formats.parquet_rows import find_in_file, row_of_file
from pipeline_assets.corpus.harmony.encode import LOSS_MODES, loss_messages
from pipeline_assets.corpus.harmony.message import MESSAGE, START, Refusal
from pipeline_assets.corpus.harmony.parse import ParsedMessage, parse_harmony
from pipeline_assets.corpus.nemotron.schema import DROPPED_FILE, SCHEMA
from pipeline_assets.corpus.scoring.scores import SCORES_FILE
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.errors import InputError

_POOLS, _RAW = "nemotron/candidate_pools/", "nemotron/raw/"
_OTHER_CHANGES = "other metadata, quality or loss"
_SCHEMA = RowSchema(
    folder="data/",
    struct=None,
    key=("split", "id"),
    source="split",
    text="text",
    file="source_file",
    row="source_row",
    # All but which row of the source it was this time.
    labels=tuple(
        name for name in SCHEMA.names if name not in ("id", "split", "text") and not name.startswith("source_")
    ),
    tokens="stats_tokens",
)


def _labels(artifact: str, group: str) -> Labels:
    return Labels(artifact, group, "row", "asked", _OTHER_CHANGES, "texts")


class ConversationRows(FileRows):
    """Normalised rows of one split, which were made from rows of files.

    Attributes:
        upstream_rows: Row store of the upstream split that contains each row; None if rows were read from files.
    """

    labels = _labels("rows", "rows")
    schema = _SCHEMA
    reads_sources = True
    id_name, advice = "id", "the column `id` has them; --row takes a number"
    upstream_rows: "ClassVar[type[ConversationRows] | None]" = None
    reject_files: ClassVar = {"rejected": REJECTS_FILE, "dropped": DROPPED_FILE}

    def origin(self, part: Part) -> UpstreamRow | Source:
        file, row = self.source_place(part)
        if self.upstream_rows is None:
            return source_in(self.listing(part.source), file, [row], license_tag(part), "row: license")
        inputs = self.artifact.manifest.identity.inputs
        digest = next(entry["digest"] for entry in inputs if entry["name"].rpartition("/")[2] == part.source)
        return self.upstream_rows(self.lineage.locate(digest), self.lineage).upstream_row_for_source(file, row)

    def fate(self, part: Part) -> Fate | None:
        return fate_by_source_row(self, part)

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


class KeptConversations(ConversationRows):
    """Rows of a split that stay of its normalised rows, in their order."""

    labels = _labels("deduplicated", "deduplicated")
    reads_sources, input_kinds = False, ConversationRows
    reject_files: ClassVar = {"dropped": DROPPED_FILE}


class LayoutRows(ConversationRows):
    """Rows of all splits of a dataset: the files of the normalised splits under a second name."""

    labels = _labels("laid out", "laid_out")
    reads_sources, input_kinds = False, ConversationRows


class _FolderRows(ConversationRows):
    """Rows in folders, one folder after the other: one row may be in several.

    Attributes:
        group: what the folders are called, as JSON has it.
        outcome: of a row that is in some.
        fallback: outcome of a row that is in none, and why.
    """

    reads_sources = False
    group: ClassVar[str]
    outcome: ClassVar[str]
    fallback: ClassVar[tuple[str, str]]

    def fate(self, part: Part) -> Fate | None:
        values = {"id": part.id, "split": part.source}
        places = {name: found for name in self.files if (found := self.find_place(values, [name])) is not None}
        if not places:
            return Fate(self.artifact, *self.fallback)
        folders = {name.partition("/")[0].removeprefix(self.schema.folder): name for name in places}
        told, first = f"in {', '.join(sorted(folders))}", min(self.row_number(*place) for place in places.values())
        return Fate(self.artifact, self.outcome, told, row=first, details={self.group: folders}, lines=[told])


class CandidateRows(_FolderRows):
    """Rows of the pools of a dataset."""

    labels = _labels("pooled", "pooled")
    schema = replace(_SCHEMA, folder="candidates_")
    upstream_rows = KeptConversations
    group, outcome = "pools", "pooled"
    fallback = "in_no_pool", "no pool's conditions hold of it, or its licence is refused"


class SubsetRows(_FolderRows):
    """Rows of training subsets of what was scored: of the pools of its dataset, or, where there are none, of the files
    of its split. Upstream are the scores of each split, and these.
    """

    labels = _labels("subset", "subsets")
    schema = replace(_SCHEMA, folder="subset_")
    group, outcome = "subsets", "chosen"
    fallback = "in_no_subset", "it has no score, no rule asks for it, or there were enough"

    def origin(self, part: Part) -> UpstreamRow | Source:
        split = part.shard.partition("/")[2].rsplit("-", 3)[0]
        dataset = split.partition("/")[0]
        [scores, *_] = [one for name, one in self._upstream(split) if not name.startswith((_POOLS, _RAW))]
        row = find_in_file(scores.path(SCORES_FILE), {"id": part.id})
        if row is None:
            raise InputError(f"no score is of {part.id!r}", scores.folder, "run `corpusmill verify` on both")
        said = row_of_file(scores.path(SCORES_FILE), row, ["pool_file", "pool_row"])
        file, row = said["pool_file"], said["pool_row"]
        for name, pools in self._upstream(dataset):
            if name.startswith(_POOLS):
                rows = CandidateRows(pools, self.lineage)
                return UpstreamRow(rows, rows.row_number(file, row))
        [raw] = [one for name, one in self._upstream(split) if name.startswith(_RAW)]
        listing = SourceListing(raw, self.artifact, self.lineage.root)
        return source_in(listing, file, [row], license_tag(part), "row: license")

    def _upstream(self, partition: str) -> Iterator[tuple[str, Artifact]]:
        """What it was made from, of a partition: `system/artifact/partition`, and where that lies."""
        for entry in self.artifact.manifest.identity.upstream:
            if entry["name"].split("/", 2)[2:] == [partition]:
                yield entry["name"], self.lineage.locate(entry["digest"])


def license_tag(part: Part) -> str:
    """The licence tag of a row."""
    return str(part.record["meta_license"] or "not stated")


def fate_by_source_row(store: FileRows, part: Part) -> Fate | None:
    """What became of a normalised row where each stays or is kept aside. None of a prompt: its row is asked itself."""
    if not isinstance(part.record, Mapping):
        return None
    place = part.record["source_file"], part.record["source_row"]
    found = store.find_source(*place)
    if found is not None:
        return store.fate_at(*store.locate_row(found[0]), ["kept"])
    gone = store.find_reject(*place)
    return None if gone is None else Fate(store.artifact, gone[0], reject_summary(gone[1]))


class _PromptDocuments(DocumentRows):
    """Documents whose ids are those of normalised rows, behind the names of their splits."""

    def origin(self, part: Part) -> UpstreamRow:
        rows = ConversationRows(self.listing(part.source).corpus, self.lineage)
        return rows.upstream_row_for_source(*self.source_place(part))

    def upstream_id(self, part: Part) -> str:
        return part.id.removeprefix(f"{part.source}/")


class PromptRows(_PromptDocuments, SourceRows):
    """What the rows of a split ask that stay whatever others say."""

    labels = Labels("prompts", "prompts", "prompt", "asked", OTHER_CHANGES)
    reads_sources = False
    reject_files: ClassVar = {"dropped": DROPPED_FILE}

    def fate(self, part: Part) -> Fate | None:
        return fate_by_source_row(self, part)


class DecontaminatedPrompts(_PromptDocuments, DecontaminatedRows):
    """Prompts that hold no item of an evaluation set."""

    labels = Labels("decontaminated", "decontaminated", "prompt", "asked", OTHER_CHANGES)


class ComparedPrompts(_PromptDocuments, DeduplicatedRows):
    """Prompts that are nearly no other."""

    labels = Labels("compared", "near_duplicates", "prompt", "asked", OTHER_CHANGES)
