"""Posts.xml in all its forms: what XML lets it be is read, and what it must not be is refused by its byte."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from made_dump import END, HEAD, answer, dump, question, row
from refusals import refusal

from pipeline_assets.corpus.document import Document
from pipeline_assets.corpus.readers.stackexchange.posts import PostsXml, Row
from pipeline_assets.corpus.readers.stackexchange.threads import Outcome
from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.spine.ledger import Reject

Read = Callable[..., list[Outcome]]
ReadDocuments = Callable[..., list[Document]]
BOM, DECLARATION = b"\xef\xbb\xbf", b'<?xml version="1.0" encoding="utf-8"?>\n'


def rows_of(data: bytes, block_bytes: int) -> list[Row]:
    posts = PostsXml("Posts.xml")
    found = [row for at in range(0, len(data), block_bytes) for row in posts.feed(data[at : at + block_bytes])]
    return [*found, *posts.close()]


@pytest.mark.parametrize("block_bytes", [1, 7, 64, 1 << 20])
def test_rows_are_the_same_in_blocks_of_any_size(block_bytes: int) -> None:
    posts = dump(question(1, Title='Löß & "<b>"'), answer(2, 1), row(), question(3, Body="\U0001f33b\r\n"))

    found = rows_of(posts, block_bytes)

    expected = [element.attrib for element in ElementTree.fromstring(posts)]
    assert [row.attributes for row in found] == expected


_PIECES = [
    *(b"&lt;", b"&gt;", b"&amp;", b"&quot;", b"&#xA;", b"&#x9;", b"&#10;", b"&apos;", b"&#x0;", b"&", b"<", b">", b'"'),
    *(b"'", b"\0", b"\1", b"\t", b"\n", b"\r", b"\x7f", b"\xc3", b"\xc3\xa9", b"\xef\xbf\xbe", b"\xef\xbf\xbd"),
    *(b" ", b"/", b"=", b" />", b" /&gt;", b" />&#xA;  ", b' Id="1"', b' Foo="1"', b"<row ", b"</posts>"),
    b"\xed\xa0\x80",
]


def test_whatever_is_in_a_row_is_read_or_refused_as_by_expat(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = b"".join([question(1, Title="a &b"), question(2, Body="<p>\r\n</p>").replace(b"\n", b"\r\n"), answer(3, 1)])
    places = [place for place, byte in enumerate(plain) if byte in b' "=</&>\n'] + [len(plain)]
    changed = [plain[:at] + piece + plain[stop:] for piece in _PIECES for at in places for stop in (at, at + 1)]
    changed += [plain.replace(b"Title", b"Ti\ntle"), plain.replace(b"Body 1", b"a\nb").replace(b"/>\n", b"/>&#xA;", 1)]

    def outcome(rows: bytes) -> list[Row] | str:
        try:
            return rows_of(HEAD + rows + END, 1 << 20)
        except InputError as error:
            return str(error)

    found = [outcome(rows) for rows in changed]

    monkeypatch.setattr("pipeline_assets.corpus.readers.stackexchange.posts._plain_rows", lambda rows: None)
    assert found == [outcome(rows) for rows in changed]
    assert outcome(plain) == rows_of(HEAD + plain + END, 1 << 20)


@pytest.mark.parametrize(
    "head", [HEAD, BOM + b"<posts>", DECLARATION + b"<posts>", b"<posts>", b"\n<!-- a -->\n<posts >"]
)
def test_a_byte_order_mark_and_a_declaration_may_be_there_or_not(read_documents: ReadDocuments, head: bytes) -> None:
    [document] = read_documents(head + question(1) + END)

    assert document.text == "Title 1\n\nBody 1"
    assert document.meta.source_row == 0


@pytest.mark.parametrize(
    "doctype",
    [
        b"<!DOCTYPE posts>",
        b'<!DOCTYPE posts SYSTEM "posts.dtd">\n',
        b"<!-- a --> <!DOCTYPE posts PUBLIC '-//x [>]//EN' \"http://x.org/>.dtd\" > <!-- b -->",
    ],
)
@pytest.mark.parametrize("block_bytes", [1, 30, 1 << 20])
def test_a_doctype_without_a_dtd_of_its_own_is_passed_over(doctype: bytes, block_bytes: int) -> None:
    body = b"<posts>" + question(1) + END

    assert rows_of(DECLARATION + doctype + body, block_bytes) == rows_of(DECLARATION + body, 1 << 20)


def test_a_dtd_is_refused_and_the_command_that_is_named_takes_it_out(read: Read, tmp_path: Path) -> None:
    dtd = b'<!DOCTYPE posts [\n  <!ELEMENT posts (row*)>\n  <!ENTITY a "b]">\n]>'
    file = tmp_path / "Posts.xml"
    file.write_bytes(DECLARATION + dtd + b"<posts>" + question(1) + question(2, Body="x]>\ny") + END)

    with pytest.raises(InputError) as refused:
        read(file)
    subprocess.run(refused.value.fix.partition(": ")[2].replace("FILE", str(file)), shell=True, check=True)

    assert "it has a DTD of its own, which no dump has" in str(refused.value)
    assert [document.text for document in read(file)] == ["Title 1\n\nBody 1", "Title 2\n\nx]>\ny"]
    assert file.with_name("Posts.xml.dtd").read_bytes().startswith(DECLARATION + dtd)


@pytest.mark.parametrize("posts", [HEAD + END, BOM + b"<posts/>", DECLARATION + b"<posts />\n", b"<posts> </posts >\n"])
def test_a_site_without_posts_has_no_documents(read: Read, posts: bytes) -> None:
    assert read(posts) == []


BROKEN = {
    "no quotes": (b"<row Id=7 />", 8, "where a row is broken: '7 />"),
    "no closing quote": (b'<row Id="7 />\n  <row Id="8" />', 16, "where a row is broken: '<row Id"),
    "an attribute twice": (b'<row Id="7" Id="7" />', 12, "where a row is broken: 'Id="),
    "a bare ampersand": (b'<row Title="a & b" />', 14, "where a row is broken: '& b"),
    "a bare less-than sign": (b'<row Title="a < b" />', 14, "where a row is broken: '< b"),
    "a reference that is none": (b'<row Title="&nbsp;" />', 12, "where a row is broken: '&nbsp;"),
    "not closed": (b'<row Id="7"></row>', 12, "where a row is broken: '</row>"),
    "another element": (b'<post Id="7" />', 0, "no part of a row: '<post Id"),
    "text": (b"and so on", 0, "no part of a row: 'and so on"),
    "a comment": (b"<!-- 7 -->", 0, "no part of a row: '<!-- 7"),
    "NUL characters, as a disk that failed leaves": (bytes(20), 0, "no part of a row: '\\x00"),
}


@pytest.mark.parametrize("kind", BROKEN)
@pytest.mark.parametrize("run_bytes", [1, 1 << 20])
def test_what_is_broken_in_the_middle_is_told_by_its_byte(read: Read, kind: str, run_bytes: int) -> None:
    middle, offset, what = BROKEN[kind]
    before = HEAD + b"".join(question(number) for number in range(1, 100))

    line = refusal(lambda: read(before + middle + b"\n" + question(200) + END, run_bytes=run_bytes))

    assert f"Posts.xml: byte {len(before) + offset:,} is {what}" in line
    assert line.endswith("; fetch the file again; if it is so at its source, correct it there")


@pytest.mark.parametrize("range_bytes", [150, 1 << 20])
def test_a_file_that_is_cut_anywhere_is_refused(read: Read, range_bytes: int) -> None:
    posts = dump(question(1), answer(2, 1))

    for size in range(0, len(posts) - 1, 7):
        with pytest.raises(InputError):
            read(posts[:size], range_bytes=range_bytes)
    assert len(read(posts, range_bytes=range_bytes)) == 1


@pytest.mark.parametrize(
    ("posts", "what"),
    [
        (dump(question(1)) + question(2), "is not the end of a Posts.xml: </posts>: '</posts>  <row"),
        (dump(question(1)).decode().encode("utf-16"), "it is UTF-16; convert it to UTF-8"),
        (b'<?xml version="1.0" encoding="windows-1251"?><posts></posts>', "its encoding is windows-1251; convert it"),
        (b"<users></users>", "byte 0 is not the head of a Posts.xml"),
        (b"", "byte 0 is not the head of a Posts.xml"),
        (HEAD + question(1), "it is cut off: after byte 185 comes no whole row and no </posts>"),
        (HEAD + question(1)[:-20], "it is cut off: after byte 52 comes no whole row"),
        (HEAD + question(1) + b"<row Id='2'" + END, "byte 196 is where a row is broken"),
    ],
)
def test_what_is_no_whole_posts_xml_is_refused(read: Read, posts: bytes, what: str) -> None:
    assert what in refusal(lambda: read(posts))


@pytest.mark.parametrize("other", ["'", "\n", "&#x20;", "&apos;"])
def test_rows_that_are_written_otherwise_than_the_dumps_do_say_the_same(
    read_documents: ReadDocuments, other: str
) -> None:
    [expected] = read_documents(dump(question(1, Title="It's Title 1")))
    plain = question(1, Title="It's Title 1").decode()
    ways = {
        "'": plain.replace('PostTypeId="1"', "PostTypeId='1'"),
        "\n": plain.replace(" Score", "\n\t Score"),
        "&#x20;": plain.replace("Title 1", "Title&#x20;1"),
        "&apos;": plain.replace("It's", "It&apos;s"),
    }

    assert read_documents(dump(ways[other].encode())) == [expected]


@pytest.mark.parametrize(
    ("changes", "reason", "detail"),
    [
        ({"Body": None}, "missing_attribute", "Body"),
        ({"Title": None}, "missing_attribute", "Title"),
        ({"Score": None}, "missing_attribute", "Score"),
        ({"CreationDate": None}, "missing_attribute", "CreationDate"),
        ({"CreationDate": "21 January 2014"}, "wrong_type", "CreationDate is no date and time"),
        ({"ViewCount": "many"}, "wrong_type", "ViewCount is no integer"),
        ({"Id": None}, "missing_attribute", "no number in Id, PostTypeId or ParentId"),
        ({"PostTypeId": "question"}, "missing_attribute", "no number in Id, PostTypeId or ParentId"),
        ({"Title": "a \x0b b"}, "invalid_character", "one that XML does not have"),
    ],
)
def test_a_question_that_lacks_something_is_rejected_with_its_answers_and_the_rest_flies(
    read: Read, changes: dict[str, object], reason: str, detail: str
) -> None:
    told = {"Id": 1, "PostTypeId": 1, "CreationDate": "2014-01-21T20:26:05.383", "Score": 3, "Body": "b", "Title": "t"}

    outcomes = read(dump(question(5), row(**{**told, **changes}), answer(2, 1)))

    document, *rejects = outcomes
    assert document.text == "Title 5\n\nBody 5"
    assert sorted(rejects, key=lambda reject: reject.row) == [
        Reject("garden.7z", 1, reason, detail),
        Reject("garden.7z", 2, "no_question", "question 1 is not in the file, or rejected"),
    ]


def test_a_date_is_digits_and_signs_in_their_places(read: Read) -> None:
    date = "2014-01-21T20:26:05"
    wrong = [date[:-1], " " + date]
    for place, character in enumerate(date):
        others = "/:.³" if character.isdigit() else "/;0-:T".replace(character, "")
        wrong += [date[:place] + other + date[place + 1 :] for other in others]
    right = {
        date: f"{date}.000",
        f"{date}.383": f"{date}.383",
        f"{date}Z": f"{date}.000",
        "0000-00-00T00:00:00": "0000-00-00T00:00:00",  # no day that there is
        "9999-99-99T99:99:99Z": "9999-99-99T99:99:99Z",
    }

    outcomes = read(dump(*(question(number, CreationDate=each) for number, each in enumerate([*wrong, *right], 1))))

    assert [each.row for each in outcomes if isinstance(each, Reject)] == list(range(len(wrong)))
    assert [each.created_at for each in outcomes if isinstance(each, Document)] == list(right.values())


def test_a_question_needs_nothing_else(read_documents: ReadDocuments) -> None:
    [document] = read_documents(dump(question(1)))

    absent = {"view_count", "answer_count", "comment_count", "favorite_count", "accepted_answer_id", "owner_user_id"}
    columns = document.meta.columns()
    assert {columns[name] for name in absent} == {None}
    assert (columns["tags"], columns["closed_date"], columns["answers"]) == ([], None, [])


@pytest.mark.parametrize("tags", ["<soil><c++><.net-4.0>", "|soil|c++|.net-4.0|"])
def test_tags_of_both_forms_are_the_same(read_documents: ReadDocuments, tags: str) -> None:
    [document] = read_documents(dump(question(1, Tags=tags)))

    assert document.meta.columns()["tags"] == ["soil", "c++", ".net-4.0"]
