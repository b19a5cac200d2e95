"""Why a conversation can't be rendered, or a text can't be read."""

from enum import StrEnum


class Reason(StrEnum):
    """The code under which a refused row is counted.

    Of content: `control_tokens_in_content`, `lone_surrogate` (no UTF-8 has it), `not_encodable` (blanks that the
    tokenizer fails on). Of headers: `invalid_header_field`, `unknown_role`, `not_in_template`. Of texts:
    `text_outside_messages`, `malformed_header`, `two_recipients`, `message_not_closed`, `wrong_terminator`,
    `no_next_role`. Of tools: `schema_too_deep`, `number_out_of_range`, `namespace_twice`.
    """

    CONTROL_TOKENS_IN_CONTENT = "control_tokens_in_content"
    LONE_SURROGATE = "lone_surrogate"
    NOT_ENCODABLE = "not_encodable"
    INVALID_HEADER_FIELD = "invalid_header_field"
    UNKNOWN_ROLE = "unknown_role"
    NOT_IN_TEMPLATE = "not_in_template"
    TEXT_OUTSIDE_MESSAGES = "text_outside_messages"
    MALFORMED_HEADER = "malformed_header"
    TWO_RECIPIENTS = "two_recipients"
    MESSAGE_NOT_CLOSED = "message_not_closed"
    WRONG_TERMINATOR = "wrong_terminator"
    NO_NEXT_ROLE = "no_next_role"
    SCHEMA_TOO_DEEP = "schema_too_deep"
    NUMBER_OUT_OF_RANGE = "number_out_of_range"
    NAMESPACE_TWICE = "namespace_twice"


class Refusal(Exception):
    """A conversation or text that is no Harmony; one row's fault, so a reader counts it and goes on.

    Args:
        reason: the code.
        detail: what is there, for the reject's line.
        position: in characters: of the text where a text was read, of the message's content where one was rendered;
            None where it is no content's fault.
        message: the message's number, from 0, where messages were rendered; None where a text was read.
    """

    def __init__(self, reason: Reason, detail: str, position: int | None = None, message: int | None = None) -> None:
        super().__init__(reason, detail, position, message)
        self.reason = reason
        self.detail = detail
        self.position = position
        self.message = message

    def __str__(self) -> str:
        where = "" if self.message is None else f" in message {self.message}"
        return f"{self.reason}: {self.detail}{where}" + ("" if self.position is None else f" at {self.position}")
