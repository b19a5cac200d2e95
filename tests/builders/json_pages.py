"""Pages as rows of JSON lines, packed like files on a hub."""

import gzip
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import zstandard

from pipeline_assets.spine.artifact import Artifact

Normalize = Callable[..., Artifact]
PACKED: Mapping[str, Callable[[bytes], bytes]] = {
    "jsonl": lambda content: content,
    "json.gz": lambda content: gzip.compress(content, mtime=0),
    "jsonl.zst": zstandard.ZstdCompressor().compress,
}
COLUMNS = {"text": "text", "id": "id", "created_at": None, "license": None}
SECTION = {"columns": COLUMNS, "rules": [], "language": None, "amount": {"files": 9}, "max_reject_fraction": "1"}


def lines(rows: Iterable[object]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def pages(first: int, count: int) -> list[dict[str, Any]]:
    return [{"text": f"Text of page {number}.", "id": f"page-{number}"} for number in range(first, first + count)]
