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
import itertools
import re
from collections.abc import Iterator

_TOKEN = re.compile(r"""<(?:(/?[a-zA-Z][a-zA-Z0-9]*+)((?:[^"'<>]++|"[^"]*"|'[^']*')*+)>|[!?/][^<>]*+>)""")
_TOKEN_OR_COMMENT = re.compile(f"<!--.*?-->|{_TOKEN.pattern}", re.DOTALL)
_COMMENT_END = "<-->"  # no part of a tag
_HUGE_NUMBER = re.compile(r"&#[0-9]{4301,};?")  # more digits than Python reads
_ATTRIBUTE = re.compile(r"""(?<![^\s"'/])([^\s"'=/]++)\s*+=\s*+(?:"([^"]*)"|'([^']*)'|([^\s"']+))|"[^"]*"|'[^']*'""")
_LANGUAGE = re.compile(r"lang-([\w+#-]{1,30})", re.ASCII)
_START = re.compile(r"""\bstart\s*=\s*["']?([0-9]{1,9})""", re.IGNORECASE)
# Runs that are more than one space or line break.
_WHITE_RUN = re.compile(r"[\x00-\x09\x0b-\x1f\xa0][\x00-\x20\xa0]*+|[ \n][\x00-\x20\xa0]++")
_NUMBER = re.compile(r"[-+]?(?:[0-9]|[A-Za-z](?![0-9A-Za-z_\x80-\U0010ffff]))")
_TICKS = re.compile("`+")
_DEEPEST = 32  # quotes, and lists, within each other; those below are written as if they lay here
_MARKS = "> " * _DEEPEST
_MAX_TICKS = 100
# What the sites' editor puts there for whoever says nothing: of two images in five.
_NO_ALT = ("", "enter image description here", "alt text")
# What stands in a line for code, for the beginning of a cell, and for `<sup>` before a number; no text has them.
_CODE, _CELL, _SUP = "\ud800", "\ud801", "\ud802"
_SUP_OF_WORD = re.compile(f"{_SUP}(?<=[0-9A-Za-z)]{_SUP})")
_HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")
_END_MARKED = frozenset(f"/{name}" for name in ("li", "tr", "ul", "ol", *_HEADINGS))
_PAIRED = ("p", "div", "dl", "dt", "dd", "table", "thead", "tbody", "tfoot", "tr", "ul", "ol", "li", "blockquote")
_BETWEEN_BLOCKS = frozenset(("pre", "hr", *(slash + name for name in _PAIRED + _HEADINGS for slash in ("", "/"))))


def body_text(body: str) -> str:
    """Return the text of one post, of its HTML."""
    return _Page(body).text()


def _decoded(text: str) -> str:
    return html.unescape(_HUGE_NUMBER.sub("\ufffd", text)) if "&" in text else text


def _tokens(body: str) -> Iterator[tuple[str, str, str, int]]:
    """Yield text, name and attributes of the tag behind it, and its end. A comment that is never closed is text."""
    at = 0
    for pattern, searched in ((_TOKEN_OR_COMMENT, body + _COMMENT_END), (_TOKEN, body)):
        for token in pattern.finditer(searched, at):
            start, end = token.span()
            if end > len(body):
                break
            yield _decoded(body[at:start]), (token[1] or "").lower(), token[2], end
            at = end
    yield _decoded(body[at:]), "", "", len(body)


def _alt_text(attributes: str) -> str:
    """Return the words for an image, parted from those around it."""
    for name, *values in _ATTRIBUTE.findall(attributes):
        if name.lower() == "alt":
            words = _decoded("".join(values))
            return "" if words in _NO_ALT else f" {words} "
    return ""


def _one_white(run: re.Match[str]) -> str:
    return "\n" if "\n" in run[0] else " "


class _Page:
    """A text being laid out, block by block."""

    def __init__(self, body: str) -> None:
        self._body, self._tokens = body, _tokens(body)
        self._out: list[str] = []
        self._line: list[str] = []  # the block at hand
        self._codes: list[str] = []  # in it
        self._item = self._heading = ""  # markers of the next block
        self._is_tight = self._was_tight = False  # the next block, and the last one, is an item or a table row
        self._lists: list[list[int | None]] = [[]]  # of the body and of each open quote, the next numbers of its lists
        self._last_depth = self._lowest = 0  # open quotes at the last block, and the fewest since

    def text(self) -> str:
        """Return the whole text."""
        for words, name, attributes, end in self._tokens:
            if self._line or words.strip(" \n"):
                self._line.append(words)
            if name in _BETWEEN_BLOCKS:
                self._end_block()
                self._pass_block_tag(name, attributes)
            elif name == "code":
                self._put_code()
            elif name in ("br", "/br"):
                self._line.append("\n")
            elif name == "img":
                self._line.append(_alt_text(attributes))
            elif name in ("td", "th"):
                self._line.append(f"{_CELL} ")
            elif name == "sup" and _NUMBER.match(self._body, end):
                self._line.append(_SUP)
        self._end_block()
        return "".join(self._out)

    def _pass_block_tag(self, name: str, attributes: str) -> None:
        """Take up what a tag says of the blocks behind it."""
        lists = self._lists[-1]
        if name in _END_MARKED:
            self._forget_marker()
        match name:
            case "pre":
                self._put_code_block(attributes)
            case "li":
                number = lists[-1] if lists else None
                self._item = "  " * (min(len(lists), _DEEPEST) - 1) + ("- " if number is None else f"{number}. ")
                if number is not None:
                    lists[-1] = number + 1
                self._is_tight = True
            case "ul":
                lists.append(None)
            case "ol":
                start = _START.search(attributes)
                lists.append(int(start[1]) if start else 1)
            case "tr":
                self._is_tight = True
            case "blockquote":
                self._flush_marker()
                self._lists.append([])
            case "/blockquote" if len(self._lists) > 1:
                self._forget_marker()
                self._lists.pop()
                self._lowest = min(self._lowest, len(self._lists) - 1)
            case "hr":
                self._forget_marker()
                self._put_block("---")
            case "h1" | "h2" | "h3" | "h4" | "h5" | "h6":
                self._heading = f"{'#' * int(name[1])} "
            case "/ul" | "/ol":
                del lists[-1:]

    def _end_block(self) -> None:
        """Lay out the block at hand, if it has text: one space or line break between words, code as it is."""
        if not self._line:
            return
        words = "".join(self._line).strip(" \n")
        self._line.clear()
        if words and (not words.isprintable() or "  " in words):  # a line break isn't printable
            words = _WHITE_RUN.sub(_one_white, words).lstrip(f" \n{_CELL}")
            words = _SUP_OF_WORD.sub("^", words).replace(_SUP, "")
            words = words.replace(f"\n{_CELL}", " |").replace(f" {_CELL}", " |").replace(_CELL, " |").strip(" \n")
            text, *others = words.split(_CODE)
            words = "".join([text, *itertools.chain.from_iterable(zip(self._codes, others, strict=True))])
            self._codes.clear()
        if words:
            self._put_block(words)

    def _put_block(self, block: str) -> None:
        """Append a block behind its markers, each line behind the marks of the open quotes."""
        depth = len(self._lists) - 1
        if self._out:
            is_near = self._is_tight and self._was_tight and self._lowest == depth == self._last_depth
            self._out.append("\n" if is_near else f"\n{_MARKS[: 2 * self._lowest].rstrip(' ')}\n")
        block = f"{self._item}{self._heading}{block}"
        if depth:
            marks = _MARKS[: 2 * depth]
            block = "\n".join([f"{marks}{line}" if line else marks.rstrip(" ") for line in block.split("\n")])
        self._out.append(block)
        self._was_tight, self._last_depth, self._lowest = self._is_tight, depth, depth
        self._forget_marker()

    def _forget_marker(self) -> None:
        """End an item or heading, whether it had text or not."""
        self._item = self._heading = ""
        self._is_tight = False

    def _flush_marker(self) -> None:
        """Put a marker that is due, but can't share its line with the block that follows."""
        if self._item:
            self._item, self._heading = f"{self._item}{self._heading}".rstrip(" "), ""
            self._put_block("")

    def _put_code(self) -> None:
        code, words = self._verbatim("/code")
        if code.strip(" \n\t"):
            self._codes.append(f"`` {code} ``" if "`" in code else f"`{code}`")
            self._line.append(_CODE)
        else:
            self._line.append(words)

    def _put_code_block(self, attributes: str) -> None:
        code, _ = self._verbatim("/pre")
        if code.strip(" \n\t"):
            self._flush_marker()
            self._is_tight = False
            fence = "`" * min(max(map(len, ["``", *_TICKS.findall(code)])) + 1, _MAX_TICKS)
            language = _LANGUAGE.search(attributes)
            code = code.removeprefix("\n").removesuffix("\n")
            self._put_block(f"{fence}{language[1] if language else ''}\n{code}\n{fence}")

    def _verbatim(self, closing: str) -> tuple[str, str]:
        """Return all characters up to a closing tag, or the end; and the same with the words for images."""
        code, words = list[str](), list[str]()
        for text, name, attributes, _ in self._tokens:
            text += "\n" * (name in ("br", "/br"))
            code.append(text)
            words += (text, _alt_text(attributes) if name == "img" else "")
            if name == closing:
                break
        return "".join(code).replace("\r", ""), "".join(words)
