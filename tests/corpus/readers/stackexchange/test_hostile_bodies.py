"""Bodies that were made to take long: reading one costs what its length says, whatever it repeats."""

import pytest

from pipeline_assets.corpus.readers.stackexchange.body_text import body_text

# Each is harmless once; what it opens, or looks for, isn't there in the rest of the body.
PATTERNS = [
    "<!--", "<!-->", "<!-- --", "<code>", "<code> ", "<code></code>", "a<code>", "<pre>", "<pre>x</pre>", "<pre></pre>",
    "<ol>", "<ol><li>a</li></ol>", "<ul><li>", "<blockquote>", "<h1>", "<table><tr><td>", "<sup>", "<br>", "<", "</",
    "<!", "<?", "<a ", '<a "', "<a '", "<a\"'", "<a class=", "<a class=\n", "-->", "&", "&#", "&#x", "&#1;", "&amp;a",
    "`", " ", "\n",
]  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_megabyte_of_what_looks_far_ahead_is_read(pattern: str) -> None:
    body = pattern * ((1 << 20) // len(pattern))

    assert isinstance(body_text(body), str)


@pytest.mark.parametrize("attributes", ["a", "a ", " ", "=", "a=", "/", "alt", '""', "start", "lang-"])
def test_a_megabyte_of_attributes_is_read(attributes: str) -> None:
    many = attributes * ((1 << 20) // len(attributes))

    assert body_text(f"<img {many}><ol {many}><li>a</li></ol><pre {many}>b</pre>").endswith("b\n```")


def test_a_comment_that_is_never_closed_is_text_and_one_before_it_is_none() -> None:
    assert body_text("<p>a <!-- b --> c <!-- d <b>e</b></p>") == "a c <!-- d e"
    assert body_text("a<!-->b<!-- c") == "ab<!-- c"


@pytest.mark.parametrize("digits", [4300, 4301, 100_000])
def test_a_reference_of_more_digits_than_python_reads_is_no_character(digits: int) -> None:
    assert body_text(f"a&#{'9' * digits};b<") == "a\ufffdb<"
