"""Matching of a conversation's tool calls with the replies of tools."""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Literal

from pipeline_assets.corpus.harmony.message import JsonValue, Message, Role, content_text
from pipeline_assets.corpus.harmony.prompt import FUNCTIONS_NAMESPACE
from pipeline_assets.corpus.nemotron.row_values import Row, RowFault, RowReason, has_value, to_text
from pipeline_assets.corpus.nemotron.stalled_calls import CallLog

# Maximum calls to scan per unnamed reply: real rows have far fewer, and a bad row of 1 MB would take minutes.
_MAX_SCANNED_CALLS = 256
_CallKey = tuple[Literal["id", "name"], str]
MatchedBy = Literal["id", "name", "order", "nothing"]  # nothing: no open call has the name of the reply


class OpenCalls:
    """Tool calls of a conversation; a call is open until a reply answers it.

    - A reply with the id of a known call answers that call, if it is open.
    - A reply without a known id, but with a tool's name, answers the first open call of that tool, if the tool has one.
    - A reply without a known id and without a name answers a call of the latest message with calls: the first open call
      that no later reply needs. If that message has no such call, the reply answers the first open call.

    "First" refers to this order: the calls of the latest message with calls, then all earlier calls, oldest first.
    """

    def __init__(self) -> None:
        self._calls: list[tuple[str | None, str]] = []
        # Ascending indexes of open calls in `_calls`: all (key None), by id, and by name. A row may have thousands.
        self._waiting: defaultdict[_CallKey | None, list[int]] = defaultdict(list)
        self._tool_by_id: dict[str, str] = {}
        self._latest_start = 0  # index of the first call in the latest message with calls
        self._claims: Counter[_CallKey] = Counter()  # number of later replies that name a call
        self.log = CallLog()

    def add_calls(self, tool_calls: JsonValue) -> list[Message]:
        """Open the calls of an assistant message, and return a Harmony message for each.

        Arguments that are null or `""` become `{}`. Other text is unchanged, JSON or not; other values become JSON.
        Raise RowFault if `tool_calls` is not a list of calls with the names of functions.
        """
        if not isinstance(tool_calls, list):
            raise RowFault(RowReason.MALFORMED_TOOL_CALL, f"tool_calls is {type(tool_calls).__name__}")
        self._latest_start = len(self._calls)
        messages = []
        for call in tool_calls:
            function = call.get("function") if isinstance(call, dict) else None
            name = function.get("name") if isinstance(function, dict) else None
            if not isinstance(call, dict) or not isinstance(function, dict) or not isinstance(name, str) or not name:
                raise RowFault(RowReason.MALFORMED_TOOL_CALL, f"call {len(self._calls)} names no function")
            value = function.get("arguments")
            arguments = "{}" if value is None or value == "" else content_text(value)
            recipient = f"{FUNCTIONS_NAMESPACE}.{name}"
            messages.append(Message(Role.ASSISTANT, arguments, None, recipient, "commentary", "<|constrain|>json"))
            self._open(to_text(call.get("id")), name, arguments)
        return messages

    def reserve(self, replies: Iterable[Row]) -> None:
        """Reserve the calls that are named in `replies`; drop all earlier reservations."""
        claims = (self._claimed_key(reply.get("tool_call_id"), reply.get("name")) for reply in replies)
        self._claims = Counter(claim for claim in claims if claim is not None)

    def add_reply(self, content: str, call_id: JsonValue, name: JsonValue) -> tuple[Message, MatchedBy]:
        """Close the call that a reply answers; return the reply and the kind of match.

        Raise RowFault if the name is not text, or if a reply without a name or known id finds no open call.
        """
        if has_value(name) and not isinstance(name, str):
            raise RowFault(RowReason.MALFORMED_MESSAGE, f"the name of a tool is {type(name).__name__}")
        matched: MatchedBy
        if (claim := self._claimed_key(call_id, name)) is not None:
            self._claims[claim] -= 1
            matched, key = claim
            index = self._first_open(claim)  # None for a second reply to a call
            tool = self._tool_by_id[key] if matched == "id" else key
            if index is None and matched == "name":
                matched = "nothing"
        elif (index := self._find_call_for_unnamed_reply()) is not None:
            matched, tool = "order", ""
        else:
            raise RowFault(RowReason.REPLY_WITHOUT_CALL, "a tool replies without a name, and no call waits")
        tool = self._close(index, content, tool)
        return Message(Role.TOOL, content, f"{FUNCTIONS_NAMESPACE}.{tool}", "assistant", "commentary"), matched

    def _claimed_key(self, call_id: JsonValue, name: JsonValue) -> _CallKey | None:
        """Return the key by which a reply names a call: a known id or a tool's name."""
        known = to_text(call_id)
        if known is not None and known in self._tool_by_id:
            return "id", known
        return ("name", name) if isinstance(name, str) and name else None

    def _find_call_for_unnamed_reply(self) -> int | None:
        """Return the index of the call that a reply without a name answers.

        A call is spare if no later reply needs it by id or name. Return the first spare call among the first
        `_MAX_SCANNED_CALLS` open calls of the latest message with calls, else the first open call, else None.
        """
        start = bisect_left(self._waiting[None], self._latest_start)
        for index in self._waiting[None][start : start + _MAX_SCANNED_CALLS] if self._claims else ():
            call_id, name = self._calls[index]
            same_name = self._waiting["name", name]
            # Spare: the tool has more open calls since `_latest_start` than later replies that name it.
            is_spare = self._claims["name", name] < len(same_name) - bisect_left(same_name, self._latest_start)
            if is_spare and (call_id is None or self._claims["id", call_id] <= 0):
                return index
        return self._first_open(None)

    def _first_open(self, key: _CallKey | None) -> int | None:
        """Return the index of the first open call, or None if no call is open.

        If `key` is set, calls without this key are ignored.
        """
        if not (waiting := self._waiting[key]):
            return None
        # Calls of the latest message with calls precede earlier calls.
        first_of_latest = bisect_left(waiting, self._latest_start)
        return waiting[first_of_latest if first_of_latest < len(waiting) else 0]

    def _open(self, call_id: str | None, name: str, arguments: str) -> None:
        index = self.log.add_call(name, arguments)
        self._calls.append((call_id, name))
        for key in self._call_keys(index):
            self._waiting[key].append(index)
        if call_id is not None:
            self._tool_by_id[call_id] = name

    def _close(self, index: int | None, content: str, replying_tool: str) -> str:
        """Log a reply, close the call that it answers, and return the called tool.

        If `index` is None, the reply answers no call, and `replying_tool` is returned.
        """
        self.log.add_reply(index, content)
        if index is None:
            return replying_tool
        for key in self._call_keys(index):
            del self._waiting[key][bisect_left(self._waiting[key], index)]
        return self._calls[index][1]

    def _call_keys(self, index: int) -> list[_CallKey | None]:
        call_id, name = self._calls[index]
        return [None, ("name", name)] if call_id is None else [None, ("name", name), ("id", call_id)]
