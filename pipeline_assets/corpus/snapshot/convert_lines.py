"""Conversion of JSON lines of a hub dataset to Documents."""

import itertools
from collections.abc import Iterator
from contextlib import closing

from pipeline_assets.corpus.converted_shards import ShardWriter
from pipeline_assets.corpus.filters.column_rules import ColumnRule
from pipeline_assets.corpus.normalize.row_converter import DocumentOrReject, RowConverter
from pipeline_assets.corpus.readers.faults import Fault
from pipeline_assets.corpus.readers.json_lines import parse_row
from pipeline_assets.corpus.snapshot.fetch import FetchedPiece
from pipeline_assets.corpus.snapshot.line_prefixes import SpanStream, row_lines
from pipeline_assets.corpus.snapshot.recipe import SnapshotRecipe
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.spine.ledger import dropped_key
from pipeline_assets.spine.rejects import Reject
from pipeline_assets.spine.stage import KILLED_WORKER, Window


def convert_lines(
    fetched_piece: FetchedPiece, window: Window, recipe: SnapshotRecipe, converter: RowConverter, writer: ShardWriter
) -> Iterator[DocumentOrReject]:
    """Yield the Documents and rejects of a piece of JSON lines; count dropped rows.

    The row numbers in `window` count from the first row of the piece.
    """
    path = fetched_piece.piece.group.file.path
    rules, with_language = recipe.row_rules(()), recipe.row_rules(["language"])
    with closing(SpanStream(fetched_piece.spans)) as source:
        lines = enumerate(itertools.islice(row_lines(source, recipe.input_name(path)), fetched_piece.piece.rows))
        stop = None if window.stop is None else max(window.stop, 0)
        for number, line in itertools.islice(lines, max(window.start, 0), stop):
            writer.count("rows")
            if number in window.poison_rows:
                yield Reject(path, number, KILLED_WORKER)
                continue
            row = parse_row(line)
            if isinstance(row, Fault):
                yield row.to_reject(path, number)
                continue
            failure = _find_failed_rule(with_language if "language" in row else rules, row)
            if isinstance(failure, ColumnRule):
                writer.count(dropped_key(failure.text))
            else:
                yield converter.to_document(row, number) if failure is None else Reject(path, number, *failure)


def _find_failed_rule(rules: list[ColumnRule], row: dict[str, object]) -> ColumnRule | tuple[str, str] | None:
    """Return the first rule that a row fails; None if it passes all of them.

    If a column has the wrong type for a rule, return the (reason, detail) of a reject.
    """
    for rule in rules:
        try:
            if rule.measure({rule.column: row.get(rule.column)}).is_failed:
                return rule
        except UsageError as error:  # a bad row, not a bad recipe: each row of JSON lines has its own columns
            return "wrong_type", error.what
    return None
