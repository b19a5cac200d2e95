"""Why a row gives no conversation, where Harmony itself has nothing against it."""

from enum import StrEnum


class RowReason(StrEnum):
    """The code under which a rejected row is counted; `harmony.refusal.Reason` has the others.

    `no_messages`: there are none, nor a text, nor the parts of a proof. `no_problem`, `no_formal_statement`: a proof
    without messages lacks one. `wrong_type`: a column is of another type than it has to be. `malformed_message`,
    `malformed_tool_call`, `malformed_tools`: not the form that the datasets have. `unknown_role`. `reply_without_call`:
    a tool replies without a name, and no call waits. `empty_completion`: by setting. `lone_surrogate`: no UTF-8 has it.
    `nested_too_deep`: more than `columns.MAX_NESTING` values in values.
    """

    NO_MESSAGES = "no_messages"
    NO_PROBLEM = "no_problem"
    NO_FORMAL_STATEMENT = "no_formal_statement"
    WRONG_TYPE = "wrong_type"
    MALFORMED_MESSAGE = "malformed_message"
    MALFORMED_TOOL_CALL = "malformed_tool_call"
    MALFORMED_TOOLS = "malformed_tools"
    UNKNOWN_ROLE = "unknown_role"
    REPLY_WITHOUT_CALL = "reply_without_call"
    EMPTY_COMPLETION = "empty_completion"
    LONE_SURROGATE = "lone_surrogate"
    NESTED_TOO_DEEP = "nested_too_deep"


class RowFault(Exception):
    """A row that can't be used; its own fault, so a reader counts it and goes on.

    Args:
        reason: the code.
        detail: what is there, for the reject's line.
    """

    def __init__(self, reason: RowReason, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}"
