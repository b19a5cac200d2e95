"""Text and title of HTML pages, in the layout of `stackexchange/body_text.py`."""

import codecs
import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Collection
from typing import TYPE_CHECKING

from pipeline_assets.corpus.readers.faults import Fault, Row, utf8_fault
from pipeline_assets.corpus.readers.stackexchange.body_text import body_text

if TYPE_CHECKING:
    from selectolax.lexbor import LexborNode

# `noframes` includes each `noscript`, see `_NOSCRIPT`. Browsers do not show the text within media elements that they
# can play. A hidden page is shown by a script after loading.
_REMOVED_ELEMENTS = (
    "script, style, noframes, noembed, template, iframe, object, svg, canvas, audio, video, nav, footer, aside, "
    "button, select, datalist, textarea, [role=navigation], [role=contentinfo], [hidden]:not(html, body)"
)
# A browser with scripts reads `noscript` as it reads `noframes`, as text without tags. The parser reads its tags: those
# in the head, such as an image that counts visits, would end the head before the title.
_NOSCRIPT = re.compile(r"(</?)noscript(?=[\s/>])", re.IGNORECASE)
_BYTE_ORDER_MARKS = {b"\xef\xbb\xbf": "utf-8-sig", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
# A comment, or a `charset` outside `content`, or in the `content` of an HTTP header, but not of a description.
_CHARSET = re.compile(
    rb"""<!--.*?-->|<meta(?:(?=[^>]*\shttp-equiv\b)|(?![^>]*\scontent\b))[^>]+charset\s*=\s*["']?\s*([\w.:-]+)""",
    re.IGNORECASE | re.DOTALL,
)
_XML_ENCODING = re.compile(rb"""<\?xml\s[^>]*\bencoding\s*=\s*["']([\w.:-]+)""")
_CHARSET_BYTES = 1024  # https://html.spec.whatwg.org: the prescan reads the first 1024 bytes
# Supersets that browsers use instead, by Python's name of the encoding.
_SUPERSETS = {
    **dict.fromkeys(("ascii", "iso8859-1"), "cp1252"),
    "iso8859-9": "cp1254",
    **dict.fromkeys(("iso8859-11", "tis-620"), "cp874"),
    "gb2312": "gb18030",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
}
# Blocks that `body_text` does not know, and blocks of code, whose language it reads from the class of `pre`.
_BLOCK = re.compile(
    r"<(/?)(?:address|article|body|caption|center|details|dialog|dir|fieldset|figcaption|figure|form|header|hgroup|"
    r"legend|listing|main|menu|search|section|summary)(?=[\s>])"
)
_CODE = re.compile(r'<pre[^>]*>\s*<code class="(?:[^"]* )?lang(?:uage)?-([\w+#-]+)[^"]*"[^>]*>')
# The time of the parser grows with the square of the depth. It opens formatting elements again in each paragraph.
_MAX_DEPTH, _FORMATTING_DEPTH, _MAX_EQUAL_FORMATTING = 10_000, 10, 3
_TAG = re.compile(r"<(/?)([a-zA-Z][^\s/<>]*+)([^<>]*+)")
_FORMATTING = re.compile(r"b|big|code|em|font|i|s|small|strike|strong|tt|u")
# Elements without content, and elements that end at the next one of their kind or of their table.
_NOT_NESTED = re.compile(
    r"area|base|br|col|embed|hr|img|input|link|meta|param|source|track|wbr|"
    r"a|body|button|caption|colgroup|dd|dt|head|html|li|nobr|optgroup|option|p|rp|rt|tbody|td|tfoot|th|thead|tr"
)


def html_row(content: bytes) -> Row:
    """Return a page's row, with `text` and an optional `title`, or the page's fault.

    The encoding comes from the byte order mark, else from a charset in the first `_CHARSET_BYTES`, else from an XML
    declaration, else it is UTF-8.
    """
    encoding = next((name for mark, name in _BYTE_ORDER_MARKS.items() if content.startswith(mark)), None)
    if encoding is None:
        labels = (named[1] for named in _CHARSET.finditer(content, 0, _CHARSET_BYTES))
        declared = _XML_ENCODING.match(content, 0, _CHARSET_BYTES)
        label = next(filter(None, labels), declared[1] if declared else b"utf-8")
        encoding = _python_encoding(label.decode().lower())
    try:
        return decoded_html_row(content.decode(encoding))
    except LookupError:
        return Fault("unknown_encoding", encoding)
    except UnicodeError as error:
        if encoding.startswith("utf-8") and isinstance(error, UnicodeDecodeError):
            return utf8_fault(error)
        return Fault("invalid_encoding", f"the text is not {encoding}")


def _python_encoding(label: str) -> str:
    """Convert a page's encoding label to Python's name; keep an unknown label.

    As in browsers, some labels stand for a larger encoding (see `_SUPERSETS`): `ascii` stands for cp1252. UTF-16 stands
    for UTF-8, because a label that was written in UTF-16 would not be found.
    """
    try:
        name = codecs.lookup(label).name
        has_ascii_bytes = label.encode(name) == label.encode()
    except (LookupError, UnicodeError):
        return label
    return _SUPERSETS.get(name, name) if has_ascii_bytes else "utf-8"


def _is_too_deep(page: str) -> bool:
    """Check whether more than `_MAX_DEPTH` elements of a page may be open at once.

    An open formatting element, such as `<b>`, counts as ten elements. As in browsers, at most three open
    formatting elements with equal names and attributes are counted.
    """
    if page.count("<") <= _MAX_DEPTH // _FORMATTING_DEPTH:
        return False
    depth, verbatim = 0, ""
    opened, alike = defaultdict[str, list[str]](list), Counter[str]()
    for tag in _TAG.finditer(page):
        name, attributes = tag[2].lower(), tag[3]
        if verbatim and not (tag[1] and name == verbatim):
            continue
        verbatim = name if name in ("script", "style") and not tag[1] else ""
        is_drawing = attributes.endswith("/") and (opened["svg"] or opened["math"])
        added, key = (_FORMATTING_DEPTH, name + attributes) if _FORMATTING.fullmatch(name) else (1, name)
        if tag[1]:
            if opened[name]:
                alike[opened[name].pop()] -= 1
                depth -= added
        elif not _NOT_NESTED.fullmatch(name) and not is_drawing and (added == 1 or alike[key] < _MAX_EQUAL_FORMATTING):
            opened[name].append(key)
            alike[key] += 1
            depth += added
            if depth > _MAX_DEPTH:
                return True
    return False


def _unwrap_only_child(parent: "LexborNode", names: Collection[str]) -> None:
    """Unwrap an element that is all of its parent, and then the element within it.

    Only elements with one of `names` are unwrapped.
    """
    while not parent.text(deep=False).strip():
        elements = [*itertools.islice(parent.iter(), 2)]
        if len(elements) != 1 or elements[0].tag not in names:
            break
        if elements[0].first_child is None:
            elements[0].decompose()  # `unwrap` keeps an empty element
        else:
            elements[0].unwrap()


def decoded_html_row(page: str) -> Row:
    """Return a decoded page's row, with `text` and an optional `title`, or its fault.

    The text is from `main`, or from the body if `main` is missing, without menus, sidebars, footers and controls.
    """
    from selectolax.lexbor import LexborHTMLParser

    if _is_too_deep(page):
        return Fault("nested_too_deep", f"more than {_MAX_DEPTH:,} elements are open, formatting ones counted tenfold")
    tree = LexborHTMLParser(_NOSCRIPT.sub(r"\1noframes", page))
    for heading in tree.css("h1, h2, h3, h4, h5, h6"):
        _unwrap_only_child(heading, ["button"])  # a click on it shows the text below
    for element in tree.css(_REMOVED_ELEMENTS):
        element.decompose()
    titles = tree.css("title")
    name = " ".join(titles[0].text().split()) if titles else ""
    for title in titles:
        title.decompose()
    for cell in tree.css("td, th"):
        _unwrap_only_child(cell, ["p", "div"])  # so that a row is one line
    root = tree.css_first("main, [role=main]") or tree.body
    html = _CODE.sub(r'<pre class="lang-\1"><code>', _BLOCK.sub(r"<\1div", (root and root.html) or ""))
    return {"text": body_text(html)} | ({"title": name} if name else {})
