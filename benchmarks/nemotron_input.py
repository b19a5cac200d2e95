"""Real Nemotron rows, repeated in other words, as JSON lines and Parquet.

Each split becomes one file per format. No text or id is repeated, nor a list of tools where the real rows of a split
have different ones, since repeats would flatter the caches. A Parquet schema cannot represent objects with different
keys in every row; they become JSON text, as `arguments` are in half of the published splits.
"""

import json
import os
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline_assets.corpus.nemotron.dataset_section import DOMAINS, RowOrigin

SAMPLES = "CORPUSMILL_TEST_SAMPLES"  # the folder of samples, also read by `make test-real`
FORMATS = ("jsonl", "parquet")
LARGE_ROW_CHARACTERS = 2_000_000
_GROUP_ROWS, _GROUP_CHARACTERS = 1000, 64 << 20
_WORD = re.compile(r"\d+|[a-z]{6,}")
_VARIED = ("content", "reasoning_content", "problem", "formal_statement", "description")
Row = dict[str, Any]


@dataclass(frozen=True)
class Split:
    """Real rows of a split, and their origin."""

    origin: RowOrigin
    real: list[Row]

    @property
    def name(self) -> str:
        return self.origin.split

    def path(self, folder: Path, kind: str) -> Path:
        return folder / f"{self.name}.{kind}"


def real_splits() -> list[Split]:
    """Read all twelve splits from the folder of samples."""
    splits = []
    for path in sorted(Path(os.environ[SAMPLES], "nemotron", "rows").glob("*/*.jsonl")):
        dataset = f"nvidia/{path.parent.name}"
        origin = RowOrigin(dataset, None, path.stem, DOMAINS[dataset], path.name, "0" * 40)
        splits.append(Split(origin, [json.loads(line) for line in path.read_text().split("\n") if line]))
    return splits


def write_split(split: Split, folder: Path, rows: int, large_every: int = 0) -> None:
    """Write rows in both formats, one in `large_every` with an answer of 2 MB.

    0 writes no such answer.
    """
    seeded = random.Random(split.name)
    words = sorted(
        {word for source in real_splits() for word in _WORD.findall(json.dumps(source.real)) if word.isalpha()}
    )
    schema = pa.Table.from_pylist([_tabular(row) for row in split.real]).schema
    schema = pa.schema([pa.field(field.name, _without_null(field.type)) for field in schema])
    paths = [split.path(folder, kind) for kind in FORMATS]
    are_tools_alike = len({json.dumps(row.get("tools")) for row in split.real}) == 1
    pending: list[Row] = []
    characters = 0
    with open(paths[0], "wb") as lines, pq.ParquetWriter(paths[1], schema, compression="zstd") as table:
        for number in range(rows):
            real = split.real[number % len(split.real)]
            row = _varied(real, seeded, words)
            if are_tools_alike and "tools" in row:
                row["tools"] = real["tools"]
            if "uuid" in row:
                row["uuid"] += f"-{number}"
            if large_every and number % large_every == 0:
                answer = row["messages"][-1]
                answer["content"] = " ".join(seeded.choices(words, k=LARGE_ROW_CHARACTERS // 9))
            line = json.dumps(row, ensure_ascii=False).encode() + b"\n"
            lines.write(line)
            pending.append(_tabular(row))
            characters += len(line)
            if len(pending) == _GROUP_ROWS or characters >= _GROUP_CHARACTERS or number == rows - 1:
                table.write_table(pa.Table.from_pylist(pending, schema))
                pending, characters = [], 0


def row_texts(row: Row) -> Iterator[str]:
    """Yield the texts of a row, which the ceiling encodes without rendering."""
    if row.get("tools"):
        yield _text(row["tools"])
    for message in row["messages"] or [{"role": key, "content": row[key]} for key in ("problem", "formal_statement")]:
        yield message["role"]
        yield message.get("reasoning_content") or ""
        for value in (message["content"], *(call["function"]["arguments"] for call in message.get("tool_calls") or [])):
            yield _text(value)


def _varied(value: Any, seeded: random.Random, words: list[str], is_text: bool = False) -> Any:
    """Replace every number of a value, and every seventh long word of a text."""

    def other(match: re.Match[str]) -> str:
        word = match.group()
        if word.isdigit():
            return str(seeded.randrange(10 ** len(word)))
        return seeded.choice(words) if seeded.random() < 1 / 7 else word

    if isinstance(value, dict):
        return {key: _varied(item, seeded, words, key in _VARIED) for key, item in value.items()}
    if isinstance(value, list):
        return [_varied(item, seeded, words) for item in value]
    return _WORD.sub(other, value) if is_text and isinstance(value, str) else value


def _tabular(row: Row) -> Row:
    """Return a row with arbitrary objects as JSON text, which Parquet can store."""
    messages = []
    for message in row["messages"]:
        calls = [
            {**call, "function": {**call["function"], "arguments": _text(call["function"]["arguments"])}}
            for call in message.get("tool_calls") or []
        ]
        messages.append({**message, "content": _text(message["content"]), "tool_calls": calls or None})
    return {**row, "messages": messages, "tools": json.dumps(row["tools"]) if row.get("tools") else None}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _without_null(data_type: pa.DataType) -> pa.DataType:
    """Replace Arrow's null type by string, also in nested types."""
    if pa.types.is_list(data_type):
        return pa.list_(_without_null(data_type.value_type))
    if pa.types.is_struct(data_type):
        return pa.struct([(field.name, _without_null(field.type)) for field in data_type])
    return pa.string() if pa.types.is_null(data_type) else data_type
