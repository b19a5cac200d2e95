"""HTML of posts → plain text, with Markdown where layout has a meaning.

    block                  text; blocks are separated by a blank line
    ---------------------  ------------------------------------------------------------------------------------------
    paragraph, division    its text
    pre                    its characters, unchanged, between ``` fences, with the language if its class states it;
                           blocks within it begin and end a line
    ul, ol                 one line per item, with `- ` or its number, indented by two spaces per level
    blockquote             `> ` before each line
    h1 … h6                `#` … `######` before the text
    hr                     `---`
    table                  one line per row, cells separated by ` | `, also empty ones; a line break in a cell is kept

    inline                 text
    ---------------------  ------------------------------------------------------------------------------------------
    code                   its characters, spaces included, between backticks
    a                      its text, without the URL
    img                    its `alt` text, unless that is a default of the editor
    sup                    its text, after `^` if it follows a word directly and begins with a number or a single letter
    br, a line break       a line break
    comment                nothing
    any other              its text

Outside code, a run of white space (no-break space included) becomes a line break if it contains one, otherwise a space.
Entities are decoded. MathJax is unchanged.
"""

import html
import itertools
import re
from collections.abc import Iterator

# A tag, with `>` allowed in quoted values, or a declaration. Possessive repeats (`*+`) keep hostile bodies linear.
_TAG = re.compile(r"""<(?:(/?[a-zA-Z][^\s"'<>/]*+)((?:[^"'<>]++|"[^"]*"|'[^']*')*+)>|[!?/][^<>]*+>)""")
_TAG_OR_COMMENT = re.compile(f"<!--.*?-->|{_TAG.pattern}", re.DOTALL)
_COMMENT_END = "<-->"  # cannot be part of a tag
_HUGE_NUMBER = re.compile(r"&#[0-9]{4301,};?")  # more digits than int() accepts
_ATTRIBUTE = re.compile(r"""(?<![^\s"'/])([^\s"'=/]++)\s*+=\s*+(?:"([^"]*)"|'([^']*)'|([^\s"']+))|"[^"]*"|'[^']*'""")
_LANGUAGE = re.compile(r"\blang(?:uage)?-([\w+#-]{1,30})", re.ASCII)
_NUMBER = re.compile("[0-9]{1,9}")
# Runs of white space other than a single space or line break.
_WHITE_RUN = re.compile(r"[\x00-\x09\x0b-\x1f\xa0][\x00-\x20\xa0]*+|[ \n][\x00-\x20\xa0]++")
_EXPONENT = re.compile(r"[-+]?(?:[0-9]|[A-Za-z](?![0-9A-Za-z_\x80-\U0010ffff]))")
_TICKS = re.compile("`+")
_MAX_DEPTH = 32  # marks of nested quotes and lists; deeper text gets the marks of this depth
_BLOCKQUOTE_PREFIX = "> " * _MAX_DEPTH
_MAX_TICKS = 100
# Defaults of the sites' editor, in two of five images.
_DEFAULT_ALTS = ("", "enter image description here", "alt text")
# Placeholders for code, the start of a cell, and `<sup>` before a number; lone surrogates occur in no text.
_CODE, _CELL, _SUP = "\ud800", "\ud801", "\ud802"
_WORD_SUP = re.compile(f"{_SUP}(?<=[0-9A-Za-z)]{_SUP})")
_HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")
_MARKER_END_TAGS = frozenset(f"/{name}" for name in ("li", "tr", "ul", "ol", *_HEADINGS))
_PAIRED = ("p", "div", "dl", "dt", "dd", "table", "thead", "tbody", "tfoot", "tr", "ul", "ol", "li", "blockquote")
_BLOCK_TAGS = frozenset(("pre", "hr", *(slash + name for name in _PAIRED + _HEADINGS for slash in ("", "/"))))


def body_text(body: str) -> str:
    """Convert the HTML of one post to text."""
    return _PostLayout(body).text()


def _decode_entities(text: str) -> str:
    return html.unescape(_HUGE_NUMBER.sub("\ufffd", text)) if "&" in text else text


def _split_at_tags(body: str) -> Iterator[tuple[str, str, str, int]]:
    """Yield the text before each tag, and the tag's name, attributes and end offset.

    Comments, declarations and the end of the body count as tags without a name.
    """
    position = 0
    # An unclosed comment runs into the appended _COMMENT_END; from its start on, only _TAG is searched.
    for pattern, searched in ((_TAG_OR_COMMENT, body + _COMMENT_END), (_TAG, body)):
        for token in pattern.finditer(searched, position):
            start, end = token.span()
            if end > len(body):
                break
            yield _decode_entities(body[position:start]), (token[1] or "").lower(), token[2], end
            position = end
    yield _decode_entities(body[position:]), "", "", len(body)


def _attribute(attributes: str, name: str) -> str:
    """Return the value of an attribute as it is written, with entities; "" if missing."""
    values = (values for key, *values in _ATTRIBUTE.findall(attributes) if key.lower() == name)
    return "".join(next(values, ()))


def _alt_text(attributes: str) -> str:
    """Return an image's `alt` text padded with spaces; "" if missing or a default."""
    text = _decode_entities(_attribute(attributes, "alt"))
    return "" if text in _DEFAULT_ALTS else f" {text} "


class _PostLayout:
    """Conversion of one post's HTML to text, block by block."""

    def __init__(self, body: str) -> None:
        self._body, self._tags = body, _split_at_tags(body)
        self._out: list[str] = []
        self._line: list[str] = []  # text of the current block
        self._codes: list[str] = []  # inline code of the current block
        self._item_mark = self._heading_mark = ""  # markers of the next block
        self._is_tight = self._was_tight = False  # whether the next and the last block is a list item or table row
        # Open lists of the body and of each open quote: the next number of an ordered list, None for other lists.
        self._lists: list[list[int | None]] = [[]]
        self._last_depth = self._lowest_depth = 0  # number of open quotes at the last block, and its minimum since then

    def text(self) -> str:
        for text, name, attributes, end in self._tags:
            if self._line or text.strip(" \n"):
                self._line.append(text)
            if name in _BLOCK_TAGS:
                self._end_block()
                self._apply_block_tag(name, attributes)
            elif name == "code":
                self._append_code()
            elif name in ("br", "/br"):
                self._line.append("\n")
            elif name == "img":
                self._line.append(_alt_text(attributes))
            elif name in ("td", "th"):
                self._line.append(f"{_CELL} ")
            elif name == "sup" and _EXPONENT.match(self._body, end):
                self._line.append(_SUP)
        self._end_block()
        return "".join(self._out)

    def _apply_block_tag(self, name: str, attributes: str) -> None:
        """Update the state after a block tag; append a code block or horizontal rule."""
        lists = self._lists[-1]
        if name in _MARKER_END_TAGS:
            self._clear_marker()
        match name:
            case "pre":
                self._append_code_block(attributes)
            case "li":
                number = lists[-1] if lists else None
                if number is not None and (value := _NUMBER.match(_attribute(attributes, "value"))):
                    number = int(value[0])
                self._item_mark = "  " * (min(len(lists), _MAX_DEPTH) - 1) + ("- " if number is None else f"{number}. ")
                if number is not None:
                    lists[-1] = number + 1
                self._is_tight = True
            case "ul":
                lists.append(None)
            case "ol":
                start = _NUMBER.match(_attribute(attributes, "start"))
                lists.append(int(start[0]) if start else 1)
            case "tr":
                self._is_tight = True
            case "blockquote":
                self._flush_marker()
                self._lists.append([])
            case "/blockquote" if len(self._lists) > 1:
                self._clear_marker()
                self._lists.pop()
                self._lowest_depth = min(self._lowest_depth, len(self._lists) - 1)
            case "hr":
                self._clear_marker()
                self._append_block("---")
            case "h1" | "h2" | "h3" | "h4" | "h5" | "h6":
                self._heading_mark = f"{'#' * int(name[1])} "
            case "/ul" | "/ol":
                del lists[-1:]

    def _end_block(self) -> None:
        """Append the current block, with normalized white space, if it has text."""
        if not self._line:
            return
        text = "".join(self._line).strip(" \n")
        self._line.clear()
        if text and (not text.isprintable() or "  " in text):  # a line break is not printable
            text = _WHITE_RUN.sub(lambda run: "\n" if "\n" in run[0] else " ", text)
            text = text.lstrip(" \n").removeprefix(_CELL) if text.strip(f" \n{_CELL}") else ""
            text = _WORD_SUP.sub("^", text).replace(_SUP, "")
            # A cell is separated from the one before it by ` |`, which also replaces the white space between them.
            text = text.replace(f"\n{_CELL}", " |").replace(f" {_CELL}", " |").replace(_CELL, " |").strip(" \n")
            first, *rest = text.split(_CODE)
            text = "".join([first, *itertools.chain.from_iterable(zip(self._codes, rest, strict=True))])
            self._codes.clear()
        if text:
            self._append_block(text)

    def _append_block(self, block: str) -> None:
        """Append a block, with pending markers and a mark for each open quote."""
        depth = len(self._lists) - 1
        if self._out:
            # Adjacent list items and table rows of one quote are separated by a line break, other blocks by an empty
            # line, which has the marks of the quotes that contain both blocks.
            is_near = self._is_tight and self._was_tight and self._lowest_depth == depth == self._last_depth
            self._out.append("\n" if is_near else f"\n{_BLOCKQUOTE_PREFIX[: 2 * self._lowest_depth].rstrip(' ')}\n")
        block = f"{self._item_mark}{self._heading_mark}{block}"
        if depth:
            marks = _BLOCKQUOTE_PREFIX[: 2 * depth]
            block = "\n".join([f"{marks}{line}" if line else marks.rstrip(" ") for line in block.split("\n")])
        self._out.append(block)
        self._was_tight, self._last_depth, self._lowest_depth = self._is_tight, depth, depth
        self._clear_marker()

    def _clear_marker(self) -> None:
        """Discard the pending marker of a list item or heading, used or not."""
        self._item_mark = self._heading_mark = ""
        self._is_tight = False

    def _flush_marker(self) -> None:
        """Append the pending item marker, if any, on a line of its own."""
        if self._item_mark:
            self._item_mark, self._heading_mark = f"{self._item_mark}{self._heading_mark}".rstrip(" "), ""
            self._append_block("")

    def _append_code(self) -> None:
        code, text = self._read_verbatim("/code")
        if code.strip(" \n\t"):
            self._codes.append(f"`` {code} ``" if "`" in code else f"`{code}`")
            self._line.append(_CODE)
        else:
            self._line.append(text)

    def _append_code_block(self, attributes: str) -> None:
        code, _ = self._read_verbatim("/pre")
        if code.strip(" \n\t"):
            self._flush_marker()
            self._is_tight = False
            fence = "`" * min(max(map(len, ["``", *_TICKS.findall(code)])) + 1, _MAX_TICKS)
            language = _LANGUAGE.search(_attribute(attributes, "class"))
            code = code.removeprefix("\n").removesuffix("\n")
            self._append_block(f"{fence}{language[1] if language else ''}\n{code}\n{fence}")

    def _read_verbatim(self, closing: str) -> tuple[str, str]:
        """Return the text up to a closing tag twice: without and with images' `alt` texts."""
        code, with_alt_texts, last = list[str](), list[str](), "\n"
        for text, name, attributes, _ in self._tags:
            last = text[-1:] or last
            if name in ("br", "/br") or (name in _BLOCK_TAGS and last != "\n"):
                text, last = f"{text}\n", "\n"
            code.append(text)
            with_alt_texts += (text, _alt_text(attributes) if name == "img" else "")
            if name == closing:
                break
        return "".join(code).replace("\r", ""), "".join(with_alt_texts)
