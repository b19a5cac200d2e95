"""Rows of Lean proofs: a formal statement in place of a conversation where no proof attempt is there.

The source is the card of nvidia/Nemotron-Math-Proofs-v1: `messages` has a verified proof attempt, or is empty;
`formal_statement` is null for some rows.
"""

from pipeline_assets.corpus.harmony.message import Message, Role
from pipeline_assets.corpus.nemotron.presence import Row, is_there, text_of
from pipeline_assets.corpus.nemotron.row_fault import RowFault, RowReason

FORMALISATION = "formalisation"
PROOF = "proof"
PROOF_COLUMNS = ("problem", "formal_statement", "lean_header")


def formalisation(row: Row, channel: str | None) -> list[Message]:
    """The problem, and its statement in Lean for an answer.

    The header's imports and options come before the statement, a blank line between them: published headers have no
    line end of their own.

    Raises:
        RowFault: `no_problem`, `no_formal_statement`.
    """
    problem, statement = text_of(row.get("problem")), text_of(row.get("formal_statement"))
    if problem is None:
        raise RowFault(RowReason.NO_PROBLEM, "the row has neither messages nor a problem")
    if statement is None:
        raise RowFault(RowReason.NO_FORMAL_STATEMENT, "the row has neither messages nor a formal statement")
    header = text_of(row.get("lean_header"))
    answer = statement if header is None else "\n\n".join((header.rstrip("\n"), statement))
    return [Message(Role.USER, problem), Message(Role.ASSISTANT, answer, channel=channel)]


def proof_task(row: Row) -> str | None:
    """`meta_task`: what the assistant of a row does, prove or formalise; None of a row that is Harmony text already."""
    if is_there(row.get("text")):
        return None
    return PROOF if is_there(row.get("messages")) else FORMALISATION
