"""Text files → texts: a file each, or a paragraph each."""

from collections.abc import Iterator

from pipeline_assets.corpus.readers.row_faults import Fault, utf8_fault
from pipeline_assets.corpus.readers.source_files import ByteRange
from pipeline_assets.corpus.readers.source_lines import MAX_LINE_BYTES, line_before, line_blocks, lines
from pipeline_assets.corpus.spine.errors import InputError, key


def whole_text(piece: ByteRange) -> Iterator[tuple[int, str | Fault]]:
    """(0, the file's text as it is, or the fault).

    Raises:
        InputError: it is longer than 256 MiB, or can't be read as `line_blocks` says.
    """
    text = bytearray()  # a line each, in a list, would take fifteen times as much where lines are short
    for place, block in line_blocks(piece.file):
        _check_size(piece, 0, place + len(block))
        text += block
    yield 0, _decoded(text)


def paragraphs(piece: ByteRange) -> Iterator[tuple[int, str | Fault]]:
    """(place, text or fault) of the paragraphs that begin in the range, each to its end.

    A paragraph is a run of lines that are not blank. The newline of its last line is not part of it, others are.

    Raises:
        InputError: a paragraph is longer than 256 MiB, or the file can't be read as `line_blocks` says.
    """
    paragraph = bytearray()
    begin = 0
    is_after_blank = True if piece.start == 0 else None
    for place, line in lines(ByteRange(piece.file, piece.start)):
        is_blank = not line.strip()
        if is_after_blank is None:
            is_after_blank = not line_before(piece.file, place).strip()
        if paragraph and is_blank:
            yield begin, _decoded(paragraph.rstrip(b"\r\n"))
            paragraph = bytearray()
        if not paragraph and piece.stop is not None and place >= piece.stop:
            return
        if paragraph or (is_after_blank and not is_blank):
            begin = begin if paragraph else place
            _check_size(piece, begin, place + len(line))
            paragraph += line
        is_after_blank = is_blank
    if paragraph:
        yield begin, _decoded(paragraph.rstrip(b"\r\n"))


def _check_size(piece: ByteRange, begin: int, end: int) -> None:
    if end - begin > MAX_LINE_BYTES:
        what = f"the text at byte {begin:,} is longer than {MAX_LINE_BYTES >> 20} MiB"
        fix = f"as {key('text_unit')} take `paragraph`, or cut the file at blank lines"
        raise InputError(what, piece.file.path, fix)


def _decoded(text: bytearray) -> str | Fault:
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError as error:
        return utf8_fault(error)
