"""Checks that tag a conversation as `check:NAME` and drop no row."""

import itertools
from collections.abc import Container, Sequence
from typing import Final

from pipeline_assets.corpus.harmony.parse import ParsedText
from pipeline_assets.corpus.harmony.prompt import FUNCTIONS_NAMESPACE
from pipeline_assets.corpus.nemotron.stalled_calls import CallLog

_MIN_EQUAL_LINES = 10
CHECKS: Final = {
    "undeclared_tool": "a call of a tool that the row does not declare",
    "reply_order": "a reply to a call after a reply to a later call",
    "unanswered_call": "a call without a reply, except calls that end the conversation",
    "repeated_lines": f"{_MIN_EQUAL_LINES} equal lines in a row of a message, not blank",
}


def find_failed_checks(parsed: ParsedText, log: CallLog, declared_names: Container[str] | None) -> list[str]:
    """List the checks that a text fails, as names in `CHECKS`.

    `log` has the text's calls and replies in order. `declared_names` has the names of the row's tools; None if they
    are unknown.
    """
    last_calls = itertools.takewhile(bool, (message.is_call for message in reversed(parsed.conversation)))
    answered = [call for call, reply in log.events if reply is not None]
    called = {str(call.recipient).removeprefix(f"{FUNCTIONS_NAMESPACE}.") for call in parsed.calls}
    fails = {
        "undeclared_tool": declared_names is not None and not all(name in declared_names for name in called),
        "reply_order": any(later < earlier for earlier, later in itertools.pairwise(answered)),
        "unanswered_call": not set(range(len(log.calls) - sum(last_calls))).issubset(answered),
        "repeated_lines": any(_has_repeated_lines(message.content.split("\n")) for message in parsed.conversation),
    }
    return [name for name, is_failed in fails.items() if is_failed]


def _has_repeated_lines(lines: Sequence[str]) -> bool:
    # Ten equal lines contain two whose line numbers are consecutive multiples of 5. Most texts have no equal lines at
    # such numbers, so they skip the slower search.
    sampled = itertools.pairwise(lines[:: _MIN_EQUAL_LINES // 2])
    return any(first == second and first.strip() for first, second in sampled) and any(
        sum(1 for _ in equal) >= _MIN_EQUAL_LINES for line, equal in itertools.groupby(lines) if line.strip()
    )
