"""Pages for the tests that compare artifacts: their ids and texts are numbers."""

import pyarrow as pa


def pages(texts: dict[str, str]) -> pa.Table:
    return pa.table({"text": list(texts.values()), "id": list(texts)})


def numbered(first: int, stop: int, text: str = "page") -> dict[str, str]:
    return {f"page-{number}": f"{text} {number}" for number in range(first, stop)}
