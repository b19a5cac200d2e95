"""Normalization of a block of source rows into one schema."""

import hashlib
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from pipeline_assets.corpus.chat_templates.template import ChatTemplate
from pipeline_assets.corpus.formats.arrow_columns import string_column, to_numpy
from pipeline_assets.corpus.formats.python_columns import to_column
from pipeline_assets.corpus.harmony.encode import HarmonyTokens, encode_harmony
from pipeline_assets.corpus.harmony.message import Refusal
from pipeline_assets.corpus.nemotron.conversation import RowConversation, read_conversation
from pipeline_assets.corpus.nemotron.dataset_section import RowOrigin
from pipeline_assets.corpus.nemotron.row_columns import has_completion, row_id, row_metadata, row_quality, row_stats
from pipeline_assets.corpus.nemotron.row_forms import restore_prompt, standard_row
from pipeline_assets.corpus.nemotron.row_values import Row, RowFault, RowReason
from pipeline_assets.corpus.nemotron.rows_recipe import RowsRecipe
from pipeline_assets.corpus.nemotron.schema import SCHEMA
from pipeline_assets.corpus.nemotron.tools import DeclaredTools, declared_tools
from pipeline_assets.corpus.readers.faults import Fault
from pipeline_assets.corpus.readers.nesting import is_nested_within
from pipeline_assets.corpus.removals import FORGOTTEN, NO_REMOVALS, Removals, RowKeys
from pipeline_assets.corpus.tokens.o200k_harmony import HarmonyEncoder
from pipeline_assets.spine.ledger import dropped_key, rejected_key
from pipeline_assets.spine.rejects import Reject

logger = logging.getLogger("corpusmill")
INVALID_HARMONY = "invalid_harmony"
Encoder = HarmonyEncoder | ChatTemplate


@dataclass(frozen=True)
class NormalisedRows:
    """Kept rows, rejects (unusable rows) and dropped rows of a block, each in order.

    Attributes:
        batch: Kept rows with the columns of `SCHEMA`; repeated ids are not numbered yet.
        counts: `rows` (all rows), `documents` (kept rows), `rejected/<reason>` and `dropped/<reason>`.
            `invalid_harmony/<reason>`: kept rows whose `text` is not valid Harmony, and rows dropped for this reason.
            Counts of kept rows only: `unknown_channels` (rows with an unknown channel), the sums of `_SUMMED_COLUMNS`,
            and the sums of `RowConversation.counts`.
        tool_lists: Canonical JSON of the tool lists that kept rows declare, by `tools_id`.
    """

    batch: pa.RecordBatch
    rejects: list[Reject]
    dropped: list[Reject]
    counts: Counter[str]
    tool_lists: dict[str, str]


class _Draft(NamedTuple):
    """Row at `position` of its file, before its text is encoded."""

    position: int
    id: str
    conversation: RowConversation
    tools: DeclaredTools | None
    metadata: Mapping[str, object]


def normalise_rows(
    rows: Sequence[tuple[int, Row | Fault]],
    rules: RowsRecipe,
    origin: RowOrigin,
    encoder: Encoder,
    removals: Removals = NO_REMOVALS,
) -> NormalisedRows:
    """Normalize the rows of a block independently of each other.

    `rows` has (position in the file, row) pairs. An unreadable row is a `Fault`; any other row maps columns to values.
    The caller must limit a block's size, because a column has at most 2 GiB. Rows in the list `removals` are dropped.
    """
    chat_template = encoder if isinstance(encoder, ChatTemplate) else None
    drafts, rejects, dropped = _read_drafts(rows, rules, origin, chat_template, removals)
    drafts, encoded, refused = _encode_drafts(drafts, origin, encoder)
    rejects = sorted([*rejects, *refused], key=lambda reject: reject.row)
    batch = _to_batch(drafts, encoded, origin)
    counts = Counter({name: int(to_numpy(batch.column(column)).sum()) for name, column in _SUMMED_COLUMNS.items()})
    counts["unknown_channels"] = sum(known is False for known in batch.column("quality_known_channels").to_pylist())
    counts.update(rows=len(rows), documents=len(drafts), analysis_given=0, analysis_rendered=0)
    counts.update(rejected_key(reject.reason) for reject in rejects)
    counts.update(dropped_key(row.reason) for row in dropped)
    for draft in drafts:
        counts.update(draft.conversation.counts)
        if draft.conversation.refusal is not None:
            counts[f"{INVALID_HARMONY}/{draft.conversation.refusal.reason}"] += 1
    counts.update(
        f"{INVALID_HARMONY}/{row.detail.partition(':')[0]}" for row in dropped if row.reason == INVALID_HARMONY
    )
    tools = {draft.tools.tools_id: draft.tools.canonical_json for draft in drafts if draft.tools is not None}
    return NormalisedRows(batch, rejects, dropped, counts, tools)


def _read_drafts(
    rows: Sequence[tuple[int, Row | Fault]],
    rules: RowsRecipe,
    origin: RowOrigin,
    chat_template: ChatTemplate | None,
    removals: Removals,
) -> tuple[list[_Draft], list[Reject], list[Reject]]:
    drafts, rejects, dropped = [], [], []
    for position, row in rows:
        if isinstance(row, Fault):
            rejects.append(row.to_reject(origin.file, position))
            continue
        try:
            draft = _read_draft(position, row, rules, origin, chat_template)
            reason = _drop_reason(draft, rules)
            if reason is None and removals.matches(RowKeys(draft.id, (draft.conversation.parsed.utf8.decode(),))):
                reason = FORGOTTEN, ""
            if reason is None:
                drafts.append(draft)
            else:
                dropped.append(Reject(origin.file, position, *reason))
        except Refusal as refusal:
            unused = dropped if refusal.reason == RowReason.PROMPT_WITHHELD else rejects
            unused.append(_to_reject(origin, position, refusal))
        except UnicodeEncodeError as error:
            detail = f"U+{ord(error.object[error.start]):04X} beside the text"
            rejects.append(Reject(origin.file, position, RowReason.LONE_SURROGATE.value, detail))
        except RecursionError:
            rejects.append(Reject(origin.file, position, RowReason.NESTED_TOO_DEEP.value, "a value of the row"))
    return drafts, rejects, dropped


def _drop_reason(draft: _Draft, rules: RowsRecipe) -> tuple[str, str] | None:
    """Return (reason, detail) if the rules drop a row, else None."""
    if rules.drop_invalid_harmony and draft.conversation.refusal is not None:
        return INVALID_HARMONY, str(draft.conversation.refusal)
    if rules.drop_empty_completion and not has_completion(draft.conversation):
        return "empty_completion", "the text doesn't end with words of the assistant that count in the loss"
    return None


def _read_draft(position: int, row: Row, rules: RowsRecipe, origin: RowOrigin, template: ChatTemplate | None) -> _Draft:
    counts: Counter[str] = Counter()
    row = restore_prompt(standard_row(row, counts), origin.find_prompt, counts)
    tools = declared_tools(row)
    # The depth of the tools was checked by `declared_tools`, once for many rows.
    if not all(is_nested_within(value) for column, value in row.items() if column != "tools"):
        raise RowFault(RowReason.NESTED_TOO_DEEP, "a value of the row")
    conversation = read_conversation(row, tools, rules, origin.domain, template)
    conversation = conversation._replace(counts=Counter(conversation.counts) + counts)
    metadata = row_metadata(row, conversation, origin.domain, origin.split, rules)
    identifier = row_id(row, origin.dataset, origin.split)
    for column in (identifier, *metadata.values()):
        for value in column if isinstance(column, list) else (column,):
            if type(value) is str and not value.isascii():
                value.encode("utf-8")  # raises UnicodeEncodeError, which becomes a reject
    return _Draft(position, identifier, conversation, tools, metadata)


def _encode_drafts(
    drafts: Sequence[_Draft], origin: RowOrigin, encoder: Encoder
) -> tuple[list[_Draft], list[HarmonyTokens], list[Reject]]:
    """Return the encodable drafts, their tokens, and rejects for the other drafts."""
    remaining, rejects = list(drafts), list[Reject]()
    if isinstance(encoder, ChatTemplate):
        conversations = [draft.conversation for draft in remaining]
        return remaining, [row.tokens for row in conversations if row.tokens is not None], rejects
    while True:
        try:
            return remaining, encode_harmony([draft.conversation.parsed for draft in remaining], encoder), rejects
        except Refusal as refusal:
            if refusal.text_index is None:
                raise
            draft = remaining.pop(refusal.text_index)
            rejects.append(_to_reject(origin, draft.position, refusal))
            logger.warning("%s: %s: row %r is rejected", origin.file, refusal, draft.id)


def _to_reject(origin: RowOrigin, position: int, refusal: Refusal) -> Reject:
    detail = str(refusal).removeprefix(f"{refusal.reason}: ")
    return Reject(origin.file, position, str(refusal.reason), detail)


def _to_batch(drafts: Sequence[_Draft], encoded: Sequence[HarmonyTokens], origin: RowOrigin) -> pa.RecordBatch:
    texts = string_column([draft.conversation.parsed.utf8 for draft in drafts])
    rows = [_column_values(draft, tokens, origin) for draft, tokens in zip(drafts, encoded, strict=True)]
    columns = [
        texts if field.name == "text" else to_column([row[field.name] for row in rows], field.type) for field in SCHEMA
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _column_values(draft: _Draft, tokens: HarmonyTokens, origin: RowOrigin) -> dict[str, object]:
    """Return a row's values by column, without `text`."""
    conversation, tools = draft.conversation, draft.tools
    return {
        "id": draft.id,
        "dataset": origin.dataset,
        "subset": origin.subset,
        "split": origin.split,
        "text_sha1": hashlib.sha1(conversation.parsed.utf8, usedforsecurity=False).hexdigest(),
        "loss_mode": conversation.loss_mode.name,
        "loss_rule": conversation.loss_mode.rule,
        "template": None if conversation.template is None else str(conversation.template),
        **draft.metadata,
        **row_quality(conversation, tokens, tools),
        **row_stats(conversation.parsed, tokens, conversation.loss_mode),
        "source_file": origin.file,
        "source_row": draft.position,
        "source_revision": origin.revision,
        "source_tools_id": None if tools is None else tools.tools_id,
        "source_tools_count": 0 if tools is None else len(tools.namespace.tools),
    }


_SUMMED_COLUMNS = {
    "tokens": "stats_tokens",
    "completion_tokens": "stats_completion_tokens",
    "tool_calls": "stats_tool_calls",
    "empty_messages": "quality_empty_messages",
    "control_characters": "quality_control_characters",
    "stalled_calls": "quality_stalled_calls",
}
