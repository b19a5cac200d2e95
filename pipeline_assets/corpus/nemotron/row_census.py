"""What rows have: columns and their types, keys and types of messages by role, and the metadata that later steps need.

A value is there if it is neither absent nor null, "", [] or {}.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from pipeline_assets.corpus.nemotron.tally import Tally, count

# What a row is counted for, and what must be there.
COVERAGE: Final[dict[str, str]] = {
    "uuid": "`uuid`, a text",
    "messages": "`messages`, a list that isn't empty",
    "text": "`text`, a conversation that is rendered already",
    "correctness": "a condition in `metadata` with `pass` and a `count` above 0",
    "difficulty": "`difficulty` or `difficulty_bin`, or a condition with `pass` and a `count` above 0, which tells it",
    "difficulty_stated": "`difficulty` or `difficulty_bin`",
    "expected_answer": "`expected_answer`",
    "tools": "`tools`, a list that isn't empty",
    "tool_calls": "a message with `tool_calls`",
    "reasoning_label": "`reasoning`, the label of the row",
    "reasoning_content": "a message with `reasoning_content`",
    "licence": "`license`",
    "formal_statement": "`formal_statement`",
}
TAGS: Final = ("license", "reasoning", "used_in", "capability_target", "data_source", "source")  # columns told by value
_TYPE_NAMES: Final = {"NoneType": "null"}
_ANY_VALUE: Final = (
    ("expected_answer", "expected_answer"),
    ("formal_statement", "formal_statement"),
    ("license", "licence"),
    ("reasoning", "reasoning_label"),
)
_TEXTS: Final = ("uuid", "text")
_LISTS: Final = ("tools", "messages")
_OF_MESSAGES: Final = ("tool_calls", "reasoning_content")
_FOLD_AT = 4096
Path = tuple[str, ...]
Types = tuple[type, ...]


def type_name(kind: type) -> str:
    """As reports call a type: `str`, `int`, `float`, `bool`, `list`, `dict`, `null`; of Parquet also `datetime`, …"""
    return _TYPE_NAMES.get(kind.__name__, kind.__name__)


class RowCensus:
    """Counts rows. What is alike (the keys and types of rows, of messages) is counted together first.

    Attributes:
        rows: counted.
    """

    def __init__(self) -> None:
        self.rows = 0
        self._tally: Tally = {}
        self._shapes: Counter[tuple[Path, tuple[str, ...], Types]] = Counter()
        self._paths: Counter[Path] = Counter()

    def add(self, row: Mapping[str, Any]) -> None:
        """Counts one row."""
        self.rows += 1
        self._note(("columns",), row)
        get = row.get
        metadata, messages = get("metadata"), get("messages")
        if isinstance(metadata, dict):
            self._note(("metadata",), metadata)
        if isinstance(messages, list):
            for message in messages:
                self._add_message(message)
        for name in _present(row):
            self._paths["coverage", name] += 1
        for column in TAGS:
            value = get(column)
            for tag in value if isinstance(value, list) else (value,):
                if tag and isinstance(tag, str):
                    self._paths["tags", column, tag] += 1
        if len(self._shapes) + len(self._paths) > _FOLD_AT:
            self._fold()

    def tally(self) -> Tally:
        """All that was counted: `columns`, `metadata`, `messages` by role, `coverage`, `tags`."""
        self._fold()
        return self._tally

    def _add_message(self, message: object) -> None:
        if not isinstance(message, dict):
            self._paths["messages", "(no object)", "types", type_name(type(message))] += 1
            return
        role = message.get("role")
        name = role if isinstance(role, str) and role else "(no role)"
        self._note(("messages", name, "keys"), message)
        calls = message.get("tool_calls")
        if isinstance(calls, list):
            for call in calls:
                self._add_call(name, call)

    def _add_call(self, role: str, call: object) -> None:
        if not isinstance(call, dict):
            self._paths["messages", role, "calls", "(no object)", type_name(type(call))] += 1
            return
        self._note(("messages", role, "calls"), call)
        function = call.get("function")
        arguments = (function if isinstance(function, dict) else call).get("arguments")
        self._paths["messages", role, "arguments", type_name(type(arguments))] += 1

    def _note(self, path: Path, values: Mapping[str, Any]) -> None:
        self._shapes[path, tuple(values), tuple(map(type, values.values()))] += 1

    def _fold(self) -> None:
        """Shapes become keys and types; all becomes the tally."""
        for (path, keys, types), times in self._shapes.items():
            for key, kind in zip(keys, types, strict=True):
                count(self._tally, (*path, key, type_name(kind)), times)
        for path, times in self._paths.items():
            count(self._tally, path, times)
        self._shapes.clear()
        self._paths.clear()


def _present(row: Mapping[str, Any]) -> list[str]:
    """Names of `COVERAGE` that hold of a row."""
    get = row.get
    present = [name for column, name in _ANY_VALUE if get(column)]
    present += [name for name in _TEXTS if isinstance(get(name), str) and get(name)]
    present += [name for name in _LISTS if isinstance(get(name), list) and get(name)]
    is_stated, is_measured = bool(get("difficulty") or get("difficulty_bin")), has_correctness(get("metadata"))
    if is_stated or is_measured:
        present += ["difficulty", *["difficulty_stated"] * is_stated, *["correctness"] * is_measured]
    if "messages" in present:
        objects = [message for message in get("messages", ()) if isinstance(message, dict)]
        present += [key for key in _OF_MESSAGES if any([message.get(key) for message in objects])]
    return present


def has_correctness(metadata: object) -> bool:
    """Whether a condition of the metadata tells how many of its answers were right: `pass` of `count`, above 0."""
    if not isinstance(metadata, dict):
        return False
    return any(
        isinstance(condition, dict)
        and _number(condition.get("pass")) is not None
        and (_number(condition.get("count")) or 0) > 0
        for condition in metadata.values()
    )


def _number(value: object) -> float | None:
    """A number, or a text that is one."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None
