"""Log of a conversation's tool calls and replies, with a count of stalled calls."""

from collections import Counter, defaultdict, deque
from collections.abc import Iterable

import msgspec

from pipeline_assets.corpus.harmony.message import Message, Role
from pipeline_assets.corpus.nemotron.row_values import canonical_json
from pipeline_assets.corpus.readers.nesting import limit_text_nesting

_MIN_EQUAL_REPLIES = 2


class CallLog:
    """Calls of a conversation and the replies to them, in order."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []  # tool's name and arguments
        self.answered_calls: list[int | None] = []  # index of each reply's call; None if the reply answers no call
        # (index in `calls`, text) of each call, and of each reply that answers a call; a call has None as text.
        self.events: list[tuple[int, str | None]] = []

    def add_call(self, name: str, arguments: str) -> int:
        """Add a call and return its index among the calls, from 0."""
        self.events.append((len(self.calls), None))
        self.calls.append((name, arguments))
        return len(self.calls) - 1

    def add_reply(self, call_index: int | None, content: str) -> None:
        """Add a reply; `call_index` is the index of the call it answers, or None."""
        self.answered_calls.append(call_index)
        if call_index is not None:
            self.events.append((call_index, content))

    def count_stalled(self) -> int:
        """Count calls that are repeated after two equal replies.

        Calls are equal if they name the same tool with the same arguments, in any order of keys. A call counts if the
        earlier equal calls have two or more replies, and the last two replies are equal. Other calls may be in between.
        """
        calls_by_tool = Counter(name for name, _ in self.calls)
        if max(calls_by_tool.values(), default=0) <= _MIN_EQUAL_REPLIES:
            return 0
        keys = [(name, _canonical_arguments(arguments)) for name, arguments in self.calls]
        replies: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        stalled = 0
        for call, content in self.events:
            earlier = replies[keys[call]]
            if content is not None:
                earlier.append(content)
            elif len(earlier) >= _MIN_EQUAL_REPLIES and earlier[-1] == earlier[-2]:
                stalled += 1
        return stalled


def _canonical_arguments(arguments: str) -> str:
    """Return canonical JSON of arguments, or the text itself if it is not JSON."""
    try:
        limit_text_nesting(arguments)
        return canonical_json(msgspec.json.decode(arguments))
    except (msgspec.DecodeError, RecursionError):
        return arguments


def collect_calls(messages: Iterable[Message]) -> CallLog:
    """Log the calls and replies of a parsed text, in which replies have no call ids.

    A reply answers the first call of its tool that has no reply yet, or no call if all these calls have replies.
    """
    log = CallLog()
    waiting: defaultdict[str | None, deque[int]] = defaultdict(deque)
    for message in messages:
        if message.is_call:
            waiting[message.recipient].append(log.add_call(str(message.recipient), message.content))
        elif message.role is Role.TOOL:
            calls = waiting[message.name]
            log.add_reply(calls.popleft() if calls else None, message.content)
    return log
