"""Export of normalized rows, pools and subsets as chat messages in Parquet files.

Each text becomes a list of messages (`to_chat_messages`); a developer message gets the role `system`. The column
`tools` has the tools as JSON text. If no upstream artifact has the JSON, the column is null, and the tools remain in a
message. The system message of a `harmony/1` text becomes the column `harmony_system`, not a message, because chat
templates write their own system message.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline_assets.corpus.chat_templates.marked_text import parse_row
from pipeline_assets.corpus.formats.parquet import StoredParquet
from pipeline_assets.corpus.formats.parquet_tables import regroup_rows, write_table
from pipeline_assets.corpus.formats.python_columns import rows_to_table
from pipeline_assets.corpus.harmony.chats import ChatMessage, to_chat_messages
from pipeline_assets.corpus.harmony.encode import loss_message_indexes
from pipeline_assets.corpus.harmony.message import Refusal, Role, Template
from pipeline_assets.corpus.harmony.parse import ParsedText
from pipeline_assets.corpus.nemotron import schema
from pipeline_assets.spine.damage import errors_as_damage
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.ledger import dropped_key
from pipeline_assets.spine.stage import Window
from pipeline_assets.spine.staging import Receipt, StagingView

_TEXT, _BOOL = pa.string(), pa.bool_()
_CALL_TYPE = pa.struct(
    {"id": _TEXT, "type": _TEXT, "function": pa.struct({"name": _TEXT, "arguments": _TEXT}.items())}.items()
)
_MESSAGE_PARTS = ("content", "thinking", "tool_calls")
_MESSAGE_TYPE = pa.struct(
    {
        **dict.fromkeys(("role", "content", "thinking", "name", "tool_call_id"), _TEXT),
        "tool_calls": pa.list_(_CALL_TYPE),
    }.items()
)
_COLUMNS: Final = {
    "messages": (pa.list_(_MESSAGE_TYPE), "Messages in order; arguments of calls are JSON text."),
    "tools": (_TEXT, "Tools of the row as JSON text; null without tools, or if the system message contains them."),
    "loss": (
        pa.list_(pa.struct(dict.fromkeys(_MESSAGE_PARTS, _BOOL).items())),
        "For each message, whether its content, thinking and calls count in the loss.",
    ),
    "harmony_system": (_TEXT, "System message of the Harmony text; null without one."),
}
_COPIED_COLUMNS = ["id", "dataset", "subset", "split", "meta_domain", "meta_solved_bin", "meta_difficulty_bin"]
_COPIED_COLUMNS += ["meta_license", "source_file", "source_row", "source_revision"]
_COPIED_FIELDS = [schema.SCHEMA.field(name) for name in _COPIED_COLUMNS]
_SCHEMA = pa.schema([(name, kind) for name, (kind, _) in _COLUMNS.items()] + _COPIED_FIELDS)
COLUMN_DESCRIPTIONS: Final = schema.COLUMN_DESCRIPTIONS | {name: text for name, (_, text) in _COLUMNS.items()}
_READ_COLUMNS = ["text", "template", "loss_mode", "loss_rule", "source_tools_id"]
_BATCH_ROWS, _ROW_GROUP_ROWS = 256, 1024
_catalogue_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
NOT_HARMONY_COUNT_KEY = dropped_key("not_harmony")


@dataclass(frozen=True)
class ChatFile:
    """File of rows to convert; the converted rows are one shard of the export.

    `has_all_tools` states whether the data root has all upstream artifacts. If so, a row whose tool list is in no
    catalogue keeps its tools in its messages. Otherwise, such a row raises InputError.
    """

    name: str
    relative_path: str  # in the artifact and in the export
    input_file: Path
    tool_catalogues: tuple[Path, ...]  # JSON files that map ids to the tool lists of the file's split
    has_all_tools: bool
    rows: int = 0  # so the engine does not search the file for poison rows


def write_chat_file(source: ChatFile, window: Window, folder: StagingView) -> Receipt:
    """Convert the rows of a file; drop rows with invalid text or without messages.

    The receipt counts all rows as `rows`, converted rows as `documents` and, if any, dropped rows as
    `NOT_HARMONY_COUNT_KEY`. Raise InputError if the tools of a row are missing (see `ChatFile.has_all_tools`), or if a
    row's loss rule is unknown.
    """
    path = source.relative_path
    with StoredParquet(source.input_file) as rows:
        tables = regroup_rows(_convert_rows(source, rows), _SCHEMA, _ROW_GROUP_ROWS)
        written, count = write_table(folder.path(path), path, tables, _SCHEMA), rows.metadata.num_rows
    counts = {"rows": count, "documents": written.rows}
    return Receipt([written], counts | ({NOT_HARMONY_COUNT_KEY: count - written.rows} if count > written.rows else {}))


def _convert_rows(source: ChatFile, rows: pq.ParquetFile) -> Iterator[pa.Table]:
    tools: dict[str, msgspec.Raw] = {}
    for catalogue in source.tool_catalogues:
        with errors_as_damage(catalogue, "catalogue of tools"):
            tools |= _catalogue_decoder.decode(catalogue.read_bytes())
    for batch in rows.iter_batches(_BATCH_ROWS, columns=[*_READ_COLUMNS, *_COPIED_COLUMNS]):
        chats = [chat for row in batch.to_pylist() if (chat := _convert_row(row, tools, source)) is not None]
        yield rows_to_table(chats, _SCHEMA)


def _convert_row(row: Mapping[str, Any], tools: Mapping[str, msgspec.Raw], source: ChatFile) -> dict[str, Any] | None:
    try:
        parsed, mode = parse_row(row["text"] or "", row["template"], row["loss_mode"], row["loss_rule"])
    except Refusal:
        return None
    except ValueError as error:
        raise InputError(str(error), f"{source.relative_path} row {row['id']}", "normalize the rows again") from None
    in_loss = frozenset(loss_message_indexes(parsed, mode))
    declared = tools.get(row["source_tools_id"] or "")
    if declared is None and row["source_tools_id"] is not None and not source.has_all_tools:
        fix = "pull the normalized rows with --upstream, or pass their data root with --data"
        raise InputError(f"the tools of row {row['id']} are not in the data root", source.relative_path, fix)
    own_system = next(iter(parsed.conversation), None) if row["template"] == Template.HARMONY_1 else None
    system = own_system.content if own_system is not None and own_system.role is Role.SYSTEM else None
    messages, loss = chat_messages(parsed, in_loss, omits_tools=declared is not None, skips_system=system is not None)
    if not messages:
        return None
    tools_json = None if declared is None else bytes(declared).decode()
    columns = {"messages": messages, "tools": tools_json, "loss": loss, "harmony_system": system}
    return columns | {name: row[name] for name in _COPIED_COLUMNS}


def chat_messages(
    parsed: ParsedText, in_loss: frozenset[int], omits_tools: bool, skips_system: bool
) -> tuple[list[ChatMessage], list[dict[str, bool]]]:
    """Return a text's chat messages, and which parts of each count in the loss.

    `in_loss` has the numbers of the Harmony messages that count in the loss. If `omits_tools`, developer messages omit
    their tools; if `skips_system`, the first message is omitted. The second list has a dict for each chat message; the
    dict maps each name in `_MESSAGE_PARTS` to True if that part counts in the loss.
    """
    chats, parts = to_chat_messages(parsed.conversation[skips_system:], omits_tools)
    complete = [{field.name: chat.get(field.name) for field in _MESSAGE_TYPE} for chat in chats]
    flags = [{part: number + skips_system in in_loss for part, number in numbers.items()} for numbers in parts]
    return complete, [{part: counts.get(part, False) for part in _MESSAGE_PARTS} for counts in flags]
