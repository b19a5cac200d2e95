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
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

_TOKEN = re.compile(r"""<(?:(/?[a-zA-Z][a-zA-Z0-9]*+)((?:[^"'<>]++|"[^"]*"|'[^']*')*+)>|[!?/][^<>]*+>)""")
_COMMENT, _COMMENT_END = "<!--", "-->"
_TOKEN_OR_COMMENT = re.compile(f"{_COMMENT}|{_TOKEN.pattern}")
_CLOSED_COMMENT = re.compile("<!--()().*?-->", re.DOTALL)
_BLOCK = r"<(?:/?(?:p|li|ul|ol|blockquote|h[1-6])|hr(?: ?/)?)>[ \n]*+"
_BLOCK_TAGS = re.compile(f"({_BLOCK}(?:{_BLOCK})*+)")
_LONGEST_KEPT = 200
# Of what leaves no trace; as `_TOKEN` has it.
_PHRASE_TAG = re.compile(
    r"""</?(?:a|em|strong|b|i|del|kbd|s|span|strike|sub|u)(?:\s[^<>"']*+(?:"[^"<>]*+"[^<>"']*+)*+)?>"""
)
_CUT = re.compile("&[^\t\n\f <&;]*+<")  # a reference, to which what follows the tag may belong
_BETWEEN_BLOCKS = ("\n", "\n\n")  # as the sites' editor writes them
_HUGE_NUMBER = re.compile(r"&#[0-9]{4301,};?")  # more digits than Python reads
_ATTRIBUTE = re.compile(r"""(?<![^\s"'/])([^\s"'=/]++)\s*+=\s*+(?:"([^"]*)"|'([^']*)'|([^\s"']+))|"[^"]*"|'[^']*'""")
_LANGUAGE = re.compile(r"lang-([\w+#-]{1,30})", re.ASCII)
_START = re.compile(r"""\bstart\s*=\s*["']?([0-9]{1,9})""", re.IGNORECASE)
# Runs that are more than one space or line break.
_WHITE_RUN = re.compile(r"[\x00-\x09\x0b-\x1f\xa0][\x00-\x20\xa0]*+|[ \n][\x00-\x20\xa0]++")
_WHITE_BREAK = re.compile(r"\n[ \n]| \n")
_NUMBER = re.compile(r"[-+]?(?:[0-9]|[A-Za-z](?![0-9A-Za-z_\x80-\U0010ffff]))")
_WORD_END = re.compile(r"[0-9A-Za-z)]\Z")
_TICKS = re.compile("`+")
_DEEPEST = 32  # quotes, and lists, within each other; those below are written as if they lay here
_MAX_TICKS = 100
_BREAKS = frozenset(
    slash + name for name in ("p", "div", "dl", "dt", "dd", "table", "thead", "tbody", "tfoot") for slash in ("", "/")
)
_HEADINGS = frozenset(f"h{level}" for level in range(1, 7))
_OPENED = frozenset(("br", "code", "pre", "img", "li", "ul", "ol", "blockquote", "hr", "tr", "sup", "td", "th"))
_LAYOUT = _BREAKS | frozenset(slash + name for name in _OPENED | _HEADINGS for slash in ("", "/"))
# What the sites' editor puts there for whoever says nothing: of two images in five.
_NO_ALT = ("", "enter image description here", "alt text")


class _Place(NamedTuple):
    """Where a text being laid out stands between two blocks.

    Attributes:
        has_text: whether a block came before.
        is_tight, was_tight: the next block, and the last one, is an item or a table row.
        item, heading: markers of the next block.
        last_depth, lowest: open quotes at the last block, and the fewest since.
        lists: of each open quote the next numbers of its lists.
    """

    has_text: bool
    is_tight: bool
    was_tight: bool
    item: str
    heading: str
    last_depth: int
    lowest: int
    lists: tuple[tuple[int | None, ...], ...]


_TOP = _Place(False, False, False, "", "", 0, 0, ((),))


class _NotByBlocks(Exception):
    """The body's blocks can't be laid out one by one."""


def body_text(body: str) -> str:
    """The text of one post, of its HTML."""
    if _COMMENT not in body:
        try:
            return _text_by_blocks(body)
        except _NotByBlocks:
            pass
    page = _Page(_TOP)
    page.lay(_parts(body))
    return page.close()


def _text_by_blocks(body: str) -> str:
    """The same: what tags between blocks come to is remembered, and blocks of mere words are not looked into.

    Raises:
        _NotByBlocks: the body has a `<` that begins no tag, or code that goes on in the next block, or is very deep.
    """
    out, place, tags = list[str](), _TOP, ""
    parts = iter(["", *_BLOCK_TAGS.split(body)])
    for more_tags, piece in zip(parts, parts, strict=True):
        tags += more_tags
        if not piece:
            continue
        words, is_clear = piece, len(tags) <= _LONGEST_KEPT
        if "<" in piece:
            lines = piece.replace("<br />", "<br>").split("<br>") if "<br" in piece else [piece]
            words = "\n".join([_PHRASE_TAG.sub("", line) for line in lines])
            is_clear = is_clear and "<" not in words and not ("&" in piece and _CUT.search(piece))
        if not is_clear:
            laid, place = _laid(place, tags + piece)
            out.append(laid)
        elif words := _one_spaced(_decoded(words) if "&" in words else words):
            before, place = _between(place, tags)
            if "\n" in words and len(place.lists) > 1:
                words = _quoted(words, _new_line(len(place.lists) - 1))
            out += (before, words)
        else:
            continue
        tags = ""
    out.append(_ending(place, tags) if len(tags) <= _LONGEST_KEPT else _laid(place, tags)[0])
    return "".join(out)


def _laid(place: _Place, html: str) -> tuple[str, _Place]:
    """What whole blocks add to a text, and where it stands then."""
    page, parts = _Page(place), _TOKEN.split(html)
    if any("<" in text for text in parts[::3]):
        raise _NotByBlocks
    page.lay(parts)
    return page.laid()


@lru_cache(maxsize=4096)
def _between(place: _Place, tags: str) -> tuple[str, _Place]:
    """What tags add to a text before the words behind them, and where it stands behind these."""
    laid, after = _laid(place, f"{tags}x")
    return laid[:-1], after


@lru_cache(maxsize=4096)
def _ending(place: _Place, tags: str) -> str:
    return _laid(place, tags)[0]


def _one_spaced(words: str) -> str:
    """Words, with one space or line break between each and none around them."""
    words = words.strip(" \n")
    while "  " in words:
        words = words.replace("  ", " ")
    if "\n" not in words:
        is_done = words.isprintable()
    else:  # a line break isn't printable
        is_done = words.replace("\n", "").isprintable() and _WHITE_BREAK.search(words) is None
    return words if is_done else _WHITE_RUN.sub(_one_white, words).strip(" \n")


def _decoded(text: str) -> str:
    return html.unescape(_HUGE_NUMBER.sub("\ufffd", text))


def _parts(body: str) -> list[str]:
    """Text, name and attributes of a tag, text, …"""
    if _COMMENT not in body:
        return _TOKEN.split(body)
    parts, at = list[str](), 0
    for token in _tokens(body):
        parts += (body[at : token.start()], token[1], token[2])
        at = token.end()
    return [*parts, body[at:]]


def _tokens(body: str) -> Iterator[re.Match[str]]:
    """Tags and comments; a comment that is never closed is a declaration, or text."""
    at, last_end = 0, body.rfind(_COMMENT_END)
    while found := _TOKEN_OR_COMMENT.search(body, at):
        at = found.end()
        token: re.Match[str] | None = found
        if found[0] == _COMMENT:
            is_closed = last_end >= at
            token = (_CLOSED_COMMENT if is_closed else _TOKEN).match(body, found.start())
        if token is not None:
            at = token.end()
            yield token


def _alt_of(attributes: str) -> str:
    for name, *values in _ATTRIBUTE.findall(attributes):
        if name.lower() == "alt":
            return html.unescape("".join(values))
    return ""


def _one_white(run: re.Match[str]) -> str:
    return "\n" if "\n" in run[0] else " "


class _Page:
    """A text being laid out, block by block."""

    def __init__(self, place: _Place) -> None:
        self._out: list[str] = [""] if place.has_text else []
        self._is_open = False  # the block at hand has text
        self._gap = ""  # white space since its last character
        _, self._is_tight, self._was_tight, self._item, self._heading, self._last_depth, self._lowest, lists = place
        self._lists = [list(numbers) for numbers in lists]
        self._depth = len(lists) - 1  # open quotes
        self._new_line = _new_line(self._depth)  # and their marks
        self._verbatim: list[str] | None = None  # pieces of <code> or <pre>
        self._words: list[str] = []  # the same, and the words for images in it
        self._closes_at = self._language = ""

    def laid(self) -> tuple[str, _Place]:
        """What was laid out, and where it ends.

        Raises:
            _NotByBlocks: in the midst of code, or very deep.
        """
        if self._verbatim is not None or sum(map(len, self._lists), self._depth) > _DEEPEST:
            raise _NotByBlocks
        marks = self._is_tight, self._was_tight, self._item, self._heading, self._last_depth, self._lowest
        return "".join(self._out), _Place(bool(self._out), *marks, tuple(map(tuple, self._lists)))

    def lay(self, parts: Sequence[str]) -> None:
        """Text, name and attributes of a tag, text, …"""
        pieces = list[str]()
        for text, name, attributes, following in zip(parts[::3], parts[1::3], parts[2::3], parts[3::3], strict=False):
            if text:
                pieces.append(_decoded(text) if "&" in text else text)
            if name in _LAYOUT or (name and name.lower() in _LAYOUT):
                if pieces:
                    self.text("".join(pieces))
                    pieces.clear()
                self.tag(name.lower(), attributes, following)
        self.text("".join([*pieces, _decoded(parts[-1])]))

    def text(self, piece: str) -> None:
        """Characters between tags, decoded."""
        if self._verbatim is not None:
            self._verbatim.append(piece)
            self._words.append(piece)
            return
        if piece in _BETWEEN_BLOCKS and not self._is_open:
            return
        if "  " in piece or not piece.isprintable():  # a line break isn't
            piece = _WHITE_RUN.sub(_one_white, piece)
        words = piece.strip(" \n")
        if words:
            self._put(words, piece[0])
            self._gap = piece[-1] if piece[-1] in " \n" else ""
        elif piece and self._is_open and self._gap != "\n":
            self._gap = piece

    def _put(self, words: str, before: str = "") -> None:
        """Words of the line at hand; white space comes before them, if that is what comes before."""
        if not self._is_open:
            self._open_block()
        elif self._gap == "\n" or before == "\n":
            self._out.append(self._new_line)
        elif self._gap or before == " ":
            self._out.append(" ")
        self._out.append(_quoted(words, self._new_line) if self._depth and "\n" in words else words)
        self._gap = ""

    def _end_word(self) -> None:
        if self._is_open:
            self._gap = self._gap or " "

    def _open_block(self) -> None:
        """What stands between blocks, and the markers of this one."""
        if self._out:
            if not (self._is_tight and self._was_tight and self._lowest == self._depth == self._last_depth):
                self._out.append(_new_line(self._lowest).rstrip(" "))
            self._out.append(self._new_line)
        else:
            self._out.append(self._new_line[1:])
        if self._item or self._heading:
            self._out += (self._item, self._heading)
        self._was_tight = self._is_tight
        self._last_depth = self._lowest = self._depth
        self._is_open, self._gap = True, ""
        self._forget_marker()

    def _end_block(self) -> None:
        self._is_open, self._gap = False, ""

    def _forget_marker(self) -> None:
        """The item or heading is over, whether it had text or not."""
        self._item = self._heading = ""
        self._is_tight = False

    def _put_lonely_marker(self) -> None:
        """A marker that is due, but can't share its line with the block that follows."""
        if self._item:
            self._item, self._heading = f"{self._item}{self._heading}".rstrip(" "), ""
            self._open_block()
            self._end_block()

    def tag(self, name: str, attributes: str, following: str) -> None:
        """A tag, `/` before the name of a closing one, and the text behind it up to the next tag."""
        if name in ("br", "/br"):
            self.text("\n")
        elif self._verbatim is not None:
            if name == self._closes_at:
                self._end_verbatim()
            elif name == "img" and (words := _alt_of(attributes)) not in _NO_ALT:
                self._words.append(f" {words} ")
        elif name in _BREAKS:
            self._end_block()
        elif name in ("code", "pre"):
            if name == "pre":
                self._end_block()
                language = _LANGUAGE.search(attributes)
                self._language = language[1] if language else ""
            self._verbatim, self._words, self._closes_at = [], [], f"/{name}"
        elif name[0] == "/":
            self._close(name[1:])
        else:
            self._open(name, attributes, following)

    def _open(self, name: str, attributes: str, following: str) -> None:
        lists = self._lists[-1]
        match name:
            case "sup":
                is_behind_word = self._is_open and not self._gap and _WORD_END.search(self._out[-1])
                if is_behind_word and _NUMBER.match(following):
                    self._out.append("^")
            case "img":
                if (words := _alt_of(attributes)) not in _NO_ALT:
                    self._end_word()
                    self.text(words)
                    self._end_word()
            case "li":
                self._end_block()
                number = lists[-1] if lists else None
                self._item = "  " * (min(len(lists), _DEEPEST) - 1) + ("- " if number is None else f"{number}. ")
                if number is not None:
                    lists[-1] = number + 1
                self._is_tight = True
            case "ul" | "ol":
                self._end_block()
                start = _START.search(attributes)
                lists.append(None if name == "ul" else int(start[1]) if start else 1)
            case "blockquote":
                self._end_block()
                self._put_lonely_marker()
                self._lists.append([])
                self._depth += 1
                self._new_line = _new_line(self._depth)
            case "hr":
                self._end_block()
                self._forget_marker()
                self._put("---")
                self._end_block()
            case "tr":
                self._end_block()
                self._is_tight = True
            case "td" | "th":
                if self._is_open:
                    self._out.append(" |")
                    self._gap = " "
            case _ if name in _HEADINGS:
                self._end_block()
                self._heading = f"{'#' * int(name[1])} "

    def _close(self, name: str) -> None:
        if name in ("ul", "ol"):
            del self._lists[-1][-1:]
        elif name == "blockquote" and self._depth:
            self._lists.pop()
            self._depth -= 1
            self._new_line = _new_line(self._depth)
            self._lowest = min(self._lowest, self._depth)
        elif name not in ("li", "tr") and name not in _HEADINGS:
            if name == "blockquote":
                self._end_block()
            return
        self._end_block()
        self._forget_marker()

    def _end_verbatim(self) -> None:
        code = "".join(self._verbatim or ()).replace("\r", "")
        self._verbatim = None
        if self._closes_at == "/code":
            if code.strip(" \n\t"):
                self._put(f"`` {code} ``" if "`" in code else f"`{code}`")
            else:
                self.text("".join(self._words))
        elif code.strip(" \n\t"):
            self._put_lonely_marker()
            self._is_tight = False
            fence = "`" * min(max(map(len, ["``", *_TICKS.findall(code)])) + 1, _MAX_TICKS)
            code = code.removeprefix("\n").removesuffix("\n")
            self._put(f"{fence}{self._language}\n{code}\n{fence}")
            self._end_block()

    def close(self) -> str:
        """The whole text."""
        if self._verbatim is not None:
            self._end_verbatim()
        return "".join(self._out)


def _new_line(depth: int) -> str:
    return "\n" + "> " * min(depth, _DEEPEST)


def _quoted(words: str, new_line: str) -> str:
    """Lines in quotes; the first one's marks stand there."""
    first, *lines = words.split("\n")
    return first + "".join([f"{new_line}{line}" if line else new_line.rstrip(" ") for line in lines])
