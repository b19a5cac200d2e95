"""Items of evaluation sets, read from their files."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from pipeline_assets.corpus.decontamination.recipe import EvaluationColumns, EvaluationRecipe, EvaluationSet
from pipeline_assets.corpus.readers.column_recipe import LicensedColumns, column_fix
from pipeline_assets.corpus.readers.columns import find_column
from pipeline_assets.corpus.readers.faults import Fault
from pipeline_assets.corpus.readers.local import LocalRecipe, piece_rows, plan_local
from pipeline_assets.corpus.readers.row_positions import format_row_position
from pipeline_assets.corpus.readers.source_folder import SourceFile
from pipeline_assets.spine.errors import InputError, UsageError

_UNLIMITED_BYTES = 1 << 62  # bytes of a piece: files are not divided
_TEXT_FILE_COLUMNS = EvaluationColumns(text=("text",), item="row", id=None)


class EvaluationItem(NamedTuple):
    """Item of an evaluation set.

    `id` is the row's id, or `FILE:ROW` if the row has no id; `ROW` counts from 0. If each text column of a row is an
    item, the id ends with `:COLUMN`. A row without text is one item, with an empty text and an id without `:COLUMN`.
    """

    id: str
    text: str


def read_items(evaluation_set: EvaluationSet) -> Iterator[EvaluationItem]:
    """Yield all items of a set, in the order of files and rows.

    Raises:
        UsageError: A column is missing from all rows of a file, or a text column has values other than text.
        InputError: A file has changed, or a file or row cannot be read.
    """
    for file in evaluation_set.files():
        yield from _read_file(file, evaluation_set.recipe)


def check_item_columns(files: Iterable[SourceFile], recipe: EvaluationRecipe) -> None:
    """Read each file of a set until every column has been found.

    Raise the errors of `read_items`. Mostly, only the first row of a file is read.
    """
    for file in files:
        for _ in _read_file(file, recipe, until_columns_found=True):
            pass


def _read_file(
    file: SourceFile, recipe: EvaluationRecipe, until_columns_found: bool = False
) -> Iterator[EvaluationItem]:
    columns = recipe.columns or _TEXT_FILE_COLUMNS
    names = [*columns.text, *([columns.id] if columns.id is not None else [])]
    missing, first_row = set(names), dict[str, Any]()
    for number, (position, row) in enumerate(_read_rows(file, recipe)):
        if isinstance(row, Fault):
            reason = f"{row.reason}{row.detail and f': {row.detail}'}"
            what = f"{format_row_position(file.name, position, file)} cannot be read ({reason})"
            raise InputError(what, file.path, "correct the row, because no item may be missing")
        first_row = first_row or row
        missing -= {name for name in missing if find_column(row, name) is not None}
        yield from _read_items(row, number, position, file, columns)
        if until_columns_found and not missing:
            return
    for name in names if first_row else []:
        if name in missing:
            what = f"set {recipe.name} has no column `{name}`; its first row has {', '.join(first_row)}"
            raise UsageError(what, file.path, column_fix("text" if name in columns.text else "id"))


def _read_rows(file: SourceFile, recipe: EvaluationRecipe) -> Iterator[tuple[int, dict[str, Any] | Fault]]:
    columns = None
    if recipe.columns is not None:
        columns = LicensedColumns(text=recipe.columns.text[0], id=recipe.columns.id, created_at=None, license=None)
    local = LocalRecipe(
        source=recipe.name,
        domain="evaluation",
        license_tag="unknown",
        files=recipe.files,
        columns=columns,
        text_unit=recipe.text_unit,
    )
    for piece in plan_local([file], local, _UNLIMITED_BYTES):
        yield from piece_rows(piece, local)


def _read_items(
    row: dict[str, Any], row_number: int, position: int, file: SourceFile, columns: EvaluationColumns
) -> Iterator[EvaluationItem]:
    texts = {name: text for name in columns.text if (text := _read_text(row, name, position, file)) is not None}
    row_id = _read_value(row, columns.id) if columns.id is not None else None
    item_id = f"{file.name}:{row_number}" if row_id is None or row_id == "" else str(row_id)
    if columns.item == "row" or not texts:
        yield EvaluationItem(item_id, "\n".join(texts.values()))
    else:
        yield from (EvaluationItem(f"{item_id}:{name}", text) for name, text in texts.items())


def _read_text(row: dict[str, Any], column_name: str, position: int, file: SourceFile) -> str | None:
    """Return the text of a column; None if it is missing or empty.

    The texts of a list are joined by line feeds. Raise UsageError for a value that is not text.
    """
    value = _read_value(row, column_name)
    texts: Sequence[object] = value if isinstance(value, list) else [value]
    for text in texts:
        if text is not None and not isinstance(text, str):
            where = format_row_position(file.name, position, file)
            what = f"`{column_name}` of {where} holds {type(text).__name__}, not text"
            raise UsageError(what, file.path, "set `columns.text` in the recipe to columns of text")
    return "\n".join(text for text in texts if isinstance(text, str)) if any(texts) else None


def _read_value(row: dict[str, Any], column_name: str) -> object:
    found_column = find_column(row, column_name)
    return None if found_column is None else found_column.value
