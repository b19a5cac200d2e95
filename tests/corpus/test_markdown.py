"""Texts from elsewhere stay where they are put."""

from pipeline_assets.corpus.markdown import code, plain, table


def test_a_table_has_a_line_for_each_row() -> None:
    assert table(["a", "b"], [["1", "2"]]) == ["| a | b |", "| --- | --- |", "| 1 | 2 |"]
    assert table(["a", "b"], []) == ["(none)"]


def test_code_stays_in_its_cell_and_on_its_line() -> None:
    assert code("a|b\n`c` <d>") == "`a\\|b 'c' &lt;d>`"


def test_plain_text_has_no_marks() -> None:
    assert plain("# a_b *c*\n[d](e) <f>") == "\\# a\\_b \\*c\\* \\[d\\](e) \\<f\\>"
