"""The tools that a row declares, the calls of them, and whether the calls fit.

A catalogue keeps each list of tools once, by its id.
"""

import hashlib
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache

import msgspec

from pipeline_assets.corpus.harmony.message import JsonValue, Message, Role, content_text
from pipeline_assets.corpus.harmony.prompt import FUNCTIONS, FunctionTool, ToolNamespace, function_namespace
from pipeline_assets.corpus.nemotron.json_schema import MAX_STEPS, Schema
from pipeline_assets.corpus.nemotron.source_rows import Row, RowFault, RowReason, canonical_text, has_value, text_of
from pipeline_assets.corpus.readers.columns import is_nested_within

# Larger lists are read each time: so what is kept stays below some tens of megabytes.
_CACHED_BYTES = 64 << 10


@dataclass(frozen=True, eq=False)
class DeclaredTools:
    """A list of tools.

    Attributes:
        tools_id: hex sha256 of `canonical`.
        canonical: the list as it came, as canonical JSON: its order counts, that of keys does not. What the catalogue
            has under the id.
        namespace: what the developer message shows, keys of schemas in the row's own order.
        parameters: JSON Schema of each tool's arguments, by its name; of several with one name, the last.
        schemas: those of tools that were called, ready for values.
    """

    tools_id: str
    canonical: str
    namespace: ToolNamespace
    parameters: Mapping[str, JsonValue]
    schemas: dict[str, Schema] = field(default_factory=dict)

    def schema(self, name: str) -> Schema:
        """Of a tool's arguments."""
        if name not in self.schemas:
            self.schemas[name] = Schema(self.parameters[name])
        return self.schemas[name]


def declared_tools(row: Row) -> DeclaredTools | None:
    """The tools of a row's column `tools`, a list or its JSON text; None if there are none.

    Raises:
        RowFault: `malformed_tools`: it is no list of functions with names.
    """
    tools = given_tools(row)
    if tools is None:
        return None
    encoded = msgspec.json.encode(tools)
    return _read(encoded) if len(encoded) <= _CACHED_BYTES else _read.__wrapped__(encoded)


def given_tools(row: Row) -> JsonValue:
    """The column `tools` as it came, or of its JSON text; None if nothing is there.

    Raises:
        RowFault: `malformed_tools`: it is text, but not JSON.
    """
    tools = row.get("tools")
    if isinstance(tools, str) and has_value(tools):
        try:
            tools = msgspec.json.decode(tools)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise RowFault(RowReason.MALFORMED_TOOLS, f"the column is text, but not JSON: {error}") from None
    return tools if has_value(tools) else None


@lru_cache(maxsize=128)
def _read(encoded: bytes) -> DeclaredTools:
    tools = msgspec.json.decode(encoded)
    if not is_nested_within(tools):
        raise RowFault(RowReason.NESTED_TOO_DEEP, "the tools of the row")
    if not isinstance(tools, list):
        raise RowFault(RowReason.MALFORMED_TOOLS, f"tools is {type(tools).__name__}")
    functions = [_function(number, tool) for number, tool in enumerate(tools)]
    canonical = canonical_text(tools)
    return DeclaredTools(
        hashlib.sha256(canonical.encode("utf-8")).hexdigest(),
        canonical,
        function_namespace(functions),
        {function.name: function.parameters for function in functions},
    )


def _function(number: int, tool: JsonValue) -> FunctionTool:
    function = tool.get("function") if isinstance(tool, dict) else None
    if not isinstance(function, dict):
        raise RowFault(RowReason.MALFORMED_TOOLS, f"tool {number} has no `function`")
    name, description = function.get("name"), function.get("description")
    if not isinstance(name, str) or not name:
        raise RowFault(RowReason.MALFORMED_TOOLS, f"tool {number} has no name")
    if has_value(description) and not isinstance(description, str):
        raise RowFault(RowReason.MALFORMED_TOOLS, f"the description of {name:.80} is {type(description).__name__}")
    return FunctionTool(name, description if isinstance(description, str) else "", function.get("parameters"))


_decode = msgspec.json.Decoder().decode
_MOST_CLAIMED = 256  # calls at once that replies to come may name: far more than there are in any row of the field


class MatchedBy(StrEnum):
    """How a reply found its call; `nothing`: it has a name, but no call of that name waits."""

    ID = "id"
    NAME = "name"
    ORDER = "order"
    NOTHING = "nothing"


class OpenCalls:
    """The calls of a conversation, and which of them wait for a reply.

    A reply belongs to the call with its id; else to the first of its name; else to the first that no later reply names.
    Calls of the last assistant message that called come first, then earlier ones that were never answered.
    """

    def __init__(self) -> None:
        self._calls: list[tuple[str | None, str]] = []
        # Places in `_calls` of those that wait, ascending: all, and by id and name. A row may have thousands.
        self._waiting: list[int] = []
        self._by_id: dict[str, list[int]] = {}
        self._by_name: dict[str, list[int]] = {}
        self._last_of_id: dict[str, str] = {}
        self._last = 0
        self._claims: Counter[tuple[str, str]] = Counter()  # of replies to come, see `_claim`

    def call(self, tool_calls: JsonValue) -> list[Message]:
        """The messages of one assistant message's `tool_calls`, in their order.

        Arguments that are text stay as they are, JSON or not; any other value becomes JSON, null and `""` become `{}`.

        Raises:
            RowFault: `malformed_tool_call`.
        """
        if not isinstance(tool_calls, list):
            raise RowFault(RowReason.MALFORMED_TOOL_CALL, f"tool_calls is {type(tool_calls).__name__}")
        self._last = len(self._calls)
        messages = []
        for call in tool_calls:
            function = call.get("function") if isinstance(call, dict) else None
            name = function.get("name") if isinstance(function, dict) else None
            if not isinstance(call, dict) or not isinstance(function, dict) or not isinstance(name, str) or not name:
                raise RowFault(RowReason.MALFORMED_TOOL_CALL, f"call {len(self._calls)} names no function")
            given = function.get("arguments")
            arguments = "{}" if given is None or given == "" else content_text(given)
            messages.append(
                Message(Role.ASSISTANT, arguments, None, f"{FUNCTIONS}.{name}", "commentary", "<|constrain|>json")
            )
            self._open(text_of(call.get("id")), name)
        return messages

    def expect(self, replies: Iterable[Row]) -> None:
        """The messages of tools that follow the last calls: a call that one of them names waits for it."""
        claims = (self._claim(reply.get("tool_call_id"), reply.get("name")) for reply in replies)
        self._claims = Counter(claim for claim in claims if claim is not None)

    def reply(self, content: str, call_id: JsonValue, name: JsonValue) -> tuple[Message, MatchedBy]:
        """The message of a tool, and how its call was found.

        Raises:
            RowFault: `reply_without_call`: it has neither an id nor a name that is known, and no call waits.
        """
        if has_value(name) and not isinstance(name, str):
            raise RowFault(RowReason.MALFORMED_MESSAGE, f"the name of a tool is {type(name).__name__}")
        if (claim := self._claim(call_id, name)) is not None:
            self._claims[claim] -= 1
        tool, matched = self._answered(text_of(call_id), name if isinstance(name, str) and name else None)
        return Message(Role.TOOL, content, f"{FUNCTIONS}.{tool}", "assistant", "commentary"), matched

    def _answered(self, call_id: str | None, name: str | None) -> tuple[str, MatchedBy]:
        if call_id is not None:
            place = self._first(self._by_id.get(call_id))
            if place is not None:
                return self._close(place), MatchedBy.ID
            if call_id in self._last_of_id:  # a second reply to a call
                return self._last_of_id[call_id], MatchedBy.ID
        if name is not None:
            place = self._first(self._by_name.get(name))
            return (name, MatchedBy.NOTHING) if place is None else (self._close(place), MatchedBy.NAME)
        place = self._unclaimed()
        if place is None:
            raise RowFault(RowReason.REPLY_WITHOUT_CALL, "a tool replies without a name, and no call waits")
        return self._close(place), MatchedBy.ORDER

    def _claim(self, call_id: JsonValue, name: JsonValue) -> tuple[str, str] | None:
        """Which call a reply names: by its id if there is one, else by its name."""
        known = text_of(call_id)
        if known is not None and known in self._last_of_id:
            return "id", known
        return ("name", name) if isinstance(name, str) and name else None

    def _unclaimed(self) -> int | None:
        """Whose turn it is where a reply names no call: not one's that a later reply names, if there is another among
        the next `_MOST_CLAIMED`. Without that bound a row of a megabyte would take minutes.
        """
        start = bisect_left(self._waiting, self._last)
        for position in range(start, min(len(self._waiting), start + _MOST_CLAIMED)) if self._claims else ():
            place = self._waiting[position]
            call_id, name = self._calls[place]
            of_name = self._by_name[name]
            is_left = self._claims["name", name] < len(of_name) - bisect_left(of_name, self._last)
            if is_left and (call_id is None or self._claims["id", call_id] <= 0):
                return place
        return self._first(self._waiting)

    def _first(self, waiting: list[int] | None) -> int | None:
        """Whose turn it is among some that wait."""
        if not waiting:
            return None
        of_last = bisect_left(waiting, self._last)
        return waiting[of_last if of_last < len(waiting) else 0]

    def _open(self, call_id: str | None, name: str) -> None:
        place = len(self._calls)
        self._calls.append((call_id, name))
        self._waiting.append(place)
        self._by_name.setdefault(name, []).append(place)
        if call_id is not None:
            self._by_id.setdefault(call_id, []).append(place)
            self._last_of_id[call_id] = name

    def _close(self, place: int) -> str:
        call_id, name = self._calls[place]
        lists = [self._waiting, self._by_name[name]]
        if call_id is not None:
            lists.append(self._by_id[call_id])
        for waiting in lists:
            del waiting[bisect_left(waiting, place)]
        return name


def read_arguments(call: Message) -> tuple[bool, JsonValue]:
    """Whether the arguments of a call are JSON, nested no deeper than a row may be, and their value."""
    try:
        arguments = _decode(call.content)
    except (msgspec.DecodeError, RecursionError):
        return False, None
    return (True, arguments) if is_nested_within(arguments) else (False, None)


def calls_fit_tools(calls: Sequence[Message], tools: DeclaredTools | None) -> bool:
    """Whether each call names a declared tool, with a JSON object for arguments that fits the tool's schema.

    True where nothing is called. A tool that declares no parameters takes any object: what it takes is not known. What
    takes too long to tell, all calls together, doesn't fit.
    """
    steps = 0
    for call in calls:
        namespace, _, name = (call.recipient or "").partition(".")
        if tools is None or namespace != FUNCTIONS or name not in tools.parameters:
            return False
        schema = tools.schema(name)
        steps += schema.steps(len(call.content))
        is_json, arguments = read_arguments(call)
        if not (is_json and isinstance(arguments, dict) and steps <= MAX_STEPS and schema.fits(arguments)):
            return False
    return True
