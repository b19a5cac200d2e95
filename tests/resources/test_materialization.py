"""What the UI shows of an artifact."""

from resources.artifact_metadata import preview_table


def test_what_a_document_says_is_shown_as_text() -> None:
    rows = [{"doc_id": "<urn:uuid:1>", "characters": "1,200", "text": "![x](http://evil.example/p.png) | a"}]

    assert preview_table(rows).splitlines() == [
        "| doc_id | characters | text |",
        "| --- | --- | --- |",
        "| \\<urn:uuid:1\\> | 1,200 | `![x](http://evil.example/p.png) \\| a` |",
    ]
    assert preview_table([]) == "(none)"
