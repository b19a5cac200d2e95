"""Text of post bodies, element by element and against an oracle for any HTML."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from plain_stackexchange import to_text

from pipeline_assets.corpus.readers.stackexchange.body_text import body_text

# Blocks


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<p>One.</p>\n\n<p>Two.</p>\n", "One.\n\nTwo."),
        ("<p>One.</p>\n<p>Two.</p>\n", "One.\n\nTwo."),
        ("<h1>Big</h1>\n<p>Then</p><h3>Small</h3>", "# Big\n\nThen\n\n### Small"),
        ("<p>Above</p><hr><p>Below</p>", "Above\n\n---\n\nBelow"),
        ("Bare text<p>and a paragraph</p>tail", "Bare text\n\nand a paragraph\n\ntail"),
        ("<ul>\n<li>one</li>\n<li>two</li>\n</ul>\n<p>After</p>", "- one\n- two\n\nAfter"),
        ("<ol><li>one</li><li>two</li></ol><ol start=\"7\"><li>seven</li></ol>", "1. one\n2. two\n7. seven"),
        ("<ol><li>a<li value=7>b<li>c<li value=x>d</ol><ul><li value=3>e</ul>", "1. a\n7. b\n8. c\n9. d\n- e"),
        ("<ul><li>a<ul><li>b</li></ul></li><li>c</li></ul>", "- a\n  - b\n- c"),
        ("<ul>\n<li><p>a</p>\n\n<p>more of a</p></li>\n<li><p>b</p></li>\n</ul>", "- a\n\nmore of a\n\n- b"),
        ("<blockquote>\n  <p>one</p>\n  <p>two</p>\n</blockquote><p>said he</p>", "> one\n>\n> two\n\nsaid he"),
        ("<blockquote><p>a</p><blockquote><p>b</p></blockquote></blockquote>", "> a\n>\n> > b"),
        ("<ul><li><blockquote>said</blockquote></li></ul>", "-\n\n> said"),
        ("<table><thead><tr><th>a</th><th>b</th></tr></thead><tr><td>1</td><td></td></tr></table>", "a | b\n1 |"),
        ("<table><tr><th></th><th>b</th></tr><tr><td>1</td><td>2</td></tr></table>", "| b\n1 | 2"),
        ("<table><tr><td> </td><td></td><td>c</td></tr><tr><td></td><td></td></tr></table>", "| | c"),
        ("<p></p><ul><li></li></ul><p> \n </p>", ""),
        ("", ""),
    ],
)  # fmt: skip
def test_blocks_become_markdown(html: str, text: str) -> None:
    assert body_text(html) == text


# Code


@pytest.mark.parametrize(
    ("html", "text"),
    [
        (
            '<p>So:</p>\n<pre class="lang-py other"><code>if a &lt; b:\n\n\treturn  &amp;a   \n</code></pre>',
            "So:\n\n```py\nif a < b:\n\n\treturn  &a   \n```",
        ),
        ("<pre><code>\n\n  a\n\n</code></pre>", "```\n\n  a\n\n```"),
        ("<pre><code>```\nx\n````\n</code></pre>", "`````\n```\nx\n````\n`````"),  # a fence longer than any in it
        ("<blockquote><pre><code>a\n\n  b\n</code></pre></blockquote>", "> ```\n> a\n>\n>   b\n> ```"),
        ("<p>a</p><pre><code> \n</code></pre><p>b</p>", "a\n\nb"),
        ("<p>Use <code>a  b</code>, <code> c</code>.</p>", "Use `a  b`, ` c`."),
        ("<p><code>a`b</code></p>", "`` a`b ``"),
        ("<p><code></code>x</p>", "x"),
        ("<pre><div>a</div><div>b\n</div><div><br></div><div>c</div></pre>", "```\na\nb\n\nc\n```"),
        ('<pre id="lang-a"><code>x</code></pre><pre class="slang-b">y</pre>', "```\nx\n```\n\n```\ny\n```"),
        ("<p><code>&lt;br&gt;</code></p>", "`<br>`"),
    ],
)
def test_code_is_unchanged_between_fences_or_backticks(html: str, text: str) -> None:
    assert body_text(html) == text


# Inside a line


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<p>a <strong>b</strong> <em>c</em> <kbd>d</kbd></p>", "a b c d"),
        ('<p>See <a href="http://x.org/?a=1&amp;b=2" rel="nofollow" title="a > b">this</a>.</p>', "See this."),
        ('<p>a <img src="x.png">b</p>', "a b"),
        ("<p>one<br>two<br />\nthree</p>", "one\ntwo\nthree"),
        ("<p>one \n two</p>", "one\ntwo"),
        ("<p>  a \t&nbsp; b\xa0</p>", "a b"),
        ("<p>10<sup>-5</sup>, e<sup>x</sup>, f(x)<sup>2</sup>, here<sup>1</sup></p>", "10^-5, e^x, f(x)^2, here^1"),
        ("<p>1<sup>st</sup> <sup>note</sup>, H<sub>2</sub>O</p>", "1st note, H2O"),
        ("<p>$$\\begin{align}\na &amp;= b_1\n\\end{align}$$</p>", "$$\\begin{align}\na &= b_1\n\\end{align}$$"),
        ("<p>&alpha;&#946;&#x3b3;&hellip; &amp;lt; &quot;&copy 1&quot; &nosuch;</p>", 'αβγ… &lt; "© 1" &nosuch;'),
        ("<!-- language: lang-js --><p>a<!-- <b> -->b</p>", "ab"),
    ],
)  # fmt: skip
def test_inline_elements_become_plain_text(html: str, text: str) -> None:
    assert body_text(html) == text


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ('<p>a<img src="x.png" alt="a picture"><b>b</b></p>', "a a picture b"),
        ('<p><a href="#"><img alt="Fish &amp;amp; chips, 5&gt;4"/></a></p><p>b</p>', "Fish &amp; chips, 5>4\n\nb"),
        ('<p><img alt="&lt;b&gt;"> and <img alt="&amp;lt;">', "<b> and &lt;"),
        ('<p><img src="alt=" data-alt="no" title=" alt=" alt="yes"></p>', "yes"),
        ('<p><img "alt=no" src=/alt=no/alt="no"><img/alt="yes"></p>', "yes"),
        ("<p><IMG src='x' ALT='it  is\none'> and <img alt=two></p>", "it is\none and two"),
        ('<p>a<img alt="enter image description here">b<img alt="alt text">c<img alt="">d</p>', "abcd"),
        ('<p><code>x<img alt="no"></code></p><pre>y<img alt="no"></pre>', "`x`\n\n```\ny\n```"),
        ('<ul><li><img alt="first"></li><li>b<img alt=" "></li></ul>', "- first\n- b"),
        ('<p>a<img alt="never closed', 'a<img alt="never closed'),
    ],
)
def test_descriptions_of_images_are_text_unless_they_are_defaults(html: str, text: str) -> None:
    assert body_text(html) == text


# Soup


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<p>a < b and c > d <3</p>", "a < b and c > d <3"),
        ("<p>never closed <b>bold", "never closed bold"),
        ("</p></ul></blockquote><p>a</p>", "a"),
        ("<p title='it\"s > x'>a</p>", "a"),
        ("<P>a</P><BR/><OL START='3'><LI>b</OL>", "a\n\n3. b"),
        ("<pre><code>never closed", "```\nnever closed\n```"),
        ("<p>a <unknown-tag x=1>b</unknown-tag></p>", "a b"),
        ("a<code-block>b  c</code-block><p-x>d</p-x>", "ab cd"),
        ("<p>ends in a tag <a href=", "ends in a tag <a href="),
    ],
)
def test_malformed_html_loses_no_text(html: str, text: str) -> None:
    assert body_text(html) == text


@pytest.mark.parametrize("tag", ["blockquote", "ul", "ol"])
def test_deep_nesting_needs_bounded_space(tag: str) -> None:
    text = body_text(f"<{tag}><li>" * 5000 + "deep")

    assert text.endswith("deep")
    assert len(text) < 1_000_000


def test_a_text_longer_than_its_html_is_complete() -> None:
    html = "<blockquote>" * 30 + "<br>".join(["x"] * 5000)

    assert body_text(html) == "\n".join(["> " * 30 + "x"] * 5000)


# An independent reading

_words = st.text(st.sampled_from(list("ab1 .\n\t`*^$é漢🐻&<>\"'\xa0-)(")), max_size=8).map(
    lambda text: text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
)
_inline = st.recursive(
    _words
    | st.sampled_from(["<br>", "<br />", "&nbsp;", "&hellip;", "&#39;", "&#x1F43B;"])
    | st.sampled_from(['<img src="a>b">', '<img alt="a &amp; *b">', "<img alt='\"'/>"]),
    lambda inner: st.builds(
        "<{0}>{1}</{0}>".format,
        st.sampled_from(["em", "strong", "code", "sup", "sub", "a", "kbd"]),
        st.lists(inner, max_size=3).map("".join),
    ),
    max_leaves=6,
)
_lines = st.lists(_inline, max_size=4).map("".join)
_code_lines = _words | st.builds("<{0}>{1}</{0}>".format, st.sampled_from(["div", "li", "p", "span", "code"]), _words)
_code = st.builds(
    "<pre{}><code>{}</code></pre>".format,
    st.sampled_from(["", ' class="lang-c++ x"', " class=lang-js", ' id="lang-x" class="y"']),
    st.lists(_code_lines, max_size=3).map("".join),
)
_blocks = st.recursive(
    st.builds("<{0}>{1}</{0}>".format, st.sampled_from(["p", "h2", "div"]), _lines) | _code | _lines | st.just("<hr>"),
    lambda inner: st.builds(
        "<{0}>{1}</{0}>".format,
        st.sampled_from(["blockquote", "ul", "ol", "li", "table", "tr", "td"]),
        st.lists(inner, max_size=4).map("\n".join),
    ),
    max_leaves=12,
)


@given(st.lists(_blocks, max_size=5).map("\n\n".join))
@settings(max_examples=400)
@example("<ul><li><h2><blockquote>a</blockquote></h2></li><li>b</li></ul>")
@example("<p>a<sup>1<code>b</code></sup></p>")
@example("<ol><li>a<hr>b</li><li>c</li></ol>")
def test_any_html_gives_the_text_of_the_oracle(html: str) -> None:
    assert body_text(html) == to_text(html)


@given(st.text())
@settings(max_examples=200)
def test_any_text_is_unchanged_in_a_code_block(text: str) -> None:
    text = text.replace("\r", "").replace("\0", "")
    code = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")

    lines = body_text(f"<pre><code>{code}\n</code></pre>").split("\n")

    assert "\n".join(lines[1:-1]) == text.removeprefix("\n") or not text.strip(" \n\t")


# Each is harmless once; the rest of the body does not contain its end.
PATTERNS = [
    "<!--", "<!-->", "<!-- --", "<code>", "<code> ", "<code></code>", "a<code>", "<pre>", "<pre>x</pre>", "<pre></pre>",
    "<ol>", "<ol><li>a</li></ol>", "<ul><li>", "<blockquote>", "<h1>", "<table><tr><td>", "<sup>", "<br>", "<", "</",
    "<!", "<?", "<a ", '<a "', "<a '", "<a\"'", "<a class=", "<a class=\n", "-->", "&", "&#", "&#x", "&#1;", "&amp;a",
    "`", " ", "\n",
]  # fmt: skip


@pytest.mark.parametrize("size", [1 << 18, pytest.param(1 << 20, marks=pytest.mark.slow)])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_many_unclosed_elements_are_read(pattern: str, size: int) -> None:
    body = pattern * (size // len(pattern))

    assert isinstance(body_text(body), str)


@pytest.mark.parametrize("attributes", ["a", "a ", " ", "=", "a=", "/", "alt", '""', "start", "lang-"])
def test_a_megabyte_of_attributes_is_read(attributes: str) -> None:
    many = attributes * ((1 << 20) // len(attributes))

    assert body_text(f"<img {many}><ol {many}><li>a</li></ol><pre {many}>b</pre>").endswith("b\n```")


def test_an_unclosed_comment_is_text_and_a_closed_one_is_not() -> None:
    assert body_text("<p>a <!-- b --> c <!-- d <b>e</b></p>") == "a c <!-- d e"
    assert body_text("a<!-->b<!-- c") == "ab<!-- c"


@pytest.mark.parametrize("digits", [4300, 4301, 100_000])
def test_a_reference_with_too_many_digits_is_a_replacement_character(digits: int) -> None:
    assert body_text(f"a&#{'9' * digits};b<") == "a\ufffdb<"
