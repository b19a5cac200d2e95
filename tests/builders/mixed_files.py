"""Folder of mixed files, some of which have no text that can be read."""

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

WORDS = "One more line of plain words that nobody has written before, number"


def text(number: int) -> str:
    return " ".join(f"{WORDS} {number}." for _ in range(1 + number % 3)) + f"\n\nAnd a last line, {number}."


def write_mixed_files(folder: Path) -> None:
    """Write rows in three formats with two text columns, notes, and unreadable files."""
    rows = [{"text": text(number), "doc_id": f"a-{number}", "id": number, "license": "MIT"} for number in range(30)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    more = [{"text": text(100 + number), "created_at": "2020-02-03"} for number in range(9)]
    (folder / "more.jsonl.gz").write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in more).encode()))
    table = pa.table({"body": [text(200 + number) for number in range(12)], "title": ["Of words"] * 12})
    pq.write_table(table, folder / "table.parquet")
    (folder / "deep").mkdir()
    for number in range(3):
        (folder / "deep" / f"note {number}.md").write_text(text(300 + number))
    (folder / "scan.djvu").write_bytes(b"AT&TFORM\0\0")
    (folder / "package.json").write_text('{\n  "name": "x"\n}\n')
