"""Values of JSON files that are one array, or objects over several lines.

The file is read as a stream; the memory in use is one block and the longest value.
"""

import re
from collections.abc import Iterable, Iterator

from pipeline_assets.corpus.readers.lines import MAX_LINE_BYTES, UTF8_MARK, read_blocks
from pipeline_assets.corpus.readers.source_folder import SourceFile, open_source
from pipeline_assets.spine.errors import InputError

_NEXT_BRACKET = re.compile(rb'[^"\[\]{},]*+(["\[\]{},])')  # up to the next quote, bracket or comma
_STRING_END = re.compile(rb'(?:[^"\\]++|\\.)*+("?)', re.DOTALL)  # up to the closing quote, if any
_DEPTH_CHANGES = {b"[": 1, b"{": 1, b"]": -1, b"}": -1}
_BLANK = b" \t\r\n"


def is_array_or_multiline(head: bytes) -> bool:
    """Check whether a file starts with `[`, or with `{` on a line of its own.

    Such a file is an array or has multi-line objects; other JSON is read as lines.
    """
    head = head.removeprefix(UTF8_MARK).lstrip()
    return head[:1] == b"[" or head[:1] + head[1:].lstrip(b" \t\r")[:1] == b"{\n"


def is_array_or_multiline_file(file: SourceFile) -> bool:
    """Check whether a file, compressed or not, is a JSON array or multi-line objects."""
    with open_source(file) as opened:
        return is_array_or_multiline(next(read_blocks(opened, file), b""))


def file_values(file: SourceFile) -> Iterator[tuple[int, bytes]]:
    """Yield the position and the bytes of each value in a file; see `json_values`."""
    with open_source(file) as opened:
        yield from json_values(read_blocks(opened, file), file.path)


def json_values(blocks: Iterable[bytes], where: object) -> Iterator[tuple[int, bytes]]:
    """Yield (position, bytes) of each value: the elements of an array, or the objects.

    A position is a byte offset: of the start of the line, before any indentation, for a value that begins a line other
    than the file's first; of the bracket for an array's first element on the bracket's line; otherwise of the value's
    own first byte. Values are found by brackets and commas alone, and may be invalid JSON. Raise
    InputError if the file ends within a value, continues after the array, or has a value above 256 MiB.
    """
    text, start = bytearray(), 0  # bytes since the last value, and their offset in the file
    bracket: int | None = None  # offset of the array's bracket, before its first element
    is_array: bool | None = None
    depth = 0
    for part, token in _split_at_brackets(blocks):
        text += part
        if len(text) > MAX_LINE_BYTES:
            what = f"the JSON value at byte {start:,} is longer than {MAX_LINE_BYTES >> 20} MiB"
            raise InputError(what, where, "write one line per value, or exclude the file")
        if start == 0 and text.startswith(UTF8_MARK):
            start, text = len(UTF8_MARK), text[len(UTF8_MARK) :]
        step = _DEPTH_CHANGES.get(token, 0)
        if depth + step < 0 or (is_array and depth == 0 and (token or text.strip())):
            what = f"the JSON ends before byte {_value_position(text, start, None):,}, but other data follows"
            raise InputError(what, where, "write one array, or one line per value")
        if is_array is None and step:
            is_array = token == b"[" and not text.strip()
            if is_array:
                bracket, start, depth = start + len(text), start + len(text) + 1, 1
                text.clear()
                continue
        depth += step
        if (step < 0 and depth == 0) or (token == b"," and depth == 1 and is_array):
            text += b"" if is_array else token
            if value := bytes(text).strip(_BLANK):
                yield _value_position(text, start, bracket), value
                bracket = None
            start += len(text) + len(token) * bool(is_array)
            text.clear()
        else:
            text += token
    if depth or text.strip():
        what = f"the file is truncated within the JSON value at byte {_value_position(text, start, bracket):,}"
        raise InputError(what, where, "fetch or write the file again")


def _split_at_brackets(blocks: Iterable[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """Yield (preceding bytes, token) for each bracket or comma outside strings.

    The bytes after the last token of a block are yielded with the token b"".
    """
    is_string, rest = False, b""
    for block in blocks:
        block = rest + block
        begin = position = 0
        while token := (_STRING_END if is_string else _NEXT_BRACKET).match(block, position):
            position = token.end()
            if is_string:
                is_string = not token[1]
                if is_string:  # the rest of the block is empty, or a backslash whose character is in the next block
                    break
            elif token[1] == b'"':
                is_string = True
            else:
                yield block[begin : position - 1], token[1]
                begin = position
        else:
            position = len(block)
        rest = block[position:]
        yield block[begin:position], b""
    yield rest, b""


def _value_position(text: bytearray, start: int, bracket_offset: int | None) -> int:
    """Return the position of a value, as `json_values` defines it.

    `text` begins at byte `start` of the file: white space, then the value. For the first element of an array,
    `bracket_offset` is the offset of the array's bracket; otherwise it is None.
    """
    blanks = len(text) - len(text.lstrip(_BLANK))
    newline = text.rfind(b"\n", 0, blanks)
    if newline >= 0:
        return start + newline + 1
    return start + blanks if bracket_offset is None else bracket_offset
