"""Rows of CSV and TSV files, whose first row names the columns.

Fields may be quoted and contain line breaks. The position of a row is the byte offset of its first line.
"""

import csv
import io
import itertools
import re
from collections import Counter, deque
from collections.abc import Iterator

from pipeline_assets.corpus.readers.faults import Fault, Row, utf8_fault
from pipeline_assets.corpus.readers.lines import piece_lines
from pipeline_assets.corpus.readers.source_folder import ByteRange, SourceFile
from pipeline_assets.corpus.readers.source_formats import strip_compression_suffix
from pipeline_assets.spine.errors import InputError

_MAX_ROW_BYTES = 1 << 26
_DELIMITERS = ",;\t|"
_SEPARATOR_LINE = re.compile(rb'"?sep=[\t -~]"?[\r\n]*', re.IGNORECASE)  # names the delimiter for Excel
_QUOTED = re.compile(rb'"[^"]*"')
_FIX = "write a first line with a unique name for each column"
Line = tuple[int, bytes]


def read_csv(file: SourceFile) -> tuple[list[str], Iterator[tuple[int, bytes, Row]]]:
    """Return the column names of a file, and an iterator of its rows.

    A row is a tuple (byte offset, bytes, values by column name); for an unusable row, the values are replaced by a
    Fault. A blank file has no columns and no rows.

    A `.tsv` file whose header has a tab is delimited by tabs. Other files are delimited by a comma, semicolon, tab or
    bar: the one that occurs most often in the header, outside quotes. Blank lines are skipped. A column without a name
    is called `column_N`. InputError is raised if the header cannot be read, repeats a name or is Excel's line `sep=;`.
    """
    csv.field_size_limit(_MAX_ROW_BYTES)
    source = piece_lines(ByteRange(file))
    first = next((line for line in source if line[1].strip()), None)
    if first is None:
        return [], iter(())
    if _SEPARATOR_LINE.fullmatch(first[1]):
        what = f"the first line `{first[1].decode().strip()}` names the delimiter, not the columns"
        raise InputError(what, file.path, "remove this line")
    delimiter = max(_DELIMITERS, key=_QUOTED.sub(b"", first[1]).decode("utf-8", "replace").count)
    if b"\t" in first[1] and strip_compression_suffix(file.name).lower().endswith(".tsv"):
        delimiter = "\t"
    records = _read_records(itertools.chain([first], source), delimiter)
    _, _, header = next(records)
    if isinstance(header, Fault):
        raise InputError(f"the header cannot be read ({header.reason}: {header.detail})", file.path, _FIX)
    names = [name.strip() or f"column_{number}" for number, name in enumerate(header, 1)]
    if repeated := next((name for name, count in Counter(names).items() if count > 1), None):
        raise InputError(f"two columns have the name `{repeated}`", file.path, _FIX)
    return names, ((offset, content, _name_fields(names, fields)) for offset, content, fields in records)


def _name_fields(names: list[str], fields: list[str] | Fault) -> Row:
    if isinstance(fields, Fault):
        return fields
    if len(fields) != len(names):
        return Fault("wrong_columns", f"fields: {len(fields)}, columns: {len(names)}")
    return dict(zip(names, fields, strict=True))


def _read_records(lines: Iterator[Line], delimiter: str) -> Iterator[tuple[int, bytes, list[str] | Fault]]:
    """Yield the position, bytes, and fields or fault of each row that is not blank.

    Lines are joined until the number of quotes is even, or 64 MiB are read. If several joined lines cannot be parsed as
    one row, the first line is parsed alone, and the next line begins a new row.
    """
    returned = deque[Line]()
    while first := returned.popleft() if returned else next(lines, None):
        record, quotes = [first], first[1].count(b'"')
        while quotes % 2 and record[-1][0] - first[0] < _MAX_ROW_BYTES:
            line = returned.popleft() if returned else next(lines, None)
            if line is None:
                break
            record.append(line)
            quotes += line[1].count(b'"')
        content = b"".join(line for _, line in record)
        fields = _parse_fields(content, delimiter)
        if isinstance(fields, Fault) and len(record) > 1:
            returned.extendleft(reversed(record[1:]))
            content = first[1]
            fields = _parse_fields(content, delimiter)
        if content.strip() or delimiter.encode() in content:  # a line of tabs is a row of a TSV file
            yield first[0], content, fields


def _parse_fields(content: bytes, delimiter: str) -> list[str] | Fault:
    """Return the fields of a row; split a TSV line with invalid quotes at its tabs."""
    try:
        text = content.decode("utf-8")
        [fields] = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    except UnicodeDecodeError as error:
        return utf8_fault(error)
    except (csv.Error, ValueError) as error:
        reason = str(error) if isinstance(error, csv.Error) else "a carriage return within an unquoted field"
        # Many programs write TSV without quoting.
        is_tsv_line = delimiter == "\t" and "\n" not in text.rstrip("\n")
        return text.rstrip("\r\n").split("\t") if is_tsv_line else Fault("not_csv", reason)
    return fields
