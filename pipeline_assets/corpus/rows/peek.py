"""Rows of an artifact as a reader gets them: one whole, or how the first ones begin."""

from pipeline_assets.corpus.rows.store import Row, RowStore
from pipeline_assets.corpus.rows.trace import rows_of
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.systems.registry import KINDS

_SHOWN_ROWS = 5
_SHOWN_CHARACTERS = 160


def peek(store: RowStore, row: int | None = None, token: int | None = None) -> Row:
    """One row, by its number or by one of its tokens; the first by default.

    Raises:
        UsageError: out of range, or a token of what has none.
        InputError: a file is damaged, or that of the tokenizer is gone.
    """
    return store.at(row or 0 if token is None else store.row_of_token(token))


def preview(artifact: Artifact) -> list[dict[str, str]]:
    """What its kind shows of it; else its first rows: whose they are, how long, how they begin."""
    kind = KINDS[artifact.manifest.kind]
    if kind.preview is not None:
        return kind.preview(artifact)
    store = rows_of(artifact)
    return [] if store is None else [_short(store, number) for number in range(min(_SHOWN_ROWS, len(store)))]


def _short(store: RowStore, number: int) -> dict[str, str]:
    [part] = store.at(number).parts
    size = {"characters": f"{len(part.text):,}"} if part.tokens is None else {"tokens": f"{part.tokens:,}"}
    figures = {name.replace("_", " "): f"{value:,}" for name, value in store.figures(part).items()}
    line = " ".join(store.beginning(part.text).split())
    shown = line if len(line) <= _SHOWN_CHARACTERS else line[:_SHOWN_CHARACTERS] + "…"
    key = "id" if store.labels.has == "texts" else "doc_id"
    return {key: part.id, **size, **figures, store.labels.beginning: shown}
