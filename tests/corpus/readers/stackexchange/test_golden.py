"""Golden documents: three of real sites, checked by eye, and a synthetic one."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from posts_xml import answer, dump, question, site
from real_samples import sample

from pipeline_assets.corpus.document import Document, Meta

GOLDEN = Path(__file__).parents[3] / "golden" / "stackexchange.json"
DIGESTS: dict[str, str] = json.loads(GOLDEN.read_text())

Read = Callable[..., list[object]]


@pytest.mark.real
@pytest.mark.parametrize("doc_id", DIGESTS)
def test_a_document_of_a_real_site_equals_its_golden_digest(read: Read, doc_id: str) -> None:
    """Nested lists and quotes, numbered steps, tags as links, licences per row."""
    host = doc_id.split(":")[1]

    outcomes = read(sample(f"stackexchange/{host}/Posts.xml"), site(host), file="Posts.xml")

    [document] = (outcome for outcome in outcomes if isinstance(outcome, Document) and outcome.doc_id == doc_id)
    assert hashlib.sha256(msgspec.json.encode(document)).hexdigest() == DIGESTS[doc_id]


SYNTHETIC_DUMP = dump(
    question(
        7,
        Title="Why  is my soil\tsour & wet?",
        Body='<p>It <b>smells</b>:<br>see <a href="x">here</a> &amp; there.</p>\n\n<ul>\n<li>one</li>\n'
        "<li>two m<sup>2</sup><ol><li>deep</li></ol></li>\n</ul>\n\n"
        "<pre><code>if ph &lt; 5:\n\tadd(lime)\n</code></pre>\n",
        AcceptedAnswerId=9,
        ViewCount=12,
        OwnerUserId=3,
        Tags="<soil><ph>",
        LastActivityDate="2019-02-03T04:05:06.007",
    ),
    answer(8, 7, Score=5, Body="<p>Add <code>lime</code>.</p>", OwnerUserId=4, CreationDate="2019-02-03T04:05:06.007"),
    answer(9, 7, Score=-1, Body="<blockquote><p>Wait,</p><p>and see.</p></blockquote><p>Größe &#8212; 2&nbsp;m</p>"),
    answer(10, 7, Score=0, Body=""),
)
SYNTHETIC_TEXT = """\
Why is my soil sour & wet?

It smells:
see here & there.

- one
- two m^2
  1. deep

```
if ph < 5:
	add(lime)
```

Answer:

> Wait,
>
> and see.

Größe — 2 m

Answer:

Add `lime`."""

SYNTHETIC_COLUMNS = {
    "site": "garden.example.org",
    "score": 3,
    "view_count": 12,
    "answer_count": None,
    "comment_count": None,
    "favorite_count": None,
    "accepted_answer_id": 9,
    "owner_user_id": 3,
    "last_edit_date": None,
    "last_activity_date": "2019-02-03T04:05:06.007",
    "closed_date": None,
    "community_owned_date": None,
    "content_license": None,
    "tags": ["soil", "ph"],
    "answers": [
        {
            "id": 9,
            "score": -1,
            "owner_user_id": None,
            "created_at": "2014-01-22T20:26:05.383",
            "license_tag": "cc-by-sa-3.0",
            "source_row": 2,
        },
        {
            "id": 8,
            "score": 5,
            "owner_user_id": 4,
            "created_at": "2019-02-03T04:05:06.007",
            "license_tag": "cc-by-sa-4.0",
            "source_row": 1,
        },
    ],
}


def test_a_synthetic_document_has_this_text_and_metadata(read: Read) -> None:
    [document] = (outcome for outcome in read(SYNTHETIC_DUMP) if isinstance(outcome, Document))

    assert document == Document(
        text=SYNTHETIC_TEXT,
        source="stackexchange",
        domain="qa",
        doc_id="stackexchange:garden.example.org:7",
        license_tag="cc-by-sa-4.0",
        created_at="2014-01-21T20:26:05.383",
        meta=Meta(
            source_file="garden.7z",
            source_row=0,
            license_evidence="date: 2019-02-03; newest of 2 cc-by-sa-3.0, 1 cc-by-sa-4.0",
            title="Why  is my soil\tsour & wet?",
            url="https://garden.example.org/questions/7",
            language="",
            extra=msgspec.json.encode(SYNTHETIC_COLUMNS).decode(),
        ),
    )
