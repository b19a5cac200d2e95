"""The HTML of posts → text: plain paragraphs, and the marks of Markdown where layout has a meaning.

    block                  becomes; blocks are a blank line apart
    ---------------------  -------------------------------------------------------------------------------------
    paragraph, division    its text
    pre                    its characters, untouched, between ``` fences, with the language where a class says it
    ul, ol                 a line an item, `- ` or its number, two spaces deeper a level
    blockquote             `> ` before each line
    h1 … h6, hr            `#` … `######` before the text; `---`
    table                  a line a row, cells apart by ` | `

    inline                 becomes
    ---------------------  -------------------------------------------------------------------------------------
    code                   its characters, spaces too, between backticks
    a; img                 its text, without the address; its `alt`, unless the editor put that there
    sup                    `^` and its text, if that is a number or a letter right behind a word; else its text
    br, a line break       a line break
    any other; comments    its text; nothing

Outside code, white space (no-break space too) is one space, or one line break if it has one. Entities are decoded,
MathJax is left as it is.
"""

import html
import re

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.eight_bytes import eight_bytes_at_each
from pipeline_assets.corpus.readers.stackexchange.escapes import escaped, unescaped
from pipeline_assets.corpus.readers.stackexchange.html_scan import UNTIDY, render
from pipeline_assets.corpus.readers.stackexchange.markup_bytes import PADDING_BYTES, QUOTE
from pipeline_assets.corpus.readers.stackexchange.text_layout import ROOM_BYTES

_CLOSING = bytes([QUOTE, *bytes(PADDING_BYTES)])
_TAG = re.compile(r"""<(?:(/?[a-zA-Z][a-zA-Z0-9]*)(?![a-zA-Z0-9])((?:"[^"]*"|'[^']*'|[^"'<>])*)|[!?/][^<>]*)>""")
_OPENING = re.compile("<[a-zA-Z/!?]")
_COMMENT, _COMMENT_END = "<!--", "-->"
_HUGE_NUMBER = re.compile(r"&#[0-9]{4301,};?")  # more digits than Python reads
_ATTRIBUTE = re.compile(r"""\b(class|start)\s*=\s*["']?([\w +#-]+)""", re.IGNORECASE)
_ALT = re.compile(r"""(?<![\w-])alt\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'<>]+))""", re.IGNORECASE)


def body_texts(data: NDArray[np.uint8], bounds: NDArray[np.int64]) -> list[str]:
    """The texts of posts.

    Args:
        data: in which bodies lie as the dump has them, escaped for XML (to undo that first would take longer than all
            the rest), each followed by its closing quote; 16 bytes at least follow the last.
        bounds: shape (bodies, 2), where.
    """
    starts, stops = np.ascontiguousarray(bounds[:, 0]), np.ascontiguousarray(bounds[:, 1])
    ends = np.empty(len(bounds), np.int64)
    out = np.empty(2 * int((stops - starts).sum()) + 2 * ROOM_BYTES, np.uint8)
    eights, done, written = eight_bytes_at_each(data), 0, 0
    while True:
        eights_out = eight_bytes_at_each(out, writeable=True)
        done = render(data, eights, starts, stops, done, out, eights_out, written, ends)
        if done == len(bounds):
            break
        written = int(ends[:done].max(initial=0))
        out = np.concatenate([out, np.empty_like(out)])
    rendered = out[: ends.max(initial=0)].tobytes()
    texts, first = [], 0
    for place, end in enumerate(ends.tolist()):
        if end == UNTIDY:
            texts.append(body_text(data[starts[place] : stops[place]].tobytes().decode("utf-8"), is_tidy=False))
        else:
            texts.append(rendered[first:end].decode("utf-8"))
            first = end
    return texts


def body_text(body: str, is_tidy: bool = True) -> str:
    """The text of one post, given as the dump has it."""
    html_bytes = (body if is_tidy else escaped(_tidied(unescaped(body)))).encode("utf-8")
    return body_texts(np.frombuffer(html_bytes + _CLOSING, np.uint8), np.array([[0, len(html_bytes)]]))[0]


def _tidied(text: str) -> str:
    """The same HTML, with every `<` opening a tag that the next `>` closes, and no entity but the common ones."""
    parts, end, searched = [], 0, 0
    last_comment_end = text.rfind(_COMMENT_END)
    while opening := _OPENING.search(text, searched):
        start = opening.start()
        is_comment = text.startswith(_COMMENT, start) and last_comment_end >= start + len(_COMMENT)
        if is_comment:
            parts.append(_plain(text[end:start]))
            end = text.index(_COMMENT_END, start + len(_COMMENT)) + len(_COMMENT_END)
        elif match := _TAG.match(text, start):
            parts.append(_plain(text[end:start]))
            name, attributes = match.groups()
            if name and name.lower() == "img":
                alt = _ALT.search(attributes)
                words = html.unescape(alt[1] or alt[2] or alt[3] or "") if alt else ""
                parts.append(f'<img alt="{html.escape(words)}">')
            elif name:
                kept = _ATTRIBUTE.search(attributes)
                parts.append(f'<{name} {kept[1].lower()}="{kept[2]}">' if kept else f"<{name}>")
            end = match.end()
        searched = max(end, start + 1)
    parts.append(_plain(text[end:]))
    return "".join(parts)


def _plain(text: str) -> str:
    return html.escape(html.unescape(_HUGE_NUMBER.sub("\ufffd", text)), quote=False)
