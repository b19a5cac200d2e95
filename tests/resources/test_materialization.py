"""Previews of an artifact in the UI."""

from resources.artifact_metadata import preview_table


def test_markup_in_documents_is_escaped() -> None:
    rows = [{"doc_id": "<urn:uuid:1>", "characters": "1,200", "text": "![x](http://evil.example/p.png) | a"}]

    assert preview_table(rows).splitlines() == [
        "| doc_id | characters | text |",
        "| --- | --- | --- |",
        "| \\<urn:uuid:1\\> | 1,200 | `![x](http://evil.example/p.png) \\| a` |",
    ]
    assert preview_table([]) == "(none)"
