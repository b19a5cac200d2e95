"""Rows of Lean proofs: problem, formal statement and task.

According to the card of nvidia/Nemotron-Math-Proofs-v1, `messages` has a verified proof attempt, or is empty;
`formal_statement` is null for some rows.
"""

from pipeline_assets.corpus.harmony.message import Message, Role
from pipeline_assets.corpus.nemotron.row_values import Row, RowFault, RowReason, has_value, to_text

FORMALISATION = "formalisation"
PROOF = "proof"
PROOF_COLUMNS = ("problem", "formal_statement", "lean_header")


def read_formalisation(row: Row) -> list[Message]:
    """Return a conversation that answers a problem with its formal statement in Lean.

    If the row has a `lean_header` (imports and options), the answer begins with the header and a blank line. If the
    problem or the statement is missing, raise `RowFault`.
    """
    problem, statement = to_text(row.get("problem")), to_text(row.get("formal_statement"))
    if problem is None:
        raise RowFault(RowReason.NO_PROBLEM, "the row has neither messages nor a problem")
    if statement is None:
        raise RowFault(RowReason.NO_FORMAL_STATEMENT, "the row has neither messages nor a formal statement")
    header = to_text(row.get("lean_header"))
    answer = statement if header is None else "\n\n".join((header.rstrip("\n"), statement))
    return [Message(Role.USER, problem), Message(Role.ASSISTANT, answer, channel="final")]


def proof_task(row: Row) -> str | None:
    """Return `PROOF` if a row has messages, else `FORMALISATION`.

    Return None for a row with a column `text`, whose task is unknown.
    """
    if has_value(row.get("text")):
        return None
    return PROOF if has_value(row.get("messages")) else FORMALISATION
