"""HTML, notebook, DOCX and PDF files become one Document or a named reject."""

import gzip
import io
import json
import zipfile
from collections.abc import Callable
from importlib import metadata

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline_assets.corpus.document import Document
from pipeline_assets.corpus.normalize.files import read_piece
from pipeline_assets.corpus.readers.local import LocalRecipe, plan_local
from pipeline_assets.corpus.readers.source_folder import SourceFile
from pipeline_assets.corpus.readers.whole_files import extractor_versions
from pipeline_assets.spine.rejects import Reject

Source = Callable[..., SourceFile]
LABELS = {"source": "files", "domain": "web", "license_tag": "cc0-1.0"}
PAGE = """<!doctype html><html><head><title>My &amp;
 page</title><style>p {}</style></head>
<body><nav><a href="/">Home</a></nav><header>Of the site</header>
<section>One <b>bold</b> word.</section><section>a &lt;section&gt;</section>
<h2>Code</h2><pre><code class="hljs language-python">if x &lt; 1:
    pass
</code></pre>
<ul><li>one<li>two</ul><table><tr><th>a<th>b<tr><td>1<td>2</table><script>var x;</script><footer>Imprint</footer>
"""


def read(source: Source, content: bytes, name: str, **keys: object) -> Document | Reject:
    """Read the only row of a file; its recipe has a column that no file has."""
    recipe = LocalRecipe.model_validate(LABELS | {"columns": {"text": "body"}} | keys)
    [row] = (row for piece in plan_local([source(content, name)], recipe, 10) for row in read_piece(piece, recipe))
    return row


def read_text(source: Source, content: bytes, name: str) -> str:
    row = read(source, content, name)
    assert isinstance(row, Document), row
    return row.text


def read_fault(source: Source, content: bytes, name: str) -> tuple[int, str, str]:
    row = read(source, content, name)
    assert isinstance(row, Reject)
    return row.row, row.reason, row.detail


def test_a_page_becomes_markdown_without_menus_and_keeps_its_title(source: Source) -> None:
    row = read(source, gzip.compress(PAGE.encode()), "page.html.gz")

    assert isinstance(row, Document)
    assert row.text == (
        "Of the site\n\nOne bold word.\n\na <section>\n\n## Code\n\n```python\nif x < 1:\n    pass\n```\n\n"
        "- one\n- two\na | b\n1 | 2"
    )
    assert (row.meta.title, row.meta.source_file, row.meta.source_row) == ("My & page", "page.html.gz", 0)


def test_the_main_element_of_a_page_is_its_text_unless_its_ending_is_one_of_text(source: Source) -> None:
    page = b"<body><div>Banner</div><main><p>Text.</p><aside>More</aside></main><div>Comments</div>"

    assert read_text(source, page, "a.htm") == "Text."
    as_text = read(source, page, "a.html", text_endings=[".html"])
    assert isinstance(as_text, Document) and as_text.text == page.decode()


@pytest.mark.parametrize(
    ("page", "title", "text"),
    [
        ("<head><noscript><img src=x></noscript><title>T</title></head><p>a", "T", "a"),
        ("<head><noscript><p>No scripts</p></noscript><title>T</title></head><p>a", "T", "a"),
        ("<p>a<NOSCRIPT>b<p>c</NOSCRIPT >d<noscript-x>e</noscript-x>", "", "ade"),
        ("<svg><title>S</title></svg><p>a<title>T</title>b", "T", "ab"),
        ("<h2><button><span>Why?</span></button></h2><p>So.<h3>More <button>Copy</button></h3>", "",
         "## Why?\n\nSo.\n\n### More"),
        ("<html hidden><title>T</title><body hidden><p>a<p hidden>b", "T", "a"),
        ("<video>No video</video><datalist><option>o</datalist><noembed><p>b</noembed>a", "", "a"),
        ("<fieldset><legend>Name</legend>a</fieldset><fieldset>b</fieldset>c", "", "Name\n\na\n\nb\n\nc"),
        ("<table><tr><th><th><div>a</div><th><p>b</p><tr><td><div> <p>1</p></div><td><b>2</b><td>3</table>", "",
         "| a | b\n1 | 2 | 3"),
        ("<table><tr><td><p></p><td>1<tr><td><div><p> </p></div><td>2</table>", "", "| 1\n| 2"),
        ("<table><tr><td>Label<p>a</p><td><p>b</p>c</table>", "", "Label\n\na\n\nb\n\nc"),
        ("<pre class=language-c>a</pre><pre><div>b</div><div>c</div></pre>", "", "```c\na\n```\n\n```\nb\nc\n```"),
        ("<code-tabs><p>a</p><p>b</p></code-tabs><main-x>c</main-x>d", "", "a\n\nb\n\ncd"),
    ],
)  # fmt: skip
def test_a_page_has_the_title_and_words_that_a_browser_shows(source: Source, page: str, title: str, text: str) -> None:
    row = read(source, page.encode(), "a.html")

    assert isinstance(row, Document)
    assert (row.meta.title, row.text) == (title, text)


WESTERN, JAPANESE, BOTH = "“é”", "①日本", "é日本"


@pytest.mark.parametrize(
    ("head", "encoding", "word"),
    [
        *(("", encoding, BOTH) for encoding in ("utf-8", "utf-8-sig", "utf-16")),
        ("<meta charset=utf-8>", "utf-8", BOTH),
        ('<meta http-equiv="Content-Type" content="text/html; charset=Shift_JIS">', "cp932", JAPANESE),
        ("<meta charset=sjis>", "cp932", JAPANESE),
        ("<meta charset=gb2312>", "gb18030", "镕基"),
        ("<meta charset=iso-8859-9>", "cp1254", "“ş”"),
        *((f"<meta charset={label}>", "cp874", "“ก”") for label in ("tis-620", "iso-8859-11")),
        ("<!-- <meta charset=utf-8> --><meta charset=latin1>", "cp1252", WESTERN),
        ('<?xml version="1.0" encoding="ISO-8859-1"?>', "cp1252", WESTERN),
        ('<?xml version="1.0" encoding="ISO-8859-1"?><meta charset=utf-8>', "utf-8", BOTH),
        (' <?xml version="1.0" encoding="ISO-8859-1"?>', "utf-8", BOTH),
        ('<meta name="description" content="On charset=latin1"><meta charset=utf-8>', "utf-8", BOTH),
        ("<meta content='text/html; charset=latin1' http-equiv=Content-Type>", "cp1252", WESTERN),
        *(
            (f"<meta charset={label}>", "cp1252", WESTERN)
            for label in ("'iso-8859-1'", "latin1", "ISO8859-1", "us-ascii")
        ),
        # A page with a readable <meta> tag is in none of these encodings.
        *(
            (f"<meta charset={label}>", "utf-8", BOTH)
            for label in ("utf-16", "UTF-16LE", "utf-16be", "utf-32", "cp037")
        ),
    ],
)
@pytest.mark.parametrize("more", ["", "!"])  # for an even and an odd number of bytes
def test_a_page_is_decoded_by_its_declared_charset(
    source: Source, head: str, encoding: str, word: str, more: str
) -> None:
    assert read_text(source, f"{head}<p>{word}{more}</p>".encode(encoding), "a.html") == word + more


@pytest.mark.parametrize(
    "page",
    [
        "<div>" * 10_001,
        "<ul><li>" * 10_001,
        "<span>" * 10_001 + "</span>" * 10_001,
        "".join(f"<p><font size={size}>x" for size in range(1001)),  # open again in each of the next paragraphs
    ],
)
def test_a_page_with_too_many_open_elements_is_a_reject(source: Source, page: str) -> None:
    detail = "more than 10,000 elements are open, formatting ones counted tenfold"

    assert read_fault(source, page.encode(), "a.html") == (0, "nested_too_deep", detail)


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("<div>" * 10_000 + "x", "x"),
        ("<ul>" + "<li>x" * 10_001, "\n".join(["- x"] * 10_001)),
        ("<p><font size=2>x" * 10_001, "\n\n".join(["x"] * 10_001)),
        ("<b>x</b>" * 10_001, "x" * 10_001),
        ("<svg>" + "<path d='M0'/>" * 10_001 + "</svg>x", "x"),
        ("<script>" + "'<div>'" * 10_001 + "</script>x", "x"),
    ],
)
def test_many_elements_are_allowed_if_few_are_open(source: Source, page: str, text: str) -> None:
    assert read_text(source, page.encode(), "a.html") == text


def cell(kind: str, text: object) -> dict[str, object]:
    return {"cell_type": kind, "source": text, "outputs": [{"text": "left out"}]}


def test_a_notebook_becomes_its_cells_in_order_without_outputs(source: Source) -> None:
    cells = [
        cell("markdown", ["# Head\n", "Words."]),
        cell("code", "x = '''\n```\n'''"),
        cell("raw", "left out"),
        cell("code", []),
        cell("code", "y"),
    ]
    content = json.dumps({"cells": cells, "metadata": {"kernelspec": {"language": "julia"}}, "nbformat": 4}).encode()

    row = read(source, b"\xef\xbb\xbf" + content, "a.ipynb")

    assert isinstance(row, Document)
    assert row.text == "# Head\nWords.\n\n````julia\nx = '''\n```\n'''\n````\n\n```julia\ny\n```"
    assert row.meta.language == "julia"


@pytest.mark.parametrize(
    ("metadata", "language"),
    [
        ({"language_info": {"name": ["x"]}}, ""),
        ({"language_info": {"name": ""}, "kernelspec": {"language": "R"}}, "R"),
    ],
)
def test_an_unknown_language_has_plain_fences(source: Source, metadata: dict[str, object], language: str) -> None:
    content = json.dumps({"cells": [cell("code", "y")], "metadata": metadata}).encode()

    row = read(source, content, "a.ipynb")

    assert isinstance(row, Document)
    assert (row.text, row.meta.language) == (f"```{language}\ny\n```", language)


W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
RELATION = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument"
BODY = f"""<w:document {W}><w:body>
<w:p><w:pPr><w:pStyle w:val="Heading2"/></w:pPr><w:r><w:t>Head</w:t></w:r></w:p>
<w:p><w:r><w:t>One</w:t><w:br/><w:t>&lt;word&gt;</w:t></w:r><w:del><w:r><w:delText>x</w:delText></w:r></w:del></w:p>
<w:tbl><w:tr><w:tc><w:p><w:r><w:t>a</w:t></w:r></w:p></w:tc><w:tc><w:p><w:r><w:t>b</w:t></w:r></w:p></w:tc></w:tr>
<w:tr><w:tc><w:p><w:r><w:t>1</w:t></w:r></w:p></w:tc><w:tc><w:p/></w:tc></w:tr></w:tbl>
</w:body></w:document>"""
STYLE = '<w:style w:type="paragraph" w:styleId="Heading2"><w:name w:val="heading 2"/></w:style>'


def docx(body: str = BODY, compression: int = zipfile.ZIP_DEFLATED, part: str = "word/document.xml") -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", compression) as archive:
        relations = "http://schemas.openxmlformats.org/package/2006/relationships"
        target = f'<Relationship Id="r" Type="{RELATION}" Target="{part}"/>'
        archive.writestr("_rels/.rels", f'<Relationships xmlns="{relations}">{target}</Relationships>')
        archive.writestr(part, body)
        archive.writestr("word/styles.xml", f"<w:styles {W}>{STYLE}</w:styles>")
    return sink.getvalue()


def test_a_docx_file_becomes_its_headings_paragraphs_and_tables(source: Source) -> None:
    assert read_text(source, docx(), "a.docx") == "## Head\n\nOne\n<word>\n\na | b\n1 |"


def test_a_docx_file_above_the_size_limit_is_a_reject(source: Source) -> None:
    fault = (0, "too_large", "more than 64 MiB without compression; divide the file")

    assert read_fault(source, docx(BODY + " " * (64 << 20)), "a.docx") == fault


def test_nested_tables_of_a_docx_file_are_read_whatever_the_depth_of_the_caller(source: Source) -> None:
    table, end = "<w:tbl><w:tr><w:tc>", "</w:tc></w:tr></w:tbl>"
    content = docx(
        f"<w:document {W}><w:body>{table * 36}<w:p><w:r><w:t>a</w:t></w:r></w:p>{end * 36}</w:body></w:document>"
    )

    def read_below(frames: int) -> str:
        return read_below(frames - 1) if frames else read_text(source, content, "a.docx")

    assert read_below(0) == read_below(300) == "a"


def pdf(*pages: str, more: str = "") -> bytes:
    """Build a PDF file with one line of text per page."""
    objects = ["<< /Type /Catalog /Pages 2 0 R >>", f"<< /Type /Pages /Count {len(pages)} /Kids [KIDS] >>"]
    objects += ["<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>", "<< /Title (My paper) >>"]
    kids = []
    for text in pages:
        stream = f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET" if text else ""
        objects.append(f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream")
        resources = f"/Resources << /Font << /F1 3 0 R >> >> /Contents {len(objects)} 0 R"
        objects.append(f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] {resources} >>")
        kids.append(f"{len(objects)} 0 R")
    objects[1] = objects[1].replace("KIDS", " ".join(kids))
    content, offsets = "%PDF-1.4\n", []
    for number, item in enumerate(objects, 1):
        offsets.append(len(content))
        content += f"{number} 0 obj\n{item}\nendobj\n"
    table = "".join(f"{offset:010d} 00000 n \n" for offset in offsets)
    trailer = f"<< /Size {len(offsets) + 1} /Root 1 0 R /Info 4 0 R {more} >>"
    start = len(content)
    content += f"xref\n0 {len(offsets) + 1}\n0000000000 65535 f \n{table}"
    return f"{content}trailer\n{trailer}\nstartxref\n{start}\n%%EOF\n".encode()


def test_a_pdf_file_becomes_the_text_of_its_pages(source: Source) -> None:
    row = read(source, pdf("First page.", "", "Third page."), "a.pdf")

    assert isinstance(row, Document)
    assert (row.text, row.meta.title) == ("First page.\n\nThird page.", "My paper")
    assert type(row.meta.title) is str
    assert msgspec.json.decode(msgspec.json.encode(row), type=Document) == row


def test_a_lone_surrogate_in_a_pdf_file_is_a_replacement_character(source: Source) -> None:
    names = "begincmap\n1 beginbfchar\n<78> <d800>\nendbfchar\nendcmap"
    content = pdf("axb").replace(b"/Helvetica >>", b"/Helvetica /ToUnicode 7 0 R >>")
    stream = f"7 0 obj\n<< /Length {len(names)} >>\nstream\n{names}\nendstream\nendobj\nxref".encode()

    assert read_text(source, content.replace(b"xref", stream, 1), "a.pdf") == "a\ufffdb"


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data(), name=st.sampled_from(["a.pdf", "a.docx"]))
def test_a_file_with_changed_bytes_is_a_document_or_a_reject(source: Source, data: st.DataObject, name: str) -> None:
    content = bytearray(pdf("First page.", "Second page.") if name == "a.pdf" else docx(compression=zipfile.ZIP_STORED))
    changes = st.tuples(st.integers(0, len(content) - 1), st.integers(0, 255))
    for position, byte in data.draw(st.lists(changes, min_size=1, max_size=20)):
        content[position] = byte

    row = read(source, bytes(content), name)

    assert msgspec.json.decode(msgspec.json.encode(row), type=type(row)) == row


def test_a_pdf_file_with_cyclic_objects_is_a_document_or_a_reject(source: Source) -> None:
    content = pdf("Page.").replace(b"/Parent 2 0 R", b"/Parent 5 0 R").replace(b"/Kids [6 0 R]", b"/Kids [2 0 R]")

    assert isinstance(read(source, content, "a.pdf"), Document | Reject)


LOCK = f"/Encrypt << /Filter /Standard /V 1 /R 2 /O ({'0' * 32}) /U ({'0' * 32}) /P -4 >> /ID [<00> <00>]"


@pytest.mark.parametrize(
    ("name", "content", "reason", "detail"),
    [
        ("a.html", b"", "empty_text", ""),
        ("a.html", b"<p>\xff", "invalid_utf8", "invalid start byte at byte 3"),
        ("a.html", b"<meta charset=utf-8>\xff", "invalid_utf8", "invalid start byte at byte 20"),
        ("a.html", b"<meta charset=shift_jis>\x81", "invalid_encoding", "the text is not cp932"),
        ("a.html", b"<meta charset=klingon>a", "unknown_encoding", "klingon"),
        ("a.html", b"<meta charset=rot13>a", "unknown_encoding", "rot13"),
        ("a.ipynb", b"[]", "wrong_type", "the file is list"),
        ("a.ipynb", b'{"cells": [', "not_json", "Input data was truncated"),
        ("a.ipynb", b'{"cells": [{"source": 5, "cell_type": "code"}]}', "not_notebook", "the file has no list of"),
        ("a.ipynb", b'{"name": "x"}', "not_notebook", "the file has no list of cells with a `source`"),
        ("a.docx", b"\xd0\xcf\x11\xe0", "not_docx", "BadZipFile"),
        ("a.docx", docx("<a"), "not_docx", "ExpatError"),
        ("a.docx", docx(part="word/media/a.png"), "not_docx", "OSError"),  # no limit counts the bytes of media
        ("a.docx", docx("<!DOCTYPE a [<!ENTITY b 'c'>]>" + BODY), "not_docx", "word/document.xml declares"),
        ("a.pdf", b"%PDF-1.4", "not_pdf", "PdfStreamError"),
        ("a.pdf", pdf(""), "no_text", "scanned pages; add a text layer: ocrmypdf IN OUT"),
        ("a.pdf", pdf("x", more=LOCK), "encrypted", "remove the password: qpdf --decrypt IN OUT"),
    ],
)
def test_invalid_files_are_rejects(source: Source, name: str, content: bytes, reason: str, detail: str) -> None:
    row, code, explanation = read_fault(source, content, name)

    assert (row, code) == (0, reason)
    assert explanation.startswith(detail)


def test_a_pdf_file_whose_pages_repeat_a_text_is_limited(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline_assets.corpus.readers.whole_files.MAX_LINE_BYTES", 1 << 20)
    content = pdf("word " * 2000).replace(b"6 0 R]", b"6 0 R " * 200 + b"]")

    assert read_fault(source, content, "a.pdf") == (0, "too_large", "the text is longer than 1 MiB")


def test_versions_of_extractors_are_listed_by_format() -> None:
    expected = {name: metadata.version(name) for name in ("mammoth", "pypdf", "selectolax")}

    assert extractor_versions(["html", "pdf", "csv", "docx", None]) == expected
    assert extractor_versions(["lines", "text", "notebook"]) == {}
