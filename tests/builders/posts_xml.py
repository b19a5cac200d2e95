"""Stack Exchange Posts.xml and the recipe of its site."""

from xml.sax.saxutils import escape

from pipeline_assets.corpus.readers.stackexchange.threads import SiteRecipe

HEAD, END = b'\xef\xbb\xbf<?xml version="1.0" encoding="utf-8"?>\n<posts>\n', b"</posts>"
_ESCAPES = {'"': "&quot;", "\n": "&#xA;", "\r": "&#xD;", "\t": "&#x9;"}


def row(**attributes: object) -> bytes:
    """Render a row; attributes that are None are omitted."""
    texts = {name: str(value) for name, value in attributes.items() if value is not None}
    values = " ".join(f'{name}="{escape(value, _ESCAPES)}"' for name, value in texts.items())
    return f"  <row {values} />\n".encode()


def question(post_id: int, **changes: object) -> bytes:
    defaults = {"CreationDate": "2014-01-21T20:26:05.383", "Score": 3, "Body": f"<p>Body {post_id}</p>\n"}
    return row(Id=post_id, PostTypeId=1, **{**defaults, "Title": f"Title {post_id}", **changes})


def answer(post_id: int, parent_id: int, **changes: object) -> bytes:
    defaults = {"CreationDate": "2014-01-22T20:26:05.383", "Score": 1, "Body": f"<p>Body {post_id}</p>\n"}
    return row(Id=post_id, PostTypeId=2, ParentId=parent_id, **{**defaults, **changes})


def dump(*rows: bytes) -> bytes:
    return HEAD + b"".join(rows) + END


def site(host: str = "garden.example.org", **rules: object) -> SiteRecipe:
    """Build a recipe that keeps every thread, except for the rules."""
    scores = {"min_question_score": None, "min_answer_score": None, "min_answers": 0}
    return SiteRecipe.from_content({"source": "stackexchange", "domain": "qa", "host": host, **scores, **rules})
