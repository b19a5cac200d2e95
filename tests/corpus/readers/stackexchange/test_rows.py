"""Rows of Posts.xml: valid XML is read, a bad row is rejected, a bad file refused."""

from collections.abc import Callable
from xml.etree import ElementTree

import pytest
from posts_xml import END, HEAD, answer, dump, question, row
from refusals import refusal

from pipeline_assets.corpus.document import Document
from pipeline_assets.corpus.readers.stackexchange.posts import PostRow, read_rows
from pipeline_assets.corpus.readers.stackexchange.threads import Outcome
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.rejects import Reject

Read = Callable[..., list[Outcome]]
ReadDocuments = Callable[..., list[Document]]
DTD = b'<!DOCTYPE posts [\n  <!ENTITY a "b">\n]>'
BOM, DECLARATION = b"\xef\xbb\xbf", b'<?xml version="1.0" encoding="utf-8"?>\n'


def parse_rows(data: bytes, block_bytes: int) -> list[PostRow]:
    return list(read_rows((data[at : at + block_bytes] for at in range(0, len(data), block_bytes)), "Posts.xml"))


@pytest.mark.parametrize("block_bytes", [1, 7, 64, 1 << 20])
@pytest.mark.parametrize(
    ("usual", "other"),
    [
        ('PostTypeId="1"', "PostTypeId='1'"),
        (" Score", "\n\t Score"),
        ("Title 1", "Title&#x20;1"),
        ("It's", "It&apos;s"),
        ("<posts>", '<!DOCTYPE posts SYSTEM "posts.dtd">\n<posts>'),
        ("<posts>", "<!-- a --> <!DOCTYPE posts PUBLIC '-//x//EN' \"http://x.org/[>].dtd\" > <!-- b --><posts>"),
    ],
)
def test_rows_are_those_of_an_xml_parser_for_blocks_of_any_size(block_bytes: int, usual: str, other: str) -> None:
    rows = question(1, Title='It\'s Title 1, Löß & "<b>"'), answer(2, 1), row(), question(3, Body="\U0001f33b\r\n")
    posts = dump(*rows).replace(usual.encode(), other.encode())

    expected = [element.attrib for element in ElementTree.fromstring(posts)]
    assert [parsed.attributes for parsed in parse_rows(posts, block_bytes)] == expected


@pytest.mark.parametrize(
    "head", [HEAD, BOM + b"<posts>", DECLARATION + b"<posts>", b"<posts>", b"\n<!-- a -->\n<posts >"]
)
def test_a_byte_order_mark_and_a_declaration_are_optional(read_documents: ReadDocuments, head: bytes) -> None:
    [document] = read_documents(head + question(1) + END)

    assert document.text == "Title 1\n\nBody 1"
    assert document.meta.source_row == 0


@pytest.mark.parametrize("posts", [HEAD + END, b"<posts> </posts >\n"])
def test_a_site_without_posts_has_no_documents(read: Read, posts: bytes) -> None:
    assert read(posts) == []


@pytest.mark.parametrize(
    "broken",
    [
        b"<row Id=7 />",  # no quotes
        b'<row Id="7 />',
        b'<row Id="7" Id="7" />',
        b'<row Title="a & b" />',
        b'<row Title="&nbsp;" />',
        b'<row Title="&#0;" / />',
    ],
)
def test_malformed_rows_are_rejected_and_the_rest_is_read(read: Read, broken: bytes) -> None:
    first, last, *rejects = read(dump(question(1), *[broken] * 150, question(3)))

    assert [first.text, last.text] == ["Title 1\n\nBody 1", "Title 3\n\nBody 3"]
    assert rejects == [Reject("garden.7z", number, "malformed_row", "it is no XML") for number in range(1, 151)]


@pytest.mark.parametrize(
    ("middle", "preview"),
    [
        (b'<row Title="a < b" />', "'<row Title=\"a"),
        (b'<row Id="7"></row>', '\'<row Id="7">'),
        (b'<post Id="7" />', "'<post Id"),
        (b"and so on", "'and so on"),
        (b"<!-- 7 -->", "'<!-- 7"),
        (bytes(20), "'\\x00"),  # as after a disk failure
    ],
)
@pytest.mark.parametrize("run_bytes", [1, 1 << 20])
def test_data_between_rows_is_refused_with_its_byte(read: Read, middle: bytes, preview: str, run_bytes: int) -> None:
    before = HEAD + b"".join(question(number) for number in range(1, 100))

    message = refusal(lambda: read(before + middle + b"\n" + question(200) + END, run_bytes=run_bytes))

    assert f"Posts.xml: byte {len(before):,} is not part of a complete row: {preview}" in message
    assert message.endswith("; fetch the file again; if its source has the same error, correct it there")


@pytest.mark.parametrize("range_bytes", [150, 1 << 20])
def test_a_file_truncated_anywhere_is_refused(read: Read, range_bytes: int) -> None:
    posts = dump(question(1), answer(2, 1))

    for size in range(0, len(posts) - 1, 7):
        with pytest.raises(InputError):
            read(posts[:size], range_bytes=range_bytes)
    assert len(read(posts, range_bytes=range_bytes)) == 1


@pytest.mark.parametrize(
    ("posts", "message"),
    [
        (dump(question(1)) + question(2), "byte 185 is not part of a complete row: '</posts>  '"),
        (dump(question(1)) + b"more", "byte 185 is not the end of a Posts.xml: </posts>: '</posts>more'"),
        (dump(question(1)).decode().encode("utf-16"), "byte 0 is not the head of a Posts.xml in UTF-8"),
        (b'<?xml version="1.0" encoding="windows-1251"?><posts></posts>', "not the head of a Posts.xml in UTF-8"),
        (b"<users></users>", "byte 0 is not the head of a Posts.xml"),
        (DECLARATION + DTD + b"<posts>" + question(1) + END, "byte 0 is not the head of a Posts.xml"),
        (b"<!-- " * 20_000, "byte 0 is not the head of a Posts.xml"),
        (b"", "byte 0 is not the head of a Posts.xml"),
        (HEAD + question(1), "the file is truncated: no </posts> follows the row at byte 52"),
        (HEAD + question(1)[:-20], "the file is truncated: no </posts> follows the row at byte 52"),
        (HEAD + question(1) + b"<row Id='2'" + END, "byte 185 is not part of a complete row: \"<row Id='2'\""),
    ],
)
def test_an_incomplete_posts_xml_is_refused(read: Read, posts: bytes, message: str) -> None:
    assert message in refusal(lambda: read(posts))


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
def test_a_question_with_a_bad_attribute_is_rejected_with_its_answers(
    read: Read, changes: dict[str, object], reason: str, detail: str
) -> None:
    valid = {"Id": 1, "PostTypeId": 1, "CreationDate": "2014-01-21T20:26:05.383", "Score": 3, "Body": "b", "Title": "t"}

    outcomes = read(dump(question(5), row(**{**valid, **changes}), answer(2, 1)))

    document, *rejects = outcomes
    assert document.text == "Title 5\n\nBody 5"
    assert sorted(rejects, key=lambda reject: reject.row) == [
        Reject("garden.7z", 1, reason, detail),
        Reject("garden.7z", 2, "no_question", "question 1 is not in the file, or rejected"),
    ]


def test_a_date_has_digits_and_signs_in_fixed_places(read: Read) -> None:
    date = "2014-01-21T20:26:05"
    wrong = [date[:-1], " " + date]
    for position, character in enumerate(date):
        wrong_characters = "/:.³" if character.isdigit() else "/;0-:T".replace(character, "")
        wrong += [date[:position] + other + date[position + 1 :] for other in wrong_characters]
    right = {
        date: f"{date}.000",
        f"{date}.383": f"{date}.383",
        f"{date}Z": f"{date}.000",
        "0000-00-00T00:00:00": "0000-00-00T00:00:00",  # not a real day
        "9999-99-99T99:99:99Z": "9999-99-99T99:99:99Z",
    }

    outcomes = read(dump(*(question(number, CreationDate=date) for number, date in enumerate([*wrong, *right], 1))))

    assert [outcome.row for outcome in outcomes if isinstance(outcome, Reject)] == list(range(len(wrong)))
    assert [outcome.created_at for outcome in outcomes if isinstance(outcome, Document)] == list(right.values())


@pytest.mark.parametrize("tags", ["<soil><c++><.net-4.0>", "|soil|c++|.net-4.0|"])
def test_tags_of_both_forms_are_equal(read_documents: ReadDocuments, tags: str) -> None:
    [document] = read_documents(dump(question(1, Tags=tags)))

    assert document.meta.columns()["tags"] == ["soil", "c++", ".net-4.0"]
