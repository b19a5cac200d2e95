"""Prompts of seed sets by their sha256, in an SQLite file that all workers read.

SQLite bounds the memory: the seed sets of one dataset have millions of prompts. The file is not part of an artifact.
"""

import hashlib
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from pipeline_assets.corpus.harmony.message import JsonValue
from pipeline_assets.corpus.nemotron.dataset_section import PromptLookup
from pipeline_assets.corpus.nemotron.message_text import read_text
from pipeline_assets.corpus.nemotron.row_forms import standard_row
from pipeline_assets.corpus.nemotron.row_values import RowFault
from pipeline_assets.corpus.nemotron.source_rows import SCAN_SHARD_BYTES, SourceRow, plan_shards, read_shard
from pipeline_assets.corpus.readers.source_folder import SourceFile
from pipeline_assets.spine.damage import errors_as_damage
from pipeline_assets.spine.errors import InputError


def write_seed_prompts(path: Path, seed_sets: Sequence[tuple[str, Sequence[SourceFile]]]) -> None:
    """Write the prompts of seed sets to an SQLite table, keyed by their sha256.

    Each entry of `seed_sets` has the prompt column and the files of a set. If a value of that column is a text, it is a
    prompt; if it is a list of messages, or the JSON text of a list, its first user message is a prompt. Unreadable rows
    and other values are skipped. Raise `InputError` if a set adds no new prompt.
    """
    path.unlink(missing_ok=True)  # left by an interrupted build
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA journal_mode = OFF")  # a journal of an interrupted build would be applied to this file
        database.execute("CREATE TABLE prompts (sha256 TEXT PRIMARY KEY, prompt TEXT) WITHOUT ROWID")
        for column, files in seed_sets:
            rows = database.executemany("INSERT OR IGNORE INTO prompts VALUES (?, ?)", _read_prompts(column, files))
            database.commit()
            if not rows.rowcount:
                what = f"no row has a new prompt in the column {column!r}"
                raise InputError(what, files[0].path, "correct `text` of the seed set in the recipe, or omit the set")


def _read_prompts(column: str, files: Sequence[SourceFile]) -> Iterator[tuple[str, str]]:
    for shard in plan_shards(files, SCAN_SHARD_BYTES):
        for row in read_shard(shard):
            value = row.columns.get(column) if isinstance(row, SourceRow) else None
            prompts = [value] if isinstance(value, str) else []
            with suppress(RowFault, RecursionError):
                prompts += _read_first_prompt(standard_row({"messages": value}, Counter()).get("messages"))
            for prompt in prompts:
                yield hashlib.sha256(prompt.encode("utf-8")).hexdigest(), prompt


def _read_first_prompt(messages: JsonValue) -> list[str]:
    """Return a list with the text of the first user message; empty if there is none."""
    objects = (message for message in (messages if isinstance(messages, list) else ()) if isinstance(message, dict))
    content = next((message.get("content") for message in objects if message.get("role") == "user"), None)
    return [read_text(content, "user", Counter())] if isinstance(content, str | list) and content != [] else []


@contextmanager
def open_seed_prompts(path: Path | None) -> Iterator[PromptLookup | None]:
    """Yield a function that finds prompts in the file `path`; None if `path` is None.

    Calling the function raises InputError if the file is damaged.
    """
    if path is None:
        yield None
        return
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?immutable=1", uri=True)) as database:

        def find(sha256: str) -> str | None:
            with errors_as_damage(path, "table of prompts"):
                rows = database.execute("SELECT prompt FROM prompts WHERE sha256 = ?", (sha256,))
                prompt: str | None = next((prompt for (prompt,) in rows), None)
                if prompt is not None and hashlib.sha256(prompt.encode("utf-8")).hexdigest() != sha256:
                    raise ValueError(f"the prompt {sha256} does not match its hash")
                return prompt

        yield find
