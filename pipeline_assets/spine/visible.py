r"""Replacement of control characters before text reaches a terminal, log or page.

Names, rows and responses may contain escape sequences, which a terminal would obey. C0 controls become their Unicode
pictures, except that `VISIBLE_TABLE` keeps line breaks and tabs, and `ONE_LINE_TABLE` shows them as arrows. DEL, C1
controls, characters that break lines or change the writing direction, and the surrogates that stand for bytes of a
file name that is not UTF-8 become `\uXXXX`, as in JSON.
"""

import logging

# Line and paragraph separators; embeddings, overrides and isolates of the writing direction.
_REORDERING_CODES = (0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_SURROGATE_CODES = range(0xD800, 0xE000)

# U+2400 + code is the picture of a C0 control, as in Unicode's block "Control Pictures".
VISIBLE_TABLE = {code: chr(0x2400 + code) for code in range(32) if chr(code) not in "\n\t"} | {
    code: f"\\u{code:04x}" for code in (*range(0x7F, 0xA0), *_REORDERING_CODES, *_SURROGATE_CODES)
}
ONE_LINE_TABLE = VISIBLE_TABLE | {ord("\n"): "⏎", ord("\t"): "⇥"}


def to_one_line(text: str) -> str:
    """Replace control characters and line breaks with visible characters."""
    return text.translate(ONE_LINE_TABLE)


def _show_controls(record: logging.LogRecord) -> bool:
    """Replace control characters in a log record; return True to keep the record."""
    record.msg, record.args = to_one_line(record.getMessage()), None
    return True


logging.getLogger("corpusmill").addFilter(_show_controls)
