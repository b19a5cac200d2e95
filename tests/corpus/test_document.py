"""A Document's bytes and the id of a text whose source has none."""

import msgspec

from pipeline_assets.corpus.document import Document, DocumentText, derived_doc_id


def document() -> Document:
    return Document("Ärger\n", "fineweb_edu", "web", "<urn:1>", "odc-by", None, {"score": 3.5, "source_row": 7})


def test_a_document_is_written_in_the_order_of_its_fields() -> None:
    line = msgspec.json.encode(document())

    assert line.decode() == (
        '{"text":"Ärger\\n","source":"fineweb_edu","domain":"web","doc_id":"<urn:1>","license_tag":"odc-by",'
        '"created_at":null,"meta":{"score":3.5,"source_row":7}}'
    )


def test_a_line_reads_back_as_the_document_that_it_was() -> None:
    line = msgspec.json.encode(document())

    assert msgspec.json.decode(line, type=Document) == document()
    assert msgspec.json.decode(line, type=DocumentText) == DocumentText("<urn:1>", "Ärger\n", "odc-by")


def test_a_derived_id_is_the_sha256_of_dataset_config_split_and_text_joined_by_nul() -> None:
    # printf 'maker/pages\0default\0train\0text' | sha256sum
    assert derived_doc_id("maker/pages", "default", "train", "text") == (
        "86e79c823f2b52e0ca7f125e73ac2b7420ad69b986e51d2bc75d3f7ba92e6780"
    )


def test_derived_ids_differ_where_only_the_border_between_parts_moves() -> None:
    first = derived_doc_id("maker/pages", "en", "train", "text")
    second = derived_doc_id("maker/pages", "entrain", "", "text")

    assert first != second
