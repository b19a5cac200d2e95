"""Matching of tool replies to the calls of a conversation."""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Literal

from pipeline_assets.corpus.harmony.message import (
    JsonValue,
    Message,
    Role,
    content_text,
)
from pipeline_assets.corpus.harmony.prompt import FUNCTIONS
from pipeline_assets.corpus.nemotron.row_values import Row, RowFault, RowReason, has_value, to_text
from pipeline_assets.corpus.nemotron.stalled_calls import CallLog

_MOST_CLAIMED = 256  # calls at once that replies to come may name: far more than there are in any row of the field


_Key = tuple[Literal["id", "name"], str]
MatchedBy = Literal["id", "name", "order", "nothing"]  # nothing: it has a name, but no call of that name waits


class OpenCalls:
    """The calls of a conversation, and which of them wait for a reply.

    A reply belongs to the call with its id; else to the first of its name; else to the first that no later reply names.
    Calls of the last assistant message that called come first, then earlier ones that were never answered.
    """

    def __init__(self) -> None:
        self._calls: list[tuple[str | None, str]] = []
        # Places in `_calls` of those that wait, ascending: all, by id, and by name. A row may have thousands.
        self._waiting: defaultdict[_Key | None, list[int]] = defaultdict(list)
        self._last_of_id: dict[str, str] = {}
        self._last = 0
        self._claims: Counter[_Key] = Counter()  # of replies to come, see `_claim`
        self.log = CallLog()

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
            self._open(to_text(call.get("id")), name, arguments)
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
        tool, matched = self._answered(content, to_text(call_id), name if isinstance(name, str) and name else None)
        return Message(Role.TOOL, content, f"{FUNCTIONS}.{tool}", "assistant", "commentary"), matched

    def _answered(self, content: str, call_id: str | None, name: str | None) -> tuple[str, MatchedBy]:
        if call_id is not None:
            place = self._first(("id", call_id))
            if place is not None:
                return self._close(place, content), "id"
            if call_id in self._last_of_id:  # a second reply to a call
                return self._last_of_id[call_id], "id"
        if name is not None:
            place = self._first(("name", name))
            return (name, "nothing") if place is None else (self._close(place, content), "name")
        place = self._unclaimed()
        if place is None:
            raise RowFault(RowReason.REPLY_WITHOUT_CALL, "a tool replies without a name, and no call waits")
        return self._close(place, content), "order"

    def _claim(self, call_id: JsonValue, name: JsonValue) -> _Key | None:
        """Which call a reply names: by its id if there is one, else by its name."""
        known = to_text(call_id)
        if known is not None and known in self._last_of_id:
            return "id", known
        return ("name", name) if isinstance(name, str) and name else None

    def _unclaimed(self) -> int | None:
        """Whose turn it is where a reply names no call: not one's that a later reply names, if there is another among
        the next `_MOST_CLAIMED`. Without that bound a row of a megabyte would take minutes.
        """
        start = bisect_left(self._waiting[None], self._last)
        for place in self._waiting[None][start : start + _MOST_CLAIMED] if self._claims else ():
            call_id, name = self._calls[place]
            of_name = self._waiting["name", name]
            is_left = self._claims["name", name] < len(of_name) - bisect_left(of_name, self._last)
            if is_left and (call_id is None or self._claims["id", call_id] <= 0):
                return place
        return self._first(None)

    def _first(self, key: _Key | None) -> int | None:
        """Return whose turn it is among calls that wait: all, or those of an id or a name."""
        if not (waiting := self._waiting[key]):
            return None
        of_last = bisect_left(waiting, self._last)
        return waiting[of_last if of_last < len(waiting) else 0]

    def _open(self, call_id: str | None, name: str, arguments: str) -> None:
        place = self.log.add_call(name, arguments)
        self._calls.append((call_id, name))
        for key in self._keys(place):
            self._waiting[key].append(place)
        if call_id is not None:
            self._last_of_id[call_id] = name

    def _close(self, place: int, content: str) -> str:
        self.log.add_reply(place, content)
        for key in self._keys(place):
            del self._waiting[key][bisect_left(self._waiting[key], place)]
        return self._calls[place][1]

    def _keys(self, place: int) -> list[_Key | None]:
        call_id, name = self._calls[place]
        return [None, ("name", name)] if call_id is None else [None, ("name", name), ("id", call_id)]
