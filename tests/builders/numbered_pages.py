"""Pages with numbers as ids and texts, for tests that compare artifacts."""

import pyarrow as pa


def pages(texts: dict[str, str]) -> pa.Table:
    return pa.table({"text": list(texts.values()), "id": list(texts)})


def numbered(first: int, stop: int, text: str = "page") -> dict[str, str]:
    return {f"page-{number}": f"{text} {number}" for number in range(first, stop)}


def plain_pages(rows: int, **columns: object) -> pa.Table:
    """Build pages 0, 1, 2… with further columns."""
    texts = [f"Text of page {number}." for number in range(rows)]
    return pa.table({"text": texts, "id": [f"page-{number}" for number in range(rows)], **columns})


def large_pages(first: int, rows: int, words: int = 200) -> pa.Table:
    """Build pages of nine bytes a word that hardly compress."""
    numbers = range(first, first + rows)
    texts = [" ".join(f"{(number * 7919 + word * 104729) % 2**32:08x}" for word in range(words)) for number in numbers]
    return pa.table({"id": [f"page-{number}" for number in numbers], "text": texts})
