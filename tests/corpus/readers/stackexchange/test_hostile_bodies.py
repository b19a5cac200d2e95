"""Bodies that were made to take long: reading one costs what its length says, whatever it repeats."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline_assets.corpus.readers.stackexchange.body_text import body_text
from pipeline_assets.corpus.readers.stackexchange.escapes import escaped

PROJECT = Path(__file__).parents[4]
# Each is harmless once; what it opens, or looks for, isn't there in the rest of the body.
PATTERNS = [
    "<!--", "<!-->", "<!-- --", "<code>", "<code> ", "<code></code>", "a<code>", "<pre>", "<pre>x</pre>", "<pre></pre>",
    "<ol>", "<ol><li>a</li></ol>", "<ul><li>", "<blockquote>", "<h1>", "<table><tr><td>", "<sup>", "<br>", "<", "</",
    "<!", "<?", "<a ", '<a "', "<a '", "<a\"'", "<a class=", "<a class=\n", "-->", "&", "&#", "&#x", "&#1;", "&amp;a",
    "`", " ", "\n",
]  # fmt: skip

COUNT_READS = """
import json, sys
from types import SimpleNamespace
import numpy as np
from pipeline_assets.corpus.eight_bytes import eight_bytes_at_each
from pipeline_assets.corpus.readers.stackexchange import html_scan
from pipeline_assets.corpus.readers.stackexchange.escapes import escaped
from pipeline_assets.corpus.readers.stackexchange.text_layout import PAGE

class Counted:
    def __init__(self, array):
        self.array, self.reads = array.tolist(), 0
    def __len__(self):
        return len(self.array)
    def __getitem__(self, at):
        self.reads += 1
        return self.array[at]

def reads(html):
    body = escaped(html).encode()
    data = np.frombuffer(body + b'"' + bytes(16), np.uint8)
    source, out = Counted(data), np.zeros(2 * len(data) + 4096, np.uint8)
    eights_out = eight_bytes_at_each(out, writeable=True)
    page = SimpleNamespace(**{name: np.zeros(1, PAGE)[name][0] for name in PAGE.names})
    html_scan._render_body(source, eight_bytes_at_each(data), 0, len(body), out, eights_out, page)
    return source.reads

print(json.dumps([[reads(pattern * times) for times in (20, 80)] for pattern in json.load(sys.stdin)]))
"""


def test_the_bytes_that_are_looked_at_grow_as_the_body_does() -> None:
    """The kernels run uncompiled, on bytes that count how often they are read."""
    result = subprocess.run(
        [sys.executable, "-c", COUNT_READS],
        input=json.dumps(PATTERNS),
        cwd=PROJECT,
        env={**os.environ, "PYTHONPATH": str(PROJECT), "NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        check=True,
    )

    reads = dict(zip(PATTERNS, json.loads(result.stdout), strict=True))
    assert {pattern: counts for pattern, counts in reads.items() if counts[1] > 4.5 * counts[0]} == {}


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_megabyte_of_what_looks_far_ahead_is_read(pattern: str) -> None:
    body = pattern * ((1 << 20) // len(pattern))

    assert isinstance(body_text(escaped(body)), str)


def test_a_comment_that_is_never_closed_is_text_and_one_before_it_is_none() -> None:
    assert body_text(escaped("<p>a <!-- b --> c <!-- d <b>e</b></p>")) == "a c <!-- d e"
    assert body_text(escaped("a<!-->b<!-- c")) == "ab<!-- c"


@pytest.mark.parametrize("digits", [4300, 4301, 100_000])
def test_a_reference_of_more_digits_than_python_reads_is_no_character(digits: int) -> None:
    assert body_text(escaped(f"a&#{'9' * digits};b<")) == "a\ufffdb<"
