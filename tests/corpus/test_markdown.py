"""Markdown tables that stay intact with untrusted texts."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from pipeline_assets.corpus.markdown import code, escape, markdown_table
from pipeline_assets.spine.visible import VISIBLE_TABLE

ADDRESS = re.compile(r"https?://|www\.|[-.\w+]@[-\w]", re.IGNORECASE)  # what GitHub's Markdown makes links of
TABLE = {f"{part}_{end}" for part in ("table", "thead", "tbody", "tr", "th", "td") for end in ("open", "close")}


def test_a_table_has_one_line_per_row() -> None:
    assert markdown_table(["a", "b"], [["1", "2"]]) == ["| a | b |", "| --- | --- |", "| 1 | 2 |"]
    assert markdown_table(["a", "b"], []) == ["(none)"]


def test_code_does_not_leave_its_cell_or_line() -> None:
    assert code("a|b\n`c` <d>") == "`a\\|b 'c' &lt;d>`"


def test_plain_text_has_no_marks() -> None:
    assert escape("# a_b *c*\n[d](e) <f> _g_") == "\\# a_b \\*c\\* \\[d\\](e) \\<f\\> \\_g\\_"
    assert escape("high_part00 of 1,037, 95.3 % …") == "high_part00 of 1,037, 95.3 % …"


def test_a_possible_address_becomes_code() -> None:
    assert escape("see https://a.org/b|c") == "`see https://a.org/b\\|c`"
    assert escape("WWW.a.org ``x``") == "``` WWW.a.org ``x`` ```"
    assert escape("a@b.c \\| d") == "`a@b.c \\\\\\| d`"


@pytest.mark.parametrize(
    "text", ["- a", "+ a", "1. a", "2) a", "-", "---", "- - -", "==", "# a", "> a", "95.3 %", "-5", ".5"]
)
def test_a_text_at_the_start_of_a_line_is_a_paragraph(text: str) -> None:
    tokens = MarkdownIt("commonmark").parse(f"above\n{escape(text)}")
    assert [token.type for token in tokens] == ["paragraph_open", "inline", "paragraph_close"]
    assert "".join(child.content for child in tokens[1].children or []) == f"above{text}"


HOSTILE = [
    *("![x](http://evil.example/p.png)", "[x](javascript:alert(1))", "<img src=http://evil.example/p.png>"),
    *("http://evil.example", "www.evil.example", "me@evil.example", "<http://evil.example>", "&lt;img src=x&gt;"),
    *(
        "`",
        "``",
        "```",
        "\\",
        "\\|",
        "|",
        "\\`",
        "![",
        "](",
        "[^1]",
        "***",
        "~~",
        "$$",
        "<!--",
        "-->",
        "\n\n",
        "\n# ",
        " ",
    ),
]
texts = st.lists(st.one_of(st.sampled_from(HOSTILE), st.text(max_size=4))).map("".join)


@given(st.lists(st.tuples(texts, texts), min_size=1, max_size=3))
@example([("\\|http://evil.example", "![x](http://evil.example)")])
@example([("\0", "\x1b[2J")])
def test_cells_contain_only_text_and_code(rows: list[tuple[str, str]]) -> None:
    lines = "\n".join(markdown_table(["a", "b"], [[escape(first), escape(second)] for first, second in rows]))

    tokens = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(lines)

    cells = [token.children or [] for token in tokens if token.type == "inline"][2:]
    assert {token.type for token in tokens} <= {*TABLE, "inline"}
    assert len(cells) == 2 * len(rows)
    assert {token.type for cell in cells for token in cell} <= {"text", "code_inline"}
    for cell, text in zip(cells, (text for row in rows for text in row), strict=True):
        content = " ".join("".join(token.content for token in cell).split())
        visible = " ".join(text.split()).translate(VISIBLE_TABLE)
        assert content.replace("\\", "") == visible.replace("\\", "")
        linked = [token.content for token in cell if token.type == "text" and ADDRESS.search(token.content)]
        assert linked == []
