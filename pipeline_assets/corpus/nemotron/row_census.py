"""Census of source rows: columns, messages by role, types and metadata coverage.

The functions that build rows (`has_value`, `row_correctness`, `has_tools`) decide whether metadata is present, so rows
and their inventory agree. Counts are in nested dicts, which can be added up over shards.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeAlias

from pipeline_assets.corpus.harmony.message import Refusal
from pipeline_assets.corpus.nemotron.conversation import read_conversation
from pipeline_assets.corpus.nemotron.row_columns import row_correctness
from pipeline_assets.corpus.nemotron.row_forms import read_object, standard_row, withheld_prompt
from pipeline_assets.corpus.nemotron.row_values import Row, RowFault, has_value
from pipeline_assets.corpus.nemotron.rows_recipe import RowsRecipe
from pipeline_assets.corpus.nemotron.soft_checks import CHECKS
from pipeline_assets.corpus.nemotron.tools import declared_tools, has_tools

Tally: TypeAlias = dict[str, Any]  # counts, and tallies, by name
MAX_NAMES = 1000
OTHERS = "(others)"
_MAX_NAME_CHARACTERS = 200


def add_count(tally: Tally, keys: Iterable[str], times: int) -> None:
    """Add `times` to the count at a path of keys in a tally.

    To bound memory, a new name counts as `(others)` if it would have `MAX_NAMES` siblings, and names are cut to 200
    characters.
    """
    *parents, last = (name if len(name) <= _MAX_NAME_CHARACTERS else f"{name[:_MAX_NAME_CHARACTERS]}…" for name in keys)
    for name in parents:
        tally = tally.setdefault(_bounded_name(tally, name), {})
    last = _bounded_name(tally, last)
    tally[last] = tally.get(last, 0) + times


def _bounded_name(tally: Tally, name: str) -> str:
    return name if name in tally or len(tally) < MAX_NAMES else OTHERS


def add_tally(tally: Tally, added: Mapping[str, Any]) -> None:
    for name, value in added.items():
        if isinstance(value, int):
            tally[name] = tally.get(name, 0) + value
        else:
            add_tally(tally.setdefault(name, {}), value)


# Kinds of coverage with the condition that a row meets; part of the coverage page.
COVERAGE_CONDITIONS: Final[dict[str, str]] = {
    "uuid": "`uuid`",
    "messages": "`messages`, a list that isn't empty",
    "text": "`text`, a conversation that is rendered already",
    "correctness": "a condition in `metadata` with `pass` of a `count` above 0, or with `accuracy` alone",
    "solved": "a condition in `metadata` with `pass` of a `count` above 0, which tells it",
    "difficulty_stated": "`difficulty` or `difficulty_bin`",
    "expected_answer": "`expected_answer`",
    "tools": "`tools`, a list that isn't empty, or the JSON text of one",
    "tool_calls": "a message with `tool_calls`",
    "reasoning_label": "`reasoning`, the label of the row",
    "reasoning_content": "a message with `reasoning_content`",
    "licence": "`license`",
    "formal_statement": "`formal_statement`",
    "train_turns": "`train_turns` in `metadata`, the source's loss mask",
    "prompt_withheld": "a blank first prompt, with its `seed_prompt_sha256` in `metadata`",
    **CHECKS,
}
# Columns whose values are counted.
TAG_COLUMNS: Final = ("license", "reasoning", "used_in", "capability_target", "data_source", "source")
_MESSAGE_KEYS: Final = ("tool_calls", "reasoning_content")
_ROWS_RECIPE = RowsRecipe.model_validate({"system": None})
_MAX_PENDING_COUNTS = 4096  # distinct shapes and paths in memory
NamePath = tuple[str, ...]
ValueTypes = tuple[type, ...]


def type_name(value_type: type) -> str:
    """Return the inventory's name for a type: `null`, or the type's Python name."""
    return "null" if value_type is type(None) else value_type.__name__


class RowCensus:
    """Counter of row shapes, message shapes, metadata coverage and tags.

    The shape of a row or message consists of its keys and the types of their values.
    """

    def __init__(self) -> None:
        self.rows = 0
        self._tally: Tally = {}
        self._shapes: Counter[tuple[NamePath, tuple[str, ...], ValueTypes]] = Counter()
        self._name_counts: Counter[NamePath] = Counter()

    def add_row(self, row: Mapping[str, Any], json_row: Row | None = None) -> None:
        """Count a row; for Parquet, `json_row` is the row as JSON values, otherwise None."""
        self.rows += 1
        self._count_shape(("columns",), row)
        standard = _try_standard_row(row)
        metadata, messages = row.get("metadata"), standard.get("messages")
        if isinstance(metadata, dict):
            self._count_shape(("metadata",), metadata)
        if isinstance(messages, list):
            for message in messages:
                self._add_message(message)
        json_row = standard if json_row is None else _try_standard_row(json_row)
        for name in _coverage_names(json_row):
            self._name_counts["coverage", name] += 1
        for column in TAG_COLUMNS:
            value = json_row.get(column)
            for tag in value if isinstance(value, list) else (value,):
                if tag and isinstance(tag, str):
                    self._name_counts["tags", column, tag] += 1
        if len(self._shapes) + len(self._name_counts) > _MAX_PENDING_COUNTS:
            self._flush_counts()

    def tally(self) -> Tally:
        """Return the counts of columns, metadata, messages by role, coverage and tags."""
        self._flush_counts()
        return self._tally

    def _add_message(self, message: object) -> None:
        if not isinstance(message, dict):
            self._name_counts["messages", "(no object)", "types", type_name(type(message))] += 1
            return
        role = message.get("role")
        name = role if isinstance(role, str) and role else "(no role)"
        self._count_shape(("messages", name, "keys"), message)
        calls = message.get("tool_calls")
        if isinstance(calls, list):
            for call in calls:
                self._add_call(name, call)

    def _add_call(self, role: str, call: object) -> None:
        if not isinstance(call, dict):
            self._name_counts["messages", role, "calls", "(no object)", type_name(type(call))] += 1
            return
        self._count_shape(("messages", role, "calls"), call)
        function = call.get("function")
        arguments = (function if isinstance(function, dict) else call).get("arguments")
        self._name_counts["messages", role, "arguments", type_name(type(arguments))] += 1

    def _count_shape(self, name_path: NamePath, values: Mapping[str, Any]) -> None:
        self._shapes[name_path, tuple(values), tuple(map(type, values.values()))] += 1

    def _flush_counts(self) -> None:
        """Add the counted shapes and paths to the tally, and clear them."""
        for (name_path, keys, types), times in self._shapes.items():
            for key, kind in zip(keys, types, strict=True):
                add_count(self._tally, (*name_path, key, type_name(kind)), times)
        for name_path, times in self._name_counts.items():
            add_count(self._tally, name_path, times)
        self._shapes.clear()
        self._name_counts.clear()


def _try_standard_row(row: Row) -> Row:
    """Return a row in standard form, or unchanged if normalization would reject it."""
    with suppress(RowFault, RecursionError):
        return standard_row(row, Counter())
    return row


def _failed_checks(row: Row) -> Sequence[str]:
    """List the checks that a row's text fails; empty if the row would be rejected."""
    with suppress(Refusal, UnicodeEncodeError, RecursionError):
        return read_conversation(row, declared_tools(row), _ROWS_RECIPE, "chat_if").failed_checks
    return ()


def _coverage_names(row: Row) -> list[str]:
    """List the names in `COVERAGE_CONDITIONS` whose conditions a row meets."""
    correctness, text, messages = row_correctness(row), row.get("text"), row.get("messages")
    messages = messages if isinstance(messages, list) else []
    objects = [message for message in messages if isinstance(message, dict)]
    meets = {
        **{name: has_value(row.get(name)) for name in ("uuid", "expected_answer", "formal_statement")},
        "licence": has_value(row.get("license")),
        "reasoning_label": has_value(row.get("reasoning")),
        "difficulty_stated": has_value(row.get("difficulty")) or has_value(row.get("difficulty_bin")),
        "correctness": correctness["meta_correctness"] is not None,
        "solved": correctness["meta_solved_bin"] is not None,
        "tools": has_tools(row),
        "text": isinstance(text, str) and has_value(text),
        "messages": bool(messages),
        "train_turns": read_object(row.get("metadata")).get("train_turns") is not None,
        "prompt_withheld": withheld_prompt(row) is not None,
        **dict.fromkeys(_failed_checks(row), True),
        **{key: any([has_value(message.get(key)) for message in objects]) for key in _MESSAGE_KEYS},
    }
    return [name for name, is_present in meets.items() if is_present]
