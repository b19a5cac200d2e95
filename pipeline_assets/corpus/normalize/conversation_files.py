"""Files of conversations, with the commands that read or convert them.

No column of such a file is a text of its own, so no source of texts can be drafted for it.
"""

import shlex
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Any

from pipeline_assets.corpus.nemotron.splits import split_from_file_name
from pipeline_assets.corpus.normalize.left_out import jq_command
from pipeline_assets.corpus.readers.source_folder import SourceFile

_REWRITE = "write them as `messages`, and run `init` again"
# Programs of jq. They read an array of rows, or lines of rows.
_FROM_TURNS = (
    "(arrays[] // .) | [.[$turns][] | "
    '{role: ({human: "user", gpt: "assistant"}[.from] // .from), content: .value}] as $messages | '
    "del(.[$turns]) | .messages = $messages"
)
# The current node is the end of the branch that the user saw last.
_FROM_TREE = (
    "(arrays[] // .) | . as {$mapping, $current_node} | {title, messages: ["
    "$current_node | recurse($mapping[.].parent // empty) | $mapping[.].message // empty | "
    '{role: .author.role, content: [.content | (.parts[]? | strings), .text? // empty] | join("\\n")} | '
    'select(.content != "")] | reverse}'
)


def describe_conversations(rows: Sequence[Mapping[str, Any]], file: SourceFile, root: Path) -> str | None:
    """Describe the conversations in the first rows of a file, or return None.

    The description has a command that normalizes them into the data root `root`, or that writes them as `messages`; see
    `jq_command`.
    """
    if any(isinstance(row.get("mapping"), dict) and "current_node" in row for row in rows):
        return f"trees of conversations, as ChatGPT exports them; {_REWRITE}: {jq_command(file, _FROM_TREE)}"
    if turns := find_list(rows, {"role"}):
        options = ["--dataset", str(file.path.parent), "--split", split_from_file_name(file.name)]
        options += ["--domain", "chat_if", "--out-dir", str(root)]
        command = shlex.join(["corpusmill", "nemotron", "normalize", *options])
        return f"conversations in `{turns}`; read them with: {command}"
    if turns := find_list(rows, {"from", "value"}):
        command = jq_command(file, "--arg", "turns", turns, _FROM_TURNS)
        return f"conversations in `{turns}` with the keys `from` and `value`; {_REWRITE}: {command}"
    return None


def find_list(rows: Sequence[Mapping[str, Any]], keys: Set[str]) -> str | None:
    """Return the first column with a list of objects that all have `keys`."""
    lists = ((name, value) for row in rows for name, value in row.items() if isinstance(value, list) and value)
    return next(
        (name for name, items in lists if all(isinstance(item, dict) and keys <= item.keys() for item in items)), None
    )
