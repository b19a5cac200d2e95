"""Rows of normalized conversations and of their prompts."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from pipeline_assets.build.rows.derived import DecontaminatedRows, DeduplicatedRows
from pipeline_assets.build.rows.documents import OTHER_PROPERTIES, DocumentRows, SourceRows
from pipeline_assets.build.rows.file_rows import FileRows, RowSchema
from pipeline_assets.build.rows.row_values import DisplayNames, Fate, Part, reject_summary
from pipeline_assets.build.rows.source_listing import SourceListing, TextSource
from pipeline_assets.build.rows.store import UpstreamRow
from pipeline_assets.corpus.chat_templates.marked_text import parse_row, uses_chat_template
from pipeline_assets.corpus.document_shards import REJECTS_FILE
from pipeline_assets.corpus.formats.parquet_rows import find_row, read_row
from pipeline_assets.corpus.harmony.encode import loss_message_indexes
from pipeline_assets.corpus.harmony.message import MESSAGE, START, Refusal, Role
from pipeline_assets.corpus.harmony.parse import ParsedMessage
from pipeline_assets.corpus.nemotron.schema import DROPPED_FILE, SCHEMA
from pipeline_assets.corpus.scoring.scores import NO_SCORE, SCORES_FILE
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.errors import InputError

_POOLS_PREFIX, _RAW_PREFIX = "nemotron/candidate_pools/", "nemotron/raw/"
_OTHER_PROPERTIES = "other metadata, quality or loss"
_SCHEMA = RowSchema(
    path_prefix="data/",
    struct=None,
    key_columns=("split", "id"),
    source_column="split",
    text_column="text",
    file_column="source_file",
    row_column="source_row",
    # All except the source row, which may differ between builds.
    other_columns=tuple(
        name for name in SCHEMA.names if name not in ("id", "split", "text") and not name.startswith("source_")
    ),
    tokens_column="stats_tokens",
)


def _display_names(artifact: str, json_key: str) -> DisplayNames:
    return DisplayNames(artifact, json_key, "row", "asked", _OTHER_PROPERTIES, "texts")


def _split_of_file(path: str) -> str:
    """Return a path's split: `math/low` for `all/math/low-00000-of-00001.parquet`."""
    return path.partition("/")[2].rsplit("-", 3)[0]


def _fate_by_source_row(store: FileRows, part: Part) -> Fate | None:
    """Find a normalized row's fate in `store` by its source row; None if not found."""
    if not isinstance(part.record, Mapping):
        return None
    source_place = part.record["source_file"], part.record["source_row"]
    match = store.find_by_source(*source_place)
    if match is not None:
        return store.fate_at(*store.locate_row(match[0]), ["kept"])
    reject = store.find_reject(*source_place)
    return None if reject is None else Fate(store.artifact, reject[0], reject_summary(reject[1]))


class ConversationRows(FileRows):
    """Normalized rows of one split."""

    display_names = _display_names("rows", "rows")
    schema = _SCHEMA
    reads_sources = True
    id_name, advice = "id", "use an id of the column `id`, or a row number with --row"
    # Row store of the input artifacts; None if the rows were read from files.
    upstream_class: "ClassVar[type[ConversationRows] | None]" = None
    reject_files: ClassVar = {"rejected": REJECTS_FILE, "dropped": DROPPED_FILE}
    fate = _fate_by_source_row

    def find(self, row_id: str) -> list[int]:
        """Return the row number of the id's first row in each split that has the id."""
        numbers: dict[str, int] = {}
        for name in self.rows_by_file:
            split = _split_of_file(name)
            if split not in numbers and (place := self.find_place({self.schema.id_column: row_id}, [name])) is not None:
                numbers[split] = self.row_number(*place)
        return sorted(numbers.values())

    def origin(self, part: Part) -> UpstreamRow | TextSource:
        file, row = self.source_place(part)
        if self.upstream_class is None:
            return self.listing(part.source).text_source(file, [row], license_tag(part), "row: license")
        inputs = self.artifact.manifest.identity.inputs
        digest = next(entry["digest"] for entry in inputs if entry["name"].rpartition("/")[2] == part.source)
        return self.upstream_class(self.open_upstream(digest), self.lineage).upstream_row_for_source(file, row)

    def part_facts(self, part: Part) -> Mapping[str, Any]:
        count = part.record["stats_completion_tokens"]  # null if the pools came without it
        return {} if count is None else {"completion_tokens": count}

    def messages(self, part: Part) -> Sequence[tuple[ParsedMessage, bool]] | None:
        try:
            parsed, mode = parse_row(part.text, part.record["template"], "", part.record["loss_rule"])
            counting = frozenset(loss_message_indexes(parsed, mode))
        except Refusal:
            return []
        except ValueError:  # an unknown rule
            return None
        return [(message, number in counting) for number, message in enumerate(parsed.messages)]

    def excerpt_text(self, part: Part) -> str:
        """Return the user's first message, or the whole text without one."""
        if uses_chat_template(part.record["template"]):
            conversation = [parsed.message for parsed, _ in self.messages(part) or ()]
            return next((message.content for message in conversation if message.role is Role.USER), part.text)
        return part.text.partition(f"{START}user{MESSAGE}")[2].partition("<|")[0] or part.text


class KeptConversations(ConversationRows):
    """Rows of a split that deduplication keeps, in unchanged order."""

    display_names = _display_names("deduplicated", "deduplicated")
    reads_sources = False
    upstream_class = ConversationRows
    reject_files: ClassVar = {"dropped": DROPPED_FILE}


class LayoutRows(ConversationRows):
    """Normalized rows of all splits of a dataset, in the layout of a hub dataset."""

    display_names = _display_names("laid out", "laid_out")
    reads_sources = False
    upstream_class = ConversationRows


class _FolderRows(ConversationRows):
    """Rows in several folders, such as pools; a row may be in more than one folder.

    `folders_key` names a row's folders in `Fate.facts`. `absent_outcome` is the outcome for a row in no folder.
    """

    reads_sources, repeats_rows = False, True
    folders_key: ClassVar[str]
    outcome: ClassVar[str]
    absent_outcome: ClassVar[str]

    def fate(self, part: Part) -> Fate | None:
        values = {"id": part.id, "split": part.source}
        if dataset := (part.record or {}).get("dataset"):  # training subsets have rows of several datasets
            values["dataset"] = dataset
        places = {name: place for name in self.rows_by_file if (place := self.find_place(values, [name])) is not None}
        if not places:
            reasons = self.drop_reasons(values)
            detail = f"dropped as {' or '.join(reasons)}" if reasons else "not among the rows it was built from"
            return Fate(self.artifact, self.absent_outcome, detail)
        folders = {name.partition("/")[0].removeprefix(self.schema.path_prefix): name for name in places}
        detail, first = f"in {', '.join(sorted(folders))}", min(self.row_number(*place) for place in places.values())
        facts = {self.folders_key: folders}
        return Fate(self.artifact, self.outcome, detail, row_number=first, facts=facts, lines=[detail])

    def drop_reasons(self, values: Mapping[str, Any]) -> list[str]:
        """List reasons why the row with these values may have been dropped."""
        return [reason for reason, count in self.artifact.manifest.identity.ledger.dropped.items() if count]


class PoolRows(_FolderRows):
    """Rows of the pools of a dataset."""

    display_names = _display_names("pooled", "pooled")
    schema = replace(_SCHEMA, path_prefix="candidates_")
    upstream_class = KeptConversations
    folders_key, outcome, absent_outcome = "pools", "pooled", "in_no_pool"


class SubsetRows(_FolderRows):
    """Rows of training subsets.

    Each split has two inputs: scores, and scored rows. The scored rows are in pools of the dataset or in raw files.
    """

    display_names = _display_names("subset", "subsets")
    schema = replace(_SCHEMA, path_prefix="subset_")
    folders_key, outcome, absent_outcome = "subsets", "chosen", "in_no_subset"

    def origin(self, part: Part) -> UpstreamRow | TextSource:
        split, prefixes = _split_of_file(part.shard), (_POOLS_PREFIX, _RAW_PREFIX)
        [scores, *_] = [artifact for name, artifact in self._open_inputs(split) if not name.startswith(prefixes)]
        row = find_row(scores.path(SCORES_FILE), {"id": part.id})
        if row is None:
            raise InputError(f"row {part.id!r} has no score", scores.folder, "run `corpusmill verify` on both")
        place = read_row(scores.path(SCORES_FILE), row, ["pool_file", "pool_row"])
        file, row = place["pool_file"], place["pool_row"]
        for name, pools in self._open_inputs(split.partition("/")[0]):
            if name.startswith(_POOLS_PREFIX):
                rows = PoolRows(pools, self.lineage)
                return UpstreamRow(rows, rows.row_number(file, row))
        [raw] = [artifact for name, artifact in self._open_inputs(split) if name.startswith(_RAW_PREFIX)]
        listing = SourceListing(raw, self.artifact, self.lineage.root)
        return listing.text_source(file, [row], license_tag(part), "row: license")

    def drop_reasons(self, values: Mapping[str, Any]) -> list[str]:
        """List possible reasons for dropping a row; empty if the scores lack the row.

        The scores may lack rows because `max_rows` limits how many are scored.
        """
        reasons = super().drop_reasons(values)
        try:
            place = self._find_score(values)
        except InputError:  # an input is missing
            return reasons
        if place is None:
            return []
        has_score = read_row(*place, ["nll_mean"])["nll_mean"] is not None
        return [reason for reason in reasons if (reason == NO_SCORE) != has_score]

    def _find_score(self, values: Mapping[str, Any]) -> tuple[Path, int] | None:
        """Return (scores file, row number) for a row with these values; None if missing."""
        for entry in self.artifact.manifest.identity.upstream:
            if entry["name"].startswith(_POOLS_PREFIX):
                pools = PoolRows(self.open_upstream(entry["digest"]), self.lineage)
                partition = f"{entry['name'].removeprefix(_POOLS_PREFIX)}/{values['split']}"
                for _, scores in self._open_inputs(partition) if pools.find_place(values) is not None else ():
                    row = find_row(scores.path(SCORES_FILE), {"id": values["id"]})
                    return None if row is None else (scores.path(SCORES_FILE), row)
        return None

    def _open_inputs(self, partition: str) -> Iterator[tuple[str, Artifact]]:
        """Yield (name, artifact) for each input of the dataset or split `partition`."""
        for entry in self.artifact.manifest.identity.upstream:
            if entry["name"].split("/", 2)[2:] == [partition]:
                yield entry["name"], self.open_upstream(entry["digest"])


def license_tag(part: Part) -> str:
    return str(part.record["meta_license"] or "not stated")


class _PromptDocuments(DocumentRows):
    """Prompts as Documents with ids `SPLIT/ID`; `ID` is the id of the normalized row."""

    def origin(self, part: Part) -> UpstreamRow:
        rows = ConversationRows(self.listing(part.source).corpus, self.lineage)
        return rows.upstream_row_for_source(*self.source_place(part))

    def upstream_id(self, part: Part) -> str:
        return part.id.removeprefix(f"{part.source}/")


class PromptRows(_PromptDocuments, SourceRows):
    """Prompts of a split's rows, except rows that the prompt rules drop."""

    display_names = DisplayNames("prompts", "prompts", "prompt", "asked", OTHER_PROPERTIES)
    reads_sources = False
    reject_files: ClassVar = {"dropped": DROPPED_FILE}
    fate = _fate_by_source_row


class DecontaminatedPrompts(_PromptDocuments, DecontaminatedRows):
    """Prompts that contain no items of evaluation sets."""

    display_names = DisplayNames("decontaminated", "decontaminated", "prompt", "asked", OTHER_PROPERTIES)


class DeduplicatedPrompts(_PromptDocuments, DeduplicatedRows):
    """Prompts that are not near duplicates of kept prompts."""

    display_names = DisplayNames("compared", "near_duplicates", "prompt", "asked", OTHER_PROPERTIES)
