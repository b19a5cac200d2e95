"""Raw rows → normalised rows, a block at a time."""

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from pipeline_assets.corpus.harmony.encode import HarmonyTokens, encode_harmony
from pipeline_assets.corpus.harmony.quality_flags import QualityFlags, conversation_flags
from pipeline_assets.corpus.harmony.refusal import Refusal
from pipeline_assets.corpus.nemotron.presence import Row
from pipeline_assets.corpus.nemotron.quality import has_completion, row_quality
from pipeline_assets.corpus.nemotron.row_fault import RowFault, RowReason
from pipeline_assets.corpus.nemotron.row_ids import row_id
from pipeline_assets.corpus.nemotron.row_metadata import RowMetadata, row_metadata
from pipeline_assets.corpus.nemotron.row_settings import RowOrigin, RowSettings
from pipeline_assets.corpus.nemotron.row_text import RowText, row_text
from pipeline_assets.corpus.nemotron.schema import SCHEMA
from pipeline_assets.corpus.nemotron.stats import row_stats
from pipeline_assets.corpus.nemotron.tools_catalog import DeclaredTools, declared_tools
from pipeline_assets.corpus.readers.columns import Fault, is_nested_within
from pipeline_assets.corpus.spine.rejects import Reject
from pipeline_assets.corpus.tokens.o200k_harmony import Encoder

logger = logging.getLogger("corpusmill")


@dataclass(frozen=True)
class NormalisedRows:
    """What a block of rows gives.

    Attributes:
        batch: `SCHEMA`, the rows that are kept, in their order. Ids are not numbered yet (`row_ids`).
        rejects: the others, in their order.
        counts: `rows_in`, `rows_out`, `rejected_REASON` for each reason; of rows out: `analysis_given`,
            `analysis_rendered` (messages on the analysis channel), and what `Conversation` counts. Those of blocks add
            up.
        tools: the lists of tools that rows out declare, canonical JSON by id.
    """

    batch: pa.RecordBatch
    rejects: list[Reject]
    counts: Counter[str]
    tools: dict[str, str]


@dataclass(frozen=True)
class _Draft:
    """A row before its text is encoded."""

    number: int
    id: str
    text: RowText
    flags: QualityFlags
    tools: DeclaredTools | None
    metadata: RowMetadata


def normalise_rows(
    rows: Sequence[tuple[int, Row | Fault]], settings: RowSettings, origin: RowOrigin, encoder: Encoder
) -> NormalisedRows:
    """The rows of a block; the result of a row doesn't depend on the others.

    Args:
        rows: each with its number in the file, from 0; the row as JSON has it, or why it can't be read. Whoever cuts
            blocks bounds their bytes: all texts of a block are in memory at once, and one column of it holds 2 GiB.
    """
    drafts, rejects = _drafts(rows, settings, origin)
    encoded, refused = _encoded(drafts, origin, encoder)
    rejects = sorted([*rejects, *refused], key=lambda reject: reject.row)
    drafts = [draft for draft, tokens in zip(drafts, encoded, strict=True) if tokens is not None]
    ids = [tokens for tokens in encoded if tokens is not None]
    values = [_values(draft, tokens, settings, origin) for draft, tokens in zip(drafts, ids, strict=True)]
    counts: Counter[str] = Counter(rows_in=len(rows), rows_out=len(values), analysis_given=0, analysis_rendered=0)
    counts.update(f"rejected_{reject.reason}" for reject in rejects)
    for draft in drafts:
        counts.update(draft.text.counts)
    tools = {draft.tools.tools_id: draft.tools.canonical for draft in drafts if draft.tools is not None}
    return NormalisedRows(_batch(values), rejects, counts, tools)


def _drafts(
    rows: Sequence[tuple[int, Row | Fault]], settings: RowSettings, origin: RowOrigin
) -> tuple[list[_Draft], list[Reject]]:
    drafts, rejects = [], []
    for number, row in rows:
        if isinstance(row, Fault):
            rejects.append(Reject(origin.file, number, row.reason, row.detail))
            continue
        try:
            drafts.append(_draft(number, row, settings, origin))
        except (RowFault, Refusal) as fault:
            rejects.append(_reject(origin, number, fault))
        except UnicodeEncodeError as error:
            detail = f"U+{ord(error.object[error.start]):04X} beside the text"
            rejects.append(Reject(origin.file, number, RowReason.LONE_SURROGATE.value, detail))
        except RecursionError:
            rejects.append(Reject(origin.file, number, RowReason.NESTED_TOO_DEEP.value, "a value of the row"))
    return drafts, rejects


def _draft(number: int, row: Row, settings: RowSettings, origin: RowOrigin) -> _Draft:
    tools = declared_tools(row)
    # The tools were looked at, once for many rows.
    if not all(is_nested_within(value) for column, value in row.items() if column != "tools"):
        raise RowFault(RowReason.NESTED_TOO_DEEP, "a value of the row")
    text = row_text(row, tools, settings, origin.domain)
    flags = conversation_flags(text.parsed.conversation)
    if settings.drop_empty_completion and not has_completion(text.parsed, flags, settings.loss):
        raise RowFault(
            RowReason.EMPTY_COMPLETION, "the text doesn't end with words of the assistant that count in the loss"
        )
    metadata = row_metadata(row, text.messages, origin.domain, settings)
    its_id = row_id(row, origin.dataset, origin.split)
    for value in (its_id, *metadata.tags, *(metadata.used_in or ()), *metadata):
        if isinstance(value, str) and not value.isascii():
            value.encode("utf-8")  # raises what `_drafts` makes a reject
    return _Draft(number, its_id, text, flags, tools, metadata)


def _encoded(
    drafts: Sequence[_Draft], origin: RowOrigin, encoder: Encoder
) -> tuple[list[HarmonyTokens | None], list[Reject]]:
    """The ids of each text; None, and a reject, for one that the tokenizer fails on."""
    left = list(range(len(drafts)))
    rejects = []
    while True:
        try:
            tokens = encode_harmony([drafts[place].text.parsed for place in left], encoder)
            break
        except Refusal as refusal:
            if refusal.message is None:
                raise
            draft = drafts[left.pop(refusal.message)]
            rejects.append(_reject(origin, draft.number, refusal))
            logger.warning("%s: row %r is rejected", rejects[-1], draft.id)
    found: list[HarmonyTokens | None] = [None] * len(drafts)
    for place, one in zip(left, tokens, strict=True):
        found[place] = one
    return found, rejects


def _reject(origin: RowOrigin, number: int, fault: RowFault | Refusal) -> Reject:
    detail = str(fault).removeprefix(f"{fault.reason}: ")
    return Reject(origin.file, number, str(fault.reason), detail)


def _values(draft: _Draft, tokens: HarmonyTokens, settings: RowSettings, origin: RowOrigin) -> tuple[object, ...]:
    """The values of one row, in the schema's order."""
    text, tools = draft.text, draft.tools
    return (
        draft.id,
        origin.dataset,
        origin.subset,
        origin.split,
        text.parsed.text,
        settings.loss.identity,
        None if text.template is None else str(text.template),
        *draft.metadata,
        *row_quality(text, draft.flags, tokens, tools, settings.loss),
        *row_stats(text.parsed, tokens, settings.loss),
        origin.file,
        draft.number,
        origin.revision,
        None if tools is None else tools.tools_id,
        0 if tools is None else len(tools.namespace.tools),
    )


def _batch(values: Sequence[tuple[object, ...]]) -> pa.RecordBatch:
    columns = zip(*values, strict=True) if values else ((),) * len(SCHEMA)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
